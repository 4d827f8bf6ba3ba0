"""Sliding windows: how long until a limit has a free slot.

Pure arithmetic. Times are arguments, in seconds on one clock that never goes
back. No window of any position ever contains more uses than its limit: an exact
window stores each use, and a counted window stores counts per sixtieth of its
length and rounds up. Token buckets, leaky buckets, GCRA and fixed windows let
through up to twice the limit.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from attrs import evolve, field, frozen

from ..errors import ConfigurationError

__all__ = ["FIRST_BLOCK", "LONGEST_BLOCK", "SAME_PERIOD"]

HOUR = 3600.0

BUCKETS = 60
"""Parts of a counted window: 61 small numbers, and a slot is free at most a sixtieth too late."""

FIRST_BLOCK = 60.0
"""Seconds to stop after a 429 that does not say for how long. Doubles when further ones follow."""
LONGEST_BLOCK = HOUR
"""Longest stop, in seconds, even if a header says more: the shortest window of the interface."""

SAME_PERIOD = 2.0
"""Resets that differ by less, in seconds, belong to the same period: the headers are in whole seconds."""


def _positive(value: object, what: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConfigurationError(f"{what} must be a number above 0, not {value!r}", field=what)


@frozen
class Limit:
    """A number of uses in a window of time.

    Args:
        amount: Uses allowed in any window.
        per: The window's length, in seconds.

    Raises:
        ConfigurationError: *amount* is not a whole number of at least 1, or *per* is not above 0.
    """

    amount: int
    per: float = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check both fields."""
        if isinstance(self.amount, float):
            raise ConfigurationError(f"amount must be a whole number, not {self.amount!r}", field="amount")
        _positive(self.amount, "amount")
        _positive(self.per, "per")


@frozen(kw_only=True)
class QuotaWindow:
    """One limit, for one project, domain, key or address.

    Args:
        name: The limit's name, such as ``create_job``; part of error messages.
        key: Identifies the limit and its holder in a store, by a hash.
        amount: Slots in any window.
        seconds: The window's length.
        exact: True stores each slot; False counts slots per sixtieth of the window.
    """

    name: str
    key: str
    amount: int
    seconds: float
    exact: bool = True

    @classmethod
    def of(cls, name: str, key: str, limit: Limit, *, exact: bool = True) -> QuotaWindow:
        """Make the window of *limit*."""
        return cls(name=name, key=key, amount=limit.amount, seconds=limit.per, exact=exact)

    @property
    def bucket_seconds(self) -> float:
        """The length of one part of a counted window, in seconds."""
        return self.seconds / BUCKETS


@frozen(kw_only=True)
class QuotaGate:
    """What one attempt needs: no block by the service, and a free slot in every window.

    Args:
        key: Identifies the calls that a 429 blocks together.
        tag: The hash tag of all keys that one step uses, which keeps them on one node of a Redis cluster.
        windows: The limits that count the attempt.
    """

    key: str
    tag: str
    windows: tuple[QuotaWindow, ...]

    @property
    def longest(self) -> float:
        """The longest window, or an hour, in seconds: how long a store remembers the gate."""
        return max([HOUR, *(window.seconds for window in self.windows)])

    def share(self, sharers: int) -> QuotaGate:
        """Return this gate with each limit divided by *sharers*, rounded down."""
        windows = tuple(evolve(window, amount=window.amount // sharers) for window in self.windows)
        return evolve(self, windows=windows)


@frozen(kw_only=True)
class QuotaVerdict:
    """A store's answer: a slot, or how long to wait for one.

    Args:
        slot: Identifies the slot for a refund; None when none was free.
        wait: Seconds until one may be free; infinite when none ever will be.
        limit: The name of the limit without a free slot.
        blocked: Whether the reason is a 429 of the service rather than our own count.
    """

    slot: str | None = None
    wait: float = 0.0
    limit: str | None = None
    blocked: bool = False


@frozen(kw_only=True)
class QuotaRemaining:
    """What is left of one limit.

    Args:
        limit: The limit's name.
        amount: Slots in a window.
        per: The window's length, in seconds.
        left: Slots that are free now; 0 while blocked.
        next_in: Seconds until a slot is free; 0 when one is.
        blocked: Seconds for which a 429 of the service still stops all calls; 0 without one.
    """

    limit: str
    amount: int
    per: float
    left: int
    next_in: float
    blocked: float = 0.0


class SlidingLog:
    """Stores when each slot was taken: exact in any window."""

    def __init__(self) -> None:
        """Start with every slot free."""
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        """Return the slots in use at the last call of :meth:`forget`."""
        return len(self._times)

    def forget(self, window: QuotaWindow, now: float) -> None:
        """Drop the slots that are older than the window."""
        while self._times and self._times[0] + window.seconds <= now:
            self._times.popleft()

    def opens_in(self, window: QuotaWindow, now: float, ahead: int) -> float:
        """Return the seconds until more than *ahead* slots are free; 0 when they are free now."""
        self.forget(window, now)
        nth = len(self._times) - window.amount + ahead
        if nth < 0:
            return 0.0
        if not window.amount:
            return math.inf
        rounds, place = divmod(nth, window.amount)  # more calls may wait than a window has slots
        taken = self._times[place] if place < len(self._times) else now  # calls ahead take the free ones
        return taken + window.seconds * (rounds + 1) - now

    def times(self) -> list[float]:
        """Return when each slot was taken, in order."""
        return list(self._times)

    def take(self, window: QuotaWindow, now: float) -> None:
        """Use a slot."""
        self._times.append(now)

    def refund(self, window: QuotaWindow, taken: float) -> None:
        """Give back the slot that was taken at *taken*, if it still counts."""
        if taken in self._times:
            self._times.remove(taken)


class BucketCounter:
    """Counts slots per sixtieth of the window: small, and never more than the limit in any window."""

    def __init__(self) -> None:
        """Start with every slot free."""
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the slots in use at the last call of :meth:`forget`."""
        return sum(self._counts.values())

    def forget(self, window: QuotaWindow, now: float) -> None:
        """Drop the parts that lie entirely before the window."""
        oldest = math.floor(now / window.bucket_seconds) - BUCKETS
        for index in [index for index in self._counts if index < oldest]:
            del self._counts[index]

    def opens_in(self, window: QuotaWindow, now: float, ahead: int) -> float:
        """Return the seconds until more than *ahead* slots are free; 0 when they are free now."""
        self.forget(window, now)
        over = len(self) - window.amount + ahead
        if over < 0:
            return 0.0
        for index in sorted(self._counts):
            over -= self._counts[index]
            if over < 0:
                return (index + BUCKETS + 1) * window.bucket_seconds - now
        return window.seconds if window.amount else math.inf

    def take(self, window: QuotaWindow, now: float) -> None:
        """Use a slot."""
        index = math.floor(now / window.bucket_seconds)
        self._counts[index] = self._counts.get(index, 0) + 1

    def refund(self, window: QuotaWindow, taken: float) -> None:
        """Give back a slot that was taken at *taken*, if it still counts."""
        index = math.floor(taken / window.bucket_seconds)
        if self._counts.get(index, 0) > 0:
            self._counts[index] -= 1


class ServerLimits:
    """What the service itself reported about one gate: a block after a 429, and how many calls are left."""

    def __init__(self) -> None:
        """Start without any report."""
        self.blocked_until = -math.inf
        self.pause = 0.0
        self.doubles_until = -math.inf
        self.allowance = 0
        self.allowance_until = -math.inf

    def block(self, seconds: float | None, now: float) -> None:
        """Block for *seconds*; None is 60 s, doubled when the last block was not long ago."""
        if seconds is None:
            if now < self.blocked_until:  # the answer to a call that was sent before the block
                return
            self.pause = min(self.pause * 2, LONGEST_BLOCK) if now < self.doubles_until else FIRST_BLOCK
            self.doubles_until = now + 2 * self.pause
            seconds = self.pause
        self.blocked_until = max(self.blocked_until, now + seconds)

    def learn(self, remaining: int, reset: float, now: float) -> None:
        """Allow *remaining* calls in the next *reset* seconds; the smaller number counts within a period."""
        if now < self.allowance_until and abs(self.allowance_until - now - reset) <= SAME_PERIOD:
            remaining = min(remaining, self.allowance)  # answers may arrive out of order
        self.allowance = remaining
        self.allowance_until = now + reset

    def opens_in(self, now: float, ahead: int) -> float:
        """Return the seconds until the service accepts more than *ahead* calls; 0 when it does now."""
        if now < self.blocked_until:
            return self.blocked_until - now
        if now < self.allowance_until and self.allowance <= ahead:
            return self.allowance_until - now
        return 0.0

    def idle(self, now: float) -> bool:
        """Return whether everything that the service reported has expired."""
        return now >= max(self.blocked_until, self.doubles_until, self.allowance_until)


_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?![\d.])")
_REMAINING = ("ratelimit-remaining", "x-ratelimit-remaining", "x-rate-limit-remaining")
_RESET = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")
_FIELD_REMAINING = re.compile(r"(?:^|[;,\s])(?:remaining|r)\s*=\s*(\d{1,15})(?!\d)", re.IGNORECASE)
_FIELD_RESET = re.compile(r"(?:^|[;,\s])(?:reset|t)\s*=\s*(\d{1,15})(?!\d)", re.IGNORECASE)
_EPOCH_FROM = 1e9
"""A reset of more than 30 years is a date, in seconds since the epoch ..."""
_EPOCH_MS_FROM = 1e12
"""... or in milliseconds."""


def read_rate_headers(headers: Mapping[str, str], *, wall: float) -> tuple[int | None, float | None]:
    """Return how many calls are left, and in how many seconds the count restarts.

    Reads ``RateLimit-Remaining`` and ``RateLimit-Reset``, the same with ``X-``,
    and the ``RateLimit`` field of the later drafts. The interface mentions none of
    them, so a header that is missing or unreadable gives None.

    Args:
        headers: The answer's headers; names in any case.
        wall: The time of this computer, in seconds since the epoch, for a reset that is a
            date. The answer's ``Date`` is used instead where there is one.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    remaining = _first_number(lower, _REMAINING)
    reset = _first_number(lower, _RESET)
    if field_value := lower.get("ratelimit"):
        remaining = _match(_FIELD_REMAINING, field_value) if remaining is None else remaining
        reset = _match(_FIELD_RESET, field_value) if reset is None else reset
    if reset is not None and reset >= _EPOCH_FROM:
        reset = reset / 1000 if reset >= _EPOCH_MS_FROM else reset
        reset = max(0.0, reset - _service_time(lower, wall))
    return (None if remaining is None else int(remaining)), reset


def _first_number(headers: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    for name in names:
        found = _NUMBER.match(headers.get(name, "").strip())
        if found:
            return float(found.group())
    return None


def _match(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found.group(1)) if found else None


def _service_time(headers: Mapping[str, str], wall: float) -> float:
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return wall
