"""SQLite files. Each file has one thread. It commits all waiting steps together.

SQLite allows one writer at a time. So the steps of a process wait in one line. When the thread gets the
file's lock, it runs all of them in one transaction. No connection stays open between transactions, so several
threads, event loops and processes may use a file. A process may be forked between two transactions. If it is
forked during a transaction, SQLite in the child finds the file locked forever.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent import futures
from contextlib import closing, contextmanager, suppress
from time import monotonic, sleep  # the thread has no event loop, so it cannot use loop.time()
from typing import Any, ClassVar, Final, TypeVar, cast
from weakref import WeakValueDictionary

from ..argument_checks import EXITING, is_exiting
from ..errors import StateError, printable
from ..runtime.logs import logged_if_slow
from .sql_store import TABLES
from .store import unknown_version

T = TypeVar("T")

BUSY_SECONDS: Final = 10.0
"""Time for which a step waits while another process has the lock, in seconds. A commit takes milliseconds.
``FIRST_BYTE_SECONDS`` in ``http/send_progress.py`` also limits the step that marks a claim as *sending*."""

TRY_SECONDS: Final = 0.25
"""Maximum time of one attempt to get the lock, in seconds. Cancelled steps end between two attempts."""

PAUSE_SECONDS: Final = 0.01
"""Seconds between two attempts, because SQLite may report immediately that the file is locked."""

CONTENT: Final = {"store": 1}
"""The tables of a file, with their version. A file with other tables is refused."""

REMEDIES: Final = {
    sqlite3.SQLITE_CANTOPEN: "create its folder, or correct the path or its permissions",
    sqlite3.SQLITE_READONLY: "correct the path or its permissions",
    sqlite3.SQLITE_PERM: "correct the path or its permissions",
    sqlite3.SQLITE_BUSY: "end the process that keeps it locked, or use another file",
    sqlite3.SQLITE_FULL: "free some disk space",
    sqlite3.SQLITE_IOERR: "check the disk, and that the path is on no network drive",
    sqlite3.SQLITE_NOTADB: "use another path, or restore the file",
    sqlite3.SQLITE_CORRUPT: "use another path, or restore the file",
}
"""Maps kinds of SQLite errors to advice for the user."""

_VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS mintlify_async (holds TEXT PRIMARY KEY, version INTEGER NOT NULL)"
)
"""The table with the file's content and version. It never changes, because version 0.2 also wrote it."""


class _Step:
    """A function to run on the database, and its result."""

    def __init__(self, function: Callable[[sqlite3.Connection], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.error: Exception | None = None
        self.until: float | None = None  # the time to give up, or None until SQLite refuses the lock
        self.over = False  # done, failed or cancelled


class SQLiteFile:
    """A file with the tables of a store. The tables are made if the file is new.

    Args:
        path: The absolute path. If the file does not exist, it is created. Its folder must exist.
    """

    _files: ClassVar[WeakValueDictionary[str, SQLiteFile]] = WeakValueDictionary()

    def __init__(self, path: str) -> None:
        self.path = path
        self._restart()

    def _restart(self) -> None:
        self._line: list[_Step] = []
        self._lock = threading.Lock()
        # The first use of ThreadPoolExecutor imports a module, which fails while Python exits.
        with self._not_at_exit():
            self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="mintlify-async-sqlite")
        self._pid = os.getpid()

    @contextmanager
    def _not_at_exit(self) -> Generator[None]:
        try:
            yield
        except RuntimeError as error:
            if not is_exiting(error):
                raise
            raise StateError(f"the store {self.path!r} cannot be used: {EXITING}") from None

    @classmethod
    def at(cls, path: str) -> SQLiteFile:
        """Return the file at *path*, the same object for all stores of this process."""
        return cls._files.setdefault(path, cls(path))

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run *function* in a transaction. Return its result after the transaction is on the disk.

        If a call is cancelled, it ends immediately. Its step was then already done, or is never done.

        Raises:
            StateError: The file cannot be used, was locked for 10 s, or has another version.
        """
        if self._pid != os.getpid():  # the parent has the threads
            self._restart()
        step = _Step(function)
        with self._lock:
            self._line.append(step)
        try:
            with (
                logged_if_slow("%s: the disk is slow, or another process keeps the file locked", self.path),
                self._not_at_exit(),
            ):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._serve, step)
        finally:
            step.over = True
        if step.error is not None:
            raise self._error(step.error)
        return cast("T", step.result)

    def _serve(self, step: _Step) -> None:
        """Commit the waiting steps until *step* is over. Runs in the thread, once for each step."""
        while not step.over:
            try:
                self._commit()
            except (sqlite3.Error, OSError, StateError) as error:
                self._refuse(error)

    def _commit(self) -> None:
        with suppress(FileExistsError):  # SQLite would create the file with the mode from the umask
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(self.path, timeout=TRY_SECONDS, isolation_level=None)) as db:
            # Otherwise a power cut could lose a claim, and its request would be sent twice.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            self._check_tables(db)
            steps = self._waiting()
            for step in steps:
                _run(db, step)
            db.execute("COMMIT")  # if the commit is not reached, close() rolls back
        for step in steps:
            step.over = True

    def _waiting(self) -> list[_Step]:
        with self._lock:
            self._line = [step for step in self._line if not step.over]
            return list(self._line)

    def _refuse(self, error: Exception) -> None:
        """Fail the waiting steps. If the file is locked, fail only the steps whose time has passed."""
        now = monotonic()
        for step in self._waiting():
            if step.until is None:
                step.until = now + BUSY_SECONDS
            if now >= step.until or not _is_locked(error):
                step.error = error
                step.over = True
        if _is_locked(error):
            sleep(PAUSE_SECONDS)

    def _error(self, error: Exception) -> StateError:
        if isinstance(error, StateError):
            return StateError(*error.args)
        text = f"the store {self.path!r} cannot be used: {printable(str(error))}"
        remedy = _remedy(error)
        return StateError(f"{text}; {remedy}" if remedy else text)

    def _check_tables(self, db: sqlite3.Connection) -> None:
        """Make the tables in a new file. Refuse a file with other tables."""
        db.execute(_VERSIONS)
        content = dict(db.execute("SELECT holds, version FROM mintlify_async"))
        if content == CONTENT:
            return
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if content or tables != ["mintlify_async"]:
            raise unknown_version(f"the store {self.path!r}", _named(content), _named(CONTENT))
        for statement in TABLES.split(";"):
            db.execute(statement)
        db.executemany("INSERT INTO mintlify_async VALUES (?, ?)", CONTENT.items())


def _run(db: sqlite3.Connection, step: _Step) -> None:
    """Run *step*. If it fails, undo only this step."""
    db.execute("SAVEPOINT step")
    step.error = None
    try:
        step.result = step.function(db)
    except Exception as error:
        if not db.in_transaction:  # SQLite has undone all steps
            raise
        step.error = error
        db.execute("ROLLBACK TO step")
    db.execute("RELEASE step")


def _kind(error: Exception) -> int:
    # The lowest eight bits are the kind of the error. The other bits are details.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_locked(error: Exception) -> bool:
    return _kind(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _remedy(error: Exception) -> str | None:
    if isinstance(error, OSError):  # from a file that could not be created
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return REMEDIES[sqlite3.SQLITE_FULL if is_full else sqlite3.SQLITE_CANTOPEN]
    return REMEDIES.get(_kind(error))


def _named(content: dict[str, int]) -> str | None:
    return ", ".join(f"{holds} {version}" for holds, version in content.items()) or None
