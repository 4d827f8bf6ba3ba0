"""Retry policy: whether, and after how long, a request is sent again.

It does no I/O. The caller passes random numbers, and sleeps. ``http/attempts.py`` applies it.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

from ..checks import check_bool, check_field, check_number
from ..habits import helpful
from ..model.operation import OPERATIONS, OperationName

Outcome = Literal["not_sent", "refused", "answered", "unknown"]
"""How an attempt failed.

``not_sent``: no byte of the body was sent. ``refused``: 429, before any work. ``answered``: another error
status. ``unknown``: it was sent, and then the connection was lost, a limit passed, or the response was a 5xx
or unreadable.
"""

TRY_AGAIN_STATUSES: Final = frozenset((408, 425))
"""Statuses below 500 after which a GET is sent again."""


@helpful
@frozen(kw_only=True)
class RetryPolicy:
    """Decides whether, and after how long, a request is sent again.

    An agent POST (a new job, a follow-up) is sent again only when it certainly
    was not sent or was refused with 429, because a second one costs money. Without
    *resend_questions*, the same rule is used for a question. GETs are retried freely.

    Args:
        attempts: Sends in total, the first included. 1 turns retrying off.
        base: Longest first delay, in seconds. Doubles with each failure.
        cap: Longest delay of our own, in seconds.
        pause_after_429: Extra seconds of pause after a 429 without ``Retry-After``.
        retry_after_cap: Longest pause that the service may ask for, in seconds. A
            longer ``Retry-After`` ends the retrying immediately. It is never shortened.
        resend_questions: Also send a question again, before its first byte, when the
            connection was lost after sending or the service answered 5xx. Each costs credits.
        budget: How many retries a session may make in a row. Each retry takes one, each
            success gives back a tenth, so that a failing service is not flooded.
        within: How long after the call its last attempt may start, in seconds, or None for no limit. A quota
            in the mode ``"wait"`` also waits no longer.

    Raises:
        ConfigurationError: *attempts* or *budget* is below 1, or a time is negative.
    """

    attempts: int = field(default=3, validator=check_field(check_number, least=1, whole=True))
    base: float = field(default=0.5, validator=check_field(check_number, least=0))
    cap: float = field(default=8.0, validator=check_field(check_number, least=0))
    pause_after_429: float = field(
        default=1.0, validator=check_field(check_number, least=0)
    )  # assumption: a 429 without `Retry-After`
    retry_after_cap: float = field(default=60.0, validator=check_field(check_number, least=0))
    resend_questions: bool = field(default=False, validator=check_field(check_bool))
    budget: float = field(default=10.0, validator=check_field(check_number, least=1))
    within: float | None = field(default=None, validator=check_field(check_number, least=0, none=True))

    def delay(
        self,
        operation: OperationName,
        outcome: Outcome,
        *,
        attempt: int,
        random: float,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        Args:
            operation: The name of the request's operation.
            outcome: How the last attempt failed.
            attempt: The number of that attempt, from 1.
            random: A number from 0 up to 1, which spreads the delay.
            status: The status of the response, or None.
            retry_after: Seconds that the service asks for, or None.
        """
        if attempt >= self.attempts or not self._may_resend(operation, outcome, status):
            return None
        if retry_after is not None:
            return retry_after * (1 + 0.1 * random) if retry_after <= self.retry_after_cap else None
        least = self.pause_after_429 if outcome == "refused" else 0.0
        ceiling = min(self.cap, self.base * 2.0 ** min(attempt - 1, 62))
        return least + ceiling * random

    def _may_resend(self, operation: OperationName, outcome: Outcome, status: int | None) -> bool:
        if outcome in ("not_sent", "refused"):
            return True
        resend = OPERATIONS[operation].resend
        if resend == "always":
            return status in TRY_AGAIN_STATUSES if outcome == "answered" else status != 501
        return resend == "by choice" and outcome == "unknown" and self.resend_questions


class RetryBudget:
    """The retries that a session may still make: each takes one, each success gives a tenth back."""

    def __init__(self, most: float) -> None:
        """Begin with *most*, which is also the limit."""
        self._most = most
        self._tokens = most

    def take(self) -> bool:
        """Take one and return True. If there is less than one, return False."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def succeeded(self) -> None:
        """Give a tenth back."""
        if self._tokens < self._most:
            self._tokens = min(self._most, round(self._tokens + 0.1, 9))  # ten tenths are one
