"""Sleeps, deadlines and timers in; the same, at once, as soon as everything else waits.

The time stands still while anything can run, and jumps to the next due moment
when nothing can. Half an hour of polling takes milliseconds, and what happens
is the same each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from itertools import count
from types import TracebackType
from typing import Final

from ..errors import ConfigurationError
from .idle_loop import Pulse, default_grace

__all__ = ["VirtualClock"]

EPOCH: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: where the wall clock starts, so that dates in tests never change."""


def _nothing() -> None:
    """Stand in for an action that was called off."""


class _Entry:
    """One thing that is due at a moment; smaller is earlier, and first come comes first."""

    __slots__ = ("action", "cancelled", "context", "due", "lane", "order")

    def __init__(
        self,
        due: float,
        order: int,
        action: Callable[[], object],
        context: contextvars.Context | None,
        lane: _Lane,
    ) -> None:
        self.due, self.order, self.action, self.context, self.lane = due, order, action, context, lane
        self.cancelled = False

    def __lt__(self, other: _Entry) -> bool:
        return (self.due, self.order) < (other.due, other.order)

    def cancel(self) -> None:
        """Call it off; harmless when it already ran."""
        if not self.cancelled:
            self.cancelled = True
            self.action = _nothing  # what it held may go now, not when it would have been due
            self.lane.forget_one()


class _Lane:
    """What is due on one event loop."""

    def __init__(self, clock: VirtualClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = weakref.ref(loop)
        self._heap: list[_Entry] = []
        self._cancelled = 0
        self._joined = False
        self._pulse = Pulse.of(loop)
        self._pulse.grace = max(self._pulse.grace, clock.grace)

    def add(self, entry: _Entry) -> None:
        heapq.heappush(self._heap, entry)
        self.watch()

    def watch(self) -> None:
        """Ask to be told when the loop is idle."""
        if not self._joined and self._clock.auto and self._heap:
            self._joined = True
            self._pulse.join(self)

    def forget_one(self) -> None:
        """Count a cancelled entry; sweep when they are most of the heap (deadlines rarely come true)."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry.cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_due(self) -> float | None:
        """Return when the next entry is due, or None."""
        while self._heap and self._heap[0].cancelled:
            heapq.heappop(self._heap)
            self._cancelled = max(0, self._cancelled - 1)
        return self._heap[0].due if self._heap else None

    def on_idle(self) -> bool:
        """Move the time to the next due moment and let everything due go on."""
        due = self.next_due()
        if due is not None and not self._clock.held:
            self._clock.move_to(due)
            self.run_due()
        self._joined = bool(self._heap) and self._clock.auto
        return self._joined

    def was_used(self) -> bool:
        """Say whether anybody used the clock since the last call."""
        return self._clock.take_used()

    def run_due(self) -> None:
        """Let everything go on that is due by now, in order."""
        now, loop = self._clock.now(), self._loop()
        while self._heap and self._heap[0].due <= now:
            entry = heapq.heappop(self._heap)
            if entry.cancelled:
                self._cancelled = max(0, self._cancelled - 1)
                continue
            entry.cancelled = True  # it ran: cancelling it later must not count
            if entry.context is None or loop is None:
                entry.action()
            else:
                loop.call_soon(entry.action, context=entry.context)


class VirtualClock:
    """A clock for tests: it moves on by itself when everything waits.

    Give the same one to the service and to the session. It serves any number
    of tasks on a loop, and several loops one after the other.

    Args:
        start: What :meth:`now` says at first, in seconds.
        epoch: What :meth:`wall` says at first, in seconds since 1970.
        auto: Whether the time moves on by itself; otherwise only
            :meth:`advance` moves it.
        grace: Real seconds of quiet to wait for before each move. None is
            right where everything runs in this process; give some
            milliseconds where another process takes part, such as a Redis.

    Raises:
        ConfigurationError: *grace* is negative.
    """

    def __init__(
        self, *, start: float = 0.0, epoch: float = EPOCH, auto: bool = True, grace: float | None = None
    ) -> None:
        """Start at *start*; nothing runs before the first sleep."""
        if grace is not None and grace < 0:
            raise ConfigurationError("grace is in seconds and cannot be negative", field="grace")
        self.auto = auto
        self.grace = default_grace() if grace is None else grace
        self._now = start
        self._wall_offset = epoch - start
        self._holds = 0
        self._used = False
        self._order = count()
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        """Show the time, in seconds."""
        return f"VirtualClock(now={self._now:.3f})"

    @property
    def held(self) -> bool:
        """Whether somebody holds the time still."""
        return self._holds > 0

    def now(self) -> float:
        """Return the virtual seconds; they never go back."""
        self._used = True
        return self._now

    def wall(self) -> float:
        """Return seconds since 1970; they follow :meth:`now`."""
        return self._wall_offset + self._now

    async def sleep(self, seconds: float) -> None:
        """Return when *seconds* of virtual time have passed."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = self.schedule(self._now + seconds, partial(_wake, woken))
        try:
            await woken
        finally:
            entry.cancel()

    def deadline(self, at: float | None) -> AbstractAsyncContextManager[object]:
        """Return a block that raises ``TimeoutError`` when the virtual time reaches *at*; None never does."""
        return _Deadline(self, at)

    def call_at(self, at: float, callback: Callable[[], object]) -> _Entry:
        """Call *callback* on the running loop when the virtual time reaches *at*."""
        return self.schedule(at, callback, contextvars.copy_context())

    async def advance(self, seconds: float) -> None:
        """Let *seconds* pass, with everything that is due in them, in order.

        Returns when everything waits again.
        """
        target = self._now + seconds
        lane = self._lane()
        with self.hold():
            await self.settle()
            while (due := lane.next_due()) is not None and due <= target:
                self.move_to(due)
                lane.run_due()
                await self.settle()
            self.move_to(target)
            await self.settle()

    async def settle(self) -> None:
        """Return when everything else on this loop waits; the time does not move by this."""
        loop = asyncio.get_running_loop()
        pulse = Pulse.of(loop)
        pulse.grace = max(pulse.grace, self.grace)
        settled: asyncio.Future[None] = loop.create_future()
        pulse.join(_Once(settled))
        await settled

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold the time still inside the block, for work that the loop cannot see (another process)."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def take_used(self) -> bool:
        """Return whether anybody used the clock since the last call."""
        used, self._used = self._used, False
        return used

    def move_to(self, at: float) -> None:
        """Set the time to *at*, never back; wakes nobody by itself."""
        self._now = max(self._now, at)

    def _lane(self) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane(self, loop)
        return lane

    def schedule(
        self, due: float, action: Callable[[], object], context: contextvars.Context | None = None
    ) -> _Entry:
        """Run *action* when the time reaches *due*: at once then, or on the loop when it has a *context*."""
        lane = self._lane()
        self._used = True
        entry = _Entry(due, next(self._order), action, context, lane)
        if due < float("inf"):
            lane.add(entry)
        return entry


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Once:
    """Resolves a future at the next idle moment."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def on_idle(self) -> bool:
        _wake(self._future)
        return False

    def was_used(self) -> bool:
        return False


class _Deadline:
    """An ``asyncio.timeout`` that a virtual clock sets off."""

    def __init__(self, clock: VirtualClock, at: float | None) -> None:
        self._clock, self._at = clock, at
        self._timeout = asyncio.timeout(None)
        self._entry: _Entry | None = None

    async def __aenter__(self) -> _Deadline:
        await self._timeout.__aenter__()
        if self._at is not None and self._at <= self._clock.now():
            self._expire()
        elif self._at is not None:
            self._entry = self._clock.schedule(self._at, self._expire)
        return self

    def _expire(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entry is not None:
            self._entry.cancel()
        await self._timeout.__aexit__(kind, error, trace)
