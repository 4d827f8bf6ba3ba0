"""Timers of the system clock: all timers of one event loop share a single timer of that loop.

Nearly all timers are limits on requests, which are cancelled long before they are due. A timer of
the loop costs ten times as much as an entry here.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from weakref import ReferenceType, WeakValueDictionary, ref

__all__ = ["SWEEP_ABOVE", "TimerEntry", "TimerQueue"]

SWEEP_ABOVE = 64  # entries; fewer are not worth a look at which of them are cancelled


class TimerEntry:
    """One callback that is due later."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        """Wait for the queue to call."""
        self.callback: Callable[[], object] | None = callback  # None when it was called or cancelled

    def cancel(self) -> None:
        """Cancel the call; harmless when it was made."""
        self.callback = None


class TimerQueue:
    """The timers of one event loop, in the order in which they are due.

    When every entry is cancelled, the loop's own timer is left to run out, which costs less than
    cancelling it and setting it anew for the next request.

    Attributes:
        loop: The event loop.
    """

    __slots__ = ("__weakref__", "_handle", "_heap", "_next_at", "_order", "_sweep_above", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve *loop*."""
        self.loop = loop
        self._heap: list[tuple[float, int, TimerEntry]] = []
        self._order = 0  # entries due at the same time are called in the order in which they were added
        self._handle: asyncio.TimerHandle | None = None
        self._next_at = math.inf
        self._sweep_above = SWEEP_ABOVE

    def __len__(self) -> int:
        """Return how many entries the heap holds, cancelled ones among them."""
        return len(self._heap)

    def add(self, at: float, callback: Callable[[], object]) -> TimerEntry:
        """Call *callback* when the loop's time reaches *at*; use it on the loop's own thread."""
        if len(self._heap) > self._sweep_above:
            self._heap = [item for item in self._heap if item[2].callback is not None]
            heapify(self._heap)
            self._sweep_above = max(SWEEP_ABOVE, 2 * len(self._heap))
        self._order += 1
        entry = TimerEntry(callback)
        heappush(self._heap, (at, self._order, entry))
        if at < self._next_at:
            self._set(at)
        return entry

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next_at = at
        delay = max(0.0, at - self.loop.time())
        # An empty context, or the timers would carry the variables of the task that set the first one.
        self._handle = self.loop.call_later(delay, self._run_due, context=contextvars.Context())

    def _run_due(self) -> None:
        # It is due by the loop's clock; this package's clock may read a moment less.
        now = max(self.loop.time(), self._next_at)
        self._handle, self._next_at = None, math.inf
        try:
            while self._heap and (self._heap[0][0] <= now or self._heap[0][2].callback is None):
                entry = heappop(self._heap)[2]
                callback, entry.callback = entry.callback, None
                if callback is not None:
                    self._call(callback)
        finally:  # also when a callback raised KeyboardInterrupt
            if self._heap and self._heap[0][0] < self._next_at:
                self._set(self._heap[0][0])

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:  # handled as the loop handles errors of its own callbacks
            context = {"message": f"a timer's {callback!r} failed", "exception": error}
            self.loop.call_exception_handler(context)


# By the loop's id. The loop's timer, or an entry that is still held, keeps a queue alive.
_queues: WeakValueDictionary[int, TimerQueue] = WeakValueDictionary()
_latest: ReferenceType[TimerQueue] | None = None  # most programs have one loop, and a weak dictionary is slow


def queue_of(loop: asyncio.AbstractEventLoop) -> TimerQueue:
    """Return the queue of *loop*, made on first use."""
    global _latest
    queue = _latest() if _latest is not None else None
    if queue is not None and queue.loop is loop:
        return queue
    queue = _queues.get(id(loop))
    if queue is None or queue.loop is not loop:  # a new loop may have the id of one that is gone
        queue = _queues[id(loop)] = TimerQueue(loop)
    _latest = ref(queue)
    return queue


def queues() -> list[TimerQueue]:
    """Return the queues of all loops that have one."""
    return list(_queues.values())
