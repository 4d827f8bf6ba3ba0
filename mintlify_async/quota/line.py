"""The line of calls that wait for a slot on one event loop, in the order in which they came."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from contextlib import contextmanager, suppress

from ..errors import QuotaExceededError


class Line:
    """The waiting calls of one gate, or of one user, on the running loop. The first of them asks the store.

    Attributes:
        calls: How many calls are in the line.
        nested: How many of them are in another line, too.
        opens_at: When the first call expects a slot, by the loop's time.
        refusal: The reason why it has none yet, or None before it has asked.
    """

    def __init__(self) -> None:
        self.calls = self.nested = 0
        self.opens_at = -math.inf
        self.refusal: QuotaExceededError | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()  # fair, because the first to ask for it gets it first
        self._changed = asyncio.Event()

    async def enter(self, deadline: float) -> None:
        """Wait until the running call is the first.

        Raises:
            QuotaExceededError: The first call expects no slot before *deadline*, or *deadline* has come.
        """
        if self.refusal is None or self.opens_at < deadline:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if deadline == math.inf else deadline):
                    await self._lock.acquire()
                    return
        raise QuotaExceededError(
            "quota: other calls wait for a slot before this one; nothing was sent",
            retry_after=max(0.0, self.opens_at - self._loop.time()),
            limit=None if self.refusal is None else self.refusal.limit,
        )

    def leave(self) -> None:
        """Let the next call be the first."""
        self.refusal = None
        self._lock.release()

    def expect_changes(self) -> None:
        """Note that the first call asks the store now. Earlier changes no longer count."""
        self._changed.clear()

    async def sleep(self, until: float) -> None:
        """Sleep until the loop's time is *until*, or :meth:`wake` was called since :meth:`expect_changes`."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    def wake(self) -> None:
        """Let the first call ask the store again. Any thread may call this."""
        with suppress(RuntimeError):  # its loop is closed, so nothing waits on it
            self._loop.call_soon_threadsafe(self._changed.set)


class Lines:
    """The lines of all gates and users on all event loops of this process."""

    def __init__(self) -> None:
        self._lines: dict[tuple[asyncio.AbstractEventLoop, str], Line] = {}

    @contextmanager
    def join(self, name: str, *, nested: bool = False) -> Generator[Line]:
        """Join the line *name* on the running loop; *nested* for a call that is in another line, too."""
        place = asyncio.get_running_loop(), name
        line = self._lines.get(place)
        if line is None:
            self._forget_closed_loops()
            line = self._lines[place] = Line()
        line.calls += 1
        line.nested += nested
        try:
            yield line
        finally:
            line.calls -= 1
            line.nested -= nested
            if not line.calls:
                self._lines.pop(place, None)  # gone already when its loop was closed

    @property
    def calls(self) -> int:
        """How many calls are in the lines."""
        return sum(line.calls - line.nested for line in list(self._lines.values()))

    def wake(self, name: str) -> None:
        """Wake the first call of the line *name* on each loop."""
        for (_, line_name), line in list(self._lines.items()):
            if line_name == name:
                line.wake()

    def _forget_closed_loops(self) -> None:
        for place in list(self._lines):
            if place[0].is_closed():
                self._lines.pop(place, None)
