"""Calls that wait for a slot of a quota, served in the order in which they arrived.

Each call asks the store for the slot that matches its place in the queue.
Otherwise every waiting call would ask for every slot that becomes free.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from .store import QuotaStore
from .windows import QuotaGate, QuotaVerdict

if TYPE_CHECKING:
    from ..runtime.clock import Clock

__all__ = ["SHORTEST_SLEEP", "QueuedCall", "WaitQueue"]

SHORTEST_SLEEP: Final = 0.001
"""Shortest sleep, in seconds: one that rounding made shorter than the clock's steps would loop for ever."""

SLEEP_PARTS: Final = 8
"""A wait is slept in eighths of what is left, to notice slots that were given up: some 60 sleeps per hour."""


class QueuedCall:
    """One waiting call of this process."""

    __slots__ = ("asking", "number")

    def __init__(self, number: int) -> None:
        """Keep its number; numbers grow in the order of arrival."""
        self.number = number
        self.asking = False


class WaitQueue:
    """The calls of this process that wait at one gate.

    When a slot is given up, only the first call in the queue asks again early.
    """

    __slots__ = ("_calls", "_last_number", "_slots_given_up")

    def __init__(self) -> None:
        """Start empty."""
        self._calls: dict[int, QueuedCall] = {}
        self._last_number = 0
        self._slots_given_up = 0

    def __len__(self) -> int:
        """Return how many calls wait."""
        return len(self._calls)

    def join(self) -> QueuedCall:
        """Add a call at the end."""
        self._last_number += 1
        call = self._calls[self._last_number] = QueuedCall(self._last_number)
        return call

    def leave(self, call: QueuedCall, *, served: bool) -> None:
        """Remove *call*, which was *served* with a slot or gave up."""
        del self._calls[call.number]
        if not served:
            self.give_up_slot()

    def give_up_slot(self) -> None:
        """Note that a slot is free earlier than the waiting calls expect."""
        self._slots_given_up += 1

    async def take(self, call: QueuedCall, store: QuotaStore, gate: QuotaGate, clock: Clock) -> QuotaVerdict:
        """Ask *store* for the slot that matches the place of *call*."""
        first = self._is_first(call)
        call.asking = True
        try:
            verdict = await store.take(gate, ahead=self._ahead_of(call), clock=clock)
        finally:
            call.asking = False
        if first:
            self._slots_given_up = max(0, self._slots_given_up - 1) if verdict.slot is not None else 0
        return verdict

    async def sleep(self, call: QueuedCall, until: float, margin: float, clock: Clock) -> None:
        """Sleep until *until*; the first call in the queue returns early when a slot was given up."""
        while (rest := until - clock.now()) > 0:
            await clock.sleep(min(rest, max(rest / SLEEP_PARTS, margin, SHORTEST_SLEEP)))
            if self._slots_given_up and self._is_first(call):
                return

    def _ahead_of(self, call: QueuedCall) -> int:
        # A call that is asking at this moment is not counted: the store gives it its slot by itself.
        numbers = list(self._calls)
        before = numbers[: bisect_left(numbers, call.number)]
        return sum(not self._calls[number].asking for number in before)

    def _is_first(self, call: QueuedCall) -> bool:
        return next(iter(self._calls)) == call.number
