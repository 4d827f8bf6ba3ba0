"""Bodies that are broken, none, or cut: of a job, of an error, of a streamed answer."""

from __future__ import annotations

import pytest

from mintlify_async import (
    APIConnectionError,
    APITimeoutError,
    NotFoundError,
    OutcomeUnknownError,
    StreamInterruptedError,
    Timeouts,
)
from mintlify_async.errors import UnexpectedResponseError
from mintlify_async.testing import LocalService
from mintlify_async.testing.faults import Cut
from tests.support.fault_catalogue import (
    AGENT,
    BODY,
    BROKEN_BODIES,
    POSTS,
    STREAM_CUTS,
    WHOLE_EVENTS,
    failure,
    script,
)
from tests.support.odd_faults import BrokenGzip, Endless

JOB = {"id": "job_1", "status": "active"}


@pytest.fixture
async def service(virtual):
    """A service with one finished job, in virtual time."""
    async with LocalService() as service:
        async with service.session() as session:
            await (await session.create_job("first")).wait()
        yield service


@pytest.fixture
async def session(service):
    async with service.session(timeouts=Timeouts(connect=2)) as session:
        yield session


NOT_A_JOB = {
    "empty": b"",
    "html": b"<html>ok</html>",
    "bad json": b'{"id": "job_1", "status": ',
    "a list": b"[]",
    "null": b"null",
    "a string": b'"job_1"',
    "no id": b'{"status": "active"}',
    "no status": b'{"id": "job_1"}',
    "a number for an id": b'{"id": 7, "status": "active"}',
    "null for a status": b'{"id": "job_1", "status": null}',
    "latin-1": '{"id": "é", "status": 1}'.encode("latin-1"),
    "nested too deep": b'{"id":' + b"[" * 100_000,
    "a number that is too long": b'{"id": ' + b"1" * 5000 + b"}",
}


# A POST that was answered with an id alone was accepted; tests/jobs has it.
ID_ALONE = ("no status", "null for a status")


@pytest.mark.parametrize(
    ("operation", "name"),
    [(one, name) for one in AGENT for name in NOT_A_JOB if one == "get_job" or name not in ID_ALONE],
)
async def test_a_success_that_is_not_a_job(session, service, operation, name):
    """A POST that was accepted like this may have made a job; a GET is tried again."""
    script(service, operation, status=200, body=NOT_A_JOB[name])
    error, sent = await failure(session, service, operation)
    if operation in POSTS:
        assert isinstance(error, OutcomeUnknownError)
        assert error.status == 200
        assert sent == 1
    else:
        assert isinstance(error, UnexpectedResponseError)
        assert error.status == 200
        assert sent == 3


@pytest.mark.parametrize("name", BROKEN_BODIES)
@pytest.mark.parametrize("operation", AGENT)
async def test_a_success_whose_body_breaks(session, service, operation, name):
    """A broken body is of unknown outcome for a POST and an error of ours for a GET, within bounds."""
    script(service, operation, fault=BROKEN_BODIES[name])
    error, sent = await failure(session, service, operation)
    if operation in POSTS:
        assert isinstance(error, OutcomeUnknownError)
        assert sent == 1
    else:
        assert isinstance(error, APIConnectionError | UnexpectedResponseError)
        assert sent >= 1


@pytest.mark.parametrize("status", [200, 201, 202])
async def test_any_success_status_with_a_job_is_a_success(session, service, status):
    """The interface does not say which status a creation has: 200, 201 and 202 are taken."""
    service.script.create_job(status=status, body=JOB)
    handle = await session.create_job("x")
    assert handle.raw.status == status


@pytest.mark.parametrize("operation", AGENT)
async def test_an_error_page_without_end_is_cut_and_its_status_kept(session, service, operation):
    """At most 64 KiB of an error page are read; its status decides the error."""
    script(service, operation, status=404, body=b"x" * 2_000_000)
    error, _ = await failure(session, service, operation)
    assert type(error) is NotFoundError
    assert len(error.body) <= 65536
    assert len(str(error)) < 600


@pytest.mark.parametrize("name", STREAM_CUTS)
async def test_a_stream_that_breaks_keeps_what_had_arrived(session, service, name):
    """Everything decoded is delivered first; the error has the partial message."""
    service.script.ask(body=BODY, fault=STREAM_CUTS[name])
    seen = []

    async def read(reply):
        async for event in reply:
            seen.append(event.type)

    async with session.ask("Hi") as reply:
        with pytest.raises(StreamInterruptedError) as caught:
            await read(reply)
    assert seen == ["start", "text-start", "text-delta"]
    assert caught.value.partial.text == caught.value.text == "Hello "
    assert caught.value.events_seen == 3
    assert reply.text == "Hello "


@pytest.mark.parametrize("how", ["fin", "rst", "hang"])
@pytest.mark.parametrize("done", [False, True])
async def test_a_break_after_the_announced_end_is_a_normal_end(session, service, how, done):
    """After ``finish``, or ``[DONE]``, a break, or one second of silence, is a normal end."""
    service.script.ask(body=BODY + b": x", fault=Cut(-3 if done else BODY.index(b"data: [DONE]"), how))
    reply = await session.ask("Hi")
    assert reply.text == "Hello world"
    assert reply.thread_id == "t1"
    assert reply.finish_reason == "stop"


BROKEN_STREAMS = {
    "gzip that is none": (BrokenGzip(), APIConnectionError | StreamInterruptedError),
    "gzip cut short": (BrokenGzip(cut=True), StreamInterruptedError),
    "no bytes": (Cut(0, clean=True), StreamInterruptedError),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_stream_that_cannot_be_unpacked(session, service, name):
    """A stream that cannot be decompressed is an error of ours, never an empty answer."""
    fault, expected = BROKEN_STREAMS[name]
    service.script.ask(body=BODY, fault=fault)
    error, sent = await failure(session, service, "ask")
    assert isinstance(error, expected)
    assert sent == 1


async def test_a_success_that_is_no_stream(session, service):
    """A success that is no event stream is an error with the response's status and headers."""
    service.script.ask(status=200, body="Hello there", headers={"X-Request-Id": "req_3"})
    error, _ = await failure(session, service, "ask")
    assert isinstance(error, UnexpectedResponseError)
    assert (error.status, error.request_id, error.headers["x-request-id"]) == (200, "req_3", "req_3")
    assert error.excerpt == "Hello there"


async def test_comments_do_not_replace_the_first_event(session, service, virtual):
    """A service that only says that it is alive is given up after the first-event timeout."""
    service.script.ask(body=BODY, fault=Endless())
    before = virtual.now()
    error, _ = await failure(session, service, "ask")
    assert isinstance(error, APITimeoutError)
    assert error.phase == "first_event"
    assert virtual.now() - before < 62


async def test_comments_keep_a_stream_alive_unless_told_otherwise(service, virtual):
    """By default a comment ends a silence; with comments_are_activity=False it does not."""
    pieces = [BODY[:WHOLE_EVENTS], *([100.0, b": alive\n\n"] * 4), BODY[WHOLE_EVENTS:]]
    async with service.session() as session:
        service.script.ask(body=pieces)
        assert (await session.ask("Hi")).text == "Hello world"
        service.script.ask(body=pieces)
        with pytest.raises(StreamInterruptedError, match="idle"):
            await session.with_options(timeouts=Timeouts(comments_are_activity=False)).ask("Hi")


async def test_a_total_limit_bounds_the_whole_answer(session, service, virtual):
    """The total limit ends an answer even if data keeps arriving."""
    service.script.ask(body=[BODY[:WHOLE_EVENTS], *([1.0, b": alive\n\n"] * 100)])
    before = virtual.now()
    with pytest.raises(StreamInterruptedError, match="total") as caught:
        await session.ask("Hi", timeout=10)
    assert virtual.now() - before <= 11
    assert caught.value.text == "Hello "
    assert isinstance(caught.value.__cause__, APITimeoutError)
    assert caught.value.__cause__.phase == "total"
