"""A storage of the ``limits`` library comes in; a quota store that counts in it comes out.

For those who run ``limits`` already. It counts on the caller's clock, not the
server's, so keep the computers' clocks together (NTP); it cannot give a slot
back; and what the service says is left stays in the process that heard it.
Where these matter, use :class:`mintlify_async.contrib.redis.RedisQuotaStore`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from attrs import evolve

try:
    from limits import RateLimitItem, RateLimitItemPerSecond
    from limits.aio.storage import Storage
    from limits.aio.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, RateLimiter
except ImportError as error:  # pragma: no cover - tested in an environment without it
    raise ImportError("mintlify_async.contrib.limits needs limits: pip install limits") from error

from mintlify_async.errors import CauseSummary, ConfigurationError, QuotaExceededError
from mintlify_async.quota import MemoryQuotaStore
from mintlify_async.windows import (
    QuotaGate,
    QuotaRemaining,
    QuotaVerdict,
    QuotaWindow,
)

if TYPE_CHECKING:
    from mintlify_async.clock import Clock

__all__ = ["LimitsQuotaStore"]

T = TypeVar("T")

AGAIN: Final = 0.05
"""Seconds until the next look where the storage cannot tell: somebody else was quicker just now."""

TIMEOUT: Final = 2.0
"""Seconds for one look, whatever the storage's own patience is (over 12 was seen)."""


class LimitsQuotaStore:
    """Counts in a storage of ``limits``: moving windows for the agent, fixed ones for the assistant.

    Args:
        storage: An asynchronous storage, such as ``limits.storage.storage_from_string("async+redis://…")``.
            Its windows are whole seconds; ours are rounded up.
        namespace: Begins the name of every key.
        timeout: The longest that one look may take, in seconds.

    Raises:
        ConfigurationError: The storage is not asynchronous, or has no moving window.
    """

    def __init__(self, storage: Storage, *, namespace: str = "mintlify", timeout: float = TIMEOUT) -> None:
        """Keep the storage; nothing is sent yet."""
        if not isinstance(storage, Storage):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError(
                "storage must be one of limits.aio.storage: its address begins with async+", field="storage"
            )
        try:
            self._exact: RateLimiter = MovingWindowRateLimiter(storage)
        except NotImplementedError:
            raise ConfigurationError("this storage has no moving window", field="storage") from None
        self._counted: RateLimiter = FixedWindowRateLimiter(storage)
        self._storage = storage
        self._namespace = namespace
        self._timeout = timeout
        self._heard = MemoryQuotaStore()
        failures = storage.base_exceptions
        self._failures: tuple[type[Exception], ...] = (
            *(failures if isinstance(failures, tuple) else (failures,)),
            OSError,
            TimeoutError,
        )

    async def take(self, gate: QuotaGate, *, ahead: int, clock: Clock) -> QuotaVerdict:
        """Take a slot in all windows of *gate*, or in none.

        Where two callers race for the last slot of several windows, the loser's
        slots in the other windows stay taken: the safe side.

        Raises:
            QuotaExceededError: The storage cannot be reached.
        """
        heard = await self._heard.take(_bare(gate), ahead=ahead, clock=clock)
        if heard.slot is None:
            return heard
        refused: QuotaVerdict | None = QuotaVerdict()
        try:
            refused = await self._bounded(self._take(gate, ahead, clock))
        finally:
            if refused is not None:  # nobody passes: what the service says is left stays as it is
                await self._heard.refund(_bare(gate), heard.slot, clock=clock)
        return refused or heard

    async def _take(self, gate: QuotaGate, ahead: int, clock: Clock) -> QuotaVerdict | None:
        """Return why there is no slot; None when one was taken."""
        if (wait := await self._blocked(gate, clock)) > 0:
            name = gate.windows[0].name if gate.windows else None
            return QuotaVerdict(wait=wait, limit=name, blocked=True)
        for window in gate.windows:
            left = await self._left(window, clock)
            if left.left <= ahead:
                return QuotaVerdict(wait=max(left.next_in, AGAIN), limit=window.name)
        for window in gate.windows:
            if not await self._limiter(window).hit(self._item(window), window.key):
                return QuotaVerdict(wait=AGAIN, limit=window.name)
        return None

    async def refund(self, gate: QuotaGate, slot: str, *, clock: Clock) -> None:
        """Do nothing to the storage: ``limits`` cannot give a slot back."""
        await self._heard.refund(_bare(gate), slot, clock=clock)

    async def block(self, gate: QuotaGate, seconds: float | None, *, clock: Clock) -> None:
        """Let nobody pass for *seconds*; the others see it in the storage."""
        await self._heard.block(_bare(gate), seconds, clock=clock)
        verdict = await self._heard.take(_bare(gate), ahead=0, clock=clock)
        with suppress(QuotaExceededError):  # an answer of the service is not lost over it
            await self._bounded(self._mark_block(gate, verdict.wait, clock))

    async def _mark_block(self, gate: QuotaGate, seconds: float, clock: Clock) -> None:
        key = self._block_key(gate)
        if await self._blocked(gate, clock) < seconds:
            await self._storage.clear(key)
            await self._storage.incr(key, max(1, math.ceil(seconds)))

    async def learn(self, gate: QuotaGate, remaining: int, reset: float, *, clock: Clock) -> None:
        """Let at most *remaining* of this process pass in the next *reset* seconds."""
        await self._heard.learn(_bare(gate), remaining, reset, clock=clock)

    async def left(self, gate: QuotaGate, *, clock: Clock | None) -> tuple[QuotaRemaining, ...]:
        """Tell what is left of each window of *gate*.

        Raises:
            QuotaExceededError: The storage cannot be reached.
        """

        async def look() -> tuple[QuotaRemaining, ...]:
            blocked = await self._blocked(gate, clock) if clock else 0.0
            told = [await self._left(window, clock) for window in gate.windows]
            return tuple(_while_blocked(one, blocked) if blocked else one for one in told)

        return await self._bounded(look())

    async def _left(self, window: QuotaWindow, clock: Clock | None) -> QuotaRemaining:
        stats = await self._limiter(window).get_window_stats(self._item(window), window.key)
        wait = max(0.0, stats.reset_time - clock.wall()) if clock else 0.0
        return QuotaRemaining(
            limit=window.name,
            amount=window.amount,
            per=window.seconds,
            left=max(0, stats.remaining),
            next_in=min(wait, window.seconds) if stats.remaining <= 0 else 0.0,
        )

    async def _blocked(self, gate: QuotaGate, clock: Clock) -> float:
        key = self._block_key(gate)
        if not await self._storage.get(key):
            return 0.0
        return max(0.0, await self._storage.get_expiry(key) - clock.wall())

    def _block_key(self, gate: QuotaGate) -> str:
        return f"{self._namespace}/block/{gate.key}"

    def _limiter(self, window: QuotaWindow) -> RateLimiter:
        return self._exact if window.exact else self._counted

    def _item(self, window: QuotaWindow) -> RateLimitItem:
        return RateLimitItemPerSecond(window.amount, math.ceil(window.seconds), namespace=self._namespace)

    async def _bounded(self, step: Awaitable[T]) -> T:
        """Bound the time of *step*, and turn the storage's failures into a refusal."""
        try:
            with anyio.fail_after(self._timeout):
                return await step
        except self._failures as error:
            reason = type(error).__name__
        refusal = QuotaExceededError(f"the quota store is away ({reason}); nothing was sent", retry_after=1.0)
        refusal.__cause__ = CauseSummary(reason)
        raise refusal


def _while_blocked(told: QuotaRemaining, seconds: float) -> QuotaRemaining:
    return evolve(told, left=0, next_in=max(told.next_in, seconds), blocked=seconds)


def _bare(gate: QuotaGate) -> QuotaGate:
    """Return *gate* without its windows: what the service says is kept in this process."""
    return QuotaGate(key=gate.key, tag=gate.tag, windows=())
