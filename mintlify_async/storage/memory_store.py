"""A store in the process's memory."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ..runtime import clock
from .sql_store import TABLES, SQLStore

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")


class MemoryStore(SQLStore):
    """A store in memory, shared by all threads and event loops of the process. It is lost with the process.

    The store's time runs evenly, even if the computer's clock is changed.

    Do not fork a process whose other threads use the store, because the child may hang. Start worker
    processes with the start method ``spawn``, or before the first call.

    Args:
        keep: Seconds for which finished records are kept. None keeps them without limit.

    Raises:
        ConfigurationError: *keep* is not a finite number of 0 or more.
    """

    _delete_after: ClassVar[float] = 0.0

    def __init__(self, *, keep: float | None = None) -> None:
        """Start without records."""
        import sqlite3  # loaded here, because few programs need it

        super().__init__(keep=keep)
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.executescript(TABLES)
        self._lock = threading.Lock()
        self._start: float | None = None  # the date at which the loop's time was 0
        weakref.finalize(self, self._db.close)

    def __repr__(self) -> str:
        """Show the number of records."""
        (count,) = self._db.execute("SELECT count(*) FROM records").fetchone()
        return f"<MemoryStore, {count} records>"

    async def _run(self, step: Callable[[Connection, float], T]) -> T:
        with self._lock, self._db:
            time = asyncio.get_running_loop().time()  # in the lock, so that steps of threads have an order
            if self._start is None:
                self._start = clock.now() - time
            return step(self._db, self._start + time)
