"""Time: the clock that a session reads, sleeps by and sets timers on.

No other module reads the time or sleeps, so that a test can put a virtual clock in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from . import dates
from .timers import queue_of

__all__ = ["Clock", "SystemClock", "Timer"]


class Timer(Protocol):
    """A call that is due later and can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call; harmless when it was made."""
        ...


class Clock(Protocol):
    """What a session needs of time. Every quantity is in seconds."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after *seconds*."""
        ...

    def deadline(self, at: float | None) -> AbstractAsyncContextManager[object]:
        """Return a block that raises ``TimeoutError`` when :meth:`now` reaches *at*; None means never.

        A block whose time has already come raises at its first suspension.
        """
        ...

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* on the running loop when :meth:`now` reaches *at*."""
        ...


class SystemClock:
    """The running event loop's own clock, and the computer's wall clock."""

    __slots__ = ()

    def now(self) -> float:
        """Return the running loop's time, in seconds."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return dates.now()

    async def sleep(self, seconds: float) -> None:
        """Sleep for *seconds* on the running loop."""
        await asyncio.sleep(seconds)

    def deadline(self, at: float | None) -> AbstractAsyncContextManager[object]:
        """Return an ``asyncio.timeout`` that ends when :meth:`now` reaches *at*."""
        return asyncio.timeout_at(at)

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* on the running loop when :meth:`now` reaches *at*, in an empty context."""
        return queue_of(asyncio.get_running_loop()).add(at, callback)
