"""The lock of a conversation: one turn at a time, in order, whichever task is cancelled."""

from __future__ import annotations

import asyncio
import gc
import random
import threading

import pytest

from mintlify_async.conversation.turn_lock import TurnLock, shared_lock
from mintlify_async.errors import StateError
from mintlify_async.storage import MemoryStore


class Holder:
    """A turn that never releases the lock by itself."""

    def release_if_over(self) -> bool:
        return False


@pytest.mark.parametrize("seed", range(20))
async def test_in_order_when_some_are_cancelled(seed):
    """Forty turns, some cancelled at random moments: never two inside, none forgotten, all in line."""
    dice = random.Random(seed)
    lock = TurnLock()
    inside = 0
    order: list[int] = []

    async def turn(number: int) -> None:
        nonlocal inside
        me = Holder()
        await lock.acquire(me.release_if_over, queue=True)
        try:
            inside += 1
            assert inside == 1
            order.append(number)
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            lock.release()

    tasks: list[asyncio.Task[None]] = []
    for number in range(40):
        tasks.append(asyncio.create_task(turn(number)))
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        if dice.random() < 0.5:
            dice.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() or task.exception() is None for task in tasks)
    assert {n for n, task in enumerate(tasks) if not task.cancelled()} <= set(order)
    assert order == sorted(order)
    assert not lock.locked


async def test_without_queueing_a_second_is_told():
    """Also while others wait in line."""
    lock = TurnLock()
    first = Holder()
    await lock.acquire(first.release_if_over, queue=False)
    with pytest.raises(StateError, match="busy with another turn"):
        await lock.acquire(Holder().release_if_over, queue=False)
    with pytest.raises(StateError, match="busy"):
        lock.check_free()
    with pytest.raises(StateError, match="busy"):
        async with lock.hold(queue=False):
            raise AssertionError
    lock.release()
    lock.check_free()
    async with lock.hold(queue=False):
        assert lock.locked
    assert not lock.locked


async def test_a_task_does_not_wait_for_itself():
    """It would wait for ever; another task waits in line."""
    lock = TurnLock()
    first = Holder()
    await lock.acquire(first.release_if_over, queue=True)
    waiting = asyncio.create_task(lock.acquire(Holder().release_if_over, queue=True))
    await asyncio.sleep(0)
    with pytest.raises(StateError, match="wait for itself"):
        await lock.acquire(Holder().release_if_over, queue=True)
    with pytest.raises(StateError, match="wait for itself"):
        async with lock.hold(queue=True):
            raise AssertionError
    lock.release()
    await waiting
    lock.release()
    assert not lock.locked


async def test_a_waiter_of_a_closed_loop_is_passed_over():
    """A program that ended in the middle does not hold up the next one."""
    lock = TurnLock()
    holder = Holder()
    await lock.acquire(holder.release_if_over, queue=True)

    def give_up() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(lock.acquire(Holder().release_if_over, queue=True))
        loop.run_until_complete(asyncio.wait([task], timeout=0.01))
        loop.close()
        task._log_destroy_pending = False  # it is lost on purpose

    await asyncio.to_thread(give_up)
    mine = Holder()
    waiting = asyncio.create_task(lock.acquire(mine.release_if_over, queue=True))
    await asyncio.sleep(0)
    lock.release()
    await waiting
    lock.release()
    assert not lock.locked
    gc.collect()


async def test_another_thread_may_leave():
    """A reply that was not closed may be collected on any thread; the turn that waits here is woken."""
    lock = TurnLock()
    holder, mine = Holder(), Holder()
    await lock.acquire(holder.release_if_over, queue=True)
    waiting = asyncio.create_task(lock.acquire(mine.release_if_over, queue=True))
    await asyncio.sleep(0)
    thread = threading.Thread(target=lock.release)
    thread.start()
    await waiting
    await asyncio.to_thread(thread.join)
    assert lock.locked
    lock.release()


def test_locks_are_shared_by_name():
    """Store, owner and id together; a store that cannot be looked up has a lock for each."""
    store = MemoryStore()
    lock = shared_lock(store, "ada", "help")
    assert shared_lock(store, "ada", "help") is lock
    assert shared_lock(store, "bob", "help") is not lock
    assert shared_lock(MemoryStore(), "ada", "help") is not lock
    assert shared_lock({}, "ada", "help") is not shared_lock({}, "ada", "help")
