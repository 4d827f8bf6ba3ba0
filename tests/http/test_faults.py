"""The catalogue of faults over the four operations: what is raised, what was sent how often, what is kept.

Each fault is played by the local service on a real socket. What the catalogue
promises of leaks and of keys is checked by the fixtures under every test.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace

import aiohttp
import pytest
from fault_catalogue import BODY, BROKEN_BODIES, LOST, STREAM_CUTS, WHOLE_EVENTS
from secret_guard import reprs

from mintlify_async import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitError,
    RetryPolicy,
    StateError,
    StreamInterruptedError,
    Timeouts,
)
from mintlify_async.errors import (
    BadRequestError,
    ConflictError,
    PermissionDeniedError,
    ServerError,
    UnexpectedResponseError,
)
from mintlify_async.http.failures import version_numbers
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import (
    BrokenGzip,
    Cut,
    Endless,
    NoAnswer,
    Redirect,
)

JOB = {"id": "job_1", "status": "active"}
POSTS = ("create_job", "send_message")
AGENT = (*POSTS, "get_job")
ALL = (*AGENT, "ask")


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    """A service with one finished job, on a virtual clock."""
    async with LocalService(clock=clock) as service:
        async with service.session() as session:
            await (await session.create_job("first")).wait()
        yield service


@pytest.fixture
async def session(service):
    async with service.session(timeouts=Timeouts(connect=2)) as session:
        yield session


async def call(session, operation):
    """Do *operation* once, as a user would."""
    if operation == "create_job":
        return await session.create_job("Fix the typos")
    if operation == "send_message":
        return await session.job("job_1").send("More")
    if operation == "get_job":
        return await session.job("job_1").refresh()
    return await session.ask("How do I log in?")


def script(service, operation, **answer):
    """Queue *answer* for *operation*, for as long as it is asked."""
    return getattr(service.script, operation)(times=None, **answer)


async def failure(session, service, operation):
    """Return the error of *operation* and how often it was sent."""
    before = sum(request.operation == operation for request in service.requests)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at its type
        await call(session, operation)
    return caught.value, sum(r.operation == operation for r in service.requests) - before


# No answer ------------------------------------------------------------------------------------

# Before 3.13.4, aiohttp's parser accepts these two heads. The connection then ends without a body, so that
# each operation sees an empty answer with status 200 instead of a broken one.
ACCEPTED_BEFORE_3_13_4 = {"too many headers", "a NUL in a header"}


def accepted(name):
    """Tell whether the installed aiohttp lets the answer *name* through."""
    return name in ACCEPTED_BEFORE_3_13_4 and version_numbers(aiohttp.__version__) < (3, 13, 4)


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("operation", ALL)
async def test_no_readable_answer_after_sending(session, service, operation, name):
    """An agent POST is of unknown outcome and sent once; a question is sent once; a GET again and again."""
    script(service, operation, fault=LOST[name])
    error, sent = await failure(session, service, operation)
    if operation in POSTS:
        assert isinstance(error, OutcomeUnknownError)
        if accepted(name):
            assert (error.status, error.body) == (200, "")
        else:
            assert (error.status, error.body, error.headers) == (None, None, None)
        assert error.operation == operation
        assert error.sent_at is not None
        assert error.project_id == "acme"
        assert len(error.prompt_sha256) == 64
        assert sent == 1
    else:
        if accepted(name):
            assert isinstance(
                error, StreamInterruptedError if operation == "ask" else UnexpectedResponseError
            )
            assert "empty" in str(error)
        else:
            assert isinstance(error, APIConnectionError)
            assert error.sent == "maybe"
        # aiohttp itself sends a GET a second time when the connection was lost.
        assert sent == 1 if operation == "ask" else 3 <= sent <= 6


@pytest.mark.parametrize("operation", ALL)
async def test_silence_is_a_timeout_that_says_which(session, service, operation):
    """60 seconds for an agent request in all, 60 for an answer's first event."""
    script(service, operation, fault=NoAnswer())
    error, sent = await failure(session, service, operation)
    if operation in POSTS:
        assert isinstance(error, OutcomeUnknownError)
        assert "request timeout" in str(error)
    else:
        assert isinstance(error, APITimeoutError)
        assert isinstance(error, TimeoutError)
        assert error.phase == ("first_event" if operation == "ask" else "request")
        assert error.seconds == 60
        assert "60 s" in str(error)
    assert sent == (2 if operation == "get_job" else 1)  # a look is sent again on a fresh connection


@pytest.mark.parametrize("operation", ALL)
async def test_refused_connections_are_tried_again_and_certainly_not_sent(session, service, operation):
    """Nothing went out, so even a creation is tried again; then the error says so."""
    seen = []
    async with service.session(on_request=seen.append, on_retry=seen.append) as session, service.refusing():
        error, sent = await failure(session, service, operation)
    assert isinstance(error, APIConnectionError)
    assert error.sent == "no"
    assert error.reason == "connect"
    assert sent == 0
    attempts = [
        getattr(event, "attempt", None) for event in seen if getattr(event, "operation", "") == operation
    ]
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("operation", ALL)
async def test_a_name_that_does_not_resolve_was_not_sent(service, operation):
    """The error names the host."""
    async with service.session(base_url="https://no-such-host.invalid") as session:
        error, sent = await failure(session, service, operation)
    assert isinstance(error, APIConnectionError)
    assert (error.sent, error.reason) == ("no", "dns")
    assert "no-such-host.invalid" in str(error)
    assert sent == 0


@pytest.mark.parametrize("operation", ALL)
async def test_a_plain_server_behind_https_was_not_sent(service, operation):
    """The TLS handshake fails before any byte of the request."""
    async with service.session(base_url=service.tls_url) as session:
        error, sent = await failure(session, service, operation)
    assert isinstance(error, APIConnectionError)
    assert error.sent == "no"
    assert error.reason == "tls"
    assert sent == 0


@pytest.fixture
async def silent_url():
    """The https URL of a server that takes connections and never says a word."""

    async def listen(reader, writer):
        try:
            await reader.read(-1)
        finally:
            writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("borrowed", [False, True])
@pytest.mark.parametrize("operation", ALL)
async def test_connecting_has_a_limit_of_its_own(silent_url, service, operation, borrowed):
    """The TLS handshake is a part of connecting: nothing was sent, and the error says which limit it was."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession()) if borrowed else None
        session = service.session(
            base_url=silent_url,
            client_session=client,
            clock=SystemClock(),
            timeouts=Timeouts(connect=0.05),
            retry=RetryPolicy(attempts=1),
        )
        error, sent = await failure(await stack.enter_async_context(session), service, operation)
    assert isinstance(error, APITimeoutError)
    assert (error.phase, error.seconds, error.sent) == ("connect", 0.05, "no")
    assert sent == 0


@pytest.mark.parametrize("operation", [*POSTS, "ask"])
async def test_nothing_is_written_after_the_limit(service, operation, monkeypatch):
    """A body whose writing begins after the limit is not sent, and the error says so.

    The loop is held up past the limit in the very step in which the connection is there. On Python 3.11,
    aiohttp writes the body a step later, in a task of its own. From 3.12 on it starts that task at once, so
    that the limit comes after the first byte: the request is sent once, and the error does not deny it.
    """
    create = aiohttp.TCPConnector._create_connection

    async def create_late(self, *arguments):
        made = await create(self, *arguments)
        held = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: (held.set_result(None), time.sleep(0.1)))
        await held
        return made

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", create_late)
    limits, once = Timeouts(request=0.05, first_event=0.05), RetryPolicy(attempts=1)
    async with service.session(clock=SystemClock(), timeouts=limits, retry=once) as session:
        before = sum(one.operation == operation for one in service.requests)  # the fixture's own
        error, _ = await failure(session, service, operation)
    if sys.version_info >= (3, 12):
        assert isinstance(error, APITimeoutError if operation == "ask" else OutcomeUnknownError)
    else:
        assert isinstance(error, APITimeoutError)
        assert (error.phase, error.sent) == ("first_event" if operation == "ask" else "request", "no")
    await asyncio.sleep(0.05)  # what was written would arrive
    seen = sum(one.operation == operation for one in service.requests) - before
    assert seen == (1 if sys.version_info >= (3, 12) else 0)


@pytest.mark.parametrize("operation", ALL)
async def test_the_limit_on_connecting_ends_with_it(service, clock, operation):
    """An answer that takes longer than connecting may is waited for, and has its own limit."""
    script(service, operation, fault=NoAnswer())
    limits = Timeouts(connect=2, request=30, first_event=30)
    async with service.session(timeouts=limits, retry=RetryPolicy(attempts=1)) as session:
        began = clock.now()
        error, sent = await failure(session, service, operation)
    assert isinstance(error, OutcomeUnknownError if operation in POSTS else APITimeoutError)
    assert clock.now() - began == pytest.approx(30)
    assert sent == 1


# Refusals -------------------------------------------------------------------------------------

REFUSALS = {
    400: BadRequestError,
    401: AuthenticationError,
    402: APIStatusError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: APIStatusError,
    413: APIStatusError,
    422: BadRequestError,
    451: APIStatusError,
}


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("operation", ALL)
async def test_a_refusal_is_its_own_class_and_final(session, service, operation, status):
    """One request; status, body, headers and request id stay on the error."""
    script(
        service, operation, status=status, json={"error": "not like this"}, headers={"X-Request-Id": "req_9"}
    )
    error, sent = await failure(session, service, operation)
    assert type(error) is REFUSALS[status]
    assert error.status == status
    assert json.loads(error.body) == {"error": "not like this"}
    assert "not like this" in str(error)
    assert error.request_id == "req_9"
    assert error.operation == operation
    assert sent == 1


@pytest.mark.parametrize("operation", AGENT)
async def test_408_and_425_are_answers_to_a_post_and_retried_for_a_get(session, service, operation):
    """To an agent POST only 429 counts as refused before any work."""
    for status in (408, 425):
        rule = script(service, operation, status=status)
        error, sent = await failure(session, service, operation)
        rule.stop()
        assert type(error) is APIStatusError
        assert sent == (3 if operation == "get_job" else 1)


@pytest.mark.parametrize("operation", ALL)
async def test_429_without_a_word_is_tried_again_and_then_raised(session, service, operation):
    """It was refused before any work, so nothing is lost by asking again."""
    script(service, operation, status=429)
    error, sent = await failure(session, service, operation)
    assert type(error) is RateLimitError
    assert error.retry_after is None
    assert sent == 3


@pytest.mark.parametrize("operation", ALL)
async def test_a_short_retry_after_is_waited_for(session, service, clock, operation):
    """At least as long as asked, by the session's clock."""
    getattr(service.script, operation)(status=429, headers={"Retry-After": "2"})
    before = clock.now()
    await call(session, operation)
    assert clock.now() - before >= 2


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("header", ["Retry-After", "RateLimit-Reset", "X-RateLimit-Reset"])
async def test_a_long_retry_after_surfaces_at_once(session, service, clock, operation, header):
    """A day is not slept; the figure is on the error."""
    script(service, operation, status=429, headers={header: "86400"})
    before = clock.now()
    error, sent = await failure(session, service, operation)
    assert type(error) is RateLimitError
    assert error.retry_after == 86400
    assert "86400 s" in str(error)
    assert sent == 1
    assert clock.now() - before < 60


@pytest.mark.parametrize("operation", ALL)
async def test_x_should_retry_false_is_obeyed(session, service, operation):
    """The service knows better."""
    script(service, operation, status=429, headers={"X-Should-Retry": "false"})
    _, sent = await failure(session, service, operation)
    assert sent == 1


@pytest.mark.parametrize("operation", ALL)
async def test_a_storm_of_429_ends_within_the_deadline(service, clock, operation):
    """All attempts and pauses share one deadline."""
    script(service, operation, status=429, headers={"Retry-After": "7"})
    timeouts = Timeouts(request=30, total=30)
    async with service.session(timeouts=timeouts, retry=RetryPolicy(attempts=1000)) as session:
        before = clock.now()
        error, sent = await failure(session, service, operation)
    assert type(error) is RateLimitError
    assert clock.now() - before <= 30
    assert 3 <= sent <= 5


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 599])
@pytest.mark.parametrize("operation", ALL)
async def test_5xx_to_a_post_is_unknown_and_to_a_question_final(session, service, operation, status):
    """With HTML, as a CDN says it: the page is kept, its markup is not in the message."""
    page = "<html><body>Bad gateway</body></html>"
    script(service, operation, status=status, body=page, headers={"Retry-After": "1", "X-Request-Id": "r"})
    error, sent = await failure(session, service, operation)
    if operation in POSTS:
        assert isinstance(error, OutcomeUnknownError)
        assert error.headers["x-request-id"] == "r"
    else:
        assert type(error) is ServerError
    assert error.status == status
    assert error.body == page
    assert error.request_id == "r"
    assert "<html" not in str(error)
    assert sent == (3 if operation == "get_job" else 1)


@pytest.mark.parametrize("operation", ALL)
async def test_501_is_final(session, service, operation):
    """An operation that does not exist will not exist in a second."""
    script(service, operation, status=501)
    _, sent = await failure(session, service, operation)
    assert sent == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("operation", ALL)
async def test_a_redirect_is_reported_never_followed(session, service, operation, status):
    """Neither prompt nor key reach the other address; the message names only its host."""
    async with LocalService() as elsewhere:
        target = f"{elsewhere.base_url}/stolen?x=1"
        script(service, operation, fault=Redirect(target, status))
        error, sent = await failure(session, service, operation)
        assert elsewhere.requests == []
    assert type(error) is APIStatusError
    assert error.status == status
    assert "127.0.0.1" in str(error)
    assert "stolen" not in str(error)
    assert sent == 1


# Successes that are none ----------------------------------------------------------------------

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


@pytest.mark.parametrize("name", NOT_A_JOB)
@pytest.mark.parametrize("operation", AGENT)
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
    """The same: unknown for a POST, an error of ours for a GET, bounded in time and memory."""
    script(service, operation, fault=BROKEN_BODIES[name])
    error, sent = await failure(session, service, operation)
    if operation in POSTS:
        assert isinstance(error, OutcomeUnknownError)
        assert sent == 1
    else:
        assert isinstance(error, APIConnectionError | UnexpectedResponseError)
        assert sent >= 1


async def test_a_job_with_a_byte_order_mark_is_read(session, service):
    """It is allowed to be there."""
    service.script.create_job(status=201, body=b"\xef\xbb\xbf" + json.dumps(JOB).encode())
    assert (await session.create_job("x")).id == "job_1"


@pytest.mark.parametrize("status", [200, 201, 202])
async def test_any_success_status_with_a_job_is_a_success(session, service, status):
    """The interface does not show which one it is."""
    service.script.create_job(status=status, json=JOB)
    handle = await session.create_job("x")
    assert handle.raw.status == status


@pytest.mark.parametrize("operation", AGENT)
async def test_no_content_is_not_a_job(session, service, operation):
    """204 has no body, so the job's id is lost."""
    script(service, operation, status=204, body=b"")
    error, _ = await failure(session, service, operation)
    assert isinstance(error, OutcomeUnknownError if operation in POSTS else UnexpectedResponseError)


@pytest.mark.parametrize("operation", AGENT)
async def test_an_error_page_without_end_is_cut_and_its_status_kept(session, service, operation):
    """64 KiB of it, or two seconds: the status is what counts."""
    script(service, operation, status=404, body=b"x" * 2_000_000)
    error, _ = await failure(session, service, operation)
    assert type(error) is NotFoundError
    assert len(error.body) <= 65536
    assert len(str(error)) < 600


@pytest.mark.parametrize("operation", ALL)
async def test_an_error_page_that_stalls_is_not_waited_for(session, service, clock, operation):
    """Two seconds, then the status alone."""
    script(service, operation, status=403, body=b'{"error": "no"} and more', fault=Cut(5, "hang"))
    before = clock.now()
    error, _ = await failure(session, service, operation)
    assert type(error) is PermissionDeniedError
    assert clock.now() - before <= 10


# The stream -----------------------------------------------------------------------------------


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
async def test_a_break_after_finish_is_a_normal_end(session, service, how):
    """The answer was whole; a second of silence is enough."""
    service.script.ask(body=BODY, fault=Cut(BODY.index(b"data: [DONE]"), how))
    reply = await session.ask("Hi")
    assert reply.text == "Hello world"
    assert reply.thread_id == "t1"
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("how", ["fin", "rst", "hang"])
async def test_a_break_after_done_is_a_normal_end(session, service, how):
    """``[DONE]`` without ``finish`` ends an answer, too."""
    body = b'data: {"type":"start"}\n\ndata: [DONE]\n\n: a comment'
    service.script.ask(body=body, fault=Cut(-3, how))
    reply = await session.ask("Hi")
    assert reply.text == ""


BROKEN_STREAMS = {
    "gzip that is none": (BrokenGzip(), APIConnectionError | StreamInterruptedError),
    "gzip cut short": (BrokenGzip("cut"), StreamInterruptedError),
    "no bytes": (Cut(0, clean=True), StreamInterruptedError),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_stream_that_cannot_be_unpacked(session, service, name):
    """An error of ours, never an empty answer."""
    fault, expected = BROKEN_STREAMS[name]
    service.script.ask(body=BODY, fault=fault)
    error, sent = await failure(session, service, "ask")
    assert isinstance(error, expected)
    assert sent == 1


NOT_STREAMS = {
    "html": b"<!doctype html><html><body>Welcome</body></html>",
    "a JSON document": b'{"text": "hello"}',
    "a JSON error with status 200": b'{"error": "rate limited"}',
    "plain text": b"Hello there",
    "the v1 endpoint's stream": b'0:"Hello"\nd:{"finishReason":"stop"}\n',
}


@pytest.mark.parametrize("name", NOT_STREAMS)
async def test_a_success_that_is_no_stream(session, service, name):
    """Peers end with an empty answer; here the body's beginning is on the error."""
    service.script.ask(status=200, body=NOT_STREAMS[name], headers={"X-Request-Id": "req_3"})
    error, _ = await failure(session, service, "ask")
    assert isinstance(error, UnexpectedResponseError)
    assert (error.status, error.request_id, error.headers["x-request-id"]) == (200, "req_3", "req_3")
    assert NOT_STREAMS[name].decode()[:20] in error.excerpt


async def test_comments_do_not_replace_the_first_event(session, service, clock):
    """A service that only says that it is alive is given up after the first-event timeout."""
    service.script.ask(body=BODY, fault=Endless())
    before = clock.now()
    error, _ = await failure(session, service, "ask")
    assert isinstance(error, APITimeoutError)
    assert error.phase == "first_event"
    assert clock.now() - before < 62


async def test_comments_keep_a_stream_alive_unless_told_otherwise(service, clock):
    """By default a comment ends a silence; with comments_are_activity=False it does not."""
    pieces = [BODY[:WHOLE_EVENTS], *([100.0, b": alive\n\n"] * 4), BODY[WHOLE_EVENTS:]]
    async with service.session() as session:
        service.script.ask(chunks=pieces)
        assert (await session.ask("Hi")).text == "Hello world"
        service.script.ask(chunks=pieces)
        with pytest.raises(StreamInterruptedError, match="idle"):
            await session.ask("Hi", timeouts=Timeouts(comments_are_activity=False))


async def test_a_total_limit_bounds_the_whole_answer(session, service, clock):
    """Though something arrives all the time."""
    service.script.ask(chunks=[BODY[:WHOLE_EVENTS], *([1.0, b": alive\n\n"] * 100)])
    before = clock.now()
    with pytest.raises(StreamInterruptedError, match="total") as caught:
        await session.ask("Hi", timeout=10)
    assert clock.now() - before <= 11
    assert caught.value.text == "Hello "
    assert isinstance(caught.value.__cause__, APITimeoutError)
    assert caught.value.__cause__.phase == "total"


# Frame locals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("fault", ["nobody listens", "no answer", "refused"])
async def test_no_frame_of_an_error_holds_a_key(service, operation, fault):
    """What Sentry, loguru and ``pytest --showlocals`` print of a traceback shows no key."""
    address = "http://127.0.0.1:9" if fault == "nobody listens" else service.base_url
    answer = {"fault": NoAnswer()} if fault == "no answer" else {"status": 400}
    script(service, operation, **answer)
    async with service.session(base_url=address, retry=RetryPolicy(attempts=1)) as session:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the guard looks at its frames, too
            await call(session, operation)
        frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
        ours = [f for f in frames if f.f_globals["__name__"].startswith("mintlify_async.http")]
        assert ours
        shown = " ".join(reprs(frame.f_locals) for frame in ours)
        assert service.admin_key not in shown
        assert service.assistant_key not in shown


class HeldClock(SystemClock):
    """Stands still until the test moves it; then every timer that is due runs at once, before any I/O."""

    def __init__(self):
        self.at, self.timers = 1000.0, []

    def now(self):
        return self.at

    def call_at(self, at, callback):
        timer = SimpleNamespace(at=at, callback=callback)
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        self.timers.append(timer)
        return timer

    def jump(self, seconds):
        """Move as if the process had stood still for *seconds*."""
        self.at += seconds
        for timer in [timer for timer in self.timers if timer.at <= self.at]:
            self.timers.remove(timer)
            timer.callback()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
FIRST = b'data: {"type":"start"}\n\n'
REST = b'data: {"type":"finish"}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in the answer"])
async def test_a_loop_that_stood_still_reads_before_it_gives_up(service, begun):
    """The limits judge only after what lies in the socket was read; they still end a real silence."""
    clock, writers = HeldClock(), []
    arrived = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)
        arrived.set()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        service.session(
            base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", clock=clock
        ) as session,
    ):
        reply = session.ask("x")
        reading = asyncio.create_task(reply.run())
        await arrived.wait()
        if begun:
            writers[0].write(HEAD + FIRST)
            while not (reply.events_seen and clock.timers):
                await asyncio.sleep(0)
        writers[0].write((b"" if begun else HEAD + FIRST) + REST)
        writers.pop().close()
        clock.jump(1000)
        await reading
        assert reply.complete

        arrived.clear()
        silent = asyncio.create_task(session.ask("x").run())
        await arrived.wait()
        clock.jump(1000)
        clock.jump(0.01)
        with pytest.raises(APITimeoutError, match="first_event"):
            await silent
        writers.pop().close()


@pytest.mark.parametrize("retry", [RetryPolicy(), RetryPolicy(attempts=1)], ids=["retried", "once"])
async def test_a_half_open_connection_costs_a_read_half_of_its_limit(clock, service, retry):
    """A GET that a pooled connection swallows is sent again within the limit, on a fresh connection."""
    served = []

    async def answer(reader, writer):
        served.append(0)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                served[-1] += 1
                if len(served) == 1 and served[0] > 1:
                    await reader.read()  # half open: it takes bytes and says nothing
                body = json.dumps(JOB).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        service.session(
            base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            retry=retry,
            timeouts=Timeouts(request=20),
        ) as session,
    ):
        began = clock.now()
        assert (await session.job("job_1").refresh()).id == "job_1"
        if retry.attempts == 1:
            with pytest.raises(APITimeoutError):
                await session.job("job_1").refresh()
            assert clock.now() - began == pytest.approx(20, abs=0.1)
        else:
            assert (await session.job("job_1").refresh()).id == "job_1"
            assert clock.now() - began <= 11
            assert served == [2, 1]


async def test_connections_are_kept_for_less_than_four_seconds(service):
    """A server closes an idle connection after five seconds or more: a question must not meet that moment."""
    async with service.session() as session:
        await session.ask("How do I log in?")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aiohttp.connector.monotonic", lambda: time.monotonic() + 4)
            await session.ask("How do I log in?")
    ports = {request.port for request in service.requests if request.operation == "ask"}
    assert len(ports) == 2


@pytest.mark.parametrize("name", ["create_job", "ask"])
async def test_a_prompt_that_is_never_read_leaves_no_socket(service, name):
    """What is not written when the session closes is given up, not kept until the server reads it."""
    prompt, taken = "x" * 6_000_000, asyncio.get_running_loop().create_future()

    async def deaf(reader, writer):
        writer.transport.pause_reading()
        taken.set_result((reader, writer))

    async with await asyncio.start_server(deaf, "127.0.0.1", 0) as server:
        session = service.session(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with service.clock.hold():
            sending = asyncio.create_task(asyncio.wait_for(getattr(session, name)(prompt), None))
            reader, writer = await taken
            for _ in range(50):
                await asyncio.sleep(0)
            await session.close()
            with pytest.raises((OutcomeUnknownError, StateError)):
                await sending
        writer.transport.resume_reading()
        read = 0
        with suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                read += len(data)
        assert read < len(prompt)
        writer.close()
