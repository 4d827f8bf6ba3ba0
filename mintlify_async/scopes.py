"""A block of one task, and whatever may end it from outside, go in; ``TimeoutError`` comes out when it does.

What ``asyncio.timeout`` is for, at a third of its cost, and a block may also be
ended by another task. There is such a block in every request.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

from .clock import Clock, Timer

__all__ = ["Ended", "Scope"]


class Ended(TimeoutError):  # noqa: N818 - never leaves the package
    """Leaves a block that :meth:`Scope.end` ended."""


class Scope:
    """Blocks that :meth:`end` ends, one after the other; each may have a moment that ends it, too.

    Never held across a ``yield``, nor entered in itself::

        with Scope(clock, deadline):
            await something  # TimeoutError leaves the block when the deadline comes
    """

    __slots__ = ("_at", "_cancelling", "_clock", "_stopped", "_task", "_timer", "ended")

    def __init__(self, clock: Clock | None = None, at: float | None = None) -> None:
        """Keep when *clock* will end the next block; None is never."""
        self._clock = clock
        self._at = at
        self._task: asyncio.Task[object] | None = None
        self._timer: Timer | None = None
        self._cancelling = 0
        self._stopped = self.ended = False

    def until(self, clock: Clock, at: float | None) -> Self:
        """Return itself; *clock* will end the next block at that moment."""
        self._clock, self._at = clock, at
        return self

    def __enter__(self) -> Self:
        """Begin, in the running task."""
        self._task = task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self.ended = False
        clock, at, self._clock = self._clock, self._at, None
        if clock is not None and at is not None and at < math.inf:
            self._timer = clock.call_at(at, self)
        if self._stopped:  # between two blocks
            task.get_loop().call_soon(self)
        return self

    def end(self) -> None:
        """End the block at its next chance, and any that follows; from any task of its loop."""
        if self._task is not None:
            # Later, not now: it may be over by then, and a cancellation would hit what comes after it.
            self._task.get_loop().call_soon(self)
        self._stopped = True

    def __call__(self) -> None:
        """End the block now.

        Its timer calls this: a bound method would be one more object of each request.
        """
        if self._task is not None and not self.ended:
            self.ended = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ``TimeoutError`` when its moment came, :class:`Ended` when it was ended.

        Neither when somebody cancelled the task, too.
        """
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.ended or task is None or task.uncancel() > self._cancelling:
            return
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            if self._stopped:
                raise Ended from error
            raise TimeoutError from error
