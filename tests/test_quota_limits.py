"""The adapter for those who run the ``limits`` library: its storages count, ours are the rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis_server import RedisServer

limits = pytest.importorskip("limits", reason="the limits library is not installed")

from limits.aio.storage import Storage  # noqa: E402 - after the check that it is there
from limits.storage import MemoryStorage, storage_from_string  # noqa: E402

from mintlify_async.clock import SystemClock  # noqa: E402
from mintlify_async.contrib.limits import LimitsQuotaStore  # noqa: E402
from mintlify_async.errors import ConfigurationError, QuotaExceededError  # noqa: E402
from mintlify_async.quota import Quota, QuotaScope, QuotaStore
from mintlify_async.windows import Limit

ACME = QuotaScope(project="acme")
SITE = QuotaScope(domain="acme.com", key="fp-1")
CLOCK = SystemClock()


@pytest.fixture(params=["memory", "redis"])
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    if request.param == "memory":
        storage = storage_from_string("async+memory://")
        yield storage
        await leave_nothing(storage)
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    storage = storage_from_string(f"async+{server.url}", implementation="redispy")
    yield storage
    await storage.bridge.storage.connection_pool.aclose()  # type: ignore[attr-defined]


async def leave_nothing(storage: Any) -> None:
    """End the task with which the library's storage in memory forgets old entries."""
    for name in ("timer", "_timer"):
        if (task := getattr(storage, name, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def granted(quota: Quota, tries: int, operation: Any = "create_job") -> int:
    count = 0
    for _ in range(tries):
        try:
            await quota.acquire(operation, SITE if operation == "ask" else ACME, clock=CLOCK)
        except QuotaExceededError:
            continue
        count += 1
    return count


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_no_more_than_the_limit(storage: Storage, operation: str):
    """Seven of ten tries get one of seven slots; what is left is told."""
    quota = Quota.interface(create_job=7, ask_per_key=7, store=LimitsQuotaStore(storage))
    assert await granted(quota, 10, operation) == 7
    left, *_ = await quota.left("create_job" if operation == "create_job" else "ask", SITE)
    assert left.left == (0 if operation == "ask" else 7)


async def test_a_refusal_tells_limit_and_wait(storage: Storage):
    """As with our own stores."""
    quota = Quota.interface(create_job=1, store=LimitsQuotaStore(storage))
    await granted(quota, 1)
    with pytest.raises(QuotaExceededError) as refused:
        await quota.acquire("create_job", ACME, clock=CLOCK)
    assert refused.value.limit == "create_job"
    assert refused.value.retry_after == pytest.approx(3600, abs=10)


async def test_a_429_stops_all_who_share_the_storage(storage: Storage):
    """The block is kept in the storage, so another process sees it; a shorter one does not shorten it."""
    here, there = (Quota.interface(store=LimitsQuotaStore(storage)) for _ in range(2))
    await granted(here, 1)
    await here.observe("create_job", ACME, 429, {}, 30.0)
    await here.observe("create_job", ACME, 429, {}, 5.0)
    with pytest.raises(QuotaExceededError, match="asked to be left alone") as refused:
        await there.acquire("create_job", ACME, clock=CLOCK)
    assert refused.value.retry_after == pytest.approx(30, abs=5)
    for quota in (here, there):
        (left,) = await quota.left("create_job", ACME, clock=CLOCK)
        assert (left.left, left.blocked) == (0, pytest.approx(30, abs=5))
        assert left.next_in == pytest.approx(30, abs=5)


async def test_waiters_are_all_served(storage: Storage):
    """Six callers, three a second: two waves."""
    store = LimitsQuotaStore(storage)
    quota = Quota.interface(create_job=Limit(3, per=1), mode="wait", store=store)
    leases = await asyncio.gather(*(quota.acquire("create_job", ACME, clock=CLOCK) for _ in range(6)))
    assert sum(lease.waited > 0.5 for lease in leases) >= 3


async def test_what_the_service_says_is_left_counts_here(storage: Storage):
    """It stays in this process; the storage has no place for it."""
    quota = Quota.interface(store=LimitsQuotaStore(storage))
    lease = await quota.acquire("create_job", ACME, clock=CLOCK)
    await lease.refund()
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "2", "ratelimit-reset": "60"})
    assert await granted(quota, 5) == 2


async def test_a_refusal_uses_up_nothing_of_what_the_service_says_is_left(storage: Storage):
    """Three more, says the service; tries that our own limit refuses are none of them."""
    quota = Quota.interface(create_job=Limit(1, per=1), store=LimitsQuotaStore(storage))
    await granted(quota, 1)
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "3", "ratelimit-reset": "60"})
    assert await granted(quota, 20) < 3
    quota.mode = "wait"
    async with asyncio.timeout(20):  # of the sixty for which the three are told
        await quota.acquire("create_job", ACME, clock=CLOCK)


async def test_a_storage_that_does_not_answer_is_a_refusal(storage: Storage, monkeypatch: pytest.MonkeyPatch):
    """A hung storage costs one timeout; a failed observation costs nothing."""

    async def hang(*args: Any) -> int:
        await asyncio.sleep(3600)
        return 0

    monkeypatch.setattr(storage, "get", hang)
    quota = Quota.interface(store=LimitsQuotaStore(storage, timeout=0.05))
    with pytest.raises(QuotaExceededError, match="store is away"):
        await quota.acquire("create_job", ACME, clock=CLOCK)
    await quota.observe("create_job", ACME, 429, {}, 5.0)


def test_only_an_asynchronous_storage_will_do():
    """A synchronous one would stop the event loop."""
    with pytest.raises(ConfigurationError) as error:
        LimitsQuotaStore(MemoryStorage())  # type: ignore[arg-type]
    assert error.value.field == "storage"


def test_it_is_a_quota_store():
    """It can stand wherever the others do."""
    assert issubclass(LimitsQuotaStore, QuotaStore)
