"""One wait for one job. It decides when to poll, which errors to tolerate, and how to end.

A wait is a loop in the caller's own task. It takes no step without the caller, so cancellation and a timeout
around it need no code. In its simplest form, it would be::

    while True:
        job = await get_job()
        if job.done:
            return job
        await asyncio.sleep(2.0)

That is not enough. The first ``done`` may be the result of an earlier prompt, so it only counts if
``stale_guard`` accepts it. A failed poll must not lose the job, so an outage is tolerated for five minutes.
Many waits may need the same job, so ``shared_polls`` shares the polls and limits them per second.
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
from typing import Final

from ..errors import (
    APIConnectionError,
    APIStatusError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    UnexpectedResponseError,
    printable,
)
from ..http.session_core import Core
from ..model.job_record import Job
from ..protocol.requests import get_job_call
from ..runtime import clock
from ..settings.options import Observation
from ..settings.poll_policy import NOT_FOUND_SECONDS, SHORTEST
from ..settings.retry_policy import TRY_AGAIN_STATUSES
from .shared_polls import scheduler_of
from .stale_guard import JobState, Look, next_order

TOLERATED_STATUSES: Final = TRY_AGAIN_STATUSES | {429}
"""Statuses below 500 that do not end a wait immediately. They count as an outage, like 5xx."""


class JobWait:
    """One wait for one job, with its own deadline. It starts when it is made.

    Args:
        core: The core of the session.
        state: The state of the job. Other waits may share it.
        timeout: The wait ends after this many seconds. None means no limit.
        observation: Gets each poll, or None.
    """

    def __init__(
        self,
        core: Core,
        state: JobState,
        timeout: float | None,
        observation: Observation | None = None,
    ) -> None:
        self._core = core
        self._policy = core.options.poll
        self._scheduler = scheduler_of(core)
        self._call = get_job_call(core.options, *state.key, timeout=core.shared.poll.timeout)
        self._state = state
        self._observation = observation
        self._time = asyncio.get_running_loop().time
        self._began = self._looked_at = self._time()
        self._deadline = math.inf if timeout is None else self._began + timeout
        self._order = next_order()  # polls that start after this moment have a higher number
        self._polls = 0
        self._succeeded_at: float | None = None
        self._failing_since: float | None = None
        self._error: Exception | None = None
        self._last: Job | None = None

    async def change(self) -> Job:
        """Return the next record that differs from the last one. A final record must be accepted.

        Raises:
            JobTimeoutError: The deadline has passed.
        """
        state = self._state
        while not self._polls or self._time() < self._deadline:
            look = await self._scheduler.look(
                self._core,
                self._call,
                state,
                min(self._due(), self._deadline),
                self._deadline,
                first=self._polls == 0,
            )
            if look is None:
                break
            self._polls += 1
            self._looked_at = look.ended
            if self._observation is not None:
                error = {"error": type(look.error).__name__}
                self._observation.event("poll", error if look.job is None else {"status": look.job.status})
            if look.error is not None:
                self._tolerate(look, look.error)
            else:
                self._succeeded_at, self._failing_since, self._error = look.ended, None, None
            # A final record that is not accepted may be the result of an earlier prompt. During a slow poll,
            # another poll may have received the accepted record.
            result = state.result(self._order)
            job = look.job if result is None else result
            if job is not None and job != self._last and (result is not None or not job.done):
                self._last = job
                return job
        if (result := state.result(self._order)) is not None:  # from another poll, which was faster
            return result
        raise self._timed_out()

    def _timed_out(self) -> Exception:
        """Return the error of a wait whose deadline has passed.

        If polls have failed for too long, in this wait and in the waits before, this is the error of the last
        poll. So several short waits tolerate an outage no longer than a single wait.
        """
        now, state, last_error = self._time(), self._state, self._error
        failing_for = None
        if last_error is not None or self._succeeded_at is None:
            seconds = state.failing_for(clock.now())
            if last_error is not None and seconds >= self._policy.outage:
                return last_error
            failing_for = max(
                seconds, now - (self._began if self._succeeded_at is None else self._succeeded_at)
            )
        waited, job, certain_in = now - self._began, state.job, state.certain_in(now)
        error = JobTimeoutError(
            _timeout_text(state.key[1], job, waited, certain_in, last_error, failing_for),
            ref=state.ref,
            job=job,
            waited=waited,
            certain_in=certain_in,
            error=last_error,
            failing_for=failing_for,
        )
        error.__cause__ = last_error
        return error

    def _due(self) -> float:
        """Return the time at which the next poll is due."""
        if self._polls == 0:
            return self._began
        delay = self._policy.delay(self._polls, random.random())
        counts_in = self._state.counts_in(self._looked_at)
        if counts_in is not None:  # only the poll at the end of the window can be accepted
            delay = min(delay, max(counts_in, SHORTEST))
        return self._looked_at + delay

    def _tolerate(self, look: Look, error: Exception) -> None:
        """If the wait does not tolerate the error of a failed poll, raise it."""
        # Several waits may raise the error of the same poll. Each needs its own traceback.
        self._error = error = copy.copy(error) if isinstance(error, MintlifyError) else error
        if isinstance(error, NotFoundError):
            age = self._state.age(look)
            outage = self._state.look is not None
            if not outage and age is not None and age <= NOT_FOUND_SECONDS:
                return
        elif isinstance(error, APIStatusError) and error.status < 500:
            outage = error.status in TOLERATED_STATUSES
        else:
            outage = isinstance(error, APIStatusError | APIConnectionError | UnexpectedResponseError)
        if self._failing_since is None:
            self._failing_since = look.ended
        if not outage or look.ended - self._failing_since >= self._policy.outage:
            raise error
        self._state.fail(look)


def _timeout_text(
    id: str,
    job: Job | None,
    waited: float,
    certain_in: float | None,
    error: Exception | None,
    failing_for: float | None,
) -> str:
    """Return the text of a JobTimeoutError with these attributes."""
    status = "never seen" if job is None else printable(job.status)
    if failing_for is not None:
        text = f"no poll has succeeded for {failing_for:.1f} s"
        text += "" if job is None else f" (last seen {status})"
    else:
        text = f"{status} after {waited:.1f} s"
    if certain_in is not None:
        text += (
            f", which may be the status before the follow-up; it is certain in {certain_in:.0f} s: "
            "wait again with this error's .ref"
        )
    elif failing_for is None and job is not None and not job.done:
        known = status == "active"
        text += "; it keeps running at the service" if known else ", a status that this version does not know"
    cause = "" if error is None else f": {error}"
    return f"job {printable(id)}: {text}{cause}"
