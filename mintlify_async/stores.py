"""A conversation's text and its owner come in; the same text, and who wrote it last, come out.

A store keeps each conversation as one text that it never looks into, under its
owner's name and its own id: another owner's conversation cannot even be named.
A revision stands beside the text, so that of two writers one wins and the other
is told (an optimistic lock).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio.to_thread
from attrs import frozen

from .errors import ConfigurationError, StateError, StoreConflictError, printable

__all__ = [
    "ConversationStore",
    "MemoryConversationStore",
    "SQLiteConversationStore",
    "StoredConversation",
    "check_name",
    "check_revision",
    "first_revision",
    "store_conflict",
]

T = TypeVar("T")

NAME_MAX_CHARACTERS: Final = 200
"""Longest id and owner: fits the keys of every database in use."""

BUSY_SECONDS: Final = 5.0
"""How long a step waits for another process to let go of the file."""


@frozen(kw_only=True)
class StoredConversation:
    """What a store holds of one conversation.

    Args:
        data: The text that was saved; JSON in plain ASCII. It holds the thread's key in clear.
        revision: Names this version of the text.
    """

    data: str
    revision: int

    def __repr__(self) -> str:
        """Show the size and the revision; the text holds a secret."""
        return f"StoredConversation(data=<{len(self.data)} characters>, revision={self.revision})"


class ConversationStore(Protocol):
    """Where conversations are kept.

    Every method is one step: it happens whole or not at all, among tasks, threads
    and processes. A step must end by itself (time out) when the place cannot be
    reached, and then raises :class:`~mintlify_async.errors.StateError`: a turn
    being saved is shielded from cancellation.

    Id and owner are checked before they come here: texts of 1 to 200 characters
    without NUL and lone surrogates.
    """

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return what *owner* keeps under *id*, or None."""
        ...

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Write *data* over what has *revision*, and return the new revision.

        Args:
            id: The conversation's id.
            data: The whole text.
            owner: Whose it is.
            revision: The revision that *data* was made from; 0 when there was nothing.

        Raises:
            StoreConflictError: By now there is another revision, or none any more.
        """
        ...

    async def delete(self, id: str, *, owner: str) -> bool:
        """Drop what *owner* keeps under *id*, whatever its revision; return whether there was something."""
        ...

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids that *owner* keeps, in order of their names."""
        ...


def check_name(name: object, field: str) -> str:
    """Return *name* when every store can keep it as an id or an owner.

    Raises:
        ConfigurationError: It is no text, empty, too long, or has a character that no store keeps.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{field} must be a string that is not empty", field=field)
    if len(name) > NAME_MAX_CHARACTERS:
        raise ConfigurationError(
            f"{field} has {len(name)} characters; the longest is {NAME_MAX_CHARACTERS}", field=field
        )
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        raise ConfigurationError(f"{field} has a character that no store keeps", field=field)
    return name


def check_revision(revision: object) -> int:
    """Return *revision* when it can be one: a whole number, 0 or above."""
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
        raise ConfigurationError(
            "revision must be what load() or save() gave, or 0 for a new conversation", field="revision"
        )
    return revision


def first_revision() -> int:
    """Return the revision of a new conversation; each later one is 1 more.

    It begins anywhere, so that a conversation that was deleted and begun anew is
    not taken for the old one. Below 2**48, so that it stays exact in every language.
    """
    return secrets.randbits(47) + 1


def store_conflict(id: str) -> StoreConflictError:
    """Return the error for the writer who came second."""
    return StoreConflictError(
        f"conversation {printable(id, 80)!r} was changed by somebody else since it was loaded; "
        "`await chat.load()` and ask again"
    )


# In memory ------------------------------------------------------------------------------------


class MemoryConversationStore:
    """Conversations of this process, gone with it; safe among its threads and loops."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[tuple[str, str], StoredConversation] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Show how many there are."""
        return f"<MemoryConversationStore, {len(self._kept)} conversations>"

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return what *owner* keeps under *id*, or None."""
        with self._lock:
            return self._kept.get((owner, id))

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Write *data* over what has *revision* (0: nothing), and return the new revision.

        Raises:
            StoreConflictError: By now there is another revision, or none any more.
        """
        check_revision(revision)
        with self._lock:
            there = self._kept.get((owner, id))
            if (there.revision if there is not None else 0) != revision:
                raise store_conflict(id)
            new = revision + 1 if revision else first_revision()
            self._kept[owner, id] = StoredConversation(data=data, revision=new)
            return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Drop what *owner* keeps under *id*; return whether there was something."""
        with self._lock:
            return self._kept.pop((owner, id), None) is not None

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids that *owner* keeps, in order of their names."""
        with self._lock:
            return sorted(id for kept_by, id in self._kept if kept_by == owner)


# In a file ------------------------------------------------------------------------------------

_TABLE = """
CREATE TABLE IF NOT EXISTS conversations (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (owner, id)
)"""

_INSERT = "INSERT INTO conversations (data, revision, owner, id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"

_UPDATE = "UPDATE conversations SET data = ?, revision = ? WHERE owner = ? AND id = ? AND revision = ?"


class SQLiteConversationStore:
    """Conversations in a SQLite file, safe among threads, loops and processes of one computer.

    Each step is one transaction on a connection of its own, in a worker thread:
    nothing stays open, and the file may be carried over a fork. The same file may
    hold a :class:`~mintlify_async.ledger.SQLiteLedger`.

    The file holds threads' keys in clear: a new one is made readable by its owner
    alone.

    Args:
        path: The file; it is made when it is not there, its folder is not. Not on a
            network drive, whose locks cannot be trusted.

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
            raise ConfigurationError(
                "path must name a file; in memory, use MemoryConversationStore()", field="path"
            )

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteConversationStore({self._path!r})"

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return what *owner* keeps under *id*, or None."""

        def step(db: sqlite3.Connection) -> StoredConversation | None:
            question = "SELECT data, revision FROM conversations WHERE owner = ? AND id = ?"
            row = db.execute(question, (owner, id)).fetchone()
            return None if row is None else StoredConversation(data=row[0], revision=row[1])

        return await self._run(step)

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Write *data* over what has *revision* (0: nothing), and return the new revision.

        Raises:
            StoreConflictError: By now there is another revision, or none any more.
        """
        check_revision(revision)
        new = revision + 1 if revision else first_revision()

        def step(db: sqlite3.Connection) -> int:
            if revision:
                return db.execute(_UPDATE, (data, new, owner, id, revision)).rowcount
            return db.execute(_INSERT, (data, new, owner, id)).rowcount

        if not await self._run(step):
            raise store_conflict(id)
        return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Drop what *owner* keeps under *id*; return whether there was something."""
        change = "DELETE FROM conversations WHERE owner = ? AND id = ?"
        return await self._run(lambda db: db.execute(change, (owner, id)).rowcount > 0)

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids that *owner* keeps, in order of their names."""
        question = "SELECT id FROM conversations WHERE owner = ?"
        return await self._run(lambda db: sorted(row[0] for row in db.execute(question, (owner,))))

    async def _run(self, step: Callable[[sqlite3.Connection], T]) -> T:
        return await anyio.to_thread.run_sync(self._in_thread, step)

    def _in_thread(self, step: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._transaction() as db:
                return step(db)
        except (sqlite3.Error, OSError) as error:
            reason = printable(str(error))
        raise StateError(f"the conversation store {self._path!r} cannot be used: {reason}")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """Yield a connection inside one transaction that holds the write lock from its beginning."""
        _make_private(self._path)
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                db.execute(_TABLE)
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _make_private(path: str) -> None:
    """Make the file, readable by its owner alone, when it is not there; SQLite would ask the umask."""
    if not Path(path).exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
