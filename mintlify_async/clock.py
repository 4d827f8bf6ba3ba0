"""Time as the package sees it: now, the wall clock, sleep, a deadline, a timer.

Nothing else in the package reads the time or sleeps, so that a test can put a
virtual clock in its place.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from typing import Any, Protocol
from weakref import ReferenceType, WeakValueDictionary, ref

__all__ = ["Clock", "SystemClock", "Timer"]


class Timer(Protocol):
    """A call that is due later and can be called off."""

    def cancel(self) -> None:
        """Call it off; harmless when it already ran."""
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
        """Return a block that raises ``TimeoutError`` when :meth:`now` reaches *at*; None never does.

        A block whose time has already come raises at its first suspension.
        """
        ...

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* on the running loop when :meth:`now` reaches *at*."""
        ...


class SystemClock:
    """The running event loop's own clock, and the computer's wall clock."""

    __slots__ = ()

    now = staticmethod(time.monotonic)
    """The monotonic clock that asyncio's loops use, in seconds; each read of a stream asks it."""

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep for *seconds* on the running loop."""
        await asyncio.sleep(seconds)

    def deadline(self, at: float | None) -> AbstractAsyncContextManager[object]:
        """Return an ``asyncio.timeout`` that ends when :meth:`now` reaches *at*."""
        if at is None:
            return asyncio.timeout(None)
        return asyncio.timeout(at - time.monotonic())

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* on the running loop when :meth:`now` reaches *at*, in an empty context."""
        loop = asyncio.get_running_loop()
        lane = _latest() if _latest is not None else None
        if lane is None or lane.loop is not loop:
            lane = _lane_of(loop)
        return lane.add(at, callback)


class _Alarm(list[Any]):
    """One callback that is due, as its place in a heap: when, and its number.

    A list, because a heap compares those without any Python; a tuple around it would be one more
    object of each request.
    """

    __slots__ = ("callback", "lane")

    callback: Callable[[], object] | None
    lane: _Lane
    # A timer's, not a list's: who asked for one may keep it in a set, as typeshed's lists may not.
    __hash__ = object.__hash__  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def cancel(self) -> None:
        """Call it off; harmless when it already ran."""
        if self.callback is not None:
            self.callback = None
            self.lane.dead += 1


class _Lane:
    """What is due on one loop, behind one timer of that loop.

    Nearly all timers are limits that are called off long before they are due. The loop's own cost
    ten times as much, and with thousands of them each compares itself with a dozen others in Python.
    When everything is called off, the loop's timer is left to run out: to begin anew costs more.
    """

    __slots__ = ("__weakref__", "_alarms", "_armed_at", "_handle", "_order", "dead", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._alarms: list[_Alarm] = []  # a heap
        self._order = 0
        self.dead = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_at = math.inf

    def add(self, at: float, callback: Callable[[], object]) -> _Alarm:
        """Call *callback* at *at*; on the loop's own thread, as cancelling need not be."""
        if self.dead > 64 and self.dead * 2 > len(self._alarms):  # most of the heap was called off
            self._alarms = [alarm for alarm in self._alarms if alarm.callback is not None]
            heapify(self._alarms)
            self.dead = 0
        self._order += 1
        alarm = _Alarm((at, self._order))
        alarm.callback, alarm.lane = callback, self
        heappush(self._alarms, alarm)
        if at < self._armed_at:
            self._arm(at)
        return alarm

    def _arm(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_at = at
        delay = max(0.0, at - time.monotonic())
        self._handle = self.loop.call_later(delay, self._ring, context=contextvars.Context())

    def _ring(self) -> None:
        """Call back whatever is due, in order, and wait for the next."""
        now = max(time.monotonic(), self._armed_at)  # the loop says that it has come, by its own clock
        self._handle, self._armed_at = None, math.inf
        try:
            while self._alarms and (self._alarms[0][0] <= now or self._alarms[0].callback is None):
                alarm = heappop(self._alarms)
                callback, alarm.callback = alarm.callback, None
                if callback is None:
                    self.dead -= 1
                else:
                    self._call(callback)
        finally:  # also when a KeyboardInterrupt came through
            if self._alarms and self._alarms[0][0] < self._armed_at:
                self._arm(self._alarms[0][0])

    def _call(self, callback: Callable[[], object]) -> None:
        """Call *callback*; what it raises goes where the loop's own callbacks' errors go."""
        try:
            callback()
        except Exception as error:
            what = {"message": f"a timer's {callback!r} failed", "exception": error}
            self.loop.call_exception_handler(what)


_lanes: WeakValueDictionary[int, _Lane] = WeakValueDictionary()
"""By the loop's id. A lane lives as long as its loop's timer, or somebody's alarm, holds it."""
_latest: ReferenceType[_Lane] | None = None
"""The lane that was asked for last: most programs have one loop, and a weak dictionary is slow."""


def _lane_of(loop: asyncio.AbstractEventLoop) -> _Lane:
    global _latest
    lane = _lanes.get(id(loop))
    if lane is None or lane.loop is not loop:
        lane = _lanes[id(loop)] = _Lane(loop)
    _latest = ref(lane)
    return lane
