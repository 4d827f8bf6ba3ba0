"""Quota: counts calls before they are sent, and refuses or delays calls beyond a limit.

The interface limits the calls of each operation. Because a worker counts its own calls, it does not flood
the service, and it stops before the service refuses. The rules:

* Every attempt takes a slot, also a repeated attempt. A slot is given back only if nothing was sent.
* The service may count in fixed or in sliding windows. So no window may exceed a limit, wherever it starts.
  For this, the store has the time of every slot.
* A 429 of the service stops all calls that share the limit. :func:`block_seconds` returns for how long.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Mapping
from typing import Final, Literal, Self

from attrs import field, frozen

from ..argument_checks import (
    ANONYMOUS,
    LARGEST,
    check_fp,
    check_number,
    check_seconds,
    check_store,
    check_text,
    check_word,
)
from ..errors import CauseSummary, ConfigurationError, QuotaExceededError, StateError, printable
from ..storage import MemoryStore, TakeResult, Window
from ..storage.store import Snapshot, Store, new_version
from ..wrong_names import helpful
from .line import Line, Lines

CountedOperation = Literal["create_job", "send_message", "ask"]

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
MONTH: Final = 31 * DAY
"""The interface says only "per month". With the longest month, the package never allows too many calls."""

USER_LIMIT: Final = "ask_per_user"
"""The limit for each user of the app. All other limits are the service's, and all users share them."""

USUAL_WINDOWS: Final[Mapping[str, float]] = {
    "create_job": HOUR,
    "send_message": HOUR,
    "agent": HOUR,
    "ask_per_key": MONTH,
    "ask_per_organization": HOUR,
    "ask_per_address": DAY,
    USER_LIMIT: HOUR,
}
"""Maps each limit to the length of its window without ``per=``, in seconds."""

FIRST_BLOCK: Final = 60.0
"""Seconds of a block after a 429 without a time. The block doubles with each following 429."""

LONGEST_BLOCK: Final = HOUR
"""Maximum block, in seconds, also for a ``Retry-After``. An hour is the shortest window."""


@helpful
@frozen
class Limit:
    """A number of uses in a window of time.

    Args:
        amount: Maximum number of uses in any window.
        per: The length of the window, in seconds.

    Raises:
        ConfigurationError: *amount* is not a whole number of at least 1, or *per* is below a millisecond.
    """

    amount: int
    per: float = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check both fields."""
        check_number(self.amount, "amount", 1, whole=True)
        check_number(self.per, "per", 0.001, most=LARGEST)


@frozen(kw_only=True)
class QuotaRemaining:
    """The free slots of one limit.

    Args:
        limit: The name of the limit.
        amount: The number of slots in a window.
        per: The length of the window, in seconds.
        left: The number of slots that are free now; 0 while blocked.
        next_in: Seconds until a slot is free; 0 if a slot is free now.
        blocked: Seconds for which a 429 of the service still stops all calls; 0 without a block.
    """

    limit: str
    amount: int
    per: float
    left: int
    next_in: float
    blocked: float = 0.0


@frozen(kw_only=True)
class QuotaScope:
    """The project, or the site, key and user, for which a call is counted.

    Args:
        project: The project of an agent call.
        domain: The site of an assistant call. It is counted as an organization.
        key: A fingerprint of the assistant key, never the key itself.
        user: The ``fp`` of a question. Without it, the limit of a user is not counted.
    """

    project: str = ""
    domain: str = ""
    key: str = ""
    user: str = ""


@frozen(kw_only=True)
class Gate:
    """The conditions for one attempt: no block by the service, and a free slot in every window.

    Args:
        name: The name for calls that one 429 blocks together, and that wait in one line.
        room: The room of all keys. A Redis cluster keeps a room on one node.
        names: The names of the limits, in the order of *windows*.
        windows: The limits' windows.
        user_line: The name of the line in which one user's calls wait, or None.
    """

    name: str
    room: str
    names: tuple[str, ...]
    windows: tuple[Window, ...]
    user_line: str | None = None

    @property
    def block_key(self) -> str:
        """The key of the record that exists while a refusal of the service blocks calls."""
        return f"{self.room}/blocks/{self.name}"

    @property
    def length_key(self) -> str:
        """The key of the record with the length of the last block. The next block is twice as long."""
        return f"{self.room}/pauses/{self.name}"

    def refusal(self, result: TakeResult) -> QuotaExceededError:
        """Return the error for a call that does not wait, without a limit's name if the service refused."""
        if result.blocked:
            wait, limit, reason = result.blocked, None, "a 429 of the service blocks all calls"
        else:
            waits = [usage.opens_in for usage in result.usage]
            wait, limit, reason = max(waits), self.names[waits.index(max(waits))], "every slot is used"
            if limit == USER_LIMIT:
                reason = "this user's share is used up"
        return QuotaExceededError(
            f"quota {limit or 'of the service'}: {reason}; the next slot is in {wait:.1f} s; "
            "nothing was sent",
            retry_after=wait,
            limit=limit,
        )

    def remaining(self, result: TakeResult) -> tuple[QuotaRemaining, ...]:
        """Return the free slots of each limit."""
        return tuple(
            QuotaRemaining(
                limit=name,
                amount=window.amount,
                per=window.seconds,
                left=0 if result.blocked else max(0, window.amount - usage.used),
                next_in=max(usage.opens_in, result.blocked),
                blocked=result.blocked,
            )
            for name, window, usage in zip(self.names, self.windows, result.usage, strict=True)
        )


def gate_of(
    operation: CountedOperation, scope: QuotaScope, limits: Mapping[str, Limit | None], *, address: str
) -> Gate:
    """Return the gate for an attempt.

    Args:
        operation: The operation.
        scope: The scope of the attempt.
        limits: The limits by name. A limit named ``agent`` counts creates and follow-ups together.
        address: The IP address of this process.
    """
    if operation == "ask":
        holders = {
            "ask_per_key": scope.key,
            "ask_per_organization": scope.domain,  # assumption: a domain stands for an organization
            "ask_per_address": address,
        }
        name, room = f"ask:{_fingerprint(scope.domain, scope.key)}", "quota-ask"
        if scope.user:
            holders[USER_LIMIT] = "\0".join((scope.domain, scope.user))  # sites may share user names
    else:
        agent = "agent" if "agent" in limits else operation
        holders = {agent: scope.project}
        name, room = agent, f"quota-{_fingerprint(scope.project)}"
    windows: dict[str, Window] = {}
    for limit_name, holder in holders.items():
        if (limit := limits[limit_name]) is not None:
            # A window of another length has its own log. Otherwise, a shorter window would end its slots.
            length = "" if limit.per == USUAL_WINDOWS[limit_name] else f"@{float(limit.per)!r}"
            key = f"{room}/slots/{limit_name}{length}:{_fingerprint(holder)}"
            windows[limit_name] = Window(key=key, amount=limit.amount, seconds=limit.per)
    user_line = f"{name}/{_fingerprint(holders[USER_LIMIT])}" if USER_LIMIT in windows else None
    names, lengths = tuple(windows), tuple(windows.values())
    return Gate(name=name, room=room, names=names, windows=lengths, user_line=user_line)


def block_seconds(gate: Gate, snapshot: Snapshot, stated: float | None) -> float | None:
    """Return how long to block, in seconds. None if the current block is longer."""
    block, last_length = snapshot.records.get(gate.block_key), snapshot.records.get(gate.length_key)
    if stated is not None:
        seconds_left = 0.0 if block is None else block.since + float(block.value) - snapshot.now
        return stated if stated > seconds_left else None
    if block is not None:  # this 429 refused a call from before the block
        return None
    return FIRST_BLOCK if last_length is None else min(2 * float(last_length.value), LONGEST_BLOCK)


def _fingerprint(*texts: str) -> str:
    """Return a hash of a project, domain, key, address or user.

    Names of records in the store contain this hash.
    """
    return hashlib.sha256("\0".join(["mintlify-async quota", *texts]).encode()).hexdigest()[:20]


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
            waited: The time for which the call has waited before, in seconds. ``max_wait`` limits this time
                plus the time of the new wait.

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
        with self._quota.lines.join(user_line) as line:
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
        """Wait in the line of all calls and take a slot. If the user's share is used up, return the error."""
        time, away_since = asyncio.get_running_loop().time, math.inf
        with self._quota.lines.join(self._gate.name, nested=self._gate.user_line is not None) as line:
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
        # Each wait ends with a margin of at most LONGEST_WAIT_MARGIN. No sleep ends inside the margin,
        # because the call would then take the slot too early.
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
        ask_per_key: Questions with one assistant key in 31 days, the longest month.
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
        check_word(mode, "mode", ("raise", "wait"))
        check_word(on_store_error, "on_store_error", ("raise", "allow"))
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
        self.lines = Lines()
        self._failure: StateError | None = None
        self._asks_again_at = -math.inf

    @property
    def waiting(self) -> int:
        """The number of calls of this process that wait for a slot, on all event loops."""
        return self.lines.calls

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
            self.lines.wake(gate.name)
            if gate.user_line is not None:
                self.lines.wake(gate.user_line)

    async def block(
        self, operation: CountedOperation, scope: QuotaScope, retry_after: float | None = None
    ) -> None:
        """Stop all calls that share the limit of *operation*, after a 429 of the service.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: The project, or the site and key, for which the attempt was counted.
            retry_after: The seconds of the block, at most an hour. None means 60 s, doubled by each refusal.

        Raises:
            StateError: The store cannot be reached.
        """
        gate = gate_of(operation, scope, self.limits, address=self._address)
        is_usable = retry_after is not None and 0 < retry_after < math.inf
        stated = min(retry_after or 0.0, LONGEST_BLOCK) if is_usable else None
        while True:
            snapshot = await self.store.read([gate.block_key, gate.length_key])
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
            await self.store.write({gate.length_key: text}, expected={}, version=version, keep=2 * length)

    async def unblock(self, operation: CountedOperation, scope: QuotaScope) -> None:
        """End the block of *operation*. Waiting calls of this process ask again immediately.

        The counted slots stay taken. Other processes ask within 30 s.

        Raises:
            StateError: The store cannot be reached.
        """
        gate = gate_of(operation, scope, self.limits, address=self._address)
        await self.store.write(
            {gate.block_key: None, gate.length_key: None}, expected={}, version=new_version()
        )
        self.lines.wake(gate.name)

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
    limit = refusal.limit
    seconds = 0.0 if limit is None else gate.windows[gate.names.index(limit)].seconds
    return (refusal.retry_after or 0.0) + min(LONGEST_WAIT_MARGIN, WAIT_MARGIN * seconds)


def _limit(value: int | Limit | None, name: str) -> Limit | None:
    if value is None or isinstance(value, Limit):
        return value
    try:
        return Limit(value, per=USUAL_WINDOWS[name])
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}", field=name) from None
