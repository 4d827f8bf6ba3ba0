"""Timeouts that another task can trigger, and steps that finish although the caller is cancelled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Self, TypeVar

from .clock import Clock, Timer

__all__ = ["Deadline", "cancel_requests", "finish_shielded"]

T = TypeVar("T")
LATE = 0.05  # seconds late: the loop was blocked, and an answer may have arrived meanwhile
CANCEL_AGAIN = 0.25  # seconds between two cancellations of a step that goes on: libraries swallow some
ONE_TURN = 0.001  # seconds, in which the loop reads what has arrived


class Deadline:
    """A timeout that another task can trigger.

    The block raises ``TimeoutError`` when its deadline has passed, or after :meth:`end`. Enter it once, and
    never hold it across a ``yield``::

        with Deadline(clock, clock.now() + 5):
            await something

    (``asyncio.timeout`` cannot be ended by another task, and knows no other clock.)

    Args:
        clock: Tells the time; without a clock only :meth:`end` ends the block.
        at: When the block ends, on *clock*; None and infinity mean never.
        among: Holds it while it is entered, for code that ends all of them.

    Attributes:
        ended: Whether the block was ended.
    """

    __slots__ = ("_among", "_at", "_cancelling", "_clock", "_task", "_timer", "ended")

    def __init__(
        self, clock: Clock | None = None, at: float | None = None, among: set[Deadline] | None = None
    ) -> None:
        """Set nothing in motion before the block is entered."""
        self._at = at
        self._clock = clock
        self._among = among
        self._task: asyncio.Task[object] | None = None
        self._timer: Timer | None = None
        self._cancelling = 0
        self.ended = False

    def __enter__(self) -> Self:
        """Begin, in the running task."""
        self._task = task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        if self._among is not None:
            self._among.add(self)
        if self._clock is not None and self._at is not None and self._at < math.inf:
            self._timer = self._clock.call_at(self._at, self._time_came)
        return self

    def end(self) -> None:
        """End the block at its next suspension, from any task of its loop; harmless when it is over."""
        if self._task is not None:
            # Not at once: the block may be over by then, and the cancellation would hit what follows it.
            self._task.get_loop().call_soon(self._end_now)

    @property
    def over(self) -> bool:
        """Whether the block was ended, or its deadline has passed."""
        return self.ended or (
            self._clock is not None and self._at is not None and self._clock.now() >= self._at
        )

    def _time_came(self) -> None:
        if self._clock is not None and self._at is not None and self._clock.now() - self._at > LATE:
            self._timer = self._clock.call_at(self._clock.now() + ONE_TURN, self._end_now)
        else:
            self._end_now()

    def _end_now(self) -> None:
        if self._task is not None and not self.ended:
            self.ended = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ``TimeoutError`` when the block was ended, unless the task was cancelled as well."""
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if self._among is not None:
            self._among.discard(self)
        if not self.ended or task is None or task.uncancel() > self._cancelling:
            return
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


async def finish_shielded(
    step: Awaitable[T],
    *,
    patience: float | None = None,
    hurry: bool = False,
    limit: float = math.inf,
) -> T:
    """Finish *step* even if the caller is cancelled; the cancellation is raised afterwards.

    Args:
        step: What to finish.
        patience: How long to wait after a cancellation until *step* is cancelled, too, in seconds;
            None waits without a limit.
        hurry: Whether the caller was cancelled before, so that *patience* begins now.
        limit: How long to wait after a cancellation in all, in seconds. A step that still goes on, because it
            does not heed its cancellation, is then left to itself, and what becomes of it is lost.
    """
    import anyio  # imported on use: it takes a tenth of the session's import time

    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    now, due, end = asyncio.get_running_loop().time, math.inf, math.inf
    with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel every await again
        while not task.done() and now() < end:
            if hurry and end == due == math.inf:
                due, end = now() + (math.inf if patience is None else patience), now() + limit
            at = min(due, end)
            try:
                await asyncio.wait([task], timeout=None if at == math.inf else max(0.0, at - now()))
            except asyncio.CancelledError as error:
                cancelled, hurry = error, True
            else:
                task.cancel()  # its time limit has passed, or it is done
                due = now() + CANCEL_AGAIN
    if not task.done():
        _left.add(task)  # asyncio itself keeps no task alive
        task.add_done_callback(_end_of_left)
        raise cancelled or asyncio.CancelledError
    if cancelled is not None:
        _end_of_left(task)
        raise cancelled
    return task.result()


_left: set[asyncio.Future[Any]] = set()


def _end_of_left(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio logs that it never was


def cancel_requests() -> int:
    """Return how often the running task was cancelled; more than before means that code swallowed one."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
