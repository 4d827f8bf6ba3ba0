"""A finished answer of the assistant as a value, and the views of one that arrives."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final, Self

from attrs import frozen

from ..errors import StateError
from ..events import StreamEvent, TextDelta
from ..messages import Message, clean_text
from ..model.response_info import ResponseInfo
from ..model.thread import Thread
from ..rendering.sources import AnswerSource, Suggestion, sources_of, split_suggestions
from ..runtime.caller import Place

HOW_TO_READ: Final = (
    "`await` it, or read it with `async for event in reply`, or with "
    "`async with reply: async for text in reply.text_stream`"
)


@frozen(kw_only=True, repr=False)
class Answer:
    """A whole answer: what awaiting a :class:`~mintlify_async.assistant.reply.Reply` returns.

    It can be pickled; like every pickle of a thread, it then has no ``thread.key``.

    Args:
        message: The answer as a message with typed parts.
        thread: The conversation's thread, or None: pass it to the next ``ask``.
        finish_reason: The service's reason for the end: ``stop``, ``length``, …; None when it gave none.
        aborted: Whether the service ended the answer with an ``abort`` event.
        abort_reason: The service's reason for an abort, or None.
        response: Status, headers and request id.
        events_seen: How many events the answer had.
    """

    message: Message
    thread: Thread | None
    finish_reason: str | None
    aborted: bool
    abort_reason: str | None
    response: ResponseInfo | None
    events_seen: int

    @property
    def text(self) -> str:
        """The answer's text, in Markdown."""
        return self.message.text

    @property
    def sources(self) -> list[AnswerSource]:
        """The pages that the answer is based on, in order, without duplicates."""
        return sources_of(self.message)

    @property
    def suggestions(self) -> list[Suggestion]:
        """The pages that the answer suggests to read next."""
        return split_suggestions(self.message.text)[1]

    @property
    def thread_id(self) -> str | None:
        """The thread's id, or None."""
        return self.thread.id if self.thread is not None else None

    def __repr__(self) -> str:
        """Show the number of events and the reason for the end; answers do not belong in logs."""
        return f"<Answer {self.events_seen} events, finish_reason={self.finish_reason!r}>"

    if not TYPE_CHECKING:  # type checkers see no __aiter__, and so reject the loop

        def __aiter__(self):
            """Say how to stream."""
            raise TypeError(
                "an Answer is complete and cannot be iterated over; to stream, leave out the await: "
                "`async for event in session.ask(…)`"
            )


class TextStream:
    """The text of a reply, piece by piece. Half a surrogate pair is held until the other half arrives."""

    def __init__(self, reply: AsyncIterator[StreamEvent]) -> None:
        """Read from *reply*."""
        self._reply = reply
        self._held = ""

    def __aiter__(self) -> Self:
        """Return itself; raises StateError when the reply has ended."""
        aiter(self._reply)
        return self

    async def __anext__(self) -> str:
        """Return the next piece of text, never empty; raises what the reply raises."""
        while True:
            try:
                event = await anext(self._reply)
            except StopAsyncIteration:
                rest, self._held = clean_text(self._held), ""
                if rest:
                    return rest
                raise
            if isinstance(event, TextDelta):
                arrived = self._held + event.delta
                text = clean_text(arrived, streaming=True)
                self._held = arrived[-1:] if "\ud800" <= arrived[-1:] <= "\udbff" else ""
                if text:
                    return text
            del event  # or this frame would keep it in memory while it waits for the next


class Snapshots:
    """The message of a reply after each change."""

    def __init__(self, reply: AsyncIterator[StreamEvent], changed: Callable[[], Message | None]) -> None:
        """Read from *reply*; *changed* returns its message if the last event changed it."""
        self._reply = reply
        self._changed = changed

    def __aiter__(self) -> Self:
        """Return itself; raises StateError when the reply has ended."""
        aiter(self._reply)
        return self

    async def __anext__(self) -> Message:
        """Return the message after the next change; raises what the reply raises."""
        while True:
            await anext(self._reply)
            message = self._changed()
            if message is not None:
                return message


def warn_unread(state: str, made_at: Place) -> None:
    """Warn about a reply that was not read, with the line that made it."""
    warnings.warn_explicit(f"a reply was {state}; {HOW_TO_READ}", ResourceWarning, *made_at)


def already_read() -> StateError:
    """Return the error for a second task that reads a reply."""
    return StateError("this reply is already being read by another task; read it in one, or ask twice")
