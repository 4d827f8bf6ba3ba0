"""When jobs are polled, and what a poll brings. No I/O."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from attrs import define, field, frozen

from ..errors import ConfigurationError
from ..model.job import Job
from ..runtime.clock import Clock

MAX_SECONDS: Final = sys.float_info.max
"""Largest figure of a policy or a timeout: an int may be larger, and cannot be added to the clock's float."""


def _at_least(least: float) -> Callable[[object, Any, Any], None]:
    def check(_: object, attribute: Any, figure: object) -> None:
        kinds = (int,) if isinstance(attribute.default, int) else (int, float)
        if isinstance(figure, bool) or not isinstance(figure, kinds) or not least <= figure <= MAX_SECONDS:
            kind = "whole" if kinds == (int,) else "finite"
            raise ConfigurationError(
                f"{attribute.name} must be a {kind} number, {least:g} or more", field=attribute.name
            )

    return check


@define(frozen=True, kw_only=True)
class PollPolicy:
    """Decides when a job is asked for again, and which failures a wait tolerates.

    Args:
        first: Seconds from the beginning of a wait to its first poll.
        initial: Seconds from the first poll to the second.
        factor: What each interval is multiplied by for the next.
        cap: Longest interval, in seconds.
        jitter: How much an interval may vary to either side, as a fraction of it; below 1.
        floor: Shortest interval, in seconds.
        per_second: Most polls per second of one session on one loop. With 50, a round
            over 10,000 jobs takes 200 s.
        concurrency: Most polls under way at once. One without an answer for a second no
            longer counts, so that hung polls do not delay the others.
        timeout: Limits one poll, in seconds.
        outage: Lost connections, 429 and 5xx are tolerated until they have lasted this
            many seconds without a success; then the last error is raised. Likewise a 404
            of a job that was seen before.
        not_found: How long after its creation a job that was not seen yet may answer 404, in seconds.
        retry_after_cap: Longest pause that the service may ask for, in seconds; a longer
            ``Retry-After`` counts as this one. The pause of a 429 is for all jobs of the project.
        settle_polls: How often a result must be seen before it is believed, after a follow-up
            without evidence that the result is its own.
        settle_seconds: For how many seconds it must also be seen. With evidence, a result that
            could be the one before is not believed until so many seconds after the
            follow-up; it must be longer than the service's replicas are behind.
        settle_gap: Longest interval while a result settles, in seconds.

    Raises:
        ConfigurationError: A figure is not a number, or is too small.

    Example:
        >>> [PollPolicy().delay(polls, 0.5) for polls in range(5)]
        [0.0, 2.0, 3.0, 4.5, 6.75]
    """

    first: float = field(default=0.0, validator=_at_least(0.0))
    initial: float = field(default=2.0, validator=_at_least(0.0))
    factor: float = field(default=1.5, validator=_at_least(1.0))
    cap: float = field(default=30.0, validator=_at_least(0.0))
    jitter: float = field(default=0.2, validator=_at_least(0.0))
    floor: float = field(default=1.0, validator=_at_least(0.0))
    per_second: float = field(default=50.0, validator=_at_least(0.001))
    concurrency: int = field(default=64, validator=_at_least(1))
    timeout: float = field(default=10.0, validator=_at_least(0.001))
    outage: float = field(default=300.0, validator=_at_least(0.0))
    not_found: float = field(default=30.0, validator=_at_least(0.0))
    retry_after_cap: float = field(default=300.0, validator=_at_least(0.0))
    settle_polls: int = field(default=4, validator=_at_least(1))
    settle_seconds: float = field(default=60.0, validator=_at_least(0.0))
    settle_gap: float = field(default=10.0, validator=_at_least(0.001))

    def __attrs_post_init__(self) -> None:
        """Check the jitter's upper limit."""
        if self.jitter >= 1:
            raise ConfigurationError(
                "jitter must be below 1: it is a fraction of the interval", field="jitter"
            )

    def delay(self, polls: int, random: float) -> float:
        """Return the seconds until the next poll.

        Args:
            polls: How many there were; 0 asks for the first.
            random: A number from 0 up to 1.
        """
        if polls == 0:
            return self.first
        # Both minima keep the power within what a float can hold.
        interval = min(self.cap, self.initial * min(self.factor, 1000.0) ** min(polls - 1, 64))
        varied = interval * (1 + self.jitter * (2 * random - 1))
        return max(self.floor, min(self.cap, varied))


class PollCalls(Protocol):
    """What waits and the scheduler need of the agent API, which is made of them."""

    @property
    def clock(self) -> Clock:
        """The session's clock."""
        ...

    @property
    def poll(self) -> PollPolicy:
        """When jobs are polled."""
        ...

    def random(self) -> float:
        """Return a random number from 0 up to 1."""
        ...

    def get_job(
        self, job_id: str, *, project_id: str, retry: bool, limit: float | None = None
    ) -> Coroutine[Any, Any, Job]:
        """Get a job; without retries and within ``PollPolicy.timeout`` when *retry* is false."""
        ...


@frozen(eq=False, repr=False, match_args=False)
class PollResult:
    """The outcome of one poll.

    Attributes:
        job: The record, or None when the poll failed.
        error: Why it failed, or None.
        began: When the poll began.
        ended: When it ended.
        retry_after: The pause that the service asked for, in seconds.
    """

    job: Job | None
    error: Exception | None
    began: float
    ended: float
    retry_after: float
