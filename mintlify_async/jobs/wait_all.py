"""Waits for many jobs, for all of them or for each as it ends. Each wait is a task. A queue has the ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from ..errors import JobTimeoutError, StateError
from ..model.job_record import Job
from .handle import JobHandle
from .poll_scheduler import end_tasks
from .steps import Steps
from .wait import DEFAULT_TIMEOUT, check_timeout


async def wait_all(
    jobs: Iterable[JobHandle], timeout: float | None = DEFAULT_TIMEOUT, *, check: bool = True
) -> list[Job]:
    """Wait for many jobs, and return their records in the order of *jobs*.

    The limits of the session's poll policy apply to all of them together. The first wait that fails ends the
    others. ``asyncio.gather(*jobs, return_exceptions=True)`` ends none, and returns each error in its place.

    Args:
        jobs: The handles.
        timeout: Limits the complete wait, in seconds. None sets no limit.
        check: Treat a failed job as an error.

    Raises:
        MintlifyError: The error of the first wait that fails; see :meth:`JobHandle.wait`.
        ConfigurationError: *timeout* is not a number of seconds.
    """
    check_timeout(timeout)
    waits = [asyncio.create_task(handle.wait(timeout, check=check)) for handle in jobs]
    try:
        return await asyncio.gather(*waits)
    finally:
        await end_tasks(waits)


def as_completed(jobs: Iterable[JobHandle], timeout: float | None = DEFAULT_TIMEOUT) -> AsCompleted:
    """Return an async iterator that yields each handle when its job has ended.

    A failed job is yielded like any other. A job whose wait failed (401, 404, no response for five minutes)
    is also yielded. Check ``job.status`` and ``job.done``, or await the handle to raise the error again.

    ``break`` ends the polling. The end of ``async with as_completed(jobs) as done:`` also ends it, even if a
    reference cycle keeps the iterator.

    Args:
        jobs: The handles.
        timeout: Limits the complete iteration from its first step, in seconds. None sets no limit.

    Raises:
        ConfigurationError: *timeout* is not a number of seconds.
    """
    check_timeout(timeout)
    return AsCompleted(list(jobs), timeout)


WaitEnd = tuple[JobHandle, Exception | None]
"""A handle whose wait is over, and the error that it ended with."""


class AsCompleted(Steps[JobHandle]):
    """An async iterator over handles whose jobs have ended; see :func:`as_completed`."""

    def __init__(self, handles: list[JobHandle], timeout: float | None) -> None:
        """Keep *handles*; no poll is made before the first step."""
        self._handles = handles
        self._timeout = timeout
        self._waits: list[asyncio.Task[None]] = []
        self._left = len(handles)
        self._ends: asyncio.Queue[WaitEnd | None] = asyncio.Queue()  # None when the iterator is closed

    async def _step(self) -> JobHandle:
        if not self._waits:
            waits = [_wait(handle, self._timeout, self._ends) for handle in self._handles]
            self._waits = [asyncio.create_task(wait) for wait in waits]
        end = await self._ends.get() if self._left else None
        if end is None or self._ended:
            raise StopAsyncIteration
        handle, error = end
        if isinstance(error, JobTimeoutError | StateError):
            raise error
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
        """Stop polling. Safe to repeat."""
        await super().aclose()
        self._ends.put_nowait(None)  # wakes a step that waits
        await end_tasks(self._waits)

    def __del__(self) -> None:
        """Stop polling when the iteration was left with ``break``."""
        for wait in self._waits:
            loop = wait.get_loop()
            if not wait.done() and not loop.is_closed():
                loop.call_soon_threadsafe(wait.cancel)


async def _wait(handle: JobHandle, timeout: float | None, ends: asyncio.Queue[WaitEnd | None]) -> None:
    # It does not know the iterator, which must not stay alive for the waits.
    error: Exception | None = None
    try:
        await handle.wait(timeout, check=False)
    except Exception as failure:
        error = failure
    ends.put_nowait((handle, error))
