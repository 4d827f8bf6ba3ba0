"""Watches the time limits of all open streams of one event loop with a single timer.

A timer per read would cost more than the read itself.
"""

from __future__ import annotations

from typing import Protocol

from ..runtime.cancellation import LATE
from ..runtime.clock import Clock, Timer

__all__ = ["IdleWatchdog", "WatchedStream"]

SLICE = 100  # streams checked in one step of the loop, which takes a fraction of a millisecond
INTERVAL = 0.5  # seconds until a dead connection is noticed that aiohttp does not report
SHORTEST = 0.001  # seconds between two checks


class WatchedStream(Protocol):
    """A stream that gives up by itself when a limit has passed."""

    def check_limits(self, now: float) -> float | None:
        """Give up when a limit has passed; return when the next one is due, or None."""
        ...

    def close_with_session(self) -> None:
        """Close its connection; its reader gets the error of a closed session."""
        ...

    def close_from_anywhere(self, *, report: bool) -> None:
        """Close its connection from any thread."""
        ...


class IdleWatchdog:
    """Checks each open stream twice a second, and sooner when a limit is due sooner.

    The first read starts it; it stops at a check that finds no stream. Of thousands of streams it checks a
    slice in each step, so that no event has to wait until all are checked.

    Attributes:
        clock: The session's clock.
        running: Whether it checks at the moment.
    """

    __slots__ = (
        "_due",
        "_interval",
        "_postponed",
        "_soonest",
        "_streams",
        "_timer",
        "_unchecked",
        "clock",
        "running",
    )

    def __init__(self, clock: Clock) -> None:
        """Watch nothing yet."""
        self.clock = clock
        self.running = False
        self._streams: set[WatchedStream] = set()
        self._timer: Timer | None = None
        self._due = 0.0
        self._postponed = False
        self._unchecked: list[WatchedStream] = []  # what is left of the present round
        self._interval = self._soonest = INTERVAL

    def streams(self) -> list[WatchedStream]:
        """Return the open streams."""
        return list(self._streams)

    def add(self, stream: WatchedStream) -> None:
        """Watch *stream* from its first read on."""
        self._streams.add(stream)

    def forget(self, stream: WatchedStream) -> None:
        """Watch *stream* no longer."""
        self._streams.discard(stream)

    def start(self, limit: float | None) -> None:
        """Begin to check, within a quarter of *limit* seconds when it is given."""
        self._set_timer(INTERVAL if limit is None else min(INTERVAL, limit / 4))

    def hurry(self, seconds: float) -> None:
        """Check within a quarter of *seconds*, if it is running."""
        if self.running and self.clock.now() + seconds / 4 < self._due:
            self.stop()
            self._set_timer(seconds / 4)

    def stop(self) -> None:
        """Check no more until a read starts it again."""
        self.running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, seconds: float) -> None:
        self._due = self.clock.now() + seconds
        self._timer = self.clock.call_at(self._due, self._check)
        self.running = True

    def _check(self) -> None:
        self.running = False  # a stream that gives up may wake a reader, whose next read starts it again
        now = self.clock.now()
        if now - self._due > LATE and not self._postponed:
            # The loop was blocked: data that has arrived is read before any limit is checked.
            self._postponed = True
            self._set_timer(SHORTEST)
            return
        self._postponed = False
        for stream in self._next_slice():
            due = stream.check_limits(now)
            if due is not None:
                self._soonest = min(self._soonest, max(due - now, SHORTEST))
        if not self.running and self._streams:
            self._set_timer(self._interval if self._unchecked else min(self._soonest, self._interval))

    def _next_slice(self) -> list[WatchedStream]:
        if not self._unchecked:
            self._unchecked = self.streams()
            self._soonest = INTERVAL
            slices = max(1, -(-len(self._unchecked) // SLICE))
            self._interval = INTERVAL / slices
        step = self._unchecked[-SLICE:]
        del self._unchecked[-SLICE:]
        return [stream for stream in step if stream in self._streams]
