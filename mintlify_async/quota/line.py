"""The line of calls that wait for a slot on one event loop, in the order of their arrival."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from ..errors import QuotaExceededError

log = logging.getLogger("mintlify_async")

WARN_SECONDS: Final = 10.0
"""Time for which calls wait in a line before a warning is logged, in seconds."""

WARN_AGAIN_SECONDS: Final = 60.0
"""Minimum time between two warnings about a line, in seconds."""


class Line:
    """The waiting calls of one gate, or of one user, on the running loop. The first call asks the store.

    Attributes:
        calls: The number of calls in the line.
        nested: The number of calls that are also in another line.
        opens_at: When the first call expects a slot, by the loop's time.
        refusal: The reason why the first call has no slot yet. None before the call has asked.
    """

    def __init__(self) -> None:
        self.calls = self.nested = 0
        self.opens_at = -math.inf
        self.refusal: QuotaExceededError | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()  # fair: tasks get it in the order of their requests
        self._changed = asyncio.Event()
        self._warning: asyncio.TimerHandle | None = None

    async def enter(self, deadline: float) -> None:
        """Wait until the running call is the first in the line.

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
        """Forget earlier changes, because the first call asks the store now."""
        self._changed.clear()

    async def sleep(self, until: float) -> None:
        """Sleep until the loop's time is *until*, or :meth:`wake` is called after :meth:`expect_changes`."""
        if self._warning is None:
            self._warning = self._loop.call_later(WARN_SECONDS, self._warn)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    def wake(self) -> None:
        """Make the first call ask the store again. Any thread may call this."""
        with suppress(RuntimeError):  # the loop is closed, so no call waits on it
            self._loop.call_soon_threadsafe(self._changed.set)

    def close(self) -> None:
        """Stop warning, because no call waits."""
        if self._warning is not None:
            self._warning.cancel()

    def _warn(self) -> None:
        """Log why calls wait and how long, so that the program does not seem to hang."""
        seconds = max(0.0, self.opens_at - self._loop.time())
        if self.refusal is not None:
            reason, *_ = str(self.refusal).split("; the next slot")
            log.warning("%s; calls that wait: %d; the next slot is in %.0f s", reason, self.calls, seconds)
        pause = max(WARN_AGAIN_SECONDS, seconds + WARN_SECONDS)
        self._warning = self._loop.call_later(pause, self._warn)


class Lines:
    """The lines of all gates and users on all event loops of this process."""

    def __init__(self) -> None:
        self._lines: dict[tuple[asyncio.AbstractEventLoop, str], Line] = {}

    @contextmanager
    def join(self, name: str, *, nested: bool = False) -> Generator[Line]:
        """Join the line *name* on the running loop. *nested* means that the call is also in another line."""
        place = asyncio.get_running_loop(), name
        line = self._lines.get(place)
        if line is None:
            for other in [other for other in list(self._lines) if other[0].is_closed()]:
                self._lines.pop(other, None)
            line = self._lines[place] = Line()
        line.calls += 1
        line.nested += nested
        try:
            yield line
        finally:
            line.calls -= 1
            line.nested -= nested
            if not line.calls:
                line.close()
                self._lines.pop(place, None)  # already removed if its loop was closed

    @property
    def calls(self) -> int:
        """The number of calls in the lines."""
        return sum(line.calls - line.nested for line in list(self._lines.values()))

    def wake(self, name: str) -> None:
        """Wake the first call of the line *name* on each loop."""
        for (_, line_name), line in list(self._lines.items()):
            if line_name == name:
                line.wake()
