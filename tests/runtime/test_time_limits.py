"""A block that ends in time or by another task: beside cancellations, and after a loop that stood still."""

from __future__ import annotations

import asyncio
import math
import random
import time

import pytest

from mintlify_async.runtime.time_limits import TimeLimit, TimeLimits


@pytest.fixture(params=["alone", "among others"])
def among(request) -> TimeLimits[TimeLimit] | None:
    """What the limits of a test belong to: each has an alarm of its own, or all share one."""
    return None if request.param == "alone" else TimeLimits()


@pytest.fixture
def in_seconds(among):
    """Return a function that makes a limit which ends in so many seconds."""
    return lambda seconds: TimeLimit(asyncio.get_running_loop().time() + seconds, among)


async def test_the_time_ends_the_block(virtual, in_seconds) -> None:
    """When the loop's time reaches it, ``TimeoutError`` leaves the block, and the task is not cancelled."""
    with pytest.raises(TimeoutError), in_seconds(5) as limit:
        await asyncio.sleep(60)
    task = asyncio.current_task()
    assert task is not None
    assert (limit.over, limit.ended, virtual.now(), task.cancelling()) == (True, False, 5.0, 0)
    await asyncio.sleep(0)  # nothing of it comes after


async def test_a_block_that_is_over_is_left_alone(virtual, in_seconds) -> None:
    """Neither its time nor a late call of ``end`` cancels what follows the block."""
    with in_seconds(5) as limit:
        await asyncio.sleep(0)
    limit.end()
    await asyncio.sleep(60)


@pytest.mark.parametrize(("first", "moved"), [(5.0, 9.0), (9.0, 5.0), (float("inf"), 5.0)])
async def test_a_limit_can_be_moved(virtual, in_seconds, first: float, moved: float) -> None:
    """The block ends at the time of the last move, whether that is later or earlier than the time before."""
    limit, start = in_seconds(first), asyncio.get_running_loop().time()

    async def move_and_sleep() -> None:
        limit.move(start + moved)
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError), limit:
        await move_and_sleep()
    assert virtual.now() == moved


async def test_a_limit_that_was_moved_away_does_not_end_the_block(virtual, in_seconds) -> None:
    """Also if it is moved after its first time has come, while the loop still looks at its sockets."""
    with in_seconds(5) as limit:
        asyncio.get_running_loop().call_later(5.0, limit.move, float("inf"))
        await asyncio.sleep(60)


async def test_a_block_that_was_ended_before_it_was_entered() -> None:
    """``end`` before the block ends it at its first suspension."""
    limit = TimeLimit()
    limit.end()
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(3600)


async def test_end_that_comes_with_the_result_does_no_harm() -> None:
    """Ended in the very step in which it gets what it waits for, the block may end well."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def both() -> None:
        done.set_result(7)
        limit.end()

    with TimeLimit() as limit:
        asyncio.get_running_loop().call_soon(both)
        assert await done == 7
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_another_task_ends_it() -> None:
    """``end`` from another task is a ``TimeoutError`` in the block; twice is once."""
    limit = TimeLimit()
    for _ in range(2):
        asyncio.get_running_loop().call_soon(limit.end)
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(3600)
    assert limit.ended


@pytest.mark.parametrize("first", ["end", "cancel"])
async def test_a_cancelled_task_stays_cancelled(first: str) -> None:
    """Who cancels the task in the same step wins, whichever came first."""
    entered = asyncio.Event()
    limit = TimeLimit()

    async def work() -> None:
        with limit:
            entered.set()
            await asyncio.sleep(3600)

    task = asyncio.create_task(work())
    await entered.wait()
    if first == "end":
        limit.end()
        asyncio.get_running_loop().call_soon(task.cancel)
    else:
        task.cancel()
        limit.end()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_long_turns_of_the_loop_do_not_stretch_the_limit(among) -> None:
    """A server that floods a connection makes each turn last long: then fewer turns follow the limit."""
    loop = asyncio.get_running_loop()
    turns_after, due = 0, loop.time() + 0.05

    def flood() -> None:
        nonlocal handle, turns_after
        time.sleep(0.12)
        turns_after += loop.time() > due
        handle = loop.call_soon(flood)

    handle = loop.call_soon(flood)
    with pytest.raises(TimeoutError), TimeLimit(due, among):
        await asyncio.sleep(3600)
    handle.cancel()
    assert turns_after <= 4  # in which the limit is seen, in which the sockets are read, for the task's end


async def test_short_turns_of_the_loop_all_count(among) -> None:
    """An answer that arrived while user code blocked the loop wakes its reader, however late that is."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def pass_on(turns: int) -> None:
        if turns:
            loop.call_soon(pass_on, turns - 1)
        else:
            done.set_result("arrived")

    loop.call_soon(time.sleep, 0.3)
    loop.call_later(0.1, pass_on, 3)
    with TimeLimit(loop.time() + 0.1, among):
        assert await done == "arrived"


async def test_limits_that_share_an_alarm_end_each_in_its_time(virtual) -> None:
    """In whatever order they begin, and though others end early, are cancelled, or begin while one is due."""
    group, dice, ends = TimeLimits(), random.Random(7), []

    async def block(number: int) -> None:
        await asyncio.sleep(dice.randint(0, 30))
        seconds, works = dice.choice([1, 2, 5, 5, 40, math.inf]), dice.choice([0, 3, 60])
        began = virtual.now()
        try:
            with TimeLimit(asyncio.get_running_loop().time() + seconds, group):
                await asyncio.sleep(works)
        except TimeoutError:
            pass
        ends.append((number, virtual.now() - began, min(seconds, works)))

    tasks = [asyncio.create_task(block(number)) for number in range(300)]
    for task in dice.sample(tasks, 30):
        asyncio.get_running_loop().call_later(dice.randint(0, 40), task.cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(ends) >= 270
    assert [end for end in ends if end[1] != pytest.approx(end[2])] == []
    assert not group


async def test_limits_that_share_an_alarm_set_one_timer(timers) -> None:
    """A thousand limits one after the other leave at most one timer, and ending the group leaves none."""
    group, time = TimeLimits(), asyncio.get_running_loop().time
    for _ in range(1000):
        with TimeLimit(time() + 60, group):
            pass
    assert timers() == 1
    group.end()
    assert timers() == 0


@pytest.fixture
async def timers():
    """Return a function that counts the timers that were set since, and were not cancelled."""
    loop, handles = asyncio.get_running_loop(), []
    call_at = loop.call_at
    loop.call_at = lambda *args, **kwargs: handles.append(call_at(*args, **kwargs)) or handles[-1]
    yield lambda: sum(not handle.cancelled() for handle in handles)
    loop.call_at = call_at
