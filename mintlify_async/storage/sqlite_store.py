"""A store in a SQLite file: the tables, and each step as a function on the database."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigurationError
from ..runtime import dates
from ..runtime.closing import NothingToClose
from .sqlite_file import SQLiteFile
from .store import Record, Snapshot, TakeResult, Usage, Window, check_keep, damaged_record

__all__ = ["SQLiteStore"]

_TABLES: Final = """
CREATE TABLE records (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version TEXT NOT NULL, since REAL NOT NULL, ends REAL
);
CREATE INDEX records_ends ON records (ends) WHERE ends IS NOT NULL;
CREATE TABLE slots (log TEXT NOT NULL, slot TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (log, slot));
CREATE INDEX slots_at ON slots (log, at)
"""
DELETE_AFTER: Final = 30 * 86_400.0
"""Seconds after which an expired record is deleted: a clock that was ahead must not delete what is new."""

_LIVE: Final = "(ends IS NULL OR ends > ?)"
_GET: Final = f"SELECT key, value, version, since FROM records WHERE key = ? AND {_LIVE}"
_PUT: Final = "INSERT OR REPLACE INTO records (key, value, version, since, ends) VALUES (?, ?, ?, ?, ?)"
_SLOT: Final = "INSERT OR IGNORE INTO slots (log, slot, at) VALUES (?, ?, ?)"


class SQLiteStore(NothingToClose):
    """A store in a SQLite file, shared by all threads, event loops and processes of one computer.

    A step is on the disk when it returns. It raises :class:`~mintlify_async.errors.StateError` when the file
    cannot be used, when another process locks it for 10 s, and when another version of this package wrote it.
    It uses this computer's time. While the clock is ahead, records with *keep* cannot be seen, and slots are
    free early. When the clock is right again, the records are back, because they are deleted only 30 days
    after they expired.

    A new file is readable by its owner alone, because conversations contain the keys of threads.

    Args:
        path: The file. If it does not exist, it is created, but its folder is not. A relative path is made
            absolute immediately. Not on a network drive, whose locks cannot be trusted.
        keep: How long finished records are kept, in seconds. None keeps them forever.

    Raises:
        ConfigurationError: *path* is no path or names a database in memory, or *keep* is not finite.
    """

    def __init__(self, path: str | PathLike[str], *, keep: float | None = None) -> None:
        """Keep the path. The file is not opened yet."""
        try:
            name = os.fsdecode(path)
        except TypeError:
            name = ""
        if not name or "\0" in name or name == ":memory:" or name.startswith("file:"):
            raise ConfigurationError("path must name a file; in memory, use MemoryStore()", field="path")
        self.keep = check_keep(keep)
        self._file = SQLiteFile.at(str(Path(name).absolute()), holds="store", version=1, tables=_TABLES)

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteStore({self._file.path!r})"

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the records that exist under *keys*, and this computer's time."""

        def step(db: sqlite3.Connection) -> Snapshot:
            now = dates.now()
            rows = [row for key in keys for row in db.execute(_GET, (key, now))]
            return Snapshot(records={row[0]: self._record(*row) for row in rows}, now=now)

        return await self._file.run(step)

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        expected: Mapping[str, str | None],
        version: str,
        keep: float | None = None,
    ) -> bool:
        """If every record still has its *expected* version, make all *changes*. Else make none."""

        def step(db: sqlite3.Connection) -> bool:
            now = dates.now()
            db.execute("DELETE FROM records WHERE ends <= ?", (now - DELETE_AFTER,))
            if not all(_version(db, key, now) == name for key, name in expected.items()):
                written_keys = [key for key, value in changes.items() if value is not None]
                return bool(written_keys) and all(_version(db, key, now) == version for key in written_keys)
            ends = None if keep is None else now + keep
            for key, value in changes.items():
                if value is None:
                    db.execute("DELETE FROM records WHERE key = ?", (key,))
                else:
                    db.execute(_PUT, (key, value, version, now, ends))
            for key in expected.keys() - changes.keys():
                db.execute(f"UPDATE records SET ends = ? WHERE key = ? AND {_LIVE}", (ends, key, now))
            return True

        return await self._file.run(step)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with *prefix*, sorted."""
        question = f"SELECT key FROM records WHERE key >= ? AND key < ? AND {_LIVE} ORDER BY key"

        def step(db: sqlite3.Connection) -> list[str]:
            return [key for (key,) in db.execute(question, (prefix, prefix + "\U0010ffff", dates.now()))]

        return await self._file.run(step)

    async def take(self, windows: Sequence[Window], *, slot: str | None, block: str) -> TakeResult:
        """If every window has a free slot and there is no block, take *slot* in all windows."""

        def step(db: sqlite3.Connection) -> TakeResult:
            now = dates.now()
            ends = db.execute(f"SELECT ends FROM records WHERE key = ? AND {_LIVE}", (block, now)).fetchone()
            blocked = 0.0 if ends is None else math.inf if ends[0] is None else ends[0] - now
            logs = [_usage(db, window, now) for window in windows]
            is_taken = slot is not None and bool(windows) and all(_has(db, w, slot) for w in windows)
            if slot is not None and not blocked and all(usage.opens_in == 0 for usage in logs):
                is_taken = True
                db.executemany(_SLOT, [(window.key, slot, now) for window in windows])
                logs = [_usage(db, window, now) for window in windows]
            return TakeResult(taken=is_taken, blocked=blocked, usage=tuple(logs))

        return await self._file.run(step)

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Give *slot* back in every window. If it is not taken, do nothing."""

        def step(db: sqlite3.Connection) -> None:
            for window in windows:
                db.execute("DELETE FROM slots WHERE log = ? AND slot = ?", (window.key, slot))

        await self._file.run(step)

    def _record(self, key: str, value: object, version: object, since: object) -> Record:
        if not (isinstance(value, bytes) and isinstance(version, str) and isinstance(since, float)):
            raise damaged_record(f"the store {self._file.path!r}", key)
        return Record(value=value, version=version, since=since)


def _version(db: sqlite3.Connection, key: str, now: float) -> Any:
    row = db.execute(f"SELECT version FROM records WHERE key = ? AND {_LIVE}", (key, now)).fetchone()
    return None if row is None else row[0]


def _has(db: sqlite3.Connection, window: Window, slot: str) -> bool:
    question = "SELECT 1 FROM slots WHERE log = ? AND slot = ?"
    return db.execute(question, (window.key, slot)).fetchone() is not None


def _usage(db: sqlite3.Connection, window: Window, now: float) -> Usage:
    db.execute("DELETE FROM slots WHERE log = ? AND at <= ?", (window.key, now - window.seconds))
    (count,) = db.execute("SELECT count(*) FROM slots WHERE log = ?", (window.key,)).fetchone()
    opens_in = 0.0
    if count >= window.amount:
        question = "SELECT at FROM slots WHERE log = ? ORDER BY at LIMIT 1 OFFSET ?"
        (oldest,) = db.execute(question, (window.key, count - window.amount)).fetchone()
        opens_in = oldest + window.seconds - now
    return Usage(used=count, opens_in=opens_in)
