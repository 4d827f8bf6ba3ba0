"""The bytes of one answer for web pages: a log from the first byte on, for any number of readers.

Each response reads the log from the start at its own speed. The reader that waits for more reads the service
itself, so that an event wakes one task only. Without a reader, the task of the answer does that. An answer
whose readers are all slow waits for them, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from attrs import field, frozen

from mintlify_async import StateError
from mintlify_async.checks import LARGEST, check_field, check_number
from mintlify_async.habits import helpful
from mintlify_async.storage.store import NothingToClose

from .page_events import DONE, INTERRUPTED
from .refusals import RelayRefusal

if TYPE_CHECKING:
    from ..redis.redis_stream_store import RedisStreamStore

log = logging.getLogger("mintlify_async.relay")

Step: TypeAlias = Callable[[], Awaitable[bool]]
"""Appends what comes next, and returns whether more may come. Cancelling it loses nothing."""

PIECE_BYTES = 64 * 1024
"""The most that a reader gets at once: a slow one must not count as stalled."""

TICK = 0.1
"""Seconds between two writes of an answer, and between two looks of a reader on another worker."""

_END = -1  # the place after the end of a log on another worker


@helpful
@frozen(kw_only=True)
class MemoryStreamStore(NothingToClose):
    """Running answers in the memory of this process, for an app with one worker.

    Args:
        grace: Seconds for which an answer continues without a reader. Then it is stopped at the service.
        keep: Seconds for which an answer can be read after its end, by a page that was being reloaded then.

    Raises:
        ConfigurationError: An argument is below 0 or no finite number.
    """

    grace: float = field(default=60.0, validator=check_field(check_number, least=0, most=LARGEST))
    keep: float = field(default=60.0, validator=check_field(check_number, least=0, most=LARGEST))


class MemoryLog:
    """A log in the memory of this process.

    Args:
        left: Called when the last reader leaves.

    Attributes:
        ended: Whether nothing more will be appended.
        readers: The number of readers.
        refusal: Why there is no answer, for a response that has not started. None if there is one.
    """

    def __init__(self, left: Callable[[], object] = lambda: None) -> None:
        self.ended = False
        self.readers = 0
        self.refusal: RelayRefusal | None = None
        self._left = left
        self._data = bytearray()
        self._more = asyncio.Event()  # set when readers that have read all must look again
        self._step: Step | None = None  # while the log is filled
        self._stepping = False  # whether a task is in it
        self._failure: Exception | None = None  # of the step
        self._unread = asyncio.Event()  # set when the task that fills the log must look again

    @property
    def size(self) -> int:
        """How many bytes were appended."""
        return len(self._data)

    @property
    def filling(self) -> bool:
        """Whether :meth:`fill` goes on."""
        return self._step is not None

    def append(self, data: bytes) -> None:
        """Append *data*. A reader gets all data of one cycle of the event loop together."""
        self._data += data
        if not self._stepping:  # its end wakes the readers
            self._more.set()

    def end(self) -> None:
        """Append nothing more. Harmless to repeat."""
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
        """Have *step* called until it returns False. What it raises is raised here.

        The readers call it, one at a time. While there is none, this task does.
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
            self._more.set()  # also if this task was cancelled: another reader goes on

    def _end_steps(self, error: Exception | None = None) -> None:
        if self.filling:  # the task that fills the log has not given up
            self._step, self._failure = None, error
            self._unread.set()

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Wait for bytes after *place*. Return them and the place after them; at the end, return None."""
        while place == len(self._data) and not self.ended:
            if self._step is None or self._stepping:
                self._more.clear()
                await self._more.wait()
            else:
                await self._take_step(self._step)
        piece = self.since(place, PIECE_BYTES)
        return piece or None, place + len(piece)

    def since(self, place: int, most: int | None = None) -> bytes:
        """Return all bytes after *place*, or *most* of them, without waiting."""
        return bytes(self._data[place : None if most is None else place + most])


@frozen
class SharedLog:
    """The log of an answer on another worker; :class:`MemoryLog` explains the methods.

    Args:
        store: The store that both workers use.
        chat: The name of the chat in it.
        answer: The name of the answer in it.
        cut: Returns whether the app cuts its responses, because it shuts down.
    """

    store: RedisStreamStore
    chat: str
    answer: str
    cut: Callable[[], bool]
    refusal: None = None

    @contextmanager
    def reading(self) -> Generator[None]:
        """Do nothing, because each look reports that there is a reader."""
        yield

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Wait for bytes after *place*. Return them and the place after them; at the end, return None."""
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
