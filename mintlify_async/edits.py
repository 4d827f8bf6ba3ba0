"""A reply comes in; the edits of a chat surface's messages go out, never faster than it bears.

One task reads the reply while the consumer is busy editing. It belongs to the
iterator: it ends with it, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .clock import Clock
from .cutting import Cutter, Edit
from .errors import ConfigurationError, StateError
from .events import TextDelta, TextStart
from .markdown import WithoutSuggestions
from .parts import clean_text

if TYPE_CHECKING:
    from .assistant import Reply

__all__ = ["Edits", "Tail"]

Tail = Callable[["Reply"], str]
"""Makes what is said below an answer once it is complete, such as ``extras_markdown``."""


class Edits:
    """The changes of a chat surface's messages while an answer grows; see ``Reply.edits``.

    An async iterator of :class:`Edit`, and an async context manager that gives the
    reply up at the block's end. Cancelling a step loses nothing: iteration may go on.
    """

    __slots__ = (
        "_clock",
        "_consumer",
        "_cutter",
        "_due",
        "_ended",
        "_every",
        "_finished",
        "_given",
        "_loop",
        "_reading",
        "_stepping",
        "_task",
        "_watch",
    )

    def __init__(
        self, reply: Reply, clock: Clock, *, every: float, limit: int, tail: Tail | None = None
    ) -> None:
        """Keep the reply; made by ``Reply.edits``. Nothing is read before the first step."""
        self._task: asyncio.Task[None] | None = None
        self._every = _check_every(every)
        self._cutter = Cutter(limit)
        self._clock = clock
        self._reading = _Reading(reply, tail)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._consumer: asyncio.Task[Any] | None = None
        self._watch: Callable[[asyncio.Task[Any]], object] | None = None
        self._due: float | None = None  # no edit before this moment
        self._given = self._stepping = self._ended = self._finished = False

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Edit:
        """Return the next edit, no sooner than ``every`` seconds after the consumer was done with the last.

        Raises:
            StopAsyncIteration: Everything was shown.
            MintlifyError: The answer failed; everything that had come was shown before.
            StateError: Another task is waiting for the next edit.
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
        """End the task, and with it the reply, now that everything was shown; pass its failure on."""
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
            self._cutter.feed(self._reading.take())
            edit = self._ready(over=over)
            if edit is not None or over:
                return edit
            await self._reading.more()
        if self._reading.error is not None:
            await self._until_due()  # what the consumer says of it is as bounded as the rest
        return None

    async def _until_due(self) -> None:
        while self._due is not None and (left := self._due - self._clock.now()) > 0:
            await self._clock.sleep(left)

    def _ready(self, *, over: bool) -> Edit | None:
        """Return the edit that can be made now, or None."""
        edit = self._cutter.complete()
        if edit is None and over:
            self._finished = True
            return self._cutter.finish()
        return edit if edit is not None or over else self._cutter.growing()

    # Ending ---------------------------------------------------------------------------------

    def _watch_consumer(self, reader: asyncio.Task[None]) -> None:
        """End the reading with the consumer's task: a traceback may keep this iterator alive after it."""
        consumer = asyncio.current_task()
        if consumer is not self._consumer:
            self._stop_watching()
            self._consumer = consumer
            self._watch = lambda _: reader.cancel()
            if consumer is not None:
                consumer.add_done_callback(self._watch)

    def _stop_watching(self) -> None:
        if self._consumer is not None and self._watch is not None:
            self._consumer.remove_done_callback(self._watch)
        self._consumer = self._watch = None

    async def close(self) -> None:
        """Give the answer up: stop reading and close the reply. Safe to repeat."""
        self._ended = True
        self._stop_watching()
        task = self._task
        if task is None:
            await self._reading.reply.close()
        elif not task.done():
            task.cancel()
            await asyncio.wait([task])

    aclose = close

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    def __del__(self) -> None:
        """End the task of an iterator that was broken off."""
        task, loop = getattr(self, "_task", None), getattr(self, "_loop", None)
        if task is None or loop is None or task.done() or loop.is_closed():
            return
        self._stop_watching()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile, and its tasks with it
            loop.call_soon_threadsafe(task.cancel)


class _Reading:
    """What the task needs; it does not hold the iterator, so that one that is broken off can be collected."""

    __slots__ = (
        "_filter",
        "_held",
        "_pieces",
        "_space",
        "_tail",
        "_waiter",
        "error",
        "over",
        "reply",
        "shown",
    )

    def __init__(self, reply: Reply, tail: Tail | None) -> None:
        self.reply = reply
        self.over = False
        self.shown = asyncio.Event()
        self.error: Exception | None = None
        self._tail = tail
        self._filter = WithoutSuggestions() if tail is not None else None
        self._pieces: list[str] = []
        self._held = ""  # half of a character
        self._space: list[str] = []  # shown only before a word: there may be none, but what comes below
        self._waiter: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Read the reply to its end, and hold it open until everything was shown: so long a turn lasts."""
        try:
            async with self.reply:
                await self._read()
                await self.shown.wait()
        except Exception as error:
            self._end(error)

    async def _read(self) -> None:
        try:
            if self.reply.events_seen:
                self._add(self.reply.text)
            async for event in self.reply:
                if isinstance(event, TextDelta):
                    self._add(event.delta)
                elif isinstance(event, TextStart):
                    self._begin_part()
        except Exception as error:
            self._end(error)
        except BaseException:
            self._end(None)
            raise
        else:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        """Take in the end of the text, and what ended it."""
        self.error = self.error or error
        if not self.over:
            self._close(whole=error is None and self.reply.complete)
            self.over = True
            self._wake()

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._wake()

    def _begin_part(self) -> None:
        """Keep two texts of one answer, before and after a search perhaps, from running into one another."""
        if self.reply.text.strip():
            self._add("\n\n")

    def _close(self, *, whole: bool) -> None:
        """Add what is held back, and what comes below a whole answer."""
        text = self._held + "".join(self._pieces)
        text = "".join(self._space) + self._filtered(clean_text(text), last=True)
        self._pieces, self._held, self._space, self._filter = [text.rstrip()], "", [], None
        if whole and self._tail is not None:
            below = self._tail(self.reply).strip()
            if below:
                self._pieces.append(f"\n\n{below}")

    def take(self) -> str:
        """Return the text that came since it was taken last; never half a character."""
        text = self._held + "".join(self._pieces)
        self._pieces.clear()
        self._held = ""
        if self.over:
            return text
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        text = self._filtered(clean_text(text), last=False)
        shown = text.rstrip()
        if shown:
            shown = "".join(self._space) + shown
            self._space.clear()
        self._space.append(text[len(text.rstrip()) :])
        return shown

    def _filtered(self, text: str, *, last: bool) -> str:
        if self._filter is None:
            return text
        return self._filter.feed(text) + (self._filter.close() if last else "")

    async def more(self) -> None:
        """Return when there is more text, or the end."""
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


def _check_every(every: object) -> float:
    fits = isinstance(every, int | float) and not isinstance(every, bool) and math.isfinite(every)
    if not fits or every < 0:  # type: ignore[operator]  # fits says that it is a number
        raise ConfigurationError(
            f"every must be a number of seconds, 0 or more; got {every!r}", field="every"
        )
    return float(every)  # type: ignore[arg-type]  # likewise
