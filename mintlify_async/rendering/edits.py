"""Edits: shows a growing answer as chat messages, no faster than the chat service accepts.

A task reads the answer while the consumer sends an edit. The task belongs to the iterator and
ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from ..errors import ConfigurationError, StateError
from ..events import StreamEvent
from ..runtime.clock import Clock
from .splitting import Edit, MarkdownSplitter


class GrowingAnswer(AsyncIterable[StreamEvent], AbstractAsyncContextManager[Any], Protocol):
    """What is read of a reply. Its block lasts until everything was shown."""

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
    reply at the block's end. Cancelling a step loses nothing: iteration may go on.
    """

    def __init__(
        self,
        answer: GrowingAnswer,
        clock: Clock,
        *,
        every: float,
        limit: int,
        tail: Callable[[], str] | None = None,
    ) -> None:
        self._task: asyncio.Task[None] | None = None
        self._every = _check_every(every)
        self._splitter = MarkdownSplitter(limit)
        self._clock = clock
        self._reading = _Reading(answer, tail)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._consumer: asyncio.Task[Any] | None = None
        self._watch: Callable[[asyncio.Task[Any]], object] | None = None
        self._due: float | None = None  # no edit is made before this time
        self._given = self._stepping = self._ended = self._finished = False

    def __aiter__(self) -> Self:
        """Return itself; raises StateError when the reply has ended."""
        if self._task is None and not self._ended:
            aiter(self._reading.answer)
        return self

    async def __anext__(self) -> Edit:
        """Return the next edit, at least ``every`` seconds after the consumer finished the last one.

        Raises:
            StopAsyncIteration: Everything was shown.
            MintlifyError: The answer failed; everything received before was shown.
            StateError: Another task is waiting for the next edit; or the task that asked for the last
                one has ended, and the reading with it. A task that is one step alone, such as
                ``create_task(anext(edits))`` and ``wait_for`` make it, may end.
        """
        if self._stepping:
            raise StateError("these edits are already being read by another task; read them in one")
        self._stepping = True
        try:
            if self._given:
                self._due, self._given = self._clock.now() + self._every, False
            edit = await self._next()
        finally:
            self._stepping = False
        if edit is not None:
            self._given = True
            return edit
        await self._finish()
        raise StopAsyncIteration

    async def _finish(self) -> None:
        """Let the task close the reply, now that everything was shown; raise the reply's error."""
        self._ended = True
        self._reading.shown.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._stop_watching()
        error, self._reading.error = self._reading.error, None
        if error is not None:
            raise error

    async def _next(self) -> Edit | None:
        if self._ended:
            return None
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._reading.run(), name="mintlify-async edits")
        self._watch_consumer(self._task)
        while not self._finished:
            await self._until_due()
            over = self._reading.over
            self._splitter.feed(self._reading.take())
            if over:
                self._splitter.close()
            edit = self._splitter.next_edit()
            self._finished = over and (edit is None or self._splitter.finished)
            if edit is not None or over:
                return edit
            await self._reading.more()
        if self._reading.error is not None:
            await self._until_due()  # the consumer will show a message about the error
        return None

    async def _until_due(self) -> None:
        while self._due is not None and (left := self._due - self._clock.now()) > 0:
            await self._clock.sleep(left)

    # Ending ---------------------------------------------------------------------------------

    def _watch_consumer(self, reader: asyncio.Task[None]) -> None:
        # Stop reading when the consumer's task ends: a traceback may keep this iterator alive after it.
        consumer = asyncio.current_task()
        if consumer is not self._consumer:
            self._stop_watching()
            if consumer is not None and not _is_one_step(consumer):
                self._consumer = consumer
                self._watch = lambda _: reader.cancel()
                consumer.add_done_callback(self._watch)

    def _stop_watching(self) -> None:
        if self._consumer is not None and self._watch is not None:
            self._consumer.remove_done_callback(self._watch)
        self._consumer = self._watch = None

    async def close(self) -> None:
        """Stop reading and close the reply. Safe to repeat."""
        self._reading.left = True
        await self._stop()

    async def _stop(self) -> None:
        self._ended = self._reading.stopped = True
        self._stop_watching()
        task = self._task
        if task is None:
            await self._reading.answer.close()
        elif not task.done():
            task.cancel()
            await asyncio.wait([task])

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.left = not isinstance(error, asyncio.CancelledError)
        await self._stop()

    def __del__(self) -> None:
        task, loop = getattr(self, "_task", None), getattr(self, "_loop", None)
        if task is None or loop is None or task.done() or loop.is_closed():
            return
        self._stop_watching()
        self._reading.left = self._given  # else its last step was cancelled
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(task.cancel)


class _Reading:
    """What the reading task needs. It does not refer to the iterator, so that a dropped one is collected."""

    def __init__(self, answer: GrowingAnswer, tail: Callable[[], str] | None) -> None:
        self.answer = answer
        self.over = False
        self.shown = asyncio.Event()
        self.error: Exception | None = None
        self.left = False  # whether the consumer wanted no more, rather than was cancelled
        self.stopped = False  # whether the consumer asked for the end
        self._tail = tail
        self._pieces: list[str] = []
        self._space: list[str] = []  # white space is shown only when a word follows it
        self._waiter: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Read the answer to its end, and keep its block open until everything was shown."""
        try:
            # In a conversation, the next turn begins only when this block is left.
            async with self.answer:
                await self._read()
                await self.shown.wait()
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
            self._end(None if self.stopped else _cancelled())
            if self.left:
                await self.answer.close()
            raise
        else:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        """Complete the text; *error* is why it ended, if it failed."""
        self.error = self.error or error
        if not self.over:
            self._close(whole=error is None and self.answer.complete)
            self.over = True
            self._wake()

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._wake()

    def _close(self, *, whole: bool) -> None:
        """Add what was held back, and the text below a whole answer."""
        text = "".join([*self._space, *self._pieces])
        self._pieces, self._space = [text.rstrip()], []
        if whole and self._tail is not None:
            below = self._tail().strip()
            if below:
                self._pieces.append(f"\n\n{below}")

    def take(self) -> str:
        """Return the text that arrived since the last call."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if self.over:
            return text
        shown = text.rstrip()
        if shown:
            shown = "".join(self._space) + shown
            self._space.clear()
        self._space.append(text[len(text.rstrip()) :])
        return shown

    async def more(self) -> None:
        """Wait for more text, or for the end."""
        if self._pieces or self.over:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _is_one_step(task: asyncio.Task[Any]) -> bool:
    """Return whether *task* does nothing else than one step of an iterator of edits."""
    return getattr(task.get_coro(), "cr_code", None) is Edits.__anext__.__code__


def _cancelled() -> StateError:
    return StateError(
        "the reading of these edits was stopped: the task that asked for the last edit has ended, or the "
        "reading was cancelled; read them in one task, or make tasks of `anext(edits)` alone"
    )


def _check_every(every: object) -> float:
    if isinstance(every, int | float) and not isinstance(every, bool) and math.isfinite(every) and every >= 0:
        return float(every)
    raise ConfigurationError(f"every must be a number of seconds, 0 or more; got {every!r}", field="every")
