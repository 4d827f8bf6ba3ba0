"""Looks at a job come in; whether a terminal state is the newest turn's own comes out. Pure."""

from __future__ import annotations

from typing import Literal

from attrs import define

from .job import Job
from .refs import JobRef
from .retry import PollPolicy

__all__ = ["JobTrack", "SettledBy", "StaleGuard"]

SettledBy = Literal["evidence", "grace"]

ACTIVE = "active"
_TERMINAL = frozenset(("completed", "archived", "failed"))


class StaleGuard:
    """Tells a follow-up's result from the one before it, which the service may still show.

    Evidence ends the guard: a later look that shows ``active``, or another terminal
    status than before the follow-up. When the job was active then, or was not seen,
    there can be none. Without evidence a terminal state is believed once it has lasted
    through the settle window: the result *settled by grace*.
    """

    __slots__ = ("_gap", "_last", "_looks", "_since", "_status", "baseline", "settled_by")

    def __init__(self, baseline: str | None) -> None:
        """Guard against *baseline*, the status before the follow-up, or None when it was not seen."""
        self.baseline = baseline
        self.settled_by: SettledBy | None = None
        self._begin("", 0.0)

    @property
    def settling(self) -> bool:
        """Whether a terminal state is being watched for whether it lasts."""
        return self.settled_by is None and self._looks > 0

    def see(self, status: str, at: float, policy: PollPolicy) -> None:
        """Take in what a look that ended *at* has shown."""
        if self.settled_by is not None:
            return
        if self._is_evidence(status):
            self.settled_by = "evidence"
        elif status not in _TERMINAL:
            self._begin("", at)
        else:
            self._persists(status, at, policy)

    def miss(self) -> None:
        """Take in that a look failed: the time until the next one does not count."""
        self._gap = True

    def _is_evidence(self, status: str) -> bool:
        if self.baseline not in _TERMINAL:
            return False  # active, unknown or not seen: whatever comes may still be the turn before
        return status == ACTIVE or (status in _TERMINAL and status != self.baseline)

    def _begin(self, status: str, at: float) -> None:
        self._status, self._since, self._last, self._looks, self._gap = status, at, at, 0, False

    def _persists(self, status: str, at: float, policy: PollPolicy) -> None:
        if self._looks == 0 or status != self._status:
            self._begin(status, at)
        if self._gap:
            self._since += at - self._last
        self._looks, self._last, self._gap = self._looks + 1, at, False
        if self._looks >= policy.settle_polls and at - self._since >= policy.settle_seconds:
            self.settled_by = "grace"


@define(eq=False)
class GuardChange:
    """What a follow-up does to the guard, to be taken back when it turns out that nothing was sent."""

    before: StaleGuard | None
    after: StaleGuard


class JobTrack:
    """What one process knows of a job: shared by its handle and all its turns.

    Args:
        ref: Names the job, and says whether it is guarded from the start.
        job: Its last record, or None.
        created_at: When this process created it, on the monotonic clock, or None.
    """

    __slots__ = ("_guard", "_seen_at", "_sending", "created_at", "era", "id", "job", "project_id")

    def __init__(self, ref: JobRef, job: Job | None = None, created_at: float | None = None) -> None:
        """Begin with what is known."""
        self.project_id, self.id = ref.project_id, ref.id
        self.job = job
        self.created_at = created_at
        self.era = 0
        """Grows with each follow-up. A look that began in an earlier era says nothing of the newest turn."""
        self._guard = StaleGuard(ref.baseline) if ref.armed else None
        self._sending: tuple[GuardChange, ...] = ()
        self._seen_at: float | None = None

    @property
    def settled(self) -> bool:
        """Whether a terminal state may be believed."""
        return not self._sending and (self._guard is None or self._guard.settled_by is not None)

    @property
    def settling(self) -> bool:
        """Whether a terminal state is being watched for whether it lasts."""
        return self._guard is not None and self._guard.settling

    @property
    def settled_by(self) -> SettledBy | None:
        """How the newest turn's guard ended; None while it has not, or when there is none."""
        return None if self._guard is None else self._guard.settled_by

    @property
    def done(self) -> bool:
        """Whether the last record is terminal and may be believed."""
        return self.job is not None and self.job.done and self.settled

    @property
    def ref(self) -> JobRef:
        """Names the job; armed while the newest turn's own result has not been seen."""
        if self.settled or self._guard is None:
            return JobRef(self.project_id, self.id)
        return JobRef(self.project_id, self.id, armed=True, baseline=self._guard.baseline)

    def see(self, job: Job, at: float, policy: PollPolicy) -> None:
        """Take in the record of a look that ended *at*; once, however many wait for it."""
        if job is self.job and at == self._seen_at:
            return
        self.job, self._seen_at = job, at
        if self._guard is not None and not self._sending:
            self._guard.see(job.status, at, policy)

    def miss(self) -> None:
        """Take in that a look failed."""
        if self._guard is not None:
            self._guard.miss()

    def arm(self, baseline: str | None) -> GuardChange:
        """Guard the follow-up that is about to be sent, against *baseline*, the status before it.

        While an earlier turn's own result has not been seen, the job counts as
        active: what comes next may be that turn's.
        """
        if not self.settled or (baseline is not None and baseline not in _TERMINAL):
            baseline = ACTIVE
        change = GuardChange(self._guard, StaleGuard(baseline))
        self._guard = change.after
        self._sending += (change,)
        self.era += 1
        return change

    def sent(self, change: GuardChange, job: Job | None = None) -> None:
        """Believe looks again: the follow-up was answered with *job*, or its outcome is unknown."""
        self._over(change)
        if job is not None:
            self.job = job

    def unsent(self, change: GuardChange) -> None:
        """Take *change* back: the follow-up certainly started nothing."""
        self._over(change)
        if self._guard is change.after:
            self._guard = change.before
        for later in self._sending:
            if later.before is change.after:
                later.before = change.before

    def _over(self, change: GuardChange) -> None:
        self._sending = tuple(other for other in self._sending if other is not change)
        self.era += 1
