"""The virtual clock: it jumps when everything waits, and only then."""

from __future__ import annotations

import asyncio
import contextvars
import time
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import anyio
import pytest

from mintlify_async import ConfigurationError
from mintlify_async.runtime.clock import Clock
from mintlify_async.testing import LocalService, VirtualClock


async def test_half_an_hour_of_polls_is_quick():
    """A hundred looks over the wire, half an hour of waiting between them, none of it real."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service, aiohttp.ClientSession() as client:
        for _ in range(100):
            await clock.sleep(18)
            async with client.get(f"{service.base_url}/nothing") as response:
                assert response.status == 404
    assert clock.now() == pytest.approx(1800)
    assert [round(request.at) for request in service.requests] == list(range(18, 1801, 18))


async def test_ten_thousand_waiters_wake_in_order():
    """Who is due first wakes first, and those due together in the order in which they came."""
    clock, woken = VirtualClock(), []

    async def wait(number):
        await clock.sleep(1 + number % 100)
        woken.append((clock.now(), number))

    await asyncio.gather(*(wait(number) for number in range(10_000)))
    assert woken == sorted(woken)
    assert clock.now() == 100


async def test_the_time_stands_still_while_something_can_run():
    """A task that works never sees the clock move."""
    clock = VirtualClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    for _ in range(200):
        await asyncio.sleep(0)
        assert clock.now() == 0
    await sleeper
    assert clock.now() == 1


async def test_a_request_under_way_holds_the_time():
    """While bytes travel over loopback, a timer that is due later does not come first."""
    clock, fired = VirtualClock(), []
    async with LocalService(clock=clock) as service, aiohttp.ClientSession() as client:
        for _ in range(50):
            timer = clock.call_at(clock.now() + 1, lambda: fired.append(True))
            async with client.get(f"{service.base_url}/nothing") as response:
                await response.read()
            timer.cancel()
    assert not fired
    assert clock.now() == 0


@pytest.mark.leaves_open("uvloop's first loop in a process opens a pipe for signals")
def test_a_loop_that_shows_nothing():
    """What uvloop is asked to do is counted, because it hides what is ready: the time holds just as well."""
    uvloop = pytest.importorskip("uvloop")
    clock, fired = VirtualClock(), []

    async def work():
        async with LocalService(clock=clock) as service, aiohttp.ClientSession() as client:
            for _ in range(50):
                timer = clock.call_at(clock.now() + 1, lambda: fired.append(True))
                async with client.get(f"{service.base_url}/nothing") as response:
                    await response.read()
                await asyncio.get_running_loop().getaddrinfo("localhost", 80)  # in a thread of uvloop's own
                timer.cancel()
            assert not fired
            await clock.sleep(600)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
    assert clock.now() == 600


async def test_a_worker_thread_holds_the_time():
    """Work in a thread is work, though the loop has nothing to do."""
    clock, loop = VirtualClock(), asyncio.get_running_loop()

    async def in_a_pool_of_its_own(function, *args):
        with ThreadPoolExecutor() as pool:
            await loop.run_in_executor(pool, function, *args)

    for run in (asyncio.to_thread, anyio.to_thread.run_sync, in_a_pool_of_its_own):
        async with clock.deadline(clock.now() + 0.001):
            await run(time.sleep, 0.02)
    assert clock.now() == 0


async def test_wall_follows_from_a_fixed_moment():
    """Dates in tests are always the same."""
    clock = VirtualClock()
    assert clock.wall() == 1_767_225_600.0
    await clock.sleep(90)
    assert clock.wall() == 1_767_225_690.0


async def test_a_deadline_ends_what_waits_for_ever():
    """The block raises at its moment, and the time is that moment."""
    clock = VirtualClock()
    with pytest.raises(TimeoutError):
        async with clock.deadline(60):
            await asyncio.Event().wait()
    assert clock.now() == 60


async def test_a_deadline_in_time_does_nothing():
    """Work that is done before leaves no trace."""
    clock = VirtualClock()
    async with clock.deadline(60):
        await clock.sleep(59)
    async with clock.deadline(None):
        await clock.sleep(1000)
    assert clock.now() == 1059
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_that_has_passed_raises_at_the_first_wait():
    """Not before, so that what is ready is still done."""
    clock, reached = VirtualClock(start=100), []

    async def reach():
        reached.append("inside")
        await clock.sleep(0)

    with pytest.raises(TimeoutError):
        async with clock.deadline(50):
            await reach()
    assert reached == ["inside"]


async def test_nested_deadlines_end_the_right_block():
    """The inner one ends the inner block only."""
    clock = VirtualClock()
    async with clock.deadline(100):
        with pytest.raises(TimeoutError):
            async with clock.deadline(10):
                await clock.sleep(1000)
        await clock.sleep(5)
    assert clock.now() == 15


async def test_cancelling_a_sleep_passes_through():
    """The one who sleeps is cancelled; the time does not move for it."""
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await clock.settle()
    assert clock.now() == 0


async def test_timers_run_once_in_their_context_and_can_be_called_off():
    """A timer sees the context variables of the one who set it."""
    clock, seen = VirtualClock(), []
    name = contextvars.ContextVar("name", default="nobody")
    name.set("ada")
    clock.call_at(5, lambda: seen.append((clock.now(), name.get())))
    clock.call_at(3, lambda: seen.append("called off")).cancel()
    await clock.sleep(10)
    assert seen == [(5, "ada")]


async def test_advancing_by_hand():
    """Without auto, only advance moves the time, through every due moment in order."""
    clock, seen = VirtualClock(auto=False), []

    async def tick():
        while True:
            await clock.sleep(10)
            seen.append(clock.now())

    task = asyncio.create_task(tick())
    await clock.settle()
    assert clock.now() == 0
    await clock.advance(35)
    assert (seen, clock.now()) == ([10, 20, 30], 35)
    task.cancel()
    await asyncio.wait([task])


async def test_holding_the_time():
    """Inside the block the time does not move by itself, for work that the loop cannot see."""
    clock = VirtualClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    with clock.hold():
        await asyncio.sleep(0.01)
        assert clock.now() == 0
    await sleeper


def test_one_clock_serves_one_loop_after_the_other():
    """The time goes on; nothing is left of the loop before."""
    clock = VirtualClock()

    async def leave_a_timer():
        clock.call_at(clock.now() + 500, lambda: None)
        await clock.sleep(10)

    asyncio.run(leave_a_timer())
    asyncio.run(leave_a_timer())
    assert clock.now() == 20


async def test_many_deadlines_that_never_come_cost_nothing():
    """What is called off is swept: a session sets a deadline for each request."""
    clock = VirtualClock()
    for _ in range(5_000):
        async with clock.deadline(clock.now() + 60):
            pass
    queue = next(iter(clock._queues.values()))
    assert len(queue._heap) < 200


def test_a_negative_grace_is_refused():
    """The argument is named."""
    with pytest.raises(ConfigurationError) as caught:
        VirtualClock(grace=-1)
    assert caught.value.field == "grace"


def test_it_is_a_clock():
    """A session takes it where it takes the system's."""
    clock: Clock = VirtualClock()
    assert clock.now() == 0
