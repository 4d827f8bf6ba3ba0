"""Recordings: steps that continue after a cancellation of the caller, such as the record of a paid job.

Another example is the save of a conversation's turn.

The steps belong to one event loop, and closing the session waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ..errors import StateError
from .tasks import start_task

__all__ = ["KeptStep", "Recordings"]

RETRY_SECONDS: Final = 60.0
"""Time for which a step is retried, in seconds."""

RECORD_PATIENCE: Final = 5.0
"""Time for which a caller waits until its result is recorded, in seconds. close() waits as long."""

CANCELLED_PATIENCE: Final = 0.25
"""Time for which a cancelled caller still waits for a step, in seconds."""

FIRST_PAUSE: Final = 0.05
"""Seconds until a step is tried again. The pause doubles each time."""

LONGEST_PAUSE: Final = 0.25
"""Longest pause between two attempts, in seconds."""

log = logging.getLogger("mintlify_async")


class KeptStep:
    """A step in its own task, which no caller's cancellation stops.

    The first caller that waits for the result gets the step's error. If no caller has waited when the session
    is closed, the error is logged, and the next turn still gets it.

    Args:
        task: The task of the step.
        failure: The text for the log if the step fails.
    """

    def __init__(self, task: asyncio.Task[Any], failure: str) -> None:
        self._task = task
        self._failure = failure
        self._waiting = 0  # the number of waiting callers
        self._leave_at: float | None = None  # set when a caller is cancelled
        self._is_raised = self._is_logged = False
        task.add_done_callback(self._done)  # the task keeps this object alive until it is done

    @property
    def done(self) -> bool:
        """Whether the step has ended."""
        return self._task.done()

    async def ended(self, *, cancelled: bool = False) -> None:
        """Wait for the end of the step. Its error is kept.

        A cancellation is raised as soon as the step ends, or after 0.25 s.

        Args:
            cancelled: Whether the caller was cancelled before. Then it also waits at most 0.25 s.
        """
        if self._task.done():
            return
        self._waiting += 1
        try:
            await (self._last_wait() if cancelled else asyncio.wait([self._task]))
        except asyncio.CancelledError:
            await self._last_wait()
            raise
        finally:
            self._waiting -= 1

    async def _last_wait(self) -> None:
        """Wait until the step ends, or until 0.25 s after the first cancellation of a caller."""
        import anyio  # loaded here, because it takes a tenth of the session's import time

        now = asyncio.get_running_loop().time()
        if self._leave_at is None:
            self._leave_at = now + CANCELLED_PATIENCE
        with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel every await again
            await asyncio.wait([self._task], timeout=max(0.0, self._leave_at - now))

    async def result(self, *, cancelled: bool = False) -> None:
        """Wait as :meth:`ended` does. Raise the step's error if no caller has got it yet."""
        await self.ended(cancelled=cancelled)
        error = self._error()
        if error is not None:
            self._is_raised = True
            raise error

    def _error(self) -> BaseException | None:
        if self._is_raised or not self._task.done():
            return None
        if self._task.cancelled():
            return StateError(f"{self._failure}: its session or its event loop was closed")
        return self._task.exception()

    def _done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.report()
        else:
            task.exception()  # mark as retrieved, so that asyncio does not log it as well

    def report(self) -> None:
        """If no caller got the step's error or waits for it, log the error."""
        error = self._error()
        if error is not None and not self._waiting and not self._is_logged:
            self._is_logged = True
            log.error("%s", self._failure, exc_info=error)

    def __del__(self) -> None:
        """Log an error that no caller got."""
        self.report()


class Recordings:
    """The unfinished steps of one event loop."""

    def __init__(self) -> None:
        """Start without steps."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._kept_steps = weakref.WeakSet[KeptStep]()

    @contextmanager
    def following(self) -> Generator[None]:
        """Make :meth:`close` wait for the end of the block."""
        loop = asyncio.get_running_loop()
        call = loop.create_future()
        self._tasks.add(call)
        try:
            yield
        finally:
            self._tasks.discard(call)
            if not loop.is_closed():
                call.cancel()

    def keep(self, step: Coroutine[Any, Any, object], failure: str) -> KeptStep:
        """Run *step* in its own task, for which :meth:`close` waits, and return the step.

        Args:
            step: The step.
            failure: The text for the log if the step fails.
        """
        kept_step = KeptStep(self._follow(start_task(step)), failure)
        self._kept_steps.add(kept_step)
        return kept_step

    def _follow(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def insist(
        self,
        step: Callable[[], Awaitable[object]],
        failure: str,
        patience: float,
        fields: Mapping[str, object] | None = None,
    ) -> Exception | None:
        """Repeat *step* until it succeeds, for 60 s. Return after the success, or after *patience* seconds.

        If the caller is cancelled, the step continues in its own task. After 60 s, *failure* is logged.

        Args:
            step: The step.
            failure: The text for the log if the step fails.
            patience: Maximum time that the caller waits, in seconds.
            fields: The fields of the log line.

        Returns:
            None if the step has succeeded. Otherwise its last error.
        """
        errors = [Exception("no answer yet")]
        task = self._follow(start_task(_insist(step, failure, errors, fields)))
        await asyncio.wait([task], timeout=patience)
        return errors[-1] if errors else None

    async def close(self) -> None:
        """Wait until all steps are done, at most 5 s. Log the errors that no caller got."""
        loop = asyncio.get_running_loop()
        end = loop.time() + RECORD_PATIENCE
        while self._tasks and loop.time() < end:
            await asyncio.wait(self._tasks, timeout=end - loop.time())
        for task in self._tasks:
            task.cancel()
        for kept_step in list(self._kept_steps):
            kept_step.report()


async def _insist(
    step: Callable[[], Awaitable[object]],
    failure: str,
    errors: list[Exception],
    fields: Mapping[str, object] | None,
) -> None:
    """Repeat *step* until it succeeds. *errors* contains the last error, and is empty after a success."""
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + RETRY_SECONDS, FIRST_PAUSE
    try:
        while True:
            try:
                await step()
                errors.clear()
                return
            except Exception as error:
                errors[:] = [error]
                if loop.time() + pause > end:
                    raise
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
    except asyncio.CancelledError:
        log.error("%s: the session was closed", failure, extra=fields)
        raise
    except Exception:
        log.exception("%s", failure, extra=fields)
