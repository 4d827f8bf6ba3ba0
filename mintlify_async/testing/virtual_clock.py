"""A clock for tests that jumps to the next due moment as soon as everything waits.

The time stands still while anything can run. Half an hour of polling takes milliseconds, and events happen in
the same order each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import Final

from ..protocol.argument_checks import check_seconds
from ..runtime.clock import Timer
from ..runtime.timers import SWEEP_ABOVE, TimerEntry
from .idle_loop import IdleWatch, default_grace

EPOCH: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: where the wall clock starts, so that dates in tests never change."""


class _TimerQueue:
    """The timers of one event loop."""

    def __init__(self, clock: VirtualClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, TimerEntry]] = []  # in order of moment, then creation
        self._sweep_above = SWEEP_ABOVE
        self._joined = False
        self._watch = IdleWatch.of(loop, clock.grace)

    def add(self, due: float, order: int, action: Callable[[], object]) -> TimerEntry:
        if len(self._heap) > self._sweep_above:  # most deadlines are cancelled, and would fill the heap
            self._heap = [item for item in self._heap if item[2].callback is not None]
            heapq.heapify(self._heap)
            self._sweep_above = max(SWEEP_ABOVE, 2 * len(self._heap))
        entry = TimerEntry(action)
        if due < math.inf:
            heapq.heappush(self._heap, (due, order, entry))
            if not self._joined and self._clock.auto:
                self._joined = True
                self._watch.join(self.on_idle)
        return entry

    def next_due(self) -> float | None:
        """Return the moment of the next entry, or None."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def on_idle(self) -> bool:
        """Move the time to the next due moment and run what is due."""
        due = self.next_due()
        if due is not None and not self._clock.held:
            self._clock.move_to(due)
            self.run_due()
        self._joined = bool(self._heap) and self._clock.auto
        return self._joined

    def run_due(self) -> None:
        """Run everything that is due by now, in order."""
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)[2]
            action, entry.callback = entry.callback, None
            if action is not None:
                action()


class VirtualClock:
    """A clock for tests: it moves by itself when everything waits.

    Give the same clock to the service and to the session, as ``service.session()`` does. It serves any number
    of tasks on a loop, and several loops one after the other.

    ::

        clock = VirtualClock()
        async with LocalService(clock=clock) as service, service.session() as session:
            await session.run_job("Fix the typos", timeout=900)
        assert clock.now() >= 3    # virtual seconds; the test took milliseconds

    Args:
        start: What :meth:`now` returns at first, in seconds.
        auto: Whether the time moves by itself; otherwise only :meth:`advance` moves it.
        grace: Real seconds of quiet to wait for before each move. None is right if everything runs in this
            process; give some milliseconds if another process takes part, such as Redis.

    Raises:
        ConfigurationError: *grace* is negative.
    """

    def __init__(self, *, start: float = 0.0, auto: bool = True, grace: float | None = None) -> None:
        check_seconds(grace, "grace", zero=True, none="is right for one process")
        self.auto = auto
        self.grace = default_grace() if grace is None else grace
        self._now = start
        self._wall_offset = EPOCH - start
        self._holds = 0
        self._order = count()
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _TimerQueue] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"VirtualClock(now={self._now:.3f})"

    @property
    def held(self) -> bool:
        """Whether the time is held still, see :meth:`hold`."""
        return self._holds > 0

    def now(self) -> float:
        """Return the virtual seconds; they never go back."""
        return self._now

    def wall(self) -> float:
        """Return seconds since 1970, which advance with :meth:`now`."""
        return self._wall_offset + self._now

    async def sleep(self, seconds: float) -> None:
        """Return when *seconds* of virtual time have passed."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = self._schedule(self._now + seconds, partial(_wake, woken))
        try:
            await woken
        finally:
            entry.cancel()

    @asynccontextmanager
    async def deadline(self, at: float | None) -> AsyncGenerator[None]:
        """Return a block that raises ``TimeoutError`` when the virtual time reaches *at*; None never does."""
        loop = asyncio.get_running_loop()
        over = at is not None and at <= self._now
        async with asyncio.timeout(0 if over else None) as timeout:
            due = math.inf if over or at is None else at
            entry = self._schedule(due, lambda: timeout.reschedule(loop.time()))
            try:
                yield
            finally:
                entry.cancel()

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* on the running loop when the virtual time reaches *at*.

        Returns:
            An object with a ``cancel`` method.
        """
        context = contextvars.copy_context()
        return self._schedule(at, lambda: asyncio.get_running_loop().call_soon(callback, context=context))

    async def advance(self, seconds: float) -> None:
        """Let *seconds* pass and run everything that is due in them, in order.

        Returns when everything waits again.

        Args:
            seconds: How long, in virtual seconds.
        """
        target = self._now + seconds
        queue = self._queue()
        with self.hold():
            await self.settle()
            while (due := queue.next_due()) is not None and due <= target:
                self.move_to(due)
                queue.run_due()
                await self.settle()
            self.move_to(target)
            await self.settle()

    async def settle(self) -> None:
        """Return when everything else on this loop waits. The time does not move by this."""
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()
        IdleWatch.of(loop, self.grace).join(partial(_wake, settled))
        await settled

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold the time still inside the block, for work outside this process that the loop cannot see."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def move_to(self, at: float) -> None:
        """Set the time to *at*, never back; runs nothing by itself."""
        self._now = max(self._now, at)

    def _schedule(self, due: float, action: Callable[[], object]) -> TimerEntry:
        """Run *action* at once when the time reaches *due*."""
        return self._queue().add(due, next(self._order), action)

    def _queue(self) -> _TimerQueue:
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = _TimerQueue(self, loop)
        return queue


def _wake(future: asyncio.Future[None]) -> bool:
    if not future.done():
        future.set_result(None)
    return False  # for IdleWatch: once is enough
