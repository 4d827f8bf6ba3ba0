"""Transcript: the turns and the thread of one conversation, and their copy in a store.

Turns and thread are replaced together, and only after the store has taken them. Of a stored
conversation only the turns are read that are sent with a question, until all are asked for.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from attrs import evolve, frozen

from ..errors import ConfigurationError, StateError, printable
from ..messages import Message, coerce_messages
from ..model.json_text import as_object
from ..model.thread import Thread
from ..protocol.requests import new_message_id
from ..protocol.secret import Secret
from ..runtime.cancellation import finish_shielded
from ..runtime.worker_thread import compute
from ..storage.conversations import ConversationStore, StoredTurn, store_conflict
from ..storage.format_version import unknown_version
from ..storage.ledger import check_name
from .history import Contents, FinishedTurn, HistoryBounds, fills
from .turn_lock import TurnLock, shared_lock

T = TypeVar("T")

FORMAT: Final = 1
"""The version of the JSON format in which a conversation is stored."""

CANCELLED_SAVE_SECONDS: Final = 0.25
"""How long a save may still take after its task was cancelled, in seconds."""

CANCELLED_STORE_SECONDS: Final = 5.0
"""How long a cancelled task waits for a store that does not heed the cancellation, in seconds."""


@frozen(kw_only=True, eq=False)
class Asked:
    """What a turn asks, and what becomes of its answer.

    Args:
        question: The new messages.
        options: Further arguments of ``session.ask``.
        replacing: The id of a message: its turn, and all that follow, make room for this one. None for none.
        kept: Makes the answer that is committed of the one that arrived; None commits that one.
    """

    question: tuple[Message, ...]
    options: Mapping[str, Any]
    replacing: str | None = None
    kept: Callable[[Message], Message] | None = None

    def answer_id(self, given: str, before: Contents) -> str:
        """Return the id of an answer: *given*, or a new one if that is empty or another message has it."""
        taken = before.ids() | {one.id for one in self.question}
        return given if given and given not in taken else new_message_id()


class Transcript:
    """One conversation in memory, and its place in a store; at most *keep* messages are kept, None for all.

    Attributes:
        id: Its name in the store.
        owner: Its owner in the store.
        fp: Names the user to the service.
        contents: The turns and the thread.
        system: The system message, or None.
        lock: Lets one turn run at a time.
        revision: The revision of the store that this object has; 0 for none.
        loaded: Whether the store was read, or need not be.
        failed: What the last turn asked, when it did not finish.
        active: Whether a turn of this very object is under way.
        saved: What was last given to :meth:`save` and taken over, or None.
    """

    def __init__(
        self,
        id: str | None,
        owner: str | None,
        fp: str,
        contents: Contents,
        *,
        system: Message | None,
        store: ConversationStore | None,
        keep: int | None,
        bounds: HistoryBounds,
    ) -> None:
        """Check the names; read nothing."""
        self.id = check_name(id if id is not None else f"chat_{uuid.uuid4().hex}", "id")
        self.owner = check_name(owner if owner is not None else fp, "owner")
        self.fp = fp
        self.contents = contents
        self.system = self._given_system = system
        self._store = store
        self._keep = keep
        self._bounds = bounds
        self.active = False
        self.saved: Contents | None = None
        self.lock = shared_lock(store, self.owner, self.id) if store is not None else TurnLock()
        self.revision = 0
        self.loaded = store is None
        self.failed: Asked | None = None

    def require_store(self) -> ConversationStore:
        """Return the store; raises StateError if there is none."""
        if self._store is None:
            raise StateError("this conversation has no store: pass store= to session.conversation(...)")
        return self._store

    async def check_store(self, *, refresh: bool = False, replacing: str | None = None) -> None:
        """Read the store the first time, and when more is to be sent; else, check that its revision is this.

        Another revision is a ``StoreConflictError``; with *refresh* it is taken over. What is sent is what
        goes before the message *replacing*, None for all.
        """
        if self._store is None:
            return

        def enough(contents: Contents) -> bool:
            before = contents.before(replacing)
            return before is not None and fills(before, self._bounds)

        if self.loaded:
            found = await self._step(
                partial(self._store.load, self.id, owner=self.owner, last=0), patience=0.0
            )
            same = (found.revision if found is not None else 0) == self.revision
            if same and (self.contents.complete or enough(self.contents)):
                return
            if not same and not refresh:
                raise store_conflict(self.id)
        await self.read(self._bounds.likely_turns, enough)

    async def read(
        self, turns: int | None = None, enough: Callable[[Contents], object] | None = None
    ) -> None:
        """Take over what the store has: its newest *turns*, and twice as many until they are *enough*.

        Args:
            turns: How many to read first; None for all.
            enough: Whether no older ones are needed.
        """
        known = {(self.revision, turn.number): turn for turn in self.contents.turns}
        while True:
            contents, system, revision = await self._step(
                partial(self._read_once, turns, known), patience=0.0
            )
            if contents.complete or turns is None or enough is None or enough(contents):
                break
            turns *= 2
        given = self._given_system
        self.system = system if given is None or (system and system.text == given.text) else given
        self.contents, self.revision, self.loaded, self.failed = contents, revision, True, None

    async def _read_once(
        self, last: int | None, known: dict[tuple[int, int], FinishedTurn]
    ) -> tuple[Contents, Message | None, int]:
        """Return the contents with the *last* turns (None: all), the system message and the revision.

        What was read before, by revision and number, is in *known*; what is read is added.
        """
        found = await self.require_store().load(self.id, owner=self.owner, last=last)
        if found is None:  # never saved, or deleted
            return Contents() if self.revision else self.contents, self.system, 0
        what = f"conversation {printable(self.id, 80)!r} in {self._store!r}"
        version = _version_of(found.head)
        if version != FORMAT:
            raise unknown_version(what, version, FORMAT, instead="`await chat.delete()`")
        with suppress(ValueError, RecursionError):  # a ConfigurationError is a ValueError
            contents, system = _read_head(json.loads(found.head))
            unread = [turn for turn in found.turns if (found.revision, turn.number) not in known]
            for turn in await compute(partial(_read_turn, turn) for turn in unread):
                known[found.revision, turn.number] = turn
            turns = tuple(known[found.revision, turn.number] for turn in found.turns)
            end = turns[-1].number + len(turns[-1].messages) if turns else 0
            return evolve(contents, turns=turns, end=end, complete=found.complete), system, found.revision
        raise StateError(f"{what} cannot be read; `await chat.delete()` makes room for a new one")

    async def save(self, contents: Contents, *, changed: int, hurry: bool = False) -> None:
        """Save *contents*, then take them over. Cancelled, it may be saved and not taken over.

        Args:
            contents: The turns and the thread.
            changed: The number of the first turn that is not stored as it is.
            hurry: Whether the task was cancelled before.
        """
        kept = contents.newest(self._keep)

        def take_over(revision: int) -> None:
            self.revision, self.contents, self.failed, self.saved = revision, kept, None, contents

        if self._store is None:
            take_over(self.revision)
            return
        save_in_store = self._store.save

        async def write() -> int:
            start = changed if self.revision else 0
            new = [turn for turn in kept.turns if turn.number >= start]
            turns = await compute(partial(_write_turn, turn) for turn in new)
            # It contains the thread's key, which the frames of a store's error must not show.
            head = Secret(json.dumps(self._head(kept), allow_nan=False))
            keep = range(contents.first_kept(self._keep), start)
            revision = self.revision
            return await save_in_store(self.id, head, turns, owner=self.owner, revision=revision, keep=keep)

        await self._step(write, take_over, hurry=hurry)

    async def delete(self) -> bool:
        """Delete the conversation in the store and here; return whether the store had it."""

        def take_over(existed: bool) -> None:
            self.contents, self.revision, self.failed, self.loaded = Contents(), 0, None, True

        return await self._step(partial(self.require_store().delete, self.id, owner=self.owner), take_over)

    async def _step(
        self,
        step: Callable[[], Awaitable[T]],
        take_over: Callable[[T], None] | None = None,
        *,
        patience: float = CANCELLED_SAVE_SECONDS,
        hurry: bool = False,
    ) -> T:
        """Return what a step of the store returns, for at most 5 s after a cancellation."""
        given_up = False

        async def run() -> T:
            result = await step()
            if take_over is not None and not given_up:
                take_over(result)
            return result

        try:
            return await finish_shielded(run(), patience=patience, hurry=hurry, limit=CANCELLED_STORE_SECONDS)
        except BaseException:
            given_up = True  # the step may go on, and end when the next turn has begun
            raise

    def _head(self, contents: Contents) -> dict[str, Any]:
        return {
            "version": FORMAT,
            "id": self.id,
            "owner": self.owner,
            "fp": self.fp,
            "system": self.system.to_wire() if self.system is not None else None,
            "systemMessages": [message.to_wire() for message in contents.system_messages],
            "thread": contents.thread.to_dict() if contents.thread is not None else None,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as a JSON object."""
        contents = self.whole()
        wire = self._head(contents)
        known = contents.ids()
        earlier = [message for message in contents.system_messages if message.id not in known]
        del wire["systemMessages"]
        return {**wire, "messages": [message.to_wire() for message in (*earlier, *contents.messages)]}

    def whole(self) -> Contents:
        """Return the contents; raises StateError when the store may have more than was read."""
        if self.loaded and self.contents.complete:
            return self.contents
        raise StateError("this conversation was not read whole from its store: `await chat.load()` first")

    def before(self, asked: Asked) -> Contents:
        """Return the contents that *asked* follows.

        Raises:
            ConfigurationError: The message to replace is not there, or a new one is there already.
        """
        before = self.contents.before(asked.replacing)
        if before is None:
            raise ConfigurationError(
                f"replacing={printable(repr(asked.replacing), 80)} is no message of this conversation",
                field="replacing",
            )
        known = before.ids()
        for index, message in enumerate(asked.question):
            if message.id in known:
                raise ConfigurationError(
                    f"messages[{index}].id is in this conversation already; pass only what is new",
                    field=f"messages[{index}].id",
                )
        return before


def seed_messages(messages: object) -> tuple[Message, ...]:
    """Return the messages that a conversation begins with."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ConfigurationError("messages must be a list of messages", field="messages")
    given = cast("Sequence[object]", messages)
    return tuple(coerce_messages(given, new_message_id)) if given else ()


def system_message(system: object) -> Message | None:
    """Return *system*, text or a message, as a message with an id."""
    if system is None:
        return None
    message = Message.system(system) if isinstance(system, str) else system
    if not isinstance(message, Message) or message.role != "system":
        raise ConfigurationError("system must be text, or a Message whose role is system", field="system")
    return message if message.id else evolve(message, id=new_message_id())


def read_contents(stored: object) -> tuple[Contents, Message | None]:
    """Read the JSON object of :meth:`Transcript.to_dict`: the contents and the system message."""
    found = as_object(stored) or {}
    messages = found.get("messages")
    if found.get("version") != FORMAT or not isinstance(messages, list):
        raise ConfigurationError(
            "stored is not a conversation: pass what to_dict() of this version returned", field="stored"
        )
    contents, system = _read_head(found)
    return contents.with_messages(seed_messages(cast("Sequence[object]", messages))), system


def _read_head(found: Mapping[str, Any]) -> tuple[Contents, Message | None]:
    """Read everything but the turns: the contents without them, and the system message."""
    thread, system = found.get("thread"), found.get("system")
    contents = Contents(
        system_messages=seed_messages(found.get("systemMessages", [])),
        thread=Thread.from_dict(thread) if thread is not None else None,
    )
    return contents, system_message(Message.from_wire(system, "system") if system is not None else None)


def _version_of(head: str) -> object:
    """Return the version of its format that *head* names; None if it is no such text."""
    with suppress(ValueError, RecursionError):
        return (as_object(json.loads(head)) or {}).get("version")
    return None


def _read_turn(stored: StoredTurn) -> FinishedTurn:
    return FinishedTurn(number=stored.number, messages=seed_messages(json.loads(stored.data)))


def _write_turn(turn: FinishedTurn) -> StoredTurn:
    messages = [message.to_wire() for message in turn.messages]
    return StoredTurn(number=turn.number, data=json.dumps(messages, allow_nan=False))
