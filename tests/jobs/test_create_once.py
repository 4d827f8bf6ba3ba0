"""At most once: claims, what releases them, and what never does."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from git_kit import HeldGitLedger
from ledger_kit import JOB, LEASE, PRINT, Post, create

from mintlify_async.contrib.redis import RedisLedger
from mintlify_async.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ConfigurationError,
    OutcomeUnknownError,
    QuotaExceededError,
    RateLimitError,
    ServerError,
    StateError,
    UnexpectedResponseError,
)
from mintlify_async.jobs.create_once import fingerprint, had_no_effect
from mintlify_async.storage.ledger import MemoryLedger, SQLiteLedger
from mintlify_async.testing import VirtualClock


@pytest.fixture(params=["memory", "sqlite", "redis", "git"])
async def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger()
    elif request.param == "sqlite":
        yield SQLiteLedger(tmp_path / "ledger.db")
    elif request.param == "git":
        yield HeldGitLedger(tmp_path)
    else:
        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisLedger(client, timeout=10)


@pytest.fixture
def clock(ledger):
    """The loop cannot see a thread or another process at work: the time waits a little for them."""
    if isinstance(ledger, HeldGitLedger):
        return ledger.clock
    return VirtualClock(grace=None if isinstance(ledger, MemoryLedger) else 0.005)


async def until(happened):
    """Give way until something has happened that the virtual clock does not move."""
    while not happened():
        await asyncio.sleep(0)


async def test_the_second_call_gets_the_first_ones_job(ledger, clock):
    """The second call with a key gets the first one's job, without a POST."""
    post = Post()
    assert await create(ledger, clock, post) == JOB
    for _ in range(3):
        assert await create(ledger, clock, post) == "job_1"
    assert post.count == 1
    assert await ledger.open_claims() == []


async def test_other_keys_are_other_jobs(ledger, clock):
    """The same prompt with another key is another job."""
    post = Post()
    assert await create(ledger, clock, post, key="a") == JOB
    assert await create(ledger, clock, post, key="b") == JOB
    assert post.count == 2


@pytest.mark.parametrize("other", [fingerprint("docs", "Fix another"), fingerprint("other", "Fix the typos")])
async def test_a_key_belongs_to_one_prompt_and_project(ledger, clock, other):
    """Using it for another is an error, and sends nothing."""
    post = Post()
    await create(ledger, clock, post)
    with pytest.raises(ConfigurationError, match="another prompt or project") as caught:
        await create(ledger, clock, post, print_=other)
    assert caught.value.field == "dedupe_key"
    assert post.count == 1


def test_a_fingerprint_tells_apart_and_hides():
    """A fingerprint separates project and prompt, and neither can be read from it."""
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint("docs", "\ud800") != fingerprint("docs", "")
    assert "typos" not in PRINT
    assert len(PRINT) == 64


@pytest.mark.parametrize("key", ["", " ", None, 7, "k" * 513, "a\0b", "\ud800"])
async def test_a_key_is_checked(ledger, clock, key):
    """An invalid key is refused before anything is claimed."""
    post = Post()
    with pytest.raises(ConfigurationError) as caught:
        await create(ledger, clock, post, key=key)
    assert caught.value.field == "dedupe_key"
    assert post.count == 0


async def test_racers_make_one_post(ledger, clock):
    """Of twenty calls at once one sends, and all get its job."""
    post = Post(wait=lambda: clock.sleep(5))
    results = await asyncio.gather(*(create(ledger, clock, post) for _ in range(20)))
    assert post.count == 1
    assert sorted(result if isinstance(result, str) else result.id for result in results) == ["job_1"] * 20


NO_EFFECT = [
    APIConnectionError("no route", sent="no"),
    APITimeoutError("no connection", phase="connect", seconds=10, sent="no"),
    QuotaExceededError("used up"),
    ConfigurationError("no key"),
    APIStatusError("bad", status=400),
    RateLimitError("later", status=429),
]


UNKNOWN = [
    OutcomeUnknownError("?", operation="create_job"),
    APIConnectionError("lost"),
    APITimeoutError("silence", phase="request", seconds=60),
    APIStatusError("elsewhere", status=302),
    APIStatusError("done, and elsewhere", status=303),
    ServerError("failed", status=500),
    ServerError("failed", status=503),
    UnexpectedResponseError("html"),
    StateError("closed"),
    RuntimeError("odd"),
]


@pytest.mark.parametrize("error", NO_EFFECT, ids=lambda error: str(error))
async def test_what_had_no_effect_releases_the_claim(ledger, clock, error):
    """A request that was not sent or was refused releases the claim, and the next call sends."""
    with pytest.raises(type(error)):
        await create(ledger, clock, Post(error))
    assert await ledger.open_claims() == []
    post = Post()
    assert await create(ledger, clock, post) == JOB
    assert had_no_effect(error)


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: str(error))
async def test_what_is_not_certain_leaves_the_claim_open(ledger, clock, error):
    """If the job may exist, the key is never sent again by itself, however long ago that was."""
    with pytest.raises(type(error)):
        await create(ledger, clock, Post(error))
    (claim,) = await ledger.open_claims()
    assert (claim.key, claim.fingerprint, claim.job_id) == ("k", PRINT, None)
    post = Post()
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError, match="resolve") as caught:
            await create(ledger, clock, post)
        await clock.sleep(1_000_000)
    assert post.count == 0
    assert caught.value.operation == "create_job"
    assert caught.value.sent_at == claim.claimed_at
    assert not had_no_effect(error)


async def test_a_loser_waits_for_the_lease_and_no_longer(ledger, clock):
    """A second call waits until the lease ends; then the outcome is unknown."""
    answer = asyncio.Event()
    sent = Post(wait=answer.wait)
    winner = asyncio.create_task(create(ledger, clock, sent))
    await until(lambda: sent.count)
    post, began = Post(), clock.now()
    with pytest.raises(OutcomeUnknownError):
        await create(ledger, clock, post)
    assert clock.now() - began == pytest.approx(LEASE, abs=1)
    answer.set()
    assert await winner == JOB
    assert await create(ledger, clock, post) == "job_1"
    assert post.count == 0


async def test_a_loser_sends_when_the_winner_was_refused(ledger, clock):
    """When the first call was refused, one of those that wait sends."""
    refused = Post(APIStatusError("bad", status=400), wait=lambda: clock.sleep(5))
    winner = asyncio.create_task(create(ledger, clock, refused))
    await until(lambda: refused.count)
    post = Post(wait=lambda: clock.sleep(5))
    losers = await asyncio.gather(*(create(ledger, clock, post) for _ in range(5)))
    with pytest.raises(APIStatusError):
        await winner
    assert post.count == 1
    assert sorted(r if isinstance(r, str) else r.id for r in losers) == ["job_1"] * 5


class SlowLedger(MemoryLedger):
    """A ledger each of whose steps can be held, to cancel in its middle."""

    def __init__(self):
        super().__init__()
        self.hold = ""
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def _pass(self, step):
        if step == self.hold:
            self.reached.set()
            await self.go.wait()

    async def claim(self, claim):
        await self._pass("before claim")
        held = await super().claim(claim)
        await self._pass("after claim")
        return held

    async def record(self, claim, job_id):
        await self._pass("before record")
        await super().record(claim, job_id)
        await self._pass("after record")

    async def release(self, claim):
        await self._pass("before release")
        await super().release(claim)


def cancel_by_task(call):
    task = asyncio.create_task(call)
    return task, task.cancel


def cancel_by_scope(call):
    scope = anyio.CancelScope()

    async def run():
        with scope:
            await call
        raise asyncio.CancelledError

    return asyncio.create_task(run()), scope.cancel


@pytest.mark.parametrize("how", [cancel_by_task, cancel_by_scope])
@pytest.mark.parametrize(
    ("hold", "posts", "then"),
    [
        ("before claim", 0, "free"),
        ("after claim", 0, "free"),
        ("sending", 1, "open"),
        ("before record", 1, "recorded"),
        ("after record", 1, "recorded"),
        ("before release", 1, "free"),
    ],
)
async def test_cancelled_at_each_step(how, hold, posts, then):
    """Cancelled before the POST the claim is dropped; after the answer the job is recorded; else it stays."""
    ledger, clock = SlowLedger(), VirtualClock()
    ledger.hold = hold

    async def sending():
        await ledger._pass("sending")

    outcome = APIStatusError("bad", status=400) if hold == "before release" else JOB
    post = Post(outcome, wait=sending)
    task, cancel = how(create(ledger, clock, post))
    await ledger.reached.wait()
    cancel()
    await asyncio.sleep(0)
    cancel()
    if hold != "sending":
        assert not task.done()  # the step is run to its end
        ledger.go.set()
    await asyncio.wait([task])
    ledger.go.set()
    if hold == "before release" and how is cancel_by_scope:
        assert isinstance(task.exception(), APIStatusError)  # a scope lets an error pass
    else:
        assert task.cancelled()
    assert post.count == posts
    found = await ledger.find("k")
    if then == "free":
        assert found is None
    else:
        assert found.job_id == ("job_1" if then == "recorded" else None)


async def test_a_cancelled_loser_changes_nothing(ledger, clock):
    """Cancelling a call that waits does not touch the claim of the one that sends."""
    release = asyncio.Event()
    sent = Post(wait=release.wait)
    winner = asyncio.create_task(create(ledger, clock, sent))
    await until(lambda: sent.count)
    loser = asyncio.create_task(create(ledger, clock, Post()))
    await clock.sleep(10)
    loser.cancel()
    await asyncio.wait([loser])
    assert len(await ledger.open_claims()) == 1
    release.set()
    assert await winner == JOB


async def test_a_ledger_that_breaks_does_not_lose_a_paid_job(caplog):
    """If recording fails, the job is returned, the failure logged, and the claim stays open."""

    class Broken(MemoryLedger):
        async def record(self, claim, job_id):
            raise StateError("disk full")

    ledger = Broken()
    assert await create(ledger, VirtualClock(), Post()) == JOB
    assert "job_1 was created" in caplog.text
    assert len(await ledger.open_claims()) == 1


async def test_a_ledger_that_cannot_release_keeps_the_error(caplog):
    """If releasing fails, the service's error is raised, not the ledger's."""

    class Broken(MemoryLedger):
        async def release(self, claim):
            raise StateError("disk full")

    with pytest.raises(RateLimitError):
        await create(Broken(), VirtualClock(), Post(RateLimitError("later", status=429)))
    assert "did not release" in caplog.text


async def test_a_ledger_that_cannot_claim_sends_nothing():
    """If claiming fails, nothing is sent."""

    class Broken(MemoryLedger):
        async def claim(self, claim):
            raise StateError("unreachable")

    post = Post()
    with pytest.raises(StateError, match="unreachable"):
        await create(Broken(), VirtualClock(), post)
    assert post.count == 0
