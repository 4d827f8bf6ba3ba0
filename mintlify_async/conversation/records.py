"""The records of a conversation in a store. No I/O.

A conversation consists of a small head, and one record for each turn. A step replaces the head and adds or
drops a few turns in one write, so the thousandth turn takes no longer than the first. The write fails if
another writer has changed the head since it was read. If two writers start from the same head, one succeeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from attrs import evolve, frozen

from ..errors import ConfigurationError, StateError, StoreConflictError, printable
from ..messages import Message, coerce_messages, whole_message
from ..model.strict_json import as_object
from ..model.thread import Thread
from ..model.wire_value import without_halves
from ..protocol.requests import new_message_id
from ..storage.store import Record, unknown_version
from .history import History

FORMAT: Final = 1
"""The version of the storage format of a conversation."""

NAME_CHARACTERS: Final = 200
"""Maximum length of the id and of the owner of a conversation."""


@frozen
class ConversationKeys:
    """The keys of one conversation's records. All keys of an owner have the same prefix.

    Args:
        owner: The owner of the conversation.
        id: The name of the conversation among the owner's conversations.
    """

    owner: str
    id: str

    @property
    def head(self) -> str:
        """The key of the head."""
        return f"{heads_of(self.owner)}{self.id}"

    @property
    def turns(self) -> str:
        """The prefix of the keys of the turns."""
        return f"{_room(self.owner)}/turns-{_hash(self.id)}/"

    def turn(self, number: int) -> str:
        """Return the key of the turn with this number, from 0."""
        return f"{self.turns}{number:09}"


def heads_of(owner: str) -> str:
    """Return the prefix of the keys of the heads of an owner's conversations."""
    return f"{_room(owner)}/conversations/"


def _room(owner: str) -> str:
    return f"chats-{_hash(owner)}"


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def coerce_history(messages: object) -> tuple[Message, ...]:
    """Return the messages of a list, which may be empty. Lone surrogates in answers are replaced."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ConfigurationError("messages must be a list of messages", field="messages")
    items = cast("Sequence[object]", messages)
    return tuple(map(_readable, coerce_messages(items, new_message_id))) if items else ()


def _readable(message: Message) -> Message:
    """Return *message*. In an answer, lone surrogates are replaced, because the service may send some."""
    return whole_message(message) if message.role == "assistant" else message


class HiddenBytes(bytes):
    """Bytes that ``repr`` does not show."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


def head_fields(history: History, *, id: str, owner: str, fp: str) -> dict[str, Any]:
    """Return the conversation without its turns, as a JSON object."""
    return {
        "version": FORMAT,
        "id": id,
        "owner": owner,
        "fp": fp,
        "system": history.system.to_wire() if history.system is not None else None,
        "systemMessages": [message.to_wire() for message in history.system_messages],
        "thread": history.thread.to_dict() if history.thread is not None else None,
    }


def read_fields(fields: Mapping[str, Any]) -> History:
    """Return the history in *fields*, without the turns.

    Raises:
        ConfigurationError: *fields* was not made by :func:`head_fields`.
    """
    system, thread = fields.get("system"), fields.get("thread")
    return History(
        system=None if system is None else Message.from_wire(system, "system"),
        system_messages=coerce_history(fields.get("systemMessages", [])),
        thread=None if thread is None else Thread.from_dict(without_halves(thread)),
    )


def write_head(fields: Mapping[str, Any], turns: int) -> HiddenBytes:
    """Return the value of a head's record. Its bytes are hidden, because they contain the thread's key."""
    return HiddenBytes(json.dumps({**fields, "turns": turns}, allow_nan=False).encode())


def _head_of(record: Record) -> dict[str, Any]:
    try:
        return as_object(json.loads(record.value)) or {}
    except (ValueError, RecursionError):
        return {}


def turn_count(record: Record) -> int:
    """Return the number of turns in the head *record*. 0 if it cannot be read."""
    count = _head_of(record).get("turns")
    return count if isinstance(count, int) else 0


def read_head(record: Record, what: str) -> History:
    """Return the history in a head's *record*, without turns. ``first_number`` is the next turn's number.

    Args:
        record: The record.
        what: The conversation's name in errors.

    Raises:
        StateError: *record* is not the record of a head, or another version of the package wrote it.
    """
    fields = _head_of(record)
    version, count = fields.get("version"), fields.get("turns")
    try:
        if version == FORMAT and isinstance(count, int) and count >= 0:
            return evolve(read_fields(fields), first_number=count, complete=count == 0)
    except ConfigurationError:
        pass
    fields = {}  # the frames of an error must not show the thread's key
    if version != FORMAT:
        raise unknown_version(what, version, FORMAT, instead="`await chat.delete()`")
    raise _damaged(what)


def write_turn(messages: tuple[Message, ...]) -> bytes:
    """Return the value of a turn's record."""
    return json.dumps([message.to_wire() for message in messages], allow_nan=False).encode()


def read_turn(record: Record | None, what: str) -> tuple[Message, ...]:
    """Return the messages of the turn in *record*. Without a record, because it has expired, return ().

    Raises:
        StateError: *record* is not the record of a turn.
    """
    if record is None:
        return ()
    try:
        return coerce_history(json.loads(record.value))
    except (ValueError, RecursionError):  # a ConfigurationError is a ValueError
        raise _damaged(what) from None


def _damaged(what: str) -> StateError:
    return StateError(f"{what} cannot be read; `await chat.delete()` makes room for a new one")


def store_conflict(id: str) -> StoreConflictError:
    """Return the error for a writer whose version is not the newest any more."""
    return StoreConflictError(
        f"conversation {printable(id, 80)!r} was changed by another writer meanwhile; ask again "
        "(with a store, `await chat.load()` first)"
    )
