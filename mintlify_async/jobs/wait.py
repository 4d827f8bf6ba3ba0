"""One wait for one job: whether it goes on after a poll, until when, and how it ends. No I/O."""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable
from typing import Final, Literal

from attrs import define, field, frozen

from ..errors import (
    APIConnectionError,
    APIStatusError,
    ConfigurationError,
    JobFailedError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    UnexpectedResponseError,
)
from ..model.job import Job
from ..protocol.argument_checks import check_seconds
from ..protocol.object_checks import check_function
from .polling import PollCalls, PollResult
from .stale_guard import JobState

DEFAULT_TIMEOUT: Final = 1800.0
"""Longest wait, in seconds. Most jobs take 1 to 5 minutes; a wait without a limit can hang a worker."""

DEFAULT_PR_GRACE: Final = 60.0
"""How long after its job's completion a pull request may appear, in seconds."""

Until = Literal["terminal", "pr", "change"]
OnChange = Callable[[Job], object]

TOLERATED_STATUSES: Final = frozenset((408, 425, 429))
"""Statuses below 500 that do not end a wait at once, but count as an outage like 5xx."""


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class WaitRules:
    """What a wait waits for.

    Args:
        check: Whether a failed job is an error.
        until: ``terminal``; ``pr``: terminal with a pull request, or *pr_grace* later;
            ``change``: a record that differs from the last.
        pr_grace: In seconds.
        on_change: Called with each new record.
        context: The context in which it is called; the polls have an empty one.
        on_poll: Called after each poll; must not raise.
    """

    check: bool = True
    until: Until = "terminal"
    pr_grace: float = DEFAULT_PR_GRACE
    on_change: OnChange | None = None
    context: contextvars.Context | None = None
    on_poll: Callable[[PollResult], object] | None = None

    @classmethod
    def checked(cls, *, check: bool, until: object, pr_grace: float, on_change: OnChange | None) -> WaitRules:
        """Return the rules for a caller's arguments.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        if until not in ("terminal", "pr"):
            raise ConfigurationError(f"until must be 'terminal' or 'pr', not {until!r}", field="until")
        check_seconds(pr_grace, "pr_grace", zero=True)
        check_function(on_change, "on_change")
        if on_change is None and check and until == "terminal":
            return DEFAULT_RULES  # thousands of waits share it
        return cls(
            check=check,
            until="pr" if until == "pr" else "terminal",
            pr_grace=pr_grace,
            on_change=on_change,
            context=None if on_change is None else contextvars.copy_context(),
        )

    def tell(self, job: Job) -> None:
        """Call ``on_change`` in its context."""
        if self.on_change is not None and self.context is not None:
            self.context.copy().run(self.on_change, job)


DEFAULT_RULES: Final = WaitRules()


@define(eq=False, repr=False, weakref_slot=False)
class JobWait:
    """One wait for one job, with its own deadline and rules.

    Args:
        state: What is known of the job; other waits may share it.
        rules: What to wait for.
        calls: The agent API: its clock, its poll policy and its random numbers.
        timeout: When to give up, in seconds from now, or None.

    Attributes:
        woken: A future that is resolved when the wait is over, or None.
        notify: Called once, when the wait is over, or None; must not raise.
    """

    state: JobState
    _rules: WaitRules
    _calls: PollCalls
    _timeout: float | None
    deadline: float | None = field(default=None, init=False)
    due: float = field(init=False)
    error: Exception | None = field(default=None, init=False)
    over: bool = field(default=False, init=False)
    place: int = field(default=-1, init=False)
    woken: asyncio.Future[None] | None = field(default=None, init=False)
    notify: Callable[[JobWait], object] | None = field(default=None, init=False)
    _began: float = field(init=False)
    _polls: int = field(default=0, init=False)
    _failing_since: float | None = field(default=None, init=False)
    _pr_until: float | None = field(default=None, init=False)
    _told: Job | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Start the timeout."""
        self._began = self._calls.clock.now()
        if self._timeout is not None:
            self.deadline = self._began + self._timeout
        self.due = self._by_deadline(self._began + self._calls.poll.first)

    @property
    def key(self) -> tuple[str, str]:
        """The project and the job."""
        return self.state.key

    @property
    def turn_number(self) -> int:
        """Which follow-up is the newest."""
        return self.state.turn_number

    def result(self) -> Job:
        """Return the record that ended the wait, or raise the error that did."""
        if self.error is not None:
            raise self.error
        assert self._told is not None
        return self._told

    def take(self) -> Job:
        """Return a change, and continue the wait at the pace that its polls have reached."""
        job = self.result()
        self.over = False
        return job

    # What the scheduler calls

    def on_poll(self, result: PollResult, turn_number: int) -> None:
        """Take in a poll that began at *turn_number*: end the wait, or set ``due``."""
        self._polls += 1
        try:
            if self._rules.on_poll is not None:
                self._rules.on_poll(result)
            if turn_number == self.state.turn_number:  # else the poll says nothing of the newest turn
                self._judge(result)
            self._plan(result)
            if not self.over and self.deadline is not None and result.ended >= self.deadline:
                self.give_up(result.ended)
        except Exception as error:  # on_change is the caller's; what it raises ends this wait alone
            self.fail(error)

    def give_up(self, at: float) -> None:
        """End the wait: its deadline has passed."""
        if self._pr_grace_ends is not None:
            self._end(self.state.job)
        else:
            self.fail(JobTimeoutError(self.state.ref, self.state.job, at - self._began))

    def fail(self, error: Exception) -> None:
        """End the wait with *error*."""
        self.error = error
        self._finish()

    # The rules

    def _judge(self, result: PollResult) -> None:
        if result.job is None:
            self._judge_failure(result)
            return
        self._failing_since = None
        self.state.see(result.job, result.ended, self._calls.poll)
        if self.state.done:
            self._tell(result.job)
            self._judge_terminal(result.job, result.ended)
            return
        self._pr_until = None  # a newer turn is at work; its pull request has its own grace
        if not result.job.done:
            self._tell(result.job)

    def _judge_failure(self, result: PollResult) -> None:
        self.state.miss()
        if not self._tolerates(result):
            error = result.error
            assert error is not None  # a poll without a record has one
            # Several waits may raise the error of one poll; each needs its own traceback.
            raise copy.copy(error) if isinstance(error, MintlifyError) else error
        if self._pr_grace_ends is not None and result.ended >= self._pr_grace_ends:
            self._end(self.state.job)

    @property
    def _pr_grace_ends(self) -> float | None:
        """When a job that is done counts as one without a pull request; None while it is not done."""
        return self._pr_until if self.state.done else None

    def _tolerates(self, result: PollResult) -> bool:
        """Return whether the wait goes on after a poll that failed."""
        error = result.error
        if isinstance(error, NotFoundError):
            if self.state.may_be_new(result.ended, self._calls.poll):
                return True
            outage = self.state.seen_at is not None
        elif isinstance(error, APIStatusError) and error.status < 500:
            outage = error.status in TOLERATED_STATUSES
        else:
            outage = isinstance(error, APIStatusError | APIConnectionError | UnexpectedResponseError)
        if not outage:
            return False
        if self._failing_since is None:
            self._failing_since = result.ended
        return result.ended - self._failing_since < self._calls.poll.outage

    def _tell(self, job: Job) -> None:
        """Report a record that differs from the last one; a terminal one only when it is believed."""
        if job == self._told:
            return
        self._told = job
        self._rules.tell(job)
        if self._rules.until == "change":
            self._end(job)

    def _judge_terminal(self, job: Job, at: float) -> None:
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

    def _plan(self, result: PollResult) -> None:
        # Also when a change has ended this step of a watch: the next step continues from here.
        delay = self._calls.poll.delay(self._polls, self._calls.random())
        if self.state.settling or self._pr_grace_ends is not None:
            delay = min(delay, self._calls.poll.settle_gap)
        due = result.ended + delay
        if self.state.settling and self.state.settles_after is not None:
            ends = self.state.settles_after + self._calls.poll.settle_seconds
            due = min(due, max(ends, result.ended))
        if self._pr_grace_ends is not None:
            due = min(due, self._pr_grace_ends)
        self.due = max(self._by_deadline(due), result.ended + result.retry_after)

    def _by_deadline(self, due: float) -> float:
        # The last poll begins at the deadline.
        return due if self.deadline is None else min(due, self.deadline)

    def _end(self, job: Job | None) -> None:
        self._told = job
        self._finish()

    def _finish(self) -> None:
        if self.over:
            return
        self.over = True
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)
        if self.notify is not None:
            self.notify(self)
