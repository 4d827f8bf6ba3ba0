"""What was said in a conversation, and where it is kept: read, checked, and written in one step."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from attrs import evolve, frozen

from .errors import ConfigurationError, StateError
from .gate import TurnGate, shared_gate
from .history import newest_turns
from .json_text import as_object
from .parts import Message, coerce_messages
from .stores import ConversationStore, check_name, store_conflict
from .thread import Thread

__all__ = ["FORMAT", "Record", "Said", "new_message_id", "read_said", "seed_messages", "system_message"]

FORMAT: Final = 1
"""The version of the JSON that a conversation is kept as."""


@frozen(kw_only=True)
class Said:
    """What was said so far, and where it goes on.

    Args:
        messages: The finished turns, oldest first.
        thread: The thread at the service, or None.
    """

    messages: tuple[Message, ...] = ()
    thread: Thread | None = None

    def ids(self) -> set[str]:
        """Return the ids of the messages."""
        return {message.id for message in self.messages}


class Record:
    """One conversation as it stands here, and its place in a store.

    Attributes:
        id: Its name in the store.
        owner: Whose it is.
        fp: Names the user to the service.
        said: What was said so far.
        system: The system message, or None.
        gate: Lets one turn through at a time.
        revision: The revision in the store that this stands at; 0 for none.
        loaded: Whether the store was read.
        failed: The last question, when its turn did not finish, and what it was asked with.
        keep: The most messages that are kept, or None.
        active: Whether a turn of this very record is under way.
    """

    __slots__ = (
        "_given_system",
        "_store",
        "active",
        "failed",
        "fp",
        "gate",
        "id",
        "keep",
        "loaded",
        "owner",
        "revision",
        "said",
        "system",
    )

    def __init__(
        self,
        *,
        id: str | None,
        owner: str | None,
        fp: str,
        said: Said,
        system: Message | None,
        store: ConversationStore | None,
        keep: int | None = None,
    ) -> None:
        """Check the names; nothing is read."""
        self.id = check_name(id if id is not None else f"chat_{uuid.uuid4().hex}", "id")
        self.owner = check_name(owner if owner is not None else fp, "owner")
        self.fp = fp
        self.said = said
        self.system = self._given_system = system
        self._store = store
        self.keep = keep
        self.active = False
        self.gate = shared_gate(store, self.owner, self.id) if store is not None else TurnGate()
        self.revision = 0
        self.loaded = store is None
        self.failed: tuple[tuple[Message, ...], Mapping[str, Any]] | None = None

    def require_store(self) -> ConversationStore:
        """Return where it is kept.

        Raises:
            StateError: Nowhere.
        """
        if self._store is None:
            raise StateError("this conversation has no store: pass store= to session.conversation(...)")
        return self._store

    @property
    def has_store(self) -> bool:
        """Whether it is kept somewhere."""
        return self._store is not None

    async def check_store(self, *, refresh: bool = False) -> None:
        """Read the store the first time; afterwards, see whether somebody else saved.

        Args:
            refresh: When somebody did, take over what they saved.

        Raises:
            StoreConflictError: Somebody did.
            StateError: What the store has is no conversation.
        """
        if self._store is None:
            return
        found = await self._store.load(self.id, owner=self.owner)
        revision = found.revision if found is not None else 0
        if self.loaded and revision == self.revision:
            return
        if self.loaded and not refresh:
            raise store_conflict(self.id)
        if found is not None:
            self._adopt(found.data)
        elif self.revision:
            self.said = Said()  # it was deleted
        self.revision, self.loaded, self.failed = revision, True, None

    def _adopt(self, data: str) -> None:
        found: tuple[Said, Message | None] | None = None
        with suppress(ValueError, RecursionError):  # a ConfigurationError is a ValueError
            found = read_said(json.loads(data))
        if found is None:
            raise StateError(f"what the store has under {self.id!r} is no conversation of this version")
        self.said, stored = found
        given = self._given_system
        self.system = stored if given is None or (stored and stored.text == given.text) else given

    async def save(self, said: Said) -> None:
        """Write *said* to the store and, when that went well, take it over. Run it to its end.

        Raises:
            StoreConflictError: Somebody else saved.
        """
        said = evolve(said, messages=newest_turns(said.messages, self.keep))
        if self._store is not None:
            data = json.dumps(self.to_dict(said), allow_nan=False)
            self.revision = await self._store.save(self.id, data, owner=self.owner, revision=self.revision)
        self.said, self.failed = said, None

    def to_dict(self, said: Said) -> dict[str, Any]:
        """Return the conversation as JSON, with *said* as what was said."""
        return {
            "version": FORMAT,
            "id": self.id,
            "owner": self.owner,
            "fp": self.fp,
            "system": self.system.to_wire() if self.system is not None else None,
            "messages": [message.to_wire() for message in said.messages],
            "thread": said.thread.to_dict() if said.thread is not None else None,
        }

    def check_new(self, question: Sequence[Message]) -> None:
        """See that *question* is none of what was said.

        Raises:
            ConfigurationError: A message's id is known.
        """
        known = self.said.ids()
        for index, message in enumerate(question):
            if message.id in known:
                raise ConfigurationError(
                    f"messages[{index}].id is in this conversation already; pass only what is new",
                    field=f"messages[{index}].id",
                )


def new_message_id() -> str:
    """Return an id for a message."""
    return f"msg_{uuid.uuid4().hex}"


def seed_messages(messages: object) -> tuple[Message, ...]:
    """Return the messages that a conversation begins with.

    Raises:
        ConfigurationError: They are no list of messages.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ConfigurationError("messages must be a list of messages", field="messages")
    given = cast("Sequence[object]", messages)
    return tuple(coerce_messages(given, new_message_id)) if given else ()


def system_message(system: object) -> Message | None:
    """Return *system* as a message with an id.

    Raises:
        ConfigurationError: It is no text, and no message of that role.
    """
    if system is None:
        return None
    message = Message.system(system) if isinstance(system, str) else system
    if not isinstance(message, Message) or message.role != "system":
        raise ConfigurationError("system must be text, or a Message whose role is system", field="system")
    return message if message.id else evolve(message, id=new_message_id())


def read_said(stored: object) -> tuple[Said, Message | None]:
    """Read what :meth:`Record.to_dict` gave: what was said, and the system message.

    Raises:
        ConfigurationError: It is no conversation of this version.
    """
    found = as_object(stored) or {}
    messages = found.get("messages")
    if found.get("version") != FORMAT or not isinstance(messages, list):
        raise ConfigurationError(
            "this is no conversation that to_dict() of this version gave", field="stored"
        )
    thread, system = found.get("thread"), found.get("system")
    said = Said(
        messages=seed_messages(cast("Sequence[object]", messages)),
        thread=Thread.from_dict(thread) if thread is not None else None,
    )
    return said, system_message(Message.from_wire(system, "system") if system is not None else None)
