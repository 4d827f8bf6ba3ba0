"""A block that something outside it ends: in time, from another task, and beside other cancellations."""

from __future__ import annotations

import asyncio
import math

import pytest

from mintlify_async.runtime.cancellation import Deadline
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.testing import VirtualClock


async def test_the_moment_ends_the_block() -> None:
    """When the clock reaches it, ``TimeoutError`` leaves the block, and the task is not cancelled."""
    clock = VirtualClock()
    scope = Deadline(clock, clock.now() + 5)
    with pytest.raises(TimeoutError), scope:
        await clock.sleep(60)
    task = asyncio.current_task()
    assert task is not None
    assert (scope.ended, clock.now(), task.cancelling()) == (True, 5.0, 0)
    await asyncio.sleep(0)  # nothing of it comes after


async def test_a_block_that_is_over_is_left_alone() -> None:
    """Neither its deadline nor a late call of ``end`` cancels what follows the block."""
    clock = VirtualClock()
    with Deadline(clock, clock.now() + 5) as scope:
        await asyncio.sleep(0)
    scope.end()
    await clock.sleep(60)
    assert not scope.ended


async def test_end_that_comes_with_the_result_does_no_harm() -> None:
    """Ended in the very step in which it gets what it waits for, the block may end well."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def both() -> None:
        done.set_result(7)
        scope.end()

    with Deadline() as scope:
        asyncio.get_running_loop().call_soon(both)
        assert await done == 7
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not scope.ended


async def test_another_task_ends_it() -> None:
    """``end`` from another task is a ``TimeoutError`` in the block; twice is once."""
    scope = Deadline()
    for _ in range(2):
        asyncio.get_running_loop().call_soon(scope.end)
    with pytest.raises(TimeoutError), scope:
        await asyncio.sleep(3600)
    assert scope.ended


@pytest.mark.parametrize("first", ["end", "cancel"])
async def test_a_cancelled_task_stays_cancelled(first: str) -> None:
    """Who cancels the task in the same step wins, whichever came first."""
    entered = asyncio.Event()
    scope = Deadline()

    async def work() -> None:
        with scope:
            entered.set()
            await asyncio.sleep(3600)

    task = asyncio.create_task(work())
    await entered.wait()
    if first == "end":
        scope.end()
        asyncio.get_running_loop().call_soon(task.cancel)
    else:
        task.cancel()
        scope.end()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_inside_another() -> None:
    """The outer block ends, though the inner one had a moment of its own."""
    clock = VirtualClock()
    outer, inner = Deadline(clock, clock.now() + 1), Deadline(clock, clock.now() + 2)
    with pytest.raises(TimeoutError), outer, inner:
        await clock.sleep(60)
    assert (outer.ended, inner.ended, clock.now()) == (True, False, 1.0)


async def test_beside_asyncios_own() -> None:
    """``asyncio.timeout`` around it and inside it keep their own ``TimeoutError``."""
    clock = VirtualClock()
    scope = Deadline(clock, clock.now() + 3600)

    async def work() -> None:
        async with asyncio.timeout(0):
            with scope:
                await asyncio.sleep(3600)

    with pytest.raises(TimeoutError):
        await work()
    assert not scope.ended


@pytest.mark.parametrize("at", [None, math.inf])
async def test_never(at: float | None) -> None:
    """None and infinity set no timer."""
    with Deadline(SystemClock(), at) as scope:
        await asyncio.sleep(0)
    assert not scope.ended


async def test_a_moment_that_has_come_already() -> None:
    """A block whose moment is past ends at its first chance."""
    clock = SystemClock()
    with pytest.raises(TimeoutError), Deadline(clock, clock.now() - 1):
        await asyncio.sleep(3600)


async def test_another_error_passes() -> None:
    """What the block itself raises leaves it as it is, also when it was ended."""

    async def work() -> None:
        with Deadline() as scope:
            asyncio.get_running_loop().call_soon(scope.end)
            try:
                await asyncio.sleep(3600)
            finally:
                raise KeyError

    with pytest.raises(KeyError):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
