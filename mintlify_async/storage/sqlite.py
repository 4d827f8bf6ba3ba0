"""SQLite files: each step of a store is one transaction in a worker thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import ConfigurationError, StateError, printable

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SQLiteFile"]

T = TypeVar("T")


class SQLiteFile:
    """A SQLite file with one table, which is opened anew for each step.

    No connection stays open between two steps, so one object may be used by
    several threads, event loops and processes, also after a fork.

    Args:
        path: The file. It is created when it does not exist; its folder is not.
        holds: What the file holds, for error messages: ``"ledger"``.
        in_memory: The class to use for a store in memory, for error messages.
        table: The ``CREATE TABLE IF NOT EXISTS`` statement.
        busy_seconds: How long a step waits for another process's lock.
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
        table: str,
        busy_seconds: float,
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
        self._table = table
        self._busy_seconds = busy_seconds
        self._private = private

    async def run(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Run *step* in one transaction, in a worker thread, and return its result.

        Raises:
            StateError: The file cannot be used, or stays locked.
        """
        import anyio.to_thread  # loaded when it is used: few programs keep anything in a file

        return await anyio.to_thread.run_sync(self._run_in_thread, step)

    def _run_in_thread(self, step: Callable[[sqlite3.Connection], T]) -> T:
        import sqlite3  # loaded when it is used, as above

        try:
            with self._transaction() as db:
                return step(db)
        except (sqlite3.Error, OSError) as error:
            reason = printable(str(error))
        raise StateError(f"the {self._holds} {self.path!r} cannot be used: {reason}")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        import sqlite3

        if self._private and not Path(self.path).exists():
            # SQLite would create the file with the mode that the umask gives.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")  # a claim lost in a power cut would be sent twice
            db.execute("BEGIN IMMEDIATE")  # take the write lock first: nothing changes between read and write
            try:
                db.execute(self._table)
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
