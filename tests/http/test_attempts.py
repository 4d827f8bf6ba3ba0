"""Attempts and their ends: what closing, cancelling and closed sessions do between them."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from mintlify_async import (
    Quota,
    QuotaExceededError,
    RateLimitError,
    RetryPolicy,
    ServerError,
    StateError,
    Timeouts,
)


async def test_closing_wakes_who_waits_for_the_quota(service):
    """Closing the session ends a call that waits for the quota."""
    quota = Quota(create_job=1, mode="wait")
    session = service.session(quota=quota, timeouts=Timeouts(request=7200))
    await session.create_job("x")
    task = asyncio.create_task(session.create_job("y"))
    await asyncio.sleep(0.05)
    await session.close()
    with anyio.fail_after(20), pytest.raises(StateError, match="closed"):
        await task


async def test_a_5xx_with_the_rate_limit_headers_of_every_answer_is_retried(service):
    """They say when a window ends; only a 429 asks to wait for that."""
    service.script.get_job(status=503, headers={"X-RateLimit-Reset": "3000"}, times=2)
    service.script.get_job(status=200, body={"id": "j", "status": "completed"})
    async with service.session(retry=RetryPolicy(base=0)) as session:
        assert (await session.job("j").refresh()).id == "j"


async def test_ten_successes_give_one_retry_back(service):
    """The budget of retries is the session's. It ends a storm, and grows again afterwards."""
    async with service.session(retry=RetryPolicy(base=0, budget=1)) as session:
        job = await session.create_job("x")
        for _ in range(2):
            service.script.get_job(status=503)
            await job.refresh()  # the retry is used
            service.script.get_job(status=503)
            with pytest.raises(ServerError):
                await job.refresh()
            for _ in range(10):
                await job.refresh()


@pytest.mark.parametrize(
    ("headers", "sent"), [({}, 2), ({"Retry-After": "1"}, 2), ({"Retry-After": "3"}, 1)], ids=str
)
async def test_no_attempt_begins_later_than_the_policy_allows(
    mintlify_service, mintlify_time, mintlify_session, headers, sent
):
    """A pause that would end after ``within`` is not begun, and the refusal keeps its Retry-After."""
    mintlify_service.script.ask(status=429, body="slow down", headers=headers, times=None)
    session = mintlify_session.with_options(retry=RetryPolicy(attempts=9, within=2))
    began = mintlify_time.now()
    with pytest.raises(RateLimitError) as refused:
        await session.ask("x")
    assert mintlify_time.now() - began <= 2
    assert mintlify_service.requests.count("ask") == sent
    assert refused.value.retry_after == (float(headers["Retry-After"]) if headers else None)


async def test_a_waiting_quota_waits_no_longer_than_the_policy_allows(mintlify_service, mintlify_time):
    """In the mode "wait" a slot that is free later is refused at once, with the time until it is free."""
    quota = Quota(create_job=1, mode="wait")
    policy = RetryPolicy(within=2)
    async with mintlify_service.session(
        quota=quota, retry=policy, timeouts=Timeouts(request=7200)
    ) as session:
        await session.create_job("x")
        began = mintlify_time.now()
        with pytest.raises(QuotaExceededError) as refused:
            await session.create_job("y")
        assert mintlify_time.now() - began <= 2
    assert 3500 < refused.value.retry_after <= 3660
    assert mintlify_service.requests.count("create_job") == 1
