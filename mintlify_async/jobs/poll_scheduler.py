"""One scheduler of polls for all waits of a session on an event loop.

No job is asked for twice at the same time, polls are spread out and limited per
second, and no task and no timer is left when the last wait has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from collections import deque
from typing import Final

from attrs import define, field

from ..errors import APIStatusError, RateLimitError, StateError, UnexpectedResponseError
from ..http.retry import retry_after_seconds
from ..model.job import Job
from ..runtime.clock import Timer
from .polling import PollCalls, PollResult
from .wait import JobWait

BURST: Final = 4
"""Most polls begun in one step of the loop: each takes about 0.2 ms; leave the loop to other tasks."""

TIMEOUT_BURST: Final = 64
"""Most waits timed out in one step of the loop, for the same reason; thousands may share a deadline."""

SLACK: Final = 0.01
"""By how many seconds a late timer may be made up for, where polls are closer together than that."""

LAST_POLL: Final = 1.0
"""How long a poll may take that is under way, or due, at the deadline, in seconds."""

HUNG: Final = 1.0
"""After how many seconds without an answer a poll no longer counts for ``concurrency``."""


@define(eq=False, repr=False, match_args=False)
class PolledJob:
    """One job that is polled, and the waits for it."""

    key: tuple[str, str]
    waiters: list[JobWait] = field(factory=list[JobWait])
    due: float = math.inf
    began: float = 0.0
    is_new: bool = False  # some wait for it has had no poll yet
    task: asyncio.Task[None] | None = None


Queue = list[tuple[float, int, PolledJob]]


class PollScheduler:
    """Polls for all waits of one session on one event loop.

    The first wait sets a timer, and the last one to end cancels it. Last polls at a
    deadline go first, then the first polls of waits, then the others as they are due.
    """

    def __init__(self, calls: PollCalls) -> None:
        """Poll through *calls*; nothing happens before the first wait."""
        self._calls = calls
        self._clock = calls.clock
        self._policy = calls.poll
        self._spacing = 1.0 / calls.poll.per_second
        self._slack = SLACK if self._spacing < SLACK else 0.0
        self._jobs: dict[tuple[str, str], PolledJob] = {}
        self._heap: Queue = []
        self._new: Queue = []  # first polls that are not due yet
        self._first: deque[PolledJob] = deque()  # first polls that are due
        self._last: deque[PolledJob] = deque()  # last polls at a deadline
        self._newest_turn = False  # of the first polls, the newest and the oldest go in turn
        self._deadlines: list[tuple[float, int, JobWait]] = []
        self._order = 0  # keeps the heaps from comparing jobs, and equal times in order
        self._next_slot = -math.inf  # when the limit per second allows the next poll
        self._running: dict[asyncio.Task[None], float] = {}  # polls and when they began, hung ones not
        self._hung: set[asyncio.Task[None]] = set()
        self._dying: set[asyncio.Task[None]] = set()
        self._pauses: dict[str | tuple[str, str], float] = {}  # of projects and jobs; until when
        self._waiting = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._closed = False

    def __len__(self) -> int:
        """Return how many jobs are waited for."""
        return len(self._jobs)

    # Waits enter and leave

    def enter(self, waiter: JobWait) -> None:
        """Begin to poll for *waiter*. The caller calls :meth:`leave` in ``finally``.

        Raises:
            StateError: The session is closed.
        """
        if self._closed:
            raise _closed()
        job = self._jobs.get(waiter.key)
        if job is None:
            job = self._jobs[waiter.key] = PolledJob(waiter.key)
        waiter.place = len(job.waiters)
        job.waiters.append(waiter)
        self._waiting += 1
        if waiter.deadline is not None:
            self._set_deadline(waiter, waiter.deadline)
        was_new, job.is_new = job.is_new, True
        if job.task is None and (not was_new or waiter.due < job.due):
            self._plan(job, min(job.due, waiter.due))
        self._set_timer()

    def leave(self, waiter: JobWait) -> None:
        """Stop polling for *waiter*; does nothing when it has left. Afterwards, await :meth:`drained`."""
        if waiter.place < 0:
            return
        job = self._jobs[waiter.key]
        last = job.waiters.pop()
        if last is not waiter:
            job.waiters[waiter.place] = last
            last.place = waiter.place
        self._release(waiter)
        if not job.waiters:
            self._drop(job)

    async def drained(self) -> None:
        """Return when every cancelled poll has ended."""
        if self._dying:
            import anyio  # loaded when it is used: a tenth of what importing the session takes

            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._dying)

    def close(self) -> None:
        """End every wait with a ``StateError``, for good. Call it on the loop that it serves."""
        self._closed = True
        for job in list(self._jobs.values()):
            for waiter in job.waiters.copy():
                waiter.fail(_closed())
                self.leave(waiter)

    def _drop(self, job: PolledJob) -> None:
        del self._jobs[job.key]
        job.due = math.inf
        if job.task is not None:
            job.task.cancel()
            self._dying.add(job.task)
            job.task.add_done_callback(self._dying.discard)
        if not self._jobs:
            for queue in (self._heap, self._new, self._first, self._last, self._deadlines):
                queue.clear()
            self._cancel_timer()

    def _release(self, waiter: JobWait) -> None:
        waiter.place = -1
        self._waiting -= 1
        if len(self._deadlines) > 2 * self._waiting + 64:  # most belong to waits that ended long before
            self._deadlines = [entry for entry in self._deadlines if entry[2].place >= 0]
            heapq.heapify(self._deadlines)

    # Deadlines

    def _set_deadline(self, waiter: JobWait, at: float) -> None:
        self._order += 1
        heapq.heappush(self._deadlines, (at, self._order, waiter))

    def _next_deadline(self) -> float:
        while self._deadlines and self._deadlines[0][2].place < 0:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    def _end_late_waits(self) -> None:
        """End the waits whose deadline has passed; a poll under way or due at the deadline may still end."""
        now = self._clock.now()
        for _ in range(TIMEOUT_BURST):
            if self._next_deadline() > now:
                return
            _, _, waiter = heapq.heappop(self._deadlines)
            until = self._last_chance(waiter)
            if now < until:
                self._set_deadline(waiter, until)
                job = self._jobs[waiter.key]
                if job.task is None:
                    self._last.append(job)
            else:
                waiter.give_up(now)
                self.leave(waiter)

    def _last_chance(self, waiter: JobWait) -> float:
        assert waiter.deadline is not None
        job = self._jobs[waiter.key]
        if job.task is not None:
            return max(waiter.deadline, job.began + LAST_POLL)
        return waiter.deadline + LAST_POLL if job.due <= waiter.deadline else waiter.deadline

    # Polls begin and end

    def _plan(self, job: PolledJob, due: float) -> None:
        """Let the next poll of *job* begin at *due*; its earlier entries in the queues become void."""
        job.due = max(due, self._paused_until(job))
        self._order += 1
        heapq.heappush(self._new if job.is_new else self._heap, (job.due, self._order, job))

    def _paused_until(self, job: PolledJob) -> float:
        return max(self._pauses.get(job.key, 0.0), self._pauses.get(job.key[0], 0.0))

    def _queue(self, now: float) -> deque[PolledJob] | Queue:
        """Return the queue that the next poll is taken from, without void entries at its end."""
        while self._last and not self._may_begin(self._last[0], now):
            self._last.popleft()
        if self._last:
            return self._last
        self._move_new(now)
        while self._first:
            end = -1 if self._newest_turn else 0
            if self._may_begin(self._first[end], now):
                return self._first
            del self._first[end]
        while self._heap and not self._is_due(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap

    def _move_new(self, now: float) -> None:
        """Move the first polls that have become due to their queue."""
        while self._new and (self._new[0][0] <= now or not self._is_due(self._new[0])):
            entry = heapq.heappop(self._new)
            if self._is_due(entry):
                self._first.append(entry[2])

    def _is_due(self, entry: tuple[float, int, PolledJob]) -> bool:
        due, _, job = entry
        return due == job.due and job.task is None and self._jobs.get(job.key) is job

    def _may_begin(self, job: PolledJob, now: float) -> bool:
        return job.task is None and job.due <= now and self._jobs.get(job.key) is job

    def _take(self, now: float) -> PolledJob | None:
        """Return the job that is polled next, if one is due."""
        queue = self._queue(now)
        if queue is self._heap:
            return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None
        if queue is self._last:
            return self._last.popleft()
        self._newest_turn = not self._newest_turn
        return self._first.popleft() if self._newest_turn else self._first.pop()

    def _next_poll(self, now: float) -> float:
        """Return when the next poll may begin."""
        queue = self._queue(now)
        at = now
        if queue is self._heap:
            at = min((entries[0][0] for entries in (self._heap, self._new) if entries), default=math.inf)
        return max(at, self._next_slot, self._next_place(now))

    def _next_place(self, now: float) -> float:
        """Return when fewer polls than ``concurrency`` are under way, not counting those that hang."""
        while self._running:
            task, began = next(iter(self._running.items()))
            if began + HUNG > now:
                break
            del self._running[task]
            self._hung.add(task)
        if len(self._running) < self._policy.concurrency:
            return now
        return next(iter(self._running.values())) + HUNG

    def _set_timer(self) -> None:
        """Wake when the next poll may begin, or at the next deadline."""
        at = min(self._next_deadline(), self._next_poll(self._clock.now())) if self._jobs else math.inf
        if self._timer is not None and self._timer_at == at:
            return
        self._cancel_timer()
        if at < math.inf:
            self._timer_at = at
            # An empty context: the variables and tracing of one caller must not reach another's polls.
            self._timer = contextvars.Context().run(self._clock.call_at, at, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._end_late_waits()
        self._begin_polls()
        self._set_timer()

    def _begin_polls(self) -> None:
        now = self._clock.now()
        for _ in range(BURST):
            if max(self._next_slot, self._next_place(now)) > now:
                return
            job = self._take(now)
            if job is None:
                return
            if self._paused_until(job) > now:
                self._plan(job, job.due)  # planned before the service asked for the pause
                continue
            self._next_slot = max(self._next_slot, now - self._slack) + self._spacing
            self._begin_poll(job, now)

    def _begin_poll(self, job: PolledJob, now: float) -> None:
        job.began, job.due, job.is_new = now, math.inf, False
        # For waits that enter later, the result is not fresh.
        audience = [(waiter, waiter.turn_number) for waiter in job.waiters]
        job.task = task = asyncio.get_running_loop().create_task(
            self._poll(job, audience), name=f"poll {job.key[1]}", context=contextvars.Context()
        )
        self._running[task] = now
        task.add_done_callback(lambda done: self._ended(job, done))

    async def _poll(self, job: PolledJob, audience: list[tuple[JobWait, int]]) -> None:
        project_id, job_id = job.key
        record, error = None, None
        try:
            record = await self._calls.get_job(job_id, project_id=project_id, retry=False)
        except Exception as failure:  # each wait decides by itself whether to tolerate it
            error = failure
        pause = self._pause(record, error)
        result = PollResult(record, error, job.began, self._clock.now(), pause)
        if pause or isinstance(error, RateLimitError):
            self._keep_pause(job, result)
        for waiter, turn_number in audience:
            if waiter.place >= 0 and not waiter.over:
                waiter.on_poll(result, turn_number)
        self._remove_ended(job)

    def _remove_ended(self, job: PolledJob) -> None:
        """Remove the waits of *job* that have ended, and *job* with the last."""
        waiters, job.waiters = job.waiters, []
        for waiter in waiters:
            if waiter.over:
                self._release(waiter)
            else:
                waiter.place = len(job.waiters)
                job.waiters.append(waiter)
        if not job.waiters and self._jobs.get(job.key) is job:
            job.task = None  # it is about to end by itself
            self._drop(job)

    def _ended(self, job: PolledJob, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._hung.discard(task)
        job.task = None
        if job.waiters:
            # A poll that was cancelled by other code has not set when its waits are due next.
            earliest = job.began + self._policy.floor if task.cancelled() else 0.0
            self._plan(job, max(earliest, min(waiter.due for waiter in job.waiters)))
        self._set_timer()

    def _pause(self, job: Job | None, error: Exception | None) -> float:
        """Return the pause that the service asks for, in seconds, at most the policy's limit."""
        if isinstance(error, APIStatusError):
            asked = error.retry_after
        else:
            raw = error if isinstance(error, UnexpectedResponseError) else job and job.raw
            # A reset header of a success tells when a window ends; it does not ask for a pause.
            asks = raw and ("retry-after" in raw.headers or "retry-after-ms" in raw.headers)
            asked = retry_after_seconds(raw.headers, self._clock.wall()) if raw and asks else None
        return min(asked or 0.0, self._policy.retry_after_cap)

    def _keep_pause(self, job: PolledJob, result: PollResult) -> None:
        """Remember a pause, also for waits that enter later; that of a 429 for the whole project."""
        key: str | tuple[str, str] = job.key
        pause = result.retry_after
        if isinstance(result.error, RateLimitError):
            key, pause = job.key[0], max(pause, self._policy.initial)
        until = max(self._pauses.pop(key, 0.0), result.ended + pause)
        for old in list(self._pauses)[:2]:  # the oldest are at the front
            if self._pauses[old] <= result.ended:
                del self._pauses[old]
        self._pauses[key] = until


def _closed() -> StateError:
    return StateError("the session was closed; the job goes on at the service: wait again with a new session")
