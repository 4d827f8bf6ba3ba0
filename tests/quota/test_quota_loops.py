"""The quota on several event loops: one count, a line on each, and waking across them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mintlify_async import Quota
from mintlify_async.quota.quota import Lease, QuotaScope

ACME = QuotaScope(project="acme")


async def elsewhere(quota: Quota) -> Lease:
    """Take a slot on another loop."""
    return await asyncio.to_thread(asyncio.run, quota.lease("create_job", ACME).take())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_unblock_wakes_calls_on_all_loops():
    """Here and on two others (D9)."""
    quota = Quota(mode="wait")
    await quota.block("create_job", ACME, 600)
    calls = [asyncio.create_task(elsewhere(quota)) for _ in range(2)]
    calls.append(asyncio.create_task(quota.lease("create_job", ACME).take()))
    await until(lambda: quota.waiting == 3)
    await quota.unblock("create_job", ACME)
    async with asyncio.timeout(20):
        assert max(lease.waited for lease in await asyncio.gather(*calls)) < 20


async def test_a_loop_that_was_closed_with_a_waiting_call_harms_nobody():
    """No call of another loop waits for it."""
    quota = Quota(create_job=1, mode="wait")
    lease = await quota.lease("create_job", ACME).take()

    def leave_a_call() -> asyncio.Task[Lease]:
        loop = asyncio.new_event_loop()
        task = loop.create_task(quota.lease("create_job", ACME).take())
        loop.run_until_complete(asyncio.sleep(0.01))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        return task

    dead = await asyncio.to_thread(leave_a_call)
    assert quota.waiting == 1
    await lease.refund()
    async with asyncio.timeout(20):
        await quota.lease("create_job", ACME).take()
    assert not dead.done()
