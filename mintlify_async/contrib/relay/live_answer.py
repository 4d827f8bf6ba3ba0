"""An answer that is read by a task of its own, so that it does not end when its reader leaves.

The task keeps what the page gets, and each reader gets that from the beginning. The answer is stopped at the
service when it had no reader for the grace period, or when a reader pressed Stop.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mintlify_async import StreamInterruptedError

from .page_events import DONE, frame
from .refusals import CUT, FAILED, RelayRefusal

if TYPE_CHECKING:
    from mintlify_async.runtime.clock import Timer

    from .answer import AnswerSettings, OpenReply

log = logging.getLogger("mintlify_async.relay")

STOPPED = frame({"type": "abort"})
INTERRUPTED = frame({"type": "error", "errorText": CUT})
AT_A_TIME = 64  # pieces that a reader who joins late gets at once: a slow one must not count as stalled


class LiveAnswer:
    """One running answer: its task, its frames, and the number of its readers.

    Args:
        settings: The relay's settings for answers.
        grace: Seconds for which the answer goes on without a reader.
        max_bytes: The largest size of the answer.

    Attributes:
        pieces: What the page gets, without the last ``[DONE]``.
        ended: Whether the answer has ended.
        chat: The key of its chat in a store; "" for an answer that no page can find again.
        before: The answer before it in its chat, until that has ended.
        question: The id of the message that it answers.
        asked_of_store: What histories on other workers need to know of the question; "" without a store.
    """

    def __init__(self, settings: AnswerSettings, *, grace: float, max_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.grace = grace
        self.pieces: list[bytes] = []
        self.ended = False
        self.chat = self.question = self.asked_of_store = ""
        self.before: LiveAnswer | None = None
        self.asked: asyncio.Future[None] = loop.create_future()
        self.opened: asyncio.Future[None] = loop.create_future()
        for outcome in (self.asked, self.opened):
            outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._max_bytes = max_bytes
        self._size = 0
        self._readers = 0
        self._read_at = settings.clock.now()
        self._timer: Timer | None = None
        self._stopping = False
        self._reply: OpenReply | None = None
        self._task: asyncio.Task[None] | None = None
        self._cut: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def start(self, opening: Coroutine[Any, Any, OpenReply]) -> None:
        """Read the answer that *opening* opens, in a task of its own."""
        self._task = asyncio.create_task(self._run(opening))

    def stop(self) -> None:
        """End the answer at the service; readers get the end of a stopped answer. Harmless to repeat."""
        if self._stopping or self.ended or self._task is None:
            return
        self._stopping = True
        if self._reply is None:
            self._task.cancel()
        else:
            self._cut = asyncio.create_task(self._reply.cut())

    async def wait(self) -> None:
        """Return when the answer has ended and the app's hooks know."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call *callback* when the answer has ended."""
        if self._task is not None:
            self._task.add_done_callback(lambda _: callback())

    async def more(self) -> None:
        """Return when there are new pieces, or the answer has ended."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    # Readers ----------------------------------------------------------------------------------

    def enter(self) -> None:
        """Count a reader."""
        self._readers += 1

    def leave(self) -> None:
        """Count one reader less. When the last one leaves, the grace period begins."""
        self._readers -= 1
        self.seen()

    def seen(self) -> None:
        """Note that there is a reader now, so that the grace period begins again."""
        self._read_at = self.settings.clock.now()
        if self._timer is None and not self._readers:
            self._look()

    def _look(self) -> None:
        """Stop the answer if its grace period is over, or check again when it will be."""
        self._timer = None
        clock, due = self.settings.clock, self._read_at + self.grace
        if self._readers or self.ended:
            return
        if clock.now() >= due:
            self.stop()
        else:
            self._timer = clock.call_at(due, self._look)

    # The task ---------------------------------------------------------------------------------

    async def _run(self, opening: Coroutine[Any, Any, OpenReply]) -> None:
        try:
            reply = await self._open(opening)
            if reply is not None:
                async with reply:
                    try:
                        await self._read(reply)
                    except asyncio.CancelledError:
                        reply.interrupted()
                        raise
        except asyncio.CancelledError:
            if not self._stopping:  # the app is shutting down
                self._add(INTERRUPTED)
                raise
        except Exception:
            log.exception("a running answer failed")
            self._add(INTERRUPTED)
        finally:
            try:
                if self._cut is not None:
                    await asyncio.wait([self._cut])
                    if not self._cut.cancelled():
                        self._cut.exception()  # a store's; the reply has noted it
            finally:
                self._end()

    async def _open(self, opening: Coroutine[Any, Any, OpenReply]) -> OpenReply | None:
        """Return the open answer; None when it was refused, and the page is told why."""
        try:
            self._reply = await opening
        except asyncio.CancelledError:
            if self._stopping:
                self._add(STOPPED)
            raise
        except Exception as error:
            if not isinstance(error, HTTPException | ClientDisconnect):  # the app's hooks may refuse, too
                log.exception("a question was not asked")
            for outcome in (self.asked, self.opened):
                if not outcome.done():
                    outcome.set_exception(error)
            text = error.detail if isinstance(error, RelayRefusal) else FAILED
            self._add(frame({"type": "error", "errorText": text}))  # for pages that resumed meanwhile
            return None
        self.opened.set_result(None)
        return self._reply

    async def _read(self, reply: OpenReply) -> None:
        async for piece in reply.frames():
            if piece is DONE:
                break
            self._add(piece)
            if self._size > self._max_bytes and self._cut is None:
                error = StreamInterruptedError(f"the answer is larger than {self._max_bytes} bytes")
                self._cut = asyncio.create_task(reply.cut(error))

    def _add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self._size += len(piece)
        self._wake()

    def _end(self) -> None:
        self.ended = True
        self._reply = None  # the frames may be kept for a while, but not the message
        for outcome in (self.asked, self.opened):
            outcome.cancel()
        del self.asked, self.opened  # which may hold an error, and its frames
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()


class LiveReader:
    """One reader of a live answer, from its first frame on; counted until it is closed."""

    def __init__(self, live: LiveAnswer) -> None:
        self.settings = live.settings
        self._live = live
        live.enter()
        loop = asyncio.get_running_loop()
        self._leave = weakref.finalize(self, _soon, loop, live.leave)  # also when it is never closed
        self._leave.atexit = False

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield what the page gets; ``[DONE]`` is the last."""
        live, place = self._live, 0
        while True:
            fresh = live.pieces[place : place + AT_A_TIME]
            if fresh:
                place += len(fresh)
                yield fresh[0] if len(fresh) == 1 else b"".join(fresh)
            elif live.ended:
                break
            else:
                await live.more()
        yield DONE

    async def close(self) -> None:
        """Leave; harmless to repeat."""
        self._leave()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call)
