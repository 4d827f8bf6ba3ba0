"""Quota: counts calls before they are sent, and refuses or delays calls beyond a limit.

The interface limits the calls of each operation. Because a worker counts its own calls, it does not flood
the service, and it stops before the service refuses. The rules:

* Every attempt takes a slot, also a repeated attempt. A slot is given back only if nothing was sent.
* The service may count in fixed or in sliding windows. So no window may exceed a limit, wherever it starts.
  For this, the store has the time of every slot.
* A 429 of the service stops all calls that share the limit, for the time from ``block_seconds``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AbstractContextManager
from typing import Final, Literal, Self

from ..argument_checks import ANONYMOUS, check_fp, check_seconds, check_store, check_text
from ..errors import CauseSummary, ConfigurationError, QuotaExceededError, StateError, printable
from ..storage import MemoryStore
from ..storage.store import Store, new_version
from ..wrong_names import helpful
from .counted_limits import (
    LONGEST_BLOCK,
    USER_LIMIT,
    USUAL_WINDOWS,
    CountedOperation,
    Gate,
    Limit,
    QuotaRemaining,
    QuotaScope,
    block_seconds,
    gate_of,
)
from .line import Line, Lines

Mode = Literal["raise", "wait"]
OnStoreError = Literal["raise", "allow"]

log = logging.getLogger("mintlify_async")


STORE_PAUSE: Final = 1.0
"""Seconds for which a store is not asked again after an error."""

AWAY_SECONDS: Final = 60.0
"""Maximum time for which a call waits for an unreachable store, in seconds."""

WAIT_MARGIN: Final = 0.01
LONGEST_WAIT_MARGIN: Final = 1.0
"""A waiting call is sent some time after its slot becomes free: a fraction of the window, at most this many
seconds. The quota counts a call when it takes the slot, but the service counts the call when the request
arrives. So the calls of two windows need some distance."""

SHORTEST_SLEEP: Final = 0.005
LONGEST_SLEEP: Final = 30.0
"""A waiting call asks the store again after at most this many seconds, because another process may have
returned a slot or ended a block."""


class Lease:
    """The slot of one attempt. It has a name before it is taken, so it can always be returned.

    Attributes:
        waited: The time for which the call waited for the slot, in seconds.
        may_be_taken: Whether the slot is taken, or the store may have taken it.
    """

    def __init__(self, quota: Quota, gate: Gate) -> None:
        """Store the arguments. No slot is taken yet."""
        self._quota = quota
        self._gate = gate
        self._slot = new_version()
        self.may_be_taken = False
        self.waited = 0.0

    def __repr__(self) -> str:
        """Show whether the slot was, or may have been, taken."""
        return f"<Lease {'taken' if self.may_be_taken else 'free'}>"

    async def take(
        self, *, deadline: float = math.inf, limited_by: str = "the deadline", waited: float = 0.0
    ) -> Self:
        """Take the slot. In the mode ``"wait"``, wait until a slot is free.

        Args:
            deadline: When to stop waiting, by the running loop's time. If no slot becomes free before it, the
                call does not wait.
            limited_by: The name of the deadline's source, for the error.
            waited: The time for which the call has waited before, in seconds. ``max_wait`` limits the sum.

        Raises:
            QuotaExceededError: No slot is free, or, in the mode ``"wait"``, none before *deadline*. Or the
                store cannot be reached.
        """
        if self._quota.mode == "wait":
            await self._wait(deadline, limited_by, waited)
        elif (refused := await self._try()) is not None:
            raise refused
        return self

    async def refund(self) -> None:
        """Give the slot back if it was, or may have been, taken. Only for an attempt that sent nothing.

        Raises:
            StateError: The store cannot be reached. The slot stays taken, so too few calls are allowed.
        """
        if self.may_be_taken:
            await self._quota.refund(self._gate, self._slot)
            self.may_be_taken = False

    async def _wait(self, deadline: float, limited_by: str, waited: float) -> None:
        time = asyncio.get_running_loop().time
        start = time()
        patience_ends = start + self._quota.max_wait - waited
        if patience_ends < deadline:
            deadline, limited_by = patience_ends, "max_wait= of the quota"
        if self._gate.user_line is None:
            await self._wait_in_line(deadline, limited_by)
        else:
            await self._wait_for_share(self._gate.user_line, deadline, limited_by)
        self.waited = time() - start

    async def _wait_for_share(self, user_line: str, deadline: float, limited_by: str) -> None:
        """Wait in the line of one user. With a free share, wait in the line of all calls.

        So a user whose share is used up does not delay other users.
        """
        with self._quota.user_line(user_line) as line:
            await _enter(line, deadline, limited_by)
            try:
                while True:
                    line.expect_changes()
                    refusal = await self._wait_in_line(deadline, limited_by)
                    if refusal is None:
                        return
                    await self._sleep(line, refusal, deadline, limited_by)
            finally:
                line.leave()

    async def _wait_in_line(self, deadline: float, limited_by: str) -> QuotaExceededError | None:
        """Wait in the line of all calls. Return None with a slot, or the refusal of the user's share."""
        time, away_since = asyncio.get_running_loop().time, math.inf
        with self._quota.line(self._gate) as line:
            await _enter(line, deadline, limited_by)
            try:
                while True:
                    line.expect_changes()
                    refusal = await self._try()
                    if refusal is None or refusal.limit == USER_LIMIT:
                        return refusal
                    away_since = min(away_since, time()) if self._quota.is_away else math.inf
                    if time() - away_since > AWAY_SECONDS:
                        raise refusal
                    await self._sleep(line, refusal, deadline, limited_by)
            finally:
                line.leave()

    async def _sleep(self, line: Line, refusal: QuotaExceededError, deadline: float, limited_by: str) -> None:
        """Sleep as the first call of *line*, until the call should ask again."""
        time = asyncio.get_running_loop().time
        line.refusal = refusal
        wait = max(_wait(self._gate, refusal), SHORTEST_SLEEP)
        line.opens_at = time() + wait
        if line.opens_at >= deadline:
            raise _limited(refusal, limited_by) from refusal.__cause__
        # If the call asked within the margin, it would take the slot too early.
        is_last = wait <= LONGEST_SLEEP
        await line.sleep(time() + (wait if is_last else LONGEST_SLEEP - LONGEST_WAIT_MARGIN))

    async def _try(self) -> QuotaExceededError | None:
        """Take the slot. Return None, or the error for a call that does not wait."""
        self.may_be_taken = True  # even if this call is cancelled
        result = await self._quota.take(self._gate, self._slot)
        self.may_be_taken = result is True
        return result if isinstance(result, QuotaExceededError) else None


@helpful
class Quota:
    """Keeps the calls of all sessions that share this quota within the service's limits.

    Pass it to one or more sessions::

        session = MintlifySession(quota=Quota(mode="wait"))

    A call without a free slot raises :class:`~mintlify_async.errors.QuotaExceededError`, and nothing is sent.

    Start worker processes with the start method ``spawn``, or before the first call: see
    :class:`~mintlify_async.MemoryStore`.

    Each limit is a number of uses in the service's window, a :class:`Limit` with another window, or None for
    no limit.

    Args:
        create_job: Jobs created for a project in any hour.
        send_message: Follow-ups sent for a project in any hour.
        ask_per_key: Questions with one assistant key in 31 days.
        ask_per_organization: Questions to one domain in an hour.
        ask_per_address: Questions from one IP address of your servers in a day.
        ask_per_user: Questions of each of your own users about one site in an hour. Users are distinguished
            by ``fp``. Every question then needs an ``fp`` other than ``"anonymous"``. The service has no such
            limit, so the default is None. A question takes a slot of every limit, or of none.
        together: Whether created jobs and follow-ups share one count, with the smaller of their two limits.
        address: The IP address of this process. Set it if processes with the same store call from several IP
            addresses. By default, all processes count as one address.
        mode: ``"raise"`` refuses immediately. ``"wait"`` waits for a slot. The wait does not count for
            ``timeouts.request`` and ``timeouts.total``. Only ``timeout=`` of the call, *max_wait* and
            ``RetryPolicy.within`` limit it. If the service refuses an agent request with 429, the call waits
            again, until the service's limit has passed.
        max_wait: Maximum total time that one call waits for slots, in seconds. None sets no limit. Only for
            the mode ``"wait"``.
        store: The store that counts the slots, by its own time. The default is the memory of this process.
        on_store_error: What happens if the store cannot be reached. ``"raise"`` refuses the call, ``"allow"``
            sends it without counting.

    Raises:
        ConfigurationError: A limit is below 1, or *mode*, *max_wait*, *store* or *on_store_error* is invalid.
    """

    def __init__(
        self,
        *,
        create_job: int | Limit | None = 100,
        send_message: int | Limit | None = 100,
        ask_per_key: int | Limit | None = 10_000,
        ask_per_organization: int | Limit | None = 10_000,
        ask_per_address: int | Limit | None = 10_000,
        ask_per_user: int | Limit | None = None,
        together: bool = False,
        address: str = "",
        mode: Mode = "raise",
        max_wait: float | None = None,
        store: Store | None = None,
        on_store_error: OnStoreError = "raise",
    ) -> None:
        """Check the arguments, without asking the store."""
        if mode not in ("raise", "wait"):
            raise ConfigurationError(f"mode must be 'raise' or 'wait', not {mode!r}", field="mode")
        if on_store_error not in ("raise", "allow"):
            raise ConfigurationError(
                f"on_store_error must be 'raise' or 'allow', not {on_store_error!r}", field="on_store_error"
            )
        check_store(store, "store")
        check_seconds(max_wait, "max_wait", none="means no limit")
        given = {
            "create_job": create_job,
            "send_message": send_message,
            "ask_per_key": ask_per_key,
            "ask_per_organization": ask_per_organization,
            "ask_per_address": ask_per_address,
            USER_LIMIT: ask_per_user,
        }
        limits = {name: _limit(value, name) for name, value in given.items()}
        if together:
            agent = [limit for limit in (limits["create_job"], limits["send_message"]) if limit]
            limits["agent"] = min(agent, key=lambda limit: limit.amount / limit.per, default=None)
        self.mode: Mode = mode
        self.max_wait = math.inf if max_wait is None else max_wait
        self.limits = limits
        self.store: Store = store if store is not None else MemoryStore()
        self._on_store_error = on_store_error
        self._address = check_text(address, "address", empty=True)
        self._lines = Lines()
        self._failure: StateError | None = None
        self._asks_again_at = -math.inf

    @property
    def waiting(self) -> int:
        """The number of calls of this process that wait for a slot, on all event loops."""
        return self._lines.calls

    @property
    def is_away(self) -> bool:
        """Whether the store's last step failed."""
        return self._failure is not None

    def __repr__(self) -> str:
        """Show the limits, the mode and the store."""
        limits = ", ".join(
            f"{name}={limit.amount}/{limit.per:g}s" for name, limit in self.limits.items() if limit
        )
        return f"Quota({limits}, mode={self.mode!r}, store={self.store!r})"

    def lease(self, operation: CountedOperation, scope: QuotaScope) -> Lease:
        """Return the slot for one attempt. It is not taken yet.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: The project, or the site, key and user, for which the attempt is counted.
        """
        return Lease(self, gate_of(operation, scope, self.limits, address=self._address))

    def line(self, gate: Gate) -> AbstractContextManager[Line]:
        """Join the line of all calls that wait for *gate*."""
        return self._lines.join(gate.name, nested=gate.user_line is not None)

    def user_line(self, name: str) -> AbstractContextManager[Line]:
        """Join the line of one user's calls. *name* identifies the user."""
        return self._lines.join(name)

    def check_user(self, fp: object) -> None:
        """Raise an error if the quota limits users, and *fp* names no user.

        Raises:
            ConfigurationError: *fp* is ``"anonymous"`` or no name, and ``ask_per_user`` is set.
        """
        if self.limits[USER_LIMIT] is not None and check_fp(fp).strip().casefold() in ("", ANONYMOUS):
            raise ConfigurationError(
                f"fp must name the user, because the quota has {USER_LIMIT}=, and all users with the fp "
                f"{printable(repr(fp), 40)} would share one count: pass fp= with an id of the user",
                field="fp",
            )

    async def refund(self, gate: Gate, slot: str) -> None:
        """Give *slot* back, for a waiting call.

        Raises:
            StateError: The store cannot be reached.
        """
        try:
            await self.store.refund(gate.windows, slot=slot)
        finally:
            self._lines.wake(gate.name)
            if gate.user_line is not None:
                self._lines.wake(gate.user_line)

    async def block(
        self, operation: CountedOperation, scope: QuotaScope, retry_after: float | None = None
    ) -> None:
        """Stop all calls that share the limit of *operation*, after a 429 of the service.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: The project, or the site and key, for which the attempt was counted.
            retry_after: The pause in seconds, at most an hour. None means 60 s, doubled by each refusal.

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
        """End the block of *operation*. Waiting calls of this process ask again immediately.

        The counted slots stay taken. Other processes ask within 30 s.

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

    async def take(self, gate: Gate, slot: str) -> QuotaExceededError | bool:
        """Take *slot*. Return the error for a call that does not wait, or whether the slot was counted."""
        time = asyncio.get_running_loop().time
        if self._failure is not None and time() < self._asks_again_at:
            return self._without_store(self._failure)
        try:
            result = await self.store.take(gate.windows, slot=slot, block=gate.block_key)
        except StateError as error:
            if self._failure is None:
                then = "not counted" if self._on_store_error == "allow" else "refused"
                log.warning("the quota's store cannot be used, calls are %s until it can: %s", then, error)
            self._failure, self._asks_again_at = error, time() + STORE_PAUSE
            return self._without_store(error)
        if self._failure is not None:
            self._failure = None
            log.warning("the quota's store can be used again")
        return True if result.taken else gate.refusal(result)

    def _without_store(self, failure: StateError) -> QuotaExceededError | bool:
        if self._on_store_error == "allow":
            return False
        error = QuotaExceededError(
            f"the quota's store cannot be used, so nothing was sent: {failure}", retry_after=STORE_PAUSE
        )
        error.__cause__ = CauseSummary(str(failure))
        return error


async def _enter(line: Line, deadline: float, limited_by: str) -> None:
    try:
        await line.enter(deadline)
    except QuotaExceededError as error:
        raise _limited(error, limited_by) from None


def _limited(refusal: QuotaExceededError, limited_by: str) -> QuotaExceededError:
    refusal.args = (f"{refusal}; {limited_by} allows no longer wait",)
    return refusal


def _wait(gate: Gate, refusal: QuotaExceededError) -> float:
    """Return the seconds until a refused call that waits asks again."""
    # The service sets the end of a block, so no margin is needed.
    seconds = 0.0 if refusal.limit is None else gate.seconds(refusal.limit)
    return (refusal.retry_after or 0.0) + min(LONGEST_WAIT_MARGIN, WAIT_MARGIN * seconds)


def _limit(value: int | Limit | None, name: str) -> Limit | None:
    if value is None or isinstance(value, Limit):
        return value
    try:
        return Limit(value, per=USUAL_WINDOWS[name])
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}", field=name) from None
