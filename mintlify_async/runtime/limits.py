"""Limits in time: a block that ends when its time is over, or when another task ends it.

A limit ends its block only after the loop has looked at its sockets again. If user code blocked the loop past
the limit, an answer may have arrived meanwhile, and an answer that has arrived is worth more than the limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

__all__ = ["TimeLimit", "TimeLimits"]

PASSES = 5
"""Turns of the loop between the limit and its end: reading the socket, waking the reader, three to spare."""

PASSES_SECONDS = 0.1
"""How long these turns may take. A peer that floods the loop can stretch each turn of uvloop to a second."""


class Alarm:
    """Calls *callback* when a time has come and the loop has looked at its sockets again.

    Args:
        at: The time, by the loop's clock.
        callback: A plain function.
    """

    __slots__ = ("_callback", "_handle", "_loop")

    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_at(at, self._due)

    def cancel(self) -> None:
        """Do not call back. Safe to repeat."""
        self._handle.cancel()

    def _due(self) -> None:
        self._pass(PASSES, self._loop.time() + PASSES_SECONDS)

    def _pass(self, passes: int, until: float) -> None:
        # Each cycle of the loop reads arrived data before it calls due callbacks.
        if passes == PASSES or (passes and self._loop.time() < until):
            self._handle = self._loop.call_soon(self._pass, passes - 1, until)
        else:
            self._callback()


class Timed(Protocol):
    """What ends at some time.

    Attributes:
        at: The time, by the loop's clock. It may be moved.
    """

    at: float

    def expire(self) -> None:
        """End, because the time has come."""
        ...

    def end(self) -> None:
        """End before its time."""
        ...


L = TypeVar("L", bound=Timed)


class TimeLimits(set[L]):
    """What runs now on one loop and ends at some time. All share one alarm.

    The alarm stays set when its member goes or is moved. A new member is hardly ever the next one that is
    due, so it costs no timer.

    Attributes:
        due: When the alarm goes off. A member whose ``at`` moves before it must be watched again.
        ended: Whether :meth:`end` was called.
    """

    due = math.inf
    ended = False
    _alarm: Alarm | None = None

    def watch(self, member: L) -> None:
        """Hold *member*, and see that the alarm is not later."""
        self.add(member)
        if member.at < self.due:
            self._set_alarm(member.at)

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self.due = due
        self._alarm = Alarm(due, self._time_came) if due < math.inf else None

    def _time_came(self) -> None:
        # Not those that came due since then: for these, the loop has not looked at its sockets again.
        due, self._alarm = self.due, None
        for member in list(self):
            if member.at <= due:
                member.expire()
        self._set_alarm(min((member.at for member in self if member.at > due), default=math.inf))

    def end(self) -> None:
        """End every member, for good: also a block that begins later."""
        self.ended = True
        self._set_alarm(math.inf)
        for member in list(self):
            member.end()


class TimeLimit:
    """As ``asyncio.timeout``, but its time comes after a further look at the sockets, and a task can end it.

    The block raises ``TimeoutError`` when the loop's time has reached *at*, or after :meth:`end`. Enter it
    once, and never hold it across a ``yield``::

        with TimeLimit(asyncio.get_running_loop().time() + 5):
            await something

    Args:
        at: When the block ends, by the running loop's time. None and infinity mean never.
        among: Holds the limit while its block runs, and ends it if it has ended itself.

    Attributes:
        at: When the block ends.
        ended: Whether :meth:`end` ended the block.
    """

    __slots__ = ("_among", "_cancelling", "_has_cancelled", "_is_alone", "_loop", "_task", "at", "ended")

    def __init__(self, at: float | None = None, among: TimeLimits[TimeLimit] | None = None) -> None:
        self._is_alone = among is None
        self._among = among  # a limit alone makes one, once it has a time
        self.at = math.inf if at is None else at
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None  # while the block runs
        self._cancelling = 0  # how many cancellations the task had before the block
        self._has_cancelled = False
        self.ended = False

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None
        self._cancelling = task.cancelling()
        if self._among is not None or self.at < math.inf:
            self._watch()
        if self.ended:
            self.end()
        return self

    def _watch(self) -> None:
        if self._among is None:
            self._among = TimeLimits()
        self._among.watch(self)
        if self._among.ended:
            self.end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._among is not None:
            self._among.discard(self)
            if self._is_alone:
                self._among.end()
        if task is not None and self._has_cancelled:
            others = task.uncancel() > self._cancelling  # somebody else has cancelled it, too
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error

    @property
    def over(self) -> bool:
        """Whether the time has come, or :meth:`end` was called."""
        return self.ended or self._loop.time() >= self.at

    def move(self, at: float) -> None:
        """Let the running block end at *at* instead. A later time costs no timer."""
        self.at = at
        if self._among is None or at < self._among.due:
            self._watch()

    def end(self) -> None:
        """End the block at its next suspension, from any task of its loop. It may be over already."""
        self.ended = True
        self._loop.call_soon(self.expire)  # in the next turn: a step that has its result already ends well

    def expire(self) -> None:
        """Cancel the block, if it still runs."""
        if self._task is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel()
