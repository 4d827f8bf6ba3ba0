"""One wait for one job. It decides when to look next, which errors to tolerate, and how to end.

A wait is a loop in the caller's own task. It takes no step without the caller, so that cancelling it, a
timeout around it, and an error from a callback need no code.
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable
from typing import Final, Literal

from ..errors import (
    APIConnectionError,
    APIStatusError,
    JobFailedError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    UnexpectedResponseError,
)
from ..model.job_record import Job
from ..model.number_checks import check_seconds
from ..protocol.object_checks import check_function
from .poll_scheduler import PollScheduler
from .polling import SHORTEST, PollCalls
from .stale_guard import JobState, Look

DEFAULT_TIMEOUT: Final = 1800.0
"""Longest wait, in seconds. Most jobs take 1 to 5 minutes; a wait without a limit can hang a worker."""

DEFAULT_PR_GRACE: Final = 60.0
"""How long after its job's completion a pull request may appear, in seconds."""

PR_INTERVAL: Final = 10.0
"""Longest interval between two polls while a pull request may still appear, in seconds."""

Until = Literal["terminal", "pr"]
OnChange = Callable[[Job], object]

TOLERATED_STATUSES: Final = frozenset((408, 425, 429))
"""Statuses below 500 that do not end a wait at once, but count as an outage like 5xx."""


def check_wait(timeout: float | None, pr_grace: float, on_change: OnChange | None) -> None:
    """Check the arguments of a wait.

    Raises:
        ConfigurationError: One of them is invalid.
    """
    check_seconds(timeout, "timeout", zero=True, none="waits without end")
    check_seconds(pr_grace, "pr_grace", zero=True)
    check_function(on_change, "on_change")


class JobWait:
    """One wait for one job, with its own deadline. It starts when it is made.

    Args:
        calls: The agent API, with its poll policy and its random numbers.
        scheduler: The running loop's scheduler.
        state: The state of the job. Other waits may share it.
        timeout: When to give up, in seconds from now. None means never.
        on_look: Called after each poll, or None. It must not raise.
    """

    def __init__(
        self,
        calls: PollCalls,
        scheduler: PollScheduler,
        state: JobState,
        timeout: float | None,
        on_look: Callable[[Look], object] | None = None,
    ) -> None:
        self._calls = calls
        self._scheduler = scheduler
        self._state = state
        self._on_look = on_look
        self._time = asyncio.get_running_loop().time
        self._began = self._looked_at = self._time()
        self._deadline = math.inf if timeout is None else self._began + timeout
        self._grace_ends = math.inf  # of the pull request
        self._polls = 0
        self._failing_since: float | None = None
        self._last: Job | None = None

    async def result(
        self, *, check: bool, until: Until, pr_grace: float, on_change: OnChange | None = None
    ) -> Job:
        """Return the job's last record, as :meth:`JobHandle.wait` documents."""
        while True:
            try:
                job = await self.change()
            except JobTimeoutError:
                if self._grace_ends == math.inf or not self._state.done or self._state.job is None:
                    raise
                return self._state.job  # completed, without a pull request
            if on_change is not None:
                on_change(job)
            if not job.done:
                self._grace_ends = math.inf  # a newer follow-up is running; its pull request has its own time
            elif until == "terminal" or job.status != "completed" or job.pr_link is not None:
                break
            else:
                self._grace_ends = min(self._grace_ends, self._time() + pr_grace)
        if job.status == "failed" and check:
            raise JobFailedError(job)
        return job

    async def change(self) -> Job:
        """Return the next record that differs from the last one; a final one only when it is accepted.

        Raises:
            JobTimeoutError: The deadline has passed.
        """
        while not self._polls or self._time() < min(self._deadline, self._grace_ends):
            look = await self._look()
            if look is None:
                break
            if look.job is not None and self._is_news(look.job):
                self._last = look.job
                return look.job
        now, state = self._time(), self._state
        raise JobTimeoutError(state.ref, state.job, now - self._began, state.certain_in(now))

    async def _look(self) -> Look | None:
        """Return the next look, and plan the one after it."""
        deadline = min(self._deadline, self._grace_ends)
        due = min(self._due(), deadline)
        look = await self._scheduler.look(self._state, due, deadline, first=self._polls == 0)
        if look is None:
            return None
        self._polls += 1
        self._looked_at = look.ended
        if self._on_look is not None:
            self._on_look(look)
        if look.error is not None:
            self._tolerate(look, look.error)
        else:
            self._failing_since = None
        return look

    def _due(self) -> float:
        """Return when the next look is due. The first is due immediately. Later pauses grow."""
        if self._polls == 0:
            return self._began
        delay = self._calls.poll.delay(self._polls, self._calls.random())
        if self._grace_ends < math.inf:
            delay = min(delay, PR_INTERVAL)
        certain_in = self._state.certain_in(self._looked_at)
        if certain_in is not None:  # the poll at the end of the window is the one that counts
            delay = min(delay, max(certain_in, SHORTEST))
        return self._looked_at + delay

    def _is_news(self, job: Job) -> bool:
        if job.done and not self._state.done:
            return False  # it may be the result of the turn before
        return job != self._last

    def _tolerate(self, look: Look, error: Exception) -> None:
        """If the wait does not tolerate the error of a failed poll, raise it."""
        if isinstance(error, NotFoundError):
            if self._state.may_be_new(look):
                return
            outage = self._state.look is not None
        elif isinstance(error, APIStatusError) and error.status < 500:
            outage = error.status in TOLERATED_STATUSES
        else:
            outage = isinstance(error, APIStatusError | APIConnectionError | UnexpectedResponseError)
        if self._failing_since is None:
            self._failing_since = look.ended
        if not outage or look.ended - self._failing_since >= self._calls.poll.outage:
            # Several waits may raise the error of one poll. Each needs its own traceback.
            raise copy.copy(error) if isinstance(error, MintlifyError) else error
