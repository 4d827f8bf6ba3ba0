"""Calls that wait for a slot: their keys are watched, their follow-ups hold nobody up, and a batch runs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mintlify_async import (
    Ledger,
    Limit,
    MemoryStore,
    MintlifyError,
    PollPolicy,
    Quota,
    QuotaExceededError,
    RateLimitError,
    RetryPolicy,
    StateError,
    Timeouts,
)
from mintlify_async.testing import JobLife, LocalService


@pytest.fixture
async def service(virtual):
    async with LocalService(life=JobLife(seconds=5)) as service:
        yield service


@pytest.fixture
async def elapsed(service):
    """How many seconds have passed since the test began."""
    began = now()
    return lambda: now() - began


def now():
    return asyncio.get_running_loop().time()


async def use_up(session, amount=1):
    for _ in range(amount):
        await session.create_job("another one")


async def test_a_call_in_the_line_hears_of_its_job_within_a_second(service):
    """Another process, with slots of its own, has sent the request: the call leaves the line with the job."""
    ledger = MemoryStore()
    quota = Quota(create_job=1, mode="wait")
    async with (
        service.session(ledger=ledger, quota=quota) as waiting,
        service.session(ledger=ledger) as other,
    ):
        await use_up(waiting)
        call = asyncio.create_task(waiting.create_job("x", dedupe_key="k"))
        await asyncio.sleep(1000)
        assert quota.waiting == 1
        job = await other.create_job("x", dedupe_key="k")
        began = now()
        assert (await call).id == job.id
        assert now() - began < 1.5
        assert quota.waiting == 0
    assert service.requests.count("create_job") == 2


async def test_a_ledger_that_blinks_ends_no_wait(elapsed, service):
    """A look in the line that fails is skipped: nothing was sent, and the write decides."""

    class Blinking(MemoryStore):
        away = False

        async def read(self, keys):
            if self.away:
                raise StateError("the store is away")
            return await super().read(keys)

    ledger = Blinking()
    async with service.session(ledger=ledger, quota=Quota(create_job=1, mode="wait")) as session:
        await use_up(session)
        call = asyncio.create_task(session.create_job("x", dedupe_key="k"))
        await asyncio.sleep(100)
        ledger.away = True
        await asyncio.sleep(3000)
        ledger.away = False
        assert (await call).id == "job_2"
    assert elapsed() < 3700


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_follow_up_in_the_line_holds_up_no_wait(service, key):
    """It is under way from its first byte on: until then the job's end is the job's end."""
    quota = Quota(send_message=1, mode="wait")
    async with service.session(ledger=MemoryStore(), quota=quota, poll=PollPolicy()) as session:
        job = await session.create_job("x")
        await job.send("the first")
        await job.wait()
        waiting = asyncio.create_task(job.send("the second", dedupe_key=key))
        await asyncio.sleep(100)
        assert job.done
        began = now()
        assert (await job.wait(timeout=300)).status == "completed"
        assert now() - began < 5
        turn = await waiting
        assert not turn.done
        began = now()
        await turn
        assert now() - began >= 59
    assert service.requests.count("send_message") == 2


async def test_a_follow_up_that_was_refused_is_no_longer_under_way(service):
    """In the pause before the next attempt, and when there is none."""
    service.script.send_message(status=429, headers={"Retry-After": "30"}, times=1)
    async with service.session() as session:
        job = await session.create_job("x")
        await job.wait()
        sending = asyncio.create_task(job.send("more"))
        await asyncio.sleep(10)
        assert job.done
        await sending
        assert not job.done


async def test_a_batch_of_two_hundred_runs_to_its_end(elapsed, service):
    """A hundred an hour, in one TaskGroup: the request has its 60 s from its slot, not from the call."""
    quota = Quota(mode="wait")
    async with service.session(ledger=MemoryStore(), quota=quota, poll=PollPolicy()) as session:
        async with asyncio.TaskGroup() as group:
            jobs = [
                group.create_task(session.run_job(f"Fix {n}", dedupe_key=f"fix {n}", timeout=900))
                for n in range(200)
            ]
        assert {job.result().status for job in jobs} == {"completed"}
    assert 3600 <= elapsed() < 3700
    assert service.requests.count("create_job") == 200
    assert quota.waiting == 0


@pytest.mark.parametrize("retry", [None, RetryPolicy()])
async def test_a_429_sends_an_agent_request_back_into_the_line(elapsed, service, caplog, retry):
    """Slots that others used: no attempt of the policy is used, and each return is a warning."""
    caplog.set_level(logging.WARNING)
    service.script.create_job(status=429, headers={"Retry-After": "3000"}, times=5)
    async with service.session(quota=Quota(mode="wait"), retry=retry, ledger=MemoryStore()) as session:
        job = await session.create_job("x", dedupe_key="k")
    assert job.id == "job_1"
    assert 5 * 3000 <= elapsed() < 5 * 3000 + 60
    assert len([one for one in caplog.records if "waits for a slot again" in one.getMessage()]) == 5
    assert service.requests.count("create_job") == 6


async def test_a_429_ends_the_call_where_the_service_or_a_limit_says_so(elapsed, service, caplog):
    """``x-should-retry: false``; a store that cannot note the block; ``within``; a question."""

    class Forgetful(MemoryStore):
        async def read(self, keys):
            raise StateError("the store is away")

    headers = {"Retry-After": "3000"}
    service.script.create_job(status=429, headers=headers | {"x-should-retry": "false"}, times=1)
    async with service.session(quota=Quota(mode="wait")) as session:
        with pytest.raises(RateLimitError):
            await session.create_job("x")
    service.script.create_job(status=429, headers=headers, times=None)
    service.script.ask(status=429, headers=headers, times=None)
    for mode in ("wait", "raise"):
        caplog.clear()
        async with service.session(quota=Quota(mode=mode, store=Forgetful())) as session:
            with pytest.raises(RateLimitError):
                await session.create_job("x")
        assert "could not be recorded" in caplog.text
    async with service.session(quota=Quota(mode="wait")) as session:
        with pytest.raises(RateLimitError) as caught:
            await session.create_job("x", timeout=100)
        assert "timeout= of the call allows no longer wait" in caught.value.__notes__[0]
        with pytest.raises(RateLimitError):
            await session.ask("Hello")
    assert elapsed() < 60


async def test_a_call_that_is_cancelled_after_its_refusal_burns_no_key(service):
    """Its answer has arrived: nothing was started, whatever is awaited when the cancellation comes."""

    class Slow(MemoryStore):
        async def write(self, changes, **further):
            await asyncio.sleep(9)
            return await super().write(changes, **further)

    ledger = MemoryStore()
    async with service.session(quota=Quota(store=Slow()), ledger=ledger) as session:
        job = await session.create_job("x")
        await job.wait()
        service.script.create_job(status=429, times=1)
        service.script.send_message(status=429, times=1)
        for call in (session.create_job("y", dedupe_key="k"), job.send("z", dedupe_key="k2")):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 5)
        assert await ledger.keys("claims/") == []
        assert job.done, "no follow-up is under way"
        assert (await session.create_job("y", dedupe_key="k")).id == "job_2"


@pytest.mark.parametrize("mode", ["raise", "wait"])
async def test_a_store_that_hangs_does_not_hold_a_call_beyond_its_timeout(service, mode):
    """From the slot on: nor do its refund and the last look at the key."""

    class Stopped(MemoryStore):
        is_stopped = False

        async def read(self, keys):
            await asyncio.sleep(60 if self.is_stopped else 0)
            return await super().read(keys)

        async def take(self, *args, **further):
            self.is_stopped = True
            await asyncio.sleep(60)

        async def refund(self, *args, **further):
            await asyncio.sleep(60)

    store = Stopped()
    async with service.session(ledger=store, quota=Quota(mode=mode, store=store)) as session:
        began = now()
        with pytest.raises(QuotaExceededError, match="did not answer in the call's time"):
            await session.create_job("x", dedupe_key="k", timeout=1)
        assert now() - began <= 1.26


async def test_the_limits_of_a_waiting_call(service):
    """``timeout=`` limits all of it and the request, ``max_wait`` and ``within`` the line; each is named."""
    service.script.create_job(delay=30, times=None)
    for settings, options, name in [
        ({"quota": Quota(create_job=1, mode="wait")}, {"timeout": 100}, "timeout= of the call"),
        ({"quota": Quota(create_job=1, mode="wait", max_wait=100)}, {}, "max_wait= of the quota"),
        (
            {"quota": Quota(create_job=1, mode="wait"), "retry": RetryPolicy(within=100)},
            {},
            "within= of the RetryPolicy",
        ),
    ]:
        async with service.session(**settings) as session:
            await use_up(session)
            began = now()
            with pytest.raises(QuotaExceededError, match=name):
                await session.create_job("x", **options)
            assert now() - began < 1, "a slot that comes too late is not waited for"


async def test_a_request_has_its_own_limit_after_an_hour_in_the_line(service):
    """``timeouts.request`` from the slot, and never more than is left of ``timeout=``."""
    from mintlify_async import OutcomeUnknownError

    for timeout, longest in ((None, 20), (7200, 20), (3610, 10)):
        quota, settings = Quota(create_job=Limit(1, per=3600), mode="wait"), Timeouts(request=20)
        async with service.session(quota=quota, timeouts=settings) as session:
            await use_up(session)
            service.script.create_job(delay=1000)
            began = now()
            with pytest.raises(OutcomeUnknownError):
                await session.create_job("x", timeout=timeout)
            assert now() - began == pytest.approx(3601 + longest, abs=2.5)


async def test_a_question_waits_in_the_line_beside_its_limits(elapsed, service):
    """The same in the mode "wait": a complete answer within ``timeouts.total`` from its slot."""
    quota = Quota(ask_per_organization=Limit(1, per=600), mode="wait")
    async with service.session(quota=quota, timeouts=Timeouts(total=60)) as session:
        assert (await session.ask("one")).text
        assert (await session.ask("two")).text
        with pytest.raises(QuotaExceededError, match="timeout= of the call"):
            await session.ask("three", timeout=100)
    assert 600 <= elapsed() < 700


class Silent(MemoryStore):
    """Answers nothing at one step, as a server that was frozen, until its own limit of 10 s has passed."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    async def silence(self, step):
        if step == self.step:
            await asyncio.sleep(10)
            raise StateError("no answer within 10 s")

    async def take(self, *args, **options):
        await self.silence("slot")
        return await super().take(*args, **options)

    async def refund(self, *args, **options):
        await self.silence("refund")
        return await super().refund(*args, **options)

    async def read(self, keys):
        await self.silence("look" if any("claims" in key for key in keys) else "block")
        return await super().read(keys)

    async def write(self, changes, **options):
        value = b"".join(value or b"" for value in changes.values())
        names = {b'"sending"': "claim", b'"done"': "record", b'"unknown"': "unknown", b'"claimed"': "release"}
        await self.silence(next((name for text, name in names.items() if text in value), "release"))
        return await super().write(changes, **options)


@pytest.mark.parametrize("mode", ["raise", "wait"])
@pytest.mark.parametrize("step", ["slot", "look", "claim", "record", "unknown", "release", "refund", "block"])
async def test_a_silent_store_does_not_hold_a_call(service, elapsed, step, mode):
    """``timeout=1`` is 1.25 s at most, whichever step of the ledger or of the quota is silent."""
    store = Silent(step)
    if step == "unknown":
        service.script.create_job(status=500)
    elif step == "block":
        service.script.create_job(status=429, headers={"Retry-After": "30"})
    elif step in ("release", "refund"):
        service.script.create_job(status=400)
    session = service.session(ledger=store, quota=Quota(mode=mode, store=store))
    call = session.create_job("x", dedupe_key="k", timeout=1)
    if step == "record":
        assert (await call).id == "job_1"
    else:
        with pytest.raises((MintlifyError, asyncio.CancelledError)):
            await call
    assert elapsed() <= 1.26
    began = now()
    await session.close()
    assert now() - began <= 5.1


async def test_who_is_refused_while_another_still_connects(service):
    """In the mode "raise", for longer than 0.25 s: nothing was sent, and the next call gets the job."""

    class Slow(MemoryStore):
        async def write(self, changes, **options):
            await asyncio.sleep(1)
            return await super().write(changes, **options)

    ledger, slots = Slow(), MemoryStore()
    quotas = [Quota(create_job=1, store=slots) for _ in range(2)]
    async with (
        service.session(ledger=ledger, quota=quotas[0]) as one,
        service.session(ledger=ledger, quota=quotas[1]) as two,
    ):
        first = asyncio.create_task(one.create_job("x", dedupe_key="k"))
        await asyncio.sleep(0.1)
        with pytest.raises(QuotaExceededError, match="nothing was sent"):
            await two.create_job("x", dedupe_key="k")
        await asyncio.sleep(1)
        assert (await two.create_job("x", dedupe_key="k")).id == (await first).id
    assert service.requests.count("create_job") == 1


async def test_what_a_killed_batch_leaves_holds_nothing_up(service):
    """No key has a claim in the line, so the next start sends at once."""
    ledger = MemoryStore()
    session = service.session(ledger=ledger, quota=Quota(create_job=1, mode="wait"))
    await use_up(session)
    calls = [asyncio.create_task(session.create_job(f"{n}", dedupe_key=f"{n}")) for n in range(20)]
    await asyncio.sleep(100)
    assert await Ledger(ledger).open_claims() == []
    assert await ledger.keys("claims/") == []
    async with service.session(ledger=ledger) as after:
        began = now()
        jobs = [await after.create_job(f"{n}", dedupe_key=f"{n}") for n in range(20)]
        assert now() - began < 1
    assert [(await call).id for call in calls] == [job.id for job in jobs]
    await session.close()
