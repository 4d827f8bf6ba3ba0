"""Transcript: the turns and the thread of one conversation, and their copy in a store.

Turns and thread are replaced together, and only after the store has taken them. Of a stored
conversation only the turns are read that are sent with a question, until all are asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from attrs import evolve, frozen

from ..errors import ConfigurationError, StateError, printable
from ..messages import Message, coerce_messages
from ..model.json_text import as_object
from ..model.thread import Thread
from ..protocol.calls import new_message_id
from ..runtime.cancellation import finish_shielded
from ..runtime.worker_thread import compute
from ..storage import Record, Snapshot, Store, new_version
from .history import Contents, FinishedTurn
from .turn_lock import TurnLock, shared_lock
from .turns import (
    FORMAT,
    ConversationKeys,
    StoredHead,
    changes_of,
    check_name,
    damaged,
    newest_turns,
    read_head,
    read_turn,
    store_conflict,
    turns_of,
    write_head,
    write_turn,
)

T = TypeVar("T")

CANCELLED_SAVE_SECONDS: Final = 0.25
"""How long a save may still take after its task was cancelled, in seconds."""

CANCELLED_STORE_SECONDS: Final = 5.0
"""How long a cancelled task waits for a store that does not heed the cancellation, in seconds."""


@frozen(kw_only=True, eq=False)
class TurnQuestion:
    """The question of a turn, and the use of its answer.

    Args:
        question: The new messages.
        options: Further arguments of ``session.ask``.
        replacing: The id of a message: its turn, and all that follow, make room for this one. None for none.
        finish: Returns the answer to commit for the received one; None commits the received one.
    """

    question: tuple[Message, ...]
    options: Mapping[str, Any]
    replacing: str | None = None
    finish: Callable[[Message], Message] | None = None

    def answer_id(self, message_id: str, history: Contents) -> str:
        """Return the id of an answer: *message_id*, or a new one if that is empty or taken."""
        ids = history.ids() | {one.id for one in self.question}
        return message_id if message_id and message_id not in ids else new_message_id()


class Transcript:
    """One conversation in memory, and its place in a store.

    Attributes:
        id: Its name in the store.
        owner: Its owner in the store.
        fp: Names the user to the service.
        contents: The turns and the thread.
        system: The system message, or None.
        lock: Lets one turn run at a time.
        loaded: Whether the store was read, or need not be.
        unfinished: The question of the last turn, if it did not finish.
        active: Whether a turn of this very object is under way.
        saved: The last contents that :meth:`save` took over, or None.
    """

    def __init__(
        self,
        id: str | None,
        owner: str | None,
        fp: str,
        *,
        system: Message | None,
        store: Store | None,
        max_messages: int | None,
    ) -> None:
        """Check the names; read nothing."""
        self.id = check_name(id if id is not None else f"chat_{uuid.uuid4().hex}", "id")
        self.owner = check_name(owner if owner is not None else fp, "owner")
        self.fp = fp
        self.contents = Contents()
        self.system = self._first_system = system
        self._store = store
        self._keys = ConversationKeys(self.owner, self.id)
        self._max_messages = max_messages
        self._head: StoredHead | None = None  # the last known state of the store
        self.active = False
        self.saved: Contents | None = None
        self.lock = shared_lock(store, self.owner, self.id) if store is not None else TurnLock()
        self.loaded = store is None
        self.unfinished: TurnQuestion | None = None

    def require_store(self) -> Store:
        """Return the store. If there is none, raise StateError."""
        if self._store is None:
            raise StateError("this conversation has no store: pass store= to session.conversation(...)")
        return self._store

    @property
    def _name(self) -> str:
        return f"conversation {printable(self.id, 80)!r} in {self._store!r}"

    async def check_store(self, *, refresh: bool = False, replacing: str | None = None) -> None:
        """Read the store the first time. Later, check that no other writer has changed the conversation.

        Args:
            refresh: Whether to take over a newer version. If false, a newer version raises
                ``StoreConflictError``.
            replacing: The id of a message that the next turn replaces. If it is given, all turns are read.
        """
        if self._store is None:
            return
        count = None  # the number of turns that are needed; most turns are two messages
        if self._max_messages is not None and replacing is None:
            count = (self._max_messages + 1) // 2
        if self.loaded:
            record = (await self._read_records([self._keys.head])).records.get(self._keys.head)
            is_newest = (record and record.version) == (self._head and self._head.version)
            if not is_newest and not refresh:
                raise store_conflict(self.id)
            if is_newest and (
                self.contents.complete or (count is not None and len(self.contents.turns) >= count)
            ):
                return
        await self.read(count)

    async def read(self, count: int | None = None) -> None:
        """Take over the contents of the store with its *count* turns; None takes all."""
        keys, turn_keys = self._keys, list[str]()
        while True:
            snapshot = await self._read_records([keys.head, *turn_keys])
            record = snapshot.records.get(keys.head)
            if record is None:  # never saved, or deleted
                contents = Contents() if self._head is not None else self.contents
                self.contents, self._head, self.loaded, self.unfinished = contents, None, True, None
                return
            head = read_head(record, self._name)
            start = 0 if count is None else max(0, head.turns - count)
            known_turns = {turn.number: turn for turn in self.contents.turns} if self._is_newest(head) else {}
            missing_keys = [
                keys.turn(number) for number in range(start, head.turns) if number not in known_turns
            ]
            if missing_keys == turn_keys:
                break
            turn_keys = missing_keys  # read with the head, so that both are of one moment
        contents, system = _read_fields(head.fields, self._name)
        turns = await compute(
            partial(self._turn, number, known_turns, snapshot.records) for number in range(start, head.turns)
        )
        self.contents = evolve(contents, turns=newest_turns(turns), end=head.turns, complete=start == 0)
        first_system = self._first_system
        self.system = (
            system if first_system is None or (system and system.text == first_system.text) else first_system
        )
        self._head, self.loaded, self.unfinished = head, True, None

    def _is_newest(self, head: StoredHead) -> bool:
        return self._head is not None and self._head.version == head.version

    def _turn(
        self, number: int, known_turns: Mapping[int, FinishedTurn], records: Mapping[str, Record]
    ) -> FinishedTurn | None:
        if number in known_turns:
            return known_turns[number]
        record = records.get(self._keys.turn(number))
        return None if record is None else read_turn(record, number, self._name)

    async def _read_records(self, keys: Sequence[str]) -> Snapshot:
        return await self._step(partial(self.require_store().read, keys), patience=0.0)

    async def save(self, contents: Contents, *, first_changed: int, hurry: bool = False) -> None:
        """Save *contents*, then take them over. Cancelled, it may be saved and not taken over.

        Args:
            contents: The turns and the thread.
            first_changed: The number of the first turn that is not stored as it is.
            hurry: Whether the task was cancelled before.
        """

        def take_over(head: StoredHead | None) -> None:
            self._head, self.contents, self.unfinished, self.saved = head, contents, None, contents

        store = self._store
        if store is None:
            take_over(None)
            return
        stored_head, head = self._head, write_head(self._fields(contents), contents.end)

        async def write() -> StoredHead:
            start = first_changed if stored_head is not None else 0
            turns = [turn for turn in contents.turns if turn.number >= start]
            values = await compute(partial(write_turn, turn) for turn in turns)
            numbers = [turn.number for turn in turns]
            stored_turns = stored_head.turns if stored_head is not None else 0
            changes = changes_of(
                self._keys,
                head,
                dict(zip(numbers, values, strict=True)),
                turns=contents.end,
                stored_turns=stored_turns,
            )
            expected = {self._keys.head: stored_head.version if stored_head is not None else None}
            version = new_version()
            if not await store.write(changes, expected=expected, version=version, keep=store.keep):
                raise store_conflict(self.id)
            return StoredHead(version=version, turns=contents.end, fields={})

        await self._step(write, take_over, hurry=hurry)

    async def delete(self) -> bool:
        """Delete the conversation in the store and here. Return whether the store had it."""
        store, keys = self.require_store(), self._keys

        async def delete() -> bool:
            while True:
                record = (await store.read([keys.head])).records.get(keys.head)
                if record is None:
                    return False
                count = turns_of(record)
                changes = dict.fromkeys([keys.head, *map(keys.turn, range(count))])
                expected = {keys.head: record.version}
                if await store.write(changes, expected=expected, version=new_version(), keep=None):
                    return True

        def take_over(existed: bool) -> None:
            self.contents, self._head, self.unfinished, self.loaded = Contents(), None, None, True

        return await self._step(delete, take_over)

    async def _step(
        self,
        step: Callable[[], Awaitable[T]],
        take_over: Callable[[T], None] | None = None,
        *,
        patience: float = CANCELLED_SAVE_SECONDS,
        hurry: bool = False,
    ) -> T:
        """Return the result of a store's step. After a cancellation, wait for it at most 5 s."""
        given_up = False

        async def run() -> T:
            result = await step()
            if take_over is not None and not given_up:
                take_over(result)
            return result

        try:
            return await finish_shielded(run(), patience=patience, hurry=hurry, limit=CANCELLED_STORE_SECONDS)
        except BaseException:
            given_up = True  # the step may continue, and end when the next turn has started
            raise

    def _fields(self, contents: Contents) -> dict[str, Any]:
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
        wire = self._fields(contents)
        ids = contents.ids()
        earlier = [message for message in contents.system_messages if message.id not in ids]
        del wire["systemMessages"]
        return {
            **wire,
            "messages": [message.to_wire() for message in (*earlier, *contents.messages)],
        }

    def whole(self) -> Contents:
        """Return the contents. If the store may have more than was read, raise StateError."""
        if self.loaded and self.contents.complete:
            return self.contents
        raise StateError("this conversation was not read whole from its store: `await chat.load()` first")

    def before(self, turn_question: TurnQuestion) -> Contents:
        """Return the contents that *turn_question* follows.

        Raises:
            ConfigurationError: The message to replace is not there, or a new one is there already.
        """
        history = self.contents.before(turn_question.replacing)
        if history is None:
            id = printable(repr(turn_question.replacing), 80)
            raise ConfigurationError(
                f"replacing={id} is no message of this conversation",
                field="replacing",
            )
        ids = history.ids()
        for index, message in enumerate(turn_question.question):
            if message.id in ids:
                raise ConfigurationError(
                    f"messages[{index}].id is in this conversation already; pass only what is new",
                    field=f"messages[{index}].id",
                )
        return history


def seed_messages(messages: object) -> tuple[Message, ...]:
    """Return the messages that a conversation starts with."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ConfigurationError("messages must be a list of messages", field="messages")
    items = cast("Sequence[object]", messages)
    return tuple(coerce_messages(items, new_message_id)) if items else ()


def system_message(system: object) -> Message | None:
    """Return *system*, text or a message, as a message with an id."""
    if system is None:
        return None
    message = Message.system(system) if isinstance(system, str) else system
    if not isinstance(message, Message) or message.role != "system":
        raise ConfigurationError("system must be text, or a Message whose role is system", field="system")
    return message if message.id else evolve(message, id=new_message_id())


def read_contents(stored: object) -> tuple[Contents, Message | None]:
    """Read the contents and the system message from the JSON object of :meth:`Transcript.to_dict`."""
    fields = as_object(stored) or {}
    messages = fields.get("messages")
    if fields.get("version") != FORMAT or not isinstance(messages, list):
        raise ConfigurationError(
            "stored is not a conversation: pass what to_dict() of this version returned", field="stored"
        )
    contents, system = _read_fields(fields, "stored")
    return contents.with_messages(seed_messages(cast("Sequence[object]", messages))), system


def _read_fields(fields: Mapping[str, Any], what: str) -> tuple[Contents, Message | None]:
    """Read the contents without the turns, and the system message."""
    try:
        contents = Contents(
            system_messages=seed_messages(fields.get("systemMessages", [])),
            thread=None if fields.get("thread") is None else Thread.from_dict(fields["thread"]),
        )
        system = fields.get("system")
        return contents, system_message(None if system is None else Message.from_wire(system, "system"))
    except ConfigurationError:
        if what == "stored":
            raise
        fields = {}  # the frames of an error must not show the thread's key
        raise damaged(what) from None
