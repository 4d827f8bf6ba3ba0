"""Transcript: the turns and the thread of one conversation, and their copy in a store.

Turns and thread are replaced together, and only after the store has saved them. If not all turns are
requested, only the turns of a stored conversation that are sent with a question are read.
"""

from __future__ import annotations

import uuid
from collections.abc import Coroutine
from functools import partial
from typing import Any

from attrs import evolve

from ..argument_checks import check_name
from ..errors import ConfigurationError, StateError, printable
from ..runtime.lasting_steps import KeptStep, Recordings
from ..runtime.tasks import compute
from ..storage.sql_store import SQLStore
from ..storage.store import Store, new_version
from .history import History, TurnQuestion, turns_to_send
from .records import (
    NAME_CHARACTERS,
    ConversationKeys,
    head_fields,
    read_head,
    read_turn,
    store_conflict,
    turn_count,
    write_head,
    write_turn,
)
from .settings import ConversationSettings
from .turn_lock import TurnLock, turn_lock


class Transcript:
    """One conversation in memory, and its copy in a store.

    Attributes:
        settings: The arguments of ``session.conversation``.
        id: The conversation's name in the store.
        owner: The conversation's owner in the store.
        history: The turns and the thread.
        unfinished: The question of the last turn, if the turn did not finish.
    """

    def __init__(self, settings: ConversationSettings) -> None:
        """Check the names, without I/O."""
        self.settings = settings
        id = settings.id if settings.id is not None else f"chat_{uuid.uuid4().hex}"
        owner = settings.owner if settings.owner is not None else settings.fp
        self.id = check_name(id, "id", NAME_CHARACTERS)
        self.owner = check_name(owner, "owner", NAME_CHARACTERS)
        self.history = History(system=settings.system, complete=settings.store is None)
        self.unfinished: TurnQuestion | None = None
        self._keys = ConversationKeys(owner, id)
        self._is_read = False
        self._stored_history = History()  # the newest known version in the store
        self._attempt: History | None = None  # the last write, which may have succeeded
        self._last_lock: TurnLock | None = None  # kept alive, because it has the error of a save

    @property
    def lock(self) -> TurnLock:
        """The lock of this conversation, which lets one turn run at a time."""
        return turn_lock(self.settings.store or self, self.owner, self.id)

    def require_store(self) -> Store:
        """Return the store. If there is none, raise StateError."""
        if self.settings.store is None:
            raise StateError("this conversation has no store: pass store= to session.conversation(...)")
        return self.settings.store

    def continue_with(self, history: History) -> None:
        """Continue with *history*. The store is not read first."""
        self.history, self._is_read = evolve(history, version=None), True

    async def catch_up(self, *, refresh: bool = False, replacing: str | None = None) -> None:
        """Read the store the first time. After that, check whether another writer changed the conversation.

        Args:
            refresh: Whether to load a newer version. If false, a newer version raises ``StoreConflictError``.
            replacing: The id of a message that the next turn replaces. If it is set, all turns are read.
        """
        max_messages, store = self.settings.max_messages, self.settings.store
        if store is None:
            return
        count = turns_to_send(max_messages) if replacing is None else None
        if self._is_read:
            head = (await store.read([self._keys.head])).records.get(self._keys.head)
            version = None if head is None else head.version
            if self._attempt is not None and version == self._attempt.version:
                self._take_over(self._attempt)  # a write that raised an error was successful
            if version == self.history.version:
                if self.history.complete or (count is not None and len(self.history.turns) >= count):
                    return
            elif not refresh:
                raise store_conflict(self.id)
        await self.read(count)

    async def read(self, count: int | None = None) -> None:
        """Load the history from the store, with its *count* newest turns. None loads all turns."""
        store, keys, turn_keys = self.require_store(), self._keys, list[str]()
        name = f"conversation {printable(self.id, 80)!r} in {store!r}"
        while True:
            records = (await store.read([keys.head, *turn_keys])).records
            head = records.get(keys.head)
            if head is None:  # never saved, or deleted
                never_saved = self.history.version is None
                history = self.history if never_saved else History(system=self.settings.system)
                self._take_over(evolve(history, complete=True))
                return
            history = read_head(head, name)
            start = 0 if count is None else max(0, history.end - count)
            needed_keys = [keys.turn(number) for number in range(start, history.end)]
            if needed_keys == turn_keys:
                break
            turn_keys = needed_keys  # all turns are read again in one step, so they are from one moment
        turns = await compute(partial(read_turn, records.get(key), name) for key in turn_keys)
        gap_end = max((place for place, turn in enumerate(turns, 1) if not turn), default=0)
        system = self.settings.system
        if system is None or (history.system is not None and history.system.text == system.text):
            system = history.system
        history = evolve(
            history,
            turns=tuple(turns[gap_end:]),
            first_number=start + gap_end,
            complete=start == 0 or gap_end > 0,
            system=system,
            version=head.version,
        )
        self._take_over(history)

    def _take_over(self, history: History) -> None:
        self.history = self._stored_history = history
        self._attempt, self._is_read, self.unfinished = None, True, None

    def keep(self, step: Coroutine[Any, Any, None], recordings: Recordings) -> KeptStep:
        """Run the save *step*, even if its callers are cancelled. The next turn waits for it."""
        self._last_lock = lock = self.lock
        lock.saving = recordings.keep(step, f"conversation {printable(self.id, 80)!r} was not saved")
        return lock.saving

    async def save(self, history: History) -> None:
        """Save *history* in the store, then replace the history here.

        After an error, the history may still be saved. The next step checks this. Saving the same history
        again is harmless.

        Raises:
            StoreConflictError: Another writer, perhaps on another event loop, replaced the old version.
        """
        if self.settings.store is not None:
            await self._write(self.settings.store, history)
        elif history.basis == self.history.version:
            self._take_over(history)
        else:
            raise store_conflict(self.id)

    async def _write(self, store: Store, history: History) -> None:
        keys, stored_history = self._keys, self._stored_history
        if history.basis is None:
            stored_history = History()
        first_changed = history.first_number  # the store already has the turns below this number
        while first_changed < min(stored_history.end, history.end) and stored_history.turn(
            first_changed
        ) is history.turn(first_changed):
            first_changed += 1
        numbers = range(first_changed, history.end)
        values = await compute(partial(write_turn, history.turn(number)) for number in numbers)
        version, self._attempt = history.version, history
        assert version is not None  # from next_version(), which sets it
        changes: dict[str, bytes | None] = {
            keys.head: write_head(self._fields(history), history.end),
            **dict.fromkeys(map(keys.turn, range(history.end, stored_history.end))),
            **dict(zip(map(keys.turn, numbers), values, strict=True)),
        }
        expected = {keys.head: history.basis}
        if not await store.write(changes, expected=expected, version=version, keep=store.keep):
            self._attempt = None
            raise store_conflict(self.id)
        self._take_over(history)

    async def delete(self) -> bool:
        """Delete the conversation in the store, and its history here. Return whether the store had it."""
        store, keys = self.require_store(), self._keys
        while (head := (await store.read([keys.head])).records.get(keys.head)) is not None:
            changes = dict.fromkeys([keys.head, *map(keys.turn, range(turn_count(head)))])
            expected = {keys.head: head.version}
            if await store.write(changes, expected=expected, version=new_version(), keep=None):
                break
        if isinstance(store, SQLStore):  # a file still has expired records
            if head is None:
                await store.write({keys.head: None}, expected={keys.head: None}, version=new_version())
            await store.drop_expired(keys.turns)
        self._take_over(History(system=self.settings.system))
        return head is not None

    def _fields(self, history: History) -> dict[str, Any]:
        return head_fields(history, id=self.id, owner=self.owner, fp=self.settings.fp)

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as a JSON object."""
        history = self.whole()
        wire, ids = self._fields(history), history.ids
        del wire["systemMessages"]
        expired_messages = (message for message in history.system_messages if message.id not in ids)
        return {**wire, "messages": [message.to_wire() for message in (*expired_messages, *history.messages)]}

    def whole(self) -> History:
        """Return the history. If the store may have more turns, raise StateError."""
        if self.history.complete:
            return self.history
        raise StateError("only the newest messages are loaded: call `await chat.load()` first")

    def before(self, turn_question: TurnQuestion) -> History:
        """Return the history before *turn_question*.

        Raises:
            ConfigurationError: The message to replace does not exist, or a new message already exists.
        """
        replacing = turn_question.replacing
        history = self.history if replacing is None else self.history.before(replacing)
        if history is None:
            id = printable(repr(replacing), 80)
            raise ConfigurationError(f"replacing={id} is no message of this conversation", field="replacing")
        ids = history.ids
        for index, message in enumerate(turn_question.messages):
            if message.id in ids:
                name = f"messages[{index}].id"
                raise ConfigurationError(
                    f"{name} is in this conversation already; pass only what is new", field=name
                )
        return history
