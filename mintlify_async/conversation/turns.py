"""The records of a conversation in a store, and the changes of a step to them. No I/O.

A conversation is a small head, and one record for each turn. A step replaces the head and adds or drops a few
turns in one write. The write succeeds only if no other writer has changed the head meanwhile. So a turn costs
the same after a thousand others. If two writers start from the same head, one succeeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from ..errors import ConfigurationError, StateError, StoreConflictError, printable
from ..messages import coerce_messages
from ..model.json_text import as_object
from ..protocol.calls import new_message_id
from ..storage import Record, unknown_version
from .history import FinishedTurn

FORMAT: Final = 1
"""The version of the form in which a conversation is stored."""

NAME_CHARACTERS: Final = 200
"""The longest id and owner of a conversation."""


@frozen
class ConversationKeys:
    """The keys of one conversation's records. All conversations of an owner share a room.

    Args:
        owner: Its owner.
        id: Its name among the owner's conversations.
    """

    owner: str
    id: str

    @property
    def head(self) -> str:
        """The key of the head."""
        return f"{heads_of(self.owner)}{self.id}"

    def turn(self, number: int) -> str:
        """Return the key of the turn with this number, from 0."""
        return f"{_room(self.owner)}/turns-{_hash(self.id)}/{number:09}"


def heads_of(owner: str) -> str:
    """Return the prefix of the keys of the heads of an owner's conversations."""
    return f"{_room(owner)}/conversations/"


def _room(owner: str) -> str:
    return f"chats-{_hash(owner)}"


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def check_name(name: object, field: str) -> str:
    """Return *name* if it can name a conversation or its owner.

    Raises:
        ConfigurationError: It is no text of 1 to 200 characters, or has NUL or half a character.
    """
    ok = isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS and "\0" not in name
    if not ok or any("\ud800" <= character <= "\udfff" for character in str(name)):
        raise ConfigurationError(
            f"{field} must be a text of 1 to {NAME_CHARACTERS} characters, without NUL or half a character",
            field=field,
        )
    return str(name)


@frozen(kw_only=True)
class StoredHead:
    """A conversation's head as it is stored.

    Args:
        version: The version of the record.
        turns: How many turns the conversation has.
        fields: The thread, the system messages and the names, as JSON.
    """

    version: str
    turns: int
    fields: Mapping[str, Any] = field(repr=False)  # with the thread's key


def read_head(record: Record, what: str) -> StoredHead:
    """Return the head in *record*; *what* names the conversation in errors.

    Raises:
        StateError: It is no such record, or of another version of this package.
    """
    try:
        fields = as_object(json.loads(record.value)) or {}
    except (ValueError, RecursionError):
        fields = {}
    version, turns = fields.get("version"), fields.get("turns")
    if version != FORMAT or not isinstance(turns, int) or turns < 0:
        fields = {}  # the frames of an error must not show the thread's key
    if version != FORMAT:
        raise unknown_version(what, version, FORMAT, instead="`await chat.delete()`")
    if not isinstance(turns, int) or turns < 0:
        raise damaged(what)
    return StoredHead(version=record.version, turns=turns, fields=fields)


def turns_of(record: Record) -> int:
    """Return how many turns a head in *record* names; 0 if it cannot be read."""
    try:
        turns = (as_object(json.loads(record.value)) or {}).get("turns")
    except (ValueError, RecursionError):
        return 0
    return turns if isinstance(turns, int) else 0


class HiddenBytes(bytes):
    """Bytes that ``repr`` does not show."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


def write_head(fields: Mapping[str, Any], turns: int) -> HiddenBytes:
    """Return the value of a head's record; hidden, for it contains the thread's key."""
    return HiddenBytes(json.dumps({**fields, "turns": turns}, allow_nan=False).encode())


def read_turn(record: Record, number: int, what: str) -> FinishedTurn:
    """Return the turn in *record*.

    Raises:
        StateError: It is no such record.
    """
    try:
        messages = coerce_messages(json.loads(record.value), new_message_id)
    except (ValueError, RecursionError):  # a ConfigurationError is a ValueError
        raise damaged(what) from None
    return FinishedTurn(number=number, messages=tuple(messages))


def write_turn(turn: FinishedTurn) -> bytes:
    """Return the value of a turn's record."""
    return json.dumps([message.to_wire() for message in turn.messages], allow_nan=False).encode()


def newest_turns(turns: Sequence[FinishedTurn | None]) -> tuple[FinishedTurn, ...]:
    """Return the turns after the last missing one. All turns before it have expired."""
    missing_places = [at for at, turn in enumerate(turns) if turn is None]
    return tuple(
        turn for turn in turns[missing_places[-1] + 1 if missing_places else 0 :] if turn is not None
    )


def changes_of(
    keys: ConversationKeys, head: bytes, new_turns: Mapping[int, bytes], *, turns: int, stored_turns: int
) -> dict[str, bytes | None]:
    """Return the changes of a step: the head, the new turns, and None for dropped turns.

    Args:
        keys: The conversation.
        head: The new head.
        new_turns: The values of the turns that are added or replaced, by number.
        turns: How many turns the conversation has after the step.
        stored_turns: How many it has in the store.
    """
    new_records = {keys.turn(number): value for number, value in new_turns.items()}
    deletions = dict.fromkeys(map(keys.turn, range(turns, stored_turns)))
    return {keys.head: head, **deletions, **new_records}


def damaged(what: str) -> StateError:
    """Return the error for a conversation that cannot be read."""
    return StateError(f"{what} cannot be read; `await chat.delete()` makes room for a new one")


def store_conflict(id: str) -> StoreConflictError:
    """Return the error for a writer whose version is no longer the newest."""
    return StoreConflictError(
        f"conversation {printable(id, 80)!r} was changed by another writer since it was loaded; "
        "`await chat.load()` and ask again"
    )
