"""Poll policy: when a job is polled again, how long a wait lasts, and how long it tolerates failures.

This module does no I/O. The caller passes random numbers, and sleeps.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from ..argument_checks import LARGEST, check_field, check_number
from ..wrong_names import helpful

DEFAULT_TIMEOUT: Final = 1800.0
"""Default time limit of a wait, in seconds. Most jobs take 1 to 5 minutes."""

NOT_FOUND_SECONDS: Final = 30.0
"""A 404 of a job that was never found is tolerated for this many seconds after the job was created."""

JITTER: Final = 0.2
"""Variation of an interval, as a fraction of it, so that several waits do not poll at the same time."""

SHORTEST: Final = 1.0
"""Minimum interval between two polls of a wait, in seconds."""

LONGEST_PAUSE: Final = 300.0
"""Longest pause between polls that the service may request, in seconds. A longer pause is cut to it."""


@helpful
@frozen(kw_only=True)
class PollPolicy:
    """Decides when a job is polled again, and how long a wait tolerates failures.

    Intervals vary by a fifth to either side, and are never below 1 s.

    Args:
        initial: Seconds from the first poll of a wait to the second. The first poll starts immediately.
        factor: The factor from each interval to the next.
        cap: Maximum interval, in seconds.
        timeout: Time limit of one poll, in seconds.
        outage: Lost connections, 408, 425, 429, 5xx and unreadable responses are tolerated for this many
            seconds without a success. Then the last error is raised. The same applies to a 404 of a job that
            was found before.
        settle_seconds: Seconds after a follow-up in which a final status may be an earlier prompt's result.
            They must be longer than the replication delay of the service plus the time until the job is
            ``active``.
        per_second: Maximum number of polls per second, for one session on one event loop.

    Raises:
        ConfigurationError: A value is not a number, or is too small.

    Example:
        >>> [PollPolicy().delay(polls, 0.5) for polls in range(1, 5)]
        [2.0, 3.0, 4.5, 6.75]
    """

    initial: float = field(default=2.0, validator=check_field(check_number, least=0.0, most=LARGEST))
    factor: float = field(default=1.5, validator=check_field(check_number, least=1.0, most=LARGEST))
    cap: float = field(default=30.0, validator=check_field(check_number, least=0.0, most=LARGEST))
    timeout: float = field(default=10.0, validator=check_field(check_number, least=0.001, most=LARGEST))
    outage: float = field(default=300.0, validator=check_field(check_number, least=0.0, most=LARGEST))
    settle_seconds: float = field(default=60.0, validator=check_field(check_number, least=0.0, most=LARGEST))
    per_second: float = field(default=50.0, validator=check_field(check_number, least=0.001, most=LARGEST))

    def delay(self, polls: int, random: float) -> float:
        """Return the seconds until the next poll.

        Args:
            polls: The number of polls before, at least 1.
            random: A number from 0 up to 1.
        """
        # Both calls of min() keep the power within the range of a float.
        interval = min(self.cap, self.initial * min(self.factor, 1000.0) ** min(polls - 1, 64))
        varied = interval * (1 + JITTER * (2 * random - 1))
        return max(SHORTEST, min(self.cap, varied))
