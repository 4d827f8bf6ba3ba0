"""Cancellation at every turn of the loop: at most one POST, nothing left, the session usable afterwards."""

from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from mintlify_async import (
    MintlifySession,
    OutcomeUnknownError,
    StateError,
    StreamInterruptedError,
    Timeouts,
)
from mintlify_async.testing import LocalService
from mintlify_async.testing.faults import Cut
from tests.support.secret_guard import Keys

ACCOUNT = {
    "project_id": "p",
    "domain": "d",
    "admin_key": Keys().admin,
    "assistant_key": Keys().assistant,
}
TURNS = 120  # more than any of these calls takes on loopback

CALLS = {
    "create_job": lambda session, tag: session.create_job("x", headers=tag),
    "send_message": lambda session, tag: session.job("job_1").send("x", headers=tag),
    "get_job": lambda session, tag: session.job("job_1").refresh(),
    "wait": lambda session, tag: session.job("job_1").wait(),
    "ask": lambda session, tag: session.ask("How do I log in?", headers=tag).run(),
    "ask in a block": lambda session, tag: read_in_block(session, tag),
}


async def read_in_block(session, tag):
    async with session.ask("How do I log in?", headers=tag) as reply:
        return [event async for event in reply]


@pytest.fixture
async def service():
    """A service with a finished job."""
    async with LocalService() as service:
        service.script.job("completed")
        async with service.session() as session:
            await session.create_job("first")
        yield service


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def by_task(call, count):
    """Cancel *call* after *count* turns, as ``task.cancel()`` does."""
    task = asyncio.create_task(call)
    await turns(count)
    task.cancel()
    done, _ = await asyncio.wait([task])
    return next(iter(done)).cancelled()


async def by_scope(call, count):
    """Cancel *call* after *count* turns, as an anyio scope does: again at each await."""
    scope = anyio.CancelScope()

    async def cancel():
        await turns(count)
        scope.cancel()

    canceller = asyncio.create_task(cancel())
    with scope:
        await call
    canceller.cancel()
    await asyncio.wait([canceller])
    return scope.cancelled_caught


@pytest.mark.parametrize("cancel", [by_task, by_scope], ids=["task", "scope"])
@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_at_every_turn(service, name, cancel):
    """No POST is ever seen twice, CancelledError passes, and one session lives through all of it."""
    async with service.session() as session:
        cancelled = 0
        for count in range(TURNS):
            cancelled += await cancel(CALLS[name](session, {"X-Call": str(count)}), count)
        assert cancelled >= 3, "the call was over before it could be cancelled"
        assert (await session.ask("How do I log in?")).text
        assert (await session.job("job_1").refresh()).id == "job_1"
    seen = [r.headers["x-call"] for r in service.requests if "x-call" in r.headers and r.method == "POST"]
    assert len(seen) == len(set(seen))


async def test_a_cancelled_step_loses_no_event(service):
    """Cancel a step at every turn and go on: the events are those of an undisturbed reading."""
    pieces = [{"type": "start"}, {"type": "text-start", "id": "0"}]
    pieces += [{"type": "text-delta", "id": "0", "delta": f"{n} "} for n in range(20)]
    pieces += [{"type": "text-end", "id": "0"}, {"type": "finish"}]
    service.script.ask(events=pieces, pause=0.002)
    seen = []
    async with service.session() as session, session.ask("x") as reply:
        for count in range(10_000):
            task = asyncio.create_task(anext(reply, None))
            await turns(count % 7)
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                continue
            event = task.result()
            if event is None:
                break
            seen.append(event.type)
        assert reply.text == "".join(f"{n} " for n in range(20))
    assert seen == [piece["type"] for piece in pieces]


async def test_break_in_a_block_closes_the_connection(service):
    """The service sees the client leave, and stops generating."""
    service.script.ask(events=[{"type": "start"}, {"type": "text-start", "id": "0"}, 60.0])
    async with service.session() as session:
        async with session.ask("x") as reply:
            async for _ in reply:
                break
        assert reply.closed
        with anyio.fail_after(20):
            while service.connections or service.answering:
                await asyncio.sleep(0.001)


async def test_break_outside_a_block_is_closed_by_the_finalizer(service):
    """It is closed without a warning as soon as no reference to the reply is left."""
    service.script.ask(events=[{"type": "start"}, {"type": "text-start", "id": "0"}, 60.0])
    async with service.session() as session:
        async for _ in session.ask("x"):
            break
        with anyio.fail_after(20):
            while service.connections or service.answering:
                await asyncio.sleep(0.001)


async def test_close_from_another_task_ends_the_reader_quietly(service):
    """Twice, too; a later await says that the answer is not whole."""
    service.script.ask(events=[{"type": "start"}, 60.0])
    async with service.session() as session:
        reply = session.ask("x")
        events = []

        async def read():
            async for event in reply:
                events.append(event.type)

        reader = asyncio.create_task(read())
        while not events:
            await asyncio.sleep(0.001)
        await reply.close()
        await reply.close()
        await reader
        assert events == ["start"]
        with pytest.raises(StateError, match="has ended"):
            aiter(reply)
        for _ in range(2):
            with pytest.raises(StreamInterruptedError, match="closed before its end"):
                await reply


async def test_a_second_reader_gets_a_typed_error(service):
    """One consumer at a time, while it opens and while it streams; the first one is not disturbed."""
    service.script.ask(events=[{"type": "start"}, 0.2, {"type": "finish"}], delay=0.1)
    async with service.session() as session:
        reply = session.ask("x")
        first = asyncio.create_task(reply.run())
        await asyncio.sleep(0)
        with pytest.raises(StateError, match="already being read"):
            await anext(reply)
        while not reply.events_seen:
            await asyncio.sleep(0.001)
        with pytest.raises(StateError, match="already being read"):
            await reply
        assert (await first).finish_reason is None
        assert (await reply) is await first


async def test_a_second_await_gives_the_same_and_a_second_failure_too(service):
    """A reply is one answer; awaiting it again sends nothing."""
    async with service.session() as session:
        reply = session.ask("How do I log in?")
        assert await reply is await reply
        service.script.ask(status=400)
        broken = session.ask("x")
        errors = []
        for _ in range(2):
            with pytest.raises(Exception, match="400") as caught:
                await broken
            errors.append(caught.value)
        assert errors[0] is errors[1]
    assert service.requests.count("ask") == 2


async def test_nothing_is_sent_before_the_first_step(service):
    """Making a reply is no I/O, and one that is dropped leaves nothing."""
    async with service.session() as session:
        reply = session.ask("x")
        await turns(20)
        assert service.requests.count("ask") == 0
        await reply.close()
        with pytest.raises(StreamInterruptedError):
            await reply
    assert service.requests.count("ask") == 0


TEXT = "".join(f"word{n} " for n in range(30))
ANSWER = [
    {"type": "start"},
    {"type": "text-start", "id": "0"},
    *({"type": "text-delta", "id": "0", "delta": f"word{n} "} for n in range(30)),
    {"type": "text-end", "id": "0"},
    {"type": "finish"},
]


@pytest.mark.parametrize("crowd", [200, pytest.param(2_000, marks=pytest.mark.sweep)])
async def test_a_crowd_of_replies_of_which_half_are_disturbed(service, crowd):
    """A random half is cancelled, broken off or cut; the others arrive whole, and nothing is left."""
    dice = random.Random(7)
    faults = [dice.choice(["none", "none", "none", "cancel", "break", "cut"]) for _ in range(crowd)]
    cuts = faults.count("cut")
    service.script.ask(events=ANSWER, fault=Cut(400), times=cuts) if cuts else None
    service.script.ask(events=ANSWER, times=None)
    whole = 0

    async def one(session, fault):
        nonlocal whole
        async with session.ask("x") as reply:
            async for _ in reply:
                if fault == "break" and reply.events_seen == 5:
                    return
            assert reply.text == TEXT
            whole += 1

    async with service.session(timeouts=Timeouts(connect=300, first_event=300)) as session:
        # The cut ones go first: the script answers in the order of the requests.
        tasks = []
        for fault in sorted(faults, key=lambda fault: fault != "cut"):
            tasks.append(asyncio.create_task(one(session, fault)))
        with anyio.fail_after(300):
            while service.requests.count("ask") < crowd:
                await asyncio.sleep(0.001)
        for task, fault in zip(tasks, sorted(faults, key=lambda fault: fault != "cut"), strict=True):
            if fault == "cancel":
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        interrupted = sum(isinstance(result, StreamInterruptedError) for result in results)
        cancelled = sum(isinstance(result, asyncio.CancelledError) for result in results)
        assert interrupted == cuts
        assert whole + interrupted + cancelled + faults.count("break") == crowd
        assert [
            r for r in results if isinstance(r, Exception) and not isinstance(r, StreamInterruptedError)
        ] == []
        assert whole >= faults.count("none")
        assert (await session.ask("x")).text == TEXT


# Closing the session under a running call --------------------------------------------------------


async def served_by(answer):
    """Serve each connection with *answer*, a coroutine function; return the server and its address."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def error_of(call):
    """Return the exception that *call* ends with."""
    (error,) = await asyncio.gather(call, return_exceptions=True)
    return error


@pytest.mark.parametrize("name", CALLS)
async def test_closing_ends_a_tls_handshake_at_once(name):
    """Nothing was written, so the call says that the session was closed, and nothing of the network."""
    arrived = asyncio.Event()

    async def mute(reader, writer):
        await reader.read(1)  # the client's hello; no answer to it
        arrived.set()
        await reader.read()
        writer.close()

    server, address = await served_by(mute)
    session = MintlifySession(base_url=f"https://{address}", **ACCOUNT)
    call = asyncio.create_task(error_of(CALLS[name](session, {})))
    await arrived.wait()
    await session.close()
    with anyio.fail_after(20):
        error = await call
    assert isinstance(error, StateError)
    assert "session" in str(error)
    assert "closed" in str(error)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("name", CALLS)
async def test_closing_ends_a_call_that_was_sent(name):
    """Of an agent POST the outcome is unknown; a GET or a question says that the session was closed."""
    arrived = asyncio.Event()

    async def mute(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if name == "send_message" and head.startswith(b"GET"):
            body = b'{"id":"job_1","status":"completed"}'
            writer.write(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
        else:
            arrived.set()
        await reader.read()
        writer.close()

    server, address = await served_by(mute)
    session = MintlifySession(base_url=f"http://{address}", **ACCOUNT)
    call = asyncio.create_task(error_of(CALLS[name](session, {})))
    await arrived.wait()
    await session.close()
    with anyio.fail_after(20):
        error = await call
    if name in ("create_job", "send_message"):
        assert isinstance(error, OutcomeUnknownError)
        assert (error.reason, error.operation) == ("session_closed", name)
    else:
        assert isinstance(error, StateError)
    assert "session" in str(error)
    assert "closed" in str(error)
    assert "lost" not in str(error)
    server.close()
    await server.wait_closed()


async def test_closing_says_so_to_a_reader(service):
    """What had arrived is kept; the error names the session's end and no trouble of the network."""
    service.script.ask(events=[{"type": "start"}, 60.0])
    session = service.session()
    reply = session.ask("x")
    assert (await anext(reply)).type == "start"
    reading = asyncio.create_task(error_of(anext(reply)))
    await turns(5)
    await session.close()
    error = await reading
    assert isinstance(error, StreamInterruptedError)
    assert "session is closed" in str(error)
    assert "lost" not in str(error)
    assert isinstance(error.__cause__, StateError)
