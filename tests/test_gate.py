"""The gate before a conversation: one at a time, in order, whoever is cancelled when."""

from __future__ import annotations

import asyncio
import gc
import random
import threading

import pytest

from mintlify_async.errors import StateError
from mintlify_async.gate import TurnGate, shared_gate
from mintlify_async.stores import MemoryConversationStore


class Nobody:
    """A turn that never makes way."""

    def make_way(self) -> bool:
        return False


@pytest.mark.parametrize("seed", range(20))
async def test_in_order_whoever_is_cancelled(seed):
    """Forty turns, some cancelled at random moments: never two inside, none forgotten, all in line."""
    dice = random.Random(seed)
    gate = TurnGate()
    inside = 0
    order: list[int] = []

    async def turn(number: int) -> None:
        nonlocal inside
        me = Nobody()
        await gate.enter(me, queue=True)
        try:
            inside += 1
            assert inside == 1
            order.append(number)
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            gate.leave()

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
    assert not gate.busy


async def test_without_queueing_a_second_is_told():
    """Also while others wait in line."""
    gate = TurnGate()
    first = Nobody()
    await gate.enter(first, queue=False)
    with pytest.raises(StateError, match="busy with another turn"):
        await gate.enter(Nobody(), queue=False)
    with pytest.raises(StateError, match="busy"), gate.step():
        raise AssertionError
    gate.leave()
    with gate.step():
        assert gate.busy
    assert not gate.busy


async def test_a_waiter_of_a_closed_loop_is_passed_over():
    """A program that ended in the middle does not hold up the next one."""
    gate = TurnGate()
    holder = Nobody()
    await gate.enter(holder, queue=True)

    def give_up() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(gate.enter(Nobody(), queue=True))
        loop.run_until_complete(asyncio.wait([task], timeout=0.01))
        loop.close()
        task._log_destroy_pending = False  # it is lost on purpose

    await asyncio.to_thread(give_up)
    mine = Nobody()
    waiting = asyncio.create_task(gate.enter(mine, queue=True))
    await asyncio.sleep(0)
    gate.leave()
    await waiting
    gate.leave()
    assert not gate.busy
    gc.collect()


async def test_another_thread_may_leave():
    """A reply that nobody closed may be collected anywhere; who waits here is woken."""
    gate = TurnGate()
    holder, mine = Nobody(), Nobody()
    await gate.enter(holder, queue=True)
    waiting = asyncio.create_task(gate.enter(mine, queue=True))
    await asyncio.sleep(0)
    thread = threading.Thread(target=gate.leave)
    thread.start()
    await waiting
    await asyncio.to_thread(thread.join)
    assert gate.busy
    gate.leave()


def test_gates_are_shared_by_name():
    """Store, owner and id together; a store that cannot be looked up has a gate for each."""
    store = MemoryConversationStore()
    gate = shared_gate(store, "ada", "help")
    assert shared_gate(store, "ada", "help") is gate
    assert shared_gate(store, "bob", "help") is not gate
    assert shared_gate(MemoryConversationStore(), "ada", "help") is not gate
    assert shared_gate({}, "ada", "help") is not shared_gate({}, "ada", "help")
