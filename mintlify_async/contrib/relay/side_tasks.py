"""Tasks that run beside a response and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self

import anyio

if TYPE_CHECKING:
    from mintlify_async.runtime.clock import Clock, Timer

Run = Callable[[], Coroutine[Any, Any, None]]


class SideTasks:
    """An async block that ends its tasks when it is left, and then raises the error of one that failed.

    It takes a third of the time of a task group of anyio, and leaves nothing to the garbage collector.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: list[Timer] = []
        self._over = False

    def start(self, run: Run) -> asyncio.Task[None]:
        """Start *run* in a task of its own."""
        task = asyncio.create_task(run())
        self._tasks.append(task)
        return task

    def start_after(self, clock: Clock, seconds: float, run: Run) -> None:
        """Start *run* after *seconds*, unless the block is over: until then, it costs no task."""
        if not self._over:
            start = copy_context().run
            self._timers.append(clock.call_at(clock.now() + seconds, lambda: start(self.start, run)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._over = True
        for timer in self._timers:
            timer.cancel()
        running = [task for task in self._tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(running)
        failures = [failed for task in self._tasks if not task.cancelled() and (failed := task.exception())]
        if failures and error is None:
            raise failures[0]
