"""What each ledger does with its claims, and what is in the file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

import pytest
from git_kit import HeldGitLedger
from ledger_kit import JOB, LEASE, PRINT, Post, create

from mintlify_async.contrib.redis import RedisLedger
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.storage.ledger import Claim, MemoryLedger, SQLiteLedger
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
    """open_claims() lists what is to be settled, the oldest first."""
    for key, at in (("new", 30.0), ("old", 10.0), ("done", 5.0), ("mid", 20.0)):
        await ledger.claim(claim_of(key, claimed_at=at))
    await ledger.resolve("done", "job_9")
    assert [claim.key for claim in await ledger.open_claims()] == ["old", "mid", "new"]
    assert (await ledger.open_claims())[0] == claim_of("old", claimed_at=10.0)


async def test_resolve_names_the_job(ledger, clock):
    """After resolve() the key leads to the job; the same job again is harmless, another is refused."""
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
    """After forget() the key is sent again; forgetting an unknown key is harmless."""
    await ledger.claim(claim_of())
    await ledger.forget("k")
    await ledger.forget("k")
    assert await ledger.find("k") is None
    assert await create(ledger, clock, Post()) == JOB


async def test_any_text_is_a_key(ledger, clock):
    """Quotes, newlines and letters of any script are allowed in a key."""
    for key in ("'; DROP TABLE claims; --", "ключ\n🔑", "k" * 512, "%s?"):
        assert await create(ledger, clock, Post(), key=key) == JOB
        assert await create(ledger, clock, Post(), key=key) == "job_1"


@pytest.mark.parametrize("path", ["", ":memory:", None, 7])
def test_a_path_is_checked(path):
    """A path that names no file is refused."""
    with pytest.raises(ConfigurationError) as caught:
        SQLiteLedger(path)
    assert caught.value.field == "path"


async def test_a_file_that_is_no_database(tmp_path):
    """A file that is no database is named by the error; nothing is sent and nothing is left open."""
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
    """A ledger belongs to no event loop."""
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


async def test_a_ledger_can_be_closed(ledger):
    """By both names; what was claimed stays."""
    async with contextlib.aclosing(ledger):
        await ledger.claim(claim_of())
    await ledger.close()
    assert await ledger.find("k") == claim_of()
