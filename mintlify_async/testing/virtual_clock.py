"""The former virtual clock, which now only switches the running loop to virtual time; it will be removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager

from ..runtime.clock import Timer
from ..runtime.dates import replace_source
from .virtual_time import EPOCH, VirtualTime, start_virtual_time

_MOMENT = 2e-8  # seconds; long enough that the loop must be idle before they have passed


class VirtualClock:
    """Virtual time for the loop that first uses it."""

    def __init__(self, *, start: float = 0.0, auto: bool = True, grace: float | None = None) -> None:
        self.auto, self.grace = auto, grace or 0.0
        self._offset = start
        self._time: VirtualTime | None = None

    def join(self) -> VirtualTime:
        """Make the running loop's time virtual."""
        loop = asyncio.get_running_loop()
        current = getattr(loop.time, "__self__", None)
        if not isinstance(current, VirtualTime):
            start = self.now() if self._time is not None else self._offset
            current = start_virtual_time(loop, self.grace, start)
            current.started_at = 0.0
            current.held = not self.auto
            replace_source(lambda: None if loop.is_closed() else current.date())
        self._time = current
        return current

    @property
    def held(self) -> bool:
        """Return whether the time stands still."""
        return self._time is not None and self._time.held

    def now(self) -> float:
        """Return the virtual seconds since the start."""
        return self._offset if self._time is None else self._time.loop_time()

    def wall(self) -> float:
        """Return the virtual date, in seconds since 1970."""
        return EPOCH + self.now()

    async def sleep(self, seconds: float) -> None:
        """Sleep for *seconds* of virtual time."""
        self.join()
        await asyncio.sleep(seconds)

    def deadline(self, at: float | None) -> AbstractAsyncContextManager[object]:
        """Return a block that ends when :meth:`now` reaches *at*."""
        self.join()
        loop = asyncio.get_running_loop()
        return asyncio.timeout_at(None if at is None else loop.time() + at - self.now())

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* when :meth:`now` reaches *at*."""
        self.join()
        return asyncio.get_running_loop().call_later(at - self.now(), callback)

    async def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""
        virtual = self.join()
        held, virtual.held = virtual.held, False
        for pause in (_MOMENT, seconds, _MOMENT):
            await asyncio.sleep(pause)
        virtual.held = held

    async def settle(self) -> None:
        """Return when everything that is due has run."""
        await self.advance(_MOMENT)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Let the time stand still inside the block."""
        virtual = self.join()
        held, virtual.held = virtual.held, True
        try:
            yield
        finally:
            virtual.held = held

    def move_to(self, at: float) -> None:
        """Move the time to *at*; nothing runs before the next turn of the loop."""
        virtual = self.join()
        virtual.seconds += max(0.0, at - self.now())
