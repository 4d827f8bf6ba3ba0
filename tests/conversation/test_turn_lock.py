"""The lock of a conversation: one turn at a time, in order, whichever task is cancelled."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from mintlify_async.conversation.turn_lock import TurnLock, turn_lock
from mintlify_async.storage import MemoryStore


@pytest.mark.parametrize("seed", range(6))
async def test_in_order_when_some_are_cancelled(seed):
    """Forty turns, some cancelled at random moments: never two inside, none forgotten, all in line."""
    dice = random.Random(seed)
    lock = TurnLock()
    inside = 0
    order: list[int] = []

    async def turn(number: int) -> None:
        nonlocal inside
        async with lock.hold(queue=True):
            inside += 1
            assert inside == 1
            order.append(number)
            try:
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside -= 1

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


async def test_another_thread_may_release():
    """A reply that was not closed may be collected on any thread; the turn that waits here is woken."""
    lock = TurnLock()
    await lock.acquire(queue=True)
    waiting = asyncio.create_task(lock.acquire(queue=True))
    await asyncio.sleep(0)
    thread = threading.Thread(target=lock.release)
    thread.start()
    await waiting
    await asyncio.to_thread(thread.join)
    assert lock.locked
    lock.release()


@pytest.mark.parametrize("queue", [True, False])
def test_a_loop_that_was_closed_does_not_hold_a_conversation(queue):
    """Its pending tasks will never end their turns."""
    store = MemoryStore()

    async def begin() -> None:
        async with turn_lock(store, "ada", "c").hold(queue=queue):
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(begin())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    async def next_turn() -> None:
        async with turn_lock(store, "ada", "c").hold(queue=queue):
            pass

    asyncio.run(next_turn())
    task._log_destroy_pending = False  # it is lost on purpose
    task.get_coro().close()
