"""Transcript: the messages and the thread of one conversation, and their copy in a store.

Messages and thread are replaced together, and only after the store has taken them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from attrs import evolve, frozen

from ..errors import ConfigurationError, StateError
from ..messages import Message, coerce_messages
from ..model.json_text import as_object
from ..model.thread import Thread
from ..protocol.requests import new_message_id
from ..protocol.secret import Secret
from ..runtime.cancellation import finish_shielded
from ..storage.conversations import ConversationStore, StoredConversation, check_name, store_conflict
from .history import newest_turns
from .turn_lock import TurnLock, shared_lock

T = TypeVar("T")

FORMAT: Final = 1
"""The version of the JSON format in which a conversation is stored."""

CANCELLED_SAVE_SECONDS: Final = 0.25
"""How long a save may still take after its task was cancelled, in seconds."""

CANCELLED_STORE_SECONDS: Final = 5.0
"""How long a cancelled task waits for a store that does not heed the cancellation, in seconds."""


@frozen(kw_only=True)
class Contents:
    """The messages of a conversation and its thread: what is committed together.

    Args:
        messages: The finished turns, oldest first.
        thread: The thread at the service, or None.
    """

    messages: tuple[Message, ...] = ()
    thread: Thread | None = None

    def ids(self) -> set[str]:
        """Return the ids of the messages."""
        return {message.id for message in self.messages}


class Transcript:
    """One conversation in memory, and its place in a store; at most *keep* messages are kept, None for all.

    Attributes:
        id: Its name in the store.
        owner: Its owner in the store.
        fp: Names the user to the service.
        contents: The messages and the thread.
        system: The system message, or None.
        lock: Lets one turn run at a time.
        revision: The revision of the store that this object has; 0 for none.
        loaded: Whether the store was read, or need not be.
        failed: The last question and its options, when its turn did not finish.
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
    ) -> None:
        """Check the names; read nothing."""
        self.id = check_name(id if id is not None else f"chat_{uuid.uuid4().hex}", "id")
        self.owner = check_name(owner if owner is not None else fp, "owner")
        self.fp = fp
        self.contents = contents
        self.system = self._given_system = system
        self._store = store
        self._keep = keep
        self.active = False
        self.saved: Contents | None = None
        self.lock = shared_lock(store, self.owner, self.id) if store is not None else TurnLock()
        self.revision = 0
        self.loaded = store is None
        self.failed: tuple[tuple[Message, ...], Mapping[str, Any]] | None = None

    def require_store(self) -> ConversationStore:
        """Return the store; raises StateError if there is none."""
        if self._store is None:
            raise StateError("this conversation has no store: pass store= to session.conversation(...)")
        return self._store

    async def check_store(self, *, refresh: bool = False) -> None:
        """Read the store the first time; afterwards, check that it has no other revision.

        Another revision is a ``StoreConflictError``; with *refresh* it is taken over.
        """
        if self._store is None:
            return
        found = await self._step(partial(self._store.load, self.id, owner=self.owner), patience=0.0)
        revision = found.revision if found is not None else 0
        if self.loaded and revision == self.revision:
            return
        if self.loaded and not refresh:
            raise store_conflict(self.id)
        if found is not None:
            self._adopt(found)
        elif self.revision:
            self.contents = Contents()  # it was deleted
        self.revision, self.loaded, self.failed = revision, True, None

    def _adopt(self, stored: StoredConversation) -> None:
        found: tuple[Contents, Message | None] | None = None
        with suppress(ValueError, RecursionError):  # a ConfigurationError is a ValueError
            found = read_contents(json.loads(stored.data))
        if found is None:
            raise StateError(f"the store has no conversation of this version under {self.id!r}")
        self.contents, system = found
        given = self._given_system
        self.system = system if given is None or (system and system.text == given.text) else given

    async def save(self, contents: Contents, *, hurry: bool = False) -> None:
        """Save *contents*, then take them over. Cancelled, it may be saved and not taken over.

        Args:
            contents: The messages and the thread.
            hurry: Whether the task was cancelled before.
        """
        kept = evolve(contents, messages=newest_turns(contents.messages, self._keep))

        def take_over(revision: int) -> None:
            self.revision, self.contents, self.failed, self.saved = revision, kept, None, contents

        if self._store is None:
            take_over(self.revision)
            return
        # It contains the thread's key, which the frames of a store's error must not show.
        data = Secret(json.dumps(self.to_dict(kept), allow_nan=False))
        save = partial(self._store.save, self.id, data, owner=self.owner, revision=self.revision)
        await self._step(save, take_over, hurry=hurry)

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

    def to_dict(self, contents: Contents) -> dict[str, Any]:
        """Return the conversation with *contents* as a JSON object."""
        return {
            "version": FORMAT,
            "id": self.id,
            "owner": self.owner,
            "fp": self.fp,
            "system": self.system.to_wire() if self.system is not None else None,
            "messages": [message.to_wire() for message in contents.messages],
            "thread": contents.thread.to_dict() if contents.thread is not None else None,
        }

    def check_new(self, question: Sequence[Message]) -> None:
        """Raise ConfigurationError if a message of *question* is in the conversation already."""
        known = self.contents.ids()
        for index, message in enumerate(question):
            if message.id in known:
                raise ConfigurationError(
                    f"messages[{index}].id is in this conversation already; pass only what is new",
                    field=f"messages[{index}].id",
                )


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
    thread, system = found.get("thread"), found.get("system")
    contents = Contents(
        messages=seed_messages(cast("Sequence[object]", messages)),
        thread=Thread.from_dict(thread) if thread is not None else None,
    )
    return contents, system_message(Message.from_wire(system, "system") if system is not None else None)
