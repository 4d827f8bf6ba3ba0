"""The turns of a conversation, the turns to keep, and the messages to send with a question. No I/O.

A conversation keeps all parts of an answer, but sends only its text, files and links back. A search result is
50 to 100 KB of text that the service found itself. Sending it with each later question would only cost time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve, frozen

from ..messages import Message, MessagePart, TextPart, clean_text
from ..model.thread import Thread
from ..model.wire_value import EMPTY

__all__ = ["Contents", "FinishedTurn", "messages_to_send"]

SENT_PARTS: Final = frozenset({"text", "file", "source-url"})
"""The types of parts of earlier messages that are sent again. All are documented by the service."""


@frozen(kw_only=True, eq=False)
class FinishedTurn:
    """A question and its answer. The messages before the first question are also a turn.

    Args:
        number: Its place in the conversation, from 0.
        messages: Its messages.
    """

    number: int
    messages: tuple[Message, ...]


@frozen(kw_only=True, eq=False)
class Contents:
    """The finished turns of a conversation and its thread, which are committed together.

    Args:
        turns: The newest turns, oldest first.
        end: The number of the turn that comes next.
        complete: Whether *turns* are all; if not, the store has older ones.
        system_messages: The system messages of all turns, which are sent with each question.
        thread: The thread at the service, or None.
    """

    turns: tuple[FinishedTurn, ...] = ()
    end: int = 0
    complete: bool = True
    system_messages: tuple[Message, ...] = ()
    thread: Thread | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the turns."""
        return tuple(message for turn in self.turns for message in turn.messages)

    def newest_first(self) -> Iterator[Message]:
        """Yield the messages of the turns, the newest first."""
        return (message for turn in reversed(self.turns) for message in reversed(turn.messages))

    def with_messages(self, messages: Sequence[Message]) -> Contents:
        """Return these contents with *messages* at the end. A turn starts with each question."""
        starts = [at for at in range(len(messages)) if at == 0 or _begins_turn(messages, at)]
        new_turns = tuple(
            FinishedTurn(number=number, messages=tuple(messages[start:stop]))
            for number, (start, stop) in enumerate(pairwise([*starts, len(messages)]), self.end)
        )
        system = tuple(message for message in messages if message.role == "system")
        return evolve(
            self,
            turns=(*self.turns, *new_turns),
            end=self.end + len(new_turns),
            system_messages=(*self.system_messages, *system),
        )

    def with_turn(self, question: Sequence[Message], answer: Message, thread: Thread | None) -> Contents:
        """Return these contents with one more turn. It came in *thread*; None keeps the thread."""
        return evolve(self.with_messages((*question, answer)), thread=thread or self.thread)

    def without_last_turn(self) -> Contents | None:
        """Return these contents without the last question and all later messages; None if there is none."""
        places = reversed(range(len(self.turns)))
        place = next((at for at in places if self.turns[at].messages[0].role == "user"), None)
        return None if place is None else self._until(place)

    def before(self, id: str | None) -> Contents | None:
        """Return the contents before the turn of message *id*; None if no turn has it. With None, return all.

        Without the thread, because it contains the later turns.
        """
        if id is None:
            return self
        places = range(len(self.turns))
        at = next((at for at in places if any(one.id == id for one in self.turns[at].messages)), None)
        return None if at is None else evolve(self._until(at), thread=None)

    def _until(self, at: int) -> Contents:
        removed_ids = {message.id for turn in self.turns[at:] for message in turn.messages}
        system = tuple(message for message in self.system_messages if message.id not in removed_ids)
        return evolve(self, turns=self.turns[:at], end=self.turns[at].number, system_messages=system)

    def ids(self) -> set[str]:
        """Return the ids of the messages."""
        return {message.id for turn in self.turns for message in turn.messages}


def _begins_turn(messages: Sequence[Message], at: int) -> bool:
    return messages[at].role == "user" and messages[at - 1].role != "user"


def messages_to_send(
    contents: Contents,
    question: Sequence[Message],
    bound: int | None,
    system: Message | None = None,
) -> list[Message]:
    """Return the messages of the next request.

    The question and system messages are always sent. Of the other messages, the newest are sent, at most
    *bound* with the question; None sends all. They never start with an answer whose question is left out.
    """
    system_messages = [system] if system is not None else []
    room = None if bound is None else max(bound - len(question), 0)
    newest: deque[Message] = deque()
    left_out = not contents.complete
    for message in contents.newest_first():  # not all of them: a turn costs the same in a long conversation
        sendable = _sendable(message)
        if message.role == "system" or not sendable.parts:
            continue
        if len(newest) == room:
            left_out = True
            break
        newest.appendleft(sendable)
    while left_out and newest and newest[0].role == "assistant":
        newest.popleft()
    return [*system_messages, *contents.system_messages, *newest, *question]


def _sendable(message: Message) -> Message:
    """Return *message* with only the parts that are sent again, and without metadata."""
    parts = (_clean(part) for part in message.parts if part.type in SENT_PARTS)
    sendable_parts = tuple(part for part in parts if not (isinstance(part, TextPart) and not part.text))
    return evolve(message, parts=sendable_parts, metadata=None, extra=EMPTY)


def _clean(part: MessagePart) -> MessagePart:
    """Return *part* without half a character, which the service may have sent and no request may hold."""
    if not isinstance(part, TextPart) or (text := clean_text(part.text)) == part.text:
        return part
    return evolve(part, text=text)
