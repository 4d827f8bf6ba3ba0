"""Cancellation at every turn of the loop: at most one POST, nothing left, the session usable afterwards."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest

from mintlify_async import OutcomeUnknownError, StateError, StreamInterruptedError
from mintlify_async.testing import LocalService, NoAnswer
from tests.support.fault_catalogue import script

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


async def test_close_from_another_task_ends_the_reader_quietly(service, session):
    """Twice, too; a later await says that the answer is not whole."""
    service.script.ask(events=[{"type": "start"}, 60.0])
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


async def test_a_second_reader_gets_a_typed_error(service, session):
    """One consumer at a time, while it opens and while it streams; the first one is not disturbed."""
    service.script.ask(events=[{"type": "start"}, 0.2, {"type": "finish"}], delay=0.1)
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


# Closing the session under a running call --------------------------------------------------------


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("name", CALLS)
async def test_closing_ends_a_call(service, name, sent):
    """The outcome of an agent POST that was sent is unknown. Other calls say that the session is closed."""
    operation = {"wait": "get_job", "ask in a block": "ask"}.get(name, name)
    script(service, operation, fault=NoAnswer())
    before = service.requests.count(operation)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and begins no TLS
        address = service.base_url if sent else f"https://127.0.0.1:{silent.getsockname()[1]}"
        session = service.session(base_url=address)
        call = asyncio.gather(CALLS[name](session, {}), return_exceptions=True)
        if sent:
            await service.until(lambda running: running.requests.count(operation) > before)
        else:
            await turns(TURNS)
        await session.close()
        with anyio.fail_after(20):
            (error,) = await call
    if sent and name in ("create_job", "send_message"):
        assert isinstance(error, OutcomeUnknownError)
        assert (error.reason, error.operation) == ("session_closed", name)
    else:
        assert isinstance(error, StateError)
    assert "session" in str(error)
    assert "closed" in str(error)
    assert "lost" not in str(error)
