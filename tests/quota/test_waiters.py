"""The waiting line: in order, no slot lost, whatever is cancelled, given back or added meanwhile."""

from __future__ import annotations

import asyncio
import random

import pytest

from mintlify_async.errors import QuotaExceededError
from mintlify_async.quota import Lease, Limit, MemoryQuotaStore, Quota, QuotaScope
from mintlify_async.testing import VirtualClock

ACME = QuotaScope(project="acme")
AMOUNT, PER, MARGIN = 3, 50.0, 0.5


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start=1000.0)


async def hold(clock: VirtualClock) -> None:
    with clock.hold():
        await clock.settle()


async def test_slots_of_those_who_gave_up_go_to_those_behind(clock: VirtualClock):
    """200 wait for 100 slots an hour, and the first 100 are cancelled: the others take the slots in time."""
    quota = Quota.interface(create_job=100, mode="wait")
    for _ in range(100):
        await quota.acquire("create_job", ACME, clock=clock)
    waiting = [asyncio.create_task(quota.acquire("create_job", ACME, clock=clock)) for _ in range(200)]
    await hold(clock)
    for task in waiting[:100]:
        task.cancel()
    leases = await asyncio.gather(*waiting[100:])
    assert max(lease.waited for lease in leases) == pytest.approx(3601)


async def test_a_slot_given_back_is_taken_at_once(clock: VirtualClock):
    """The first in line does not sleep on until its own slot opens."""
    quota = Quota.interface(create_job=1, mode="wait")
    lease = await quota.acquire("create_job", ACME, clock=clock)
    waiting = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock))
    await clock.advance(1)
    await lease.refund()
    assert (await waiting).waited == pytest.approx(1)


async def test_two_loops_share_a_line():
    """A slot given back on one loop wakes the call that waits on another."""
    quota = Quota.interface(create_job=1, mode="wait")
    from mintlify_async.runtime.clock import SystemClock

    clock = SystemClock()
    lease = await quota.acquire("create_job", ACME, clock=clock)
    elsewhere = asyncio.create_task(
        asyncio.to_thread(asyncio.run, quota.acquire("create_job", ACME, clock=clock))
    )
    while not quota._queues:
        await asyncio.sleep(0)
    await lease.refund()
    async with asyncio.timeout(30):
        assert (await elsewhere).waited < 30


class Line:
    """Brute force: at each moment, the first in line has every slot that is open for it."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.waiting: list[int] = []

    def free(self, now: float) -> int:
        return AMOUNT - sum(now - PER < at for at in self.taken)


@pytest.mark.parametrize("seed", range(40))
async def test_random_lines_lose_no_slot(clock: VirtualClock, seed: int):
    """While a call waits, no slot stays open for longer than the margin; calls are served in order."""
    dice = random.Random(seed)
    quota = Quota.interface(create_job=Limit(AMOUNT, per=PER), mode="wait", store=MemoryQuotaStore())
    line = Line()
    tasks: dict[int, asyncio.Task[Lease]] = {}
    leases: dict[int, tuple[float, Lease]] = {}
    served: list[int] = []

    async def caller(number: int) -> None:
        try:
            lease = await quota.acquire("create_job", ACME, clock=clock)
        finally:
            line.waiting.remove(number)
        leases[number] = (clock.now(), lease)
        line.taken.append(clock.now())
        served.append(number)

    open_since: float | None = None
    served_then = 0
    for number in range(120):
        what = dice.random()
        if what < 0.5 or not tasks:
            line.waiting.append(number)
            tasks[number] = asyncio.create_task(caller(number))  # type: ignore[arg-type]
        elif what < 0.7 and line.waiting:
            tasks[dice.choice(line.waiting)].cancel()
        elif what < 0.8 and leases:
            at, lease = leases.pop(dice.choice(list(leases)))
            if clock.now() - at < PER:
                line.taken.remove(at)
            await lease.refund()
        await clock.advance(dice.choice([0, 0, 0.3, 2, 20]))
        for _ in range(3):  # look at finer steps: an open slot is taken within the margin
            idle = bool(line.waiting) and line.free(clock.now()) > 0
            if not idle or open_since is None or len(served) != served_then:
                open_since, served_then = clock.now() if idle else None, len(served)
            assert open_since is None or clock.now() - open_since <= MARGIN + 0.01, number
            await clock.advance(MARGIN)
        assert line.free(clock.now()) >= 0
    assert served == sorted(served)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert not quota._queues


class Hiccup(MemoryQuotaStore):
    """Cannot be reached for a while."""

    away_until = 0.0

    async def take(self, *args: object, clock: VirtualClock, **kwargs: object):  # type: ignore[no-untyped-def, override]
        if clock.now() < self.away_until:
            raise QuotaExceededError("the store is away; nothing was sent", retry_after=0.25)
        return await super().take(*args, clock=clock, **kwargs)  # type: ignore[arg-type]


async def test_waiting_rides_out_a_hiccup_of_the_store(clock: VirtualClock):
    """Forty callers that meet 0.6 s of silence all get their slots."""
    store = Hiccup()
    store.away_until = clock.now() + 0.6
    quota = Quota.interface(mode="wait", store=store)
    deadline = clock.now() + 60
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(quota.acquire("create_job", ACME, clock=clock, deadline=deadline))
            for _ in range(40)
        ]
    assert max(task.result().waited for task in tasks) <= 1


async def test_a_store_that_stays_away_is_told_at_the_deadline(clock: VirtualClock):
    """Waiting ends with the store's own error, not later than the call may last."""
    store = Hiccup()
    store.away_until = clock.now() + 1e6
    quota = Quota.interface(mode="wait", store=store)
    began = clock.now()
    with pytest.raises(QuotaExceededError, match="away"):
        await quota.acquire("create_job", ACME, clock=clock, deadline=began + 10)
    assert 9 <= clock.now() - began <= 10


async def test_a_call_that_waits_behind_is_refused_at_its_own_deadline(clock: VirtualClock):
    """A block that begins while a call waits does not keep it beyond its deadline."""
    quota = Quota.interface(create_job=Limit(1, per=10), mode="wait")
    await quota.acquire("create_job", ACME, clock=clock)
    first = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock))
    second = asyncio.create_task(quota.acquire("create_job", ACME, clock=clock, deadline=clock.now() + 30))
    await hold(clock)
    await quota.observe("create_job", ACME, 429, {}, 600.0)
    with pytest.raises(QuotaExceededError):
        await second
    assert clock.now() == 1030
    assert (await first).waited == pytest.approx(600)


@pytest.mark.parametrize(
    ("status", "headers", "retry_after"),
    [
        (429, {}, 3_600_000.0),
        (200, {"ratelimit-remaining": "0", "ratelimit-reset": "2592000"}, None),
    ],
)
async def test_an_absurd_header_stops_an_hour_at_most(
    clock: VirtualClock, status: int, headers: dict[str, str], retry_after: float | None
):
    """Whatever the service says, and `unblock` ends it sooner, for those who wait, too."""
    site = QuotaScope(domain="acme.com", key="fp")
    quota = Quota.interface(mode="wait")
    await quota.acquire("ask", site, clock=clock)
    await quota.observe("ask", site, status, headers, retry_after)
    assert max(one.next_in for one in await quota.left("ask", site)) <= 3600
    waiting = asyncio.create_task(quota.acquire("ask", site, clock=clock))
    await clock.advance(5)
    assert not waiting.done()
    await quota.unblock("ask", site)
    assert (await waiting).waited == pytest.approx(5)
