"""A quota store in memory."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from ..runtime.closing import NothingToClose
from .windows import (
    BucketCounter,
    QuotaGate,
    QuotaRemaining,
    QuotaVerdict,
    QuotaWindow,
    ServerLimits,
    SlidingLog,
)

if TYPE_CHECKING:
    from ..runtime.clock import Clock

SWEEP_AT: Final = 256
"""Entries from which expired ones are dropped now and then, so that ten thousand projects do not pile up."""


class MemoryQuotaStore(NothingToClose):
    """Counts slots within this process, and forgets them when the process ends.

    One store may serve several sessions, event loops and threads. No method suspends.
    """

    def __init__(self) -> None:
        """Start with every slot free."""
        self._logs: dict[str, tuple[QuotaWindow, SlidingLog | BucketCounter]] = {}
        self._server: dict[str, ServerLimits] = {}
        self._sweep_at = SWEEP_AT
        self._seen = 0.0
        self._lock = Lock()

    def __repr__(self) -> str:
        """Show how many windows are counted."""
        return f"MemoryQuotaStore(<{len(self._logs)} windows>)"

    async def take(self, gate: QuotaGate, *, ahead: int, clock: Clock) -> QuotaVerdict:
        """Take a slot in all windows of *gate*, or in none."""
        with self._lock:
            now = self._now(clock)
            self._drop_expired(now)
            if (wait := self._server_limits(gate).opens_in(now, ahead)) > 0:
                name = gate.windows[0].name if gate.windows else None
                return QuotaVerdict(wait=wait, limit=name, blocked=True)
            waits = [(self._log(window).opens_in(window, now, ahead), window.name) for window in gate.windows]
            wait, name = max(waits, default=(0.0, None))
            if wait > 0:
                return QuotaVerdict(wait=wait, limit=name)
            self._use(gate, now)
            return QuotaVerdict(slot=repr(now))

    async def refund(self, gate: QuotaGate, slot: str, *, clock: Clock) -> None:
        """Give *slot* back, because nothing was sent."""
        with self._lock:
            for window in gate.windows:
                self._log(window).refund(window, float(slot))
            if self._now(clock) < self._server_limits(gate).allowance_until:
                self._server_limits(gate).allowance += 1

    async def block(self, gate: QuotaGate, seconds: float | None, *, clock: Clock) -> None:
        """Refuse every call for *seconds*; None is 60 s, doubling."""
        with self._lock:
            self._server.setdefault(gate.key, ServerLimits()).block(seconds, self._now(clock))

    async def unblock(self, gate: QuotaGate, *, clock: Clock) -> None:
        """Forget what the service reported."""
        with self._lock:
            self._server.pop(gate.key, None)

    async def learn(self, gate: QuotaGate, remaining: int, reset: float, *, clock: Clock) -> None:
        """Allow at most *remaining* calls in the next *reset* seconds, as the service reported."""
        with self._lock:
            self._server.setdefault(gate.key, ServerLimits()).learn(remaining, reset, self._now(clock))

    async def left(self, gate: QuotaGate, *, clock: Clock | None) -> tuple[QuotaRemaining, ...]:
        """Return what is left of each window of *gate*."""
        with self._lock:
            now = self._seen if clock is None else self._now(clock)
            return tuple(self._remaining(window, self._server_limits(gate), now) for window in gate.windows)

    def _now(self, clock: Clock) -> float:
        self._seen = clock.now()
        return self._seen

    def _log(self, window: QuotaWindow) -> SlidingLog | BucketCounter:
        kept = self._logs.get(window.key)
        if kept is None:
            kept = (window, SlidingLog() if window.exact else BucketCounter())
            self._logs[window.key] = kept
        return kept[1]

    def _server_limits(self, gate: QuotaGate) -> ServerLimits:
        return self._server.get(gate.key) or ServerLimits()

    def _drop_expired(self, now: float) -> None:
        if len(self._logs) + len(self._server) < self._sweep_at:
            return
        for window, log in self._logs.values():
            log.forget(window, now)
        self._logs = {key: kept for key, kept in self._logs.items() if len(kept[1])}
        self._server = {key: kept for key, kept in self._server.items() if not kept.idle(now)}
        self._sweep_at = max(SWEEP_AT, 2 * (len(self._logs) + len(self._server)))

    def _use(self, gate: QuotaGate, now: float) -> None:
        for window in gate.windows:
            self._log(window).take(window, now)
        self._server_limits(gate).allowance -= 1

    def _remaining(self, window: QuotaWindow, server: ServerLimits, now: float) -> QuotaRemaining:
        log = self._log(window)
        opens_in = max(log.opens_in(window, now, 0), server.opens_in(now, 0))
        left = window.amount - len(log)
        if now < server.allowance_until:
            left = min(left, server.allowance)
        return QuotaRemaining(
            limit=window.name,
            amount=window.amount,
            per=window.seconds,
            left=0 if opens_in > 0 else max(left, 0),
            next_in=opens_in,
            blocked=max(0.0, server.blocked_until - now),
        )

    def note(self, gate: QuotaGate, *, clock: Clock) -> str:
        """Count a slot that another store granted, without refusing, and return its identifier."""
        with self._lock:
            now = self._now(clock)
            self._use(gate, now)
            return repr(now)

    def taken(self, window: QuotaWindow, *, clock: Clock) -> list[float]:
        """Return when each slot was taken that *window* still counts; [] for a counted window."""
        with self._lock:
            log = self._log(window)
            log.forget(window, self._now(clock))
            return log.times() if isinstance(log, SlidingLog) else []
