"""Waits come in, looks at their jobs go out to them: one scheduler for all waits of a session on a loop.

No job is asked for twice at once, polls are spread and capped a second, and
nothing is left when the last wait has gone: no task, no timer.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from attrs import frozen

from .clock import Clock, Timer
from .errors import APIStatusError, StateError, UnexpectedResponseError
from .job import Job
from .retry import PollPolicy, retry_after_seconds

__all__ = ["Look", "PollCalls", "PollScheduler", "Poller"]

BURST: Final = 4
"""Most polls begun in one step of the loop: each costs some 0.2 ms, and others want to run, too."""

ENDS: Final = 64
"""Most waits given up in one step of the loop, for the same reason; thousands may share a deadline."""

SLACK: Final = 0.01
"""Seconds by which a late timer may be made up for, where polls are closer together than that."""

LAST_LOOK: Final = 1.0
"""Seconds that a poll has which is under way, or due, at a deadline."""


class PollCalls(Protocol):
    """What polling needs of a session."""

    @property
    def clock(self) -> Clock:
        """The session's clock."""
        ...

    @property
    def poll(self) -> PollPolicy:
        """When to look."""
        ...

    def get_job(self, job_id: str, *, project_id: str, retry: bool) -> Coroutine[Any, Any, Job]:
        """Look at a job; once, when *retry* is false."""
        ...


@frozen
class Look:
    """What one poll has brought: a record, or an error; when it began and ended; what pause was asked for."""

    job: Job | None
    error: Exception | None
    began: float
    ended: float
    retry_after: float


class Poller(Protocol):
    """Somebody who waits for a job."""

    due: float
    """When the next look should begin."""

    deadline: float | None
    """When to give up."""

    over: bool
    """Whether it has what it waited for."""

    entered: bool
    """The scheduler's: whether it stands there."""

    @property
    def key(self) -> tuple[str, str]:
        """The project and the job."""
        ...

    @property
    def era(self) -> int:
        """Which follow-up is the newest; see :class:`~mintlify_async.turns.JobTrack`."""
        ...

    def hear(self, look: Look, era: int) -> None:
        """Take in a look that began in *era*: be over, or set *due* anew."""
        ...

    def give_up(self, at: float) -> None:
        """Be over: the deadline has come."""
        ...

    def fail(self, error: Exception) -> None:
        """Be over, with *error*."""
        ...


class _Watch:
    """One job, and those who wait for it."""

    __slots__ = ("began", "due", "key", "not_before", "pollers", "task")

    def __init__(self, key: tuple[str, str], pollers: list[Poller]) -> None:
        self.key = key
        self.pollers = pollers
        self.due = float("inf")
        self.not_before = 0.0  # the service asked for a pause until then
        self.began = 0.0
        self.task: asyncio.Task[None] | None = None


class PollScheduler:
    """Polls for all the waits of one session on one event loop.

    It has no life of its own: the first wait sets a timer, and when the last has
    gone there is none. Polls run in an empty context, so that no request's tracing
    or variables reach into another's.
    """

    def __init__(self, calls: PollCalls) -> None:
        """Poll through *calls*; nothing happens before the first wait."""
        self._calls = calls
        self._clock = calls.clock
        self._policy = calls.poll
        self._spacing = 1.0 / calls.poll.per_second
        self._slack = SLACK if self._spacing < SLACK else 0.0
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._heap: list[tuple[float, int, _Watch]] = []
        self._order = 0
        self._slot = float("-inf")  # when the cap lets the next poll begin
        self._running: set[asyncio.Task[None]] = set()
        self._dying: set[asyncio.Task[None]] = set()
        self._deadlines: list[tuple[float, int, Poller]] = []
        self._waiting = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._closed = False

    def __len__(self) -> int:
        """Return how many jobs are waited for."""
        return len(self._watches)

    # Waits come and go ------------------------------------------------------------------------

    def enter(self, poller: Poller) -> None:
        """Begin to look for *poller*. Whoever calls this calls :meth:`leave`, in ``finally``.

        Raises:
            StateError: The session is closed.
        """
        if self._closed:
            raise _closed()
        watch = self._watches.get(poller.key)
        if watch is None:
            watch = self._watches[poller.key] = _Watch(poller.key, [poller])
        else:
            watch.pollers.append(poller)
        poller.entered = True
        self._waiting += 1
        if poller.deadline is not None:
            self._set_deadline(poller, poller.deadline)
        if watch.task is None:
            self._plan(watch, min(watch.due, poller.due))
        self._set_timer()

    def leave(self, poller: Poller) -> None:
        """Stop looking for *poller*; harmless when it has left. Afterwards, await :meth:`drained`."""
        if not poller.entered:
            return
        self._release(poller)
        watch = self._watches[poller.key]
        watch.pollers.remove(poller)
        if not watch.pollers:
            self._drop(watch)

    async def drained(self) -> None:
        """Return when no poll is left that nobody waits for."""
        if self._dying:
            import anyio  # loaded when it is used: a tenth of what importing the session takes

            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._dying)

    def close(self) -> None:
        """End every wait with a ``StateError``; for good. Call it on the loop that it serves."""
        self._closed = True
        for watch in list(self._watches.values()):
            for poller in watch.pollers.copy():
                poller.fail(_closed())
                self.leave(poller)

    async def aclose(self) -> None:
        """Close, and return when no poll is left."""
        self.close()
        await self.drained()

    def _drop(self, watch: _Watch) -> None:
        del self._watches[watch.key]
        watch.due = float("inf")
        if watch.task is not None:
            watch.task.cancel()
            self._dying.add(watch.task)
            watch.task.add_done_callback(self._dying.discard)
        if not self._watches:
            self._heap.clear()
            self._deadlines.clear()
            self._cancel_timer()

    def _release(self, poller: Poller) -> None:
        poller.entered = False
        self._waiting -= 1
        if len(self._deadlines) > 2 * self._waiting + 64:  # most are of waits that ended well before
            self._deadlines = [entry for entry in self._deadlines if entry[2].entered]
            heapq.heapify(self._deadlines)

    # Deadlines --------------------------------------------------------------------------------

    def _set_deadline(self, poller: Poller, at: float) -> None:
        self._order += 1
        heapq.heappush(self._deadlines, (at, self._order, poller))

    def _next_deadline(self) -> float:
        """Return when the first of those who still wait gives up."""
        while self._deadlines and not self._deadlines[0][2].entered:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else float("inf")

    def _end_late(self) -> None:
        """Give up what is past its deadline; but a last look under way, or about to begin, has a moment."""
        now = self._clock.now()
        for _ in range(ENDS):
            if self._next_deadline() > now:
                return
            _, _, poller = heapq.heappop(self._deadlines)
            until = self._last_chance(poller)
            if now < until:
                self._set_deadline(poller, until)
            else:
                poller.give_up(now)
                self.leave(poller)

    def _last_chance(self, poller: Poller) -> float:
        assert poller.deadline is not None
        watch = self._watches[poller.key]
        if watch.task is not None:
            return max(poller.deadline, watch.began + LAST_LOOK)
        return poller.deadline + LAST_LOOK if watch.due <= poller.deadline else poller.deadline

    # Polls begin and end ----------------------------------------------------------------------

    def _plan(self, watch: _Watch, due: float) -> None:
        """Let the next poll of *watch* begin at *due*; what the heap held of it before is void."""
        due = max(due, watch.not_before)
        if due != watch.due:
            watch.due = due
            self._order += 1
            heapq.heappush(self._heap, (due, self._order, watch))

    def _next(self) -> _Watch | None:
        """Return the job that is due first, dropping from the heap what is void."""
        while self._heap:
            due, _, watch = self._heap[0]
            if due == watch.due and watch.task is None:
                return watch
            heapq.heappop(self._heap)
        return None

    def _set_timer(self) -> None:
        """Wake when the next poll may begin, or the next wait gives up."""
        at = self._next_deadline()
        watch = self._next()
        if watch is not None and len(self._running) < self._policy.concurrency:
            at = min(at, max(watch.due, self._slot))
        if self._timer is not None and self._timer_at == at:
            return
        self._cancel_timer()
        if at < float("inf"):
            self._timer_at = at
            self._timer = contextvars.Context().run(self._clock.call_at, at, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._begin_polls()
        self._end_late()
        self._set_timer()

    def _begin_polls(self) -> None:
        now = self._clock.now()
        for _ in range(BURST):
            watch = self._next()
            if watch is None or len(self._running) >= self._policy.concurrency:
                return
            if max(watch.due, self._slot) > now:
                return
            heapq.heappop(self._heap)
            self._slot = max(self._slot, now - self._slack) + self._spacing
            self._begin(watch, now)

    def _begin(self, watch: _Watch, now: float) -> None:
        watch.began, watch.due = now, float("inf")
        audience = [(poller, poller.era) for poller in watch.pollers]
        task = asyncio.get_running_loop().create_task(
            self._poll(watch, audience), name=f"poll {watch.key[1]}", context=contextvars.Context()
        )
        watch.task = task
        self._running.add(task)
        task.add_done_callback(lambda done: self._ended(watch, done))

    async def _poll(self, watch: _Watch, audience: list[tuple[Poller, int]]) -> None:
        """Ask once and tell those who waited when it began: for those who came later it is not fresh."""
        project_id, job_id = watch.key
        job, error = None, None
        try:
            job = await self._calls.get_job(job_id, project_id=project_id, retry=False)
        except Exception as failure:  # each wait judges for itself whether to bear it
            error = failure
        pause = self._pause(job, error)
        look = Look(job, error, watch.began, self._clock.now(), pause)
        watch.not_before = look.ended + pause
        for poller, era in audience:
            if poller.entered and not poller.over:
                poller.hear(look, era)
        self._let_go(watch)

    def _let_go(self, watch: _Watch) -> None:
        """Drop those of *watch* that are over, and *watch* with the last."""
        over = [poller for poller in watch.pollers if poller.over]
        for poller in over:
            self._release(poller)
        if over:
            watch.pollers = [poller for poller in watch.pollers if not poller.over]
        if not watch.pollers and self._watches.get(watch.key) is watch:
            watch.task = None  # it is about to end by itself
            self._drop(watch)

    def _ended(self, watch: _Watch, task: asyncio.Task[None]) -> None:
        """Plan the next poll; also when somebody else cancelled this one."""
        self._running.discard(task)
        watch.task = None
        if watch.pollers:
            earliest = watch.began + self._policy.floor if task.cancelled() else 0.0
            self._plan(watch, max(earliest, min(poller.due for poller in watch.pollers)))
        self._set_timer()

    def _pause(self, job: Job | None, error: Exception | None) -> float:
        """Return the pause that the service asks for, in seconds, within the policy's cap."""
        if isinstance(error, APIStatusError):
            asked = error.retry_after
        else:
            raw = error if isinstance(error, UnexpectedResponseError) else job and job.raw
            # a reset header on a success says when a window ends, not that anybody must wait for it
            asks = raw and ("retry-after" in raw.headers or "retry-after-ms" in raw.headers)
            asked = retry_after_seconds(raw.headers, self._clock.wall()) if raw and asks else None
        return min(asked or 0.0, self._policy.retry_after_cap)


def _closed() -> StateError:
    return StateError("the session was closed; the job goes on at the service: wait again with a new session")
