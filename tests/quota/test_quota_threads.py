"""One quota for four event loops, with cancelled calls and refusals: never too many, and nobody hangs."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from mintlify_async import Limit, MemoryStore, Quota
from mintlify_async.testing import LocalService

pytestmark = pytest.mark.real

AMOUNT, PER, CALLS = 60, 0.5, 300


class Noted(MemoryStore):
    """Keeps between which times each slot was taken that was not given back."""

    def __init__(self):
        super().__init__()
        self.taken = {}

    async def take(self, windows, *, slot, block):
        before = time.monotonic()
        result = await super().take(windows, slot=slot, block=block)
        if result.taken:
            self.taken.setdefault(slot, (before, time.monotonic()))
        return result

    async def refund(self, windows, *, slot):
        await super().refund(windows, slot=slot)
        self.taken.pop(slot, None)


async def calls(service, quota, seed):
    """Create jobs from one loop; cancel every fifth at a random moment. Return how many were created."""
    dice = random.Random(seed)

    async def one(session, number):
        call = asyncio.create_task(session.create_job(f"{seed} {number}"))
        if number % 5 == 0:
            await asyncio.sleep(dice.uniform(0, 8))
            call.cancel()
        await asyncio.wait([call])
        return not call.cancelled() and call.exception() is None

    async with service.session(quota=quota) as session:
        made = await asyncio.gather(*(one(session, number) for number in range(CALLS)))
    return sum(made)


async def test_four_loops_share_one_quota():
    """1,200 calls, a fifth of them cancelled, and now and then a 429."""
    store = Noted()
    quota = Quota(create_job=Limit(AMOUNT, per=PER), mode="wait", store=store)
    made, errors = [], []

    def run(seed):
        try:
            made.append(asyncio.run(calls(service, quota, seed)))
        except BaseException as error:
            errors.append(error)

    async with LocalService() as service:
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(300):
            while any(thread.is_alive() for thread in threads):
                service.script.create_job(status=429, headers={"Retry-After": "1"}, times=1)
                await asyncio.sleep(4)
    assert not errors
    assert sum(made) >= 4 * CALLS * 4 / 5
    assert quota.waiting == 0
    times = sorted(store.taken.values())
    gaps = [
        max(after for _, after in times[first : first + AMOUNT + 1]) - times[first][0]
        for first in range(len(times) - AMOUNT)
    ]
    assert min(gaps) >= PER, "more than the limit in a window"
