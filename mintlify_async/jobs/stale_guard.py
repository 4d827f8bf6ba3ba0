"""The stale guard decides whether a final status of a job is the result of its newest follow-up.

After a follow-up the service may show the result of the turn before it, because polls may be answered by
replicas that are behind. The only evidence is time: a final status is accepted when the poll that read it
started long enough after the follow-up. No I/O.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Final
from weakref import WeakValueDictionary

from attrs import evolve, frozen

from ..model.job_record import TERMINAL_STATES, Job
from ..model.job_ref import End, JobRef, Stamp
from ..model.response_info import ResponseInfo

EARLIER_TURN_SECONDS: Final = 3600.0
"""After how many seconds any final status is accepted: an earlier turn is assumed to end within an hour. So
long must also have passed by the machines' clocks before these count; see :func:`elapsed`."""

DATE_SECONDS: Final = 1.0
"""A ``Date`` header has whole seconds, so the difference of two may be one second too large."""

DATE_SLACK: Final = 10.0
"""By how many seconds ``Date`` may lag behind the loop's time; one that lags further does not advance."""

IN_A_ROW: Final = ""
"""In place of a final status: an earlier follow-up was not certain when this one was sent. Replicas may show
the end before it for a window, and its own end after that, so no end counts before a window has passed."""

ROUNDING: Final = 1e-6
"""A timer may be early by the clock's resolution, in seconds."""

REMEMBERED: Final = 1000
"""How many jobs with a follow-up a session remembers without a handle: those of ten projects in
``EARLIER_TURN_SECONDS``."""


JobKey = tuple[str, str]
"""The project and the job."""


@frozen(eq=False)
class Moment:
    """One moment, by the clocks of an event loop, the service and the machine.

    Args:
        stamp: The moment by the two clocks that other machines share.
        loop: The event loop, compared by identity. None when the moment is from a reference.
        time: The loop's time, in seconds.
    """

    stamp: Stamp
    loop: object = None
    time: float = 0.0


@frozen(eq=False)
class Look:
    """One poll and its outcome.

    Args:
        began: When it started; its ``date`` is that of the response.
        ended: When it ended, by the loop's time, in seconds.
        job: The record, or None when the poll failed.
        error: Why it failed, or None.
    """

    began: Moment
    ended: float
    job: Job | None = None
    error: Exception | None = None


def response_headers(job: Job | None, error: BaseException | None) -> Mapping[str, str]:
    """Return the headers of the response with *job* or *error*; none where there was no response."""
    if job is not None:
        return {} if job.raw is None else job.raw.headers
    return getattr(error, "headers", None) or {}


def elapsed(since: Moment, look: Look, known_since: float) -> float:
    """Return for how many seconds *since* has certainly been past when *look* started.

    On the loop that noted *since*, its own time counts. Elsewhere, two clocks count: the loop's time since
    the moment was read there, and the service's ``Date``. The machines' clocks, which may be hours apart,
    only count where ``Date`` is missing or stands still, and only when an hour has passed.

    Args:
        since: The moment.
        look: The poll.
        known_since: When *since* was read on the loop of *look*, by its time.
    """
    began = look.began
    if since.loop is began.loop:
        return began.time - since.time
    seconds_here = began.time - known_since
    if since.stamp.date is not None and began.stamp.date is not None:
        dated = began.stamp.date - since.stamp.date - DATE_SECONDS
        if dated > seconds_here - DATE_SLACK:
            # The response is dated when it was made, but the poll may have hung before that.
            return max(seconds_here, dated - (look.ended - began.time))
    clocks_count = began.stamp.at - since.stamp.at >= EARLIER_TURN_SECONDS
    return max(seconds_here, EARLIER_TURN_SECONDS) if clocks_count else seconds_here


@frozen(eq=False)
class FollowUp:
    """The newest follow-up of a job.

    Args:
        sent: When it was answered, or failed without an answer.
        was_final: Whether the job had been seen with a final status before. If not, the earlier turn may
            end first, so a final status must last.
        ending: The final status that polls have shown since then, without another one between, and since
            when; or ``IN_A_ROW`` and when it was sent; or None.
    """

    sent: Moment
    was_final: bool
    ending: tuple[str, Moment] | None = None

    def after(self, look: Look, known_since: float, window: float) -> FollowUp:
        """Return the follow-up with what *look*, a successful one, shows of its ending."""
        assert look.job is not None
        if elapsed(self.sent, look, known_since) < (window - ROUNDING if self._is_in_a_row else 0):
            return self
        status = look.job.status
        if self.ending is not None and self.ending[0] == status:
            return self
        return evolve(self, ending=(status, look.began) if status in TERMINAL_STATES else None)

    @property
    def _is_in_a_row(self) -> bool:
        return self.ending is not None and self.ending[0] == IN_A_ROW

    def seconds_left(self, look: Look, known_since: float, window: float) -> float:
        """Return how many seconds after *look* a poll may be accepted; 0 if *look* itself is.

        Args:
            look: A poll.
            known_since: When its loop got this follow-up, by its time.
            window: For how long a final status may still be an old one, in seconds.
        """
        age = elapsed(self.sent, look, known_since)
        if self._is_in_a_row:  # so less than a window has passed
            age -= window
        elif not self.was_final and age < max(EARLIER_TURN_SECONDS, window):
            age = 0.0 if self.ending is None else elapsed(self.ending[1], look, known_since)
        return window - age if window - age > ROUNDING else 0.0


StateBefore = tuple[bool, bool, FollowUp | None]
"""Before a follow-up: whether a final status was seen, whether the last record was certain, its follow-up."""


class JobState:
    """A session's state of a job. All handles and follow-ups of the job share it.

    Args:
        ref: Names the job, and describes its newest follow-up.
        window: For how long after a follow-up a final status may be an old one, in seconds.

    Attributes:
        key: The project and the job.
        job: Its last record, or None.
        raw: The last response about it, or None.
        look: The last successful poll, or None.
        follow_up: The newest follow-up, or None.
    """

    def __init__(self, ref: JobRef, window: float) -> None:
        """Start with the data of *ref*."""
        self.key = ref.project_id, ref.id
        self.window = window
        self.job: Job | None = None
        self.raw: ResponseInfo | None = None
        self.look: Look | None = None
        self.follow_up: FollowUp | None = None
        self.created: Moment | None = None
        self._was_final = False
        self._sending = 0
        self._left: float | None = 0.0  # from the last look until a final status is accepted; None: no look
        self._known: tuple[object, Moment | None, float] = (None, None, 0.0)
        self.join(ref)

    def join(self, ref: JobRef) -> None:
        """Add the new data of *ref*, such as a creation, a final status, a newer follow-up."""
        if self.created is None and ref.created is not None:
            self.created = Moment(ref.created)
        if ref.sent is None:
            self._was_final = self._was_final or (ref.was_final and self.follow_up is None)
        elif self.follow_up is None or _is_newer(ref.sent, self.follow_up.sent.stamp):
            ending = None if ref.end is None else (ref.end.status, Moment(ref.end.since))
            self.follow_up, self._left = FollowUp(Moment(ref.sent), ref.was_final, ending), None

    @property
    def accepted(self) -> bool:
        """Whether the last record, if final, is the result of the newest follow-up."""
        return not self._sending and self._left == 0

    @property
    def done(self) -> bool:
        """Whether the last record is final and accepted."""
        return self.job is not None and self.job.done and self.accepted

    @property
    def was_final(self) -> bool:
        """Whether the job was seen with an accepted final status; a POST's own record does not count."""
        return self.done if self.look is not None else self._was_final and self.accepted

    def certain_in(self, now: float) -> float | None:
        """Return the seconds until the last seen final status can be accepted. None without one."""
        if self._sending or not self._left or self.look is None or self.job is None or not self.job.done:
            return None
        return max(0.0, self._left - (now - self.look.began.time))

    @property
    def ref(self) -> JobRef:
        """Names the job, with the data of its newest follow-up that another process needs."""
        created = None if self.created is None else self.created.stamp
        if self.follow_up is None or self.done:
            return JobRef(*self.key, created=created, was_final=self.was_final)
        ending = self.follow_up.ending
        return JobRef(
            *self.key,
            created=created,
            sent=self.follow_up.sent.stamp,
            was_final=self.follow_up.was_final,
            end=None if ending is None else End(ending[0], ending[1].stamp),
        )

    def see(self, look: Look) -> None:
        """Record a successful poll. A poll that started before the last one adds nothing."""
        last_look = self.look
        if (
            last_look is not None
            and last_look.began.loop is look.began.loop
            and look.began.time < last_look.began.time
        ):
            return
        self.job, self.look = look.job, look
        self.raw = None if look.job is None else look.job.raw
        known_since = self._known_since(look)
        if self.follow_up is not None:
            self.follow_up = self.follow_up.after(look, known_since, self.window)
            self._left = self.follow_up.seconds_left(look, known_since, self.window)

    def _known_since(self, look: Look) -> float:
        """Return when this loop got the present follow-up. It is no later than the end of *look*."""
        sent = None if self.follow_up is None else self.follow_up.sent
        if self._known[0] is not look.began.loop or self._known[1] is not sent:
            self._known = (look.began.loop, sent, look.ended)
        return self._known[2]

    def age(self, look: Look) -> float | None:
        """Return the age of the job at the start of *look*, in seconds. None if it is unknown."""
        if self.created is None:
            return None
        return max(0.0, elapsed(self.created, look, self._known_since(look)))

    def begin_sending(self, window: float) -> StateBefore:
        """Accept nothing until a follow-up was sent. Return the argument of :meth:`end_sending`."""
        self.window = window
        state_before = self.was_final, self.accepted, self.follow_up
        self._sending += 1
        return state_before

    def end_sending(self, state_before: StateBefore, sent_at: Moment | None, job: Job | None = None) -> None:
        """Note how the sending of a follow-up has ended.

        Args:
            state_before: The result of :meth:`begin_sending`.
            sent_at: When its response arrived, or when it failed without a response. None if it started
                nothing.
            job: The record in the response, or None.
        """
        self._sending -= 1
        if sent_at is not None:
            was_final, was_certain, previous_follow_up = state_before
            # If follow-ups were sent at the same time, the turn of another one may end first.
            alone = not self._sending and self.follow_up is previous_follow_up
            ending = None if was_certain and alone else (IN_A_ROW, sent_at)
            self.follow_up, self._left = FollowUp(sent_at, was_final and alone, ending), None
            self.job = job or self.job


def _is_newer(stamp: Stamp, other_stamp: Stamp) -> bool:
    if stamp.date is not None and other_stamp.date is not None and stamp.date != other_stamp.date:
        return stamp.date > other_stamp.date
    return stamp.at > other_stamp.at


class JobStates:
    """The states of a session's jobs. It keeps jobs with a handle, and jobs with the latest follow-ups."""

    def __init__(self) -> None:
        """Start empty."""
        self._states: WeakValueDictionary[JobKey, JobState] = WeakValueDictionary()
        self._followed: deque[JobState] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()  # a session may serve several threads

    def of(self, ref: JobRef, window: float) -> JobState:
        """Return the state of the job that *ref* names, with the additional data of *ref*."""
        with self._lock:
            state = self._states.get((ref.project_id, ref.id))
            if state is None:
                state = self._states[ref.project_id, ref.id] = JobState(ref, window)
            else:
                state.join(ref)
            return state

    def remember(self, state: JobState) -> None:
        """Keep *state*, whose job gets a follow-up, although its handles may go."""
        self._followed.append(state)
