"""SQLite files: each step of a store is one transaction in a worker thread."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import ConfigurationError, StateError, printable
from ..runtime.cancellation import finish_shielded
from .format_version import unknown_version

if TYPE_CHECKING:
    import asyncio
    import sqlite3

    import anyio

T = TypeVar("T")

BUSY_SECONDS: Final = 5.0
"""How long a step waits for another process's lock, in seconds. A write takes milliseconds."""

TRY_SECONDS: Final = 0.25
"""Longest time of one try in a worker thread, in seconds; a cancelled step ends after the try."""

THREADS: Final = 8
"""Worker threads of each event loop for all files, apart from those that others use."""

_limiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = (
    weakref.WeakKeyDictionary()
)


class _LockedError(Exception):
    """Another connection holds the lock, and nothing was done."""


_VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS mintlify_async (holds TEXT PRIMARY KEY, version INTEGER NOT NULL)"
)
"""One file may hold several stores; each has the version of its tables here. This table never changes."""


class SQLiteFile:
    """The tables of one store in a SQLite file, which is opened anew for each step.

    No connection stays open between two steps, so one object may be used by
    several threads, event loops and processes, also after a fork.

    Args:
        path: The file. It is created when it does not exist; its folder is not.
        holds: What the file holds, for error messages: ``"ledger"``.
        in_memory: The class to use for a store in memory, for error messages.
        tables: The columns of each table, as ``CREATE TABLE`` takes them.
        version: The version of these tables; a file that has another one is refused.
        private: Make a new file readable by its owner alone.

    Raises:
        ConfigurationError: *path* is not a path, or is ``:memory:``.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        holds: str,
        in_memory: str,
        tables: Mapping[str, str],
        version: int,
        private: bool = False,
    ) -> None:
        """Keep the settings; the file is not opened yet."""
        try:
            self.path = fspath(path)
        except TypeError:
            self.path = ""
        if not self.path or self.path == ":memory:":
            raise ConfigurationError(f"path must name a file; in memory, use {in_memory}()", field="path")
        self._holds = holds
        self._tables = tables
        self._version = version
        self._private = private

    async def change(self, statement: str, *values: object) -> int:
        """Run *statement* and return how many rows it changed."""
        return await self.run(lambda db: db.execute(statement, values).rowcount)

    async def run(self, step: Callable[[sqlite3.Connection], T], *, busy_seconds: float | None = None) -> T:
        """Run *step* in one transaction, in a worker thread, and return its result.

        A cancelled step ends after its present try, done or not.

        Raises:
            StateError: The file cannot be used, stays locked for *busy_seconds* (None is 5 s), or was
                written by another version of this package.
        """
        import anyio.to_thread  # loaded when it is used: few programs keep anything in a file

        clock = anyio.current_time
        until = clock() + (BUSY_SECONDS if busy_seconds is None else busy_seconds)
        while True:
            wait = min(TRY_SECONDS, max(0.0, until - clock()))
            try:
                async with _limiter():
                    thread = anyio.to_thread.run_sync(self._try, step, wait, limiter=anyio.CapacityLimiter(1))
                    return await finish_shielded(thread)
            except _LockedError as error:
                if clock() >= until:
                    reason = str(error)
                    break
        raise self._unusable(reason)

    def _unusable(self, reason: str) -> StateError:
        return StateError(f"the {self._holds} {self.path!r} cannot be used: {printable(reason)}")

    def _try(self, step: Callable[[sqlite3.Connection], T], wait: float) -> T:
        import sqlite3  # loaded when it is used, as above

        try:
            with self._transaction(wait) as db:
                return step(db)
        except (sqlite3.Error, OSError) as error:
            reason = str(error)
            # The lowest eight bits are the error's kind, the others say more about it.
            locked = getattr(error, "sqlite_errorcode", 0) & 0xFF in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_LOCKED,
            )
        raise _LockedError(reason) if locked else self._unusable(reason)

    @contextmanager
    def _transaction(self, wait: float) -> Generator[sqlite3.Connection]:
        import sqlite3

        if self._private and not Path(self.path).exists():
            # SQLite would create the file with the mode that the umask gives.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(self.path, timeout=wait, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")  # a claim lost in a power cut would be sent twice
            db.execute("BEGIN IMMEDIATE")  # take the write lock first: nothing changes between read and write
            try:
                self._check_tables(db)
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite itself rolls back when the disk is full
                    db.execute("ROLLBACK")
                raise

    def _check_tables(self, db: sqlite3.Connection) -> None:
        """Make the tables in a new file; raise StateError if the file has other ones."""
        db.execute(_VERSIONS)
        row = db.execute("SELECT version FROM mintlify_async WHERE holds = ?", (self._holds,)).fetchone()
        if row == (self._version,):
            return
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if row is not None or there & self._tables.keys():
            found = None if row is None else row[0]
            what = f"the {self._holds} {self.path!r}"
            raise unknown_version(what, found, self._version, instead="another file")
        for name, columns in self._tables.items():
            db.execute(f"CREATE TABLE {name} {columns}")
        db.execute("INSERT INTO mintlify_async VALUES (?, ?)", (self._holds, self._version))


def _limiter() -> Any:
    """Return the running loop's limiter, so that a locked file takes no thread from anyone else."""
    import asyncio

    import anyio

    return _limiters.setdefault(asyncio.get_running_loop(), anyio.CapacityLimiter(THREADS))
