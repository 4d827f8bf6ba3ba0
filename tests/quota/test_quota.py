"""The quota in this process: slots, waiting in line, what 429 and headers teach, refunds, what is left."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import anyio
import pytest

from mintlify_async.errors import ConfigurationError, QuotaExceededError
from mintlify_async.quota import Limit, MemoryQuotaStore, Quota, QuotaScope, QuotaStore
from mintlify_async.testing.virtual_clock import VirtualClock

ACME = QuotaScope(project="acme")
SITE = QuotaScope(domain="acme.com", key="fp-1")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start=1000.0)


async def use_up(quota: Quota, amount: int, clock: VirtualClock, scope: QuotaScope = ACME) -> None:
    for _ in range(amount):
        await quota.acquire("create_job", scope, clock=clock)


# ------------------------------------------------------------------ the five limits


async def test_the_hundred_and_first_create_in_an_hour_is_refused(clock: VirtualClock):
    """100 in any hour; the refusal says when there is room again and which limit it was."""
    quota = Quota.interface()
    await use_up(quota, 100, clock)
    await clock.advance(600)
    with pytest.raises(QuotaExceededError, match=r"create_job.*3000\.0 s") as refused:
        await quota.acquire("create_job", ACME, clock=clock)
    assert refused.value.retry_after == pytest.approx(3000)
    assert refused.value.limit == "create_job"
    await clock.advance(3000)
    await quota.acquire("create_job", ACME, clock=clock)


async def test_creates_and_follow_ups_are_counted_apart(clock: VirtualClock):
    """A hundred creates leave a hundred follow-ups."""
    quota = Quota.interface()
    await use_up(quota, 100, clock)
    await quota.acquire("send_message", ACME, clock=clock)


async def test_creates_and_follow_ups_are_counted_together_by_option(clock: VirtualClock):
    """Together, they share one log of the smaller limit."""
    quota = Quota.interface(create_job=5, send_message=3, together=True)
    await use_up(quota, 2, clock)
    await quota.acquire("send_message", ACME, clock=clock)
    for operation in ("create_job", "send_message"):
        with pytest.raises(QuotaExceededError) as refused:
            await quota.acquire(operation, ACME, clock=clock)  # type: ignore[arg-type]
        assert refused.value.limit == "agent"


async def test_projects_do_not_share(clock: VirtualClock):
    """The limits are a project's: another project has its own."""
    quota = Quota.interface(create_job=1)
    await use_up(quota, 1, clock)
    await quota.acquire("create_job", QuotaScope(project="other"), clock=clock)


@pytest.mark.parametrize(
    ("limit", "scope", "window"),
    [
        ("ask_per_key", QuotaScope(domain="elsewhere.com", key="fp-1"), 31 * 86_400),
        ("ask_per_organization", QuotaScope(domain="acme.com", key="fp-2"), 3600),
        ("ask_per_address", QuotaScope(domain="elsewhere.com", key="fp-2"), 86_400),
    ],
)
async def test_each_assistant_limit_counts_its_own_holder(
    clock: VirtualClock, limit: str, scope: QuotaScope, window: float
):
    """Key, organisation and address each have a count; the refusal names the one that is used up."""
    quota = Quota.interface(**{limit: 2})  # type: ignore[arg-type]
    for _ in range(2):
        await quota.acquire("ask", SITE, clock=clock)
    with pytest.raises(QuotaExceededError) as refused:
        await quota.acquire("ask", scope, clock=clock)
    assert refused.value.limit == limit
    assert refused.value.retry_after == pytest.approx(window, rel=0.02)


async def test_a_refusal_by_one_limit_takes_nothing_of_the_others(clock: VirtualClock):
    """All windows or none: what the organisation refuses costs the key nothing."""
    quota = Quota.interface(ask_per_organization=1)
    await quota.acquire("ask", SITE, clock=clock)
    with pytest.raises(QuotaExceededError):
        await quota.acquire("ask", SITE, clock=clock)
    left = {one.limit: one.left for one in await quota.left("ask", SITE)}
    assert left == {"ask_per_key": 9_999, "ask_per_organization": 0, "ask_per_address": 9_999}


async def test_addresses_that_are_told_apart_have_their_own_count(clock: VirtualClock):
    """Two processes that call from two addresses and share a store do not share the address's limit."""
    store = MemoryQuotaStore()
    here = Quota.interface(ask_per_address=1, address="192.0.2.1", store=store)
    there = Quota.interface(ask_per_address=1, address="192.0.2.2", store=store)
    await here.acquire("ask", SITE, clock=clock)
    await there.acquire("ask", SITE, clock=clock)
    with pytest.raises(QuotaExceededError):
        await here.acquire("ask", SITE, clock=clock)


async def test_a_limit_that_is_none_is_not_counted(clock: VirtualClock):
    """None switches one limit off."""
    quota = Quota.interface(create_job=None)
    await use_up(quota, 500, clock)
    assert await quota.left("create_job", ACME) == ()


async def test_a_limit_may_have_a_window_of_its_own(clock: VirtualClock):
    """Limit(amount, per=seconds) adjusts both."""
    quota = Quota.interface(create_job=Limit(2, per=10))
    await use_up(quota, 2, clock)
    with pytest.raises(QuotaExceededError) as refused:
        await use_up(quota, 1, clock)
    assert refused.value.retry_after == pytest.approx(10)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"create_job": 0}, "create_job"),
        ({"ask_per_key": "many"}, "ask_per_key"),
        ({"mode": "sleep"}, "mode"),
        ({"store": object()}, "store"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments: dict[str, object], field: str):
    """Nothing is counted wrongly in silence."""
    with pytest.raises(ConfigurationError) as error:
        Quota.interface(**arguments)  # type: ignore[arg-type]
    assert error.value.field == field


def test_the_repr_says_limits_and_mode():
    """What a log line about the session shows."""
    assert repr(Quota.interface(ask_per_key=None)).startswith(
        "Quota(create_job=100/3600s, send_message=100/3600s"
    )
    assert isinstance(MemoryQuotaStore(), QuotaStore)


# ------------------------------------------------------------------ waiting


async def test_waiters_come_in_order_and_no_window_is_exceeded(clock: VirtualClock):
    """35 callers, 10 per minute: four waves, first come first served."""
    quota = Quota.interface(create_job=Limit(10, per=60), mode="wait")
    granted: list[tuple[int, float]] = []

    async def one(number: int) -> None:
        await quota.acquire("create_job", ACME, clock=clock)
        granted.append((number, clock.now()))

    async with asyncio.TaskGroup() as group:
        for number in range(35):
            group.create_task(one(number))
    assert [number for number, _ in granted] == list(range(35))
    times = [at for _, at in granted]
    assert all(sum(start <= at < start + 60 for at in times) <= 10 for start in times)
    assert times[-1] - times[0] == pytest.approx(180, rel=0.02)


async def test_a_lease_says_how_long_it_took(clock: VirtualClock):
    """It is 0 for a free slot, else the wait in seconds."""
    quota = Quota.interface(create_job=Limit(1, per=60), mode="wait")
    first = await quota.acquire("create_job", ACME, clock=clock)
    second = await quota.acquire("create_job", ACME, clock=clock)
    assert (first.waited, second.waited) == (0.0, pytest.approx(60, rel=0.02))


async def test_a_wait_longer_than_the_deadline_is_refused_at_once(clock: VirtualClock):
    """A call does not sleep for a slot that would come after its deadline."""
    quota = Quota.interface(create_job=1, mode="wait")
    await use_up(quota, 1, clock)
    before = clock.now()
    with pytest.raises(QuotaExceededError) as refused:
        await quota.acquire("create_job", ACME, clock=clock, deadline=before + 900)
    assert clock.now() == before
    assert refused.value.retry_after == pytest.approx(3600)


async def test_a_slot_within_the_deadline_is_waited_for(clock: VirtualClock):
    """A deadline that is late enough changes nothing."""
    quota = Quota.interface(create_job=1, mode="wait")
    await use_up(quota, 1, clock)
    lease = await quota.acquire("create_job", ACME, clock=clock, deadline=clock.now() + 3700)
    assert 3600 <= lease.waited <= 3602


async def test_who_comes_later_does_not_jump_the_line(clock: VirtualClock):
    """A new caller leaves the slots of those who wait alone, though one is free when it comes."""
    quota = Quota.interface(create_job=Limit(2, per=60), mode="wait")
    order: list[str] = []

    async def one(name: str) -> None:
        await quota.acquire("create_job", ACME, clock=clock)
        order.append(name)

    await use_up(quota, 2, clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(one("first"))
        await clock.advance(30)
        group.create_task(one("second"))
        await clock.advance(29.9)
        group.create_task(one("third"))
    assert order == ["first", "second", "third"]


@pytest.mark.parametrize("how", ["cancel", "anyio"])
async def test_a_waiter_that_gives_up_leaves_its_slot_to_the_next(clock: VirtualClock, how: str):
    """Three wait for three slots, the first two give up: the third takes the first slot, not the third."""
    quota = Quota.interface(create_job=Limit(1, per=60), mode="wait")
    await use_up(quota, 1, clock)

    async def impatient() -> None:
        if how == "cancel":
            await quota.acquire("create_job", ACME, clock=clock)
        else:
            with anyio.CancelScope() as scope:
                clock.call_at(clock.now() + 5, scope.cancel)
                await quota.acquire("create_job", ACME, clock=clock)

    quitters = [asyncio.create_task(impatient()) for _ in range(2)]
    with clock.hold():
        await clock.settle()
    patient = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock))
    await clock.advance(5)
    if how == "cancel":
        for quitter in quitters:
            quitter.cancel()
    await asyncio.gather(*quitters, return_exceptions=True)
    lease = await patient
    assert lease.waited < 75
    assert not quota._queues


async def test_a_refund_serves_the_first_in_line_soon(clock: VirtualClock):
    """A slot that went back is used by who waits first, long before its own slot would open."""
    quota = Quota.interface(create_job=1, mode="wait")
    lease = await quota.acquire("create_job", ACME, clock=clock)
    waiting = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock))
    with clock.hold():
        await clock.settle()
    await lease.refund()
    assert (await waiting).waited == 0  # woken, not noticed at some later look


async def test_ten_thousand_waiters_ask_the_store_a_few_times_each(clock: VirtualClock):
    """Only the first in line asks: the looks per grant stay few, however many wait."""
    store = CountingStore()
    quota = Quota.interface(create_job=Limit(100, per=60), mode="wait", store=store)
    waiters = [asyncio.create_task(quota.acquire("create_job", ACME, clock=clock)) for _ in range(1000)]
    await asyncio.gather(*waiters)
    assert store.takes <= 3 * 1000


class CountingStore(MemoryQuotaStore):
    """Counts how often a slot is asked for."""

    takes = 0

    async def take(self, *args: object, **kwargs: object):  # type: ignore[no-untyped-def, override]
        self.takes += 1
        return await super().take(*args, **kwargs)  # type: ignore[arg-type]


# ------------------------------------------------------------------ refunds


async def test_a_refund_gives_one_slot_back_once(clock: VirtualClock):
    """Refunding twice is refunding once."""
    quota = Quota.interface(create_job=2)
    lease = await quota.acquire("create_job", ACME, clock=clock)
    await use_up(quota, 1, clock)
    await lease.refund()
    await lease.refund()
    assert repr(lease) == "<Lease refunded>"
    await use_up(quota, 1, clock)
    with pytest.raises(QuotaExceededError):
        await use_up(quota, 1, clock)


async def test_a_refund_gives_back_in_every_window(clock: VirtualClock):
    """An assistant slot is three slots; all three go back."""
    quota = Quota.interface()
    lease = await quota.acquire("ask", SITE, clock=clock)
    await clock.advance(30)
    await lease.refund()
    assert {one.left for one in await quota.left("ask", SITE)} == {10_000}


# ------------------------------------------------------------------ what the service teaches


async def test_a_429_stops_everybody_who_shares_the_limit(clock: VirtualClock):
    """One session was refused for 30 s: so is another on the same store; other projects go on."""
    store = MemoryQuotaStore()
    mine, yours = Quota.interface(store=store), Quota.interface(store=store)
    await mine.acquire("create_job", ACME, clock=clock)
    await mine.observe("create_job", ACME, 429, {}, 30.0)
    with pytest.raises(QuotaExceededError, match="asked for a pause") as refused:
        await yours.acquire("create_job", ACME, clock=clock)
    assert refused.value.retry_after == pytest.approx(30)
    await yours.acquire("create_job", QuotaScope(project="other"), clock=clock)
    await clock.advance(30)
    await yours.acquire("create_job", ACME, clock=clock)


@pytest.mark.parametrize(
    ("headers", "retry_after", "blocked"),
    [
        ({}, None, 60),
        ({}, 7.0, 7),
        ({"x-ratelimit-reset": "45"}, None, 45),
        ({"x-ratelimit-reset": "45"}, 7.0, 7),
        ({}, 1e9, 3600),
        ({}, float("nan"), 60),
        ({}, -4.0, 60),
    ],
)
async def test_how_long_a_429_stops(
    clock: VirtualClock, headers: dict[str, str], retry_after: float | None, blocked: float
):
    """Retry-After, else the reset header, else a minute; an hour at most; broken values are none."""
    quota = Quota.interface()
    await quota.acquire("create_job", ACME, clock=clock)
    await quota.observe("create_job", ACME, 429, headers, retry_after)
    (left,) = await quota.left("create_job", ACME)
    assert (left.left, left.blocked, left.next_in) == (0, pytest.approx(blocked), pytest.approx(blocked))


async def test_waiters_wait_for_the_end_of_the_block(clock: VirtualClock):
    """In wait mode a 429 of one caller delays the others, who then go on by themselves."""
    quota = Quota.interface(create_job=Limit(1, per=10), mode="wait")
    await quota.acquire("create_job", ACME, clock=clock)
    waiting = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock))
    with clock.hold():
        await clock.settle()
    await quota.observe("create_job", ACME, 429, {}, 120.0)
    assert (await waiting).waited == pytest.approx(120, abs=2)


async def test_what_the_service_says_is_left_counts_when_it_is_less(clock: VirtualClock):
    """Others whom we do not know use the limit too: after "2 left, 60 s" two pass, then none for 60 s."""
    quota = Quota.interface()
    await quota.acquire("create_job", ACME, clock=clock)
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "2", "ratelimit-reset": "60"})
    (left,) = await quota.left("create_job", ACME)
    assert left.left == 2
    await use_up(quota, 2, clock)
    with pytest.raises(QuotaExceededError) as refused:
        await use_up(quota, 1, clock)
    assert refused.value.retry_after == pytest.approx(60)
    await clock.advance(60)
    await use_up(quota, 1, clock)


async def test_what_the_service_says_is_left_never_lifts_our_own_limit(clock: VirtualClock):
    """A service that says 1000 are left does not make our one two."""
    quota = Quota.interface(create_job=1)
    await use_up(quota, 1, clock)
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "1000", "ratelimit-reset": "60"})
    with pytest.raises(QuotaExceededError):
        await use_up(quota, 1, clock)


async def test_a_refund_gives_back_what_the_service_left(clock: VirtualClock):
    """A slot under the service's own count goes back there, too."""
    quota = Quota.interface()
    await quota.acquire("create_job", ACME, clock=clock)
    await quota.observe("create_job", ACME, 201, {"ratelimit-remaining": "1", "ratelimit-reset": "60"})
    lease = await quota.acquire("create_job", ACME, clock=clock)
    await lease.refund()
    await quota.acquire("create_job", ACME, clock=clock)


async def test_observing_before_anything_was_sent_does_nothing():
    """Without a clock there was no request of ours; nothing is learnt, nothing fails."""
    await Quota.interface().observe("create_job", ACME, 429, {}, 1.0)


# ------------------------------------------------------------------ what is left


async def test_left_tells_each_limit(clock: VirtualClock):
    """Name, size, what is left and when the next slot comes; nothing is used by asking."""
    quota = Quota.interface(create_job=2)
    (fresh,) = await quota.left("create_job", ACME)
    assert (fresh.limit, fresh.amount, fresh.per, fresh.left, fresh.next_in) == ("create_job", 2, 3600, 2, 0)
    await use_up(quota, 1, clock)
    await clock.advance(100)
    await use_up(quota, 1, clock)
    (spent,) = await quota.left("create_job", ACME)
    assert (spent.left, spent.next_in) == (0, pytest.approx(3500))


async def test_idle_projects_are_forgotten(clock: VirtualClock):
    """A process that serves thousands of projects keeps those of the last window only."""
    quota = Quota.interface()
    for number in range(2000):
        await quota.acquire("create_job", QuotaScope(project=f"p{number}"), clock=clock)
        await clock.advance(60)
    assert len(quota.store._logs) < 512  # type: ignore[attr-defined]


async def test_several_threads_share_a_store():
    """Two event loops in two threads count in one store: together no more than the limit."""
    quota = Quota.interface(create_job=500)

    async def grab() -> int:
        clock, got = VirtualClock(), 0
        for _ in range(400):
            try:
                await quota.acquire("create_job", ACME, clock=clock)
                got += 1
            except QuotaExceededError:
                pass
        return got

    counts = await asyncio.gather(*(asyncio.to_thread(asyncio.run, grab()) for _ in range(2)))
    assert sum(counts) == 500


def test_the_waves_of_waiters_keep_their_distance():
    """The margin that waiters add is a hundredth of the window, at most a second."""

    async def main() -> list[float]:
        clock, times = VirtualClock(), []
        quota = Quota.interface(create_job=1, mode="wait")
        for _ in range(4):
            await quota.acquire("create_job", ACME, clock=clock)
            times.append(clock.now())
        return times

    assert all(3600 < b - a <= 3601.001 for a, b in pairwise(asyncio.run(main())))
