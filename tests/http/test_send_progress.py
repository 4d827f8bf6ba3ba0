"""The one fact about a request: whatever ends it, it is known whether its first byte was written."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from mintlify_async import APIConnectionError, MemoryStore, MintlifySession, RetryPolicy, StateError
from mintlify_async.http.attempts import send_job
from mintlify_async.http.send_progress import Sending
from mintlify_async.jobs.ledger import Ledger
from mintlify_async.protocol.requests import create_job_call


def post(session, sending, timeout=60.0):
    """Send a request for a job as the agent API does."""
    call = create_job_call(session.options, "x", timeout=timeout)
    return send_job(session._core, call, sending=sending)


async def ended(how, session, task):
    """End *task* from outside while it connects."""
    await asyncio.sleep(0.1)
    if how == "cancelled":
        task.cancel()
    else:
        await session.close()
    with pytest.raises((asyncio.CancelledError, StateError)):
        await task
    await session.close()


@pytest.mark.parametrize("how", ["cancelled", "closed"])
@pytest.mark.parametrize("operation", ["create_job", "send"])
async def test_a_post_that_ends_while_it_connects_leaves_its_key_free(silent_url, how, operation):
    """D1: the key was burnt for good, although no byte was written; nor is the job's handle armed."""
    ledger = MemoryStore()
    session = MintlifySession(
        base_url=silent_url, admin_key="mint_test_admin_key", project_id="docs", ledger=ledger
    )
    job = session.job("job_1")
    call = job.send if operation == "send" else session.create_job
    await ended(how, session, asyncio.ensure_future(call("p", dedupe_key="k")))
    assert not await Ledger(ledger).open_claims()
    assert not job.ref.awaiting_turn


class Waiting(Sending):
    """Awaits *hook* before the first byte, and *again* before another attempt."""

    must_wait = True

    def __init__(self, hook, again=None):
        super().__init__()
        self.before_first_byte, self.hook_again = hook, again

    async def again(self, seconds):
        reason = await super().again(seconds)
        if self.hook_again is not None:
            await self.hook_again(seconds)
        return reason


async def test_the_hook_is_awaited_when_the_connection_is_there_and_nothing_was_sent(service, session):
    """The request waits for it, and its date is that of the first byte."""
    dates = []

    async def hook():
        await asyncio.sleep(0.05)
        dates.append(sending.sent_at)
        assert not service.requests

    sending = Waiting(hook)
    await post(session, sending)
    assert dates == [None]
    assert sending.sent_at is not None


@pytest.mark.parametrize("error", [OSError("the disk is full"), StateError("the claim is lost")])
async def test_a_hook_that_fails_sends_nothing_and_its_error_is_raised(service, session, error):
    """The error is the hook's own, and there is no second attempt."""
    hooks = []

    async def hook():
        hooks.append(1)
        raise error

    sending = Waiting(hook)
    with pytest.raises(type(error)) as caught:
        await post(session, sending)
    assert caught.value is error
    assert hooks == [1]
    assert sending.sent_at is None
    assert not service.requests


async def test_a_hook_that_is_not_over_within_ten_seconds_sends_nothing(virtual, service, session):
    """A store that stands still does not hold the request until its own limit."""
    sending = Waiting(asyncio.Event().wait)
    with pytest.raises(StateError, match="within 10 s; nothing was sent"):
        await post(session, sending)
    assert virtual.now() == pytest.approx(10, abs=0.1)
    assert sending.sent_at is None
    assert not service.requests


@pytest.mark.parametrize("how", ["cancelled", "closed", "limit"])
async def test_an_attempt_that_ends_in_its_hook_sends_nothing_even_if_the_hook_goes_on(service, how):
    """Whoever ends an attempt seals it: a sealed body never writes."""
    left = asyncio.Event()

    async def hook():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        left.set()  # and returns, as if it might be sent now

    sending = Waiting(hook)
    session = service.session(retry=RetryPolicy(attempts=1))
    task = asyncio.ensure_future(post(session, sending, timeout=0.2 if how == "limit" else 60.0))
    if how == "limit":
        with pytest.raises(APIConnectionError) as caught:
            await task
        assert caught.value.sent == "no"
        await session.close()
    else:
        await ended(how, session, task)
    await asyncio.wait_for(left.wait(), 2)
    await asyncio.sleep(0.05)
    assert sending.sent_at is None
    assert not service.requests


async def test_a_refusal_that_is_retried_no_longer_counts_and_is_told_before_the_pause(
    virtual, service, session
):
    """After a 429 nothing is on its way until the next attempt's first byte."""
    service.script.create_job(status=429, headers={"Retry-After": "30"})
    steps = []

    async def hook():
        steps.append(("first byte", sending.sent_at))

    async def again(seconds):
        assert seconds == pytest.approx(31.5, abs=1.6)  # at most a tenth more than was asked for
        steps.append(("again", sending.sent_at))

    sending = Waiting(hook, again)
    await post(session, sending)
    assert steps == [("first byte", None), ("again", None), ("first byte", None)]
    assert sending.sent_at is not None


async def test_an_attempt_whose_connection_is_gone_is_no_longer_under_way():
    """Its body takes the fact back after it was told: no byte could be written."""
    told = []
    sending = Sending()
    sending.on_first_byte, sending.on_no_effect = partial(told.append, "begun"), partial(told.append, "ended")
    await sending.first_byte(sending.begin())
    sending.sent_at = None
    await sending.again(30.0)
    assert told == ["begun", "ended"]


async def test_a_body_of_an_earlier_attempt_never_writes():
    """Its hook may still run when the next attempt has begun."""
    sending = Sending()
    first = sending.begin()
    second = sending.begin()
    with pytest.raises(ConnectionAbortedError):
        await sending.first_byte(first)
    assert sending.sent_at is None
    await sending.first_byte(second)
    assert sending.sent_at is not None


@pytest.mark.parametrize(
    ("status", "sent_at", "outcome"),
    [
        (0, None, "not_sent"),
        (0, 1.0, "unknown"),
        (200, 1.0, "unknown"),
        (503, 1.0, "unknown"),
        (429, 1.0, "refused"),
        (429, None, "refused"),
        (302, 1.0, "answered"),
        (404, 1.0, "answered"),
        (401, None, "answered"),
    ],
)
async def test_what_became_of_an_attempt(status, sent_at, outcome):
    """A refusal counts although it came before the first byte. Another attempt starts as not sent."""
    sending = Sending()
    sending.status, sending.sent_at = status, sent_at
    assert sending.outcome == outcome
    assert sending.had_no_effect is (outcome != "unknown")
    await sending.again(0.0)
    assert sending.outcome == "not_sent"
