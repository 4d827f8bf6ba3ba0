"""One scheduler of polls for all waits of a session on an event loop.

A wait requests a poll of its job that starts after the request. Waits for the same job share polls. No job is
polled twice at the same time. No task and no timer remains when the last wait has ended.
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
from ..http.header_times import retry_after_seconds
from ..http.session_core import Core
from ..protocol.requests import Call
from ..runtime import clock
from ..runtime.tasks import end_tasks, start_task
from ..runtime.time_limits import TimeLimit
from ..settings.poll_policy import LONGEST_PAUSE, PollPolicy
from .job_calls import look_at, moment
from .stale_guard import JobKey, JobState, Look, response_headers

LAST_LOOK: Final = 1.0
"""Time for a poll that is running or due at a wait's deadline, in seconds."""

MOST_LATE_LOOKS: Final = 100
"""Maximum number of first polls after a deadline at the same time. ``per_second`` does not limit them."""


PollKey: TypeAlias = tuple[Hashable, JobKey]
"""How to poll, and the job, so that no job is polled with the key or the headers of another customer."""


@define(eq=False, repr=False, match_args=False)
class Poll:
    """One planned or running poll of a job, for the waits that share it.

    Args:
        key: The key of the poll in the scheduler.
        core: The core of the first wait that needed this poll.
        call: The request of that wait.
        state: The job.
        outcome: A future of the :class:`Look`, or of the error of a closed session.
        due: When the poll should start, by the loop's time.
        deadline: When the poll must start, by the loop's time; infinity for no limit.
        first: The number of the newest wait that had no poll yet, else 0. Newer waits have higher numbers.
        waits: The number of waits that need this poll.
        task: The task that runs the poll. None while the poll is planned.
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
        """Return a rank: polls at a deadline, then first polls (newest first), then by the time *due*."""
        if self.deadline <= now:
            return 0, -self.first
        return (1, -self.first) if self.first else (2, self.due)

    async def result(self, limit: float) -> Look | None:
        """Return the outcome if it arrives by *limit*, by the loop's time. Otherwise return None."""
        if not self.outcome.done():
            with suppress(TimeoutError), TimeLimit(limit):
                await asyncio.shield(self.outcome)
        return self.outcome.result() if self.outcome.done() else None

    def fail(self, error: BaseException) -> None:
        """End every wait for this poll with *error*."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # mark as retrieved, because a cancelled wait does not read it


class PollScheduler:
    """Polls for all waits of one session on one event loop.

    A scan over the planned polls finds the most urgent poll, because urgency changes while a poll waits. A
    slow poll blocks no other poll, because ``per_second`` counts only the start of a poll.

    Args:
        policy: The poll policy: ``per_second``, and ``initial`` as the shortest pause after a 429.
    """

    def __init__(self, policy: PollPolicy) -> None:
        self._policy = policy
        self._planned: dict[PollKey, Poll] = {}
        self._running: dict[PollKey, Poll] = {}
        self._numbers = itertools.count(1)
        self._next_slot = -math.inf  # when per_second allows the next poll
        self._late = asyncio.Semaphore(MOST_LATE_LOOKS)
        self._pauses: dict[str | JobKey, float] = {}  # when the pause of a project or job ends
        self._timer: tuple[float, asyncio.Handle] | None = None  # the time of the timer, and its handle
        self._closed = False

    def __len__(self) -> int:
        """Return the number of jobs with polls."""
        return len(self._planned.keys() | self._running.keys())

    async def look(
        self, core: Core, call: Call, state: JobState, due: float, deadline: float, *, first: bool
    ) -> Look | None:
        """Wait for a poll that starts after this call, at *due*. Return its outcome.

        If another wait needs a poll earlier, that poll is shared.

        Args:
            core: The session core that polls the job, if no other wait with the same ``poll_key`` has planned
                a poll of the job.
            call: The request to poll with.
            state: The job. A successful poll is recorded there before a wait gets it.
            due: When the poll should start, by the loop's time.
            deadline: When it must start, by the loop's time. The poll may then take a second.
            first: Whether the wait had no poll yet. Then it gets a poll even after its deadline.

        Returns:
            The outcome. If the poll did not end in time, a failed one. If no poll started, None.

        Raises:
            StateError: The session is closed, or was closed during the call.
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
        """Start *poll* after the deadline of a wait that had no poll, and return the outcome."""
        key, time = poll.key, asyncio.get_running_loop().time
        async with self._late:
            if poll.task is None and key in self._running:
                await asyncio.wait([self._running[key].outcome])
            if poll.task is None and not poll.outcome.done() and self._paused_until(poll.state.key) <= time():
                self._begin(poll)
            return await poll.result(time() + (LAST_LOOK if poll.task is not None else 0.0))

    async def _leave(self, poll: Poll) -> None:
        """Remove one wait from *poll*. Without waits, the poll ends."""
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
        """End every poll, and every wait with a ``StateError``. Later waits get the same error."""
        self._closed = True
        polls = [*self._planned.values(), *self._running.values()]
        for poll in polls:
            poll.fail(_closed())
        await end_tasks([poll.task for poll in polls if poll.task is not None])

    # The start of polls

    def _paused_until(self, key: JobKey) -> float:
        return max(self._pauses.get(key, 0.0), self._pauses.get(key[0], 0.0))

    def _wake_at(self, at: float) -> None:
        """If no earlier start is planned, start the next poll at *at*."""
        if self._timer is not None:
            if self._timer[0] <= at:
                return
            self._timer[1].cancel()
        loop = asyncio.get_running_loop()
        # An empty context, because a caller's variables must not stay alive for the polls of others.
        self._timer = at, loop.call_at(at, self._begin_next, context=contextvars.Context())

    def _begin_next(self) -> None:
        """Start the most urgent poll. Only one, so that other tasks of the loop can run."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        if now < self._next_slot:
            self._wake_at(self._next_slot)
            return
        next_poll, best_rank, at = None, (3, 0.0), math.inf
        for key, poll in self._planned.items():
            if key in self._running:
                continue  # the end of the running poll starts this scan again
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
        self._running[poll.key] = self._planned.pop(poll.key)  # a later wait gets a later poll
        try:
            # A separate task with an empty context, because it serves all waits and ends with the last wait.
            work = look_at(poll.core, poll.state, poll.call)
            poll.task = start_task(work, contextvars.Context())
        except BaseException as error:  # an error of a task factory, which the waits raise
            del self._running[poll.key]
            poll.fail(error)
        else:
            poll.task.add_done_callback(partial(self._finish, poll))

    def _finish(self, poll: Poll, task: asyncio.Task[Look]) -> None:
        """Give the outcome of *poll* to its waits."""
        look = None
        del self._running[poll.key]
        if task.cancelled():  # other code cancelled it. The waits tolerate this like a failed poll
            now = moment({})
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
        """Keep the pause that the service requested, for all waits. The pause of a 429 is for the project."""
        error = look.error
        if isinstance(error, APIStatusError):
            pause = error.retry_after or 0.0
        else:
            # The reset header of a success contains the end of a window. It is not a request to pause.
            headers = response_headers(look.job, error)
            pause = retry_after_seconds(headers, clock.now(), resets=False) or 0.0
        name: str | JobKey = key
        if isinstance(error, RateLimitError):
            name, pause = key[0], max(pause, self._policy.initial)
        if pause > 0:
            self._pauses = {other_name: end for other_name, end in self._pauses.items() if end > look.ended}
            end = look.ended + min(pause, LONGEST_PAUSE)
            self._pauses[name] = max(self._pauses.get(name, 0.0), end)


def scheduler_of(core: Core) -> PollScheduler:
    """Return the session's scheduler for the running loop."""
    return core.shared.loops.get().part(PollScheduler, lambda: PollScheduler(core.shared.poll))


def _unanswered() -> Look:
    """Return the outcome for a wait that ends while its poll is running."""
    now = moment({})
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
