"""Time limits: a block that ends when its time is over, or when another task ends it.

A limit ends its block only after the loop has read its sockets once more. If user code blocked the loop past
the limit, a response may have arrived in the meantime. Then the response is used, not the limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

__all__ = ["TimeLimit", "TimeLimits"]

PASSES = 5
"""Cycles of the loop from the limit to the end of the block. Two read the socket and wake the task."""

PASSES_SECONDS = 0.1
"""Maximum time of these cycles, in seconds. With a flooding peer, a cycle of uvloop may take a second."""


class Alarm:
    """Calls *callback* when a time has come and the loop has read its sockets once more.

    Args:
        at: When to call, by the loop's clock.
        callback: A plain function.
    """

    __slots__ = ("_callback", "_handle", "_loop")

    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_at(at, self._due)

    def cancel(self) -> None:
        """Cancel the call. Repeated calls do nothing."""
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
    """An object that ends at some time.

    Attributes:
        at: The time of the end, by the loop's clock. It may be moved.
    """

    at: float

    def expire(self) -> None:
        """End, because the time has come."""

    def end(self) -> None:
        """End before its time."""


L = TypeVar("L", bound=Timed)


class TimeLimits(set[L]):
    """The objects of one loop that end at some time. They share one alarm.

    The alarm stays when the member that is due first is removed or moved to a later time. A new member is
    rarely the next one that is due, so it usually needs no timer.

    Attributes:
        due: The time of the alarm. If a member's ``at`` moves before it, call :meth:`watch` again.
        ended: Whether :meth:`end` was called.
    """

    due = math.inf
    ended = False
    _alarm: Alarm | None = None

    def watch(self, member: L) -> None:
        """Add *member*. If necessary, set the alarm to its time."""
        self.add(member)
        if member.at < self.due:
            self._set_alarm(member.at)

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self.due = due
        self._alarm = Alarm(due, self._time_came) if due < math.inf else None

    def _time_came(self) -> None:
        # Members that became due after the time of the alarm must wait, because the loop has not read its
        # sockets for them.
        due, self._alarm = self.due, None
        for member in list(self):
            if member.at <= due:
                member.expire()
        self._set_alarm(min((member.at for member in self if member.at > due), default=math.inf))

    def end(self) -> None:
        """End every member now, and every block that starts later."""
        self.ended = True
        self._set_alarm(math.inf)
        for member in list(self):
            member.end()


class TimeLimit:
    """Like ``asyncio.timeout``, but the loop first reads its sockets once more, and a task can end it.

    The block raises ``TimeoutError`` when the loop's time has reached *at*, or after :meth:`end`. Enter it
    once, and do not use it around a ``yield``::

        with TimeLimit(asyncio.get_running_loop().time() + 5):
            await something

    Args:
        at: When the block ends, by the running loop's time. None and infinity mean never.
        among: The limits of the loop. It contains this limit while the block runs, and can end it.

    Attributes:
        at: When the block ends.
        ended: Whether :meth:`end` ended the block.
    """

    __slots__ = ("_among", "_cancelling", "_has_cancelled", "_is_alone", "_loop", "_task", "at", "ended")

    def __init__(self, at: float | None = None, among: TimeLimits[TimeLimit] | None = None) -> None:
        self._is_alone = among is None
        self._among: TimeLimits[TimeLimit] = TimeLimits() if among is None else among
        self.at = math.inf if at is None else at
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None  # set while the block runs
        self._cancelling = 0  # the task's number of cancellations before the block
        self._has_cancelled = False
        self.ended = False

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None
        self._cancelling = task.cancelling()
        self._among.watch(self)
        if self.ended or self._among.ended:
            self.end()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self._among.discard(self)
        if self._is_alone:
            self._among.end()
        if task is not None and self._has_cancelled:
            others = task.uncancel() > self._cancelling  # other code has also cancelled the task
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error

    @property
    def over(self) -> bool:
        """Whether the time has come, or :meth:`end` was called."""
        return self.ended or self._loop.time() >= self.at

    def move(self, at: float) -> None:
        """Make the running block end at *at* instead. A later time needs no timer."""
        self.at = at
        if at < self._among.due:
            self._among.watch(self)

    def end(self) -> None:
        """End the block at its next suspension, from any task of its loop. The block may be over."""
        self.ended = True
        self._loop.call_soon(self.expire)  # later, so that a step with a result ends without an error

    def expire(self) -> None:
        """If the block still runs, cancel its task."""
        if self._task is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel()
