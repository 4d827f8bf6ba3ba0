"""A key that names a creation, and the creation, come in; at most one POST and its job's id go out.

The claim is written before the POST and the job's id after it. What has a claim
and no id was, or may have been, sent: nothing here ever sends it again.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from os import PathLike, fspath
from typing import Any, Final, Protocol, TypeVar

import anyio.lowlevel
import anyio.to_thread
from attrs import astuple, evolve, frozen

from .cancellation import finish_shielded
from .clock import Clock
from .errors import (
    APIConnectionError,
    APIStatusError,
    ConfigurationError,
    OutcomeUnknownError,
    QuotaExceededError,
    StateError,
    printable,
)
from .models import Job

__all__ = ["Claim", "Ledger", "MemoryLedger", "SQLiteLedger", "create_once", "fingerprint", "had_no_effect"]

_log = logging.getLogger("mintlify_async")

KEY_MAX_CHARACTERS: Final = 512
"""Longest key. Every store takes that much as a primary key; a whole prompt is not meant to be one."""

FIRST_LOOK: Final = 0.05
"""Seconds until the loser of a race first looks again; a create takes some 0.2 s. Doubles each time."""

LONGEST_PAUSE: Final = 1.0
"""Most seconds between two looks of the loser."""

BUSY_SECONDS: Final = 30.0
"""How long one process waits for another's write to a SQLite file; a write takes milliseconds."""

T = TypeVar("T")


@frozen(kw_only=True)
class Claim:
    """Somebody's word that the creation *key* is theirs to send.

    Args:
        key: The ``dedupe_key``.
        fingerprint: Names the project and the prompt without repeating them.
        token: Names the one who claimed.
        claimed_at: When, in seconds since the epoch.
        lease_until: Until when the others wait for the outcome, in seconds since the epoch.
        job_id: The job that came of it; None while that is open.
    """

    key: str
    fingerprint: str
    token: str
    claimed_at: float
    lease_until: float
    job_id: str | None = None


class Ledger(Protocol):
    """Where claims are kept. Each method is one atomic step, and bounds its own time.

    Whoever writes a ledger: :meth:`claim` must be durable, and seen by every
    other process, before it returns.
    """

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return what the key holds now."""
        ...

    async def record(self, claim: Claim, job_id: str) -> None:
        """Write *job_id* beside *claim*; nothing when the key holds another claim by now."""
        ...

    async def release(self, claim: Claim) -> None:
        """Drop *claim* while it is open; nothing when the key holds another claim, or none."""
        ...

    async def find(self, key: str) -> Claim | None:
        """Return what *key* holds, or None."""
        ...

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        ...

    async def resolve(self, key: str, job_id: str) -> None:
        """Write down, for a person who has looked, which job came of the open claim *key*."""
        ...

    async def forget(self, key: str) -> None:
        """Drop *key*, for a person who has looked: it can be sent again."""
        ...


def fingerprint(project_id: str, prompt: str) -> str:
    """Return a name for the pair that repeats neither."""
    text = f"{len(project_id)}:{project_id}{prompt}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def had_no_effect(error: BaseException) -> bool:
    """Return whether *error* proves that an agent POST started nothing: not sent, or refused."""
    if isinstance(error, APIConnectionError):
        return error.sent == "no"
    if isinstance(error, APIStatusError):
        return 400 <= error.status < 500  # a 303 would say that it was done, and the others prove nothing
    return isinstance(error, QuotaExceededError | ConfigurationError)


# The rules ------------------------------------------------------------------------------------


async def create_once(
    ledger: Ledger,
    key: str,
    fingerprint: str,
    lease: float,
    send: Callable[[], Awaitable[Job]],
    clock: Clock,
) -> str | Job:
    """Create a job unless *key* already has one; never send twice.

    Args:
        ledger: Where the claims are.
        key: Names this creation, for ever and for everybody who shares the ledger.
        fingerprint: What :func:`fingerprint` says of project and prompt.
        lease: How long the others wait for the outcome, in seconds: the request's
            timeout and a little more.
        send: Makes the one POST.
        clock: The session's.

    Returns:
        The new job; or the id of the job that the key already has.

    Raises:
        ConfigurationError: The key is none, or was used for another prompt or project.
        OutcomeUnknownError: Somebody claimed the key, and what became of it is not known.
        MintlifyError: What *send* or the ledger raises; only what had no effect frees the key.
    """
    check_key(key)
    while True:
        now = clock.wall()
        ours = Claim(
            key=key, fingerprint=fingerprint, token=uuid.uuid4().hex, claimed_at=now, lease_until=now + lease
        )
        held = await _claim(ledger, ours)
        if held.token == ours.token:
            return await _send(ledger, ours, send)
        job_id = await _outcome_of(ledger, held, ours, clock)
        if job_id is not None:
            return job_id


def check_key(key: object) -> str:
    """Return *key* when it can be a ``dedupe_key``."""
    if not isinstance(key, str) or not key.strip():
        raise ConfigurationError("dedupe_key must be a string that is not empty", field="dedupe_key")
    if len(key) > KEY_MAX_CHARACTERS:
        raise ConfigurationError(
            f"dedupe_key has {len(key)} characters; the longest is {KEY_MAX_CHARACTERS}", field="dedupe_key"
        )
    if "\0" in key or any("\ud800" <= character <= "\udfff" for character in key):
        raise ConfigurationError("dedupe_key has a character that no ledger keeps", field="dedupe_key")
    return key


async def _claim(ledger: Ledger, ours: Claim) -> Claim:
    """Claim. Cancelled meanwhile, the claim is dropped again: nothing was sent yet."""
    try:
        held = await finish_shielded(ledger.claim(ours))
        await anyio.lowlevel.checkpoint()  # the last place at which it is certain that nothing was sent
    except BaseException:
        await _release(ledger, ours)
        raise
    return held


async def _send(ledger: Ledger, ours: Claim, send: Callable[[], Awaitable[Job]]) -> Job:
    """Send, and write down what became of it. Whatever is not certain leaves the claim open."""
    try:
        job = await send()
    except Exception as error:
        if had_no_effect(error):
            await _release(ledger, ours)
        raise
    try:
        await finish_shielded(ledger.record(ours, job.id))
    except Exception:  # the job is there and paid for: a broken ledger must not lose it
        _log.exception("job %s was created, but the ledger did not record it", printable(job.id))
    return job


async def _release(ledger: Ledger, ours: Claim) -> None:
    """Drop the claim. A ledger that fails at it leaves it open, and the first error stands."""
    try:
        await finish_shielded(ledger.release(ours))
    except Exception:
        _log.exception("the ledger did not release a claim of which nothing was sent; see open_claims()")


async def _outcome_of(ledger: Ledger, held: Claim, ours: Claim, clock: Clock) -> str | None:
    """Wait for the claim *held* by another; return its job's id, or None when it was released."""
    pause = FIRST_LOOK
    found: Claim | None = held
    while found is not None:
        if found.fingerprint != ours.fingerprint:
            raise ConfigurationError(
                f"dedupe_key {printable(ours.key)!r} was used for another prompt or project; use another key",
                field="dedupe_key",
            )
        if found.job_id is not None:
            return found.job_id
        left = found.lease_until - clock.wall()
        if left <= 0:
            raise _unknown(found)
        await clock.sleep(min(pause, left))
        pause = min(LONGEST_PAUSE, pause * 2)
        found = await ledger.find(ours.key)
    return None


def _unknown(claim: Claim) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"a creation with dedupe_key {printable(claim.key)!r} was begun and its outcome never recorded: "
        "the job may exist. Look at the dashboard, then use the ledger's resolve(key, job_id) or forget(key)",
        operation="create_job",
        sent_at=claim.claimed_at,
    )


# In memory ------------------------------------------------------------------------------------


class MemoryLedger:
    """Claims of this process, gone with it; safe among its threads and loops."""

    def __init__(self) -> None:
        """Begin empty."""
        self._claims: dict[str, Claim] = {}
        self._lock = threading.Lock()

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return what the key holds now."""
        with self._lock:
            return self._claims.setdefault(claim.key, claim)

    async def record(self, claim: Claim, job_id: str) -> None:
        """Write *job_id* beside *claim*; nothing when the key holds another claim by now."""
        with self._lock:
            if self._holds(claim):
                self._claims[claim.key] = evolve(claim, job_id=job_id)

    async def release(self, claim: Claim) -> None:
        """Drop *claim* while it is open."""
        with self._lock:
            if self._holds(claim) and self._claims[claim.key].job_id is None:
                del self._claims[claim.key]

    async def find(self, key: str) -> Claim | None:
        """Return what *key* holds, or None."""
        with self._lock:
            return self._claims.get(key)

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        with self._lock:
            found = [claim for claim in self._claims.values() if claim.job_id is None]
        return sorted(found, key=lambda claim: claim.claimed_at)

    async def resolve(self, key: str, job_id: str) -> None:
        """Write down which job came of the open claim *key*.

        Raises:
            ConfigurationError: The key holds no open claim.
        """
        check_job_id(job_id)
        with self._lock:
            found = self._claims.get(key)
            if found is None or found.job_id not in (None, job_id):
                raise no_open_claim(key)
            self._claims[key] = evolve(found, job_id=job_id)

    async def forget(self, key: str) -> None:
        """Drop *key*: it can be sent again."""
        with self._lock:
            self._claims.pop(key, None)

    def _holds(self, claim: Claim) -> bool:
        held = self._claims.get(claim.key)
        return held is not None and held.token == claim.token


def check_job_id(job_id: object) -> str:
    """Return *job_id* when it can be one."""
    if not isinstance(job_id, str) or not job_id:
        raise ConfigurationError("job_id must be a string that is not empty", field="job_id")
    return job_id


def no_open_claim(key: str) -> ConfigurationError:
    """Return the error of resolving a key that is not open."""
    return ConfigurationError(
        f"the ledger has no open claim {printable(key)!r}; see open_claims()", field="key"
    )


# In a file ------------------------------------------------------------------------------------

_TABLE = """
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    token TEXT NOT NULL,
    claimed_at REAL NOT NULL,
    lease_until REAL NOT NULL,
    job_id TEXT
)"""

_WRITE = "BEGIN IMMEDIATE"  # the write lock from the beginning: between a look and its write nobody comes
_READ = "BEGIN"

_COLUMNS = "key, fingerprint, token, claimed_at, lease_until, job_id"


class SQLiteLedger:
    """Claims in a SQLite file, safe among threads, loops and processes of one computer.

    Each step is one transaction on a connection of its own, in a worker thread:
    nothing stays open, and the file may be carried over a fork. Every step raises
    ``StateError`` when the file cannot be used, or stays locked for 30 s.

    Args:
        path: The file; it is made when it is not there. Not on a network drive, whose
            locks cannot be trusted.

    Raises:
        ConfigurationError: *path* is no path, or ``:memory:``.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Keep the path; nothing is opened yet."""
        try:
            self._path = fspath(path)
        except TypeError:
            self._path = ""
        if not self._path or self._path == ":memory:":
            raise ConfigurationError("path must name a file; in memory, use MemoryLedger()", field="path")

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteLedger({self._path!r})"

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return what the key holds now."""
        insert = f"INSERT INTO claims ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"

        def step(db: sqlite3.Connection) -> Claim:
            db.execute(insert, astuple(claim))
            return _find(db, claim.key) or claim

        return await self._run(step)

    async def record(self, claim: Claim, job_id: str) -> None:
        """Write *job_id* beside *claim*; nothing when the key holds another claim by now."""
        await self._run(
            lambda db: db.execute(
                "UPDATE claims SET job_id = ? WHERE key = ? AND token = ?", (job_id, claim.key, claim.token)
            )
        )

    async def release(self, claim: Claim) -> None:
        """Drop *claim* while it is open."""
        await self._run(
            lambda db: db.execute(
                "DELETE FROM claims WHERE key = ? AND token = ? AND job_id IS NULL", (claim.key, claim.token)
            )
        )

    async def find(self, key: str) -> Claim | None:
        """Return what *key* holds, or None."""
        return await self._run(lambda db: _find(db, key), begin=_READ)

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        question = f"SELECT {_COLUMNS} FROM claims WHERE job_id IS NULL ORDER BY claimed_at"
        return await self._run(lambda db: [_read(row) for row in db.execute(question)])

    async def resolve(self, key: str, job_id: str) -> None:
        """Write down which job came of the open claim *key*.

        Raises:
            ConfigurationError: The key holds no open claim.
        """
        check_job_id(job_id)
        change = "UPDATE claims SET job_id = ? WHERE key = ? AND (job_id IS NULL OR job_id = ?)"
        changed = await self._run(lambda db: db.execute(change, (job_id, key, job_id)).rowcount)
        if not changed:
            raise no_open_claim(key)

    async def forget(self, key: str) -> None:
        """Drop *key*: it can be sent again."""
        await self._run(lambda db: db.execute("DELETE FROM claims WHERE key = ?", (key,)))

    async def _run(self, step: Callable[[sqlite3.Connection], T], begin: str = _WRITE) -> T:
        return await anyio.to_thread.run_sync(self._in_thread, step, begin)

    def _in_thread(self, step: Callable[[sqlite3.Connection], T], begin: str) -> T:
        try:
            with self._transaction(begin) as db:
                return step(db)
        except sqlite3.Error as error:
            reason = printable(str(error))
        raise StateError(f"the ledger {self._path!r} cannot be used: {reason}")

    @contextmanager
    def _transaction(self, begin: str) -> Generator[sqlite3.Connection]:
        """Yield a connection of its own, inside one transaction."""
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
            db.execute(
                "PRAGMA synchronous = FULL"
            )  # a claim must outlive a power cut, or the POST is made twice
            db.execute(begin)
            try:
                db.execute(_TABLE)
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _find(db: sqlite3.Connection, key: str) -> Claim | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM claims WHERE key = ?", (key,)).fetchone()
    return None if row is None else _read(row)


def _read(row: tuple[Any, ...]) -> Claim:
    key, fingerprint, token, claimed_at, lease_until, job_id = row
    return Claim(
        key=key,
        fingerprint=fingerprint,
        token=token,
        claimed_at=claimed_at,
        lease_until=lease_until,
        job_id=job_id,
    )
