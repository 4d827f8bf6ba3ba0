"""A dedupe_key stays usable when nothing was sent, and a wait for another's outcome always ends."""

from __future__ import annotations

import asyncio
import math

import pytest

from mintlify_async import (
    Limit,
    MemoryLedger,
    MintlifySession,
    OutcomeUnknownError,
    Quota,
    StateError,
    Timeouts,
)
from mintlify_async.jobs.create_once import create_once, fingerprint
from mintlify_async.model.job import Job
from mintlify_async.storage import Claim
from mintlify_async.testing import LocalService, VirtualClock


@pytest.fixture
async def service():
    async with LocalService() as service:
        yield service


def posts(service) -> int:
    return sum(request.method == "POST" for request in service.requests)


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_key_is_free_again_when_the_quota_was_still_waited_for(service, how):
    """Nothing was sent, so the next call with the same key sends its POST."""
    ledger = MemoryLedger()
    quota = Quota.interface(create_job=Limit(1, per=300), mode="wait")
    async with service.session(quota=quota, ledger=ledger, timeouts=Timeouts(request=1e4)) as session:
        await session.create_job("first")
        waiting = asyncio.create_task(session.create_job("second", dedupe_key="k"))
        while await ledger.find("k") is None:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        if how == "cancel":
            waiting.cancel()
        else:
            await session.close()
        with pytest.raises((asyncio.CancelledError, StateError)):
            await waiting
        assert await ledger.find("k") is None
        assert posts(service) == 1


async def test_a_key_is_free_again_when_the_key_function_was_cancelled(service):
    """The function that makes the API key did not return."""
    ledger, asked = MemoryLedger(), asyncio.Event()

    async def never() -> str:
        asked.set()
        await asyncio.sleep(1e6)
        return ""

    async with service.session(ledger=ledger, admin_key=never) as session:
        waiting = asyncio.create_task(session.create_job("hello", dedupe_key="k"))
        await asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await ledger.find("k") is None


async def test_a_key_function_that_swallows_a_cancellation_sends_nothing(service):
    """The cancellation is raised before the POST, and the quota's slot is free again."""
    asked = asyncio.Event()

    async def stubborn() -> str:
        asked.set()
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            return "mint_stubborn"
        return ""

    quota = Quota.interface(create_job=1)
    async with service.session(quota=quota, admin_key=stubborn) as session:
        task = asyncio.create_task(session.create_job("hello"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert posts(service) == 0
        assert [one.left for one in await session.quota_left("create_job")] == [1]


async def test_a_follow_up_that_was_not_sent_leaves_no_guard(service):
    """Cancelled in the quota's line, the job waits for no new turn."""
    quota = Quota.interface(send_message=Limit(1, per=300), mode="wait")
    async with service.session(quota=quota, timeouts=Timeouts(request=1e4)) as session:
        await (await session.create_job("first")).send("one")
        job = await session.create_job("another")
        before = str(job.ref)
        sending = asyncio.create_task(job.send("two"))
        for _ in range(200):
            await asyncio.sleep(0.001)
        count = posts(service)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert posts(service) == count
        assert str(job.ref) == before


async def test_closing_the_session_wakes_a_wait_for_anothers_lease(service):
    """The wait ends at once, not with the lease."""
    ledger = MemoryLedger()
    session = service.session(ledger=ledger)
    await ledger.claim(await claim_of(session))
    waiting = asyncio.create_task(session.create_job("hello", dedupe_key="k"))
    for _ in range(20):
        await asyncio.sleep(0)
    await session.close()
    with pytest.raises(StateError):
        async with asyncio.timeout(5):
            await waiting


async def claim_of(session: MintlifySession) -> Claim:
    """Return the claim that a creation of another process would have made."""
    seen: list[Claim] = []

    class Spy(MemoryLedger):
        async def claim(self, claim: Claim) -> Claim:
            seen.append(claim)
            raise StateError("seen")

    with pytest.raises(StateError):
        await session.with_options(ledger=Spy()).create_job("hello", dedupe_key="k")
    return seen[0]


async def test_a_claim_that_could_not_be_written_is_not_released():
    """A ledger that cannot be reached is not asked again."""
    released = []

    class Away(MemoryLedger):
        async def claim(self, claim):
            raise StateError("unreachable")

        async def release(self, claim):
            released.append(claim)

    async def send() -> Job:
        raise AssertionError

    with pytest.raises(StateError, match="unreachable"):
        await create_once(Away(), "k", "print", 65.0, send, VirtualClock())
    assert not released


class SteppedBack(VirtualClock):
    """Its wall clock was set back by a day after the claim was made."""

    def wall(self) -> float:
        return super().wall() - 86_400


@pytest.mark.parametrize(("lease", "longest"), [(65.0, 66.0), (math.inf, 86_401.0)])
async def test_a_lease_ends(lease, longest):
    """Neither an infinite timeout nor a clock that was stepped back makes the others wait for ever."""
    clock, ledger = SteppedBack(), MemoryLedger()
    now = VirtualClock().wall()
    await ledger.claim(
        Claim(key="k", fingerprint="print", token="other", claimed_at=now, lease_until=now + lease)
    )

    async def send() -> Job:
        raise AssertionError

    began = clock.now()
    with pytest.raises(OutcomeUnknownError):
        await create_once(ledger, "k", "print", 65.0, send, clock)
    assert clock.now() - began <= longest


async def test_a_lease_that_is_written_is_finite():
    """Whatever the request's timeout."""
    ledger = MemoryLedger()
    held = []

    async def send() -> Job:
        held.append(await ledger.find("k"))
        return Job(id="job_1", status="active")

    await create_once(ledger, "k", "print", math.inf, send, VirtualClock())
    assert held[0].lease_until - held[0].claimed_at <= 86_400


def test_the_fingerprint_covers_address_and_further_fields():
    """The same prompt at another service, or with other fields, is another creation."""
    prints = {
        fingerprint("docs", "hi"),
        fingerprint("docs", "hi", base_url="https://staging.example"),
        fingerprint("docs", "hi", extra_body={"model": "x"}),
        fingerprint("docs", "hi", extra_body={"model": "y"}),
    }
    assert len(prints) == 4
