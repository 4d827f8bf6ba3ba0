"""A sleep that any thread can end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .clock import Clock


class Wakeup:
    """A flag that one task sleeps on, and that other tasks, loops and threads may set."""

    __slots__ = ("_is_set", "_loop", "_sleep")

    def __init__(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._sleep: asyncio.Future[None] | None = None
        self._is_set = False

    def set(self) -> None:
        """End the sleep; when nothing sleeps, the next one ends at once."""
        self._is_set = True
        with suppress(RuntimeError):  # its loop is closed, so nothing sleeps on it
            self._loop.call_soon_threadsafe(self._end)

    async def sleep(self, clock: Clock, until: float | None) -> None:
        """Sleep until :meth:`set`, or until *clock* shows *until*."""
        if not self._is_set:
            self._sleep = self._loop.create_future()
            timer = None if until is None else clock.call_at(until, self._end)
            try:
                await self._sleep
            finally:
                if timer is not None:
                    timer.cancel()
        self._is_set = False

    def _end(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)
