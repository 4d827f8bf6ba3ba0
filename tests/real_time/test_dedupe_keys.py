"""A key has no claim before the first byte: what a server, a middleware or a locked file does then."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest

from mintlify_async import (
    APIConnectionError,
    APIStatusError,
    AuthenticationError,
    ConfigurationError,
    Ledger,
    Limit,
    MemoryStore,
    MintlifySession,
    OutcomeUnknownError,
    Quota,
    SQLiteStore,
    StateError,
)
from tests.support.observer_watch import Watch
from tests.support.raw_server import Connection, job_answer, stream_answer


@asynccontextmanager
async def serving(play):
    """A server that plays each connection from its very beginning. Yields its URL."""
    connections = set()

    async def serve(reader, writer):
        connections.add(asyncio.current_task())
        try:
            await play(Connection(reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has left, or the server stops
        finally:
            writer.transport.abort()
            connections.discard(asyncio.current_task())

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections)


class Watches:
    """An observer that keeps each operation."""

    def __init__(self):
        self.operations = []

    def start(self, operation, facts):
        self.operations.append(Watch())
        return self.operations[-1].start(operation, facts)


class SlowWrites(MemoryStore):
    """A ledger whose writes take a moment. What they claim, and when they began, is kept."""

    def __init__(self, seconds=0.3, only=b""):
        super().__init__()
        self.seconds, self.only, self.writing = seconds, only, asyncio.Event()

    async def write(self, changes, **further):
        if any(self.only in (value or b"") for value in changes.values()):
            self.writing.set()
            await asyncio.sleep(self.seconds)
        return await super().write(changes, **further)


def session_for(url, **settings):
    keys = {"admin_key": "mint_" + "a" * 24, "assistant_key": "mint_dsc_" + "b" * 24}
    return MintlifySession(base_url=url, project_id="p", domain="acme", **keys, **settings)


# The answer that comes before the request ----------------------------------------------------------


def refusal(status):
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" % status


@pytest.mark.parametrize("borrowed", [False, True])
@pytest.mark.parametrize(
    "early", [job_answer().replace(b"200 OK", b"201 Created"), refusal(503), refusal(408)]
)
async def test_an_answer_before_the_first_byte_is_not_the_requests(early, borrowed):
    """It arrives while the claim is written: the request goes out on a new connection, once."""
    bodies, store = [], SlowWrites(only=b'"sending"')

    async def play(connection: Connection):
        if not bodies and not store.writing.is_set():
            await store.writing.wait()
            await connection.send(early)
            await asyncio.sleep(1)
            return
        await connection.head()
        await connection.body()
        bodies.append(1)
        await connection.send(job_answer())

    async with serving(play) as url, aiohttp.ClientSession() as client:
        settings = {"client_session": client} if borrowed else {}
        async with session_for(url, ledger=store, **settings) as session:
            assert (await session.create_job("x", dedupe_key="k")).id == "job_1"
        assert (await Ledger(store).find("k")).result == "job_1"
    assert bodies == [1]


async def test_an_early_refusal_is_a_refusal():
    """A 401 says that nothing was done, whenever it comes: the key is free."""
    bodies, store = [], SlowWrites(only=b'"sending"')

    async def play(connection: Connection):
        await store.writing.wait()
        await connection.send(refusal(401))
        await connection.head()
        bodies.append(1)

    async with serving(play) as url, session_for(url, ledger=store) as session:
        with pytest.raises(AuthenticationError):
            await session.create_job("x", dedupe_key="k")
        await session.close()
    assert await Ledger(store).find("k") is None
    assert bodies == []


# A body that is asked for twice ---------------------------------------------------------------------


async def again(request, handler):
    """Send a request again after a failure, as aiohttp's own example of a middleware does."""
    for attempt in range(3):
        try:
            response = await handler(request)
        except aiohttp.ClientError:
            if attempt == 2:
                raise
            continue
        if response.status < 400:
            return response
    return response


async def both(request, handler):
    """Send a request twice at the same time."""
    results = await asyncio.gather(handler(request), handler(request), return_exceptions=True)
    return next((one for one in results if not isinstance(one, BaseException)), None) or raising(results[0])


def raising(error):
    raise error


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("middleware", [again, both])
@pytest.mark.parametrize("how", ["503", "401", "lost"])
async def test_a_middleware_cannot_send_a_request_twice(how, middleware, key):
    """What was written is never written again: one POST, and its outcome is unknown."""
    bodies, store = [], MemoryStore()

    async def play(connection: Connection):
        await connection.head()
        await connection.body()
        bodies.append(1)
        if how == "lost":
            connection.lose("rst")
        else:
            await connection.send(refusal(int(how)))

    async with (
        serving(play) as url,
        aiohttp.ClientSession(middlewares=(middleware,)) as client,
        session_for(url, ledger=store, client_session=client) as session,
    ):
        expected = OutcomeUnknownError
        if how == "401" and middleware is both:
            expected = (OutcomeUnknownError, AuthenticationError)
        with pytest.raises(expected) as caught:
            await session.create_job("x", dedupe_key=key)
        if key is not None and isinstance(caught.value, OutcomeUnknownError):
            assert caught.value.dedupe_key == "k"
            assert (await Ledger(store).find("k")).state == "unknown"
            with pytest.raises(OutcomeUnknownError):
                await session.create_job("x", dedupe_key="k")
        with pytest.raises((APIConnectionError, APIStatusError)):
            await session.ask("Hello")
    assert len(bodies) == 2  # one of the job, one of the question


async def other_body(request, handler):
    """Send another body, as a middleware that compresses or signs it does."""
    await request.update_body(b'{"prompt": "x", "signed": true}')
    return await handler(request)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("middlewares", [(other_body,), (again, other_body)])
async def test_a_body_that_a_middleware_replaces_is_sent_once(middlewares, key):
    """It asks nobody before it is written: the request counts as sent, and its key has a claim by then."""
    bodies, store = [], MemoryStore()

    async def play(connection: Connection):
        await connection.head()
        await connection.body()
        bodies.append(1)
        found = await Ledger(store).find("k")
        assert key is None or found.state == "sending"
        connection.lose("rst")

    async with (
        serving(play) as url,
        aiohttp.ClientSession(middlewares=middlewares) as client,
        session_for(url, ledger=store, client_session=client) as session,
    ):
        for _ in range(1 if key is None else 2):
            with pytest.raises(OutcomeUnknownError):
                await session.create_job("x", dedupe_key=key)
    assert bodies == [1]


async def test_a_request_of_which_no_byte_was_written_may_be_repeated():
    """The connection is lost while the claim is written; the middleware's second request is the first one."""
    bodies, store = [], SlowWrites(only=b'"sending"')

    async def play(connection: Connection):
        if not store.writing.is_set():
            await store.writing.wait()
            connection.lose("rst")
            return
        await connection.head()
        await connection.body()
        bodies.append(1)
        await connection.send(job_answer())

    async with (
        serving(play) as url,
        aiohttp.ClientSession(middlewares=(again,)) as client,
        session_for(url, ledger=store, client_session=client) as session,
    ):
        assert (await session.create_job("x", dedupe_key="k")).id == "job_1"
    assert bodies == [1]


async def test_a_borrowed_session_must_not_send_its_headers_first():
    """With ``Expect`` as a default header, headers leave before the claim."""
    async with aiohttp.ClientSession(headers={"expect": "100-continue"}) as client:
        with pytest.raises(ConfigurationError, match="Expect") as caught:
            session_for("http://127.0.0.1:1", client_session=client)
    assert caught.value.field == "client_session"


# One key, many callers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "raise", "wait"])
async def test_twenty_callers_with_one_key_make_one_post(service, mode):
    """With one free slot, too, in both modes; and no caller is a failed operation for an observer."""
    watch, store = Watches(), MemoryStore()
    quota = None if mode is None else Quota(create_job=Limit(1, per=3600), mode=mode)
    service.script.create_job(delay=0.1, times=None)
    async with service.session(ledger=store, quota=quota, observer=watch) as session:
        calls = [session.create_job("x", dedupe_key="k", timeout=60) for _ in range(20)]
        began = time.monotonic()
        jobs = await asyncio.gather(*calls)
        assert time.monotonic() - began < 10
    assert {job.id for job in jobs} == {"job_1"}
    assert service.requests.count("create_job") == 1
    assert [one for one in watch.operations if one.error is not None] == []
    assert len(watch.operations) == 20


@pytest.mark.parametrize("mode", ["raise", "wait"])
async def test_two_sessions_share_one_key_and_one_slot(service, mode):
    """As two processes do: who is refused, or waits in the line, hears of the other's job within a second."""
    store, slots = MemoryStore(), MemoryStore()
    service.script.create_job(delay=0.1, times=None)

    def own():
        return service.session(
            ledger=store, quota=Quota(create_job=Limit(1, per=3600), mode=mode, store=slots)
        )

    async with own() as one, own() as two:
        began = time.monotonic()
        calls = [session.create_job("x", dedupe_key="k") for session in (one, two) for _ in range(10)]
        jobs = await asyncio.gather(*calls)
        assert time.monotonic() - began < 10
    assert {job.id for job in jobs} == {"job_1"}
    assert service.requests.count("create_job") == 1


# Limits in time ----------------------------------------------------------------------------------------


async def test_a_ledger_that_cannot_be_opened_does_not_hold_the_end(tmp_path, caplog):
    """Nothing was claimed, so there is nothing to release."""
    caplog.set_level(logging.ERROR)
    async with session_for("http://127.0.0.1:1", ledger=SQLiteStore(tmp_path / "no" / "x.db")) as session:
        with pytest.raises(StateError):
            await session.create_job("x", dedupe_key="k")
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert caplog.text == ""


async def test_a_cancelled_call_says_what_it_has_sent(service):
    """The note on the cancellation has the operation, the key and the time."""
    service.script.create_job(delay=30)
    async with service.session(ledger=MemoryStore()) as session:
        call = asyncio.create_task(session.create_job("x", dedupe_key="issue-7"))
        await service.until(lambda running: running.requests)
        call.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await call
    (note,) = caught.value.__notes__
    assert note.startswith("create_job with dedupe_key 'issue-7' was sent at 20")


async def test_questions_are_not_asked_twice_by_a_middleware():
    """The second answer would be lost text; the error says what happened."""
    bodies = []

    async def play(connection: Connection):
        await connection.head()
        await connection.body()
        bodies.append(1)
        await connection.send(refusal(503) if len(bodies) == 1 else stream_answer())

    async with (
        serving(play) as url,
        aiohttp.ClientSession(middlewares=(again,)) as client,
        session_for(url, client_session=client) as session,
    ):
        with pytest.raises(APIConnectionError, match="middleware") as caught:
            await session.ask("Hello")
    assert caught.value.sent == "maybe"
    assert bodies == [1]
