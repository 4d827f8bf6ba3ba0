"""The steps of a store as functions on an SQL database. A subclass opens the database."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from ..argument_checks import check_keep
from ..wrong_names import helpful
from .store import NothingToClose, Record, Snapshot, TakeResult, Usage, Window, damaged_record

if TYPE_CHECKING:  # loaded here, because few programs need it
    from sqlite3 import Connection

T = TypeVar("T")

TABLES: Final = """
CREATE TABLE records (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version TEXT NOT NULL, since REAL NOT NULL, ends REAL
);
CREATE INDEX records_ends ON records (ends) WHERE ends IS NOT NULL;
CREATE TABLE slots (log TEXT NOT NULL, slot TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (log, slot));
CREATE INDEX slots_at ON slots (log, at)
"""

_LIVE: Final = "(ends IS NULL OR ends > ?)"
_GET: Final = f"SELECT key, value, version, since FROM records WHERE key = ? AND {_LIVE}"
_CORRECT: Final = (
    "UPDATE records SET since = ?, ends = ? + (ends - since) "
    "WHERE key = ? AND since > ? AND typeof(since) = 'real'"  # a damaged record is not changed
)
_CORRECT_SLOTS: Final = "UPDATE slots SET at = ? WHERE log = ? AND at > ?"
_PUT: Final = "INSERT OR REPLACE INTO records (key, value, version, since, ends) VALUES (?, ?, ?, ?, ?)"
_NEXT_LOG: Final = "SELECT log FROM slots WHERE log > ? AND log < ? ORDER BY log LIMIT 1"
_EXPIRE: Final = "DELETE FROM slots WHERE log = ? AND at <= ?"
_SLOT: Final = "INSERT OR IGNORE INTO slots (log, slot, at) VALUES (?, ?, ?)"


@helpful
class SQLStore(NothingToClose):
    """A store in an SQL database.

    Args:
        keep: Seconds for which finished records are kept. None keeps them without limit.

    Raises:
        ConfigurationError: *keep* is not a finite number of 0 or more.
    """

    _delete_after: ClassVar[float]
    """Seconds after which an expired record is deleted."""

    def __init__(self, *, keep: float | None = None) -> None:
        """Store the argument."""
        self.keep = check_keep(keep)

    async def _run(self, step: Callable[[Connection, float], T]) -> T:
        """Return the result of *step* on the database, at the store's time. Make all changes or none."""
        raise NotImplementedError

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the existing records of *keys*, and the store's time."""

        def step(db: Connection, now: float) -> Snapshot:
            _correct(db, keys, now)
            rows = [row for key in keys for row in db.execute(_GET, (key, now))]
            return Snapshot(records={row[0]: self._record(*row) for row in rows}, now=now)

        return await self._run(step)

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        expected: Mapping[str, str | None],
        version: str,
        keep: float | None = None,
    ) -> bool:
        """If every record still has its *expected* version, make all *changes*. Otherwise make none."""

        def step(db: Connection, now: float) -> bool:
            db.execute("DELETE FROM records WHERE ends <= ?", (now - self._delete_after,))
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

        return await self._run(step)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with *prefix*, sorted."""
        question = f"SELECT key FROM records WHERE key >= ? AND key < ? AND {_LIVE} ORDER BY key"

        def step(db: Connection, now: float) -> list[str]:
            return [key for (key,) in db.execute(question, (prefix, prefix + "\U0010ffff", now))]

        return await self._run(step)

    async def drop_expired(self, prefix: str = "") -> None:
        """Delete expired records, which no call returns any more.

        Without this call, a :class:`MemoryStore` deletes them at its next write. The file of a
        :class:`SQLiteStore` contains them for 30 days or more, because the computer's clock may be wrong.
        :meth:`mintlify_async.Conversation.delete` calls this method for the turns of the conversation.

        Args:
            prefix: The start of the keys. An empty text means all records.

        Raises:
            StateError: The store cannot be used.
        """

        def step(db: Connection, now: float) -> None:
            db.execute(
                f"DELETE FROM records WHERE key >= ? AND key < ? AND NOT {_LIVE}",
                (prefix, prefix + "\U0010ffff", now),
            )

        await self._run(step)

    async def take(self, windows: Sequence[Window], *, slot: str | None, block: str) -> TakeResult:
        """If every window has a free slot and there is no block, take *slot* in all windows."""

        def step(db: Connection, now: float) -> TakeResult:
            _correct(db, [block], now)
            ends = db.execute(f"SELECT ends FROM records WHERE key = ? AND {_LIVE}", (block, now)).fetchone()
            block_seconds = 0.0 if ends is None else math.inf if ends[0] is None else ends[0] - now
            counts = [_count(db, window, now) for window in windows]
            is_free = all(count < window.amount for count, window in zip(counts, windows, strict=True))
            is_taken = slot is not None and bool(windows) and all(_has(db, w, slot) for w in windows)
            if slot is not None and not is_taken and not block_seconds and is_free:
                is_taken = True
                db.executemany(_SLOT, [(window.key, slot, now) for window in windows])
                for window in (w for w, count in zip(windows, counts, strict=True) if not count):
                    _expire_others(db, window, slot, now)
                counts = [count + 1 for count in counts]
            usage = [_usage(db, window, count, now) for window, count in zip(windows, counts, strict=True)]
            return TakeResult(taken=is_taken, blocked=block_seconds, usage=tuple(usage))

        return await self._run(step)

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Return *slot* to every window. If it is not taken, do nothing."""

        def step(db: Connection, now: float) -> None:
            for window in windows:
                db.execute("DELETE FROM slots WHERE log = ? AND slot = ?", (window.key, slot))

        await self._run(step)

    def _record(self, key: str, value: object, version: object, since: object) -> Record:
        if not (isinstance(value, bytes) and isinstance(version, str) and isinstance(since, float)):
            raise damaged_record(repr(self), key)
        return Record(value=value, version=version, since=since)


def _correct(db: Connection, keys: Collection[str], now: float) -> None:
    """Set the date of records under *keys* to *now* if a clock that was ahead has dated them later.

    Their age then counts from now on. It is not enough to treat them as new, because they would stay new
    until the clock has reached their date.
    """
    db.executemany(_CORRECT, [(now, now, key, now) for key in keys])


def _version(db: Connection, key: str, now: float) -> Any:
    row = db.execute(f"SELECT version FROM records WHERE key = ? AND {_LIVE}", (key, now)).fetchone()
    return None if row is None else row[0]


def _has(db: Connection, window: Window, slot: str) -> bool:
    question = "SELECT 1 FROM slots WHERE log = ? AND slot = ?"
    return db.execute(question, (window.key, slot)).fetchone() is not None


def _count(db: Connection, window: Window, now: float) -> int:
    db.execute(_CORRECT_SLOTS, (now, window.key, now))  # see _correct
    db.execute(_EXPIRE, (window.key, now - window.seconds))
    (count,) = db.execute("SELECT count(*) FROM slots WHERE log = ?", (window.key,)).fetchone()
    return int(count)


def _expire_others(db: Connection, window: Window, slot: str, now: float) -> None:
    """Delete the expired slots of two other logs with the same window. *slot*, a random name, selects them.

    The log of a user who does not come again is never counted. Each new log checks two other logs, so there
    are never more expired logs than others.
    """
    folder = window.key.rpartition(":")[0]
    key = f"{folder}:{slot}"
    for _ in range(2 if folder else 0):
        row = db.execute(_NEXT_LOG, (key, f"{folder};")).fetchone()
        row = row or db.execute(_NEXT_LOG, (f"{folder}:", f"{folder};")).fetchone()
        if row is None:
            return
        (key,) = row
        db.execute(_EXPIRE, (key, now - window.seconds))


def _usage(db: Connection, window: Window, count: int, now: float) -> Usage:
    if count < window.amount:
        return Usage(used=count, opens_in=0.0)
    question = "SELECT at FROM slots WHERE log = ? ORDER BY at LIMIT 1 OFFSET ?"
    (oldest,) = db.execute(question, (window.key, count - window.amount)).fetchone()
    return Usage(used=count, opens_in=oldest + window.seconds - now)
