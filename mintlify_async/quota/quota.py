"""Quota: counts calls before they are sent, and refuses or delays those beyond a limit.

The interface limits how often each operation may be called. Counting here keeps a worker from flooding the
service, and from learning about a limit by being refused. The rules:

* Every attempt takes a slot, repeated attempts too. A slot is given back only when nothing was sent.
* The service may count in fixed or in sliding windows. So no window may exceed a limit, wherever it starts.
  For this, the store has the time of every slot.
* A 429 from the service stops all calls that share the limit. ``block_seconds`` in ``gate`` says for how
  long.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final, Literal

import anyio

from ..checks import check_store
from ..errors import CauseSummary, ConfigurationError, QuotaExceededError, StateError
from ..storage import MemoryStore
from ..storage.store import Store, new_version
from .gate import (
    DAY,
    HOUR,
    LONGEST_BLOCK,
    MONTH,
    CountedOperation,
    Gate,
    Limit,
    QuotaRemaining,
    QuotaScope,
    block_seconds,
    gate_of,
)
from .line import Lines

Mode = Literal["raise", "wait"]
OnStoreError = Literal["raise", "allow"]

log = logging.getLogger("mintlify_async")


STORE_PAUSE: Final = 1.0
"""Seconds for which a store that failed is not asked again."""

REFUND_SECONDS: Final = 0.25
"""How long a cancelled call tries to give back a slot that it may have taken, in seconds."""

WAIT_MARGIN: Final = 0.01
LONGEST_WAIT_MARGIN: Final = 1.0
"""A waiting call comes later than its slot by this part of the window, at most this many seconds: slots are
counted when they are taken and the service counts when requests arrive, so two waves need some distance."""

SHORTEST_SLEEP: Final = 0.005
RECHECK_SECONDS: Final = 30.0
"""Seconds after which a call with a long wait asks the store again: another process may have given a slot
back, or have ended a block."""


class Lease:
    """The slot of one attempt.

    Attributes:
        waited: How long the call waited for it, in seconds.
    """

    def __init__(self, quota: Quota, gate: Gate, slot_id: str | None, *, waited: float = 0.0) -> None:
        """Keep the fields that identify the slot. None stands for a call that got through without one."""
        self._quota = quota
        self._gate = gate
        self._slot_id = slot_id
        self.waited = waited

    def __repr__(self) -> str:
        """Show whether the slot is still taken."""
        return f"<Lease {'taken' if self._slot_id else 'refunded'}>"

    async def refund(self) -> None:
        """Give the slot back, once. Only for an attempt of which nothing was sent."""
        slot_id, self._slot_id = self._slot_id, None
        if slot_id is not None:
            await self._quota.refund(self._gate, slot_id)


class Quota:
    """Keeps the calls of all sessions that share it within the service's limits.

    Pass it to one session or several::

        session = MintlifySession(quota=Quota(mode="wait"))

    A call without a free slot raises :class:`~mintlify_async.errors.QuotaExceededError`, and nothing is sent.

    Start worker processes with the start method ``spawn``, or before the first call: see
    :class:`~mintlify_async.MemoryStore`.

    Each limit is a number of uses in the service's window, a :class:`Limit` with another window, or None
    for no limit.

    Args:
        create_job: Jobs created for a project in any hour.
        send_message: Follow-ups sent for a project in any hour.
        ask_per_key: Questions with one assistant key in 31 days.
        ask_per_organization: Questions to one domain in an hour.
        ask_per_address: Questions from one IP address in a day.
        together: Whether creates and follow-ups share one count, the smaller of their two limits.
        address: The IP address of this process. Set it if processes with the same store call from several IP
            addresses. By default, all of them count as one.
        mode: ``"raise"`` refuses immediately; ``"wait"`` waits for a slot as long as the call's deadline
            allows.
        store: Where slots are counted. The default is the memory of this process. The time of the store
            counts.
        on_store_error: The result of a call if the store cannot be reached: ``"raise"`` refuses it,
            ``"allow"`` sends it without counting.

    Raises:
        ConfigurationError: A limit is below 1, or *mode*, *store* or *on_store_error* is invalid.
    """

    def __init__(
        self,
        *,
        create_job: int | Limit | None = 100,
        send_message: int | Limit | None = 100,
        ask_per_key: int | Limit | None = 10_000,
        ask_per_organization: int | Limit | None = 10_000,
        ask_per_address: int | Limit | None = 10_000,
        together: bool = False,
        address: str = "",
        mode: Mode = "raise",
        store: Store | None = None,
        on_store_error: OnStoreError = "raise",
    ) -> None:
        """Check the arguments. The store is not asked yet."""
        if mode not in ("raise", "wait"):
            raise ConfigurationError(f"mode must be 'raise' or 'wait', not {mode!r}", field="mode")
        if on_store_error not in ("raise", "allow"):
            raise ConfigurationError(
                f"on_store_error must be 'raise' or 'allow', not {on_store_error!r}", field="on_store_error"
            )
        check_store(store, "store")
        limits = {
            "create_job": _limit(create_job, HOUR, "create_job"),
            "send_message": _limit(send_message, HOUR, "send_message"),
            "ask_per_key": _limit(ask_per_key, MONTH, "ask_per_key"),
            "ask_per_organization": _limit(ask_per_organization, HOUR, "ask_per_organization"),
            "ask_per_address": _limit(ask_per_address, DAY, "ask_per_address"),
        }
        if together:
            agent = [limit for limit in (limits["create_job"], limits["send_message"]) if limit]
            limits["agent"] = min(agent, key=lambda limit: limit.amount / limit.per, default=None)
        self.mode: Mode = mode
        self.limits = limits
        self.store: Store = store if store is not None else MemoryStore()
        self._on_store_error = on_store_error
        self._address = address
        self._lines = Lines()
        self._failure: StateError | None = None
        self._asks_again_at = -math.inf

    @property
    def waiting(self) -> int:
        """How many calls of this process wait for a slot, on all event loops."""
        return self._lines.calls

    def __repr__(self) -> str:
        """Show the limits, the mode and the store."""
        limits = ", ".join(
            f"{name}={limit.amount}/{limit.per:g}s" for name, limit in self.limits.items() if limit
        )
        return f"Quota({limits}, mode={self.mode!r}, store={self.store!r})"

    async def acquire(
        self, operation: CountedOperation, scope: QuotaScope, *, deadline: float = math.inf
    ) -> Lease:
        """Take a slot for one attempt.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: The project, or the site and key, that the attempt counts for.
            deadline: When to give up waiting, by the running loop's time. A slot that would be free only
                later is not waited for at all.

        Raises:
            QuotaExceededError: No slot is free, or in the mode ``"wait"`` none before *deadline*; or the
                store cannot be reached.
        """
        gate = gate_of(operation, scope, self.limits, address=self._address)
        if self.mode == "wait":
            return await self._wait(gate, deadline)
        lease = await self._try(gate)
        if isinstance(lease, QuotaExceededError):
            raise lease
        return lease

    async def refund(self, gate: Gate, slot: str) -> None:
        """Give *slot* back for a call that waits. A store that fails does not make this raise."""
        try:
            await self.store.refund(gate.windows, slot=slot)
        except Exception as error:  # the slot stays taken, which at most sends too little
            log.warning("a slot of the quota could not be given back: %s", error)
        self._lines.wake(gate.name)

    async def block(
        self, operation: CountedOperation, scope: QuotaScope, retry_after: float | None = None
    ) -> None:
        """Stop all calls that share the limit of *operation*, after a 429 of the service.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: The project, or the site and key, that the attempt counted for.
            retry_after: The pause in seconds, an hour at most. None is 60 s, and it doubles while refusals
                follow.

        Raises:
            StateError: The store cannot be reached.
        """
        gate = gate_of(operation, scope, self.limits, address=self._address)
        is_usable = retry_after is not None and 0 < retry_after < math.inf
        stated = min(retry_after or 0.0, LONGEST_BLOCK) if is_usable else None
        while True:
            snapshot = await self.store.read([gate.block_key, gate.pause_key])
            length = block_seconds(gate, snapshot, stated)
            if length is None:
                return
            record, version = snapshot.records.get(gate.block_key), new_version()
            expected = {gate.block_key: None if record is None else record.version}
            text = b"%.3f" % length
            if await self.store.write(
                {gate.block_key: text}, expected=expected, version=version, keep=length
            ):
                break
        if stated is None:
            await self.store.write({gate.pause_key: text}, expected={}, version=version, keep=2 * length)

    async def unblock(self, operation: CountedOperation, scope: QuotaScope) -> None:
        """End the block of *operation*. Calls of this process that wait ask again immediately.

        The slots that were counted here stay taken. Other processes ask within 30 s.

        Raises:
            StateError: The store cannot be reached.
        """
        gate = gate_of(operation, scope, self.limits, address=self._address)
        await self.store.write(
            {gate.block_key: None, gate.pause_key: None}, expected={}, version=new_version()
        )
        self._lines.wake(gate.name)

    async def left(self, operation: CountedOperation, scope: QuotaScope) -> tuple[QuotaRemaining, ...]:
        """Return the free slots of each limit that counts *operation*.

        Raises:
            StateError: The store cannot be reached.
        """
        gate = gate_of(operation, scope, self.limits, address=self._address)
        return gate.remaining(await self.store.take(gate.windows, slot=None, block=gate.block_key))

    async def _wait(self, gate: Gate, deadline: float) -> Lease:
        time = asyncio.get_running_loop().time
        start = time()
        with self._lines.join(gate.name) as line:
            await line.enter(deadline)
            try:
                while True:
                    line.expect_changes()
                    lease = await self._try(gate)
                    if isinstance(lease, Lease):
                        lease.waited = time() - start
                        return lease
                    line.refusal = lease
                    wait = max(_wait(gate, lease), SHORTEST_SLEEP)
                    line.opens_at = time() + wait
                    if line.opens_at >= deadline:
                        raise lease
                    await line.sleep(time() + (wait if wait < 2 * RECHECK_SECONDS else RECHECK_SECONDS))
            finally:
                line.leave()

    async def _try(self, gate: Gate) -> Lease | QuotaExceededError:
        """Return a slot, or the error for a call that does not wait for one."""
        time = asyncio.get_running_loop().time
        if self._failure is not None and time() < self._asks_again_at:
            return self._without_store(gate, self._failure)
        slot = new_version()
        try:
            result = await self.store.take(gate.windows, slot=slot, block=gate.block_key)
        except StateError as error:
            if self._failure is None:
                then = "not counted" if self._on_store_error == "allow" else "refused"
                log.warning("the quota's store cannot be used, calls are %s until it can: %s", then, error)
            self._failure, self._asks_again_at = error, time() + STORE_PAUSE
            return self._without_store(gate, error)
        except asyncio.CancelledError:  # the slot may have been taken
            with anyio.move_on_after(REFUND_SECONDS, shield=True):
                await self.refund(gate, slot)
            raise
        if self._failure is not None:
            self._failure = None
            log.warning("the quota's store can be used again")
        return Lease(self, gate, slot) if result.taken else gate.refusal(result)

    def _without_store(self, gate: Gate, failure: StateError) -> Lease | QuotaExceededError:
        if self._on_store_error == "allow":
            return Lease(self, gate, None)
        error = QuotaExceededError(
            f"the quota's store cannot be used, so nothing was sent: {failure}", retry_after=STORE_PAUSE
        )
        error.__cause__ = CauseSummary(str(failure))
        return error


def _wait(gate: Gate, refusal: QuotaExceededError) -> float:
    """Return the seconds until a waiting call that was refused asks again."""
    margin = min(LONGEST_WAIT_MARGIN, WAIT_MARGIN * gate.shortest)
    # The end of a block is the service's own figure, and needs no margin.
    return (refusal.retry_after or 0.0) + (margin if refusal.limit is not None else 0.0)


def _limit(value: int | Limit | None, per: float, name: str) -> Limit | None:
    if value is None or isinstance(value, Limit):
        return value
    try:
        return Limit(value, per=per)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}", field=name) from None
