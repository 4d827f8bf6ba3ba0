"""Timers of the system clock: in order, called off, many, on several loops, and what they raise."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
import warnings
import weakref
from typing import Any

import pytest

from mintlify_async.runtime.clock import SystemClock
from mintlify_async.runtime.timers import queue_of, queues


async def test_they_ring_in_order() -> None:
    """The earliest first, the first come first of equals, whatever the order they were set in."""
    clock, rung, done = SystemClock(), [], asyncio.Event()
    now = clock.now()
    for name, delay in (("c", 0.02), ("a", 0.0), ("b", 0.01), ("a2", 0.0)):
        clock.call_at(now + delay, lambda name=name: rung.append(name))
    clock.call_at(now + 0.02, done.set)
    await done.wait()
    assert rung == ["a", "a2", "b", "c"]


async def test_timers_may_be_kept_in_a_set() -> None:
    """Each is itself alone, also beside one that is due at the same moment."""
    clock = SystemClock()
    at = clock.now() + 60
    timers = {clock.call_at(at, lambda: None) for _ in range(3)}
    assert len(timers) == 3
    for timer in timers:
        timer.cancel()


async def test_never_before_its_time() -> None:
    """When one rings, the clock has reached its moment, as exactly as the loop's own timers do."""
    clock, late, done = SystemClock(), [], asyncio.Event()
    for step in range(20):
        at = clock.now() + step / 1000
        clock.call_at(at, lambda at=at: late.append(clock.now() - at))
    clock.call_at(clock.now() + 0.02, done.set)
    await done.wait()
    assert len(late) == 20
    early = time.get_clock_info("monotonic").resolution * 2 + 1e-6
    if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        early = 0.001  # uvloop's timers count whole milliseconds
    assert min(late) > -early


async def test_a_timer_that_is_called_off_does_not_ring() -> None:
    """Also when it is due in the same step, and twice; cancelling one that rang is harmless."""
    clock, rung, done = SystemClock(), [], asyncio.Event()
    at = clock.now()
    second: Any = None

    def first() -> None:
        rung.append("first")
        second.cancel()

    one = clock.call_at(at, first)
    second = clock.call_at(at, lambda: rung.append("second"))
    third = clock.call_at(at, lambda: rung.append("third"))
    third.cancel()
    third.cancel()
    clock.call_at(at, done.set)
    await done.wait()
    one.cancel()
    assert rung == ["first"]


async def test_an_earlier_one_is_not_kept_waiting_by_a_later() -> None:
    """A timer that is set behind one far away rings in its own time."""
    clock, done = SystemClock(), asyncio.Event()
    far = clock.call_at(clock.now() + 3600, lambda: None)
    clock.call_at(clock.now(), done.set)
    await done.wait()
    far.cancel()


async def test_one_may_set_another() -> None:
    """From inside a timer, for a moment that has come already or will come."""
    clock, rung, done = SystemClock(), [], asyncio.Event()

    def outer() -> None:
        clock.call_at(clock.now(), lambda: rung.append("at once"))
        clock.call_at(clock.now() + 0.005, done.set)

    clock.call_at(clock.now(), outer)
    await done.wait()
    assert rung == ["at once"]


async def test_an_error_goes_to_the_loop_and_no_further() -> None:
    """What one raises reaches the loop's handler; the others ring all the same."""
    clock, told, done = SystemClock(), [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))

    def fail() -> None:
        raise LookupError

    clock.call_at(clock.now(), fail)
    clock.call_at(clock.now(), done.set)
    await done.wait()
    assert [type(error) for error in told] == [LookupError]


async def test_it_rings_in_an_empty_context() -> None:
    """A callback does not see the context variables of the task that set the loop's timer."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    variable.set("ours")
    clock, seen, done = SystemClock(), [], asyncio.Event()
    clock.call_at(clock.now(), lambda: seen.append(variable.get()))
    clock.call_at(clock.now(), done.set)
    await done.wait()
    assert seen == ["none"]


async def test_what_was_called_off_is_swept() -> None:
    """Thousands of limits that never come true leave no heap of themselves."""
    clock = SystemClock()
    far = clock.now() + 3600
    kept = clock.call_at(far, lambda: None)
    for _ in range(10_000):
        clock.call_at(far, lambda: None).cancel()
    assert len(queue_of(asyncio.get_running_loop())) < 200
    kept.cancel()


def test_loops_have_timers_of_their_own() -> None:
    """Two loops in two threads, and many one after the other; closed ones are forgotten."""
    clock = SystemClock()
    rung: list[str] = []

    async def ring(name: str) -> None:
        done = asyncio.Event()
        clock.call_at(clock.now() + 3600, lambda: None)  # left behind
        clock.call_at(clock.now() + 0.01, done.set)
        await done.wait()
        rung.append(name)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(ring(f"thread {n}"))) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(5):
        asyncio.run(ring(f"run {n}"))
    assert sorted(rung) == ["run 0", "run 1", "run 2", "run 3", "run 4", "thread 0", "thread 1"]
    gc.collect()
    assert not [queue for queue in queues() if queue.loop.is_closed()]


def test_a_loop_that_was_never_closed_can_go() -> None:
    """A timer on a loop that was dropped without closing it does not keep the loop alive."""
    clock = SystemClock()

    async def leave_one() -> None:
        clock.call_at(clock.now() + 3600, lambda: None)

    loop = asyncio.SelectorEventLoop()  # uvloop keeps a loop that has a timer
    loop.run_until_complete(leave_one())
    gone = weakref.ref(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's own, of the loop
        del loop
        gc.collect()
    assert gone() is None


def test_an_interrupt_in_one_leaves_the_others() -> None:
    """A ``KeyboardInterrupt`` from a timer ends the run; on the next one the others ring."""
    clock, rung = SystemClock(), []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        clock.call_at(clock.now(), interrupt)
        clock.call_at(clock.now(), lambda: rung.append("other"))
        await asyncio.sleep(0.02)

    loop = asyncio.new_event_loop()
    task = loop.create_task(work())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    loop.close()
    assert rung == ["other"]
