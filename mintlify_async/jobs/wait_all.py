"""Waits for many jobs: for all of them, or for each job as it ends. Each wait is a task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self

from ..argument_checks import check_wait
from ..errors import JobTimeoutError, MintlifyError, StateError
from ..model.job_record import Job
from ..runtime.tasks import end_tasks, start_task
from ..settings.poll_policy import DEFAULT_TIMEOUT
from ..wrong_names import helpful
from .handle import JobHandle
from .watch import Steps


@helpful
async def wait_all(
    jobs: Iterable[JobHandle], timeout: float | None = DEFAULT_TIMEOUT, *, check: bool = True
) -> list[Job]:
    """Wait for many jobs, and return their records in the order of *jobs*.

    The limits of the session's poll policy apply to all of them together. The first error ends the other
    waits. ``asyncio.gather(*jobs, return_exceptions=True)`` ends no wait and returns each error.

    Args:
        jobs: The handles.
        timeout: Limits the complete wait, in seconds. None sets no limit.
        check: Treat a failed job as an error.

    Raises:
        MintlifyError: The error of the first wait that fails; see :meth:`JobHandle.wait`.
        ConfigurationError: *timeout* is not a number of seconds.
    """
    check_wait(timeout)
    waits: list[asyncio.Task[Job]] = []
    try:
        waits.extend(start_task(handle.wait(timeout, check=check)) for handle in jobs)
        return await asyncio.gather(*waits)
    finally:
        await end_tasks(waits)


def as_completed(jobs: Iterable[JobHandle], timeout: float | None = DEFAULT_TIMEOUT) -> AsCompleted:
    """Return an async iterator that yields each handle when its job has ended.

    A failed job is yielded like any other. A job whose wait failed (401, 404, no response for five minutes)
    is also yielded. Check ``job.status`` and ``job.done``, or await the handle to raise the error again. If a
    wait fails with an error that is not a ``MintlifyError``, the iterator raises this error.

    ``break`` ends the polling. ``async with as_completed(jobs) as done:`` also ends it, even if a reference
    cycle keeps the iterator alive.

    Args:
        jobs: The handles.
        timeout: Limits the complete iteration from its first step, in seconds. None sets no limit.

    Raises:
        ConfigurationError: *timeout* is not a number of seconds.
    """
    check_wait(timeout)
    return AsCompleted(list(jobs), timeout)


class AsCompleted(Steps[JobHandle]):
    """An async iterator over handles whose jobs have ended; see :func:`as_completed`."""

    def __init__(self, handles: list[JobHandle], timeout: float | None) -> None:
        """Store *handles*. The first step makes the first poll."""
        self._handles = handles
        self._timeout = timeout
        self._waits: list[asyncio.Task[Job]] = []
        self._left = len(handles)
        self._ends = Ends()

    async def _step(self) -> JobHandle:
        if not self._waits:
            for handle in self._handles:
                self._waits.append(start_task(handle.wait(self._timeout, check=False)))
                # The callback does not refer to the iterator, so the waits do not keep the iterator alive.
                self._waits[-1].add_done_callback(partial(self._ends.add, handle))
        if self._left:
            await self._ends.arrived.wait()
        if not self._left or self._ended:
            raise StopAsyncIteration
        handle, wait = self._ends.next()
        if wait.cancelled():
            raise StateError(f"other code has cancelled the wait for {handle!r}; await it, or start again")
        try:
            wait.result()
        except (JobTimeoutError, StateError):
            raise
        except MintlifyError:
            pass  # the next wait for the handle raises the error
        self._left -= 1
        return handle

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop polling."""
        await self.aclose()

    async def aclose(self) -> None:
        """Stop polling. Repeated calls do nothing."""
        await super().aclose()
        self._ends.arrived.set()  # wakes a waiting step
        await end_tasks(self._waits)

    def __del__(self) -> None:
        """Stop polling if the iteration was left with ``break``."""
        for wait in self._waits:
            loop = wait.get_loop()
            if not wait.done() and not loop.is_closed():
                loop.call_soon_threadsafe(wait.cancel)


class Ends:
    """The handles whose waits are over, with their waits, until the iterator yields them.

    Attributes:
        arrived: Set while there is such a handle, and permanently by code that closes the iterator.
    """

    def __init__(self) -> None:
        """Start without handles."""
        self._ends: deque[tuple[JobHandle, asyncio.Task[Job]]] = deque()
        self.arrived = asyncio.Event()

    def add(self, handle: JobHandle, wait: asyncio.Task[Job]) -> None:
        """Add *handle* with its *wait*, which is over."""
        if not wait.cancelled():
            wait.exception()  # mark as retrieved, because no step follows the first error
        self._ends.append((handle, wait))
        self.arrived.set()

    def next(self) -> tuple[JobHandle, asyncio.Task[Job]]:
        """Remove the first handle and its wait, and return them."""
        end = self._ends.popleft()
        if not self._ends:
            self.arrived.clear()
        return end
