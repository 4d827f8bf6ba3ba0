"""The settings of a conversation: its checked arguments."""

from __future__ import annotations

from typing import Literal

from attrs import evolve, field, frozen

from ..argument_checks import ANONYMOUS, check_fp, check_number, check_store, check_word
from ..errors import ConfigurationError
from ..messages import Message
from ..protocol.requests import new_message_id
from ..storage.store import Store


def _system_message(system: object) -> Message | None:
    """Return *system*, a text or a message, as a message with an id."""
    if system is None:
        return None
    message = Message.system(system) if isinstance(system, str) else system
    if not isinstance(message, Message) or message.role != "system":
        raise ConfigurationError("system must be text, or a Message whose role is system", field="system")
    return message if message.id else evolve(message, id=new_message_id())


@frozen(kw_only=True)
class ConversationSettings:
    """The checked arguments of ``session.conversation``, which documents them."""

    fp: str
    store: Store | None
    id: str | None
    owner: str | None
    system: Message | None = field(converter=_system_message)
    commit: Literal["finish", "partial"]
    busy: Literal["raise", "queue"]
    max_messages: int | None

    def __attrs_post_init__(self) -> None:
        """Check each argument, and that a stored conversation has an owner."""
        check_fp(self.fp)
        check_word(self.commit, "commit", ("finish", "partial"))
        check_word(self.busy, "busy", ("raise", "queue"))
        check_store(self.store, "store")
        check_number(self.max_messages, "max_messages", 1, whole=True, none=True)
        if self.store is not None and self.id is not None and self.owner is None and self.fp == ANONYMOUS:
            raise ConfigurationError(
                "a conversation with store= and id= needs owner= or fp=; otherwise all users would share it",
                field="owner",
            )

    @property
    def queue(self) -> bool:
        """Whether a step waits in line while a turn is running."""
        return self.busy == "queue"
