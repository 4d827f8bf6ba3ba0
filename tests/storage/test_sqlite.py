"""SQLite files that are locked or full: bounded, cancellable, told, and nothing that others wait for."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

import anyio
import anyio.to_thread
import pytest

from mintlify_async.errors import StateError
from mintlify_async.storage import Claim, SQLiteConversationStore, SQLiteLedger


def claim(key: str = "k", *, timeout: float = 60.0, at: float = 1000.0) -> Claim:
    return Claim(key=key, fingerprint="f", token=key, claimed_at=at, lease_until=at + timeout + 5)


@pytest.fixture
async def locked(tmp_path):
    """A ledger and a conversation store in one file that another connection has locked."""
    path = tmp_path / "kept.db"
    ledger, store = SQLiteLedger(path), SQLiteConversationStore(path)
    await ledger.claim(claim("old"))
    await store.save("chat", "", [], owner="o", revision=0, keep=range(0))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield ledger, store
    other.close()


async def test_a_locked_file_takes_no_thread_of_others(locked):
    """Sixty claims wait for the lock; anyio's own threads are all free."""
    ledger, _ = locked
    waiting = [asyncio.create_task(ledger.claim(claim(str(number)))) for number in range(60)]
    while threading.active_count() < 4:
        await asyncio.sleep(0.01)
    limiter = anyio.to_thread.current_default_thread_limiter()
    assert limiter.borrowed_tokens == 0
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("holds", ["ledger", "conversation store"])
async def test_a_file_of_an_unknown_version_is_refused(tmp_path, holds):
    """Older or newer, it is neither read nor written; the error names the file and what to do."""
    path = tmp_path / "kept.db"
    ledger, store = SQLiteLedger(path), SQLiteConversationStore(path)

    async def step():
        await (ledger.claim(claim()) if holds == "ledger" else store.ids(owner="o"))

    async def other_step():
        await (store.ids(owner="o") if holds == "ledger" else ledger.claim(claim()))

    await step()
    await other_step()
    for change, named in [
        ("UPDATE mintlify_async SET version = 99 WHERE holds = ?", "format version 99"),
        ("DELETE FROM mintlify_async WHERE holds = ?", "no format version"),  # of before there were versions
    ]:
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute(change, (holds,))
            before = list(db.iterdump())
        with pytest.raises(StateError, match=named) as caught:
            await step()
        assert f"the {holds} '{path}'" in str(caught.value)
        assert "another file" in str(caught.value)
        await other_step()
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert list(db.iterdump()) == before


@pytest.mark.parametrize("what", ["claim", "load"])
async def test_a_step_that_waits_for_the_lock_ends_when_cancelled(locked, monkeypatch, what):
    """However long the lock may be waited for, a cancelled step makes no further try."""
    ledger, store = locked
    tries = []
    connect = sqlite3.connect

    def counted(*args, **kwargs):
        tries.append(kwargs["timeout"])
        return connect(*args, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", counted)
    step = ledger.claim(claim("new", timeout=1e6)) if what == "claim" else store.load("chat", owner="o")
    task = asyncio.create_task(step)
    while not tries:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(tries) == 1
    assert tries[0] <= 0.25


async def test_the_lock_is_waited_for_as_long_as_the_call_may_last(locked, monkeypatch):
    """A claim of a call with a timeout of 0.3 s waits 0.3 s for the lock, not thirty."""
    ledger, _ = locked
    waits = []
    connect = sqlite3.connect

    def counted(*args, **kwargs):
        waits.append(kwargs["timeout"])
        return connect(*args, **{**kwargs, "timeout": 0})

    monkeypatch.setattr(sqlite3, "connect", counted)
    with pytest.raises(StateError, match="locked"):
        await ledger.claim(claim("new", timeout=0.3))
    assert max(waits) <= 0.3


async def test_a_full_disk_is_told_as_one(tmp_path):
    """SQLite itself rolls back then; the error is the disk's, not that there is nothing to roll back."""
    path = tmp_path / "full.db"
    store = SQLiteConversationStore(path)
    revision = await store.save("chat", "short", [], owner="o", revision=0, keep=range(0))
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON conversations BEGIN "
            "SELECT RAISE(ROLLBACK, 'database or disk is full'); END"
        )
    db.close()
    with pytest.raises(StateError, match="disk is full"):
        await store.save("chat", "long", [], owner="o", revision=revision, keep=range(0))
    stored = await store.load("chat", owner="o")
    assert stored is not None
    assert (stored.head, stored.revision) == ("short", revision)


async def test_a_ledger_forgets_what_it_need_not_keep(tmp_path):
    """With keep=, a key whose job is recorded is free again after that time; an open claim never is."""
    ledger = SQLiteLedger(tmp_path / "ledger.db", keep=3600)
    done, unknown = claim("done"), claim("open")
    await ledger.claim(done)
    await ledger.record(done, "job_1")
    await ledger.claim(unknown)
    await ledger.claim(claim("soon", at=1000.0 + 3599))
    assert await ledger.find("done") is not None
    later = claim("done", at=1000.0 + 3601)
    assert await ledger.claim(later) == later
    assert await ledger.find("open") == unknown
