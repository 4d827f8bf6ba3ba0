"""Runs the steps of a store on a server. Their number and time are limited, and failures are a StateError.

The time in the line does not count for a step's own time limit. If a step ahead in the line got no response,
the waiting steps fail immediately.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import anyio

from mintlify_async.errors import CauseSummary, MintlifyError, StateError, printable
from mintlify_async.runtime.time_limits import TimeLimit

T = TypeVar("T")

STEP_SECONDS: Final = 2.0
"""The default of ``timeout=`` of each store: the maximum duration of one step, in seconds."""

CANCEL_AGAIN: Final = 0.25
"""Seconds between two cancellations of a step, because a driver may swallow one, or clean up for too long."""

AWAY: Final = "check that the server runs and has a free connection, and that its URL and password are right"
"""Advice for the user if a server cannot be reached or does not respond."""


class FirstLoop:
    """Stores the first event loop that used a client. The client's connections may belong to it."""

    def __init__(self) -> None:
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def is_running(self) -> bool:
        """Return whether the running loop is the first loop that called this method."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = weakref.ref(loop)
        return self._loop() is loop


class StepLine:
    """The line in which the steps of one event loop wait.

    Args:
        server: The kind of the server, for the error.
        places: Number of steps at the same time.
        failures: The errors that mean that the store cannot be used.
        explain: Returns the reason of a failure, and whether the waiting steps would also fail.
    """

    def __init__(
        self,
        server: str,
        places: int,
        failures: tuple[type[Exception], ...],
        explain: Callable[[Exception], tuple[str, bool]],
    ) -> None:
        self._server, self._failures, self._explain = server, failures, explain
        self._free = asyncio.Semaphore(places)
        self._outages = 0
        self._reason = ""

    async def run(self, step: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Return the result of *step*.

        Args:
            step: Starts the step.
            seconds: Maximum duration of the step, without its wait in the line.

        Raises:
            StateError: The step failed, or a step ahead of it failed.
        """
        outages = self._outages
        async with self._free:
            if self._outages != outages:
                raise self._unusable(self._reason)
            try:
                return await in_own_task(step(), seconds)
            except MintlifyError:  # errors of this package, some of which are a RuntimeError or ValueError
                raise
            except self._failures as error:
                reason, is_outage = self._explain(error)
        if is_outage:
            self._outages += 1
            self._reason = reason
        raise self._unusable(reason)

    def _unusable(self, reason: str) -> StateError:
        error = StateError(f"the store on {self._server} cannot be used: {reason}")
        error.__cause__ = CauseSummary(reason)
        return error


async def in_own_task(step: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run *step* of a driver in a separate task, for at most *seconds*.

    The caller waits only for asyncio, so its cancellation is never swallowed. When the caller ends, the step
    is cancelled repeatedly until it has ended.

    Raises:
        TimeoutError: The time is over. The message has the error that the driver's retries have hidden.
    """
    hidden: list[BaseException] = []
    task = asyncio.ensure_future(_keeping_hidden_error(step, hidden))
    # A response that has already arrived is read before this limit ends the wait.
    limit = TimeLimit(asyncio.get_running_loop().time() + seconds)
    try:
        with suppress(TimeoutError), limit:
            await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task], timeout=CANCEL_AGAIN)
        step.close()  # closes the coroutine of a task that was cancelled before its start
        if not task.cancelled():
            task.exception()  # mark as retrieved, otherwise asyncio logs it
    if task.cancelled():
        reason = f"; the last try: {described(hidden[0])}" if hidden else ""
        raise TimeoutError(f"no answer within the timeout of {seconds:g} s{reason}")
    return task.result()


async def _keeping_hidden_error(step: Coroutine[Any, Any, T], hidden: list[BaseException]) -> T:
    """Run *step*. If it is cancelled in a pause between a driver's retries, keep the error before the pause.

    redis-py pauses in the ``except`` block of that error, so the error is the context of the cancellation.
    """
    try:
        return await step
    except asyncio.CancelledError as cancellation:
        error: BaseException | None = cancellation
        while isinstance(error, asyncio.CancelledError):
            error = error.__context__
        if error is not None:
            hidden.append(error)
        raise


def described(error: BaseException) -> str:
    """Return the class and the first line of *error*. A database writes values into the second line."""
    line = printable(str(error).partition("\n")[0])
    return f"{type(error).__name__}: {line}".rstrip(": ")
