"""A block of one task, and whatever may end it from outside, go in; ``TimeoutError`` comes out when it does.

What ``asyncio.timeout`` is for, at a third of its cost, and a block may also be
ended by another task. There is one such block, or two, in every request.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

from .clock import Clock, Timer

__all__ = ["Scope"]


class Scope:
    """A block that :meth:`end` ends, and a moment that may be given.

    Never entered twice, and never held across a ``yield``::

        with Scope(clock, deadline):
            await something  # TimeoutError leaves the block when the deadline comes

    Args:
        clock: What tells the time; without one there is no moment.
        at: When it ends; None and infinity are never.
        early: When it ends unless :attr:`begun` was set by then. One timer stands for both moments: the
            later one is waited for when the first has come.

    Attributes:
        begun: Set by whoever knows that what the earlier moment limits was done in time.
        ended: Whether it was ended.
    """

    __slots__ = ("_at", "_cancelling", "_clock", "_early", "_task", "_timer", "begun", "ended")

    def __init__(
        self, clock: Clock | None = None, at: float | None = None, early: float | None = None
    ) -> None:
        """Wait to be entered."""
        self._clock = clock
        self._at = at
        self._early = early
        self._task: asyncio.Task[object] | None = None
        self._timer: Timer | None = None
        self._cancelling = 0
        self.begun = self.ended = False

    def __enter__(self) -> Self:
        """Begin, in the running task."""
        self._task = task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        if self._clock is not None:
            if self._early is not None and self._at is not None and self._early >= self._at:
                self._early = None
            self._arm(self._clock, self._at if self._early is None else self._early)
        return self

    def _arm(self, clock: Clock, at: float | None) -> None:
        if at is not None and at < math.inf:
            self._timer = clock.call_at(at, self)

    def end(self) -> None:
        """End the block at its next chance, from any task of its loop; harmless when it is over."""
        if self._task is not None:
            # Later, not now: it may be over by then, and a cancellation would hit what comes after it.
            self._task.get_loop().call_soon(self._end_now)

    def __call__(self) -> None:
        """Its moment has come: end the block, or wait for the later moment.

        Its timer calls this: a bound method would be one more object of each request.
        """
        if self._task is None:  # the block was over at that very moment
            return
        if self._early is not None and self.begun:
            assert self._clock is not None
            self._early = None
            self._arm(self._clock, self._at)
        else:
            self._end_now()

    def _end_now(self) -> None:
        if self._task is not None and not self.ended:
            self.ended = True
            self._task.cancel()

    @property
    def ended_early(self) -> bool:
        """Whether its earlier moment ended it."""
        return self.ended and self._early is not None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ``TimeoutError`` when it was ended, unless somebody cancelled the task, too."""
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended or task is None or task.uncancel() > self._cancelling:
            return
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error
