"""One scheduler of polls for all waits of a session on an event loop.

A wait asks only for a look at its job that starts from now on. Waits for the same job share its looks.
No job is polled twice at the same time, and no task and no timer is left when the last wait has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

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
"""How many first looks after a deadline may be under way at once. ``per_second`` does not limit them."""

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
        outcome: Becomes the look, or the error of a session that was closed.
        served: Whether a poll has started for this one.
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
        task: The current poll, or None.
        due: When the next poll should start; infinity while one is running.
        deadline: The earliest deadline of those who ask.
        first: The newest wait that had no look yet, or 0.
    """

    state: JobState
    asks: list[Ask] = field(factory=list[Ask])
    task: asyncio.Task[Look] | None = None
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
        self._late = asyncio.Semaphore(MOST_LATE_LOOKS)
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
        try:
            if not first or await _outcome(ask, deadline) is not None or ask.served:
                is_paused = self._paused_until(job) > deadline
                return await _outcome(ask, deadline if is_paused else deadline + LAST_LOOK)
            async with self._late:
                if job.task is not None and not ask.served:
                    await asyncio.wait([job.task])  # that poll started before this wait
                if not ask.served and not ask.outcome.done() and self._paused_until(job) <= loop.time():
                    self._begin(job, LAST_LOOK)
                return await _outcome(ask, loop.time() + (LAST_LOOK if ask.served else 0.0))
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
            await end_tasks([job.task])

    async def close(self) -> None:
        """End every wait with a ``StateError``, for good, and every poll."""
        self._closed = True
        jobs = list(self._jobs.values())
        for job in jobs:
            for ask in job.asks:
                if not ask.outcome.done():
                    ask.outcome.set_exception(_closed())
                    ask.outcome.exception()  # retrieved, because a cancelled wait would leave it
        await end_tasks([job.task for job in jobs if job.task is not None])

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
        """Start the most urgent poll; only one, to leave the loop to other tasks."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        if now < self._next_slot:
            self._wake_at(self._next_slot)
            return
        best_job, best_rank, at = None, (3, 0.0), math.inf
        for job in self._jobs.values():
            due = max(job.due, self._paused_until(job)) if self._pauses else job.due
            if due > now:
                at = min(at, due)
            elif (rank := job.urgency(now)) < best_rank:
                best_job, best_rank = job, rank
        if best_job is not None:
            self._next_slot = at = now + self._spacing
            self._begin(best_job, None)
        if at < math.inf:
            self._wake_at(at)

    def _begin(self, job: PolledJob, limit: float | None) -> None:
        for ask in job.asks:
            ask.served = True  # a later request gets a later look
        # A separate task with an empty context, because it serves all waits and outlives none of them.
        job.task = asyncio.get_running_loop().create_task(
            look_at(self._calls, job.state, retry=False, limit=limit),
            name=f"poll {job.state.key[1]}",
            context=contextvars.Context(),
        )
        job.task.add_done_callback(partial(self._finish, job))
        job.plan()

    def _finish(self, job: PolledJob, task: asyncio.Task[Look]) -> None:
        """Wake the waits of a poll. If other code has cancelled the poll, make another one."""
        job.task = None
        now = asyncio.get_running_loop().time()
        if not task.cancelled():
            self._keep_pause(job.state.key, task.result())
        for ask in job.asks:
            if not ask.served:
                continue
            if task.cancelled():
                ask.served, ask.due = False, max(ask.due, now + SHORTEST)
            elif not ask.outcome.done():
                ask.outcome.set_result(task.result())
        job.asks = [ask for ask in job.asks if not ask.served]
        job.plan()
        if job.asks and not self._closed:
            self._wake_at(job.due)

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


async def _outcome(ask: Ask, limit: float) -> Look | None:
    """Return the look when it has come by *limit*, by the loop's time."""
    if not ask.outcome.done():
        with suppress(TimeoutError):
            async with TimeLimit(limit):
                await asyncio.shield(ask.outcome)
    return ask.outcome.result() if ask.outcome.done() else None


async def end_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel *tasks* and wait for their end, even if the caller is cancelled."""
    if not all(task.done() for task in tasks):
        import anyio  # loaded on use, because it takes a tenth of the session's import time

        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)


def _closed() -> StateError:
    return StateError(
        "the session was closed; the job keeps running at the service: wait again with a new session"
    )
