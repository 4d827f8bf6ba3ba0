"""The bytes of one answer for web pages: a log from the first byte on, for any number of readers.

The task that reads the answer from the service appends to the log. Each response reads it from the start at
its own speed. A slow reader slows the writer down, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from mintlify_async import StateError

from .page_events import DONE, INTERRUPTED
from .refusals import RelayRefusal

if TYPE_CHECKING:
    from ..redis.redis_stream_store import RedisStreamStore

log = logging.getLogger("mintlify_async.relay")

PIECE_BYTES = 64 * 1024
"""The most that a reader gets at once: a slow one must not count as stalled."""

LEAD_BYTES = 256 * 1024
"""How far the writer may be ahead of the fastest reader."""

TICK = 0.1
"""Seconds between two writes of an answer, and between two looks of a reader on another worker."""

_END = -1  # the place after the end of a log on another worker


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
        self._furthest = 0  # the place of the fastest reader
        self._more = asyncio.Event()  # set when readers that have read all must look again
        self._room = asyncio.Event()  # the same for the writer that waits for readers

    @property
    def size(self) -> int:
        """How many bytes were appended."""
        return len(self._data)

    def append(self, data: bytes) -> None:
        """Append *data*. A reader gets all data of one cycle of the event loop together."""
        self._data += data
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
            self._room.set()
            if not self.readers:
                self._left()

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Wait for bytes after *place*. Return them and the place after them; at the end, return None."""
        while place == len(self._data) and not self.ended:
            self._more.clear()
            await self._more.wait()
        piece = self.since(place, PIECE_BYTES)
        place += len(piece)
        if place > self._furthest:
            self._furthest = place
            self._room.set()
        return piece or None, place

    def since(self, place: int, most: int | None = None) -> bytes:
        """Return all bytes after *place*, or *most* of them, without waiting."""
        return bytes(self._data[place : None if most is None else place + most])

    async def room(self) -> None:
        """Return when a reader has come near the log's end, or there is no reader any more."""
        while self.readers and self.size - self._furthest > LEAD_BYTES:
            self._room.clear()
            await self._room.wait()


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
