"""The protocol of quota stores: where slots are counted, in this process or shared with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .windows import QuotaGate, QuotaRemaining, QuotaVerdict

if TYPE_CHECKING:
    from ..runtime.clock import Clock


@runtime_checkable
class QuotaStore(Protocol):
    """Where slots are counted. All quotas that use one store share its counts.

    ``take``, ``left`` and ``unblock`` may raise :class:`~mintlify_async.errors.QuotaExceededError`
    when the store cannot be reached. The other three methods never raise: they are
    called after an answer of the service, which an error would lose.
    """

    async def take(self, gate: QuotaGate, *, ahead: int, clock: Clock) -> QuotaVerdict:
        """Take a slot in all windows of *gate*, or in none.

        Args:
            gate: The limits that count the attempt.
            ahead: How many calls of this process are waiting already. Their slots are left
                for them; the wait returned is the one for the slot after theirs.
            clock: The session's clock, for stores without a clock of their own.
        """
        ...

    async def refund(self, gate: QuotaGate, slot: str, *, clock: Clock) -> None:
        """Give *slot* back, because nothing was sent."""

    async def block(self, gate: QuotaGate, seconds: float | None, *, clock: Clock) -> None:
        """Refuse every call for *seconds*; None lets the store choose: 60 s, doubling."""

    async def unblock(self, gate: QuotaGate, *, clock: Clock) -> None:
        """Forget what ``block`` and ``learn`` were told about *gate*."""

    async def learn(self, gate: QuotaGate, remaining: int, reset: float, *, clock: Clock) -> None:
        """Allow at most *remaining* calls in the next *reset* seconds, as the service reported."""

    async def left(self, gate: QuotaGate, *, clock: Clock | None) -> tuple[QuotaRemaining, ...]:
        """Return what is left of each window of *gate*; *clock* is None before the first ``take``."""
        ...
