"""The stale guard: whether a job's terminal state is the result of its newest turn.

After a follow-up the service may still show the result of the turn before it.
No I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import define

from ..model.job import TERMINAL_STATES, Job
from ..model.job_ref import JobRef

if TYPE_CHECKING:
    from .polling import PollPolicy

__all__ = ["JobState", "SettledBy", "StaleGuard"]

SettledBy = Literal["evidence", "grace"]

ACTIVE = "active"


class StaleGuard:
    """Distinguishes a follow-up's result from the one before it.

    The guard ends with evidence: a later poll that shows ``active``, or another
    terminal status than before the follow-up. When the job was active then, or its
    status was not seen, there can be no evidence. Without evidence a terminal state
    is believed once it has lasted through the settle window: *settled by grace*.
    """

    __slots__ = ("_last", "_missed", "_polls", "_since", "_status", "baseline", "settled_by")

    def __init__(self, baseline: str | None) -> None:
        """Guard against *baseline*, the status before the follow-up, or None when it was not seen."""
        self.baseline = baseline
        self.settled_by: SettledBy | None = None
        self._begin("", 0.0)

    @property
    def settling(self) -> bool:
        """Whether a terminal state was seen that must still last."""
        return self.settled_by is None and self._polls > 0

    def see(self, status: str, at: float, policy: PollPolicy) -> None:
        """Take in the status that a poll has shown, which ended *at*."""
        if self.settled_by is not None:
            return
        if self._is_evidence(status):
            self.settled_by = "evidence"
        elif status not in TERMINAL_STATES:
            self._begin("", at)
        else:
            self._count(status, at, policy)

    def miss(self) -> None:
        """Take in that a poll failed: the time until the next one does not count."""
        self._missed = True

    def _is_evidence(self, status: str) -> bool:
        if self.baseline not in TERMINAL_STATES:
            return False  # active, unknown or not seen: what comes may still belong to the turn before
        return status == ACTIVE or (status in TERMINAL_STATES and status != self.baseline)

    def _begin(self, status: str, at: float) -> None:
        self._status, self._since, self._last, self._polls, self._missed = status, at, at, 0, False

    def _count(self, status: str, at: float, policy: PollPolicy) -> None:
        if self._polls == 0 or status != self._status:
            self._begin(status, at)
        if self._missed:
            self._since += at - self._last
        self._polls, self._last, self._missed = self._polls + 1, at, False
        if self._polls >= policy.settle_polls and at - self._since >= policy.settle_seconds:
            self.settled_by = "grace"


@define(eq=False)
class GuardChange:
    """The change of the guard by a follow-up; taken back when nothing was sent."""

    before: StaleGuard | None
    after: StaleGuard


class JobState:
    """What this process knows of a job; shared by its handle and all its turns.

    Args:
        ref: Names the job, and says whether its newest turn's result is awaited.
        job: Its last record, or None.
        created_at: When this process created it, on the monotonic clock, or None.

    Attributes:
        turn_number: Grows with each follow-up. A poll that began at a lower number says
            nothing of the newest turn.
    """

    __slots__ = ("_guard", "_seen_at", "_sending", "created_at", "id", "job", "project_id", "turn_number")

    def __init__(self, ref: JobRef, job: Job | None = None, created_at: float | None = None) -> None:
        """Start with what is known."""
        self.project_id, self.id = ref.project_id, ref.id
        self.job = job
        self.created_at = created_at
        self.turn_number = 0
        self._guard = StaleGuard(ref.baseline) if ref.awaiting_turn else None
        self._sending: tuple[GuardChange, ...] = ()
        self._seen_at: float | None = None

    @property
    def settled(self) -> bool:
        """Whether a terminal state may be believed."""
        return not self._sending and (self._guard is None or self._guard.settled_by is not None)

    @property
    def settling(self) -> bool:
        """Whether a terminal state was seen that must still last."""
        return self._guard is not None and self._guard.settling

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
        """Names the job; with ``awaiting_turn`` while the newest turn's own result was not seen."""
        if self.settled or self._guard is None:
            return JobRef(self.project_id, self.id)
        return JobRef(self.project_id, self.id, awaiting_turn=True, baseline=self._guard.baseline)

    def see(self, job: Job, at: float, policy: PollPolicy) -> None:
        """Take in the record of a poll that ended *at*. Several waits may report the same poll."""
        if job is self.job and at == self._seen_at:
            return
        self.job, self._seen_at = job, at
        if self._guard is not None and not self._sending:
            self._guard.see(job.status, at, policy)

    def miss(self) -> None:
        """Take in that a poll failed."""
        if self._guard is not None:
            self._guard.miss()

    def before_send(self, baseline: str | None) -> GuardChange:
        """Begin to guard a follow-up that is about to be sent; *baseline* is the status before it."""
        # While an earlier turn's result was not seen, what comes next may be that turn's.
        if not self.settled or (baseline is not None and baseline not in TERMINAL_STATES):
            baseline = ACTIVE
        change = GuardChange(self._guard, StaleGuard(baseline))
        self._guard = change.after
        self._sending += (change,)
        self.turn_number += 1
        return change

    def sent(self, change: GuardChange, job: Job | None = None) -> None:
        """Trust polls again: the follow-up was answered with *job*, or its outcome is unknown."""
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
