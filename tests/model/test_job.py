"""Jobs round-trip: lenient where the service is free, strict about id and status."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async import OutcomeUnknownError
from mintlify_async.errors import UnexpectedResponseError
from mintlify_async.model.job_record import Job, Source
from mintlify_async.model.response_info import Headers, ResponseInfo
from mintlify_async.model.strict_json import json_safe
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


def test_a_field_that_is_set_is_written_anew() -> None:
    """Neither a null, nor the text of an instant, outlives the value that it stood for."""
    sent = {**JOB, "createdAt": "2026-01-02"}
    job = Job.from_wire(sent)
    assert pickle.loads(pickle.dumps(job)).to_wire() == attrs.evolve(job).to_wire() == sent
    changed = attrs.evolve(job, pr_link="https://example.com/1", created_at=datetime(2030, 1, 1, tzinfo=UTC))
    wire = changed.to_wire()
    assert (wire["prLink"], wire["createdAt"]) == ("https://example.com/1", "2030-01-01T00:00:00.000Z")
    assert Job.from_wire(wire) == changed
    assert Job(id="j", status="active").to_wire() == {"id": "j", "status": "active"}


@pytest.mark.parametrize("part", ["000", "001", "678", "999", "000001", "678901"])
def test_a_date_is_written_with_its_milliseconds(part: str) -> None:
    """As JavaScript writes it; with microseconds only if there are any."""
    created = datetime(2030, 1, 1, microsecond=int(part.ljust(6, "0")), tzinfo=UTC)
    assert (
        Job(id="j", status="active", created_at=created).to_wire()["createdAt"]
        == f"2030-01-01T00:00:00.{part}Z"
    )


@pytest.mark.parametrize("more", ['"é":"€"', '"threadKey":"secret"', '"a":1'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
async def test_the_json_of_a_record_is_kept_beside_its_envelope(service, session, mark, more):
    """``job.raw`` has every field as it came, whatever the job makes of it; no thread's key."""
    text = f'{{"z":1e400,"id":"job_1","status":"active","n":1.50,"prLink":null,{more}}}'
    service.script.create_job(status=201, body=(mark + text).encode())
    raw = (await session.create_job("x")).job.raw
    assert raw.status == 201
    assert raw.json == json.loads(text.replace("secret", "****"))
    assert b"1.50" in raw.body
    assert b"secret" not in raw.body + pickle.dumps(raw)
    assert "prLink" not in repr(raw)
    assert pickle.loads(pickle.dumps(raw)).json == raw.json
    assert ResponseInfo(status=200).json is None


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
async def test_a_record_with_a_number_that_json_has_not_is_refused(service, session, word):
    """As in the stream: what is not JSON is no record, on a poll and after a POST."""
    body = b'{"id":"job_1","status":"completed","x":%s}' % word.encode()
    service.script.create_job(status=201, body=body)
    service.script.get_job(body=body, times=None)
    with pytest.raises(OutcomeUnknownError):
        await session.create_job("x")
    with pytest.raises(UnexpectedResponseError):
        await session.job("job_1").refresh()


@pytest.mark.parametrize("status", ["queued", "COMPLETED"])
def test_an_unlisted_status_is_kept_and_not_done(status: str) -> None:
    """A state added next year must not break polling."""
    job = Job.from_wire({**JOB, "status": status})
    assert job.status == status
    assert not job.done


ODD = {"source": "acme", "model": 5, "prLink": False, "createdAt": "yesterday", "archivedAt": {}, "new": [1]}


@pytest.mark.parametrize(("field", "content"), [*ODD.items(), ("createdAt", 5)])
def test_an_odd_optional_field_does_not_hide_the_job(field: str, content: object) -> None:
    """Id and status are enough; what does not fit is kept and given back."""
    job = Job.from_wire({**JOB, field: content})
    assert (job.id, job.extra) == ("job_1", {field: content})
    assert job.to_wire()[field] == content


NO_JOBS = [None, [], "x", {}, {"id": "j"}, {"id": 5, "status": "active"}]
NO_JOBS += [{"id": "j", "status": None}, {"id": "j", "status": ""}]


@pytest.mark.parametrize("wire", NO_JOBS)
def test_no_job_without_id_and_status(wire: object) -> None:
    """An answer that names no job is an error that shows it, and no key in it."""
    if isinstance(wire, dict):
        wire = {**wire, "threadKey": "secret"}
    with pytest.raises(UnexpectedResponseError) as caught:
        Job.from_wire(wire, ResponseInfo(status=200, request_id="r"))
    assert (caught.value.status, caught.value.request_id) == (200, "r")
    assert "secret" not in str(caught.value) + caught.value.excerpt
    assert json.loads(caught.value.excerpt) == (
        {**wire, "threadKey": "****"} if isinstance(wire, dict) else wire
    )


# A thread's key is left out, whatever its type and however deep; see `drop_keys`.
@given(st.dictionaries(st.text(), JSON).filter(lambda extra: "threadKey" not in repr(extra)))
def test_any_extra_field_of_a_job_is_given_back(extra: dict[str, Any]) -> None:
    """Fields of later versions pass through a job unchanged, but for infinities and thread keys."""
    fields = {name: content for name, content in extra.items() if name not in JOB}
    assert Job.from_wire({**fields, **JOB}).to_wire() == json_safe({**fields, **JOB})


@pytest.mark.parametrize("depth", [100, 300, 700, 3000])
async def test_a_job_is_read_only_when_it_can_be_printed_and_copied(service, session, depth):
    """A job nested too deeply to be printed, copied or pickled is refused."""
    body = b'{"id":"j","status":"completed","x":' + b"[" * depth + b"]" * depth + b"}"
    service.script.create_job(status=201, body=body)
    try:
        job = (await session.create_job("x")).job
    except OutcomeUnknownError:
        assert depth > 200
    else:
        repr(job)
        copy.deepcopy(job)
        pickle.loads(pickle.dumps(job))
        job.to_wire()
