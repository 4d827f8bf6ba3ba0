"""History: which messages of a conversation are kept, and which are sent with the next question. No I/O.

A conversation keeps all parts of an answer, but sends only its text, files and links back. A search
result is 50 to 100 KB of text that the service found itself: sending it with each later question
would cost time and tell the service nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from attrs import evolve, frozen

from ..errors import ConfigurationError
from ..messages import FilePart, Message, MessagePart, TextPart, clean_text
from ..model.wire_value import EMPTY

HISTORY_PARTS: Final = frozenset({"text", "file", "source-url"})
"""The types of parts of earlier messages that are sent again. All are documented by the service."""


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

    def __attrs_post_init__(self) -> None:
        """Check the numbers."""
        check_bound("max_messages", self.max_messages)
        check_bound("max_characters", self.max_characters)
        if isinstance(self.parts, str):
            raise ConfigurationError(
                "history_parts must be a collection of part types, or None", field="history_parts"
            )


def check_bound(name: str, bound: object) -> int | None:
    """Return *bound* when it is a whole number of at least 1, or None.

    Raises:
        ConfigurationError: It is neither.
    """
    if bound is None or (isinstance(bound, int) and not isinstance(bound, bool) and bound >= 1):
        return bound
    raise ConfigurationError(f"{name} must be a whole number, 1 or more, or None", field=name)


def newest_turns(messages: tuple[Message, ...], most: int | None) -> tuple[Message, ...]:
    """Return the newest whole turns of *messages*, at most *most* messages but always the last turn."""
    if most is None or len(messages) <= most:
        return messages
    first = len(messages) - most
    starts = [
        index
        for index, message in enumerate(messages)
        if message.role == "user" and (index == 0 or messages[index - 1].role != "user")
    ]
    kept = next((start for start in starts if start >= first), starts[-1] if starts else 0)
    return messages[kept:]


def messages_to_send(
    history: Sequence[Message], question: Sequence[Message], bounds: HistoryBounds
) -> list[Message]:
    """Return the messages of the next request.

    The question and system messages are always sent whole. Of the others, the newest that fit
    are sent. The first of them is never an answer whose question is left out.
    """
    system = [message for message in history if message.role == "system"]
    others = [_sendable(message, bounds.parts) for message in history if message.role != "system"]
    rest = [message for message in others if message.parts]
    return [*system, *_newest(rest, question, bounds), *question]


def turn_start(messages: Sequence[Message]) -> int | None:
    """Return the index of the first message of the last turn's question; None when there is no turn."""
    asked = [index for index, message in enumerate(messages) if message.role == "user"]
    if not asked:
        return None
    start = asked[-1]
    while start > 0 and messages[start - 1].role == "user":
        start -= 1
    return start


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


def _newest(rest: list[Message], question: Sequence[Message], bounds: HistoryBounds) -> list[Message]:
    """Return the newest messages of *rest* that fit beside *question*."""
    count = len(question)
    characters = sum(map(_characters, question))
    start = len(rest)
    while start > 0:
        count += 1
        characters += _characters(rest[start - 1])
        too_many = bounds.max_messages is not None and count > bounds.max_messages
        too_long = bounds.max_characters is not None and characters > bounds.max_characters
        if too_many or too_long:
            break
        start -= 1
    while 0 < start < len(rest) and rest[start].role == "assistant":
        start += 1
    return rest[start:]


def _characters(message: Message) -> int:
    return sum(_lengths(message))


def _lengths(message: Message) -> Iterator[int]:
    for part in message.parts:
        if isinstance(part, TextPart):
            yield len(part.text)
        elif isinstance(part, FilePart):
            yield len(part.url)  # often the file itself: data:…
