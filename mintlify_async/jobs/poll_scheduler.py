"""One scheduler of polls for all waits of a session on an event loop.

A wait asks only for a look at its job that starts from now on. Waits for the same job share its polls.
No job is polled twice at the same time, and no task and no timer is left when the last wait has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from attrs import define

from ..errors import APIConnectionError, APIStatusError, APITimeoutError, RateLimitError, StateError
from ..http.retry_after import retry_after_seconds
from ..http.session_core import Core
from ..model.job_ref import Stamp
from ..protocol.calls import Call
from ..runtime import dates
from ..runtime.tasks import end_tasks, start_task
from ..runtime.time_limits import TimeLimit
from ..settings.poll_policy import PollPolicy
from .requests import look_at
from .stale_guard import JobKey, JobState, Look, Moment, response_headers

LONGEST_PAUSE: Final = 300.0
"""Longest pause that the service may ask for, in seconds; a longer ``Retry-After`` counts as this one."""

LAST_LOOK: Final = 1.0
"""How long a look may take that is under way, or due, at the deadline, in seconds."""

MOST_LATE_LOOKS: Final = 100
"""How many first looks after a deadline may be under way at once. ``per_second`` does not limit them."""


PollKey: TypeAlias = tuple[Hashable, JobKey]
"""How to poll, and the job: no customer's job is polled with the key or the headers of another one."""


@define(eq=False, repr=False, match_args=False)
class Poll:
    """One poll of a job, planned or under way, for the waits that share it.

    Args:
        key: Its key among the polls.
        core: The core of the first wait that needed this poll.
        call: The request of that wait.
        state: The job.
        outcome: Becomes the look, or the error of a session that was closed.
        due: When it should start, by the loop's time.
        deadline: When it must start; infinity for no limit.
        first: The number of its newest wait that had no look yet; newer waits have higher numbers. Else 0.
        waits: How many waits need it.
        task: Its task; None while it is planned.
    """

    key: PollKey
    core: Core
    call: Call
    state: JobState
    outcome: asyncio.Future[Look]
    due: float = math.inf
    deadline: float = math.inf
    first: int = 0
    waits: int = 0
    task: asyncio.Task[Look] | None = None

    def urgency(self, now: float) -> tuple[int, float]:
        """Return a rank: polls at a deadline, then first ones (newest first), then the earliest due."""
        if self.deadline <= now:
            return 0, -self.first
        return (1, -self.first) if self.first else (2, self.due)

    async def result(self, limit: float) -> Look | None:
        """Return the look when it has come by *limit*, by the loop's time."""
        if not self.outcome.done():
            with suppress(TimeoutError), TimeLimit(limit):
                await asyncio.shield(self.outcome)
        return self.outcome.result() if self.outcome.done() else None

    def fail(self, error: BaseException) -> None:
        """End every wait for this poll with *error*."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # retrieved, because a cancelled wait would leave it


class PollScheduler:
    """Polls for all waits of one session on one event loop.

    A scan over the planned polls finds the most urgent one, because urgency changes while a poll waits for
    its turn. A hanging poll blocks no other poll, because it counts for ``per_second`` only when it starts.

    Args:
        policy: Has ``per_second`` and the shortest pause after a 429.
    """

    def __init__(self, policy: PollPolicy) -> None:
        self._policy = policy
        self._planned: dict[PollKey, Poll] = {}
        self._running: dict[PollKey, Poll] = {}
        self._numbers = itertools.count(1)
        self._next_slot = -math.inf  # when per_second allows the next poll
        self._late = asyncio.Semaphore(MOST_LATE_LOOKS)
        self._pauses: dict[str | JobKey, float] = {}  # of projects and jobs; until when
        self._timer: tuple[float, asyncio.Handle] | None = None  # when it goes off
        self._closed = False

    def __len__(self) -> int:
        """Return how many jobs are polled."""
        return len(self._planned.keys() | self._running.keys())

    async def look(
        self, core: Core, call: Call, state: JobState, due: float, deadline: float, *, first: bool
    ) -> Look | None:
        """Return a look at a job that starts from now on: at *due*, or sooner if another wait needs one.

        Args:
            core: Polls the job, if no other wait with the same ``poll_key`` has planned a poll of it.
            call: The request to poll with.
            state: The job; a successful look is noted there before any wait gets it.
            due: When the look should start, by the loop's time.
            deadline: When it must start. It may then take a second.
            first: Whether the wait had no look yet. It then gets one even after its deadline.

        Returns:
            The look; a failed one, when it has not ended in time; or None, when none has started.

        Raises:
            StateError: The session is closed, or was closed meanwhile.
        """
        if self._closed:
            raise _closed()
        key = core.options.poll_key, state.key
        poll = self._planned.get(key)
        if poll is None:
            outcome = asyncio.get_running_loop().create_future()
            poll = self._planned[key] = Poll(key, core, call, state, outcome)
        poll.due, poll.deadline = min(poll.due, due), min(poll.deadline, deadline)
        poll.first = next(self._numbers) if first else poll.first
        poll.waits += 1
        try:
            self._wake_at(due)
            look = await poll.result(deadline)
            if look is None and first and poll.task is None:
                look = await self._late_look(poll)
            elif look is None and (poll.task is not None or self._paused_until(state.key) <= deadline):
                look = await poll.result(deadline + LAST_LOOK)
            return _unanswered() if look is None and poll.task is not None else look
        finally:
            await self._leave(poll)

    async def _late_look(self, poll: Poll) -> Look | None:
        """Return the look of *poll*, which starts now, after the deadline of a wait that had none."""
        key, time = poll.key, asyncio.get_running_loop().time
        async with self._late:
            if poll.task is None and key in self._running:
                await asyncio.wait([self._running[key].outcome])
            if poll.task is None and not poll.outcome.done() and self._paused_until(poll.state.key) <= time():
                self._begin(poll)
            return await poll.result(time() + (LAST_LOOK if poll.task is not None else 0.0))

    async def _leave(self, poll: Poll) -> None:
        """Note that one wait less needs *poll*. The last one ends it."""
        poll.waits -= 1
        if poll.waits:
            return
        if self._planned.get(poll.key) is poll:
            del self._planned[poll.key]
        if not self._planned and self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        if poll.task is not None:
            await end_tasks([poll.task])

    async def close(self) -> None:
        """End every wait with a ``StateError``, for good, and every poll."""
        self._closed = True
        polls = [*self._planned.values(), *self._running.values()]
        for poll in polls:
            poll.fail(_closed())
        await end_tasks([poll.task for poll in polls if poll.task is not None])

    # When polls start

    def _paused_until(self, key: JobKey) -> float:
        return max(self._pauses.get(key, 0.0), self._pauses.get(key[0], 0.0))

    def _wake_at(self, at: float) -> None:
        """Look for a poll to start at *at*, or sooner if that is planned already."""
        if self._timer is not None:
            if self._timer[0] <= at:
                return
            self._timer[1].cancel()
        loop = asyncio.get_running_loop()
        # The context is empty, because one caller's variables must not stay alive for another caller's polls.
        self._timer = at, loop.call_at(at, self._begin_next, context=contextvars.Context())

    def _begin_next(self) -> None:
        """Start the most urgent poll; only one, to leave the loop to other tasks."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        if now < self._next_slot:
            self._wake_at(self._next_slot)
            return
        next_poll, best_rank, at = None, (3, 0.0), math.inf
        for key, poll in self._planned.items():
            if key in self._running:
                continue  # its end wakes this scan
            due = max(poll.due, self._paused_until(key[1])) if self._pauses else poll.due
            if due > now:
                at = min(at, due)
            elif (rank := poll.urgency(now)) < best_rank:
                next_poll, best_rank = poll, rank
        if next_poll is not None:
            self._next_slot = at = now + 1.0 / self._policy.per_second
            self._begin(next_poll)
        if at < math.inf:
            self._wake_at(at)

    def _begin(self, poll: Poll) -> None:
        self._running[poll.key] = self._planned.pop(poll.key)  # a later wait gets a later look
        try:
            # A separate task with an empty context, because it serves all waits and outlives none of them.
            work = look_at(poll.core, poll.state, poll.call)
            poll.task = start_task(work, contextvars.Context())
        except BaseException as error:  # a task factory's; the waits raise it
            del self._running[poll.key]
            poll.fail(error)
        else:
            poll.task.add_done_callback(partial(self._finish, poll))

    def _finish(self, poll: Poll, task: asyncio.Task[Look]) -> None:
        """Wake the waits of *poll*."""
        loop, look = asyncio.get_running_loop(), None
        del self._running[poll.key]
        if task.cancelled():  # by other code; the waits tolerate a failed poll
            now = Moment(Stamp(dates.now()), loop, loop.time())
            look = Look(now, now.time, error=APIConnectionError("other code has cancelled the poll"))
        elif (error := task.exception()) is not None:
            poll.fail(error)
        else:
            look = task.result()
            self._keep_pause(poll.state.key, look)
        if look is not None and not poll.outcome.done():
            poll.outcome.set_result(look)
        if poll.key in self._planned and not self._closed:
            self._wake_at(self._planned[poll.key].due)

    def _keep_pause(self, key: JobKey, look: Look) -> None:
        """Keep the service's pause for these and later waits. The pause of a 429 is for the project."""
        error = look.error
        if isinstance(error, APIStatusError):
            pause = error.retry_after or 0.0
        else:
            # The reset header of a success contains the end of a window. It does not ask for a pause.
            headers = response_headers(look.job, error)
            pause = retry_after_seconds(headers, dates.now(), resets=False) or 0.0
        name: str | JobKey = key
        if isinstance(error, RateLimitError):
            name, pause = key[0], max(pause, self._policy.initial)
        if pause > 0:
            self._pauses = {other_name: end for other_name, end in self._pauses.items() if end > look.ended}
            end = look.ended + min(pause, LONGEST_PAUSE)
            self._pauses[name] = max(self._pauses.get(name, 0.0), end)


def scheduler_of(core: Core) -> PollScheduler:
    """Return the running loop's scheduler of the session."""
    return core.shared.loops.get().part(PollScheduler, lambda: PollScheduler(core.shared.poll))


def _unanswered() -> Look:
    """Return the look of a wait that leaves a poll under way at its end."""
    loop = asyncio.get_running_loop()
    now = Moment(Stamp(dates.now()), loop, loop.time())
    error = APITimeoutError(
        "get_job: the service has not answered by the end of the wait",
        phase="request",
        seconds=LAST_LOOK,
        operation="get_job",
    )
    return Look(now, now.time, error=error)


def _closed() -> StateError:
    return StateError(
        "the session was closed; the job keeps running at the service: wait again with a new session"
    )
