"""Quota: counts calls before they are sent, and refuses or delays those beyond a limit.

The interface limits how often each operation may be called. Counting here keeps
a worker from flooding the service, and from learning about a limit by being
refused. The rules:

* Every attempt takes a slot, repeated attempts too. A slot is given back only
  when it is proven that nothing was sent.
* Whether the service counts in fixed or in sliding windows is not known, so an
  agent limit is never exceeded in *any* window: every slot is stored. The
  assistant's limits are a hundred times larger and are counted per sixtieth of
  their window, rounded up.
* A 429 from the service stops all calls that share the limit.

Time is an argument. Nothing here reads a clock or sleeps except through the
:class:`~mintlify_async.runtime.clock.Clock` that it is given.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakValueDictionary

from attrs import evolve, frozen

from ..errors import ConfigurationError, QuotaExceededError
from .memory_store import MemoryQuotaStore
from .store import QuotaStore
from .waiters import SHORTEST_SLEEP, WaitQueue
from .windows import (
    HOUR,
    LONGEST_BLOCK,
    Limit,
    QuotaGate,
    QuotaRemaining,
    QuotaVerdict,
    QuotaWindow,
    read_rate_headers,
)

if TYPE_CHECKING:
    from ..runtime.clock import Clock

CountedOperation = Literal["create_job", "send_message", "ask"]
Mode = Literal["raise", "wait"]

DAY: Final = 24 * HOUR
MONTH: Final = 31 * DAY
"""The interface says "per month" and no more; the longest month never allows too much."""

STORE_PAUSE: Final = 1.0
"""Seconds until a waiting call tries a store again that failed without saying for how long."""

WAIT_MARGIN: Final = 0.01
LONGEST_WAIT_MARGIN: Final = 1.0
"""A waiting call comes later than its slot by this part of the window, at most this many seconds: slots are
counted when they are given and the service counts when requests arrive, so two waves need some distance."""


@frozen(kw_only=True)
class QuotaScope:
    """What a call counts for.

    Args:
        project: The project of an agent call.
        domain: The site of an assistant call; stands for the organisation.
        key: A fingerprint of the assistant key. Never the key itself.
    """

    project: str | None = None
    domain: str | None = None
    key: str | None = None


class Lease:
    """A slot that was taken for one attempt.

    Attributes:
        waited: How long the call waited for it, in seconds.
    """

    __slots__ = ("_give_back", "waited")

    def __init__(self, give_back: Callable[[], Awaitable[None]], *, waited: float = 0.0) -> None:
        """Keep the function that gives the slot back."""
        self._give_back: Callable[[], Awaitable[None]] | None = give_back
        self.waited = waited

    def __repr__(self) -> str:
        """Show whether the slot is still taken."""
        return f"<Lease {'taken' if self._give_back else 'refunded'}>"

    async def refund(self) -> None:
        """Give the slot back, once. Only for an attempt that is proven not to have been sent."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            await give_back()


class Quota:
    """Keeps the calls of all sessions that share it within the interface's limits.

    Make one with :meth:`interface` and pass it to one session or several::

        session = MintlifySession(quota=Quota.interface(mode="wait"))

    A call without a free slot raises :class:`~mintlify_async.errors.QuotaExceededError`
    before anything is sent, and so does a store that cannot be reached.
    """

    def __init__(
        self,
        *,
        limits: Mapping[str, Limit | None],
        mode: Mode = "raise",
        together: bool = False,
        address: str = "",
        store: QuotaStore | None = None,
    ) -> None:
        """Keep *limits* by name; :meth:`interface` has the names, and the interface's limits as defaults."""
        if mode not in ("raise", "wait"):
            raise ConfigurationError(f"mode must be 'raise' or 'wait', not {mode!r}", field="mode")
        given: object = store
        if isinstance(given, type) or not isinstance(given, QuotaStore | None):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError(
                f"store must be a QuotaStore such as MemoryQuotaStore(), not a {type(given).__name__}",
                field="store",
            )
        self.mode: Mode = mode
        self.limits = dict(limits)
        self.together = together
        self.store: QuotaStore = store if store is not None else MemoryQuotaStore()
        self._address = address
        # Of the calls that wait, by the gate's key; each of these calls keeps its queue alive.
        self._queues: WeakValueDictionary[str, WaitQueue] = WeakValueDictionary()
        self._lock = Lock()
        self._clock: Clock | None = None

    def __repr__(self) -> str:
        """Show the limits, the mode and the store."""
        limits = ", ".join(
            f"{name}={limit.amount}/{limit.per:g}s" for name, limit in self.limits.items() if limit
        )
        return f"Quota({limits}, mode={self.mode!r}, store={self.store!r})"

    @classmethod
    def interface(
        cls,
        *,
        create_job: int | Limit | None = 100,
        send_message: int | Limit | None = 100,
        ask_per_key: int | Limit | None = 10_000,
        ask_per_organization: int | Limit | None = 10_000,
        ask_per_address: int | Limit | None = 10_000,
        together: bool = False,
        address: str = "",
        mode: Mode = "raise",
        store: QuotaStore | None = None,
    ) -> Quota:
        """Make a quota of the five limits that the interface states.

        Each limit is a number of uses in the interface's window, a
        :class:`Limit` with another window, or None for no limit.

        Args:
            create_job: Jobs created for a project in any hour.
            send_message: Follow-ups sent for a project in any hour.
            ask_per_key: Questions with one assistant key in 31 days.
            ask_per_organization: Questions to one domain in an hour.
            ask_per_address: Questions from one network address in a day.
            together: Whether creates and follow-ups share one count, the smaller of their two limits.
            address: The network address that this process calls from. Needed where processes that
                share a store call from several addresses; by default all of them count as one.
            mode: ``"raise"`` refuses at once; ``"wait"`` waits for a slot as long as the call's
                deadline allows.
            store: Where slots are counted; by default in this process.

        Raises:
            ConfigurationError: A limit is below 1, or *mode* or *store* is invalid.
        """
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
        return cls(limits=limits, mode=mode, together=together, address=address, store=store)

    async def acquire(
        self,
        operation: CountedOperation,
        scope: QuotaScope,
        *,
        clock: Clock,
        deadline: float | None = None,
    ) -> Lease:
        """Take a slot for one attempt.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: The project, or the site and key, that the attempt counts for.
            clock: The session's clock.
            deadline: When to give up waiting, on that clock. A slot that would be free only
                later is not waited for at all.

        Raises:
            QuotaExceededError: No slot is free, or in the mode ``"wait"`` none before *deadline*.
        """
        self._clock = clock
        gate = self._gate(operation, scope)
        if self.mode == "wait":
            return await self._wait(gate, deadline, clock)
        verdict = await self.store.take(gate, ahead=0, clock=clock)
        if verdict.slot is None:
            raise _refusal(verdict)
        return self._lease(gate, verdict.slot, clock)

    async def observe(
        self,
        operation: CountedOperation,
        scope: QuotaScope,
        status: int,
        headers: Mapping[str, str],
        retry_after: float | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Adjust to an answer of the service. A store that fails does not make this raise.

        A 429 stops all calls that share the limit: for *retry_after* seconds,
        else until the reset in the headers, else for 60 s, doubling; an hour at most.
        :meth:`unblock` ends it.
        """
        clock = clock or self._clock
        if clock is None:  # nothing was ever acquired, so nothing was sent through this quota
            return
        gate = self._gate(operation, scope)
        remaining, reset = read_rate_headers(headers, wall=clock.wall())
        if status == 429:
            await self.store.block(gate, _sane(retry_after, reset), clock=clock)
        elif remaining is not None and reset:
            await self.store.learn(gate, remaining, min(reset, LONGEST_BLOCK), clock=clock)

    async def unblock(
        self, operation: CountedOperation, scope: QuotaScope, *, clock: Clock | None = None
    ) -> None:
        """Forget what the service reported about the limit of *operation*: a 429's pause, and what is left.

        Calls that wait ask again at once. The slots that were counted here stay taken.

        Raises:
            QuotaExceededError: The store cannot be reached.
        """
        clock = clock or self._clock
        if clock is None:  # nothing was sent through this quota, so nothing was reported
            return
        gate = self._gate(operation, scope)
        await self.store.unblock(gate, clock=clock)
        if (queue := self._queues.get(gate.key)) is not None:
            queue.all_freed(clock.now())

    async def left(
        self, operation: CountedOperation, scope: QuotaScope, *, clock: Clock | None = None
    ) -> tuple[QuotaRemaining, ...]:
        """Return what is left of each limit that counts *operation*.

        Raises:
            QuotaExceededError: The store cannot be reached.
        """
        return await self.store.left(self._gate(operation, scope), clock=clock or self._clock)

    def _gate(self, operation: CountedOperation, scope: QuotaScope) -> QuotaGate:
        if operation == "ask":
            return self._assistant_gate(scope)
        name = "agent" if self.together else operation
        project = _fingerprint(scope.project or "")
        limit = self.limits.get(name)
        key = f"{name}:{project}"
        windows = () if limit is None else (QuotaWindow.of(name, key, limit),)
        return QuotaGate(key=key, tag=project, windows=windows)

    def _assistant_gate(self, scope: QuotaScope) -> QuotaGate:
        holders = {
            "ask_per_key": scope.key or "",
            "ask_per_organization": scope.domain or "",  # assumption: a domain stands for an organization
            "ask_per_address": self._address,
        }
        windows = tuple(
            QuotaWindow.of(name, f"{name}:{_fingerprint(holder)}", limit, exact=False)
            for name, holder in holders.items()
            if (limit := self.limits.get(name)) is not None
        )
        who = _fingerprint(f"{scope.domain or ''}\0{scope.key or ''}")
        return QuotaGate(key=f"ask:{who}", tag="ask", windows=windows)

    def _lease(self, gate: QuotaGate, slot: str, clock: Clock, *, waited: float = 0.0) -> Lease:
        async def give_back() -> None:
            await self.store.refund(gate, slot, clock=clock)
            if (queue := self._queues.get(gate.key)) is not None:
                queue.slot_freed(clock.now())

        return Lease(give_back, waited=waited)

    def _queue(self, gate: QuotaGate) -> WaitQueue:
        with self._lock:
            queue = self._queues.get(gate.key)
            if queue is None:
                queue = self._queues[gate.key] = WaitQueue()
            return queue

    async def _wait(self, gate: QuotaGate, deadline: float | None, clock: Clock) -> Lease:
        queue = self._queue(gate)
        began, changes, ahead = clock.now(), queue.changes, queue.ahead()
        answer = await self._ask(gate, ahead, clock)
        if isinstance(answer, str):
            if ahead:  # more slots are free than the waiting calls know
                queue.slot_freed(clock.now())
            return self._lease(gate, answer, clock)
        if answer.at == math.inf or _too_late(answer.at, deadline):
            raise answer.error(clock)
        call = queue.join(answer.at, clock.now(), changes)
        served = False
        try:
            while True:
                turn = queue.turn_of(call)
                if _too_late(clock.now() if turn is None else turn, deadline):
                    raise answer.error(clock)
                if turn is None or turn > clock.now():
                    await call.sleep(clock, deadline if turn is None else turn)
                    continue
                changes = queue.ask()
                try:
                    answer = await self._ask(gate, 0, clock)
                finally:
                    queue.stop_asking()
                if isinstance(answer, str):
                    served = True
                    return self._lease(gate, answer, clock, waited=clock.now() - began)
                queue.answered(answer.at, clock.now(), changes)
        finally:
            queue.leave(call, served=served)
            del queue  # or the traceback of a cancelled call would keep it

    async def _ask(self, gate: QuotaGate, ahead: int, clock: Clock) -> str | _Refused:
        """Return a slot, or when to ask again."""
        try:
            verdict = await self.store.take(gate, ahead=ahead, clock=clock)
        except QuotaExceededError as error:  # the store cannot be reached, which may pass
            return _Refused(clock.now() + (error.retry_after or STORE_PAUSE), error)
        if verdict.slot is not None:
            return verdict.slot
        return _Refused(clock.now() + max(verdict.wait + _margin(gate, verdict), SHORTEST_SLEEP), verdict)


@frozen
class _Refused:
    """When a waiting call asks the store again, and why it has no slot yet."""

    at: float
    why: QuotaVerdict | QuotaExceededError

    def error(self, clock: Clock) -> QuotaExceededError:
        """Return the error for a call that does not wait until then."""
        if isinstance(self.why, QuotaExceededError):
            return self.why
        return _refusal(evolve(self.why, wait=min(self.why.wait, max(0.0, self.at - clock.now()))))


def _too_late(at: float, deadline: float | None) -> bool:
    return deadline is not None and at >= deadline


def _margin(gate: QuotaGate, verdict: QuotaVerdict) -> float:
    """Return by how many seconds a waiting call comes later than its slot is free."""
    if verdict.blocked:  # the end of a block is the service's own figure
        return 0.0
    shortest = min((window.seconds for window in gate.windows), default=HOUR)
    return min(LONGEST_WAIT_MARGIN, WAIT_MARGIN * shortest)


def _limit(value: int | Limit | None, per: float, name: str) -> Limit | None:
    if value is None or isinstance(value, Limit):
        return value
    try:
        return Limit(value, per=per)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}", field=name) from None


def _fingerprint(text: str) -> str:
    """Return the hash under which a project, domain, key or address is counted in a store."""
    return hashlib.sha256(b"mintlify-async quota\0" + text.encode()).hexdigest()[:20]


def _sane(retry_after: float | None, reset: float | None) -> float | None:
    """Return the first of the two that is positive and finite, at most an hour; None when neither is."""
    for seconds in (retry_after, reset):
        if seconds is not None and 0 < seconds < math.inf:
            return min(seconds, LONGEST_BLOCK)
    return None


def _refusal(verdict: QuotaVerdict) -> QuotaExceededError:
    wait = verdict.wait if verdict.wait < math.inf else None
    when = "there will never be one" if wait is None else f"the next slot is in {wait:.1f} s"
    why = "the service asked for a pause" if verdict.blocked else "no slot is free"
    return QuotaExceededError(
        f"quota {verdict.limit or 'of the service'}: {why}; {when}; nothing was sent",
        retry_after=wait,
        limit=verdict.limit,
    )
