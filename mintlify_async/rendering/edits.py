"""Edits: a growing answer as chat messages, at a rate that the chat service accepts.

The iterator's steps read the answer. While the consumer sends an edit, arriving text waits in the
connection's buffer.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

from ..argument_checks import check_seconds
from ..errors import StateError
from ..runtime.tasks import start_task
from ..runtime.time_limits import TimeLimit
from .growing_messages import Edit, MarkdownSplitter

SHORTEST_PAUSE: Final = 0.25
"""Minimum pause in seconds without text, after which all text is shown, even if *every* is shorter."""


class GrowingAnswer(Protocol):
    """A reply. Its block stays open until all text was shown."""

    @property
    def text_stream(self) -> AsyncIterator[str]:
        """The text of the following events, piece by piece."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the service announced the end of the answer."""
        ...

    def __aiter__(self) -> Any:
        """Raise StateError if the reply has ended."""

    async def __aenter__(self) -> Any:
        """Open the reply."""

    async def close(self) -> None:
        """Stop reading and free the connection."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reply. *error* is the error that ended its block."""


class Received(Protocol):
    """The received part of an answer."""

    @property
    def text_so_far(self) -> str:
        """The text of the events returned up to now."""
        ...

    @property
    def queue(self) -> Collection[str]:
        """The events that have arrived and were not returned yet."""
        ...


class Edits:
    """The edits of chat messages while an answer grows; see ``Reply.edits``.

    An async iterator of :class:`Edit`, and an async context manager that closes the reply at the end of the
    block. A cancelled step loses no text, so iteration may continue. If the task of the ``async for`` ends,
    the reading ends.
    """

    def __init__(
        self,
        answer: GrowingAnswer,
        *,
        every: float,
        limit: int,
        received: Callable[[], Received],
        tail: Callable[[], str] | None = None,
        on_shown: Callable[[int | None], None] | None = None,
    ) -> None:
        """Store the arguments. The first step starts to read.

        Args:
            answer: The reply.
            every: Seconds between two edits, 0 or more.
            limit: Maximum length of a message, in UTF-16 code units.
            received: Returns the received part of the answer, after the reply was opened.
            tail: Returns the text below a complete answer.
            on_shown: Called after each step with the number of shown characters of the reply's text. During a
                step, it is called with None, because all text that the step reads will be shown.
        """
        check_seconds(every, "every", zero=True)
        self._answer = answer
        self._every = float(every)
        self._splitter = MarkdownSplitter(limit)
        self._received = received
        self._tail = tail
        self._on_shown = on_shown
        self._loop: asyncio.AbstractEventLoop | None = None  # set while the reply is open
        self._pieces: AsyncIterator[str] | None = None
        self._pause = max(self._every, SHORTEST_PAUSE)
        self._pause_at = math.inf  # if no text arrives until then, all text is shown
        self._due = -math.inf  # no edit is made before this time
        self._over = False  # no more text follows
        self._error: Exception | None = None
        self._last_edits: deque[Edit] | None = None  # set when the text is complete
        self._sending: Edit | None = None  # the edit that the consumer sends now
        self._stepping = False

    def __aiter__(self) -> Self:
        """Return itself. If the reply has ended, raise StateError."""
        consumer = asyncio.current_task()
        if self._pieces is None and not self._over and consumer is not None:
            aiter(self._answer)
            this = weakref.ref(self)

            def consumer_ended(task: asyncio.Task[Any]) -> None:
                edits = this()  # the Edits object may still exist, because a traceback may keep it alive
                if edits is not None and edits._loop is not None:
                    edits._error = StateError(
                        "the task that read these edits has ended; read all edits in one task"
                    )
                    edits._leave(asyncio.CancelledError() if task.cancelled() else None)

            consumer.add_done_callback(consumer_ended)
            weakref.finalize(self, consumer.remove_done_callback, consumer_ended).atexit = False
        return self

    async def __anext__(self) -> Edit:
        """Return the next edit, at least ``every`` seconds after the consumer finished the last one.

        Raises:
            StopAsyncIteration: All text was shown.
            MintlifyError: The answer failed. All text that arrived before was shown.
            StateError: Another task is waiting for the next edit, or the task that iterated has ended.
        """
        if self._stepping:
            raise StateError("these edits are already being read by another task; read them in one task")
        self._stepping = True
        self._report(None)
        try:
            if (sent := self._sending) is not None:
                self._due, self._sending = asyncio.get_running_loop().time() + self._every, None
                if sent.final:  # many messages may be ready, and a consumer that never waits stops the loop
                    await asyncio.sleep(0)
            edit = self._sending = await self._next()
        finally:
            self._stepping = False
            self._report(self._splitter.shown_length)
        if edit is not None:
            return edit
        self._loop = None
        try:
            await self._answer.close()
        except Exception as problem:
            self._error = self._error or problem
        error, self._error = self._error, None
        raise StopAsyncIteration if error is None else error

    async def _next(self) -> Edit | None:
        """Return the next edit, or None after the last one."""
        if self._pieces is None and not self._over:
            await self._open()
        await self._read_arriving()
        edit = await self._growing_edit()
        if edit is not None:
            return edit
        if self._last_edits is None:
            is_complete = self._error is None and self._answer.complete
            try:
                self._splitter.close(self._tail() if is_complete and self._tail is not None else "")
            except Exception as error:  # from the user's function
                self._error = error
                self._splitter.close()
            self._last_edits = deque(iter(self._splitter.next_edit, None))
        if self._last_edits or self._error is not None:  # the consumer will show a message about the error
            await asyncio.sleep(max(0.0, self._due - asyncio.get_running_loop().time()))
        return self._last_edits.popleft() if self._last_edits else None

    async def _open(self) -> None:
        """Open the reply, and take the text of the events that were read before."""
        self._loop = asyncio.get_running_loop()
        try:
            # In a conversation, the next turn starts only after this block.
            await self._answer.__aenter__()
            aiter(self._answer)
        except Exception as error:
            self._over, self._error = True, error
        else:
            self._pieces = self._answer.text_stream
            self._add(self._received().text_so_far)

    def _add(self, text: str) -> None:
        if text:
            self._splitter.feed(text)
            self._pause_at = asyncio.get_running_loop().time() + self._pause

    async def _growing_edit(self) -> Edit | None:
        """Return the next edit, or None if no more text follows."""
        time = asyncio.get_running_loop().time
        while not self._over:
            # The text moves this limit. A limit for each piece would cost more than reading the piece.
            with suppress(TimeoutError), TimeLimit() as limit:
                while not self._over:
                    is_paused = time() >= self._pause_at
                    edit = self._splitter.next_edit(pause=is_paused)
                    if edit is not None:
                        return edit
                    limit.move(math.inf if is_paused else self._pause_at)
                    await self._read_piece()
                    await self._read_arriving()
        return None

    async def _read_arriving(self) -> None:
        """Read the text that has arrived, or arrives until an edit is due."""
        if self._may_have_arrived():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._due):
                    while self._may_have_arrived():
                        await self._read_piece()

    def _may_have_arrived(self) -> bool:
        """Return whether to read on before an edit. A slow consumer also makes the text seem to pause."""
        now = asyncio.get_running_loop().time()
        return not self._over and (not self._due <= now < self._pause_at or bool(self._received().queue))

    async def _read_piece(self) -> None:
        """Wait for the next piece of text."""
        assert self._pieces is not None
        try:
            self._add(await anext(self._pieces))
        except StopAsyncIteration:
            self._over = True
        except Exception as error:
            self._over, self._error = True, self._error or error

    def _report(self, shown_length: int | None) -> None:
        if self._on_shown is not None:
            self._on_shown(shown_length)

    def _leave(self, error: BaseException | None) -> None:
        """Leave the reply's block without waiting for the exit."""
        self._loop, self._over, self._last_edits = None, True, deque()
        _leave_soon(self._answer, error)

    async def close(self) -> None:
        """Stop reading and close the reply. Repeated calls do nothing."""
        self._loop, self._over, self._last_edits = None, True, deque()
        self._report(self._splitter.shown_length)
        await self._answer.close()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self._answer.__aexit__(kind, error, trace)
        await self.close()

    def __del__(self) -> None:
        loop = getattr(self, "_loop", None)
        if loop is not None:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_leave_soon, self._answer, None)


def _leave_soon(answer: GrowingAnswer, error: BaseException | None) -> None:
    async def leave() -> None:
        with suppress(Exception):
            await (answer.close() if error is None else answer.__aexit__(type(error), error, None))

    start_task(leave())
