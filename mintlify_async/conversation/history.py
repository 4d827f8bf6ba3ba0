"""History: the turns of a conversation, which of them are kept, and what is sent with a question. No I/O.

A conversation keeps all parts of an answer, but sends only its text, files and links back. A search
result is 50 to 100 KB of text that the service found itself: sending it with each later question
would cost time and tell the service nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve, frozen

from ..errors import ConfigurationError
from ..messages import FilePart, Message, MessagePart, TextPart, clean_text
from ..model.thread import Thread
from ..model.wire_value import EMPTY

__all__ = ["Contents", "HistoryBounds", "messages_to_send"]

HISTORY_PARTS: Final = frozenset({"text", "file", "source-url"})
"""The types of parts of earlier messages that are sent again. All are documented by the service."""

TURNS_GUESSED: Final = 8
"""How many turns are read first when only their characters are bounded."""

_SHORTEST: Final = Message(id="", role="user")


@frozen(kw_only=True)
class HistoryBounds:
    """How much of a conversation is sent with a question.

    Args:
        max_messages: The most messages, the question included, system messages not; None for all.
        max_characters: The most characters, counted likewise; None for all.
        parts: The types of parts of earlier messages that are sent; None for all.

    Raises:
        ConfigurationError: A bound is below 1.
    """

    max_messages: int | None = None
    max_characters: int | None = None
    parts: Collection[str] | None = HISTORY_PARTS

    @property
    def likely_turns(self) -> int | None:
        """About how many turns fit, None for all: most turns are two messages."""
        if self.max_messages is None:
            return None if self.max_characters is None else TURNS_GUESSED
        return (self.max_messages + 1) // 2

    def __attrs_post_init__(self) -> None:
        """Check the numbers."""
        check_bound("max_messages", self.max_messages)
        check_bound("max_characters", self.max_characters)
        if isinstance(self.parts, str):
            raise ConfigurationError(
                "history_parts must be a collection of part types, or None", field="history_parts"
            )


@frozen(kw_only=True, eq=False)
class FinishedTurn:
    """A question and its answer; what a conversation began with before any question is a turn, too.

    Args:
        number: How many messages the conversation had before it.
        messages: Its messages.
    """

    number: int
    messages: tuple[Message, ...]


@frozen(kw_only=True, eq=False)
class Contents:
    """What is committed together: the finished turns of a conversation, and its thread.

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
        """Return these contents with *messages* at the end. A turn begins with each question."""
        starts = [at for at in range(len(messages)) if at == 0 or _begins_turn(messages, at)]
        new = tuple(
            FinishedTurn(number=self.end + start, messages=tuple(messages[start:stop]))
            for start, stop in pairwise([*starts, len(messages)])
        )
        system = tuple(message for message in messages if message.role == "system")
        return evolve(
            self,
            turns=(*self.turns, *new),
            end=self.end + len(messages),
            system_messages=(*self.system_messages, *system),
        )

    def with_turn(self, question: Sequence[Message], answer: Message, thread: Thread | None) -> Contents:
        """Return these contents with one more turn. It came in *thread*; None keeps the thread."""
        return evolve(self.with_messages((*question, answer)), thread=thread or self.thread)

    def without_last_turn(self) -> Contents | None:
        """Return these contents without the last question and all that follows; None if there is none."""
        places = reversed(range(len(self.turns)))
        asked = next((at for at in places if self.turns[at].messages[0].role == "user"), None)
        return None if asked is None else self._until(asked)

    def before(self, id: str | None) -> Contents | None:
        """Return what was before the turn of message *id*; None if no turn has it. With None, all.

        Without the thread, which remembers what followed.
        """
        if id is None:
            return self
        places = range(len(self.turns))
        at = next((at for at in places if any(one.id == id for one in self.turns[at].messages)), None)
        return None if at is None else evolve(self._until(at), thread=None)

    def _until(self, at: int) -> Contents:
        taken = {message.id for turn in self.turns[at:] for message in turn.messages}
        system = tuple(message for message in self.system_messages if message.id not in taken)
        return evolve(self, turns=self.turns[:at], end=self.turns[at].number, system_messages=system)

    def first_kept(self, most: int | None) -> int:
        """Return the lowest number of a turn among the newest *most* messages; the last turn always is."""
        if most is None or not self.turns:
            return 0
        return max(0, min(self.end - most, self.turns[-1].number))

    def newest(self, most: int | None) -> Contents:
        """Return the newest whole turns, at most *most* messages, but always the last turn."""
        first = self.first_kept(most)
        if not self.turns or first <= self.turns[0].number:
            return self
        return evolve(self, turns=tuple(turn for turn in self.turns if turn.number >= first), complete=True)

    def ids(self) -> set[str]:
        """Return the ids of the messages."""
        return {message.id for turn in self.turns for message in turn.messages}


def _begins_turn(messages: Sequence[Message], at: int) -> bool:
    return messages[at].role == "user" and messages[at - 1].role != "user"


def check_bound(name: str, bound: object) -> int | None:
    """Return *bound* when it is a whole number of at least 1, or None.

    Raises:
        ConfigurationError: It is neither.
    """
    if bound is None or (isinstance(bound, int) and not isinstance(bound, bool) and bound >= 1):
        return bound
    raise ConfigurationError(f"{name} must be a whole number, 1 or more, or None", field=name)


def messages_to_send(
    contents: Contents, question: Sequence[Message], bounds: HistoryBounds, system: Message | None = None
) -> list[Message]:
    """Return the messages of the next request.

    The question and system messages are always sent whole. Of the others, the newest that fit
    are sent. The first of them is never an answer whose question is left out.
    """
    first = [system] if system is not None else []
    newest, _ = _newest(contents, question, bounds)
    return [*first, *contents.system_messages, *newest, *question]


def fills(contents: Contents, bounds: HistoryBounds) -> bool:
    """Return whether turns before *contents* would not be sent, whatever the question is."""
    return _newest(contents, (_SHORTEST,), bounds)[1]


def _sendable(message: Message, parts: Collection[str] | None) -> Message:
    """Return *message* with only the parts that are sent again, and without metadata."""
    kept = tuple(_whole(part) for part in message.parts)
    if parts is not None:
        kept = tuple(p for p in kept if p.type in parts and not (isinstance(p, TextPart) and not p.text))
    return evolve(message, parts=kept, metadata=None, extra=EMPTY)


def _whole(part: MessagePart) -> MessagePart:
    """Return *part* without half a character, which the service may have sent and no request may hold."""
    if not isinstance(part, TextPart) or (text := clean_text(part.text)) == part.text:
        return part
    return evolve(part, text=text)


def _newest(
    contents: Contents, question: Sequence[Message], bounds: HistoryBounds
) -> tuple[list[Message], bool]:
    """Return the newest messages that fit beside *question*, and whether that are not all."""
    count = len(question)
    characters = sum(map(_characters, question))
    fitting: deque[Message] = deque()
    full = False
    for message in contents.newest_first():  # not all of them: a turn costs the same in a long conversation
        sendable = _sendable(message, bounds.parts)
        if message.role == "system" or not sendable.parts:
            continue
        count += 1
        characters += _characters(sendable)
        too_many = bounds.max_messages is not None and count > bounds.max_messages
        too_long = bounds.max_characters is not None and characters > bounds.max_characters
        if full := too_many or too_long:
            break
        fitting.appendleft(sendable)
    while (full or not contents.complete) and fitting and fitting[0].role == "assistant":
        fitting.popleft()
    return list(fitting), full


def _characters(message: Message) -> int:
    texts = (part.text for part in message.parts if isinstance(part, TextPart))
    # An address is often the file itself: data:…
    files = (part.url for part in message.parts if isinstance(part, FilePart))
    return sum(map(len, texts)) + sum(map(len, files))
