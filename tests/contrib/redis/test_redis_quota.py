"""The quota on a real Redis: shared, exact on the server's clock, and no hang when Redis is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis_server import RedisServer, Stutter, run_all, run_python

from mintlify_async.contrib.redis import RedisConversationStore, RedisLedger, RedisQuotaStore
from mintlify_async.contrib.redis.quota import _ENTER as ENTER
from mintlify_async.errors import ConfigurationError, QuotaExceededError
from mintlify_async.quota import Limit, MemoryQuotaStore, Quota, QuotaScope, QuotaStore
from mintlify_async.runtime.clock import Clock, SystemClock
from mintlify_async.storage import Claim, StoredTurn
from mintlify_async.testing.virtual_clock import VirtualClock

ACME = QuotaScope(project="acme-secret-project")
SITE = QuotaScope(domain="acme-secret-domain.com", key="fp-1")


async def granted(quota: Quota, clock: Clock, tries: int, operation: Any = "create_job") -> int:
    """Try *tries* times and return how often a slot was given."""
    count = 0
    for _ in range(tries):
        try:
            await quota.acquire(operation, SITE if operation == "ask" else ACME, clock=clock)
        except QuotaExceededError:
            continue
        count += 1
    return count


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


# ------------------------------------------------------------------ the same for every store


@pytest.fixture(params=["memory", "redis", "redis, replies decoded"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[QuotaStore]:
    if request.param == "memory":
        yield MemoryQuotaStore()
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    async with server.client(decode_responses="decoded" in request.param) as client:
        yield RedisQuotaStore(client, timeout=5)


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_no_more_than_the_limit(store: QuotaStore, clock: SystemClock, operation: str):
    """Seven of ten tries get one of seven slots, in both kinds of window."""
    quota = Quota.interface(create_job=7, ask_per_organization=7, store=store)
    assert await granted(quota, clock, 10, operation) == 7


async def test_many_at_once_get_no_more_than_the_limit(store: QuotaStore, clock: SystemClock):
    """Fifty that ask in the same moment share the thirty slots."""
    quota = Quota.interface(create_job=30, store=store)
    counts = await asyncio.gather(*(granted(quota, clock, 1) for _ in range(50)))
    assert sum(counts) == 30


async def test_a_refusal_names_limit_and_wait(store: QuotaStore, clock: SystemClock):
    """The refusal says which limit it was and when the next slot comes."""
    quota = Quota.interface(create_job=1, store=store)
    await granted(quota, clock, 1)
    with pytest.raises(QuotaExceededError) as refused:
        await quota.acquire("create_job", ACME, clock=clock)
    assert refused.value.limit == "create_job"
    assert refused.value.retry_after == pytest.approx(3600, abs=10)


async def test_the_limit_that_is_used_up_is_named(store: QuotaStore, clock: SystemClock):
    """Of three windows, the one without a slot is blamed."""
    quota = Quota.interface(ask_per_address=2, store=store)
    await granted(quota, clock, 2, "ask")
    with pytest.raises(QuotaExceededError) as refused:
        await quota.acquire("ask", SITE, clock=clock)
    assert refused.value.limit == "ask_per_address"


async def test_projects_are_counted_apart(store: QuotaStore, clock: SystemClock):
    """What one project used is free for another."""
    quota = Quota.interface(create_job=1, store=store)
    await granted(quota, clock, 1)
    await quota.acquire("create_job", QuotaScope(project="other"), clock=clock)


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_a_refund_frees_one_slot(store: QuotaStore, clock: SystemClock, operation: Any):
    """A slot that went back is there for the next; giving it back twice is once."""
    quota = Quota.interface(create_job=2, ask_per_key=2, store=store)
    lease = await quota.acquire(operation, ACME if operation == "create_job" else SITE, clock=clock)
    await granted(quota, clock, 1, operation)
    await lease.refund()
    await lease.refund()
    assert await granted(quota, clock, 3, operation) == 1


async def test_a_429_blocks_for_as_long_as_it_says(store: QuotaStore, clock: SystemClock):
    """Everybody who shares the limit is stopped; the rest of the block is told."""
    quota = Quota.interface(store=store)
    await granted(quota, clock, 1)
    await quota.observe("create_job", ACME, 429, {}, 30.0)
    await quota.observe("create_job", ACME, 429, {}, 5.0)
    (left,) = await quota.left("create_job", ACME)
    assert (left.left, left.blocked) == (0, pytest.approx(30, abs=5))
    assert await granted(quota, clock, 3) == 0


async def test_a_429_without_a_time_blocks_for_a_minute(store: QuotaStore, clock: SystemClock):
    """Many refusals at once are one: sixty seconds, not more."""
    quota = Quota.interface(store=store)
    await granted(quota, clock, 1)
    for _ in range(5):
        await quota.observe("create_job", ACME, 429, {})
    (left,) = await quota.left("create_job", ACME)
    assert left.blocked == pytest.approx(60, abs=5)


async def test_a_short_block_ends(store: QuotaStore, clock: SystemClock):
    """When the block is over, a waiter goes on by itself."""
    quota = Quota.interface(mode="wait", store=store)
    await granted(quota, clock, 1)
    await quota.observe("create_job", ACME, 429, {}, 0.2)
    lease = await quota.acquire("create_job", ACME, clock=clock)
    assert lease.waited > 0.1


async def test_what_the_service_says_is_left_counts(store: QuotaStore, clock: SystemClock):
    """After "2 left" two pass, and a later, larger number in the same period changes nothing."""
    quota = Quota.interface(store=store)
    await granted(quota, clock, 1)
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "2", "ratelimit-reset": "60"})
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "9", "ratelimit-reset": "60"})
    (left,) = await quota.left("create_job", ACME)
    assert left.left == 2
    assert await granted(quota, clock, 5) == 2


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_what_is_left_is_told(store: QuotaStore, clock: SystemClock, operation: Any):
    """Asking uses nothing."""
    quota = Quota.interface(create_job=3, ask_per_key=3, ask_per_organization=3, store=store)
    scope = ACME if operation == "create_job" else SITE
    before = await quota.left(operation, scope)
    assert before[0].left == 3
    await granted(quota, clock, 2, operation)
    after = await quota.left(operation, scope)
    assert (after[0].left, after[0].next_in) == (1, 0)
    await granted(quota, clock, 1, operation)
    (spent, *_) = await quota.left(operation, scope)
    assert (spent.left, spent.next_in > 0) == (0, True)


async def test_waiters_are_all_served(store: QuotaStore, clock: SystemClock):
    """Twelve callers, four in 0.2 s: three waves, none is forgotten."""
    quota = Quota.interface(create_job=Limit(4, per=0.2), mode="wait", store=store)
    order: list[int] = []

    async def one(number: int) -> None:
        await quota.acquire("create_job", ACME, clock=clock)
        order.append(number)

    await asyncio.gather(*(one(number) for number in range(12)))
    assert sorted(order) == list(range(12))


async def test_a_window_of_the_past_is_forgotten(store: QuotaStore, clock: SystemClock):
    """When the window has passed, all its slots are free again, in both kinds."""
    short = Limit(3, per=0.1)
    quota = Quota.interface(create_job=short, ask_per_key=short, mode="wait", store=store)
    for operation in ("create_job", "ask"):
        assert await granted(quota, clock, 7, operation) == 7


# ------------------------------------------------------------------ what only a shared store has


async def test_two_processes_share_one_count(redis_server: RedisServer, clock: SystemClock):
    """Two stores on one Redis are one count; another namespace is another."""
    async with redis_server.client() as mine, redis_server.client() as yours:
        here = Quota.interface(create_job=5, store=RedisQuotaStore(mine))
        there = Quota.interface(create_job=5, store=RedisQuotaStore(yours))
        apart = Quota.interface(create_job=5, store=RedisQuotaStore(yours, namespace="staging"))
        assert await granted(here, clock, 3) + await granted(there, clock, 9) == 5
        assert await granted(apart, clock, 9) == 5


async def test_a_429_of_one_process_stops_the_others(redis_server: RedisServer, clock: SystemClock):
    """The block is on the server: a process that saw no 429 is stopped by it."""
    async with redis_server.client() as mine, redis_server.client() as yours:
        here, there = (Quota.interface(store=RedisQuotaStore(one)) for one in (mine, yours))
        await granted(here, clock, 1)
        await here.observe("create_job", ACME, 429, {}, 30.0)
        assert await granted(there, clock, 1) == 0


async def test_pauses_double_while_refusals_follow_each_other(redis_client: Any, clock: SystemClock):
    """As in memory: the end of one pause and a new refusal double it, up to an hour."""
    quota = Quota.interface(store=RedisQuotaStore(redis_client))
    await granted(quota, clock, 1)
    (state,) = [key for key in await redis_client.keys("*") if b":state:" in key]
    pauses = []
    for _ in range(8):
        await quota.observe("create_job", ACME, 429, {})
        pauses.append(int(await redis_client.hget(state, "pause")) // 1_000_000)
        await redis_client.hset(state, "blocked", 0)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]


async def test_script_flush_does_no_harm(redis_client: Any, clock: SystemClock):
    """A server that forgot the scripts is told them again, and no slot is lost or given twice."""
    quota = Quota.interface(create_job=6, store=RedisQuotaStore(redis_client))
    total = 0
    for _ in range(4):
        await redis_client.script_flush()
        total += await granted(quota, clock, 2)
    assert total == 6


async def test_every_key_expires_and_contains_no_names(redis_client: Any, clock: SystemClock):
    """Nothing is left behind for ever, and nothing can be read from the names."""
    quota = Quota.interface(store=RedisQuotaStore(redis_client))
    await granted(quota, clock, 2)
    await granted(quota, clock, 2, "ask")
    await quota.observe("create_job", ACME, 429, {}, 30.0)
    await quota.observe("ask", SITE, 200, {"ratelimit-remaining": "2", "ratelimit-reset": "60"})
    keys = [key.decode() for key in await redis_client.keys("*")]
    assert len(keys) == 6
    for key in keys:
        assert 0 < await redis_client.ttl(key) <= 33 * 86_400
        assert key.startswith("mintlify:quota:{")
        assert not any(name in key for name in ("acme", "secret", "fp-1"))


async def test_the_keys_of_one_look_live_on_one_node(redis_client: Any, clock: SystemClock):
    """Redis Cluster refuses a script whose keys are apart: each look's keys carry one hash tag."""
    seen: list[list[str]] = []

    class Spy:
        def evalsha(self, sha: str, numkeys: int, *rest: Any) -> Any:
            seen.append(list(rest[:numkeys]))
            return redis_client.evalsha(sha, numkeys, *rest)

        def eval(self, script: str, numkeys: int, *rest: Any) -> Any:
            return redis_client.eval(script, numkeys, *rest)

    quota = Quota.interface(store=RedisQuotaStore(Spy()))
    for operation, scope in (("create_job", ACME), ("ask", SITE)):
        lease = await quota.acquire(operation, scope, clock=clock)  # type: ignore[arg-type]
        await quota.observe(operation, scope, 429, {}, 0.01)  # type: ignore[arg-type]
        await quota.left(operation, scope)  # type: ignore[arg-type]
        await lease.refund()
    assert len(seen) == 8
    for keys in seen:
        assert len({key.partition("{")[2].partition("}")[0] for key in keys}) == 1


async def test_a_cancelled_look_gives_its_slot_back(redis_client: Any, clock: SystemClock):
    """Cancelled after Redis granted it and before the caller had it: the slot is given back."""
    granted_there = asyncio.Event()

    class Slow:
        async def evalsha(self, sha: str, numkeys: int, *rest: Any) -> Any:
            reply = await redis_client.eval(stock[sha], numkeys, *rest)
            if not granted_there.is_set():
                granted_there.set()
                await asyncio.sleep(3600)
            return reply

        eval = evalsha

    from mintlify_async.contrib.redis import quota as room

    stock = {one.sha: one.text for one in vars(room).values() if hasattr(one, "sha")}
    quota = Quota.interface(create_job=1, store=RedisQuotaStore(Slow(), timeout=5))  # type: ignore[arg-type]
    caller = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock))
    await granted_there.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert await granted(quota, clock, 1) == 1


async def test_a_redis_cluster_takes_every_script(own_redis: Callable[..., RedisServer], clock: SystemClock):
    """On a real cluster all three stores do all they can; it refuses scripts whose keys are apart."""
    from redis.asyncio import RedisCluster

    server = own_redis(cluster=True)
    async with RedisCluster(host="127.0.0.1", port=server.port) as client:
        quota = Quota.interface(create_job=3, ask_per_key=3, store=RedisQuotaStore(client, timeout=20))
        for operation, scope in (("create_job", ACME), ("ask", SITE)):
            assert await granted(quota, clock, 5, operation) == 3
            lease = await quota.acquire("send_message", ACME, clock=clock)
            await lease.refund()
            taught = {"ratelimit-remaining": "2", "ratelimit-reset": "60"}
            await quota.observe(operation, scope, 201, taught)  # type: ignore[arg-type]
            await quota.observe(operation, scope, 429, {}, 30.0)  # type: ignore[arg-type]
            assert (await quota.left(operation, scope))[0].blocked > 0  # type: ignore[arg-type]
        ledger, now = RedisLedger(client, timeout=20), clock.wall()
        claim = Claim(key="k", fingerprint="f", token="t", claimed_at=now, lease_until=now + 5)
        assert (await ledger.claim(claim), await ledger.find("k")) == (claim, claim)
        assert await ledger.open_claims() == [claim]
        await ledger.resolve("k", "job_1")
        await ledger.forget("k")
        store = RedisConversationStore(client, timeout=20)
        turn = StoredTurn(number=0, data="[]")
        await store.save("chat", "{}", [turn], owner="ada", revision=0, keep=range(0))
        stored = await store.load("chat", owner="ada", last=1)
        assert stored is not None
        assert stored.turns == (turn,)
        assert await store.ids(owner="ada") == ["chat"]
        assert await store.delete("chat", owner="ada")


@pytest.mark.parametrize("connections", [1, 100])
async def test_more_callers_than_connections_wait_their_turn(
    redis_server: RedisServer, clock: SystemClock, connections: int
):
    """A pool refuses what goes beyond its connections; 400 callers at once are no outage."""
    async with redis_server.client(max_connections=connections) as client:
        quota = Quota.interface(create_job=300, store=RedisQuotaStore(client, timeout=5))
        assert sum(await asyncio.gather(*(granted(quota, clock, 1) for _ in range(400)))) == 300


async def test_a_client_that_sends_the_script_twice_takes_one_slot(redis_client: Any, clock: SystemClock):
    """A client's own retry after a lost answer runs the script again: the same slot, not a second one."""
    quota = Quota.interface(create_job=4, store=RedisQuotaStore(Stutter(redis_client)))
    assert await granted(quota, clock, 9) == 4


# ------------------------------------------------------------------ Redis is away


async def silent_server() -> tuple[asyncio.Server, int]:
    """A partition: connections are accepted and nothing is ever answered."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_closed_when_redis_is_away(
    own_redis: Callable[..., RedisServer], clock: SystemClock, caplog: pytest.LogCaptureFixture
):
    """By default every call is refused while Redis is down; one line says so, one that it is back."""
    server = own_redis()
    async with server.client() as client:
        quota = Quota.interface(store=RedisQuotaStore(client, probe_every=0.05, timeout=5))
        assert await granted(quota, clock, 1) == 1
        server.kill()
        with caplog.at_level(logging.WARNING, "mintlify_async"):
            with pytest.raises(QuotaExceededError, match=r"is unavailable.*nothing was sent") as refused:
                await quota.acquire("create_job", ACME, clock=clock)
            assert (refused.value.limit, refused.value.retry_after) == (None, pytest.approx(0.05, rel=0.2))
            assert type(refused.value.__cause__).__name__ == "CauseSummary"
            assert await granted(quota, clock, 20) == 0
            server.start()
            await asyncio.sleep(0.06)
            assert await granted(quota, clock, 1) == 1
        assert [
            record.message.partition(" (")[0] for record in caplog.records if record.name == "mintlify_async"
        ] == [
            "the quota store on Redis is unavailable",
            "the quota store on Redis is available again",
        ]


async def test_open_on_a_share_when_redis_is_away(own_redis: Callable[..., RedisServer], clock: SystemClock):
    """By choice each of four processes goes on with a quarter of the limit, what it already used included."""
    server = own_redis()
    async with server.client() as client:
        store = RedisQuotaStore(client, on_store_error="local", sharers=4, timeout=5, probe_every=30)
        quota = Quota.interface(create_job=40, store=store)
        assert await granted(quota, clock, 3) == 3
        server.kill()
        assert await granted(quota, clock, 20) == 7
        (left,) = await quota.left("create_job", ACME)
        assert (left.amount, left.left) == (10, 0)


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_an_outage_does_not_let_more_through_than_the_limit(
    own_redis: Callable[..., RedisServer], clock: SystemClock, operation: Any
):
    """Each process begins its share at the last known use of all, and one that was refused begins none."""
    server = own_redis()
    async with server.client() as client:

        def process() -> Quota:
            store = RedisQuotaStore(client, on_store_error="local", sharers=4, timeout=5, probe_every=30)
            return Quota.interface(create_job=40, ask_per_organization=40, store=store)

        processes = [process() for _ in range(4)]
        for quota, amount in zip(processes, (30, 2, 2, 2), strict=True):
            assert await granted(quota, clock, amount, operation) == amount
        server.kill()
        assert sum([await granted(quota, clock, 40, operation) for quota in processes]) <= 40 - 36


async def test_a_process_that_was_refused_begins_no_share(
    own_redis: Callable[..., RedisServer], clock: SystemClock
):
    """Redis had said that no slot is free; its absence does not change that."""
    server = own_redis()
    async with server.client() as client:
        stores = [
            RedisQuotaStore(client, on_store_error="local", sharers=2, timeout=5, probe_every=30)
            for _ in range(2)
        ]
        first, second = (Quota.interface(create_job=8, store=store) for store in stores)
        assert await granted(first, clock, 8) == 8
        assert await granted(second, clock, 1) == 0
        server.kill()
        assert await granted(second, clock, 8) == 0


async def test_what_was_let_through_alone_is_entered_afterwards(
    own_redis: Callable[..., RedisServer], clock: SystemClock
):
    """When Redis is back, the slots that were given without it count for all processes."""
    server = own_redis(durable=True)
    async with server.client() as client, server.client() as other:
        store = RedisQuotaStore(client, on_store_error="local", sharers=2, timeout=5, probe_every=0.05)
        quota = Quota.interface(create_job=10, store=store)
        assert await granted(quota, clock, 2) == 2
        server.kill()
        assert await granted(quota, clock, 5) == 3
        server.start()
        await asyncio.sleep(0.06)
        assert await granted(quota, clock, 1) == 1
        assert await granted(Quota.interface(create_job=10, store=RedisQuotaStore(other)), clock, 9) == 4


@pytest.mark.parametrize(
    ("operation", "durable"), [("create_job", True), ("create_job", False), ("ask", True)]
)
async def test_a_crowd_that_finds_redis_back_enters_what_is_owed_once(
    own_redis: Callable[..., RedisServer], clock: SystemClock, operation: Any, durable: bool
):
    """An answer of the service has shown that it is back; then many ask at once."""
    server = own_redis(durable=durable)
    scope = SITE if operation == "ask" else ACME
    async with server.client() as client:
        store = RedisQuotaStore(client, on_store_error="local", sharers=2, timeout=5, probe_every=0.05)
        quota = Quota.interface(create_job=20, ask_per_key=20, store=store)
        assert await granted(quota, clock, 1, operation) == 1
        server.kill()
        assert await granted(quota, clock, 4, operation) == 4
        server.start()
        await asyncio.sleep(0.06)
        await quota.observe(operation, scope, 200, {"ratelimit-remaining": "9", "ratelimit-reset": "60"})
        assert await asyncio.gather(*(granted(quota, clock, 1, operation) for _ in range(5))) == [1] * 5
        used = await client.eval(USED, 1, *[key for key in await client.keys("*") if limit_key(key)])
        assert used == 10


USED = """
if redis.call('TYPE', KEYS[1]).ok == 'zset' then return redis.call('ZCARD', KEYS[1]) end
local used = 0
for _, n in ipairs(redis.call('HVALS', KEYS[1])) do used = used + n end
return used
"""


def limit_key(key: bytes) -> bool:
    return b"state" not in key and (b":create_job:" in key or b":ask_per_key:" in key)


async def test_a_crowd_enters_its_slots_before_any_of_it_passes(redis_client: Any, clock: SystemClock):
    """The server lost its data; while one caller still enters what was used, another gets no free slot."""

    class Held:
        """A client that keeps the first of those entries back."""

        held, go = asyncio.Event(), asyncio.Event()

        def __getattr__(self, name: str) -> Any:
            return getattr(redis_client, name)

        async def evalsha(self, sha: str, *rest: Any) -> Any:
            if sha == ENTER.sha and not self.held.is_set():
                self.held.set()
                await self.go.wait()
            return await redis_client.evalsha(sha, *rest)

    client = Held()
    quota = Quota.interface(create_job=3, store=RedisQuotaStore(client, timeout=30))
    assert await granted(quota, clock, 3) == 3
    await redis_client.flushdb()
    first = asyncio.ensure_future(granted(quota, clock, 1))
    await client.held.wait()
    assert await granted(quota, clock, 1) == 0
    client.go.set()
    assert await first == 0


async def test_a_refund_during_the_outage_is_not_entered(
    own_redis: Callable[..., RedisServer], clock: SystemClock
):
    """What went back while Redis was away is not counted when it returns."""
    server = own_redis(durable=True)
    async with server.client() as client:
        store = RedisQuotaStore(client, on_store_error="local", sharers=1, timeout=5, probe_every=0.05)
        quota = Quota.interface(create_job=3, store=store)
        await granted(quota, clock, 1)
        server.kill()
        lease = await quota.acquire("create_job", ACME, clock=clock)
        await lease.refund()
        server.start()
        await asyncio.sleep(0.06)
        assert await granted(quota, clock, 9) == 2


async def test_a_429_during_the_outage_is_told_afterwards(
    own_redis: Callable[..., RedisServer], clock: SystemClock
):
    """A refusal that one process met while Redis was away stops the others when it is back."""
    server = own_redis()
    async with server.client() as client, server.client() as other:
        store = RedisQuotaStore(client, on_store_error="local", sharers=1, timeout=5, probe_every=0.05)
        quota, there = Quota.interface(store=store), Quota.interface(store=RedisQuotaStore(other))
        await granted(quota, clock, 1)
        server.kill()
        await quota.observe("create_job", ACME, 429, {}, 60.0)
        assert await granted(quota, clock, 1) == 0
        server.start()
        await asyncio.sleep(0.06)
        assert await granted(quota, clock, 1) == 0
        assert await granted(there, clock, 1) == 0


@pytest.mark.parametrize("durable", [True, False])
async def test_a_restart_in_the_middle_gives_no_slot_twice(
    own_redis: Callable[..., RedisServer], clock: SystemClock, durable: bool
):
    """Killed after six of ten slots: four are left, even when the server lost its data."""
    server = own_redis(durable=durable)
    async with server.client() as client:
        quota = Quota.interface(create_job=10, store=RedisQuotaStore(client, timeout=5, probe_every=0.01))
        assert await granted(quota, clock, 6) == 6
        server.kill()
        assert await granted(quota, clock, 1) == 0
        server.start()
        await asyncio.sleep(0.02)
        assert await granted(quota, clock, 9) == 4


@pytest.mark.parametrize("on_store_error", ["raise", "local"])
async def test_a_partition_is_no_hang(clock: SystemClock, on_store_error: Any):
    """A Redis that never answers costs one timeout; then no call waits for it for a while."""
    server, port = await silent_server()
    from redis.asyncio import Redis

    async with server, Redis(host="127.0.0.1", port=port, socket_timeout=3600) as client:
        store = RedisQuotaStore(client, on_store_error=on_store_error, sharers=2, timeout=0.1, probe_every=60)
        quota = Quota.interface(create_job=4, store=store)
        async with asyncio.timeout(10):
            assert await granted(quota, clock, 500) == (0 if on_store_error == "raise" else 2)
            await quota.observe("create_job", ACME, 429, {}, 5.0)


async def test_a_partition_stops_a_crowd_once(clock: SystemClock):
    """Five hundred callers at once on a Redis that never answers wait for one timeout, not one each."""
    server, port = await silent_server()
    from redis.asyncio import Redis

    async with server, Redis(host="127.0.0.1", port=port, socket_timeout=3600) as client:
        quota = Quota.interface(store=RedisQuotaStore(client, timeout=0.2, probe_every=60))
        async with asyncio.timeout(10):
            counts = await asyncio.gather(*(granted(quota, clock, 1) for _ in range(500)))
        assert sum(counts) == 0


async def test_an_answer_is_not_lost_over_the_store(clock: SystemClock):
    """What an answer teaches is told to Redis if it is there; observing and refunding never raise."""
    quota = Quota.interface(
        store=RedisQuotaStore(DeadClient(), on_store_error="local", sharers=1, probe_every=0.001)
    )
    lease = await quota.acquire("create_job", ACME, clock=clock)
    await asyncio.sleep(0.002)
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "2", "ratelimit-reset": "60"})
    await asyncio.sleep(0.002)
    await quota.observe("create_job", ACME, 429, {}, 60.0)
    await lease.refund()
    with pytest.raises(QuotaExceededError, match="asked for a pause"):
        await quota.acquire("create_job", ACME, clock=clock)


class DeadClient:
    """A Redis that was never there."""

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        raise ConnectionRefusedError(111, "password=hunter2 refused")

    eval = evalsha


async def test_waiting_takes_its_time_from_the_sessions_clock():
    """On a virtual clock, a wait for a share of the limit passes at once."""
    clock = VirtualClock()
    store = RedisQuotaStore(DeadClient(), on_store_error="local", sharers=2, probe_every=1e6)
    quota = Quota.interface(create_job=2, mode="wait", store=store)
    leases = [await quota.acquire("create_job", ACME, clock=clock) for _ in range(3)]
    assert [round(lease.waited) for lease in leases] == [0, 3601, 3601]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"on_store_error": "local"}, "sharers"),
        ({"on_store_error": "local", "sharers": 0}, "sharers"),
        ({"on_store_error": "ignore"}, "on_store_error"),
        ({"namespace": "a{b}"}, "namespace"),
        ({"namespace": ""}, "namespace"),
        ({"timeout": 0}, "timeout"),
        ({"probe_every": float("nan")}, "probe_every"),
        ({"probe_every": 0}, "probe_every"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": "1"}, "timeout"),
        ({"namespace": None}, "namespace"),
        ({"on_store_error": "local", "sharers": "2"}, "sharers"),
        ({"on_store_error": "local", "sharers": True}, "sharers"),
        ({"on_store_error": "local", "sharers": 1.5}, "sharers"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments: dict[str, Any], field: str):
    """Before anything is sent."""
    with pytest.raises(ConfigurationError) as error:
        RedisQuotaStore(DeadClient(), **arguments)
    assert error.value.field == field


def test_the_repr_shows_no_address():
    """A client's URL may hold a password."""
    assert repr(RedisQuotaStore(DeadClient())) == "RedisQuotaStore(namespace='mintlify')"


# ------------------------------------------------------------------ four processes, clocks minutes apart

WORKER = """
import asyncio, sys, time
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.contrib.redis import RedisQuotaStore
from mintlify_async.quota import Limit, Quota, QuotaScope
from redis.asyncio import Redis

url, skew, window, seconds = sys.argv[1], *map(float, sys.argv[2:])
true_time, true_monotonic = time.time, time.monotonic
time.time = lambda: true_time() + skew

class Skewed(SystemClock):
    def now(self): return true_monotonic() + skew
    def wall(self): return true_time() + skew

async def main():
    clock, got = Skewed(), 0
    async with Redis.from_url(url) as client:
        store = RedisQuotaStore(client, timeout=20)
        quota = Quota.interface(create_job=Limit(100, per=window), mode="wait", store=store)
        async def caller():
            nonlocal got
            while True:
                await quota.acquire("create_job", QuotaScope(project="p"), clock=clock)
                got += 1
        await client.incr("ready")
        while int(await client.get("ready")) < 4:
            await asyncio.sleep(0.01)
        callers = [asyncio.create_task(caller()) for _ in range(50)]
        await asyncio.sleep(seconds)
        for one in callers:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    print(got)

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
        for key in await client.keys("mintlify:quota:*:create_job:*"):
            if await client.type(key) == b"zset":
                slots |= {slot: int(at) for slot, at in await client.zrange(key, 0, -1, withscores=True)}
        await asyncio.wait([until], timeout=pause)
    return slots


async def test_four_processes_whose_clocks_are_minutes_apart_keep_one_limit(
    redis_server: RedisServer, redis_client: Any
):
    """4 x 50 callers, 100 in 2 s: never more than 100 in any window, few commands."""
    window = 2.0

    steps = [
        run_python(WORKER, redis_server.url, str(skew), str(window), str(4.6 * window))
        for skew in (-420.0, -60.0, 0.0, 300.0)
    ]
    workers = asyncio.ensure_future(run_all(*steps))
    async with redis_server.client() as watcher:
        slots = await watch_slots(watcher, workers, window / 5)
    total, times = sum(map(int, await workers)), sorted(slots.values())
    stats = await redis_client.info("commandstats")
    trips = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    inside = sum(value["calls"] for value in stats.values())
    used = sum(at < times[0] + 3.5 * window * 1e6 for at in times) / 400
    print(f"{total} grants, {trips / total:.2f} round trips each,", end=" ")
    print(f"{inside / total:.1f} Redis commands each with those inside the script, {used:.1%} used")
    assert len(slots) >= total
    assert most_in_any_window(times, int(window * 1e6)) <= 100
    assert trips <= 8 * total
