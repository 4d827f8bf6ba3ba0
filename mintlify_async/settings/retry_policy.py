"""Retry policy: whether a request is sent again, and after which pause.

This module does no I/O. The caller, ``http/attempts.py``, passes random numbers, and sleeps.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

from ..argument_checks import check_bool, check_field, check_number
from ..model.operation import OPERATIONS, OperationName
from ..wrong_names import helpful

Outcome = Literal["not_sent", "refused", "answered", "unknown"]
"""How an attempt failed.

``not_sent``: no byte of the body was sent. ``refused``: 429, before any work. ``answered``: another error
status. ``unknown``: the body was sent, and then the connection was lost, a limit passed, or the response was
a 5xx or unreadable.
"""

TRY_AGAIN_STATUSES: Final = frozenset((408, 425))
"""Statuses below 500 after which a GET is sent again."""


@helpful
@frozen(kw_only=True)
class RetryPolicy:
    """Decides whether a request is sent again, and after which pause.

    An agent POST (a new job, a follow-up) is sent again only if it certainly was not sent, or was refused
    with 429, because a second job or follow-up costs money. Without *resend_questions*, the same rule is used
    for a question. GETs are always retried.

    Args:
        attempts: Number of attempts, including the first. 1 turns retries off.
        base: Maximum first delay, in seconds. It doubles with each failure.
        cap: Maximum delay, in seconds. The service may ask for a longer one.
        pause_after_429: Extra seconds of pause after a 429 without ``Retry-After``.
        retry_after_cap: Maximum pause that the service may ask for, in seconds. With a longer
            ``Retry-After``, the call fails immediately. The package never shortens the pause.
        resend_questions: If the connection was lost after sending, or the service responded with 5xx, also
            send a question again, unless its answer has started. Each question costs credits.
        budget: Number of retries that a session may make in a row. Each retry takes one, and each success
            gives back a tenth, so that a failing service is not flooded.
        within: The last attempt starts at most this many seconds after the call. None means no limit. A quota
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
        """Return the seconds until the next attempt, or None if no attempt follows.

        Args:
            operation: The name of the request's operation.
            outcome: How the last attempt failed.
            attempt: The number of the last attempt, from 1.
            random: A number from 0 up to 1, which spreads the delay.
            status: The status of the response, or None.
            retry_after: Seconds that the service asks to wait, or None.
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
    """The retries that a session may still make. A retry takes one, and a success gives back a tenth."""

    def __init__(self, most: float) -> None:
        """Start with *most*, which is also the limit."""
        self._most = most
        self._tokens = most

    def take(self) -> bool:
        """Take one retry and return True. If there is less than one, return False."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def succeeded(self) -> None:
        """Give back a tenth of a retry."""
        if self._tokens < self._most:
            self._tokens = min(self._most, round(self._tokens + 0.1, 9))  # ten tenths are one
