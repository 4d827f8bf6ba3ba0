"""Cancelling a call that waits on Redis: it always ends, and nothing is sent or kept as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis_server import RedisServer

from mintlify_async.contrib.redis import RedisConversationStore, RedisLedger, RedisQuotaStore
from mintlify_async.errors import ConfigurationError, QuotaExceededError
from mintlify_async.quota import Quota, QuotaScope
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.storage import Claim

ACME = QuotaScope(project="acme")
CLAIM = Claim(key="k", fingerprint="f", token="t", claimed_at=1.0, lease_until=2.0)


def steps(client: Any) -> dict[str, Callable[[], Any]]:
    quota = Quota.interface(create_job=10_000, mode="wait", store=RedisQuotaStore(client, timeout=20))
    ledger = RedisLedger(client, timeout=20)
    store = RedisConversationStore(client, timeout=20)
    return {
        "quota": lambda: quota.acquire("create_job", ACME, clock=SystemClock()),
        "ledger": lambda: ledger.claim(CLAIM),
        "find": lambda: ledger.find("k"),
        "conversations": lambda: store.load("id", owner="o"),
    }


@pytest.mark.parametrize("step", ["quota", "ledger", "find", "conversations"])
async def test_a_cancelled_call_goes_no_further(redis_client: Any, step: str):
    """Cancelled after any number of turns of the loop, no task goes on behind its wait for Redis."""
    call = steps(redis_client)[step]
    await call()
    went_on = []

    async def caller() -> None:
        for _ in range(100):
            before = asyncio.current_task().cancelling()  # type: ignore[union-attr]
            await call()
            if asyncio.current_task().cancelling() > before:  # type: ignore[union-attr]
                went_on.append(turns)
                return

    for turns in range(60):
        task = asyncio.create_task(caller())
        for _ in range(turns):
            await asyncio.sleep(0 if turns % 2 else 0.0002)
        task.cancel()
        await asyncio.wait([task])
    assert not went_on


class Swallows:
    """A client that loses each cancellation, as redis-py does on Python 3.11."""

    def __init__(self) -> None:
        self.asked, self.lost = asyncio.Event(), 0

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        self.asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.lost += 1
        return [1, 0, 0, 1, "epoch", []]

    eval = evalsha


async def test_a_client_that_swallows_a_cancellation_does_no_harm():
    """The cancellation reaches the caller all the same."""
    client = Swallows()
    quota = Quota.interface(store=RedisQuotaStore(client, timeout=0.5))  # type: ignore[arg-type]
    task = asyncio.create_task(quota.acquire("create_job", ACME, clock=SystemClock()))
    await client.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.lost


class Slow:
    """A Redis that answers at once, while the event loop is busy for longer than the timeout."""

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_later(0.02, answer.set_result, [1, 0, 0, 1, "epoch", []])
        loop.call_soon(self.block)
        await answer
        await asyncio.sleep(0)  # a parser takes a few turns of the loop
        await asyncio.sleep(0)
        return answer.result()

    eval = evalsha

    def block(self) -> None:
        import time

        time.sleep(0.3)


async def test_a_busy_loop_is_not_an_absent_redis():
    """What counts is what the store took."""
    quota = Quota.interface(store=RedisQuotaStore(Slow(), timeout=0.1))  # type: ignore[arg-type]
    await quota.acquire("create_job", ACME, clock=SystemClock())


async def test_three_stores_share_the_places_of_one_client(redis_server: RedisServer):
    """A pool of fifty serves two hundred creations at once, each with quota, ledger and conversation."""
    async with redis_server.client(max_connections=50) as client:
        calls = steps(client)
        await asyncio.gather(
            *(calls[name]() for _ in range(200) for name in ("quota", "find", "conversations"))
        )


async def test_a_blocking_pool_on_another_loop_is_refused(redis_server: RedisServer):
    """Its connections belong to the loop that used it first; the error says what to do."""
    from redis.asyncio import BlockingConnectionPool, Redis

    pool = BlockingConnectionPool.from_url(redis_server.url, max_connections=2)
    client = Redis(connection_pool=pool)
    ledger = RedisLedger(client)
    assert await ledger.find("k") is None
    with pytest.raises(ConfigurationError, match="BlockingConnectionPool") as refused:
        await asyncio.to_thread(asyncio.run, ledger.find("k"))
    assert refused.value.field == "client"
    await client.aclose()
    await pool.disconnect()


async def test_unblock_reaches_every_process(redis_client: Any):
    """What one process clears, the others may use."""
    here, there = (Quota.interface(store=RedisQuotaStore(redis_client, timeout=5)) for _ in range(2))
    clock = SystemClock()
    await here.acquire("create_job", ACME, clock=clock)
    await here.observe("create_job", ACME, 429, {}, 3_600_000.0)
    with pytest.raises(QuotaExceededError) as refused:
        await there.acquire("create_job", ACME, clock=clock)
    assert refused.value.retry_after is not None
    assert refused.value.retry_after <= 3600
    await here.unblock("create_job", ACME)
    await there.acquire("create_job", ACME, clock=clock)
