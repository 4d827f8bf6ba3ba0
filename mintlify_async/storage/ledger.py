"""Ledgers: which job creations were claimed, and the job that came of each.

A claim is written before the request is sent, and the job's id after it was
answered. A claim without a job id may have been sent, so its request must not
be sent again.
"""

from __future__ import annotations

import threading
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import astuple, evolve, frozen

from ..errors import ConfigurationError, printable
from .sqlite import SQLiteFile

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Claim", "Ledger", "MemoryLedger", "SQLiteLedger", "check_job_id", "no_open_claim"]

BUSY_SECONDS: Final = 30.0
"""How long a step waits for another process's write, in seconds. A write takes milliseconds."""


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
        ...

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open; do nothing when the key has another claim, or none."""
        ...

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        ...

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        ...

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim of *key* by hand: *job_id* is the job that was created."""
        ...

    async def forget(self, key: str) -> None:
        """Delete *key* by hand; its request can be sent again."""
        ...


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


class MemoryLedger:
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


_TABLE = """
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    token TEXT NOT NULL,
    claimed_at REAL NOT NULL,
    lease_until REAL NOT NULL,
    job_id TEXT
)"""

_COLUMNS = "key, fingerprint, token, claimed_at, lease_until, job_id"


class SQLiteLedger:
    """A ledger in a SQLite file, safe among threads, event loops and processes of one computer.

    Each step is one transaction on its own connection, in a worker thread; no
    connection stays open. Every step raises ``StateError`` when the file cannot
    be used, or stays locked for 30 s.

    Args:
        path: The file; it is created when it does not exist. Not on a network drive, whose
            locks cannot be trusted.

    Raises:
        ConfigurationError: *path* is not a path, or is ``:memory:``.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Keep the path; the file is not opened yet."""
        self._file = SQLiteFile(
            path, holds="ledger", in_memory="MemoryLedger", table=_TABLE, busy_seconds=BUSY_SECONDS
        )

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteLedger({self._file.path!r})"

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return the claim that the key has now."""
        insert = f"INSERT INTO claims ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"

        def step(db: sqlite3.Connection) -> Claim:
            db.execute(insert, astuple(claim))
            return _find(db, claim.key) or claim

        return await self._file.run(step)

    async def record(self, claim: Claim, job_id: str) -> None:
        """Add *job_id* to *claim*; do nothing when the key has another claim by now."""
        await self._file.run(
            lambda db: db.execute(
                "UPDATE claims SET job_id = ? WHERE key = ? AND token = ?", (job_id, claim.key, claim.token)
            )
        )

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open."""
        await self._file.run(
            lambda db: db.execute(
                "DELETE FROM claims WHERE key = ? AND token = ? AND job_id IS NULL", (claim.key, claim.token)
            )
        )

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
        check_job_id(job_id)
        change = "UPDATE claims SET job_id = ? WHERE key = ? AND (job_id IS NULL OR job_id = ?)"
        changed = await self._file.run(lambda db: db.execute(change, (job_id, key, job_id)).rowcount)
        if not changed:
            raise no_open_claim(key)

    async def forget(self, key: str) -> None:
        """Delete *key*; its request can be sent again."""
        await self._file.run(lambda db: db.execute("DELETE FROM claims WHERE key = ?", (key,)))


def _find(db: sqlite3.Connection, key: str) -> Claim | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM claims WHERE key = ?", (key,)).fetchone()
    return None if row is None else _read(row)


def _read(row: tuple[Any, ...]) -> Claim:
    return Claim(**dict(zip(_COLUMNS.split(", "), row, strict=True)))
