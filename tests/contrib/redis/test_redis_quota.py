"""The quota on a real Redis: what it leaves there, a restart, four processes with clocks minutes apart."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mintlify_async import Limit, Quota
from mintlify_async.contrib.redis import RedisStore
from mintlify_async.errors import QuotaExceededError
from mintlify_async.quota.quota import STORE_PAUSE, QuotaScope
from tests.support.child_process import run_to_end
from tests.support.redis_server import RedisServer

ACME = QuotaScope(project="acme-secret-project")
SITE = QuotaScope(domain="acme-secret-domain.com", key="fp-1")


async def granted(quota: Quota, tries: int) -> int:
    """Try *tries* times and return how often a slot was given."""
    count = 0
    for _ in range(tries):
        try:
            await quota.lease("create_job", ACME).take()
        except QuotaExceededError:
            continue
        count += 1
    return count


async def test_every_key_expires_and_contains_no_names(redis_client: Any):
    """Nothing is left behind for ever, and nothing can be read from the names."""
    quota = Quota(store=RedisStore(redis_client, timeout=20))
    await quota.lease("create_job", ACME).take()
    await quota.lease("ask", SITE).take()
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


WORKER = """
import asyncio, sys, time
true_time, skew = time.time, float(sys.argv[2])
time.time = lambda: true_time() + skew  # before anything of ours is imported

from redis.asyncio import Redis
from mintlify_async import Limit, Quota, QuotaExceededError
from mintlify_async.contrib.redis import RedisStore
from mintlify_async.quota.quota import QuotaScope
from mintlify_async.quota.quota import Lease
from mintlify_async.runtime import clock

assert abs(clock.now() - true_time() - skew) < 1

async def main():
    async with Redis.from_url(sys.argv[1]) as client:
        limits = {"create_job": Limit(100, per=60), "ask_per_user": Limit(50, per=60)}
        quota = Quota(**limits, store=RedisStore(client, timeout=20))
        await client.incr("ready")
        while int(await client.get("ready")) < 4:
            await asyncio.sleep(0.01)
        scopes = [QuotaScope(project="p", domain="d", key="k", user=user) for user in ("ann", "bob")]
        calls = [quota.lease(sys.argv[3], scope).take() for scope in scopes for _ in range(25)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, Lease | QuotaExceededError) for result in results), results
    taken = [isinstance(result, Lease) for result in results]
    print(sum(taken[:25]), sum(taken[25:]))

asyncio.run(main())
"""


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_four_processes_whose_clocks_are_minutes_apart_keep_one_limit(
    redis_server: RedisServer, operation: str
):
    """The server's time counts: of two hundred calls at once, exactly a hundred get a slot.

    With a share for each user, half of these slots are for each of the two users.
    """
    async with asyncio.TaskGroup() as group:  # if one process fails, the others also end
        tasks = [
            group.create_task(run_to_end(sys.executable, "-c", WORKER, redis_server.url, skew, operation))
            for skew in ("-420", "-60", "0", "300")
        ]
    counts = [[int(number) for number in task.result().split()] for task in tasks]
    taken = [sum(column) for column in zip(*counts, strict=True)]
    assert sum(taken) == 100
    assert operation == "create_job" or taken == [50, 50]


async def test_who_waits_gets_the_next_slots(redis_client: Any):
    """Two quotas on one Redis, two slots a second: the third pair waits two seconds, without a storm."""
    stores = [RedisStore(redis_client, timeout=20) for _ in range(2)]
    quotas = [Quota(create_job=Limit(2, per=1), mode="wait", store=store) for store in stores]
    start = asyncio.get_running_loop().time()
    await asyncio.gather(*(quota.lease("create_job", ACME).take() for quota in quotas * 3))
    assert asyncio.get_running_loop().time() - start >= 1.9  # no slot comes early
    stats = await redis_client.info("commandstats")
    assert sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval")) <= 8 * 6
