"""The turns of a conversation, and the messages to send with a question. No I/O.

A conversation keeps all parts of an answer, but sends only its text, files and links. A search result is 50
to 100 KB of text from the service's own search. Sending it with each later question would only cost time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from ..messages import Message, TextPart
from ..model.thread import Thread
from ..model.wire_value import EMPTY
from ..storage.store import new_version

__all__ = ["SENT_PARTS"]

SENT_PARTS: Final = frozenset({"text", "file", "source-url"})
"""The types of parts of earlier messages that are sent again. The service documents all of them."""


@frozen(kw_only=True, eq=False)
class TurnQuestion:
    """The question of a turn, and a function for its answer.

    Args:
        messages: The new messages.
        options: Additional arguments of ``session.ask``.
        replacing: The id of a message, or None. This turn replaces the message's turn and all later turns.
        finish: Takes the received answer and returns the answer to save. None saves the received answer.
    """

    messages: tuple[Message, ...]
    options: Mapping[str, Any]
    replacing: str | None = None
    finish: Callable[[Message], Message] | None = None


@frozen(kw_only=True, eq=False)
class History:
    """The finished turns of a conversation and its thread, which are saved together.

    Args:
        turns: The messages of each turn, oldest turn first. Messages before the first question are a turn.
        first_number: The number of the first of these turns. A conversation counts its turns from 0.
        complete: Whether *turns* are all turns. If not, the store may have older turns.
        system: The system message of the conversation, or None.
        system_messages: The system messages of all turns, which are sent with each question.
        thread: The thread at the service, or None.
        version: The name of this version of the history. None if it was never saved.
        basis: The version that this version replaces.
    """

    turns: tuple[tuple[Message, ...], ...] = ()
    first_number: int = 0
    complete: bool = True
    system: Message | None = None
    system_messages: tuple[Message, ...] = ()
    thread: Thread | None = None
    version: str | None = None
    basis: str | None = None

    @property
    def end(self) -> int:
        """The number of the next turn."""
        return self.first_number + len(self.turns)

    def turn(self, number: int) -> tuple[Message, ...]:
        """Return the messages of the turn with this number. It must be one of :attr:`turns`."""
        return self.turns[number - self.first_number]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the turns."""
        return tuple(message for turn in self.turns for message in turn)

    @property
    def ids(self) -> set[str]:
        """The ids of the messages."""
        return {message.id for turn in self.turns for message in turn}

    def with_messages(self, messages: Sequence[Message]) -> History:
        """Return this history with *messages* added. Each question starts a turn."""
        turns = list[list[Message]]()
        for message in messages:
            if not turns or (message.role == "user" and turns[-1][-1].role != "user"):
                turns.append([])
            turns[-1].append(message)
        system_messages = (message for message in messages if message.role == "system")
        return evolve(
            self,
            turns=(*self.turns, *map(tuple, turns)),
            system_messages=(*self.system_messages, *system_messages),
        )

    def next_version(self, thread: Thread | None) -> History:
        """Return this history in *thread*, as the version that replaces the current version."""
        return evolve(self, thread=thread, version=new_version(), basis=self.version)

    def without_last_turn(self) -> History | None:
        """Return this history without the last question and all later messages. None without a question."""
        places = (at for at, turn in enumerate(self.turns) if turn[0].role == "user")
        place = max(places, default=None)
        return None if place is None else self._until(place)

    def before(self, id: str) -> History | None:
        """Return the history before the turn of message *id*. None if no turn has this message.

        The result has no thread, because the thread contains the later turns.
        """
        places = (at for at, turn in enumerate(self.turns) if any(message.id == id for message in turn))
        place = next(places, None)
        return None if place is None else evolve(self._until(place), thread=None)

    def _until(self, place: int) -> History:
        remaining_history = evolve(self, turns=self.turns[:place])
        removed_ids = self.ids - remaining_history.ids
        system_messages = (message for message in self.system_messages if message.id not in removed_ids)
        return evolve(remaining_history, system_messages=tuple(system_messages))


def turns_to_send(max_messages: int | None) -> int | None:
    """Return how many turns a question needs, since most turns have two messages. None means all turns."""
    return None if max_messages is None else (max_messages + 1) // 2


def messages_to_send(
    history: History, question: Sequence[Message], max_messages: int | None
) -> list[Message]:
    """Return the messages of the next request.

    The question and system messages are always sent. Of the other messages, the newest are sent, at most
    *max_messages* with the question. None sends all messages. If a question is left out, its answer is also
    left out.
    """
    room = None if max_messages is None else max(max_messages - len(question), 0)
    newest = deque[Message]()
    newest_first = (message for turn in reversed(history.turns) for message in reversed(turn))
    for message in newest_first:  # the loop stops early, so a long conversation costs no more time
        sendable = _sendable(message)
        if message.role == "system" or not sendable.parts:
            continue
        if len(newest) == room:
            while newest and newest[0].role == "assistant":
                newest.popleft()
            break
        newest.appendleft(sendable)
    system_messages = [] if history.system is None else [history.system]
    return [*system_messages, *history.system_messages, *newest, *question]


def _sendable(message: Message) -> Message:
    """Return *message* with only the parts that are sent again, and without metadata."""
    parts = (part for part in message.parts if part.type in SENT_PARTS)
    sendable_parts = tuple(part for part in parts if not (isinstance(part, TextPart) and not part.text))
    return evolve(message, parts=sendable_parts, metadata=None, extra=EMPTY)
