"""The stale guard decides whether a final status of a job is the result of its newest follow-up.

After a follow-up, the service may show the result of the previous prompt, because a replica that is behind
may answer the poll. The only evidence is time: a final status is accepted if its poll started long enough
after the follow-up. This module does no I/O.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from attrs import evolve, field, frozen

from ..model.job_record import TERMINAL_STATES, Job
from ..model.job_ref import End, JobRef, Stamp
from ..model.response_info import ResponseInfo

EARLIER_TURN_SECONDS: Final = 3600.0
"""After this many seconds, any final status is accepted, because earlier work has probably ended. The
machines' clocks count only if they also show this difference; see :func:`elapsed`."""

DATE_SECONDS: Final = 1.0
"""A ``Date`` header has whole seconds, so the difference of two may be one second too large."""

DATE_SLACK: Final = 10.0
"""Maximum lag of ``Date`` behind the loop's time, in seconds. With a larger lag, ``Date`` does not count."""

IN_A_ROW: Final = ""
"""Takes the place of a final status if the result before this follow-up was not certain. Replicas may show
the previous end for one window, and this follow-up's end later. So a final status counts only when one window
has passed since the follow-up."""

ROUNDING: Final = 1e-6
"""Tolerance in seconds, because a timer may be early by the clock's resolution."""

REMEMBERED: Final = 1000
"""Number of jobs with a follow-up, and of ended jobs, that a session keeps without a handle. These are the
jobs of ten projects in ``EARLIER_TURN_SECONDS``."""


JobKey = tuple[str, str]
"""The project and the job."""


next_order = partial(next, itertools.count(1))
"""Returns the order of a moment that is made now; see :class:`Moment`."""


@frozen(eq=False, slots=False)  # made for each poll: see WireValue
class Moment:
    """One moment, by the clocks of an event loop, of the service and of the machine.

    Args:
        stamp: The moment by the clocks of the service and of the machine, which other machines can use.
        loop: The event loop, compared by identity. None if the moment is from a reference.
        time: The loop's time, in seconds.
        order: The number of the moment in this process, on any loop. A later moment has a higher number.
    """

    stamp: Stamp
    loop: object = None
    time: float = 0.0
    order: int = field(factory=next_order, kw_only=True)


class Look(NamedTuple):
    """One poll and its outcome.

    Args:
        began: When the poll started. Its ``date`` is the response's.
        ended: When the poll ended, by the loop's time, in seconds.
        job: The record, or None if the poll failed.
        error: The error of a failed poll, or None.
    """

    began: Moment
    ended: float
    job: Job | None = None
    error: Exception | None = None


def response_headers(job: Job | None, error: BaseException | None) -> Mapping[str, str]:
    """Return the headers of the response with *job* or *error*. Without a response, there are none."""
    if job is not None:
        return {} if job.raw is None else job.raw.headers
    return getattr(error, "headers", None) or {}


def elapsed(since: Moment, look: Look, known_since: float) -> float:
    """Return the number of seconds that certainly passed between *since* and the start of *look*.

    On the loop that made *since*, the loop's time counts. Elsewhere, two clocks count: the loop's time since
    the moment was read there, and the service's ``Date``. The machines' clocks may be hours apart, so they
    count only if ``Date`` is missing or does not advance, and only after an hour.

    Args:
        since: The moment.
        look: The poll.
        known_since: When *since* was read on the loop of *look*, by that loop's time.
    """
    began = look.began
    if since.loop is began.loop:
        return began.time - since.time
    seconds_here = began.time - known_since
    if since.stamp.date is not None and began.stamp.date is not None:
        dated = began.stamp.date - since.stamp.date - DATE_SECONDS
        if dated > seconds_here - DATE_SLACK:
            # The service dates the response when it makes it. Before that, the poll may have waited.
            return max(seconds_here, dated - (look.ended - began.time))
    clocks_count = began.stamp.at - since.stamp.at >= EARLIER_TURN_SECONDS
    return max(seconds_here, EARLIER_TURN_SECONDS) if clocks_count else seconds_here


def _stands_still(since: Moment, look: Look) -> bool:
    """Return whether ``Date`` did not advance between two polls, an hour apart by the machines' clocks."""
    date, began = since.stamp.date, look.began.stamp
    return date is not None and date == began.date and began.at - since.stamp.at >= EARLIER_TURN_SECONDS


def certain_at(since: Moment, look: Look, age: float, window: float) -> float:
    """Return the time from which a poll is certainly accepted, by the time of *look*'s loop.

    Another process may make that poll. That process has only the difference of two ``Date`` headers, which
    have no fractions. So the remaining time is rounded up to full seconds. One more second allows for a
    slower poll.

    Args:
        since: When the window started.
        look: A poll.
        age: The age of *since* at the start of *look*, in seconds.
        window: The window, in seconds.
    """
    began = look.began
    here = began.time + window - age
    if since.stamp.date is None or began.stamp.date is None:
        return here
    dated = began.stamp.date - since.stamp.date - DATE_SECONDS
    if dated <= age - DATE_SLACK:  # Date does not advance, so it does not count
        return here
    took = look.ended - began.time
    return max(here, look.ended + math.ceil(window - dated + took) + 1)


Age = Callable[[Moment], float]
"""Returns the age of a moment at the start of a poll, in seconds; see :func:`elapsed`."""


@frozen(eq=False)
class AwaitedFollowUp:
    """The newest follow-up of a job, whose result is not certain yet.

    Args:
        sent: When the response to the follow-up arrived, or when it failed without a response.
        was_final: Whether the job had a final status before the follow-up. If not, the work on the previous
            prompt may end first, so the final status must last for a window.
        ending: The final status in all polls since the follow-up, and the time of the first of these polls.
            Or ``IN_A_ROW`` and the time of the follow-up. Or None.
    """

    sent: Moment
    was_final: bool
    ending: tuple[str, Moment] | None = None

    def after(self, look: Look, age: Age, window: float) -> AwaitedFollowUp:
        """Return the follow-up with the final status that *look*, a successful poll, shows."""
        assert look.job is not None
        if age(self.sent) < (window - ROUNDING if self._is_in_a_row else 0):
            return self
        status = look.job.status
        if self.ending is not None and self.ending[0] == status:
            return self
        return evolve(self, ending=(status, look.began) if status in TERMINAL_STATES else None)

    @property
    def _is_in_a_row(self) -> bool:
        return self.ending is not None and self.ending[0] == IN_A_ROW

    def window_start(self, look: Look, age: Age, window: float) -> tuple[Moment, float]:
        """Return the moment at which the window starts, and its age at *look*, in seconds.

        Args:
            look: A poll.
            age: The age of a moment at *look*.
            window: The time for which a final status may be an old one, in seconds.
        """
        seconds = age(self.sent)
        if self._is_in_a_row:  # so less than a window has passed since the follow-up
            return self.sent, min(seconds, window - 2 * ROUNDING)
        if self.ending is not None and _stands_still(self.ending[1], look):
            seconds = max(seconds, EARLIER_TURN_SECONDS)
        if self.was_final or seconds >= max(EARLIER_TURN_SECONDS, window):
            return self.sent, seconds
        return (look.began, 0.0) if self.ending is None else (self.ending[1], age(self.ending[1]))


StateBefore = tuple[bool, bool, AwaitedFollowUp | None]
"""Before a follow-up: whether a final status was read, whether the last record was certain, the follow-up."""


class JobState:
    """A session's state of a job. All handles and follow-ups of the job share it.

    Args:
        ref: Names the job, and describes its newest follow-up.
        window: The time after a follow-up for which a final status may be an old one, in seconds.

    Attributes:
        key: The project and the job.
        job: The last record, or None.
        raw: The last response about the job, or None.
        look: The last successful poll, or None.
        follow_up: The newest follow-up, or None.
        failing: The time since which polls fail, or None.
        noted: Whether :class:`JobStates` has recorded that the job has ended.
    """

    def __init__(self, ref: JobRef, window: float) -> None:
        """Start with the data of *ref*."""
        self.key = ref.project_id, ref.id
        self.window = window
        self.job: Job | None = None
        self.raw: ResponseInfo | None = None
        self.look: Look | None = None
        self.follow_up: AwaitedFollowUp | None = None
        self.created: Moment | None = None
        self.failing: Stamp | None = None
        self.noted = False
        self._was_final = False
        self._sending = 0
        # Seconds from the last poll to a poll that may be accepted. After follow-ups in a row, that poll only
        # starts the window.
        self._left: float | None = 0.0
        self._certain_at = 0.0  # by the time of the last poll's loop
        self._known: WeakKeyDictionary[Moment, WeakKeyDictionary[object, float]] = WeakKeyDictionary()
        self._lock = threading.RLock()  # a session may serve several threads
        self.join(ref)

    def join(self, ref: JobRef) -> None:
        """Add the new data of *ref*, such as the job's ``created``, a final status, a newer follow-up."""
        with self._lock:
            if self.created is None and ref.created is not None:
                self.created = Moment(ref.created)
            if self.failing is None and self.look is None:
                self.failing = ref.failing
            if ref.sent is None:
                self._was_final = self._was_final or (ref.was_final and self.follow_up is None)
            elif self.follow_up is None or _is_newer(ref.sent, self.follow_up.sent.stamp):
                ending = None if ref.end is None else (ref.end.status, Moment(ref.end.since))
                self.follow_up, self._left = AwaitedFollowUp(Moment(ref.sent), ref.was_final, ending), None

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
        """Whether a poll read an accepted final status. A record in a POST's response does not count."""
        return self.done if self.look is not None else self._was_final and self.accepted

    def result(self, since: int) -> Job | None:
        """Return the accepted final record if its poll started after the order *since*, or None.

        Any task on any loop may have made the poll.
        """
        with self._lock:
            is_new = self.look is not None and self.look.began.order > since
            return self.job if is_new and self.done else None

    def counts_in(self, now: float) -> float | None:
        """Return the seconds until a poll on this loop may confirm the last poll's final status.

        None if there is no final status to confirm.
        """
        with self._lock:
            if self._sending or not self._left or self.look is None or self.job is None or not self.job.done:
                return None
            return max(0.0, self._left - (now - self.look.began.time))

    def certain_in(self, now: float) -> float | None:
        """Return the seconds until a poll in any process certainly confirms the last poll's final status.

        None if there is no final status to confirm.
        """
        with self._lock:
            return None if self.counts_in(now) is None else max(0.0, self._certain_at - now)

    @property
    def ref(self) -> JobRef:
        """The job's reference, with the data of the newest follow-up for another process."""
        created = None if self.created is None else self.created.stamp
        if self.follow_up is None or self.done:
            return JobRef(*self.key, created=created, was_final=self.was_final, failing=self.failing)
        ending = self.follow_up.ending
        return JobRef(
            *self.key,
            created=created,
            sent=self.follow_up.sent.stamp,
            was_final=self.follow_up.was_final,
            end=None if ending is None else End(ending[0], ending[1].stamp),
            failing=self.failing,
        )

    def see(self, look: Look) -> None:
        """Record a successful poll. If it started before the last recorded poll, on any loop, ignore it."""
        with self._lock:
            if self.look is not None and look.began.order < self.look.began.order:
                return
            self.job, self.look, self.failing = look.job, look, None
            self.raw = None if look.job is None else look.job.raw
            if self.follow_up is not None:
                age = partial(self._age, look)
                self.follow_up = self.follow_up.after(look, age, self.window)
                since, seconds = self.follow_up.window_start(look, age, self.window)
                left = self.window - seconds
                self._left = left if left > ROUNDING else 0.0
                self._certain_at = certain_at(since, look, seconds, self.window)

    def fail(self, look: Look) -> None:
        """Record a failed poll of a wait. The poll starts an outage or continues it."""
        with self._lock:
            if self.look is not None and look.began.order < self.look.began.order:
                return
            began = look.began.stamp.at
            # An earlier process with a fast clock may have recorded a start of the outage that is after now.
            if self.failing is None or self.failing.at > began:
                self.failing = Stamp(round(began, 3))

    def failing_for(self, now: float) -> float:
        """Return for how many seconds polls have failed. 0 if they do not fail.

        The machines' clocks are used here, because the length of an outage need not be exact.

        Args:
            now: The current date, by this machine's clock, in seconds since 1970.
        """
        return 0.0 if self.failing is None else max(0.0, now - self.failing.at)

    def _age(self, look: Look, since: Moment) -> float:
        """Return the age of *since* at the start of *look*. Each loop counts its time from another moment."""
        loops = self._known.setdefault(since, WeakKeyDictionary())
        began = look.began
        known_since = loops.setdefault(began.loop, began.time if since.order < began.order else look.ended)
        return elapsed(since, look, known_since)

    def age(self, look: Look) -> float | None:
        """Return the age of the job at the start of *look*, in seconds. None if it is unknown."""
        with self._lock:
            return None if self.created is None else max(0.0, self._age(look, self.created))

    def begin_sending(self, window: float) -> StateBefore:
        """Accept no status until a follow-up was sent. Return the argument for :meth:`end_sending`."""
        with self._lock:
            self.window = window
            state_before = self.was_final, self.accepted, self.follow_up
            self._sending += 1
            return state_before

    def end_sending(self, state_before: StateBefore, sent_at: Moment | None, job: Job | None = None) -> None:
        """Record how the sending of a follow-up has ended.

        Args:
            state_before: The result of :meth:`begin_sending`.
            sent_at: When the response arrived, or the request failed without one. None if it started nothing.
            job: The record in the response, or None.
        """
        with self._lock:
            self._sending -= 1
            if sent_at is not None:
                was_final, was_certain, previous_follow_up = state_before
                # If follow-ups were sent at the same time, the work on another follow-up may end first.
                alone = not self._sending and self.follow_up is previous_follow_up
                ending = None if was_certain and alone else (IN_A_ROW, sent_at)
                self.follow_up, self._left = AwaitedFollowUp(sent_at, was_final and alone, ending), None
                self.job = job or self.job


class UnderWay:
    """A follow-up, from its first byte to its response. While it waits for a quota, it is not under way.

    Args:
        state: The state of the job.
        window: The time after the follow-up for which a final status may be an old one, in seconds.
    """

    def __init__(self, state: JobState, window: float) -> None:
        self._state = state
        self._window = window
        self._state_before: StateBefore | None = None

    def begin(self) -> None:
        """Accept no status from now on. Repeated calls do nothing."""
        if self._state_before is None:
            self._state_before = self._state.begin_sending(self._window)

    def end(self, sent_at: Moment | None = None, job: Job | None = None) -> None:
        """Record the end of a started follow-up. See :meth:`JobState.end_sending` for the arguments."""
        if self._state_before is not None:
            state_before, self._state_before = self._state_before, None
            self._state.end_sending(state_before, sent_at, job)


def _is_newer(stamp: Stamp, other_stamp: Stamp) -> bool:
    if stamp.date is not None and other_stamp.date is not None and stamp.date != other_stamp.date:
        return stamp.date > other_stamp.date
    return stamp.at > other_stamp.at


class JobStates:
    """The states of the jobs for which a session has a handle, and of the jobs with the latest follow-ups.

    Of other jobs, the object keeps only whether the last poll showed their end.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._states: WeakValueDictionary[JobKey, JobState] = WeakValueDictionary()
        self._followed: deque[JobState] = deque(maxlen=REMEMBERED)
        self._final: dict[JobKey, None] = {}  # the newest last
        self._lock = threading.Lock()  # a session may serve several threads

    def of(self, ref: JobRef, window: float) -> JobState:
        """Return the state of the job that *ref* names, with the additional data of *ref*."""
        key = ref.project_id, ref.id
        with self._lock:
            state = self._states.get(key)
            if state is None:
                if ref.sent is None and key in self._final:
                    ref = evolve(ref, was_final=True)
                state = self._states[key] = JobState(ref, window)
                state.noted = key in self._final
            else:
                state.join(ref)
            return state

    def remember(self, state: JobState) -> None:
        """Keep *state* without a handle, because its job gets a follow-up."""
        with self._lock:
            self._final.pop(state.key, None)
            state.noted = False
            self._followed.append(state)

    def note_look(self, state: JobState) -> None:
        """Keep whether the last poll of *state* showed the job's end.

        If the job has not ended and was not recorded as ended, nothing changes.
        """
        with self._lock:
            self._final.pop(state.key, None)
            state.noted = state.done
            if state.noted:
                self._final[state.key] = None
                if len(self._final) > REMEMBERED:
                    del self._final[next(iter(self._final))]
