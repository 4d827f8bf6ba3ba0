"""The quota on a real Redis: four processes with clocks minutes apart, an outage, a restart."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mintlify_async import Quota
from mintlify_async.contrib.redis import RedisStore
from mintlify_async.errors import QuotaExceededError
from mintlify_async.quota.gate import QuotaScope
from mintlify_async.quota.quota import STORE_PAUSE
from tests.support.child_process import run_to_end
from tests.support.redis_server import RedisServer

ACME = QuotaScope(project="acme-secret-project")
SITE = QuotaScope(domain="acme-secret-domain.com", key="fp-1")


async def granted(quota: Quota, tries: int) -> int:
    """Try *tries* times and return how often a slot was given."""
    count = 0
    for _ in range(tries):
        try:
            await quota.acquire("create_job", ACME)
        except QuotaExceededError:
            continue
        count += 1
    return count


async def test_every_key_expires_and_contains_no_names(redis_client: Any):
    """Nothing is left behind for ever, and nothing can be read from the names."""
    quota = Quota(store=RedisStore(redis_client, timeout=20))
    await quota.acquire("create_job", ACME)
    await quota.acquire("ask", SITE)
    await quota.block("create_job", ACME)
    await quota.block("ask", SITE, 30)
    keys = [key.decode() for key in await redis_client.keys("*")]
    assert len(keys) == 12
    for key in keys:
        assert 0 < await redis_client.ttl(key) <= 32 * 86_400
        assert key.startswith("mintlify:{quota-")
        assert not any(name in key for name in ("acme", "secret", "fp-1"))


@pytest.mark.parametrize("durable", [True, False])
async def test_a_restart_gives_no_slot_twice(own_redis: Callable[..., RedisServer], durable: bool):
    """Four of ten are left: into an empty Redis, both processes enter the slots that they know of."""
    server = own_redis(durable=durable)
    async with server.client() as first, server.client() as second:
        quotas = [Quota(create_job=10, store=RedisStore(client, timeout=5)) for client in (first, second)]
        for _ in range(3):
            for quota in quotas:
                assert await granted(quota, 1) == 1
        server.kill()
        assert [await granted(quota, 1) for quota in quotas] == [0, 0]
        server.start()
        await asyncio.sleep(STORE_PAUSE)
        assert [await granted(quotas[1], 1), await granted(quotas[0], 9)] == [1, 3]


# Four processes

WORKER = """
import asyncio, sys, time
true_time, skew = time.time, float(sys.argv[2])
time.time = lambda: true_time() + skew  # before anything of ours is imported

from redis.asyncio import Redis
from mintlify_async import Limit, Quota
from mintlify_async.contrib.redis import RedisStore
from mintlify_async.quota.gate import QuotaScope
from mintlify_async.runtime import dates

assert abs(dates.now() - true_time() - skew) < 1
url, window, seconds = sys.argv[1], *map(float, sys.argv[3:])

async def main():
    count = 0
    async with Redis.from_url(url) as client:
        store = RedisStore(client, timeout=5)
        quota = Quota(create_job=Limit(100, per=window), mode="wait", store=store)
        async def caller():
            nonlocal count
            while True:
                await quota.acquire("create_job", QuotaScope(project="p"))
                count += 1
        await client.incr("ready")
        while int(await client.get("ready")) < 4:
            await asyncio.sleep(0.01)
        callers = [asyncio.create_task(caller()) for _ in range(50)]
        await asyncio.sleep(seconds)
        for one in callers:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    print(count)

asyncio.run(main())
"""


def most_in_any_window(times: list[int], length: int) -> int:
    times, first, most = sorted(times), 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - length:
            first += 1
        most = max(most, last - first + 1)
    return most


async def watch_slots(client: Any, until: asyncio.Future[Any], pause: float) -> dict[bytes, int]:
    """Collect every slot with the server's time of it, before the log forgets it."""
    slots: dict[bytes, int] = {}
    while not until.done():
        for key in await client.keys("mintlify:*:slots/create_job:*"):
            slots |= {slot: int(at) for slot, at in await client.zrange(key, 0, -1, withscores=True)}
        await asyncio.wait([until], timeout=pause)
    return slots


async def run_workers(*commands: list[str]) -> list[int]:
    """Run them at the same time, and return their counts. If one fails, the others also end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_to_end(sys.executable, "-c", WORKER, *one)) for one in commands]
    return [int(task.result()) for task in tasks]


@pytest.mark.parametrize("outage", [pytest.param(False, marks=pytest.mark.sweep), True])
async def test_four_processes_whose_clocks_are_minutes_apart_keep_one_limit(
    own_redis: Callable[..., RedisServer], outage: bool
):
    """4 x 50 callers, 100 in 3 s: never more than 100 in any window, also when Redis stands still."""
    server, window = own_redis(), 3.0  # a slot is seen in this time, by a busy computer, too
    commands = [[server.url, skew, str(window), str(4.6 * window)] for skew in ("-420", "-60", "0", "300")]
    workers = asyncio.ensure_future(run_workers(*commands))
    async with server.client() as watcher:
        slots = asyncio.ensure_future(watch_slots(watcher, workers, window / 20))
        if outage:
            await asyncio.sleep(2 * window)
            await server.stand_still(1.0)
        times = list((await slots).values())
        stats = await watcher.info("commandstats")
    total = sum(await workers)
    trips = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    print(f"{total} grants, {trips / total:.2f} round trips each")
    assert total >= 150  # on a busy computer, too
    assert len(times) >= total
    assert most_in_any_window(times, int(window * 1e6)) <= 100
    assert trips <= 8 * total
