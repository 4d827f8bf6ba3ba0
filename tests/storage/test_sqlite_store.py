"""SQLiteStore: the shared cases, the file, its lock, and damage."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mintlify_async.errors import ConfigurationError, QuotaExceededError, StateError
from mintlify_async.quota import Quota
from mintlify_async.quota.quota import QuotaScope
from mintlify_async.runtime import clock
from mintlify_async.storage import SQLiteStore, Store, sqlite_file
from mintlify_async.storage.store import change
from mintlify_async.testing.store_cases import A, B, count, put, values
from tests.support.child_process import child_environment
from tests.support.own_time_cases import OwnTimeCases, count_in_threads


class TestSQLiteStore(OwnTimeCases):
    """The cases of every store."""

    @pytest.fixture
    def store(self, own_time: None, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "store.db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> SQLiteStore:
    return SQLiteStore(path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection has the file's lock."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def execute(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


# The file


async def test_a_relative_path_is_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A daemon that changes its directory goes on with the same file (D3)."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("store.db")
    await put(store, A)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert await values(store, A) == {A: b"1"}
    assert not list(Path.cwd().iterdir())
    assert str(tmp_path / "store.db") in repr(store)


@pytest.mark.parametrize(
    "path", ["", ":memory:", b":memory:", "file::memory:", "file:x?mode=memory", "a\0b", None, 5]
)
def test_what_names_no_file_is_refused(path: str):
    """A database in memory would be another one for each step (D3)."""
    with pytest.raises(ConfigurationError, match=r"in memory, use MemoryStore\(\)"):
        SQLiteStore(path)


@pytest.mark.parametrize("make", [str, os.fsencode, Path])
async def test_a_tilde_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], Any]
):
    """A folder of the name ~ would be another one in each working directory."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore(make("~/store.db"))
    await put(store, A)
    assert (home / "store.db").exists()
    assert repr(str(home / "store.db")) in repr(store)
    await put(SQLiteStore("./~store.db"), A)
    assert (tmp_path / "~store.db").exists()


@pytest.mark.parametrize("path", ["$HOME/l.db", "${X}.db", "$", "~no-such-user/l.db", Path("$HOME/l.db")])
def test_a_path_that_nobody_has_expanded_is_refused(path: str | Path):
    """The error says why, and how to name such a file."""
    with pytest.raises(ConfigurationError, match=r"path begins with .*\./ in front") as caught:
        SQLiteStore(path)
    assert caught.value.field == "path"


def test_a_new_file_is_private(store: SQLiteStore, path: Path):
    """It contains keys of threads."""
    asyncio.run(put(store, A))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE mintlify_async SET version = 99", "format version store 99, and .* reads store 1"),
        ("DELETE FROM mintlify_async", "no format version"),
        ("INSERT INTO mintlify_async VALUES ('ledger', 1)", "format version .*ledger 1"),
    ],
)
def test_a_file_of_another_version_is_refused(store: SQLiteStore, path: Path, statement: str, named: str):
    """Older or newer, it is not changed; the error says what to do."""
    asyncio.run(put(store, A))
    execute(path, statement)
    content = path.read_bytes()
    with pytest.raises(StateError, match=named) as caught:
        asyncio.run(put(store, B))
    assert "another file" in str(caught.value)
    assert path.read_bytes() == content


def test_a_file_of_something_else_is_refused(store: SQLiteStore, path: Path):
    """Neither another program's tables nor text are touched."""
    execute(path, "CREATE TABLE notes (text TEXT)")
    with pytest.raises(StateError, match="no format version"):
        asyncio.run(put(store, A))
    path.write_bytes(b"Dear diary, " * 100)
    with pytest.raises(StateError, match="not a database"):
        asyncio.run(put(store, A))
    assert path.read_bytes() == b"Dear diary, " * 100


@pytest.mark.parametrize(
    "change_row", ["value = 'text'", "version = x'00'", "version = CAST(x'ff' AS TEXT)", "since = 'today'"]
)
async def test_a_damaged_record_is_told(store: SQLiteStore, path: Path, change_row: str):
    """No TypeError, and the other records can be read (D13, p23)."""
    await put(store, A)
    await put(store, B, b"2")
    execute(path, f"UPDATE records SET {change_row} WHERE key = '{A}'")
    results = await asyncio.gather(store.read([A]), values(store, B), return_exceptions=True)
    assert isinstance(results[0], StateError)
    assert str(path) in str(results[0])
    assert results[1] == {B: b"2"}


def fails_with(remedy: str, store: SQLiteStore, value: bytes = b"1") -> None:
    """A step fails with an error whose end says what to do."""
    with pytest.raises(StateError, match=rf"cannot be used: .*; .*{remedy}"):
        asyncio.run(put(store, A, value))


def test_an_error_says_what_to_do(store: SQLiteStore, path: Path, tmp_path: Path):
    """Of a folder that is not there, a path that is no file, a file of something else, a disk that fails."""
    fails_with("create its folder", SQLiteStore(tmp_path / "missing" / "store.db"))
    assert not (tmp_path / "missing").exists()
    fails_with("correct the path or its permissions", SQLiteStore(tmp_path))
    asyncio.run(put(store, A))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
    try:
        fails_with("check the disk", store, b"1" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    path.write_bytes(b"Dear diary, " * 100)
    fails_with("restore the file", store)


async def test_a_full_disk_is_told_as_one(store: SQLiteStore, path: Path):
    """SQLite itself rolls back then; the error is the disk's, and nothing was changed."""
    await put(store, A)
    execute(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON records BEGIN "
        "SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
    )
    with pytest.raises(StateError, match="disk is full"):
        await put(store, B)
    assert await values(store, A, B) == {A: b"1"}


# One line of steps


async def test_a_failed_step_harms_no_other(store: SQLiteStore):
    """Of a hundred writes in one transaction, one cannot be written."""
    keys = [f"room/open/{number}" for number in range(100)]
    keys[50] = "room/open/\ud800"
    steps = [store.write({key: b""}, expected={}, version="v") for key in keys]
    results = await asyncio.gather(*steps, return_exceptions=True)
    assert [result for result in results if result is not True] == [results[50]]
    assert isinstance(results[50], StateError)
    assert len(await store.keys("room/open/")) == 99


async def test_steps_of_one_task_are_done_in_order(store: SQLiteStore):
    """A step that was cancelled while it was running is done before the next, or never."""
    for turns in range(40):
        task = asyncio.create_task(store.write({A: b"1"}, expected={}, version="v"))
        for _ in range(turns % 8):
            await asyncio.sleep(0.0003)
        task.cancel()
        await asyncio.wait([task])
        await store.write({A: None}, expected={}, version="w")
        await asyncio.sleep(0.003)
        assert await values(store, A) == {}


# The lock


async def test_a_lock_is_waited_for(store: SQLiteStore, path: Path):
    """A backup of a second delays the steps, also those that came when the wait had begun."""
    await put(store, A)
    with locked(path):
        steps = [asyncio.create_task(put(store, A, b"2"))]
        await asyncio.sleep(0.6)
        steps.append(asyncio.create_task(put(store, B, b"2")))
        await asyncio.sleep(0.1)
        assert not any(step.done() for step in steps)
    await asyncio.gather(*steps)
    assert await values(store, A, B) == {A: b"2", B: b"2"}


async def test_a_lock_that_stays_is_told(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch):
    """After ten seconds (here a fifth of one); each step has its own time from its first try."""
    assert sqlite_file.BUSY_SECONDS == 10
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.2)
    await put(store, A)
    loop = asyncio.get_running_loop()
    start = loop.time()
    with locked(path):
        first = asyncio.create_task(put(store, A))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(put(store, A))
        with pytest.raises(StateError, match="is locked; end the process that keeps it locked"):
            await first
        assert loop.time() - start > 0.19
        with pytest.raises(StateError, match="is locked"):
            await second
        assert loop.time() - start > 0.29
    await put(store, A)


async def test_cancelled_steps_on_a_locked_file_end(store: SQLiteStore, path: Path):
    """They do not wait for the lock, and the thread is free for the next step."""
    await put(store, A)
    with locked(path):
        tasks = [asyncio.create_task(put(store, A, b"2")) for _ in range(60)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
    await put(store, B)
    assert await values(store, A, B) == {A: b"1", B: b"1"}


async def test_a_reader_that_delays_the_commit(store: SQLiteStore, path: Path):
    """A long SELECT lets a transaction begin and not end; the step is done once, when it may."""
    await put(store, A)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM records").fetchall()
        step = asyncio.create_task(change(store, [A], count))
        await asyncio.sleep(0.6)
        assert not step.done()
    await step
    assert await values(store, A) == {A: b"2"}


# Threads, forks and processes


async def test_loops_in_threads_share_it(path: Path):
    """Two stores of one file, such as a session's ledger and its conversations."""
    await count_in_threads(SQLiteStore(path), SQLiteStore(str(path)))


FORK = multiprocessing.get_context("fork")
forks = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def _after_the_fork(store: SQLiteStore) -> None:
    asyncio.run(put(store, B))


@pytest.mark.real
@forks
async def test_a_fork_has_a_thread_of_its_own(store: SQLiteStore):
    """A worker that forks after the first step goes on in the child and in the parent."""
    await put(store, A)
    child = FORK.Process(target=_after_the_fork, args=[store])
    child.start()
    await asyncio.to_thread(child.join, 20)
    assert child.exitcode == 0
    await put(store, A, b"2")
    assert await values(store, A, B) == {A: b"2", B: b"1"}


def _count_for_ever(path: Path, report: Any) -> None:
    def rule(snapshot: Any) -> tuple[dict[str, bytes], None]:
        counts = {key: int(record.value) for key, record in snapshot.records.items()}
        return {key: b"%d" % (counts.get(key, 0) + 1) for key in (A, B)}, None

    async def main() -> None:
        store = SQLiteStore(path)
        while True:
            await change(store, [A, B], rule)
            report.send_bytes(b"done")

    asyncio.run(main())


@pytest.mark.real
@forks
async def test_a_killed_process_leaves_whole_steps(store: SQLiteStore, path: Path):
    """Of each step that a kill interrupts there are both records or none; what was reported is there."""
    reported = 0
    for delay in range(10):
        reports, report = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_count_for_ever, args=[path, report])
        process.start()
        report.close()
        assert reports.recv_bytes() == b"done"
        reported += 1
        await asyncio.sleep(delay * 0.007)
        process.kill()
        process.join()
        with contextlib.suppress(EOFError), reports:
            while reports.recv_bytes():
                reported += 1
        counts = await values(store, A, B)
        assert len(set(counts.values())) == 1
        assert reported <= int(counts[A]) <= reported + delay + 1


@pytest.mark.real
def test_a_program_ends_with_its_step(path: Path):
    """A program that ends while it waits for the lock waits no longer, and prints no error."""
    asyncio.run(put(SQLiteStore(path), A))
    program = """
import asyncio, sys
from mintlify_async.storage import SQLiteStore, sqlite_file

sqlite_file.BUSY_SECONDS = 3600

async def main():
    task = asyncio.create_task(SQLiteStore(sys.argv[1]).read(["room/open/a"]))
    await asyncio.sleep(0.1)

asyncio.run(main())
"""
    with locked(path):
        command = [sys.executable, "-c", program, str(path)]
        result = subprocess.run(command, capture_output=True, env=child_environment(), check=False)
        assert (result.returncode, result.stderr) == (0, b"")


# A clock that was ahead for a moment

DAYS = 2 * 86_400.0
SCOPE = QuotaScope(project="docs")


@contextlib.contextmanager
def clock_ahead(seconds: float) -> Iterator[None]:
    """Let the machine's clock differ from the one before."""
    now = clock.now() + seconds
    with clock.read_from(lambda: now):
        yield


async def test_a_slot_of_the_future_counts_for_one_window(path: Path):
    """From the first step that reads it; each step has a new object, as another process has."""

    def quota() -> Quota:
        return Quota(create_job=1, store=SQLiteStore(path))

    with clock_ahead(DAYS):
        await quota().lease("create_job", SCOPE).take()
    with pytest.raises(QuotaExceededError) as refused:
        await quota().lease("create_job", SCOPE).take()
    assert refused.value.retry_after == pytest.approx(3600, abs=60)
    with clock_ahead(1800):
        (left,) = await quota().left("create_job", SCOPE)
        assert left.next_in == pytest.approx(1800, abs=60)
    with clock_ahead(3660):
        await quota().lease("create_job", SCOPE).take()


@pytest.mark.parametrize("retry_after", [None, 600.0])
async def test_a_block_of_the_future_lasts_as_long_as_it_was_made_for(path: Path, retry_after: float | None):
    """Whatever reads it first: a call, or a further 429."""
    quota = Quota(store=SQLiteStore(path))
    seconds = retry_after or 60.0
    with clock_ahead(DAYS):
        await quota.block("create_job", SCOPE, retry_after)
    await quota.block("create_job", SCOPE, seconds / 2)  # shorter than what is left, so it changes nothing
    (left,) = await quota.left("create_job", SCOPE)
    assert left.blocked == pytest.approx(seconds, abs=seconds / 2 - 1)
    with clock_ahead(DAYS):
        await quota.unblock("create_job", SCOPE)
        await quota.block("create_job", SCOPE, seconds)
    (left,) = await quota.left("create_job", SCOPE)
    assert left.blocked == pytest.approx(seconds, abs=seconds / 2 - 1)
    with clock_ahead(seconds + 60):
        await quota.lease("create_job", SCOPE).take()


async def test_a_record_of_the_future_is_as_old_as_its_first_reading(store: SQLiteStore):
    """So a claim from that time ends as any other. Its version stays, and its end comes when it should."""
    with clock_ahead(DAYS):
        version = await put(store, A, keep=100)
    snapshot = await store.read([A])
    assert snapshot.records[A].since == snapshot.now
    assert snapshot.records[A].version == version
    with clock_ahead(60):
        snapshot = await store.read([A])
        assert snapshot.now - snapshot.records[A].since == pytest.approx(60, abs=10)
    with clock_ahead(111):
        assert not (await store.read([A])).records
