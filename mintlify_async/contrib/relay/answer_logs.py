"""The log of one answer. It has all bytes for the web page, from the first one on, for any number of readers.

The task that reads the answer from the service appends to the log. Each response reads it from the start at
its own speed. A slow reader slows the writer down, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

PIECE_BYTES = 64 * 1024
"""About how much a reader gets at once: a slow one must not count as stalled."""

LEAD_BYTES = 256 * 1024
"""How far the writer may be ahead of the fastest reader."""


class Log(Protocol):
    """The log that a response reads, of an answer here or on another worker."""

    def reading(self) -> AbstractContextManager[None]:
        """Return a context manager. While its block runs, the log has one more reader."""
        ...

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Return the bytes after *place*, and the place for the next read. The first place is 0.

        No bytes mean that nothing has come yet, and None is the end.
        """
        ...

    def wake(self) -> None:
        """Let the reads that wait return without bytes."""
        ...


class MemoryLog:
    """A log in the memory of this process.

    Args:
        left: Called when the last reader leaves.

    Attributes:
        size: How many bytes were appended.
        ended: Whether nothing more will be appended.
        readers: The number of readers.
    """

    def __init__(self, left: Callable[[], object] = lambda: None) -> None:
        self.size = 0
        self.ended = False
        self.readers = 0
        self._left = left
        self._pieces: list[bytes] = []
        self._furthest = 0  # the place of the fastest reader
        self._unread = 0  # bytes after it
        self._waiting: list[asyncio.Future[None]] = []

    def append(self, piece: bytes) -> None:
        """Append *piece*. A reader gets all pieces of one cycle of the event loop together."""
        self._pieces.append(piece)
        self.size += len(piece)
        self._unread += len(piece)
        if self._waiting:
            self.wake()

    def end(self) -> None:
        """Append nothing more. Harmless to repeat."""
        self.ended = True
        self.wake()

    @contextmanager
    def reading(self) -> Generator[None]:
        """Count a reader while the block runs."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            self.wake()
            if not self.readers:
                self._left()

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Return the bytes after *place*; see :meth:`Log.read`. Here a place is a number of pieces."""
        if place == len(self._pieces) and not self.ended:
            await self._change()
        size, end = 0, place
        while end < len(self._pieces) and size < PIECE_BYTES:
            size += len(self._pieces[end])
            end += 1
        if end == place:
            return (None if self.ended else b""), place
        if end > self._furthest:
            self._unread -= sum(map(len, self._pieces[max(place, self._furthest) : end]))
            self._furthest = end
            if self._waiting:
                self.wake()  # the writer, if it waits for room
        frames = self._pieces[place] if end == place + 1 else b"".join(self._pieces[place:end])
        return frames, end

    def since(self, place: int) -> tuple[bytes, int]:
        """Return all bytes after *place*, and the place for the next read, without waiting."""
        return b"".join(self._pieces[place:]), len(self._pieces)

    @property
    def far_ahead(self) -> bool:
        """Whether the writer should wait for a reader; see :meth:`room`."""
        return self._unread > LEAD_BYTES and self.readers > 0

    async def room(self) -> None:
        """Return when a reader has come near the log's end, or there is no reader any more."""
        while self.far_ahead:
            await self._change()

    def wake(self) -> None:
        """Let all that wait look again."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def _change(self) -> None:
        """Return when something has changed."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting
