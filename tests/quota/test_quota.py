"""The quota in one process: limits, waiting in line, refunds, refusals of the service, a store that fails."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mintlify_async import Limit, MemoryStore, Quota
from mintlify_async.errors import ConfigurationError, QuotaExceededError, StateError
from mintlify_async.quota.quota import Lease, QuotaScope
from mintlify_async.storage import TakeResult
from mintlify_async.testing.virtual_clock import VirtualTime
from tests.support.job_fakes import settle

ACME = QuotaScope(project="acme")
SITE = QuotaScope(domain="acme.com", key="fp-1")


@pytest.fixture(autouse=True)
async def time(virtual: VirtualTime) -> asyncio.AbstractEventLoop:
    """The loop, whose time is virtual."""
    return asyncio.get_running_loop()


async def use_up(quota: Quota, amount: int, scope: QuotaScope = ACME) -> None:
    for _ in range(amount):
        await quota.lease("create_job", scope).take()


def start(quota: Quota, scope: QuotaScope = ACME, **arguments: Any) -> asyncio.Task[Lease]:
    return asyncio.create_task(quota.lease("create_job", scope).take(**arguments))


# ------------------------------------------------------------------ the five limits


async def test_creates_and_follow_ups_are_counted_together_by_option():
    """Together, they share one log of the smaller limit; None is no limit."""
    assert await Quota(create_job=None).left("create_job", ACME) == ()
    quota = Quota(create_job=5, send_message=3, together=True)
    await use_up(quota, 2)
    await quota.lease("send_message", ACME).take()
    for operation in ("create_job", "send_message"):
        with pytest.raises(QuotaExceededError) as refused:
            await quota.lease(operation, ACME).take()  # type: ignore[arg-type]
        assert refused.value.limit == "agent"


@pytest.mark.parametrize(
    ("limit", "scope", "window"),
    [
        ("ask_per_key", QuotaScope(domain="elsewhere.com", key="fp-1"), 31 * 86_400),
        ("ask_per_organization", QuotaScope(domain="acme.com", key="fp-2"), 3600),
        ("ask_per_address", QuotaScope(domain="elsewhere.com", key="fp-2"), 86_400),
    ],
)
async def test_each_assistant_limit_counts_its_own_holder(limit: str, scope: QuotaScope, window: float):
    """Key, organization and address each have a count, exact to the end of the window."""
    quota = Quota(**{limit: 2})  # type: ignore[arg-type]
    for _ in range(2):
        await quota.lease("ask", SITE).take()
    with pytest.raises(QuotaExceededError) as refused:
        await quota.lease("ask", scope).take()
    assert refused.value.limit == limit
    assert refused.value.retry_after == pytest.approx(window)
    await asyncio.sleep(window - 1)
    with pytest.raises(QuotaExceededError):
        await quota.lease("ask", scope).take()
    await asyncio.sleep(1)
    await quota.lease("ask", scope).take()


async def test_addresses_have_counts_of_their_own():
    """Two processes that call from two addresses and share a store do not share the address's limit."""
    store = MemoryStore()
    here = Quota(ask_per_address=1, address="192.0.2.1", store=store)
    there = Quota(ask_per_address=1, address="192.0.2.2", store=store)
    await here.lease("ask", SITE).take()
    await there.lease("ask", SITE).take()
    with pytest.raises(QuotaExceededError):
        await here.lease("ask", SITE).take()


@pytest.mark.parametrize(
    ("kind", "arguments", "field"),
    [
        (Quota, {"create_job": 0}, "create_job"),
        (Quota, {"ask_per_key": "many"}, "ask_per_key"),
        (Quota, {"mode": "sleep"}, "mode"),
        (Quota, {"store": MemoryStore}, "store"),
        (Quota, {"on_store_error": "local"}, "on_store_error"),
        *((Quota, {"max_wait": wrong}, "max_wait") for wrong in (-1, 0, "5", True)),
        (Limit, {"amount": 0, "per": 1}, "amount"),
        (Limit, {"amount": 2.0, "per": 1}, "amount"),
        (Limit, {"amount": 1, "per": 0}, "per"),
        (Limit, {"amount": 1, "per": float("inf")}, "per"),
    ],
)
def test_a_bad_argument_is_refused_by_name(kind: Any, arguments: dict[str, Any], field: str):
    """Nothing is counted wrongly in silence."""
    with pytest.raises(ConfigurationError) as error:
        kind(**arguments)
    assert error.value.field == field


# ------------------------------------------------------------------ waiting


@pytest.mark.parametrize(("per", "margin"), [(10, 0.1), (3600, 1)])
async def test_a_lease_says_how_long_it_took(per: float, margin: float):
    """It is 0 for a free slot, else the wait: a hundredth of the window more, at most a second."""
    quota = Quota(create_job=Limit(1, per=per), mode="wait")
    first = await quota.lease("create_job", ACME).take()
    second = await quota.lease("create_job", ACME).take()
    assert (first.waited, second.waited) == (0.0, pytest.approx(per + margin))


async def test_a_wait_longer_than_the_deadline_is_refused_at_once(time: asyncio.AbstractEventLoop):
    """A call does not sleep for a slot that would come after its deadline."""
    quota = Quota(create_job=1, mode="wait")
    await use_up(quota, 1)
    now = time.time()
    with pytest.raises(QuotaExceededError) as refused:
        await quota.lease("create_job", ACME).take(deadline=now + 900)
    assert time.time() == now
    assert refused.value.retry_after == pytest.approx(3600)
    assert (await quota.lease("create_job", ACME).take(deadline=now + 3700)).waited == pytest.approx(3601)


async def test_a_call_behind_others_is_refused_at_once_too(time: asyncio.AbstractEventLoop):
    """The first in line knows when the next slot comes; a call that cannot wait so long does not join."""
    quota = Quota(create_job=1, mode="wait")
    await use_up(quota, 1)
    first = start(quota)
    await settle()
    now = time.time()
    with pytest.raises(QuotaExceededError, match="deadline") as refused:
        await quota.lease("create_job", ACME).take(deadline=now + 900)
    assert time.time() == now
    assert refused.value.retry_after == pytest.approx(3601)
    assert refused.value.limit == "create_job"
    assert (await first).waited == pytest.approx(3601)


async def test_a_call_that_waits_behind_is_refused_at_its_own_deadline(time: asyncio.AbstractEventLoop):
    """A block that begins while a call waits does not keep it beyond its deadline."""
    quota = Quota(create_job=Limit(1, per=10), mode="wait")
    await use_up(quota, 1)
    now = time.time()
    first, second = start(quota), start(quota, deadline=now + 30)
    await settle()
    await quota.block("create_job", ACME, 600.0)
    with pytest.raises(QuotaExceededError):
        await second
    assert time.time() == now + 30
    assert (await first).waited == pytest.approx(600, abs=0.2)


AMOUNT, PER, MARGIN = 3, 50.0, 0.5


@pytest.mark.parametrize("seed", range(40))
async def test_random_lines_lose_no_slot(time: asyncio.AbstractEventLoop, seed: int):
    """While a call waits, no slot stays open for longer than the margin; calls are served in order."""
    dice = random.Random(seed)
    quota = Quota(create_job=Limit(AMOUNT, per=PER), mode="wait")
    taken: list[float] = []
    waiting: list[int] = []
    tasks: dict[int, asyncio.Task[None]] = {}
    leases: dict[int, tuple[float, Lease]] = {}
    served: list[int] = []

    def free() -> int:
        return AMOUNT - sum(time.time() - PER < at for at in taken)

    async def caller(number: int) -> None:
        try:
            lease = await quota.lease("create_job", ACME).take()
        finally:
            waiting.remove(number)
        leases[number] = (time.time(), lease)
        taken.append(time.time())
        served.append(number)

    open_since: float | None = None
    served_then = 0
    for number in range(120):
        what = dice.random()
        if what < 0.5 or not tasks:
            waiting.append(number)
            tasks[number] = asyncio.create_task(caller(number))
            await asyncio.sleep(0)
        elif what < 0.7 and waiting:
            tasks[dice.choice(waiting)].cancel()
        elif what < 0.8 and leases:
            at, lease = leases.pop(dice.choice(list(leases)))
            if time.time() - at < PER:
                taken.remove(at)
            await lease.refund()
        await settle()
        await asyncio.sleep(dice.choice([0, 0, 0.3, 2, 20]))
        for _ in range(3):  # look at finer steps: an open slot is taken within the margin
            await settle()
            idle = bool(waiting) and free() > 0
            if not idle or open_since is None or len(served) != served_then:
                open_since, served_then = time.time() if idle else None, len(served)
            assert open_since is None or time.time() - open_since <= MARGIN + 0.01, number
            await asyncio.sleep(MARGIN)
        assert free() >= 0
    assert served == sorted(served)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


# ------------------------------------------------------------------ refunds


async def test_a_refund_gives_one_slot_back_once():
    """Refunding twice is refunding once."""
    quota = Quota(create_job=2)
    lease = await quota.lease("create_job", ACME).take()
    await use_up(quota, 1)
    assert repr(lease) == "<Lease taken>"
    await lease.refund()
    await lease.refund()
    assert repr(lease) == "<Lease free>"
    await use_up(quota, 1)
    with pytest.raises(QuotaExceededError):
        await use_up(quota, 1)


async def test_a_slot_given_back_in_another_process_is_found():
    """Nobody wakes this process, so it looks each half minute."""
    store = MemoryStore()
    here, there = (Quota(create_job=1, mode="wait", store=store) for _ in range(2))
    lease = await there.lease("create_job", ACME).take()
    waiting = start(here)
    await asyncio.sleep(1)
    await lease.refund()
    assert (await waiting).waited <= 31


# ------------------------------------------------------------------ refusals of the service


@pytest.mark.parametrize("pause", [35, 59, 61, 600])
async def test_a_call_of_another_process_sees_the_end_of_a_block_within_half_a_minute(time, pause):
    """However long the pause was to be: nothing but the store tells another process that it is over."""
    store = MemoryStore()
    here, there = (Quota(mode="wait", store=store) for _ in range(2))
    await here.block("create_job", ACME, pause)
    waiting = start(there)
    await asyncio.sleep(1)
    await here.unblock("create_job", ACME)
    began = time.time()
    await waiting
    assert time.time() - began <= 30


async def test_a_429_stops_everybody_who_shares_the_limit():
    """One session was refused for 30 s: so is another on the same store; other projects go on."""
    store = MemoryStore()
    mine, yours = Quota(store=store), Quota(store=store)
    await mine.block("create_job", ACME, 30.0)
    with pytest.raises(QuotaExceededError, match="blocks all calls") as refused:
        await yours.lease("create_job", ACME).take()
    assert refused.value.retry_after == pytest.approx(30)
    assert refused.value.limit is None
    await yours.lease("create_job", QuotaScope(project="other")).take()
    await yours.lease("send_message", ACME).take()
    await asyncio.sleep(30)
    await yours.lease("create_job", ACME).take()


@pytest.mark.parametrize(
    ("retry_after", "blocked"),
    [(None, 60), (7.0, 7), (1e9, 3600), (float("nan"), 60), (float("inf"), 60), (0.0, 60), (-4.0, 60)],
)
async def test_how_long_a_429_stops(retry_after: float | None, blocked: float):
    """As long as it says, an hour at most; a minute when it says nothing that can be meant."""
    quota = Quota()
    await quota.block("create_job", ACME, retry_after)
    (left,) = await quota.left("create_job", ACME)
    assert (left.left, left.blocked, left.next_in) == (0, pytest.approx(blocked), pytest.approx(blocked))


async def blocked(quota: Quota) -> float:
    (left,) = await quota.left("create_job", ACME)
    return left.blocked


async def test_a_block_without_a_time_doubles_while_refusals_follow_each_other():
    """60, 120, 240 ... up to an hour. Simultaneous ones count as one. After a quiet time it begins anew."""
    quota, blocks = Quota(), list[float]()
    for _ in range(8):
        await asyncio.gather(*(quota.block("create_job", ACME) for _ in range(3)))
        blocks.append(round(await blocked(quota)))
        await asyncio.sleep(blocks[-1])
    assert blocks == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    await asyncio.sleep(3601)
    await quota.block("create_job", ACME)
    assert await blocked(quota) == pytest.approx(60)


async def test_a_shorter_block_never_shortens_a_longer_one():
    """The longest of what the service asked for counts."""
    quota = Quota()
    for seconds, expected in ((30.0, 30), (100.0, 100), (50.0, 100)):
        await quota.block("create_job", ACME, seconds)
        assert await blocked(quota) == pytest.approx(expected)


# ------------------------------------------------------------------ a store that fails


class AwayStore(MemoryStore):
    """Cannot be reached for a while, and may be slow. It counts its steps."""

    def __init__(self, seconds: float, *, latency: float = 0.0) -> None:
        super().__init__()
        self.back_at = asyncio.get_running_loop().time() + seconds
        self.latency = latency
        self.steps = 0

    def _check(self) -> None:
        self.steps += 1
        if asyncio.get_running_loop().time() < self.back_at:
            raise StateError("the store is away")

    async def take(self, *args: Any, **kwargs: Any) -> TakeResult:
        self._check()
        result = await super().take(*args, **kwargs)
        await asyncio.sleep(self.latency)
        return result

    async def refund(self, *args: Any, **kwargs: Any) -> None:
        self._check()
        return await super().refund(*args, **kwargs)


async def test_a_store_that_is_away_refuses(caplog: pytest.LogCaptureFixture):
    """Nothing is sent that was not counted; one line says so, and one that the store is back."""
    store = AwayStore(10)
    quota = Quota(store=store)
    for _ in range(50):
        with pytest.raises(QuotaExceededError, match="nothing was sent: the store is away") as refused:
            await quota.lease("create_job", ACME).take()
        assert refused.value.retry_after == 1
        assert "the store is away" in str(refused.value.__cause__)
    assert store.steps == 1  # a store that hangs costs a second at most once a second
    await asyncio.sleep(10)
    await use_up(quota, 3)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "the quota's store cannot be used, calls are refused until it can: the store is away",
        "the quota's store can be used again",
    ]


async def test_a_store_that_is_away_lets_through_by_choice(caplog: pytest.LogCaptureFixture):
    """What was sent meanwhile is not counted, and not refunded."""
    quota = Quota(create_job=2, store=AwayStore(10), on_store_error="allow")
    leases = [await quota.lease("create_job", ACME).take() for _ in range(20)]
    await leases[0].refund()
    await asyncio.sleep(10)
    await use_up(quota, 2)
    with pytest.raises(QuotaExceededError):
        await use_up(quota, 1)
    assert "not counted" in caplog.text


async def test_waiting_rides_out_a_hiccup_of_the_store(time: asyncio.AbstractEventLoop):
    """Forty callers that meet 0.6 s of silence all get their slots."""
    quota = Quota(mode="wait", store=AwayStore(0.6))
    leases = await asyncio.gather(*(start(quota, deadline=time.time() + 60) for _ in range(40)))
    assert max(lease.waited for lease in leases) <= 1.1


async def test_a_cancelled_call_can_give_its_slot_back():
    """Cancelled after the store granted the slot and before the caller had it."""
    quota = Quota(create_job=1, store=AwayStore(0, latency=1))
    lease = quota.lease("create_job", ACME)
    task = asyncio.create_task(lease.take())
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lease.may_be_taken
    await lease.refund()
    await use_up(quota, 1)


async def test_a_store_that_stays_away_ends_a_wait(time: asyncio.AbstractEventLoop):
    """A call without a limit waits a minute for it, not for ever; one in the middle of its wait, too."""
    store = AwayStore(0)
    quota = Quota(create_job=1, mode="wait", store=store)
    await use_up(quota, 1)
    waiting = start(quota)
    await asyncio.sleep(1000)
    store.back_at = time.time() + 1e6
    began = time.time()
    with pytest.raises(QuotaExceededError, match="cannot be used"):
        await waiting
    assert 60 <= time.time() - began <= 95


@pytest.mark.parametrize("limited_by", ["max_wait", "deadline"])
async def test_the_refusal_of_a_wait_names_what_limits_it(time: asyncio.AbstractEventLoop, limited_by: str):
    """The first in the line, and one behind it."""
    quota = Quota(create_job=1, mode="wait", max_wait=100 if limited_by == "max_wait" else None)
    await use_up(quota, 1)
    limit = {} if limited_by == "max_wait" else {"deadline": time.time() + 100, "limited_by": "timeout="}
    first, second = start(quota, **limit), start(quota, **limit)
    name = "max_wait= of the quota" if limited_by == "max_wait" else "timeout="
    for call in (first, second):
        with pytest.raises(QuotaExceededError, match=f"{name} allows no longer wait"):
            await call


async def test_all_waits_of_a_call_share_its_max_wait():
    """What it has waited before counts."""
    quota = Quota(create_job=1, mode="wait", max_wait=4000)
    await use_up(quota, 1)
    with pytest.raises(QuotaExceededError, match="max_wait"):
        await quota.lease("create_job", ACME).take(waited=1000)
    assert (await quota.lease("create_job", ACME).take(waited=100)).waited >= 3600


async def test_a_thousand_waiters_ask_the_store_a_few_times_each():
    """Only the first in line asks: the looks per grant stay few, however many wait."""
    store = AwayStore(0)
    quota = Quota(create_job=Limit(100, per=60), mode="wait", store=store)
    await asyncio.gather(*(start(quota) for _ in range(1000)))
    assert store.steps <= 1.1 * 1000
