"""Looks at one job come in; whether a wait goes on, until when, and what it ends with goes out. No I/O."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import sys
from collections.abc import Callable
from typing import Final, Literal, Protocol

from attrs import frozen

from .clock import Clock
from .errors import (
    APIConnectionError,
    APIStatusError,
    ConfigurationError,
    JobFailedError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    UnexpectedResponseError,
)
from .models import Job
from .polling import Look
from .retry import PollPolicy
from .turns import JobTrack

__all__ = ["DEFAULT_PR_GRACE", "DEFAULT_TIMEOUT", "JobWait", "Until", "WaitRules"]

DEFAULT_TIMEOUT: Final = 1800.0
"""Seconds that a wait lasts at most. Most jobs take 1 to 5 minutes; a wait without end hangs a worker."""

DEFAULT_PR_GRACE: Final = 60.0
"""Seconds that a pull request may come after its job has completed."""

Until = Literal["terminal", "pr", "change"]
OnChange = Callable[[Job], object]

_MOST: Final = sys.float_info.max  # an int may be more, and no clock can add that

_BORNE_STATUSES = frozenset((408, 425, 429))


@frozen(kw_only=True)
class WaitRules:
    """What one wait, or many alike, wait for.

    Args:
        check: Whether a failed job is an error.
        until: ``terminal``; ``pr``: terminal with a pull request, or *pr_grace* later;
            ``change``: another record than the last.
        pr_grace: In seconds.
        on_change: Called with each new record.
        context: In which it is called.
        on_look: Called after each look; must not raise.
    """

    check: bool = True
    until: Until = "terminal"
    pr_grace: float = DEFAULT_PR_GRACE
    on_change: OnChange | None = None
    context: contextvars.Context | None = None
    on_look: Callable[[Look], object] | None = None

    @classmethod
    def checked(cls, *, check: bool, until: object, pr_grace: float, on_change: OnChange | None) -> WaitRules:
        """Return the rules that a caller asks for.

        Raises:
            ConfigurationError: An argument is none of what it can be.
        """
        if until not in ("terminal", "pr"):
            raise ConfigurationError(f"until must be 'terminal' or 'pr', not {until!r}", field="until")
        check_seconds(pr_grace, "pr_grace")
        if on_change is None and check and until == "terminal":
            return DEFAULT_RULES
        if on_change is not None and not _is_plain_function(on_change):
            raise ConfigurationError("on_change must be a plain function of one Job", field="on_change")
        context = None if on_change is None else contextvars.copy_context()
        return cls(
            check=check,
            until="pr" if until == "pr" else "terminal",
            pr_grace=pr_grace,
            on_change=on_change,
            context=context,
        )

    def tell(self, job: Job) -> None:
        """Call ``on_change`` as the one who waits would: in their context, not in the polls' empty one."""
        if self.on_change is not None and self.context is not None:
            self.context.copy().run(self.on_change, job)


def _is_plain_function(given: object) -> bool:
    """Return whether *given* can be called, and nobody would have to await what it returns."""
    if not callable(given) or inspect.iscoroutinefunction(given):
        return False
    return not inspect.iscoroutinefunction(type(given).__call__)


DEFAULT_RULES: Final = WaitRules()


def check_seconds(value: object, name: str) -> None:
    """Refuse what is no finite number of seconds, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ConfigurationError(f"{name} must be a finite number of seconds, 0 or more", field=name)


def check_timeout(timeout: object) -> None:
    """Refuse what is neither None nor a number of seconds."""
    if timeout is not None:
        try:
            check_seconds(timeout, "timeout")
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; None waits without end", field="timeout") from None


class WaitCalls(Protocol):
    """What a wait needs of a session."""

    @property
    def clock(self) -> Clock:
        """The session's clock."""
        ...

    @property
    def poll(self) -> PollPolicy:
        """When to look, and what to bear."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        ...


class JobWait:
    """One wait for one job, by its own clock and rules; fed by the scheduler.

    Args:
        track: What is known of the job; others may share it.
        rules: What to wait for.
        calls: When to look, the dice and the clock.
        timeout: When to give up, in seconds from now, or None.

    Attributes:
        woken: Set by whoever waits alone: gets a result when the wait is over.
        notify: Set by whoever waits for many: called once, when the wait is over; must not raise.
    """

    __slots__ = (
        "_began",
        "_calls",
        "_failing_since",
        "_looks",
        "_pr_until",
        "_rules",
        "_told",
        "deadline",
        "due",
        "entered",
        "error",
        "notify",
        "over",
        "track",
        "woken",
    )

    def __init__(
        self,
        track: JobTrack,
        rules: WaitRules,
        calls: WaitCalls,
        timeout: float | None,
    ) -> None:
        """Begin now."""
        now = calls.clock.now()
        self.track = track
        self._rules = rules
        self._calls = calls
        self.woken: asyncio.Future[None] | None = None
        self.notify: Callable[[JobWait], object] | None = None
        self._began = now
        self._looks = 0
        self._failing_since: float | None = None
        self._pr_until: float | None = None
        self._told: Job | None = None
        self.deadline: float | None = None if timeout is None else now + timeout
        self.due = self._by_deadline(now + calls.poll.first)
        self.error: Exception | None = None
        self.over = False
        self.entered = False

    @property
    def key(self) -> tuple[str, str]:
        """The project and the job."""
        return self.track.project_id, self.track.id

    @property
    def era(self) -> int:
        """Which follow-up is the newest."""
        return self.track.era

    def result(self) -> Job:
        """Return the record that ended the wait, or raise what did."""
        if self.error is not None:
            raise self.error
        assert self._told is not None
        return self._told

    def take(self) -> Job:
        """Return a change, and go on at the pace that the looks before have set."""
        job = self.result()
        self.over = False
        return job

    # What the scheduler calls -----------------------------------------------------------------

    def hear(self, look: Look, era: int) -> None:
        """Take in a look that began in *era*: be over, or set ``due`` anew."""
        self._looks += 1
        try:
            if self._rules.on_look is not None:
                self._rules.on_look(look)
            if era == self.track.era:  # else it began before the newest follow-up, and says nothing of it
                self._judge(look)
            self._plan(look)
            if not self.over and self.deadline is not None and look.ended >= self.deadline:
                self.give_up(look.ended)
        except Exception as error:  # on_change is the caller's: what it raises ends this wait, and only this
            self.fail(error)

    def give_up(self, at: float) -> None:
        """Be over: the deadline has come."""
        if self._pr_grace_ends is not None:
            self._end_without_pr()
        else:
            self.fail(JobTimeoutError(self.track.ref, self.track.job, at - self._began))

    def fail(self, error: Exception) -> None:
        """Be over, with *error*."""
        self.error = error
        self._finish()

    # The rules --------------------------------------------------------------------------------

    def _judge(self, look: Look) -> None:
        if look.job is None:
            self.track.miss()
            if not self._bears(look):
                raise _own(look.error)
            if self._pr_grace_ends is not None and look.ended >= self._pr_grace_ends:
                self._end_without_pr()
            return
        self._failing_since = None
        self.track.see(look.job, look.ended, self._calls.poll)
        if self.track.done:
            self._tell(look.job)
            self._terminal(look.job, look.ended)
            return
        self._pr_until = None  # a newer turn is at work, and its pull request has a grace of its own
        if not look.job.done:
            self._tell(look.job)

    @property
    def _pr_grace_ends(self) -> float | None:
        """When a job that is done is believed to have no pull request; None while it is not done."""
        return self._pr_until if self.track.done else None

    def _bears(self, look: Look) -> bool:
        """Return whether the wait goes on after a look that failed."""
        error, created_at = look.error, self.track.created_at
        if isinstance(error, NotFoundError):
            return created_at is not None and look.ended - created_at <= self._calls.poll.not_found
        if isinstance(error, APIStatusError) and error.status < 500 and error.status not in _BORNE_STATUSES:
            return False
        if not isinstance(error, APIStatusError | APIConnectionError | UnexpectedResponseError):
            return False
        if self._failing_since is None:
            self._failing_since = look.ended
        return look.ended - self._failing_since < self._calls.poll.outage

    def _tell(self, job: Job) -> None:
        """Hand out a record that is another than the last; a terminal one only once it is believed."""
        if job == self._told:
            return
        self._told = job
        self._rules.tell(job)
        if self._rules.until == "change":
            self._end(job)

    def _terminal(self, job: Job, at: float) -> None:
        if self.over:
            return
        if job.status == "failed" and self._rules.check:
            raise JobFailedError(job)
        if self._rules.until == "pr" and job.status == "completed" and job.pr_link is None:
            if self._pr_until is None:
                self._pr_until = at + self._rules.pr_grace
            if at < self._pr_until:
                return
        self._end(job)

    def _plan(self, look: Look) -> None:
        """Set when to look next; also when a change ends this step, for the one after it."""
        delay = self._calls.poll.delay(self._looks, self._calls.random())
        if self.track.settling or self._pr_grace_ends is not None:
            delay = min(delay, self._calls.poll.settle_gap)
        due = look.ended + delay
        if self._pr_grace_ends is not None:
            due = min(due, self._pr_grace_ends)
        self.due = max(self._by_deadline(due), look.ended + look.retry_after)

    def _by_deadline(self, due: float) -> float:
        """Return *due*, or the deadline when that is earlier: the last look."""
        return due if self.deadline is None else min(due, self.deadline)

    def _end_without_pr(self) -> None:
        assert self.track.job is not None
        self._end(self.track.job)

    def _end(self, job: Job) -> None:
        self._told = job
        self._finish()

    def _finish(self) -> None:
        if not self.over:
            self.over = True
            if self.woken is not None and not self.woken.done():
                self.woken.set_result(None)
            if self.notify is not None:
                self.notify(self)


def _own(error: Exception | None) -> Exception:
    """Return a copy: several waits may raise what one poll brought, each with its own traceback."""
    if isinstance(error, MintlifyError):
        return copy.copy(error)
    return error if error is not None else AssertionError("a look without a record has an error")
