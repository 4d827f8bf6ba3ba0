"""An event loop in; a call each time that loop has nothing left to do.

A loop that waits and a loop that works look the same from outside. What tells
them apart: a callback that comes back every turn finds nothing else ready, for
a few turns in a row. Bytes written to a loopback socket are readable at once,
so requests under way inside one process always show up as something ready.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Protocol

from anyio import CapacityLimiter, to_thread

__all__ = ["IdleMember", "Pulse", "default_grace"]

QUIET_TURNS = 4
"""Turns without anything ready before a loop counts as idle; one is enough on Linux, the rest is margin."""

BLIND_GRACE = 0.01
"""Seconds without anyone asking for the time, for loops that do not show their ready queue (uvloop)."""

SLOW_TURN = 0.0005
"""Seconds between two looks while a worker thread is busy, so that it gets the processor."""

_EMPTY_CONTEXT = contextvars.Context()


class IdleMember(Protocol):
    """Something that wants to act when the loop is idle."""

    def on_idle(self) -> bool:
        """Act; return whether to be called at the next idle moment, too."""
        ...

    def was_used(self) -> bool:
        """Say whether somebody used this since the last call: a sign of work where nothing else shows it."""
        ...


def default_grace() -> float:
    """Return the real seconds of quiet that this platform needs besides the quiet turns.

    Linux delivers loopback bytes before ``send`` returns. Elsewhere a kernel
    thread may carry them.
    """
    return 0.0 if sys.platform == "linux" else 0.002


class Pulse:
    """Looks at one loop once a turn, for as long as somebody wants to know when it is idle."""

    _pulses: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pulse]] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare for *loop*; nothing runs before :meth:`join`."""
        self._loop = weakref.ref(loop)
        self._members: list[IdleMember] = []
        self._beating = False
        self._quiet = 0
        self._quiet_since = 0.0
        self._ready: object = getattr(loop, "_ready", None)  # asyncio's own loops; no public way to see it
        self._threads: CapacityLimiter | None = None
        self.grace = 0.0 if self._ready is not None else BLIND_GRACE

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Pulse:
        """Return the one pulse of *loop*."""
        pulse = cls._pulses.get(loop)
        if pulse is None:
            pulse = cls._pulses[loop] = cls(loop)
        return pulse

    def join(self, member: IdleMember) -> None:
        """Call *member* at each idle moment from now on, until it says that it is done."""
        if self._threads is None and asyncio.current_task() is not None:
            self._threads = to_thread.current_default_thread_limiter()
        self._members.append(member)
        self._quiet = 0
        if not self._beating:
            self._beating = True
            self._again()

    def _again(self) -> None:
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._beating = False
        elif self._threads_busy(loop):
            self._quiet = 0
            loop.call_later(SLOW_TURN, self._beat, context=_EMPTY_CONTEXT)
        else:
            loop.call_soon(self._beat, context=_EMPTY_CONTEXT)

    def _beat(self) -> None:
        if self._is_quiet():
            self._quiet = 0
            self._call_members()
        if self._members:
            self._again()
        else:
            self._beating = False

    def _call_members(self) -> None:
        members, self._members = self._members, []
        staying = [member for member in members if member.on_idle()]
        self._members = staying + self._members

    def _is_quiet(self) -> bool:
        """Count one more turn in which nothing else was ready; say whether that was enough."""
        loop = self._loop()
        if loop is None or self._something_ran():
            self._quiet = 0
            return False
        if self._quiet == 0:
            self._quiet_since = loop.time()
        self._quiet += 1
        if self._quiet < QUIET_TURNS:
            return False
        return not self.grace or loop.time() - self._quiet_since >= self.grace

    def _something_ran(self) -> bool:
        """Say whether anything besides this look is ready, or was at work since the last look."""
        if self._ready is not None:
            return bool(self._ready)
        used = [member.was_used() for member in self._members]  # of each: a look uses the sign up
        return any(used)

    def _threads_busy(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether a worker thread of anyio or of the loop's own executor is at work."""
        if self._threads is not None and self._threads.borrowed_tokens:
            return True
        executor: object = getattr(loop, "_default_executor", None)
        return isinstance(executor, ThreadPoolExecutor) and _at_work(executor)


def _at_work(executor: ThreadPoolExecutor) -> bool:
    """Say whether *executor* has something to do; no public way to see it, so absence means no."""
    threads: object = getattr(executor, "_threads", None)
    idle: object = getattr(getattr(executor, "_idle_semaphore", None), "_value", None)
    if not isinstance(threads, set) or not isinstance(idle, int):
        return False
    return len(threads) > idle  # pyright: ignore[reportUnknownArgumentType] - a private set, only counted
