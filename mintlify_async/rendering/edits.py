"""Edits: shows a growing answer as chat messages, no faster than the chat service accepts.

A task reads the answer while the consumer sends an edit. The task belongs to the iterator and
ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, Self

from ..errors import ConfigurationError, StateError
from ..events import StreamEvent
from .splitting import Edit, MarkdownSplitter

SHORTEST_PAUSE: Final = 0.25
"""Seconds without text after which everything is shown, also when edits may follow each other faster."""


class GrowingAnswer(AsyncIterable[StreamEvent], AbstractAsyncContextManager[Any], Protocol):
    """The reading of a reply. Its block lasts until everything was shown."""

    @property
    def text(self) -> str:
        """The text of the events handed out so far."""
        ...

    @property
    def text_stream(self) -> AsyncIterator[str]:
        """The text of the events to come, piece by piece."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the end of the answer was announced."""
        ...

    async def close(self) -> None:
        """Stop reading and free the connection."""
        ...


class Edits:
    """The edits of chat messages while an answer grows; see ``Reply.edits``.

    An async iterator of :class:`Edit`, and an async context manager that closes the
    reply at the block's end. Cancelling a step loses nothing, so iteration may continue. The reading ends
    with the task that runs the ``async for``.
    """

    def __init__(
        self,
        answer: GrowingAnswer,
        *,
        every: float,
        limit: int,
        tail: Callable[[], str] | None = None,
        on_leave: Callable[[int], None] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            answer: The reply.
            every: Seconds between two edits, 0 or more.
            limit: The longest message, in UTF-16 code units.
            tail: Returns the text below a complete answer.
            on_leave: Called before a reply is closed early, with the number of characters of its text that
                were shown.
        """
        if type(every) not in (int, float) or not 0 <= every < math.inf:
            raise ConfigurationError(
                f"every must be a number of seconds, 0 or more; got {every!r}", field="every"
            )
        self._every = float(every)
        self._pause = max(self._every, SHORTEST_PAUSE)
        self._reading = _Reading(answer, MarkdownSplitter(limit), on_leave)
        self._tail = tail
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._consumer: asyncio.Task[Any] | None = None
        self._due = -math.inf  # no edit is made before this time
        self._last_edits: deque[Edit] | None = None  # once the text is complete
        self._sending = self._stepping = False

    def __aiter__(self) -> Self:
        """Return itself. If the reply has ended, raise StateError."""
        if self._task is None and not self._reading.over:
            aiter(self._reading.answer)
            self._consumer = asyncio.current_task()
        return self

    async def __anext__(self) -> Edit:
        """Return the next edit, at least ``every`` seconds after the consumer finished the last one.

        Raises:
            StopAsyncIteration: Everything was shown.
            MintlifyError: The answer failed. All text received before was shown.
            StateError: Another task is waiting for the next edit, or the task that iterated has ended.
        """
        if self._stepping:
            raise StateError("these edits are already being read by another task; read them in one task")
        self._stepping = True
        try:
            if self._task is None and not self._reading.over:
                self._start()
            if self._sending:
                self._due, self._sending = asyncio.get_running_loop().time() + self._every, False
            edit = await self._next()
            self._sending = edit is not None
        finally:
            self._stepping = False
        if edit is not None:
            return edit
        self._reading.all_shown.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        error, self._reading.error = self._reading.error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    def _start(self) -> None:
        reading, self._loop = self._reading, asyncio.get_running_loop()
        self._task = task = self._loop.create_task(reading.run(), name="mintlify-async edits")
        if (consumer := self._consumer) is not None:
            # A traceback may keep this iterator alive after its task.

            def consumer_ended(ended: asyncio.Task[Any]) -> None:
                task_ended = StateError(
                    "the task that read these edits has ended; read all edits in one task"
                )
                reading.stop(task_ended, task if ended.cancelled() else None)

            consumer.add_done_callback(consumer_ended)
            task.add_done_callback(lambda _: consumer.remove_done_callback(consumer_ended))

    async def _next(self) -> Edit | None:
        """Return the next edit, or None after the last one."""
        reading, loop = self._reading, asyncio.get_running_loop()
        while self._last_edits is None:
            await self._until_due()
            splitter = reading.splitter
            reading.arrival.clear()
            splitter.feed(reading.take())
            if reading.over:
                splitter.close(self._tail() if reading.complete and self._tail is not None else "")
                self._last_edits = deque(iter(splitter.next_edit, None))
                break
            pause_at = reading.last_text_at + self._pause
            pausing = loop.time() >= pause_at
            edit = splitter.next_edit(pause=pausing)
            if edit is not None:
                return edit
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if pausing else pause_at):
                    await reading.arrival.wait()
        if self._last_edits or reading.error is not None:  # the consumer will show a message about the error
            await self._until_due()
        return self._last_edits.popleft() if self._last_edits else None

    async def _until_due(self) -> None:
        seconds_left = self._due - asyncio.get_running_loop().time()
        if seconds_left > 0:
            await asyncio.sleep(seconds_left)

    async def close(self) -> None:
        """Stop reading and close the reply. Safe to repeat."""
        self._last_edits = deque()
        if self._task is None:
            self._reading.over = True
            await self._reading.answer.close()
        else:
            self._reading.stop(None)
            await asyncio.wait([self._task, *self._reading.close_tasks])

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is asyncio.CancelledError and self._task is not None:
            self._reading.stop(None, self._task)
        await self.close()

    def __del__(self) -> None:
        task, loop = getattr(self, "_task", None), getattr(self, "_loop", None)
        if task is not None and loop is not None and not task.done():
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._reading.stop, None)


class _Reading:
    """The reading task's state. It has no reference to the iterator, so a dropped iterator is collected."""

    def __init__(
        self, answer: GrowingAnswer, splitter: MarkdownSplitter, on_leave: Callable[[int], None] | None
    ) -> None:
        self.answer = answer
        self.splitter = splitter
        self.last_text_at = math.inf
        self.over = False  # no more text comes
        self.complete = False  # the answer came to its end
        self.error: Exception | None = None
        self.arrival = asyncio.Event()  # text came, or the end
        self.all_shown = asyncio.Event()  # everything was shown, or the consumer wants no more
        self.close_tasks: list[asyncio.Task[None]] = []
        self._on_leave = on_leave
        self._pieces: list[str] = []

    async def run(self) -> None:
        """Read the answer to its end, and keep its block open until everything was shown."""
        try:
            # In a conversation, the next turn starts only when this block is left.
            async with self.answer:
                await self._read()
                await self.all_shown.wait()
        except Exception as error:
            self._end(error)

    async def _read(self) -> None:
        try:
            self._add(self.answer.text)  # of the events that were read before
            async for text in self.answer.text_stream:
                self._add(text)
        except Exception as error:
            self._end(error)
        except BaseException:
            self._end(StateError("the task that read these edits was cancelled"))
            raise
        else:
            self.complete = self.answer.complete
            self._end(None)

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self.last_text_at = asyncio.get_running_loop().time()
            self.arrival.set()

    def _end(self, error: Exception | None) -> None:
        """Say that no more text comes; *error* is why, if the answer failed."""
        self.error = self.error or error
        self.over = True
        self.arrival.set()

    def take(self) -> str:
        """Return the text that came since the last call."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text

    def stop(self, error: Exception | None, cancelled: asyncio.Task[None] | None = None) -> None:
        """Close the reply before everything was shown.

        Args:
            error: The error for the next read.
            cancelled: The reading task, if its consumer was cancelled. The reply then ends as cancelled.
        """
        if not self.all_shown.is_set():
            self.error = self.error or error
            self.all_shown.set()
            if self._on_leave is not None:
                self._on_leave(self.splitter.shown_length)
            if cancelled is not None:
                cancelled.cancel()
            else:
                self.close_tasks.append(asyncio.get_running_loop().create_task(self._close()))

    async def _close(self) -> None:
        try:
            await self.answer.close()
        except Exception as error:
            self._end(error)
