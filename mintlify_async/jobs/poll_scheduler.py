"""One scheduler of polls for all waits of a session on an event loop.

A wait asks only for a look at its job that starts from now on. Waits for the same job share its looks.
No job is polled twice at the same time, and no task and no timer is left when the last wait has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Mapping
from typing import Final

from attrs import define, field

from ..errors import APIStatusError, RateLimitError, StateError
from ..http.retry import http_date, retry_after_seconds
from ..model.job_record import Job
from ..model.job_ref import Stamp
from ..runtime import dates
from ..runtime.limits import TimeLimit
from .polling import LONGEST_PAUSE, SHORTEST, PollCalls
from .stale_guard import JobState, Look, Moment

LAST_LOOK: Final = 1.0
"""How long a look may take that is under way, or due, at the deadline, in seconds."""

MOST_LATE_LOOKS: Final = 100
"""How many first looks after a deadline may be under way at once; ``per_second`` does not count for them."""

Key = tuple[str, str]
"""The project and the job."""


def moment(headers: Mapping[str, str]) -> Moment:
    """Return this moment on the running loop. *headers* are the headers of the service's response."""
    loop = asyncio.get_running_loop()
    return Moment(Stamp(dates.now(), http_date(headers.get("date"))), loop, loop.time())


async def look_at(calls: PollCalls, state: JobState, *, retry: bool, limit: float | None = None) -> Look:
    """Poll a job, and note a successful poll in *state*."""
    loop = asyncio.get_running_loop()
    began, date = loop.time(), dates.now()
    job: Job | None = None
    error: Exception | None = None
    try:
        job = await calls.get_job(state.key[1], project_id=state.key[0], retry=retry, limit=limit)
    except Exception as failure:  # each wait decides whether to tolerate it
        error = failure
    served = http_date(response_headers(job, error).get("date"))
    look = Look(Moment(Stamp(date, served), loop, began), loop.time(), job, error)
    if job is not None:
        state.see(look)
    return look


def response_headers(job: Job | None, error: BaseException | None) -> Mapping[str, str]:
    """Return the headers of the response with *job* or *error*; none where there was no response."""
    if job is not None:
        return {} if job.raw is None else job.raw.headers
    return getattr(error, "headers", None) or {}


@define(eq=False, repr=False, match_args=False)
class Ask:
    """A wait that asks for a look.

    Args:
        due: When the look should start, by the loop's time.
        deadline: When it must start; infinity for no limit.
        first: The number of a wait that had no look yet, from 1; newer waits have higher numbers. Else 0.
        outcome: Becomes the look.
        served: Whether the poll under way is for this one.
    """

    due: float
    deadline: float
    first: int
    outcome: asyncio.Future[Look]
    served: bool = False


@define(eq=False, repr=False, match_args=False)
class PolledJob:
    """One job that is polled, and who asks for a look at it.

    Attributes:
        task: The poll under way, or None.
        due: When the next poll should start; infinity while one is running.
        deadline: The earliest deadline of those who ask.
        first: The newest wait that had no look yet, or 0.
    """

    state: JobState
    asks: list[Ask] = field(factory=list[Ask])
    task: asyncio.Task[None] | None = None
    due: float = math.inf
    deadline: float = math.inf
    first: int = 0

    def plan(self) -> None:
        """Set when the next poll should start."""
        if self.task is not None:
            self.due = math.inf
            return
        self.due = min((ask.due for ask in self.asks), default=math.inf)
        self.deadline = min((ask.deadline for ask in self.asks), default=math.inf)
        self.first = max((ask.first for ask in self.asks), default=0)

    def urgency(self, now: float) -> tuple[int, float]:
        """Return a rank: looks at a deadline, then first looks (newest first), then the earliest due."""
        if self.deadline <= now:
            return 0, -self.first
        return (1, -self.first) if self.first else (2, self.due)


class PollScheduler:
    """Polls for all waits of one session on one event loop.

    A scan over all jobs finds the most urgent one, because urgency changes while a poll waits for its turn. A
    hanging poll blocks no other poll, because it counts for ``per_second`` only when it starts.
    """

    def __init__(self, calls: PollCalls) -> None:
        """Poll through *calls*; nothing happens before a wait asks for a look."""
        self._calls = calls
        self._spacing = 1.0 / calls.poll.per_second
        self._jobs: dict[Key, PolledJob] = {}
        self._waits = 0  # how many waits there were
        self._next_slot = -math.inf  # when per_second allows the next poll
        self._late: set[PolledJob] = set()  # jobs with a poll under way that per_second did not allow
        self._pauses: dict[str | Key, float] = {}  # of projects and jobs; until when
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many jobs are polled."""
        return len(self._jobs)

    async def look(self, state: JobState, due: float, deadline: float, *, first: bool) -> Look | None:
        """Return a look at a job that starts from now on: at *due*, or sooner if another wait needs one.

        Args:
            state: The job; a successful look is noted there before any wait gets it.
            due: When the look should start, by the loop's time.
            deadline: When it must start. It may then take a second.
            first: Whether the wait had no look yet. It then gets one even after its deadline.

        Returns:
            The look; or None, when none has ended in time.

        Raises:
            StateError: The session is closed, or was closed meanwhile.
        """
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        self._waits += first
        ask = Ask(due, deadline, self._waits if first else 0, loop.create_future())
        job = self._jobs.get(state.key)
        if job is None:
            job = self._jobs[state.key] = PolledJob(state)
        job.asks.append(ask)
        job.plan()
        self._wake_at(due)
        limit = deadline if self._paused_until(job) > deadline else deadline + LAST_LOOK
        try:
            while True:
                try:
                    async with TimeLimit(limit):
                        return await ask.outcome
                except TimeoutError:
                    if not ask.outcome.cancelled():
                        return ask.outcome.result()  # it came at the very last moment
                hangs = ask.served and job not in self._late
                if not first or hangs or self._paused_until(job) > loop.time():
                    return None
                ask.outcome, limit = loop.create_future(), loop.time() + LAST_LOOK
        finally:
            await self._leave(job, ask)

    async def _leave(self, job: PolledJob, ask: Ask) -> None:
        """Stop asking. The last one to leave cancels the poll under way, and waits for its end."""
        if ask in job.asks:
            job.asks.remove(ask)
            job.plan()
        if job.asks:
            return
        if self._jobs.get(job.state.key) is job:
            del self._jobs[job.state.key]
        if not self._jobs and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if job.task is not None:
            await _end([job.task])

    async def close(self) -> None:
        """End every wait with a ``StateError``, for good, and every poll."""
        self._closed = True
        jobs = list(self._jobs.values())
        for job in jobs:
            for ask in job.asks:
                if not ask.outcome.done():
                    ask.outcome.set_exception(_closed())
        await _end([job.task for job in jobs if job.task is not None])

    # When polls start

    def _paused_until(self, job: PolledJob) -> float:
        key = job.state.key
        return max(self._pauses.get(key, 0.0), self._pauses.get(key[0], 0.0))

    def _wake_at(self, at: float) -> None:
        """Look for a poll to start at *at*, or sooner if that is planned already."""
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        # The context is empty, because one caller's variables must not stay alive for another caller's polls.
        self._timer = loop.call_at(at, self._begin_next, context=contextvars.Context())

    def _begin_next(self) -> None:
        """Start the most urgent poll, if one may start now; only one, to leave the loop to other tasks."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        job, at = self._most_urgent(now)
        if job is not None:
            self._begin(job, now)
            at = now
        if at < math.inf:
            self._wake_at(at)

    def _most_urgent(self, now: float) -> tuple[PolledJob | None, float]:
        """Return the job whose poll may start now; or None, and when to look again."""
        best_job, best_rank = None, (3, 0.0)
        at = next_deadline = math.inf
        for job in self._jobs.values():
            due = max(job.due, self._paused_until(job)) if self._pauses else job.due
            if due > now:
                at = min(at, due)
                continue
            rank = job.urgency(now)
            if rank < best_rank:
                best_job, best_rank = job, rank
            if job.first:
                next_deadline = min(next_deadline, job.deadline)
        if best_job is None or self._next_slot <= now or self._may_be_late(best_job, now):
            return best_job, at
        room = len(self._late) < MOST_LATE_LOOKS
        return None, min(at, self._next_slot, next_deadline if room else math.inf)

    def _may_be_late(self, job: PolledJob, now: float) -> bool:
        return job.first > 0 and job.deadline <= now and len(self._late) < MOST_LATE_LOOKS

    def _begin(self, job: PolledJob, now: float) -> None:
        is_late = self._may_be_late(job, now)
        if is_late:
            self._late.add(job)
        else:
            self._next_slot = now + self._spacing
        for ask in job.asks:
            ask.served = True  # a later request gets a later look
        # A separate task with an empty context, because it serves all waits and outlives none of them.
        job.task = asyncio.get_running_loop().create_task(
            self._poll(job, LAST_LOOK if is_late else None),
            name=f"poll {job.state.key[1]}",
            context=contextvars.Context(),
        )
        job.task.add_done_callback(lambda task: self._finish(job, None) if job.task is task else None)
        job.plan()

    async def _poll(self, job: PolledJob, limit: float | None) -> None:
        look = await look_at(self._calls, job.state, retry=False, limit=limit)
        self._keep_pause(job.state.key, look)
        self._finish(job, look)

    def _finish(self, job: PolledJob, look: Look | None) -> None:
        """Wake the waits of the poll. If there is no look, other code has cancelled the poll."""
        job.task = None
        self._late.discard(job)
        loop = asyncio.get_running_loop()
        for ask in job.asks:
            if not ask.served:
                continue
            if look is None:
                ask.served, ask.due = False, max(ask.due, loop.time() + SHORTEST)
            elif not ask.outcome.done():
                ask.outcome.set_result(look)
        job.asks = [ask for ask in job.asks if not ask.served]
        job.plan()
        if self._jobs and not self._closed:
            self._wake_at(loop.time())  # a poll beyond per_second may start in the place of this one

    def _keep_pause(self, key: Key, look: Look) -> None:
        """Keep the service's pause for these and later waits. The pause of a 429 is for the project."""
        error = look.error
        if isinstance(error, APIStatusError):
            pause = error.retry_after or 0.0
        else:
            # The reset header of a success contains the end of a window. It does not ask for a pause.
            headers = response_headers(look.job, error)
            pause = retry_after_seconds(headers, dates.now(), resets=False) or 0.0
        name: str | Key = key
        if isinstance(error, RateLimitError):
            name, pause = key[0], max(pause, self._calls.poll.initial)
        if pause > 0:
            self._pauses = {other_name: end for other_name, end in self._pauses.items() if end > look.ended}
            end = look.ended + min(pause, LONGEST_PAUSE)
            self._pauses[name] = max(self._pauses.get(name, 0.0), end)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel *tasks* and wait for their end, even if the caller is cancelled."""
    if tasks:
        import anyio  # loaded on use, because it takes a tenth of the session's import time

        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)


def _closed() -> StateError:
    return StateError("the session was closed; the job goes on at the service: wait again with a new session")
