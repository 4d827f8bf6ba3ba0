"""Conversation stores: where a conversation's text is kept between two processes.

A store keeps each conversation as one text, which it does not read, under its
owner's name and its own id, so one owner cannot load another's conversation.
Each text has a revision: of two writers that started from the same revision one
succeeds, and the other gets an error (an optimistic lock).
"""

from __future__ import annotations

import secrets
import threading
from os import PathLike
from typing import TYPE_CHECKING, Final, Protocol

from attrs import frozen

from ..errors import ConfigurationError, StoreConflictError, printable
from ..runtime.closing import NothingToClose
from .sqlite import SQLiteFile

if TYPE_CHECKING:
    import sqlite3

NAME_MAX_CHARACTERS: Final = 200
"""Longest id and owner: short enough for the keys of every common database."""


@frozen(kw_only=True)
class StoredConversation:
    """One conversation as a store keeps it.

    Args:
        data: The text that was saved: JSON in plain ASCII. It contains the thread's key in clear.
        revision: The number of this version of the text.
    """

    data: str
    revision: int

    def __repr__(self) -> str:
        """Show the size and the revision; the text contains a secret."""
        return f"StoredConversation(data=<{len(self.data)} characters>, revision={self.revision})"


class ConversationStore(Protocol):
    """Where conversations are kept.

    Every method is one atomic step, among tasks, threads and processes. A step must
    time out by itself when the store cannot be reached, and then raise
    :class:`~mintlify_async.errors.StateError`. When a task is cancelled while its
    turn is being saved, ``save`` has 0.25 s more and is then cancelled, too.

    Ids and owners are checked by the caller: strings of 1 to 200 characters
    without NUL and lone surrogates.
    """

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return the conversation *id* of *owner*, or None."""
        ...

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Replace the text that has *revision* (0: none) by *data*, and return the new revision.

        Raises:
            StoreConflictError: The text has another revision by now, or was deleted.
        """
        ...

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner* at any revision; return whether it existed."""
        ...

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        ...


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


def check_revision(revision: object) -> int:
    """Return *revision* when it is a whole number, 0 or more.

    Raises:
        ConfigurationError: It is something else.
    """
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
        raise ConfigurationError(
            "revision must be the one that load() or save() returned, or 0 for a new conversation",
            field="revision",
        )
    return revision


def first_revision() -> int:
    """Return the revision of a new conversation, a random number; each later revision is 1 more."""
    # Random, so that a conversation that was deleted and created again is not taken for the old one.
    # Below 2**48, so that languages whose numbers are doubles keep it exact.
    return secrets.randbits(47) + 1


def store_conflict(id: str) -> StoreConflictError:
    """Return the error for a writer whose revision is no longer the newest."""
    return StoreConflictError(
        f"conversation {printable(id, 80)!r} was changed by another writer since it was loaded; "
        "`await chat.load()` and ask again"
    )


class MemoryConversationStore(NothingToClose):
    """A conversation store in memory: lost when the process ends, safe among its threads and event loops."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: dict[tuple[str, str], StoredConversation] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Show how many conversations it has."""
        return f"<MemoryConversationStore, {len(self._kept)} conversations>"

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return the conversation *id* of *owner*, or None."""
        with self._lock:
            return self._kept.get((owner, id))

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Replace the text that has *revision* (0: none) by *data*, and return the new revision.

        Raises:
            StoreConflictError: The text has another revision by now, or was deleted.
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
        """Delete the conversation *id* of *owner*; return whether it existed."""
        with self._lock:
            return self._kept.pop((owner, id), None) is not None

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        with self._lock:
            return sorted(id for kept_by, id in self._kept if kept_by == owner)


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


class SQLiteConversationStore(NothingToClose):
    """Conversations in a SQLite file, safe among threads, event loops and processes of one computer.

    Each step is one transaction on its own connection, in a worker thread; no
    connection stays open. A step raises ``StateError`` when the file cannot be
    used, or stays locked for 5 s; a cancelled step ends within a second. The same
    file may also hold a :class:`SQLiteLedger`.

    The file contains threads' keys in clear: a new file is readable by its owner
    alone.

    Args:
        path: The file; it is created when it does not exist, its folder is not. Not on a
            network drive, whose locks cannot be trusted.

    Raises:
        ConfigurationError: *path* is not a path, or is ``:memory:``.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Keep the path; the file is not opened yet."""
        self._file = SQLiteFile(
            path,
            holds="conversation store",
            in_memory="MemoryConversationStore",
            table=_TABLE,
            private=True,
        )

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteConversationStore({self._file.path!r})"

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return the conversation *id* of *owner*, or None."""

        def step(db: sqlite3.Connection) -> StoredConversation | None:
            question = "SELECT data, revision FROM conversations WHERE owner = ? AND id = ?"
            row = db.execute(question, (owner, id)).fetchone()
            return None if row is None else StoredConversation(data=row[0], revision=row[1])

        return await self._file.run(step)

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Replace the text that has *revision* (0: none) by *data*, and return the new revision.

        Raises:
            StoreConflictError: The text has another revision by now, or was deleted.
        """
        check_revision(revision)
        new = revision + 1 if revision else first_revision()

        if revision:
            saved = await self._file.change(_UPDATE, data, new, owner, id, revision)
        else:
            saved = await self._file.change(_INSERT, data, new, owner, id)
        if not saved:
            raise store_conflict(id)
        return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner*; return whether it existed."""
        return await self._file.change("DELETE FROM conversations WHERE owner = ? AND id = ?", owner, id) > 0

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        question = "SELECT id FROM conversations WHERE owner = ?"
        return await self._file.run(lambda db: sorted(row[0] for row in db.execute(question, (owner,))))
