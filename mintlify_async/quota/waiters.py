"""Calls of this process that wait for a slot, served in the order in which they arrived.

Only the first call in a line asks the store. The line keeps the times at which
slots are expected, one per waiting call and sorted, apart from the calls: a call
that gives up takes the latest time with it, and a slot that is given back adds
the present. So no time is ever later than the slot that it stands for. One that
is too early only costs a question to the store.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import OrderedDict
from threading import Lock
from typing import Final

from ..runtime.wakeup import Wakeup

SHORTEST_SLEEP: Final = 0.001
"""Shortest sleep, in seconds: one that rounding made shorter than the clock's steps would loop for ever."""


class WaitQueue:
    """The calls that wait at one gate, on any event loop and thread.

    Attributes:
        changes: Counts what may bring a slot forward. An answer of the store that was asked for before
            a change says too late a time.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._calls: OrderedDict[Wakeup, None] = OrderedDict()
        self._times: list[float] = []
        self._lock = Lock()
        self._asking = False
        self.changes = 0

    def ahead(self) -> int:
        """Return for how many waiting calls a newcomer leaves slots."""
        # Not for the one that is asking at this moment: the store serves it by itself.
        return max(0, len(self._calls) - self._asking)

    def join(self, at: float, now: float, changes: int) -> Wakeup:
        """Add a call at the end; the slot of the last place is expected at *at*, or *now* after changes."""
        call = Wakeup()
        with self._lock:
            self._calls[call] = None
            insort(self._times, at if self.changes == changes else now)
        return call

    def leave(self, call: Wakeup, *, served: bool) -> None:
        """Remove *call*, which was *served* with a slot or gave up."""
        with self._lock:
            was_first = self._first() is call
            del self._calls[call]
            self._times.pop(0 if served else -1)
            self.changes += 1
            if was_first:
                self._wake_first()

    def slot_freed(self, now: float) -> None:
        """Note that a slot is free earlier than expected."""
        with self._lock:
            self.changes += 1
            if self._times:
                insort(self._times, now)
                self._times.pop()
                self._wake_first()

    def all_freed(self, now: float) -> None:
        """Note that nothing is known any more of when slots are free."""
        with self._lock:
            self.changes += 1
            self._times = [now] * len(self._times)
            self._wake_first()

    def turn_of(self, call: Wakeup) -> float | None:
        """Return when *call* asks the store; None while it is not the first."""
        with self._lock:
            return self._times[0] if self._first() is call else None

    def ask(self) -> int:
        """Note that the first call asks the store; return the number of changes so far."""
        self._asking = True
        return self.changes

    def answered(self, at: float, now: float, changes: int) -> None:
        """Note that the first call was refused: the next slot is expected at *at*."""
        with self._lock:
            if self.changes != changes:
                self._times[0] = now
            else:
                earlier = max(1, bisect(self._times, at))
                self._times[:earlier] = [at] * earlier

    def stop_asking(self) -> None:
        """Note that the store has answered."""
        self._asking = False

    def _first(self) -> Wakeup | None:
        return next(iter(self._calls), None)

    def _wake_first(self) -> None:
        if (first := self._first()) is not None:
            first.set()
