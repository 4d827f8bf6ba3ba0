"""A session is closed while another thread's loop uses it: that loop closes its own connections."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time

import pytest

from mintlify_async import StateError
from mintlify_async.runtime import per_event_loop
from mintlify_async.runtime.per_event_loop import LoopLocal
from tests.support.leak_guard import open_descriptors

BUSY = 0.3
"""For so many seconds the other loop runs nothing."""


class Resources:
    """Closes in a few turns of its loop, and notes how far it came."""

    made: list[Resources]

    def __init__(self):
        self.closed = self.abandoned = 0
        self.made.append(self)

    async def close(self):
        for _ in range(3):
            await asyncio.sleep(0.001)
        self.closed += 1

    def abandon(self):
        self.abandoned += 1


@pytest.fixture
def loops(monkeypatch):
    monkeypatch.setattr(Resources, "made", [], raising=False)
    return LoopLocal(Resources)


class OtherLoop(threading.Thread):
    """A thread in which a loop of the case's kind runs *work*, like ``asyncio.run``."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.factory = type(asyncio.get_running_loop())
        self.work, self.at_work, self.done_at = work, threading.Event(), None
        self.start()

    def run(self):
        with asyncio.Runner(loop_factory=self.factory) as runner:
            runner.run(self.work(self))
        self.done_at = time.monotonic()

    def busy(self, seconds=BUSY):
        self.at_work.set()
        time.sleep(seconds)

    async def working(self):
        await asyncio.to_thread(self.at_work.wait, 10)

    async def joined(self):
        await asyncio.to_thread(self.join, 10)
        assert not self.is_alive()


async def seconds_of(step):
    start = time.monotonic()
    await step
    return time.monotonic() - start


async def test_close_waits_for_a_busy_loop(service):
    """When close() returns, a loop that was busy and then ends has closed its connections."""
    await asyncio.to_thread(int)  # the thread and its descriptors stay until the case ends
    session, before = service.session(), open_descriptors()

    async def work(thread):
        await session.create_job("x")
        await session.ask("x").run()
        thread.busy()

    other = OtherLoop(work)
    await other.working()
    assert await seconds_of(session.close()) > BUSY / 2
    await other.joined()
    for _ in range(500):
        if not open_descriptors() - before:
            break
        await asyncio.sleep(0.01)  # the service closes its ends
    gc.collect()  # what aiohttp reports about an unclosed session fails the case
    assert not open_descriptors() - before


async def test_a_loop_that_is_busy_for_longer_closes_later(service, monkeypatch):
    """close() returns after its limit. That loop closes when it runs next, even without the session."""
    monkeypatch.setattr(per_event_loop, "CLOSE_SECONDS", 0.02)
    sessions = [service.session()]

    async def work(thread):
        await sessions[0].create_job("x")
        thread.busy(2.0)
        await asyncio.sleep(0.1)

    other = OtherLoop(work)
    await other.working()
    assert await seconds_of(sessions[0].close()) < 1
    with pytest.raises(StateError, match="closed"):
        await sessions[0].create_job("y")
    sessions.clear()
    gc.collect()  # the session does not report that nobody closed it
    await other.joined()


async def test_the_entry_of_a_busy_loop_is_not_lost(loops, monkeypatch):
    """Whether that loop runs on or ends next, it closes everything once."""
    monkeypatch.setattr(per_event_loop, "CLOSE_SECONDS", 0.02)

    async def work(thread):
        loops.get()
        thread.busy(0.5)
        await asyncio.sleep(thread.rest)

    for rest in (0.0, 0.1):
        OtherLoop.rest = rest
        other = OtherLoop(work)
        await other.working()
        await loops.close()
        assert Resources.made[-1].closed == 0
        await other.joined()
        assert (Resources.made[-1].closed, Resources.made[-1].abandoned) == (1, 0)
        loops = LoopLocal(Resources)


async def test_a_loop_that_ends_meanwhile(loops, caplog):
    """Whatever happens first, everything is closed once, and nothing is reported."""
    rounds = 40
    for number in range(rounds):
        loops = LoopLocal(Resources)
        end = threading.Event()

        async def work(thread, loops=loops, end=end):
            loops.get()
            thread.at_work.set()
            while not end.is_set():
                await asyncio.sleep(0)

        other = OtherLoop(work)
        await other.working()
        if number % 2:
            end.set()
            time.sleep(number * 0.00005)  # noqa: ASYNC251 - so that the other loop comes further each time
        closing = asyncio.ensure_future(loops.close())
        if not number % 2:
            for _ in range(number // 4):
                await asyncio.sleep(0.0005)
            end.set()
        await closing
        await other.joined()
    gc.collect()
    assert len(Resources.made) == rounds
    assert {one.closed for one in Resources.made} == {1}
    assert not sum(one.abandoned for one in Resources.made)
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("ending", ["runs on", "asyncio.run", "close"])
async def test_a_loop_that_stands_still(loops, ending):
    """close() does not wait for it. It closes when it runs next, or with its generators."""
    loop = type(asyncio.get_running_loop())()

    async def use():
        return loops.get()

    resources = await asyncio.to_thread(loop.run_until_complete, use())
    assert await seconds_of(loops.close()) < 2
    assert (resources.closed, resources.abandoned) == (0, 0)
    if ending == "runs on":
        await asyncio.to_thread(loop.run_until_complete, asyncio.sleep(0.1))
        assert resources.closed == 1
    if ending == "asyncio.run":
        await asyncio.to_thread(loop.run_until_complete, loop.shutdown_asyncgens())
        assert resources.closed == 1
    loop.close()
    gc.collect()
    await loops.close()
    assert resources.abandoned == (ending == "close")


async def test_two_loops_close_at_once(loops):
    """Both calls return, after both loops have closed."""
    first = loops.get()

    async def work(thread):
        loops.get()
        thread.at_work.set()
        await loops.close()

    other = OtherLoop(work)
    await other.working()
    assert await seconds_of(loops.close()) < 2
    assert [one.closed for one in Resources.made] == [1, 1]
    await other.joined()
    assert Resources.made[0] is first


async def test_a_cancelled_close(loops):
    """It ends with CancelledError. This loop's resources are closed, and the busy loop closes its own."""
    loops.get()

    async def work(thread):
        loops.get()
        thread.busy()
        await asyncio.sleep(0.1)

    other = OtherLoop(work)
    await other.working()
    closing = asyncio.ensure_future(loops.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [one.closed for one in Resources.made] == [1, 0]
    await other.joined()
    assert [one.closed for one in Resources.made] == [1, 1]
