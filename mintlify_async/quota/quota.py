"""Quota: counts calls before they are sent, and refuses or delays those beyond a limit.

The interface limits how often each operation may be called. Counting here keeps
a worker from storming the service, and from learning about a limit by being
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
from typing import TYPE_CHECKING, Final, Literal

from attrs import frozen

from ..errors import ConfigurationError, QuotaExceededError
from .memory_store import MemoryQuotaStore
from .store import QuotaStore
from .waiters import SHORTEST_SLEEP, WaitQueue
from .windows import HOUR, Limit, QuotaGate, QuotaRemaining, QuotaVerdict, QuotaWindow, read_rate_headers

if TYPE_CHECKING:
    from ..runtime.clock import Clock

__all__ = ["Lease", "Limit", "MemoryQuotaStore", "Quota", "QuotaRemaining", "QuotaScope", "QuotaStore"]

CountedOperation = Literal["create_job", "send_message", "ask"]
Mode = Literal["raise", "wait"]

DAY: Final = 24 * HOUR
MONTH: Final = 30 * DAY
"""The interface says "per month" and no more; thirty days is the assumption."""

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
        if store is not None and not isinstance(store, QuotaStore):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError(f"store must be a QuotaStore, not {type(store).__name__}", field="store")
        self.mode: Mode = mode
        self.limits = dict(limits)
        self.together = together
        self.store: QuotaStore = store if store is not None else MemoryQuotaStore()
        self._address = address
        self._queues: dict[str, WaitQueue] = {}
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
            ask_per_key: Questions with one assistant key in 30 days.
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
        ahead = len(self._queues.get(gate.key, ()))
        verdict = await self.store.take(gate, ahead=ahead, clock=clock)
        if verdict.slot is not None:
            return self._lease(gate, verdict.slot, clock)
        if self.mode == "raise":
            raise _refusal(verdict)
        return await self._wait(gate, verdict, deadline, clock)

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
        else until the reset in the headers, else for 60 s, doubling.
        """
        clock = clock or self._clock
        if clock is None:  # nothing was ever acquired, so nothing was sent through this quota
            return
        gate = self._gate(operation, scope)
        remaining, reset = read_rate_headers(headers, wall=clock.wall())
        if status == 429:
            await self.store.block(gate, _sane(retry_after, reset, gate.longest), clock=clock)
        elif remaining is not None and reset:
            await self.store.learn(gate, remaining, min(reset, gate.longest), clock=clock)

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
        windows = () if limit is None else (_window(name, key, limit, exact=True),)
        return QuotaGate(key=key, tag=project, windows=windows)

    def _assistant_gate(self, scope: QuotaScope) -> QuotaGate:
        holders = {
            "ask_per_key": scope.key or "",
            "ask_per_organization": scope.domain or "",
            "ask_per_address": self._address,
        }
        windows = tuple(
            _window(name, f"{name}:{_fingerprint(holder)}", limit, exact=False)
            for name, holder in holders.items()
            if (limit := self.limits.get(name)) is not None
        )
        who = _fingerprint(f"{scope.domain or ''}\0{scope.key or ''}")
        return QuotaGate(key=f"ask:{who}", tag="ask", windows=windows)

    def _lease(self, gate: QuotaGate, slot: str, clock: Clock, *, waited: float = 0.0) -> Lease:
        async def give_back() -> None:
            await self.store.refund(gate, slot, clock=clock)
            if (queue := self._queues.get(gate.key)) is not None:
                queue.give_up_slot()

        return Lease(give_back, waited=waited)

    async def _wait(
        self, gate: QuotaGate, verdict: QuotaVerdict, deadline: float | None, clock: Clock
    ) -> Lease:
        queue = self._queues.setdefault(gate.key, WaitQueue())
        call = queue.join()
        began = clock.now()
        try:
            while True:
                margin = _margin(gate, verdict)
                until = clock.now() + max(verdict.wait + margin, SHORTEST_SLEEP)
                if until == math.inf or (deadline is not None and until >= deadline):
                    raise _refusal(verdict)
                await queue.sleep(call, until, margin, clock)
                verdict = await queue.take(call, self.store, gate, clock)
                if verdict.slot is not None:
                    return self._lease(gate, verdict.slot, clock, waited=clock.now() - began)
        finally:
            queue.leave(call, served=verdict.slot is not None)
            if not queue:
                self._queues.pop(gate.key, None)


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


def _window(name: str, key: str, limit: Limit, *, exact: bool) -> QuotaWindow:
    return QuotaWindow(name=name, key=key, amount=limit.amount, seconds=limit.per, exact=exact)


def _fingerprint(text: str) -> str:
    """Return the hash under which a project, domain, key or address is counted in a store."""
    return hashlib.sha256(b"mintlify-async quota\0" + text.encode()).hexdigest()[:20]


def _sane(retry_after: float | None, reset: float | None, longest: float) -> float | None:
    """Return the first of the two that is positive and finite, at most *longest*; None when neither is."""
    for seconds in (retry_after, reset):
        if seconds is not None and 0 < seconds < math.inf:
            return min(seconds, longest)
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
