"""Detects when an event loop has nothing left to do, so that a virtual clock may move.

From outside, a loop that waits and a loop that works look the same. The difference: a callback that runs in
every turn finds nothing else ready for a few turns in a row. Bytes written to a loopback socket are readable
at once, so a request within this process always shows up as something ready.

asyncio's own loops show what is ready. Those of uvloop do not: there, each call of ``call_soon`` is counted.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from anyio import CapacityLimiter, to_thread

QUIET_TURNS = 4
"""Turns without anything ready before a loop counts as idle; one is enough on Linux, the rest is margin."""

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
        self._listeners: list[Callable[[], bool]] = []
        self._running = False
        self._quiet_turns = 0
        self._quiet_since = 0.0
        self._ready: object = getattr(loop, "_ready", None)  # of asyncio's own loops; there is no public way
        self._calls = 0  # of `call_soon` since the last turn, where the queue cannot be seen
        self._in_threads = 0  # calls that the loop's executors have not finished
        self._threads: CapacityLimiter | None = None
        self.grace = 0.0
        self._observe(loop)

    def _observe(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count what *loop* is asked to do in its next turn, and in other threads."""
        # The loop keeps these functions: the watch must not keep the loop, or neither would ever be freed.
        call_soon, run_in_executor, getaddrinfo = loop.call_soon, loop.run_in_executor, loop.getaddrinfo

        def counted_call_soon(*args: Any, **kwargs: Any) -> asyncio.Handle:
            self._calls += 1
            return call_soon(*args, **kwargs)

        def counted_run_in_executor(*args: Any) -> asyncio.Future[Any]:
            future = run_in_executor(*args)
            self._in_threads += 1
            future.add_done_callback(self._thread_done)
            return future

        async def counted_getaddrinfo(*args: Any, **kwargs: Any) -> Any:
            self._in_threads += 1
            try:
                return await getaddrinfo(*args, **kwargs)
            finally:
                self._in_threads -= 1

        if self._ready is None:
            loop.call_soon = counted_call_soon  # type: ignore[assignment, method-assign]  # to observe it
            loop.getaddrinfo = counted_getaddrinfo  # type: ignore[method-assign]  # uvloop's has its own threads
        loop.run_in_executor = counted_run_in_executor  # type: ignore[assignment, method-assign]  # as above

    def _thread_done(self, _: object) -> None:
        self._in_threads -= 1

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, grace: float = 0.0) -> IdleWatch:
        """Return the watch of *loop*, with real seconds of quiet of at least *grace*."""
        watch = cls._by_loop.get(loop)
        if watch is None:
            watch = cls._by_loop[loop] = cls(loop)
        watch.grace = max(watch.grace, grace)
        return watch

    def join(self, on_idle: Callable[[], bool]) -> None:
        """Call *on_idle* at each idle moment from now on, until it returns False."""
        if self._threads is None and asyncio.current_task() is not None:
            self._threads = to_thread.current_default_thread_limiter()
        self._listeners.append(on_idle)
        self._quiet_turns = 0
        if not self._running:
            self._running = True
            self._schedule()

    def _schedule(self) -> None:
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._running = False
        elif self._in_threads or (self._threads is not None and self._threads.borrowed_tokens):
            self._quiet_turns = 0
            loop.call_later(THREAD_CHECK_SECONDS, self._check, context=_EMPTY_CONTEXT)
        else:
            loop.call_soon(self._check, context=_EMPTY_CONTEXT)
            self._calls = 0  # this call is no work

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
        staying = [on_idle for on_idle in listeners if on_idle()]
        self._listeners = staying + self._listeners

    def _is_idle(self) -> bool:
        """Count one more quiet turn; return whether there were enough of them."""
        loop = self._loop()
        if loop is None or self._ready or self._calls:
            self._quiet_turns = 0
            return False
        if self._quiet_turns == 0:
            self._quiet_since = loop.time()
        self._quiet_turns += 1
        if self._quiet_turns < QUIET_TURNS:
            return False
        return not self.grace or loop.time() - self._quiet_since >= self.grace
