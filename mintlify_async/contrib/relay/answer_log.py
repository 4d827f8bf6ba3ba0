"""The bytes of one answer for web pages: a log from the first byte, for any number of readers.

Each response reads the log from the start at its own speed. A reader that waits for more bytes reads the
service itself, so an event wakes only one task. Without a reader, the task of the answer reads the service.
If all readers of an answer are slow, the answer waits for them, so memory is limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from mintlify_async import StateError

from .page_events import DONE, INTERRUPTED
from .refusal_texts import RelayRefusal

if TYPE_CHECKING:
    from ..redis.redis_stream_store import RedisStreamStore

log = logging.getLogger("mintlify_async.relay")

Step: TypeAlias = Callable[[], Awaitable[bool]]
"""Appends the next bytes, and returns whether more may follow. A cancellation loses no bytes."""

PIECE_BYTES = 64 * 1024
"""Maximum number of bytes that a reader gets at a time, so that a slow reader does not count as stalled."""

TICK = 0.1
"""Seconds between two writes of an answer, and between two reads of a reader on another worker."""

_END = -1  # the place after the end of another worker's log


class MemoryLog:
    """A log in the memory of this process.

    Args:
        left: Called when the last reader ends.

    Attributes:
        ended: Whether nothing more will be appended.
        readers: The number of readers.
        refusal: The reason why there is no answer, for a response that has not started. None if there is an
            answer.
        size: The number of bytes in the log.
    """

    def __init__(self, left: Callable[[], object] = lambda: None) -> None:
        self.ended = False
        self.readers = 0
        self.refusal: RelayRefusal | None = None
        self.size = 0  # kept, because len() in a property takes 650 instructions for each read
        self._left = left
        self._data = bytearray()
        self._more = asyncio.Event()  # set when readers that have read everything must check again
        self._step: Step | None = None  # set while the log is filled
        self._stepping = False  # whether a task runs the step
        self._failure: Exception | None = None  # the error of the step
        self._unread = asyncio.Event()  # set when the task that fills the log must check again

    @property
    def filling(self) -> bool:
        """Whether :meth:`fill` is running."""
        return self._step is not None

    def append(self, data: bytes) -> None:
        """Append *data*. A reader gets all data of one cycle of the event loop together."""
        self._data += data
        self.size += len(data)
        if not self._stepping:  # otherwise, the end of the running step wakes the readers
            self._more.set()

    def end(self) -> None:
        """End the log. Repeated calls do nothing."""
        self.ended = True
        self._more.set()

    @contextmanager
    def reading(self) -> Generator[None]:
        """Count a reader while the block runs."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers:
                self._unread.set()
                self._left()

    async def fill(self, step: Step) -> None:
        """Call *step* until it returns False. Its errors are raised here.

        The readers call *step*, one at a time. While there is no reader, this task calls it.
        """
        self._step = step
        self._more.set()
        try:
            while self._step is not None:
                if self.readers or self._stepping:
                    self._unread.clear()
                    await self._unread.wait()
                else:
                    await self._take_step(step)
        finally:
            self._step = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _take_step(self, step: Step) -> None:
        self._stepping = True
        try:
            if not await step():
                self._end_steps()
        except Exception as error:
            self._end_steps(error)
        finally:
            self._stepping = False
            self._more.set()  # if this task was cancelled, another reader continues

    def _end_steps(self, error: Exception | None = None) -> None:
        if self.filling:  # the task that fills the log has not ended
            self._step, self._failure = None, error
            self._unread.set()

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Wait for bytes after *place*. Return them and the place after them. At the end, return None."""
        while place == self.size and not self.ended:
            if self._step is None or self._stepping:
                self._more.clear()
                await self._more.wait()
            else:
                await self._take_step(self._step)
        piece = bytes(self._data[place : place + PIECE_BYTES])
        return piece or None, place + len(piece)

    def since(self, place: int) -> bytes:
        """Return all bytes after *place*, without waiting."""
        return bytes(self._data[place:])


@frozen
class SharedLog:
    """The log of an answer on another worker. :class:`MemoryLog` documents the methods.

    Args:
        store: The store that both workers use.
        chat: The name of the chat in the store.
        answer: The name of the answer in the store.
        cut: Returns whether the app interrupts its responses, because it shuts down.
    """

    store: RedisStreamStore
    chat: str
    answer: str
    cut: Callable[[], bool]
    refusal: None = None

    @contextmanager
    def reading(self) -> Generator[None]:
        """Do nothing, because each read reports that there is a reader."""
        yield

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Wait for bytes after *place*. Return them and the place after them. At the end, return None."""
        try:
            while place != _END:
                frames, place, state = await self.store.read(self.chat, self.answer, place)
                if state == "ended":
                    return frames or None, _END
                if frames:
                    return frames, place
                if state == "lost" or self.cut():
                    return INTERRUPTED + DONE, _END
                await asyncio.sleep(TICK)
        except StateError as error:
            log.warning("an answer on another worker cannot be read: %s", error)
            return INTERRUPTED + DONE, _END
        return None, _END


Log = MemoryLog | SharedLog
