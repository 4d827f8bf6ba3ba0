"""Ledgers: which job creations were claimed, and which job each one led to.

A claim is written before the request is sent, and the job's id after it was
answered. A claim without a job id may have been sent, so its request must not
be sent again.
"""

from __future__ import annotations

import math
import threading
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import astuple, evolve, frozen

from ..errors import ConfigurationError, printable
from ..runtime.closing import NothingToClose
from .sqlite import SQLiteFile

if TYPE_CHECKING:
    import sqlite3

NAME_MAX_CHARACTERS: Final = 200
"""Longest id and owner: short enough for the keys of every common database."""

LEASE_MARGIN: Final = 5.0
"""Seconds that a claim stays valid after its request must have ended."""

SHORTEST_BUSY: Final = 0.1
LONGEST_BUSY: Final = 30.0
"""A claim waits this long for another process's lock, in seconds, within what its call may last."""


@frozen(kw_only=True)
class Claim:
    """A claim on a key: the call that holds it may send the request for *key*.

    Args:
        key: The ``dedupe_key``.
        fingerprint: A hash of the project and the prompt.
        token: A random name of the call that made the claim.
        claimed_at: When it was made, in seconds since the epoch.
        lease_until: Until when other calls wait for the outcome, in seconds since the epoch.
        job_id: The job that was created; None while the outcome is open.
    """

    key: str
    fingerprint: str
    token: str
    claimed_at: float
    lease_until: float
    job_id: str | None = None


class Ledger(Protocol):
    """Where claims are kept.

    Each method is one atomic step and limits its own time. A claim must be
    durable, and visible to every other process, before :meth:`claim` returns.
    """

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return the claim that the key has now."""
        ...

    async def record(self, claim: Claim, job_id: str) -> None:
        """Add *job_id* to *claim*; do nothing when the key has another claim by now."""

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open; do nothing when the key has another claim, or none."""

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        ...

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        ...

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim of *key* by hand: *job_id* is the job that was created."""

    async def forget(self, key: str) -> None:
        """Delete *key* by hand; its request can be sent again."""


def check_name(name: object, field: str, *, max_characters: int = NAME_MAX_CHARACTERS) -> str:
    """Return *name* when every store can keep it, as an id, an owner or a key.

    Raises:
        ConfigurationError: It is not a string, is empty or too long, or has a NUL or a lone surrogate.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{field} must be a string that is not empty", field=field)
    if len(name) > max_characters:
        raise ConfigurationError(
            f"{field} has {len(name)} characters; at most {max_characters} are allowed", field=field
        )
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        raise ConfigurationError(
            f"{field} has a NUL or a lone surrogate, which databases refuse", field=field
        )
    return name


def check_job_id(job_id: object) -> str:
    """Return *job_id* when it is a string that is not empty.

    Raises:
        ConfigurationError: It is something else.
    """
    if not isinstance(job_id, str) or not job_id:
        raise ConfigurationError("job_id must be a string that is not empty", field="job_id")
    return job_id


def no_open_claim(key: str) -> ConfigurationError:
    """Return the error for resolving a key without an open claim."""
    return ConfigurationError(
        f"the ledger has no open claim {printable(key)!r}; see open_claims()", field="key"
    )


class MemoryLedger(NothingToClose):
    """A ledger in memory: lost when the process ends, safe among its threads and event loops."""

    def __init__(self) -> None:
        """Start empty."""
        self._claims: dict[str, Claim] = {}
        self._lock = threading.Lock()

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return the claim that the key has now."""
        with self._lock:
            return self._claims.setdefault(claim.key, claim)

    async def record(self, claim: Claim, job_id: str) -> None:
        """Add *job_id* to *claim*; do nothing when the key has another claim by now."""
        with self._lock:
            if self._holds(claim):
                self._claims[claim.key] = evolve(claim, job_id=job_id)

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open."""
        with self._lock:
            if self._holds(claim) and self._claims[claim.key].job_id is None:
                del self._claims[claim.key]

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        with self._lock:
            return self._claims.get(key)

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        with self._lock:
            found = [claim for claim in self._claims.values() if claim.job_id is None]
        return sorted(found, key=lambda claim: claim.claimed_at)

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim of *key*: *job_id* is the job that was created.

        Raises:
            ConfigurationError: The key has no open claim.
        """
        check_job_id(job_id)
        with self._lock:
            found = self._claims.get(key)
            if found is None or found.job_id not in (None, job_id):
                raise no_open_claim(key)
            self._claims[key] = evolve(found, job_id=job_id)

    async def forget(self, key: str) -> None:
        """Delete *key*; its request can be sent again."""
        with self._lock:
            self._claims.pop(key, None)

    def _holds(self, claim: Claim) -> bool:
        held = self._claims.get(claim.key)
        return held is not None and held.token == claim.token


_TABLE = """(
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    token TEXT NOT NULL,
    claimed_at REAL NOT NULL,
    lease_until REAL NOT NULL,
    job_id TEXT
)"""

_COLUMNS = "key, fingerprint, token, claimed_at, lease_until, job_id"
_INSERT = f"INSERT INTO claims ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_RECORD = "UPDATE claims SET job_id = ? WHERE key = ? AND token = ?"
_RELEASE = "DELETE FROM claims WHERE key = ? AND token = ? AND job_id IS NULL"
_RESOLVE = "UPDATE claims SET job_id = ? WHERE key = ? AND (job_id IS NULL OR job_id = ?)"
_EXPIRE = "DELETE FROM claims WHERE job_id IS NOT NULL AND claimed_at < ?"


class SQLiteLedger(NothingToClose):
    """A ledger in a SQLite file, safe among threads, event loops and processes of one computer.

    Each step is one transaction on its own connection, in a worker thread; no
    connection stays open. A step raises ``StateError`` when the file cannot be
    used, or stays locked for 5 s, a claim's for as long as its call may last, or
    when the file was written by another version of this package; a cancelled step
    ends within a second.

    Args:
        path: The file; it is created when it does not exist. Not on a network drive, whose
            locks cannot be trusted.
        keep: How long a key is kept after it was claimed, in seconds, once its job is recorded;
            None keeps it for good. Open claims are always kept.

    Raises:
        ConfigurationError: *path* is not a path, or is ``:memory:``; or *keep* is not above 0.
    """

    def __init__(self, path: str | PathLike[str], *, keep: float | None = None) -> None:
        """Keep the path; the file is not opened yet."""
        if keep is not None and not 0 < keep < math.inf:
            raise ConfigurationError(f"keep must be a number of seconds above 0, not {keep!r}", field="keep")
        self._file = SQLiteFile(
            path, holds="ledger", in_memory="MemoryLedger", tables={"claims": _TABLE}, version=1
        )
        self._keep = keep

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteLedger({self._file.path!r})"

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return the claim that the key has now."""

        def step(db: sqlite3.Connection) -> Claim:
            if self._keep is not None:
                db.execute(_EXPIRE, (claim.claimed_at - self._keep,))
            db.execute(_INSERT, astuple(claim))
            return _find(db, claim.key) or claim

        seconds = claim.lease_until - claim.claimed_at - LEASE_MARGIN
        return await self._file.run(step, busy_seconds=min(max(seconds, SHORTEST_BUSY), LONGEST_BUSY))

    async def record(self, claim: Claim, job_id: str) -> None:
        """Add *job_id* to *claim*; do nothing when the key has another claim by now."""
        await self._file.change(_RECORD, job_id, claim.key, claim.token)

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open."""
        await self._file.change(_RELEASE, claim.key, claim.token)

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        return await self._file.run(lambda db: _find(db, key))

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        question = f"SELECT {_COLUMNS} FROM claims WHERE job_id IS NULL ORDER BY claimed_at"
        return await self._file.run(lambda db: [_read(row) for row in db.execute(question)])

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim of *key*: *job_id* is the job that was created.

        Raises:
            ConfigurationError: The key has no open claim.
        """
        if not await self._file.change(_RESOLVE, check_job_id(job_id), key, job_id):
            raise no_open_claim(key)

    async def forget(self, key: str) -> None:
        """Delete *key*; its request can be sent again."""
        await self._file.change("DELETE FROM claims WHERE key = ?", key)


def _find(db: sqlite3.Connection, key: str) -> Claim | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM claims WHERE key = ?", (key,)).fetchone()
    return None if row is None else _read(row)


def _read(row: tuple[Any, ...]) -> Claim:
    return Claim(**dict(zip(_COLUMNS.split(", "), row, strict=True)))
