"""The quota on several event loops: one count, a line on each, and waking across them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mintlify_async import Limit, MemoryStore, Quota
from mintlify_async.quota.gate import QuotaScope
from mintlify_async.quota.quota import Lease
from mintlify_async.runtime import dates
from mintlify_async.storage import TakeResult

ACME = QuotaScope(project="acme")


async def elsewhere(quota: Quota) -> Lease:
    """Take a slot on another loop."""
    return await asyncio.to_thread(asyncio.run, quota.acquire("create_job", ACME))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_unblock_wakes_calls_on_all_loops():
    """Here and on two others (D9)."""
    quota = Quota(mode="wait")
    await quota.block("create_job", ACME, 600)
    calls = [asyncio.create_task(elsewhere(quota)) for _ in range(2)]
    calls.append(asyncio.create_task(quota.acquire("create_job", ACME)))
    await until(lambda: quota.waiting == 3)
    await quota.unblock("create_job", ACME)
    async with asyncio.timeout(20):
        assert max(lease.waited for lease in await asyncio.gather(*calls)) < 20


async def test_a_loop_that_was_closed_with_a_waiting_call_harms_nobody():
    """No call of another loop waits for it."""
    quota = Quota(create_job=1, mode="wait")
    lease = await quota.acquire("create_job", ACME)

    def leave_a_call() -> asyncio.Task[Lease]:
        loop = asyncio.new_event_loop()
        task = loop.create_task(quota.acquire("create_job", ACME))
        loop.run_until_complete(asyncio.sleep(0.01))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        return task

    dead = await asyncio.to_thread(leave_a_call)
    assert quota.waiting == 1
    await lease.refund()
    async with asyncio.timeout(20):
        await quota.acquire("create_job", ACME)
    assert not dead.done()


class RecordingStore(MemoryStore):
    """Notes the time before and after each slot that was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[float] = []
        self.ends: list[float] = []

    async def take(self, *args: Any, **kwargs: Any) -> TakeResult:
        start = dates.now()
        result = await super().take(*args, **kwargs)
        if result.taken:
            self.starts.append(start)
            self.ends.append(dates.now())
        return result


async def test_two_hundred_callers_on_two_loops():
    """Served in order within a loop, none starves, and no window has more than its limit."""
    store = RecordingStore()
    quota = Quota(create_job=Limit(50, per=0.5), mode="wait", store=store)

    async def run() -> list[int]:
        order: list[int] = []

        async def call(number: int) -> None:
            await quota.acquire("create_job", ACME)
            order.append(number)

        async with asyncio.timeout(30):
            await asyncio.gather(*(call(number) for number in range(100)))
        return order

    orders = await asyncio.gather(*(asyncio.to_thread(asyncio.run, run()) for _ in range(2)))
    assert orders == [list(range(100))] * 2
    pairs = zip(sorted(store.starts), sorted(store.ends)[50:], strict=False)
    assert all(late - early >= 0.5 for early, late in pairs)
