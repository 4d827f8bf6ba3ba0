"""The quota inside a session: what takes a slot, what gives it back, what a refusal of the service does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mintlify_async import (
    APIConnectionError,
    ConfigurationError,
    MemoryStore,
    NotFoundError,
    OutcomeUnknownError,
    Quota,
    QuotaExceededError,
    RateLimitError,
    Timeouts,
)
from mintlify_async.quota.quota import QuotaScope
from mintlify_async.testing import Customer, LocalService, Reset
from mintlify_async.testing.virtual_clock import VirtualTime


@pytest.fixture
async def service(virtual: VirtualTime) -> AsyncIterator[LocalService]:
    async with LocalService() as service:
        yield service


def now() -> float:
    return asyncio.get_running_loop().time()


async def left(quota: Quota, service: LocalService, operation: Any = "create_job") -> int:
    (one,) = await quota.left(operation, QuotaScope(project=service.project_id))
    return one.left


async def test_the_hundred_and_first_is_not_sent(service: LocalService):
    """The refusal comes before any I/O; follow-ups and polls are still sent."""
    async with service.session(quota=Quota()) as session:
        jobs = [await session.create_job("Fix it") for _ in range(100)]
        with pytest.raises(QuotaExceededError) as refused:
            await session.create_job("Fix it")
        await jobs[0].send("More")
        await jobs[0].refresh()
    assert refused.value.limit == "create_job"
    assert service.requests.count("create_job") == 100
    assert service.requests.count("send_message") == 1


async def test_the_session_tells_what_is_left(service: LocalService):
    """By operation, for its own project, domain and key; without a quota there is nothing to tell."""
    async with service.session(quota=Quota()) as session, service.session() as free:
        await session.create_job("Fix it")
        await session.ask("Hello")
        found = [
            one.left
            for operation in ("create_job", "send_message", "ask")
            for one in await session.quota_left(operation)  # type: ignore[arg-type]
        ]
        assert await free.quota_left("ask") == ()
        with pytest.raises(ConfigurationError) as error:
            await session.quota_left("get_job")  # type: ignore[arg-type]
    assert error.value.field == "operation"
    assert found == [99, 100, 9_999, 9_999, 9_999]


async def test_each_attempt_that_may_have_been_sent_takes_a_slot(service: LocalService):
    """A repeated one, too, and one whose answer was lost; but none that found no server."""
    service.script.create_job(status=429, headers={"Retry-After": "2"})
    quota = Quota()
    async with service.session(quota=quota) as session:
        await session.create_job("Fix it")
        assert await left(quota, service) == 98
        service.script.create_job(fault=Reset())
        with pytest.raises(OutcomeUnknownError):
            await session.create_job("Fix it")
        async with service.refusing():
            with pytest.raises(APIConnectionError) as failed:
                await session.create_job("Fix it")
        assert failed.value.sent == "no"
        assert await left(quota, service) == 97
    assert service.requests.count("create_job") == 3


@pytest.mark.parametrize("mode", ["raise", "wait"])
async def test_a_refusal_of_the_service_is_shown_as_its_own(service: LocalService, mode: Any):
    """A 429 without a time blocks for a minute, longer than the call may last: the caller sees the 429."""
    service.script.create_job(status=429, body="")
    async with service.session(quota=Quota(mode=mode)) as session:
        with pytest.raises(RateLimitError):
            await session.create_job("Fix it", timeout=50)
    assert service.requests.count("create_job") == 1


async def test_the_reset_header_of_a_429_counts(service: LocalService):
    """Without a Retry-After, the end of the service's own window is the end of the block."""
    service.script.create_job(status=429, headers={"X-RateLimit-Reset": "300"}, times=1)
    async with service.session(quota=Quota()) as session:
        with pytest.raises(RateLimitError):
            await session.create_job("Fix it")
        (remaining,) = await session.quota_left("create_job")
    assert remaining.blocked == pytest.approx(300, abs=5)


async def test_unblock_by_operation(service: LocalService):
    """A user names the operation; the project, the domain and the key are the session's (D9)."""
    service.script.create_job(status=429, headers={"Retry-After": "3000"}, times=1)
    service.script.ask(status=429, headers={"Retry-After": "3000"}, times=1)
    async with service.session(quota=Quota(mode="wait"), timeouts=Timeouts(request=4000)) as session:
        jobs = [asyncio.create_task(session.create_job("Fix it")) for _ in range(3)]
        await asyncio.sleep(5)
        with pytest.raises(RateLimitError):
            await session.with_options(retry=None).ask("Hello")
        start = now()
        for operation in ("create_job", "ask"):
            await session.unblock(operation)  # type: ignore[arg-type]
        await asyncio.gather(*jobs[1:], session.ask("Hello").run())
        assert now() - start < 5
        for job in jobs:
            job.cancel()
        with pytest.raises(ConfigurationError):
            await session.unblock("get_job")  # type: ignore[arg-type]


async def test_each_site_has_a_count_of_its_own(service):
    """Two sites that are asked with one key: what one used is not missing for the other."""
    async with service.session(quota=Quota(ask_per_organization=1)) as session:
        with pytest.raises(NotFoundError):
            await session.ask("x", domain="other")
        assert (await session.ask("x")).text
        with pytest.raises(QuotaExceededError):
            await session.ask("x", domain="other")


async def test_each_customer_has_its_own_counts():
    """One quota counts jobs by project and questions by key. A job that the ledger has uses no slot."""
    customers = [Customer("acme"), Customer("beta")]
    quota = Quota(create_job=1, ask_per_key=1, ask_per_organization=None, ask_per_address=None)
    async with (
        LocalService(customers=customers) as service,
        service.session(quota=quota, ledger=MemoryStore()) as session,
    ):
        for customer in customers:
            names = ("project_id", "domain", "admin_key", "assistant_key")
            theirs = session.with_options(**{name: getattr(customer, name) for name in names})
            await theirs.ask("Hm?")
            for _ in range(2):
                await theirs.create_job("Fix it", dedupe_key=customer.project_id)
            for call in (theirs.ask, theirs.create_job):
                with pytest.raises(QuotaExceededError):
                    await call("more")
