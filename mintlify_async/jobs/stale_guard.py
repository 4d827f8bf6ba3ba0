"""The stale guard: whether a job's terminal state is the result of its newest turn.

After a follow-up the service may still show the result of the turn before it,
also after it has shown the new turn at work: polls may be answered by replicas
that are behind. No I/O.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from attrs import define

from ..model.job import TERMINAL_STATES, Job
from ..model.job_ref import JobRef

if TYPE_CHECKING:
    from .polling import PollPolicy

SettledBy = Literal["evidence", "grace"]

ACTIVE = "active"


class StaleGuard:
    """Distinguishes a follow-up's result from the one before it.

    Evidence is a later poll that shows ``active``, or another terminal status than
    before the follow-up. When the job was active then, or its status was not seen,
    there can be no evidence; without it, a terminal state is believed once it has
    lasted through the settle window: *settled by grace*. With it, a terminal state
    that could be the one before (the same status, and no other pull request) is
    believed once the settle window has passed since the follow-up was sent.

    Args:
        baseline: The status before the follow-up, or None when it was not seen.
        pr_link: The pull request's address before it, or None.
        sent_at: When the follow-up was sent, on the monotonic clock.
        seen: Whether there was evidence already.

    Attributes:
        believed: Whether the last record, if terminal, may be believed.
        settled_by: How a result was first believed; None before.
        over: Whether every later record may be believed.
    """

    def __init__(
        self, baseline: str | None, pr_link: str | None = None, sent_at: float = 0.0, *, seen: bool = False
    ) -> None:
        """Guard against the given baseline."""
        self.baseline, self.pr_link, self.sent_at, self.seen = baseline, pr_link, sent_at, seen
        self.settled_by: SettledBy | None = None
        self.believed = self.over = False
        self._begin("", 0.0)

    @property
    def settling(self) -> bool:
        """Whether a terminal state was seen that must still last."""
        return not self.believed and self._polls > 0

    def see(self, job: Job, at: float, policy: PollPolicy) -> None:
        """Take in the record of a poll that ended *at*."""
        if self.over:
            return
        terminal = job.status in TERMINAL_STATES
        if self.baseline in TERMINAL_STATES and (job.status == ACTIVE or terminal):
            self.seen = self.seen or job.status != self.baseline
        if self.seen:
            self.over = at >= self.sent_at + policy.settle_seconds
            self.believed = self.over or (terminal and not self._may_be_stale(job))
        if self.believed:
            self.settled_by = "evidence"
        elif terminal:
            self._count(job.status, at, policy)
        else:
            self._begin("", at)

    def miss(self) -> None:
        """Take in that a poll failed: the time until the next one does not count."""
        self._missed = True

    def _may_be_stale(self, job: Job) -> bool:
        """Return whether *job*, which is terminal, could be the record from before the follow-up."""
        another_link = self.pr_link is not None and job.pr_link not in (None, self.pr_link)
        return job.status == self.baseline and not another_link

    def _begin(self, status: str, at: float) -> None:
        self._status, self._since, self._last, self._polls, self._missed = status, at, at, 0, False

    def _count(self, status: str, at: float, policy: PollPolicy) -> None:
        if self._polls == 0 or status != self._status:
            self._begin(status, at)
        if self._missed:
            self._since += at - self._last
        self._polls, self._last, self._missed = self._polls + 1, at, False
        if self._polls >= policy.settle_polls and at - self._since >= policy.settle_seconds:
            self.settled_by, self.believed, self.over = "grace", True, True


@define(eq=False)
class GuardChange:
    """The change of the guard by a follow-up; taken back when nothing was sent."""

    before: StaleGuard | None
    after: StaleGuard


class JobState:
    """What a session knows of a job; shared by all its handles and turns.

    Args:
        ref: Names the job, and says whether its newest turn's result is awaited.
        now: The monotonic clock's time.
        wall: The wall clock's time, for the times in references.

    Attributes:
        job: Its last record, or None.
        seen_at: When a poll last showed it, or None.
        created_at: When it was created, on the monotonic clock, or None.
        turn_number: Grows with each follow-up. A poll that began at a lower number says
            nothing of the newest turn.
    """

    def __init__(self, ref: JobRef, now: float = 0.0, wall: float = 0.0) -> None:
        """Start with what *ref* says."""
        self.key = ref.project_id, ref.id
        self._wall_offset = wall - now
        self.job: Job | None = None
        self.created_at: float | None = None
        self.turn_number = 0
        self._guard: StaleGuard | None = None
        self._sending: tuple[GuardChange, ...] = ()
        self.seen_at: float | None = None
        self.join(ref, now)

    def join(self, ref: JobRef, now: float) -> None:
        """Take in what *ref* says and is not known yet: a creation, a newer follow-up."""
        if self.created_at is None and ref.created_at is not None:
            self.created_at = min(now, ref.created_at - self._wall_offset)
        if not ref.awaiting_turn or self._sending:
            return
        sent_at = now if ref.sent_at is None else min(now, ref.sent_at - self._wall_offset)
        newer = ref.sent_at is not None and self._guard is not None and sent_at > self._guard.sent_at + 0.001
        if self._guard is None or newer:
            self._guard = StaleGuard(ref.baseline, ref.baseline_pr_link, sent_at, seen=ref.turn_seen)
            self.turn_number += 1

    @property
    def settled(self) -> bool:
        """Whether the last record, if terminal, may be believed."""
        return not self._sending and (self._guard is None or self._guard.believed)

    @property
    def settling(self) -> bool:
        """Whether a terminal state was seen that must still last."""
        return self._guard is not None and self._guard.settling

    @property
    def settles_after(self) -> float | None:
        """When the newest follow-up was sent, if there is evidence of its turn; else None."""
        return self._guard.sent_at if self._guard is not None and self._guard.seen else None

    @property
    def settled_by(self) -> SettledBy | None:
        """How the newest turn's guard ended; None while it has not, or without a guard."""
        return None if self._guard is None else self._guard.settled_by

    @property
    def done(self) -> bool:
        """Whether the last record is terminal and may be believed."""
        return self.job is not None and self.job.done and self.settled

    @property
    def ref(self) -> JobRef:
        """Names the job; with ``awaiting_turn`` while a stale record may still be shown."""
        offset, guard = self._wall_offset, self._guard
        created_at = None if self.created_at is None else self.created_at + offset
        if guard is None or (guard.over and not self._sending):
            return JobRef(*self.key, created_at=created_at)
        return JobRef(
            *self.key,
            awaiting_turn=True,
            baseline=guard.baseline,
            baseline_pr_link=guard.pr_link,
            turn_seen=guard.seen,
            sent_at=guard.sent_at + offset,
            created_at=created_at,
        )

    def see(self, job: Job, at: float, policy: PollPolicy) -> None:
        """Take in the record of a poll that ended *at*. Several waits may report the same poll."""
        if job is self.job and at == self.seen_at:
            return
        self.job, self.seen_at = job, at
        if self._guard is not None and not self._sending:
            self._guard.see(job, at, policy)

    def miss(self) -> None:
        """Take in that a poll failed."""
        if self._guard is not None:
            self._guard.miss()

    def may_be_new(self, at: float, policy: PollPolicy) -> bool:
        """Return whether the service may not know the job yet: it was created a short time ago."""
        new = self.created_at is not None and at - self.created_at <= policy.not_found
        return new and self.seen_at is None

    def before_send(self, before: Job | None, now: float) -> GuardChange:
        """Begin to guard a follow-up that is about to be sent; *before* is the record before it."""
        baseline = pr_link = None
        if not self.settled or (before is not None and not before.done):
            baseline = ACTIVE  # what comes next may be the result of an earlier turn
        elif before is not None:
            baseline, pr_link = before.status, before.pr_link
        change = GuardChange(self._guard, StaleGuard(baseline, pr_link, now))
        self._guard = change.after
        self._sending += (change,)
        self.turn_number += 1
        return change

    def sent(self, change: GuardChange, now: float, job: Job | None = None) -> None:
        """Trust polls again: the follow-up was answered with *job*, or its outcome is unknown."""
        change.after.sent_at = now
        self._end_sending(change)
        if job is not None:
            self.job = job

    def not_sent(self, change: GuardChange) -> None:
        """Take *change* back: the follow-up certainly started nothing."""
        self._end_sending(change)
        if self._guard is change.after:
            self._guard = change.before
        for later in self._sending:
            if later.before is change.after:
                later.before = change.before

    def _end_sending(self, change: GuardChange) -> None:
        self._sending = tuple(other for other in self._sending if other is not change)
        self.turn_number += 1


class JobStates:
    """The states of a session's jobs, as long as a handle or a wait uses them."""

    def __init__(self) -> None:
        """Start empty."""
        self._states: WeakValueDictionary[tuple[str, str], JobState] = WeakValueDictionary()
        self._lock = threading.Lock()  # a session may serve several threads

    def of(self, ref: JobRef, now: float, wall: float) -> JobState:
        """Return the state of the job that *ref* names, with what *ref* adds to it."""
        with self._lock:
            state = self._states.get((ref.project_id, ref.id))
            if state is None:
                state = JobState(ref, now, wall)
                self._states[state.key] = state
            else:
                state.join(ref, now)
            return state
