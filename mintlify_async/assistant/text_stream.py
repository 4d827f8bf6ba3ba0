"""The text of a reply as it arrives: ``reply.text_stream``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol, Self

from ..errors import StateError
from ..events import StreamEvent
from ..habits import AsyncOnly
from .message_builder import GrowingText


class ClosableEvents(Protocol):
    """A reply, for the views that read it."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]: ...

    def __anext__(self) -> Awaitable[StreamEvent]: ...

    async def aclose(self) -> None:
        """Stop reading and free the connection."""
        ...


class TextStream(AsyncOnly):
    """The text of a reply, piece by piece, as people read it. Together the pieces are ``answer.text``.

    A line that may open a ``suggestions`` block is held back until that is known, half a surrogate pair
    until its other half arrives, and a text that begins before the one before it has ended until then.
    Everything received is handed out before the reply's error is raised. Delivered text cannot be
    taken back. If a second ``start`` with another id replaces the message, the new text follows after a blank
    line, also in ``answer.text``. If a ``reset-step`` makes text void, ``answer.text`` has only its
    replacement.
    """

    def __init__(self, reply: ClosableEvents, growing_text: Callable[[], GrowingText]) -> None:
        """Read from *reply*; *growing_text* returns its text, or raises StateError before it was started."""
        self._reply = reply
        self._growing_text = growing_text
        self._text: GrowingText | None = None
        self._error: Exception | None = None  # raised in the next step: it came with a last piece

    def __aiter__(self) -> Self:
        """Return itself. It raises StateError when the reply has ended."""
        aiter(self._reply)
        return self

    async def aclose(self) -> None:
        """Close the reply, for ``contextlib.aclosing``."""
        await self._reply.aclose()

    async def __anext__(self) -> str:
        """Return the next piece of text, never empty. It raises the errors of the reply."""
        if self._error is not None:
            raise self._error
        while True:
            if self._text is None:
                with suppress(StateError):  # not started: no text to follow yet, and its first event has none
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
            del event  # or this frame would keep it in memory while it waits for the next
