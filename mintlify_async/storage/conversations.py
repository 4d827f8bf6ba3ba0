"""Conversation stores: where a conversation is kept between two processes.

A store keeps each conversation under its owner's name and its own id, so one owner
cannot load another's conversation. It keeps a head, which is replaced with each
step, and the finished turns, of which a step adds or drops some: a turn costs the
same after a thousand others. Both are texts that the store does not read. Each
conversation has a revision: of two writers that started from the same revision one
succeeds, and the other gets an error (an optimistic lock).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Final, Protocol

from attrs import evolve, frozen

from ..errors import ConfigurationError, StoreConflictError, printable
from ..runtime.closing import NothingToClose
from .sqlite import SQLiteFile

if TYPE_CHECKING:
    import sqlite3


@frozen(kw_only=True)
class StoredTurn:
    """One finished turn as a store keeps it.

    Args:
        number: Its place in the conversation: each turn has a higher number than the one before.
        data: A JSON array of its messages (UIMessages), in plain ASCII.
    """

    number: int
    data: str

    def __repr__(self) -> str:
        """Show the number and the size; the text is what people said."""
        return f"StoredTurn(number={self.number}, data=<{len(self.data)} characters>)"


@frozen(kw_only=True)
class StoredConversation:
    """One conversation as a store keeps it, or the end of it.

    Args:
        head: Everything but the turns: a JSON object in plain ASCII. It contains the thread's key in clear.
        turns: The newest turns, as many as were asked for, oldest first.
        complete: Whether *turns* are all.
        revision: The number of this version of the conversation.
    """

    head: str
    turns: tuple[StoredTurn, ...] = ()
    complete: bool = True
    revision: int

    def __repr__(self) -> str:
        """Show what is no text; the head contains a secret."""
        shown = f"turns={self.turns!r}, complete={self.complete}, revision={self.revision}"
        return f"StoredConversation(head=<{len(self.head)} characters>, {shown})"


class ConversationStore(Protocol):
    """Where conversations are kept.

    Every method is one atomic step, among tasks, threads and processes. A step must
    time out by itself when the store cannot be reached, and then raise
    :class:`~mintlify_async.errors.StateError`. When a task is cancelled while its
    turn is being saved, ``save`` has 0.25 s more and is then cancelled, too.

    Ids and owners are checked by the caller: strings of 1 to 200 characters
    without NUL and lone surrogates.
    """

    async def load(self, id: str, *, owner: str, last: int | None = None) -> StoredConversation | None:
        """Return the conversation *id* of *owner* with its *last* turns (None: all), or None."""
        ...

    async def save(
        self, id: str, head: str, turns: Sequence[StoredTurn], *, owner: str, revision: int, keep: range
    ) -> int:
        """Change the conversation that has *revision* (0: none), and return the new revision.

        Args:
            id: The conversation.
            head: Replaces the head.
            turns: Turns to add, oldest first.
            owner: Its owner.
            revision: What the change is based on.
            keep: The numbers of the stored turns that stay, without gaps; the other ones are dropped
                before *turns* are added.

        Raises:
            StoreConflictError: The conversation has another revision by now, or was deleted.
        """
        ...

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner* at any revision; return whether it existed."""
        ...

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        ...


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

    async def load(self, id: str, *, owner: str, last: int | None = None) -> StoredConversation | None:
        """Return the conversation *id* of *owner* with its *last* turns (None: all), or None."""
        with self._lock:
            found = self._kept.get((owner, id))
        if found is None or last is None or len(found.turns) <= last:
            return found
        return evolve(found, turns=found.turns[len(found.turns) - last :], complete=False)

    async def save(
        self, id: str, head: str, turns: Sequence[StoredTurn], *, owner: str, revision: int, keep: range
    ) -> int:
        """Change the conversation that has *revision* (0: none), and return the new revision.

        Raises:
            StoreConflictError: The conversation has another revision by now, or was deleted.
        """
        check_revision(revision)
        with self._lock:
            there = self._kept.get((owner, id))
            if (there.revision if there is not None else 0) != revision:
                raise store_conflict(id)
            new = revision + 1 if revision else first_revision()
            kept = [turn for turn in (there.turns if there is not None else ()) if turn.number in keep]
            self._kept[owner, id] = StoredConversation(head=head, turns=(*kept, *turns), revision=new)
            return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner*; return whether it existed."""
        with self._lock:
            return self._kept.pop((owner, id), None) is not None

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        with self._lock:
            return sorted(id for kept_by, id in self._kept if kept_by == owner)


_TABLES: Final = {
    "conversations": """(
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        revision INTEGER NOT NULL,
        head TEXT NOT NULL,
        PRIMARY KEY (owner, id)
    )""",
    "conversation_turns": """(
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        number INTEGER NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (owner, id, number)
    )""",
}
_THIS: Final = "WHERE owner = ? AND id = ?"
_INSERT: Final = (
    "INSERT INTO conversations (head, revision, owner, id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_UPDATE: Final = f"UPDATE conversations SET head = ?, revision = ? {_THIS} AND revision = ?"
_ADD: Final = "INSERT INTO conversation_turns (owner, id, number, data) VALUES (?, ?, ?, ?)"


class SQLiteConversationStore(NothingToClose):
    """Conversations in a SQLite file, safe among threads, event loops and processes of one computer.

    Each step is one transaction on its own connection, in a worker thread; no
    connection stays open. A step raises ``StateError`` when the file cannot be
    used, stays locked for 5 s, or was written by another version of this package;
    a cancelled step ends within a second. The same file may also hold a
    :class:`SQLiteLedger`.

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
            tables=_TABLES,
            version=2,  # 1 had each conversation as one text
            private=True,
        )

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteConversationStore({self._file.path!r})"

    async def load(self, id: str, *, owner: str, last: int | None = None) -> StoredConversation | None:
        """Return the conversation *id* of *owner* with its *last* turns (None: all), or None."""

        def step(db: sqlite3.Connection) -> StoredConversation | None:
            head = db.execute(f"SELECT head, revision FROM conversations {_THIS}", (owner, id)).fetchone()
            if head is None:
                return None
            question = f"SELECT number, data FROM conversation_turns {_THIS} ORDER BY number DESC LIMIT ?"
            newest = db.execute(question, (owner, id, -1 if last is None else last)).fetchall()
            turns = tuple(StoredTurn(number=number, data=data) for number, data in reversed(newest))
            (oldest,) = db.execute(
                f"SELECT min(number) FROM conversation_turns {_THIS}", (owner, id)
            ).fetchone()
            complete = oldest == (turns[0].number if turns else None)
            return StoredConversation(head=head[0], turns=turns, complete=complete, revision=head[1])

        return await self._file.run(step)

    async def save(
        self, id: str, head: str, turns: Sequence[StoredTurn], *, owner: str, revision: int, keep: range
    ) -> int:
        """Change the conversation that has *revision* (0: none), and return the new revision.

        Raises:
            StoreConflictError: The conversation has another revision by now, or was deleted.
        """
        check_revision(revision)
        new = revision + 1 if revision else first_revision()
        this = (owner, id)

        def step(db: sqlite3.Connection) -> bool:
            changed = (
                db.execute(_UPDATE, (head, new, *this, revision))
                if revision
                else db.execute(_INSERT, (head, new, *this))
            )
            if not changed.rowcount:
                return False
            # Two statements: with one of both conditions SQLite would look at every turn.
            db.execute(f"DELETE FROM conversation_turns {_THIS} AND number < ?", (*this, keep.start))
            db.execute(f"DELETE FROM conversation_turns {_THIS} AND number >= ?", (*this, keep.stop))
            db.executemany(_ADD, [(*this, turn.number, turn.data) for turn in turns])
            return True

        if not await self._file.run(step):
            raise store_conflict(id)
        return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner*; return whether it existed."""

        def step(db: sqlite3.Connection) -> bool:
            db.execute(f"DELETE FROM conversation_turns {_THIS}", (owner, id))
            return db.execute(f"DELETE FROM conversations {_THIS}", (owner, id)).rowcount > 0

        return await self._file.run(step)

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        question = "SELECT id FROM conversations WHERE owner = ?"
        return await self._file.run(lambda db: sorted(row[0] for row in db.execute(question, (owner,))))
