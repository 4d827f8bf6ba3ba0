"""Runs the steps of a store on a server: some at a time, each within its time, each failure as a StateError.

A step that waits its turn loses no time of its own. If a step ahead of it got no answer, it does not wait for
another time limit.
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
"""The default of ``timeout=`` of each store: the longest duration of one step, in seconds."""

CANCEL_AGAIN: Final = 0.25
"""Seconds between two cancellations of a step. Drivers swallow some, or clean up for too long."""

AWAY: Final = "check that the server runs and has a free connection, and that its URL and password are right"
"""What the user can do when a server cannot be reached or does not answer."""


class FirstLoop:
    """Remembers the event loop that was first to use a client, to whose connections it may belong."""

    def __init__(self) -> None:
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def is_running(self) -> bool:
        """Return whether the running loop is the first one to ask."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = weakref.ref(loop)
        return self._loop() is loop


class StepLine:
    """The line in which the steps of one event loop wait for their turn.

    Args:
        server: What the store is on, for the error.
        places: Steps at a time.
        failures: The errors that mean that the store cannot be used.
        explain: Returns the reason of a failure, and whether the steps in the line would fail, too.
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
            seconds: The longest duration of the step, without its wait in the line.

        Raises:
            StateError: The step failed, or a step ahead of it did.
        """
        outages = self._outages
        async with self._free:
            if self._outages != outages:
                raise self._unusable(self._reason)
            try:
                return await in_own_task(step(), seconds)
            except MintlifyError:  # our own, some of which are RuntimeError or ValueError
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

    The caller waits for asyncio alone, so its cancellation is never swallowed. When the caller ends, the step
    is cancelled until it has ended, too.

    Raises:
        TimeoutError: The time is over. The message has the error that the driver has hidden by trying again.
    """
    hidden: list[BaseException] = []
    task = asyncio.ensure_future(_keeping_hidden_error(step, hidden))
    limit = TimeLimit(asyncio.get_running_loop().time() + seconds)  # an answer that has arrived is read first
    try:
        with suppress(TimeoutError), limit:
            await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task], timeout=CANCEL_AGAIN)
        step.close()  # of a task that was cancelled before it began
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio logs that it never was
    if task.cancelled():
        reason = f"; the last try: {described(hidden[0])}" if hidden else ""
        raise TimeoutError(f"no answer within the timeout of {seconds:g} s{reason}")
    return task.result()


async def _keeping_hidden_error(step: Coroutine[Any, Any, T], hidden: list[BaseException]) -> T:
    """Run *step*. If it is cancelled in a pause of a driver's retries, add the error before the pause.

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
    """Return the class and the first line of *error*. A database writes the row into the second."""
    line = printable(str(error).partition("\n")[0])
    return f"{type(error).__name__}: {line}".rstrip(": ")
