"""At most once: claims, what releases them, and what never does."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import anyio
import pytest

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
from mintlify_async.jobs.create_once import create_once, fingerprint, had_no_effect
from mintlify_async.model.job import Job
from mintlify_async.storage import Claim, MemoryLedger, SQLiteLedger
from mintlify_async.testing import VirtualClock

LEASE = 65.0
PRINT = fingerprint("docs", "Fix the typos")
JOB = Job(id="job_1", status="active")


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger()
    elif request.param == "sqlite":
        yield SQLiteLedger(tmp_path / "ledger.db")
    else:
        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisLedger(client, timeout=10)


@pytest.fixture
def clock(ledger):
    """The loop cannot see a thread or another process at work: the time waits a little for them."""
    return VirtualClock(grace=None if isinstance(ledger, MemoryLedger) else 0.005)


async def until(happened):
    """Give way until something has happened that the virtual clock does not move."""
    while not happened():
        await asyncio.sleep(0)


class Post:
    """Counts the POSTs, and answers or fails."""

    def __init__(self, outcome=JOB, wait=None):
        self.outcome, self.wait, self.count = outcome, wait, 0

    async def __call__(self):
        self.count += 1
        if self.wait is not None:
            await self.wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def create(ledger, clock, post, key="k", print_=PRINT):
    return create_once(ledger, key, print_, LEASE, post, clock)


async def test_the_second_call_gets_the_first_ones_job(ledger, clock):
    """One POST; the key leads to its job for ever."""
    post = Post()
    assert await create(ledger, clock, post) == JOB
    for _ in range(3):
        assert await create(ledger, clock, post) == "job_1"
    assert post.count == 1
    assert await ledger.open_claims() == []


async def test_other_keys_are_other_jobs(ledger, clock):
    """The same prompt may be sent twice, with two keys."""
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
    """The border between project and prompt counts, and neither can be read."""
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint("docs", "\ud800") != fingerprint("docs", "")
    assert "typos" not in PRINT
    assert len(PRINT) == 64


@pytest.mark.parametrize("key", ["", " ", None, 7, "k" * 513, "a\0b", "\ud800"])
async def test_a_key_is_checked(ledger, clock, key):
    """Before anything is claimed."""
    post = Post()
    with pytest.raises(ConfigurationError) as caught:
        await create(ledger, clock, post, key=key)
    assert caught.value.field == "dedupe_key"
    assert post.count == 0


async def test_racers_make_one_post(ledger, clock):
    """Twenty at once: one sends, all get its job."""
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
    """Not sent or refused: the next call sends."""
    with pytest.raises(type(error)):
        await create(ledger, clock, Post(error))
    assert await ledger.open_claims() == []
    post = Post()
    assert await create(ledger, clock, post) == JOB
    assert had_no_effect(error)


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: str(error))
async def test_what_is_not_certain_leaves_the_claim_open(ledger, clock, error):
    """The job may exist: the key is never sent again by itself, however long ago that was."""
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
    """Then it is told that the outcome is not known."""
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
    """The claim is free again: one of those who wait takes it."""
    refused = Post(APIStatusError("bad", status=400), wait=lambda: clock.sleep(5))
    winner = asyncio.create_task(create(ledger, clock, refused))
    await until(lambda: refused.count)
    post = Post(wait=lambda: clock.sleep(5))
    losers = await asyncio.gather(*(create(ledger, clock, post) for _ in range(5)))
    with pytest.raises(APIStatusError):
        await winner
    assert post.count == 1
    assert sorted(r if isinstance(r, str) else r.id for r in losers) == ["job_1"] * 5


# Cancelling ------------------------------------------------------------------------------------


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
    """Before the POST the claim is dropped, after its answer the job is written down; in between it stays."""
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
    """The winner's claim is the winner's."""
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
    """The job is returned, the failure logged, and the claim stays open."""

    class Broken(MemoryLedger):
        async def record(self, claim, job_id):
            raise StateError("disk full")

    ledger = Broken()
    assert await create(ledger, VirtualClock(), Post()) == JOB
    assert "job_1 was created" in caplog.text
    assert len(await ledger.open_claims()) == 1


async def test_a_ledger_that_cannot_release_keeps_the_error(caplog):
    """What the service said is raised, not the ledger's failure."""

    class Broken(MemoryLedger):
        async def release(self, claim):
            raise StateError("disk full")

    with pytest.raises(RateLimitError):
        await create(Broken(), VirtualClock(), Post(RateLimitError("later", status=429)))
    assert "did not release" in caplog.text


async def test_a_ledger_that_cannot_claim_sends_nothing():
    """No claim, no POST."""

    class Broken(MemoryLedger):
        async def claim(self, claim):
            raise StateError("unreachable")

    post = Post()
    with pytest.raises(StateError, match="unreachable"):
        await create(Broken(), VirtualClock(), post)
    assert post.count == 0


# What a ledger does ----------------------------------------------------------------------------


def claim_of(key="k", token="t", claimed_at=1.0):
    return Claim(
        key=key, fingerprint=PRINT, token=token, claimed_at=claimed_at, lease_until=claimed_at + LEASE
    )


async def test_only_the_claimant_records_and_releases(ledger):
    """A claim that was forgotten and taken by another is not touched by the first."""
    first, second = claim_of(token="a"), claim_of(token="b")
    assert await ledger.claim(first) == first
    assert await ledger.claim(second) == first
    await ledger.forget("k")
    assert await ledger.claim(second) == second
    await ledger.record(first, "job_a")
    await ledger.release(first)
    assert await ledger.find("k") == second
    await ledger.record(second, "job_b")
    await ledger.release(second)
    assert (await ledger.find("k")).job_id == "job_b"


async def test_open_claims_are_the_oldest_first(ledger):
    """For a person who looks what is to be settled."""
    for key, at in (("new", 30.0), ("old", 10.0), ("done", 5.0), ("mid", 20.0)):
        await ledger.claim(claim_of(key, claimed_at=at))
    await ledger.resolve("done", "job_9")
    assert [claim.key for claim in await ledger.open_claims()] == ["old", "mid", "new"]
    assert (await ledger.open_claims())[0] == claim_of("old", claimed_at=10.0)


async def test_resolve_names_the_job(ledger, clock):
    """From then on the key leads to it; saying it twice is harmless, another job is not."""
    await ledger.claim(claim_of())
    await ledger.resolve("k", "job_7")
    await ledger.resolve("k", "job_7")
    post = Post()
    assert await create(ledger, clock, post) == "job_7"
    assert post.count == 0
    with pytest.raises(ConfigurationError):
        await ledger.resolve("k", "job_8")
    with pytest.raises(ConfigurationError) as caught:
        await ledger.resolve("unknown", "job_8")
    assert caught.value.field == "key"
    with pytest.raises(ConfigurationError):
        await ledger.resolve("k", "")


async def test_forget_lets_it_be_sent(ledger, clock):
    """Forgetting what is not there is harmless."""
    await ledger.claim(claim_of())
    await ledger.forget("k")
    await ledger.forget("k")
    assert await ledger.find("k") is None
    assert await create(ledger, clock, Post()) == JOB


async def test_any_text_is_a_key(ledger, clock):
    """Quotes, newlines, letters of any script; they are data, not SQL."""
    for key in ("'; DROP TABLE claims; --", "ключ\n🔑", "k" * 512, "%s?"):
        assert await create(ledger, clock, Post(), key=key) == JOB
        assert await create(ledger, clock, Post(), key=key) == "job_1"


# The file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", ":memory:", None, 7])
def test_a_path_is_checked(path):
    """A ledger in memory is another class."""
    with pytest.raises(ConfigurationError) as caught:
        SQLiteLedger(path)
    assert caught.value.field == "path"


async def test_a_file_that_is_no_database(tmp_path):
    """The error names it, nothing is sent, and nothing is left open."""
    path = tmp_path / "ledger.db"
    path.write_text("this is no database " * 100)
    post = Post()
    with pytest.raises(StateError, match=r"ledger\.db"):
        await create(SQLiteLedger(path), VirtualClock(grace=0.005), post)
    with pytest.raises(StateError):
        await SQLiteLedger(tmp_path / "nowhere" / "ledger.db").open_claims()
    assert post.count == 0


async def test_the_file_outlives_the_object(tmp_path):
    """Another object on the same file knows the key."""
    assert await create(SQLiteLedger(tmp_path / "l.db"), VirtualClock(grace=0.005), Post()) == JOB
    assert await create(SQLiteLedger(tmp_path / "l.db"), VirtualClock(grace=0.005), Post()) == "job_1"
    assert repr(SQLiteLedger("l.db")) == "SQLiteLedger('l.db')"


async def test_nothing_secret_and_no_prompt_is_in_the_file(tmp_path):
    """The prompt is named, not kept."""
    path = tmp_path / "l.db"
    await create(SQLiteLedger(path), VirtualClock(grace=0.005), Post())
    assert b"typos" not in path.read_bytes()


async def test_the_loop_is_not_blocked_by_a_busy_file(tmp_path):
    """While another process writes, the loop runs on; then the claim is made."""
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(path)
    await ledger.open_claims()
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        creating = asyncio.create_task(create(ledger, VirtualClock(grace=0.005), Post()))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not creating.done()
        other.execute("COMMIT")
    other.close()
    assert await creating == JOB


def test_one_ledger_serves_several_loops_and_threads(tmp_path):
    """Nothing in it belongs to a loop."""
    ledger, post, results = SQLiteLedger(tmp_path / "l.db"), Post(), []

    def run():
        results.append(asyncio.run(create(ledger, VirtualClock(grace=0.02), post)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run()
    assert post.count == 1
    assert sorted(r if isinstance(r, str) else r.id for r in results) == ["job_1"] * 5
