"""An operation and whom it counts for come in; a slot, a wait or a refusal comes out.

The interface limits how often each operation may be called. A :class:`Quota`
counts here, before anything is sent, so that a worker neither storms the
service nor learns of a limit by being refused. The rules:

* Every attempt takes a slot, repeated attempts too. A slot goes back only
  when it is proven that nothing was sent.
* Nobody knows whether the service counts in fixed or sliding windows, so an
  agent limit is never exceeded in *any* window: a log of every slot, exact.
  The assistant's limits are a hundred times larger and are counted in
  sixtieths of their window, rounded to the careful side.
* A 429 from the service stops everybody who shares the limit.

Time is an argument. Nothing here reads a clock or sleeps but through the
:class:`~mintlify_async.clock.Clock` that it is handed.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from attrs import frozen

from .errors import ConfigurationError, QuotaExceededError
from .windows import (
    HOUR,
    BucketCounter,
    Gatekeeper,
    Limit,
    QuotaGate,
    QuotaRemaining,
    QuotaVerdict,
    QuotaWindow,
    SlidingLog,
    read_rate_headers,
)

if TYPE_CHECKING:
    from .clock import Clock

__all__ = [
    "Lease",
    "Limit",
    "MemoryQuotaStore",
    "Quota",
    "QuotaGate",
    "QuotaRemaining",
    "QuotaScope",
    "QuotaStore",
    "QuotaVerdict",
    "QuotaWindow",
    "read_rate_headers",
]

Operation = Literal["create_job", "send_message", "ask"]
Mode = Literal["raise", "wait"]

DAY = 24 * HOUR
MONTH = 30 * DAY
"""The interface says "per month" and no more; thirty days is the assumption."""

SHORTEST_SLEEP = 0.001
"""A wait that rounding made smaller than the clock's steps would spin for ever."""
NAPS = 8
"""A wait is slept in eighths of what is left, to look whether somebody ahead gave up: 60 looks an hour."""
WAIT_MARGIN = 0.01
LONGEST_WAIT_MARGIN = 1.0
"""A waiter comes this part of the window late, at most this many seconds: slots are counted when they are
given, and the service counts when requests arrive, so two waves of waiters need some distance."""


@frozen(kw_only=True)
class QuotaScope:
    """Whom a call counts for.

    Args:
        project: The project of an agent call.
        domain: The site of an assistant call; stands for the organisation.
        key: A fingerprint of the assistant key. Never the key itself.
    """

    project: str | None = None
    domain: str | None = None
    key: str | None = None


@runtime_checkable
class QuotaStore(Protocol):
    """Where slots are counted. Shared by whoever shares the store.

    ``take`` and ``left`` may raise :class:`QuotaExceededError` when the store
    cannot be reached. The other three come after an answer of the service,
    which must not be lost over them: they never raise.
    """

    async def take(self, gate: QuotaGate, *, ahead: int, clock: Clock) -> QuotaVerdict:
        """Take a slot in all windows of *gate*, or in none.

        Args:
            gate: What to pass.
            ahead: Callers of this process who wait already. Their slots are
                left alone; the wait returned is that of the slot after theirs.
            clock: For stores that have none of their own.
        """
        ...

    async def refund(self, gate: QuotaGate, slot: str, *, clock: Clock) -> None:
        """Give a slot back: nothing was sent."""
        ...

    async def block(self, gate: QuotaGate, seconds: float | None, *, clock: Clock) -> None:
        """Let nobody pass for *seconds*; None is for the store to choose: 60, doubling."""
        ...

    async def learn(self, gate: QuotaGate, remaining: int, reset: float, *, clock: Clock) -> None:
        """Let at most *remaining* pass in the next *reset* seconds, as the service says."""
        ...

    async def left(self, gate: QuotaGate, *, clock: Clock | None) -> tuple[QuotaRemaining, ...]:
        """Tell what is left of each window of *gate*; *clock* is None before the first ``take``."""
        ...


class MemoryQuotaStore:
    """Counts within this process; forgets when the process ends.

    One store may serve several sessions, on one event loop or on several, in
    one thread or in several. No method suspends.
    """

    def __init__(self) -> None:
        """Begin with every slot free."""
        self._logs: dict[str, tuple[QuotaWindow, SlidingLog | BucketCounter]] = {}
        self._gates: dict[str, Gatekeeper] = {}
        self._sweep_at = 256
        self._seen = 0.0
        self._lock = Lock()

    def __repr__(self) -> str:
        """Show how much is kept."""
        return f"MemoryQuotaStore(<{len(self._logs)} windows>)"

    async def take(self, gate: QuotaGate, *, ahead: int, clock: Clock) -> QuotaVerdict:
        """Take a slot in all windows of *gate*, or in none."""
        with self._lock:
            now = self._now(clock)
            self._forget_idle(now)
            if (wait := self._gate(gate).opens_in(now, ahead)) > 0:
                name = gate.windows[0].name if gate.windows else None
                return QuotaVerdict(wait=wait, limit=name, blocked=True)
            waits = [(self._log(window).opens_in(window, now, ahead), window.name) for window in gate.windows]
            wait, name = max(waits, default=(0.0, None))
            if wait > 0:
                return QuotaVerdict(wait=wait, limit=name)
            self._use(gate, now)
            return QuotaVerdict(slot=repr(now))

    async def refund(self, gate: QuotaGate, slot: str, *, clock: Clock) -> None:
        """Give a slot back: nothing was sent."""
        with self._lock:
            for window in gate.windows:
                self._log(window).refund(window, float(slot))
            if self._now(clock) < self._gate(gate).allowance_until:
                self._gate(gate).allowance += 1

    async def block(self, gate: QuotaGate, seconds: float | None, *, clock: Clock) -> None:
        """Let nobody pass for *seconds*; None: 60, doubling."""
        with self._lock:
            self._gates.setdefault(gate.key, Gatekeeper()).block(seconds, self._now(clock))

    async def learn(self, gate: QuotaGate, remaining: int, reset: float, *, clock: Clock) -> None:
        """Let at most *remaining* pass in the next *reset* seconds, as the service says."""
        with self._lock:
            self._gates.setdefault(gate.key, Gatekeeper()).learn(remaining, reset, self._now(clock))

    async def left(self, gate: QuotaGate, *, clock: Clock | None) -> tuple[QuotaRemaining, ...]:
        """Tell what is left of each window of *gate*."""
        with self._lock:
            now = self._seen if clock is None else self._now(clock)
            return tuple(self._remaining(window, self._gate(gate), now) for window in gate.windows)

    def _now(self, clock: Clock) -> float:
        self._seen = clock.now()
        return self._seen

    def _log(self, window: QuotaWindow) -> SlidingLog | BucketCounter:
        kept = self._logs.get(window.key)
        if kept is None:
            kept = (window, SlidingLog() if window.exact else BucketCounter())
            self._logs[window.key] = kept
        return kept[1]

    def _gate(self, gate: QuotaGate) -> Gatekeeper:
        return self._gates.get(gate.key) or Gatekeeper()

    def _forget_idle(self, now: float) -> None:
        """Drop what counts no more, now and then, so that ten thousand projects do not pile up."""
        if len(self._logs) + len(self._gates) < self._sweep_at:
            return
        for window, log in self._logs.values():
            log.forget(window, now)
        self._logs = {key: kept for key, kept in self._logs.items() if len(kept[1])}
        self._gates = {key: kept for key, kept in self._gates.items() if not kept.idle(now)}
        self._sweep_at = max(256, 2 * (len(self._logs) + len(self._gates)))

    def _use(self, gate: QuotaGate, now: float) -> None:
        for window in gate.windows:
            self._log(window).take(window, now)
        self._gate(gate).allowance -= 1

    def _remaining(self, window: QuotaWindow, keeper: Gatekeeper, now: float) -> QuotaRemaining:
        log = self._log(window)
        opens_in = max(log.opens_in(window, now, 0), keeper.opens_in(now, 0))
        left = window.amount - len(log)
        if now < keeper.allowance_until:
            left = min(left, keeper.allowance)
        return QuotaRemaining(
            limit=window.name,
            amount=window.amount,
            per=window.seconds,
            left=0 if opens_in > 0 else max(left, 0),
            next_in=opens_in,
            blocked=max(0.0, keeper.blocked_until - now),
        )

    def note(self, gate: QuotaGate, *, clock: Clock) -> str:
        """Count a slot that another store granted, and return its name; nothing is refused."""
        with self._lock:
            now = self._now(clock)
            self._use(gate, now)
            return repr(now)

    def taken(self, window: QuotaWindow, *, clock: Clock) -> list[float]:
        """Return when, on *clock*, each slot was taken that *window* still counts; exact windows only."""
        with self._lock:
            log = self._log(window)
            log.forget(window, self._now(clock))
            return log.times() if isinstance(log, SlidingLog) else []


# --------------------------------------------------------------------------- who waits here


class _Ticket:
    """One caller of this process who waits."""

    __slots__ = ("asking", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.asking = False


class _Line:
    """The callers of this process who wait at one gate, first come first.

    Without it, every waiter would ask the store for every slot that opens.
    So each asks for the slot that matches its place, and when somebody ahead
    gives up, only the first in line looks again.
    """

    __slots__ = ("_numbers", "slack", "tickets")

    def __init__(self) -> None:
        self.tickets: dict[int, _Ticket] = {}
        self.slack = 0
        self._numbers = 0

    def join(self) -> _Ticket:
        self._numbers += 1
        ticket = self.tickets[self._numbers] = _Ticket(self._numbers)
        return ticket

    def ahead_of(self, ticket: _Ticket) -> int:
        """Count those before *ticket* who are not asking the store at this moment."""
        numbers = list(self.tickets)
        before = numbers[: bisect_right(numbers, ticket.number) - 1]
        return sum(not self.tickets[number].asking for number in before)

    def is_first(self, ticket: _Ticket) -> bool:
        return next(iter(self.tickets)) == ticket.number


class Lease:
    """A slot that was taken for one attempt.

    Attributes:
        waited: Seconds that it took to get.
    """

    __slots__ = ("_give_back", "waited")

    def __init__(self, give_back: Callable[[], Awaitable[None]], *, waited: float = 0.0) -> None:
        """Remember how the slot goes back."""
        self._give_back: Callable[[], Awaitable[None]] | None = give_back
        self.waited = waited

    def __repr__(self) -> str:
        """Show whether the slot still counts."""
        return f"<Lease {'taken' if self._give_back else 'refunded'}>"

    async def refund(self) -> None:
        """Give the slot back, once. Only for what was proven not sent."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            await give_back()


# --------------------------------------------------------------------------- the quota


class Quota:
    """Keeps the calls of everybody who shares it within the interface's limits.

    Make one with :meth:`interface` and give it to the session, or to several::

        session = MintlifySession(quota=Quota.interface(mode="wait"))

    A refused or unreachable slot raises :class:`~mintlify_async.errors.QuotaExceededError`
    before anything is sent.
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
        """Take the limits by name; :meth:`interface` knows the names and fills in the usual ones."""
        if mode not in ("raise", "wait"):
            raise ConfigurationError(f"mode must be 'raise' or 'wait', not {mode!r}", field="mode")
        if store is not None and not isinstance(store, QuotaStore):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError(f"store must be a QuotaStore, not {type(store).__name__}", field="store")
        self.mode: Mode = mode
        self.limits = dict(limits)
        self.together = together
        self.store: QuotaStore = store if store is not None else MemoryQuotaStore()
        self._address = address
        self._lines: dict[str, _Line] = {}
        self._clock: Clock | None = None

    def __repr__(self) -> str:
        """Show mode and limits."""
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
        :class:`Limit` with a window of its own, or None for no limit.

        Args:
            create_job: Jobs created for a project in any hour.
            send_message: Follow-ups sent for a project in any hour.
            ask_per_key: Questions with one assistant key in 30 days.
            ask_per_organization: Questions to one domain in an hour.
            ask_per_address: Questions from one network address in a day.
            together: Whether creates and follow-ups share one count, the smaller of their two limits.
            address: Names the network address that this process calls from, where processes that
                share a store call from several. By default all of them count as one address.
            mode: ``"raise"`` refuses at once; ``"wait"`` waits for a slot as long as the call's
                deadline allows.
            store: Where slots are counted; by default in this process.

        Raises:
            ConfigurationError: A limit is below 1, or *mode* or *store* is something else.
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
        operation: Operation,
        scope: QuotaScope,
        *,
        clock: Clock,
        deadline: float | None = None,
    ) -> Lease:
        """Take a slot for one attempt.

        Args:
            operation: ``create_job``, ``send_message`` or ``ask``.
            scope: Whom the attempt counts for.
            clock: The session's clock.
            deadline: When to give up waiting, on that clock. A slot that comes
                later is not waited for at all.

        Raises:
            QuotaExceededError: There is no slot (or, waiting, none in time).
        """
        self._clock = clock
        gate = self._gate(operation, scope)
        line = self._lines.get(gate.key)
        verdict = await self.store.take(gate, ahead=len(line.tickets) if line else 0, clock=clock)
        if verdict.slot is not None:
            return self._lease(gate, verdict.slot, clock)
        if self.mode == "raise":
            raise _refusal(verdict)
        return await self._wait(gate, verdict, deadline, clock)

    async def observe(
        self,
        operation: Operation,
        scope: QuotaScope,
        status: int,
        headers: Mapping[str, str],
        retry_after: float | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Learn from an answer of the service; never raises over the store.

        A 429 stops everybody who shares the limit: for *retry_after* seconds,
        else until the reset that the headers tell, else for 60 s, doubling.
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
        self, operation: Operation, scope: QuotaScope, *, clock: Clock | None = None
    ) -> tuple[QuotaRemaining, ...]:
        """Tell what is left of each limit that counts *operation*.

        Raises:
            QuotaExceededError: The store cannot be reached.
        """
        return await self.store.left(self._gate(operation, scope), clock=clock or self._clock)

    def _gate(self, operation: Operation, scope: QuotaScope) -> QuotaGate:
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
            if (line := self._lines.get(gate.key)) is not None:
                line.slack += 1

        return Lease(give_back, waited=waited)

    async def _wait(
        self, gate: QuotaGate, verdict: QuotaVerdict, deadline: float | None, clock: Clock
    ) -> Lease:
        line = self._lines.setdefault(gate.key, _Line())
        ticket = line.join()
        began = clock.now()
        served = False
        try:
            while verdict.slot is None:
                await self._sleep(gate, verdict, line, ticket, deadline, clock)
                verdict = await self._ask(gate, line, ticket, clock)
            served = True
        finally:
            self._leave(gate, line, ticket, served)
        return self._lease(gate, verdict.slot, clock, waited=clock.now() - began)

    async def _ask(self, gate: QuotaGate, line: _Line, ticket: _Ticket, clock: Clock) -> QuotaVerdict:
        first = line.is_first(ticket)
        ticket.asking = True
        try:
            verdict = await self.store.take(gate, ahead=line.ahead_of(ticket), clock=clock)
        finally:
            ticket.asking = False
        if first:
            line.slack = max(0, line.slack - 1) if verdict.slot is not None else 0
        return verdict

    async def _sleep(
        self,
        gate: QuotaGate,
        verdict: QuotaVerdict,
        line: _Line,
        ticket: _Ticket,
        deadline: float | None,
        clock: Clock,
    ) -> None:
        """Sleep until the slot of *verdict*; the first in line also wakes when one was given up."""
        margin = min(LONGEST_WAIT_MARGIN, WAIT_MARGIN * min((w.seconds for w in gate.windows), default=HOUR))
        if verdict.blocked:  # the end of a block is the service's own figure
            margin = 0.0
        until = clock.now() + max(verdict.wait + margin, SHORTEST_SLEEP)
        if until == math.inf or (deadline is not None and until >= deadline):
            raise _refusal(verdict)
        while (rest := until - clock.now()) > 0:
            await clock.sleep(min(rest, max(rest / NAPS, margin, SHORTEST_SLEEP)))
            if line.slack and line.is_first(ticket):
                return

    def _leave(self, gate: QuotaGate, line: _Line, ticket: _Ticket, served: bool) -> None:
        del line.tickets[ticket.number]
        if not line.tickets:
            self._lines.pop(gate.key, None)
        elif not served:
            line.slack += 1


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
    """Return what stands for a project, domain, key or address in a store."""
    return hashlib.sha256(b"mintlify-async quota\0" + text.encode()).hexdigest()[:20]


def _sane(retry_after: float | None, reset: float | None, longest: float) -> float | None:
    """Return the first of the two that can be meant, cut to the longest window; None when neither can."""
    for seconds in (retry_after, reset):
        if seconds is not None and 0 < seconds < math.inf:
            return min(seconds, longest)
    return None


def _refusal(verdict: QuotaVerdict) -> QuotaExceededError:
    wait = verdict.wait if verdict.wait < math.inf else None
    when = "there will be no slot" if wait is None else f"the next slot is in {wait:.1f} s"
    why = "the service asked to be left alone" if verdict.blocked else "its window is used up"
    return QuotaExceededError(
        f"quota {verdict.limit or 'of the service'}: {why}; {when}; nothing was sent",
        retry_after=wait,
        limit=verdict.limit,
    )
