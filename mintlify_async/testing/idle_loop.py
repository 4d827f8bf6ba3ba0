"""Detects when an event loop has nothing left to do, so that a virtual clock may move.

From outside, a loop that waits and a loop that works look the same. The difference: a callback that runs in
every turn finds nothing else ready for a few turns in a row. Bytes written to a loopback socket are readable
at once, so a request within this process always shows up as something ready.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from anyio import CapacityLimiter, to_thread

QUIET_TURNS = 4
"""Turns without anything ready before a loop counts as idle; one is enough on Linux, the rest is margin."""

BLIND_GRACE = 0.01
"""Seconds without any use of the clock, for loops whose ready queue cannot be seen (uvloop)."""

THREAD_CHECK_SECONDS = 0.0005
"""Seconds between two checks while a worker thread is busy, so that it gets the processor."""

_EMPTY_CONTEXT = contextvars.Context()


def default_grace() -> float:
    """Return the real seconds of quiet that this platform needs besides the quiet turns."""
    # Linux delivers loopback bytes before `send` returns; elsewhere a kernel thread may carry them.
    return 0.0 if sys.platform == "linux" else 0.002


class IdleWatch:
    """Checks one loop in each of its turns while a listener waits for an idle moment."""

    _by_loop: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, IdleWatch]] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._listeners: list[tuple[Callable[[], bool], Callable[[], bool] | None]] = []
        self._running = False
        self._quiet_turns = 0
        self._quiet_since = 0.0
        self._ready: object = getattr(loop, "_ready", None)  # of asyncio's own loops; there is no public way
        self._threads: CapacityLimiter | None = None
        self.grace = 0.0 if self._ready is not None else BLIND_GRACE

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, grace: float = 0.0) -> IdleWatch:
        """Return the watch of *loop*, with real seconds of quiet of at least *grace*."""
        watch = cls._by_loop.get(loop)
        if watch is None:
            watch = cls._by_loop[loop] = cls(loop)
        watch.grace = max(watch.grace, grace)
        return watch

    def join(self, on_idle: Callable[[], bool], was_used: Callable[[], bool] | None = None) -> None:
        """Call *on_idle* at each idle moment from now on, until it returns False.

        *was_used* tells whether there was work since its last call, for loops that show no other sign.
        """
        if self._threads is None and asyncio.current_task() is not None:
            self._threads = to_thread.current_default_thread_limiter()
        self._listeners.append((on_idle, was_used))
        self._quiet_turns = 0
        if not self._running:
            self._running = True
            self._schedule()

    def _schedule(self) -> None:
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._running = False
        elif self._threads_busy(loop):
            self._quiet_turns = 0
            loop.call_later(THREAD_CHECK_SECONDS, self._check, context=_EMPTY_CONTEXT)
        else:
            loop.call_soon(self._check, context=_EMPTY_CONTEXT)

    def _check(self) -> None:
        if self._is_idle():
            self._quiet_turns = 0
            self._call_listeners()
        if self._listeners:
            self._schedule()
        else:
            self._running = False

    def _call_listeners(self) -> None:
        listeners, self._listeners = self._listeners, []
        staying = [listener for listener in listeners if listener[0]()]
        self._listeners = staying + self._listeners

    def _is_idle(self) -> bool:
        """Count one more quiet turn; return whether there were enough of them."""
        loop = self._loop()
        if loop is None or self._something_ran():
            self._quiet_turns = 0
            return False
        if self._quiet_turns == 0:
            self._quiet_since = loop.time()
        self._quiet_turns += 1
        if self._quiet_turns < QUIET_TURNS:
            return False
        return not self.grace or loop.time() - self._quiet_since >= self.grace

    def _something_ran(self) -> bool:
        if self._ready is not None:
            return bool(self._ready)
        used = [was_used() for _, was_used in self._listeners if was_used is not None]  # resets each sign
        return any(used)

    def _threads_busy(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a worker thread of anyio or of the loop's own executor is working."""
        if self._threads is not None and self._threads.borrowed_tokens:
            return True
        executor: object = getattr(loop, "_default_executor", None)
        return isinstance(executor, ThreadPoolExecutor) and _is_working(executor)


def _is_working(executor: ThreadPoolExecutor) -> bool:
    # There is no public way to see it. Where these attributes are missing, the answer is no.
    threads: object = getattr(executor, "_threads", None)
    idle: object = getattr(getattr(executor, "_idle_semaphore", None), "_value", None)
    if not isinstance(threads, set) or not isinstance(idle, int):
        return False
    return len(threads) > idle  # pyright: ignore[reportUnknownArgumentType] - a private set, only counted
