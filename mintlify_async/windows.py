"""A limit, the slots taken so far and the present moment come in; how long until the next slot comes out.

Pure arithmetic. Times are seconds on one clock that never goes back, and each
is an argument. An exact window keeps every slot; a counted one keeps
sixtieths and rounds to the careful side, so that neither ever lets more than
the limit through in any window. Token buckets, leaky buckets, GCRA and fixed
windows all let through up to twice as much.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from attrs import field, frozen

from .errors import ConfigurationError

__all__ = [
    "FIRST_BLOCK",
    "LONGEST_DOUBLED_BLOCK",
    "SAME_PERIOD",
    "BucketCounter",
    "Gatekeeper",
    "Limit",
    "QuotaGate",
    "QuotaRemaining",
    "QuotaVerdict",
    "QuotaWindow",
    "SlidingLog",
    "read_rate_headers",
]

HOUR = 3600.0

BUCKETS = 60
"""Parts in which a counted window is kept: 61 small numbers, and at most a sixtieth too careful."""

FIRST_BLOCK = 60.0
"""Seconds to stop after a 429 that does not say for how long; doubles with the next ones."""
LONGEST_DOUBLED_BLOCK = HOUR
"""No doubling stops longer than the shortest window of the interface."""

SAME_PERIOD = 2.0
"""Reset headers that differ by less, in seconds, speak of the same period: they come in whole seconds."""


# --------------------------------------------------------------------------- what is counted


def _positive(value: object, what: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConfigurationError(f"{what} must be a number above 0, not {value!r}", field=what)


@frozen
class Limit:
    """So many uses in so many seconds.

    Args:
        amount: Uses allowed in any window.
        per: The window's length, in seconds.

    Raises:
        ConfigurationError: *amount* is not a whole number of at least 1, or *per* is not above 0.
    """

    amount: int
    per: float = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check both."""
        if isinstance(self.amount, float):
            raise ConfigurationError(f"amount must be a whole number, not {self.amount!r}", field="amount")
        _positive(self.amount, "amount")
        _positive(self.per, "per")


@frozen(kw_only=True)
class QuotaWindow:
    """One limit of one holder.

    Args:
        name: The limit's name, such as ``create_job``; enters error messages.
        key: Names limit and holder in a store; a fingerprint, nothing in clear.
        amount: Slots in any window.
        seconds: The window's length.
        exact: True keeps a log of every slot; False counts in sixtieths of the window.
    """

    name: str
    key: str
    amount: int
    seconds: float
    exact: bool = True

    @property
    def bucket_seconds(self) -> float:
        """The length of one part of a counted window, in seconds."""
        return self.seconds / BUCKETS


@frozen(kw_only=True)
class QuotaGate:
    """What one attempt must pass: no block, and a free slot in every window.

    Args:
        key: Names those who share a block after a 429.
        tag: The same for all keys that one look touches: they live on one node of a Redis cluster.
        windows: The limits that count the attempt.
    """

    key: str
    tag: str
    windows: tuple[QuotaWindow, ...]

    @property
    def longest(self) -> float:
        """The longest window or an hour, in seconds: no block can sensibly last longer."""
        return max(HOUR, *(window.seconds for window in self.windows), 0.0)

    def share(self, sharers: int) -> QuotaGate:
        """Return this gate with each limit divided by *sharers*, rounded down."""
        windows = tuple(
            QuotaWindow(
                name=window.name,
                key=window.key,
                amount=window.amount // sharers,
                seconds=window.seconds,
                exact=window.exact,
            )
            for window in self.windows
        )
        return QuotaGate(key=self.key, tag=self.tag, windows=windows)


@frozen(kw_only=True)
class QuotaVerdict:
    """A store's answer: a slot, or how long to wait for one.

    Args:
        slot: Names the slot for a refund; None when there was none.
        wait: Seconds until there may be one; infinite when there never will be.
        limit: The limit that refused.
        blocked: Whether a 429 of the service, not our own count, is the reason.
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
        blocked: Seconds for which a 429 of the service still stops everybody; else 0.
    """

    limit: str
    amount: int
    per: float
    left: int
    next_in: float
    blocked: float = 0.0


# --------------------------------------------------------------------------- the arithmetic


class SlidingLog:
    """Remembers when each slot was taken: exact in any window. All times in seconds on one clock."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        """Begin with every slot free."""
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        """Slots in use, as of the last look."""
        return len(self._times)

    def forget(self, window: QuotaWindow, now: float) -> None:
        """Drop the slots that have left the window."""
        while self._times and self._times[0] + window.seconds <= now:
            self._times.popleft()

    def opens_in(self, window: QuotaWindow, now: float, ahead: int) -> float:
        """Return the seconds until more than *ahead* slots are free; 0 when they are."""
        self.forget(window, now)
        nth = len(self._times) - window.amount + ahead
        if nth < 0:
            return 0.0
        if not window.amount:
            return math.inf
        rounds, place = divmod(nth, window.amount)  # more may wait than a window holds
        taken = self._times[place] if place < len(self._times) else now  # those ahead take the free ones now
        return taken + window.seconds * (rounds + 1) - now

    def times(self) -> list[float]:
        """Return when each slot was taken, the first one first."""
        return list(self._times)

    def take(self, window: QuotaWindow, now: float) -> None:
        """Use a slot."""
        self._times.append(now)

    def refund(self, window: QuotaWindow, taken: float) -> None:
        """Give back the slot that was taken at *taken*, if it still counts."""
        if taken in self._times:
            self._times.remove(taken)


class BucketCounter:
    """Counts slots in sixtieths of the window: small, and never more than the limit in any window."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        """Begin with every slot free."""
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        """Slots in use, as of the last look."""
        return sum(self._counts.values())

    def forget(self, window: QuotaWindow, now: float) -> None:
        """Drop the parts that have left the window whole."""
        oldest = math.floor(now / window.bucket_seconds) - BUCKETS
        for index in [index for index in self._counts if index < oldest]:
            del self._counts[index]

    def opens_in(self, window: QuotaWindow, now: float, ahead: int) -> float:
        """Return the seconds until more than *ahead* slots are free; 0 when they are."""
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


class Gatekeeper:
    """What the service itself said about one gate: a block, and what it says is left."""

    __slots__ = ("allowance", "allowance_until", "blocked_until", "doubles_until", "pause")

    def __init__(self) -> None:
        """Begin with nothing learnt."""
        self.blocked_until = -math.inf
        self.pause = 0.0
        self.doubles_until = -math.inf
        self.allowance = 0
        self.allowance_until = -math.inf

    def block(self, seconds: float | None, now: float) -> None:
        """Block for *seconds*; None: 60, doubled when the last pause is not long over."""
        if seconds is None:
            if now < self.blocked_until:  # answers to what was under way already; not a new refusal
                return
            self.pause = (
                min(self.pause * 2, LONGEST_DOUBLED_BLOCK) if now < self.doubles_until else FIRST_BLOCK
            )
            self.doubles_until = now + 2 * self.pause
            seconds = self.pause
        self.blocked_until = max(self.blocked_until, now + seconds)

    def learn(self, remaining: int, reset: float, now: float) -> None:
        """Keep the smaller allowance while a period lasts; a new period brings its own."""
        if now < self.allowance_until and abs(self.allowance_until - now - reset) <= SAME_PERIOD:
            remaining = min(remaining, self.allowance)  # answers overtake each other
        self.allowance = remaining
        self.allowance_until = now + reset

    def opens_in(self, now: float, ahead: int) -> float:
        """Return the seconds until the service would let the next one pass; 0 when it would."""
        if now < self.blocked_until:
            return self.blocked_until - now
        if now < self.allowance_until and self.allowance <= ahead:
            return self.allowance_until - now
        return 0.0

    def idle(self, now: float) -> bool:
        """Whether nothing that was learnt matters any more."""
        return now >= max(self.blocked_until, self.doubles_until, self.allowance_until)


# --------------------------------------------------------------------------- what the service tells

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?![\d.])")
_REMAINING = ("ratelimit-remaining", "x-ratelimit-remaining", "x-rate-limit-remaining")
_RESET = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")
_FIELD_REMAINING = re.compile(r"(?:^|[;,\s])(?:remaining|r)\s*=\s*(\d{1,15})(?!\d)", re.IGNORECASE)
_FIELD_RESET = re.compile(r"(?:^|[;,\s])(?:reset|t)\s*=\s*(\d{1,15})(?!\d)", re.IGNORECASE)
_EPOCH_FROM = 1e9
"""A reset of more than 30 years is a time of day, in seconds since the epoch ..."""
_EPOCH_MS_FROM = 1e12
"""... or in milliseconds."""


def read_rate_headers(headers: Mapping[str, str], *, wall: float) -> tuple[int | None, float | None]:
    """Read how many calls are left and in how many seconds the count starts anew.

    Knows ``RateLimit-Remaining``/``-Reset``, the same with ``X-``, and the
    ``RateLimit`` field of the later drafts. The interface names none of them:
    whatever is missing or unreadable is None.

    Args:
        headers: The answer's headers; names in any case.
        wall: The present, in seconds since the epoch, for a reset that is a
            time of day. The answer's own ``Date`` goes first: it is the
            service's clock.
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
