"""Jobs round-trip: lenient where the service is free, strict about id and status."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import tracemalloc
import weakref
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async import OutcomeUnknownError
from mintlify_async.errors import UnexpectedResponseError
from mintlify_async.messages import coerce_messages
from mintlify_async.model.job_record import Job, JobStatus, Source
from mintlify_async.model.json_text import json_safe
from mintlify_async.model.response_info import Headers, ResponseInfo
from mintlify_async.protocol.assumptions import Assumptions
from mintlify_async.protocol.responses import response_info
from tests.support.json_values import JSON

JOB: dict[str, Any] = {
    "id": "job_1",
    "status": "active",
    "source": {"repository": "acme/docs", "ref": None},
    "model": "m",
    "prLink": None,
    "createdAt": "2026-01-02T03:04:05.678Z",
    "archivedAt": None,
}


def test_a_job_round_trips() -> None:
    """The wire's object gives a job with the wire's values, and the job gives it back."""
    job = Job.from_wire(JOB, ResponseInfo(status=201, headers=Headers({"X-Request-Id": "r"})))
    assert job.to_wire() == JOB
    assert job.created_at == datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert job.source == Source(repository="acme/docs")
    assert job.raw is not None
    assert job.raw.headers["x-request-id"] == "r"
    assert job == Job.from_wire(JOB)
    assert pickle.loads(pickle.dumps(job)) == job == copy.deepcopy(job)
    assert "raw" not in repr(job)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        job.status = "failed"  # type: ignore[misc]


@pytest.mark.parametrize(
    "wire",
    [
        {"id": "j", "status": "active"},
        {"id": "j", "status": "active", "prLink": None},
        {"id": "j", "status": "active", "source": None, "model": None, "createdAt": None, "archivedAt": None},
        {"id": "j", "status": "active", "source": {}},
        {"id": "j", "status": "active", "source": {"ref": None}, "new": None},
        {"id": "j", "status": "active", "source": {"repository": None, "ref": "main", "new": None}},
    ],
)
def test_null_stays_null_and_absent_stays_absent(wire: dict[str, Any]) -> None:
    """What is stored and sent on is what came, also after copies."""
    job = Job.from_wire(wire)
    for again in (job, pickle.loads(pickle.dumps(job)), copy.deepcopy(job), Job.from_wire(job.to_wire())):
        assert again.to_wire() == wire
    assert "null" not in repr(job)


def test_a_field_that_is_set_is_no_longer_null() -> None:
    """The note of what was null does not outlive the null."""
    job = attrs.evolve(Job.from_wire(JOB), pr_link="https://example.com/pull/1")
    assert job.to_wire() == {**JOB, "prLink": "https://example.com/pull/1"}
    assert Job(id="j", status="active").to_wire() == {"id": "j", "status": "active"}


@pytest.mark.parametrize("more", ['"é":"€"', '"threadKey":"secret"', '"a":1'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
async def test_the_json_of_a_record_is_kept_beside_its_envelope(service, mark, more):
    """``job.raw`` has every field as it came, whatever the job makes of it; no thread's key."""
    text = f'{{"z":1e400,"id":"job_1","status":"active","n":1.50,"prLink":null,{more}}}'
    service.script.create_job(status=201, body=(mark + text).encode())
    async with service.session() as session:
        raw = (await session.create_job("x")).job.raw
    assert raw.status == 201
    assert raw.json == json.loads(text.replace("secret", "***"))
    assert b"1.50" in raw.body
    assert b"secret" not in raw.body + pickle.dumps(raw)
    assert "prLink" not in repr(raw)
    assert pickle.loads(pickle.dumps(raw)).json == raw.json
    assert ResponseInfo(status=200).json is None


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
async def test_a_record_with_a_number_that_json_has_not_is_refused(service, word):
    """As in the stream: what is not JSON is no record, on a poll and after a POST."""
    body = b'{"id":"job_1","status":"completed","x":%s}' % word.encode()
    service.script.create_job(status=201, body=body)
    service.script.get_job(body=body, times=None)
    async with service.session() as session:
        with pytest.raises(OutcomeUnknownError):
            await session.create_job("x")
        with pytest.raises(UnexpectedResponseError):
            await session.job("job_1").refresh()


@pytest.mark.parametrize(
    "instant", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.6+02:00", "2026-01-02T03:04:05"]
)
def test_instants_are_given_back_as_they_came(instant: str) -> None:
    """A job that is stored and sent on says the same instant in the same words."""
    job = Job.from_wire({**JOB, "createdAt": instant})
    assert job.created_at is not None
    assert job.created_at.tzinfo is not None
    assert job.to_wire()["createdAt"] == instant


def test_a_changed_instant_is_written_anew() -> None:
    """The words of the service stand for the instant they were read as, no other."""
    job = attrs.evolve(Job.from_wire(JOB), created_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert job.to_wire()["createdAt"] == "2030-01-01T00:00:00.000Z"


@pytest.mark.parametrize("status", ["queued", "COMPLETED", ""])
def test_an_unlisted_status_is_kept_and_not_done(status: str) -> None:
    """A state added next year must not break polling; none at all is no job."""
    if not status:
        with pytest.raises(UnexpectedResponseError):
            Job.from_wire({**JOB, "status": status})
        return
    job = Job.from_wire({**JOB, "status": status})
    assert job.status == status
    assert not job.done


@pytest.mark.parametrize("status", list(JobStatus))
def test_listed_statuses(status: JobStatus) -> None:
    """All but active end a job; a status compares with the plain word."""
    assert Job.from_wire({**JOB, "status": str(status)}).done is (status != "active")


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("source", "acme"),
        ("model", 5),
        ("prLink", False),
        ("createdAt", "yesterday"),
        ("createdAt", 5),
        ("archivedAt", {}),
        ("new", {"a": [1]}),
    ],
)
def test_an_odd_optional_field_does_not_hide_the_job(field: str, content: object) -> None:
    """Id and status are enough; what does not fit is kept and given back."""
    job = Job.from_wire({**JOB, field: content})
    assert (job.id, job.extra) == ("job_1", {field: content})
    assert job.to_wire()[field] == content


@pytest.mark.parametrize(
    "wire", [None, [], "x", {}, {"id": "j"}, {"id": 5, "status": "active"}, {"id": "j", "status": None}]
)
def test_no_job_without_id_and_status(wire: object) -> None:
    """An answer that names no job is an error that shows it, and no key in it."""
    if isinstance(wire, dict):
        wire = {**wire, "threadKey": "secret"}
    with pytest.raises(UnexpectedResponseError) as caught:
        Job.from_wire(wire, ResponseInfo(status=200, request_id="r"))
    assert (caught.value.status, caught.value.request_id) == (200, "r")
    assert "secret" not in str(caught.value) + caught.value.excerpt
    assert json.loads(caught.value.excerpt) == (
        {**wire, "threadKey": "***"} if isinstance(wire, dict) else wire
    )


# A thread's key is left out, whatever its type and however deep; see `drop_keys`.
@given(st.dictionaries(st.text(), JSON).filter(lambda extra: "threadKey" not in repr(extra)))
def test_any_extra_field_of_a_job_is_given_back(extra: dict[str, Any]) -> None:
    """Fields of later versions pass through a job unchanged, but for infinities and thread keys."""
    fields = {name: content for name, content in extra.items() if name not in JOB}
    assert Job.from_wire({**fields, **JOB}).to_wire() == json_safe({**fields, **JOB})


def test_records_from_the_wire_are_as_frozen_as_made_ones() -> None:
    """Values read from the wire are frozen objects of their classes and can be referred to weakly."""
    raw = response_info(Assumptions(), 200, {"X-A": "1"})
    job = Job.from_wire({"id": "j", "status": "active", "source": {"repository": "r"}}, raw)
    assert job.source is not None
    for value in (job, job.source, raw, coerce_messages("x", lambda: "1")[0]):
        assert type(value).__name__ in ("Job", "Source", "ResponseInfo", "Message")
        assert weakref.ref(value)() is value
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.extra = {}  # type: ignore[misc]


def test_a_subclass_reads_itself() -> None:
    """``from_wire`` of a subclass returns an object of it, with every field."""

    class OurJob(Job):
        pass

    class OurSource(Source):
        pass

    job = OurJob.from_wire(JOB)
    assert type(job) is OurJob
    assert job.to_wire() == Job.from_wire(JOB).to_wire()
    assert type(OurSource.from_wire({"repository": "r"})) is OurSource


def test_what_does_not_fit_keeps_its_place() -> None:
    """Fields of an unforeseen type stay in ``extra`` in the order in which they came."""
    wire = {"id": "j", "status": "s", "source": 1.5, "createdAt": 7, "z": 1, "model": 2}
    assert list(Job.from_wire(wire).extra) == ["source", "createdAt", "z", "model"]


@pytest.mark.parametrize("depth", [100, 300, 700, 3000])
async def test_a_job_is_read_only_when_it_can_be_printed_and_copied(service, depth):
    """A job nested too deeply to be printed, copied or pickled is refused."""
    body = b'{"id":"j","status":"completed","x":' + b"[" * depth + b"]" * depth + b"}"
    service.script.create_job(status=201, body=body)
    async with service.session() as session:
        try:
            job = (await session.create_job("x")).job
        except OutcomeUnknownError:
            assert depth > 200
        else:
            repr(job)
            copy.deepcopy(job)
            pickle.loads(pickle.dumps(job))
            job.to_wire()


def test_a_job_that_is_waited_for_is_small() -> None:
    """With the answer's headers, one of a thousand jobs takes no more than 2,000 bytes."""
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": "210",
        "Date": "Sun, 22 Nov 2026 05:08:03 GMT",
        "Server": "Python/3.11 aiohttp/3.13.0",
        "RateLimit-Remaining": "99",
    }

    def receive(number: int) -> Job:
        fresh: dict[str, str] = json.loads(json.dumps({**headers, "X-Request-Id": f"req_{number}"}))
        info = response_info(Assumptions(), 200, fresh)
        return Job.from_wire(json.loads(json.dumps({**JOB, "id": f"job_{number}"})), raw=info)

    receive(0)
    gc.collect()
    tracemalloc.start()
    jobs = [receive(number) for number in range(1000)]
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert jobs[1].raw is not None
    assert jobs[1].raw.headers["X-Request-Id"] == "req_1"
    assert used / len(jobs) < 2000
