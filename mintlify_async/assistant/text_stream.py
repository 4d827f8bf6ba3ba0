"""The text of a reply as it arrives: ``reply.text_stream``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol, Self

from ..errors import StateError
from ..events import StreamEvent
from ..wrong_names import AsyncOnly
from .message_builder import GrowingText


class ClosableEvents(Protocol):
    """The methods of a reply that :class:`TextStream` uses."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]: ...

    def __anext__(self) -> Awaitable[StreamEvent]: ...

    async def aclose(self) -> None:
        """Stop reading and free the connection."""


class TextStream(AsyncOnly):
    """The text of a reply, piece by piece, for display. Together, the pieces are ``answer.text``.

    Some text is held back: a line that may open a ``suggestions`` block, half a surrogate pair, and a text
    part that starts before the previous part has ended. Such text is yielded when its place is certain. All
    received text is yielded before the reply's error is raised. Yielded text cannot be taken back. If a
    second ``start`` with another id replaces the message, the new text follows after a blank line, also in
    ``answer.text``. If a ``reset-step`` discards text, ``answer.text`` has only the replacement.
    """

    def __init__(self, reply: ClosableEvents, growing_text: Callable[[], GrowingText]) -> None:
        """Read from *reply*. *growing_text* returns the text of the reply.

        Before the reply has started, *growing_text* raises StateError.
        """
        self._reply = reply
        self._growing_text = growing_text
        self._text: GrowingText | None = None
        self._error: Exception | None = None  # raised in the next step, because it came with a last piece

    def __aiter__(self) -> Self:
        """Return itself. If the reply has ended, raise StateError."""
        aiter(self._reply)
        return self

    async def aclose(self) -> None:
        """Close the reply, for ``contextlib.aclosing``."""
        await self._reply.aclose()

    async def __anext__(self) -> str:
        """Return the next piece of text, which is never empty. Raise the errors of the reply."""
        if self._error is not None:
            raise self._error
        while True:
            if self._text is None:
                # If the reply has not started, no text is lost, because the first event has no text.
                with suppress(StateError):
                    self._text = self._growing_text()
            try:
                event = await anext(self._reply)
            except StateError:
                raise  # another task is reading
            except Exception as error:
                rest = self._text.close() if self._text is not None else ""
                if not rest:
                    raise
                self._error = error
                return rest
            text = self._text.after(event) if self._text is not None else ""
            if text:
                return text
            del event  # otherwise this frame would keep it in memory while waiting
