"""Handles come in; all their records, or the handles as their jobs end, go out. No task for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal, Self, cast, overload

from .errors import ConfigurationError, JobTimeoutError, StateError
from .jobs import JobHandle, begin_wait, scheduler_of
from .models import Job
from .waiting import DEFAULT_TIMEOUT, JobWait, WaitRules, check_timeout

__all__ = ["AsCompleted", "as_completed", "wait_all"]


@overload
async def wait_all(
    jobs: Iterable[JobHandle],
    timeout: float | None = ...,
    *,
    return_exceptions: Literal[False] = ...,
    check: bool = ...,
) -> list[Job]: ...


@overload
async def wait_all(
    jobs: Iterable[JobHandle], timeout: float | None = ..., *, return_exceptions: bool, check: bool = ...
) -> list[Job | Exception]: ...


async def wait_all(
    jobs: Iterable[JobHandle],
    timeout: float | None = DEFAULT_TIMEOUT,
    *,
    return_exceptions: bool = False,
    check: bool = True,
) -> list[Job] | list[Job | Exception]:
    """Wait for many jobs, and return their records in the order of *jobs*.

    Cheaper than a task for each; they share their session's cap on polls.

    Args:
        jobs: The handles.
        timeout: Bounds the whole wait, in seconds; None waits without end.
        return_exceptions: Return what a wait ended with in its place, rather than raise
            the first and leave the others.
        check: Take a failed job for an error.

    Raises:
        MintlifyError: What the first wait to fail ended with; see :meth:`JobHandle.wait`.
        ConfigurationError: *jobs* holds something else than handles.
    """
    handles = _handles(jobs)
    check_timeout(timeout)
    rules = WaitRules.checked(check=check, until="terminal", pr_grace=0.0, on_change=None)
    woken: asyncio.Future[JobWait] = asyncio.get_running_loop().create_future()
    group = _Group(handles, rules, timeout)

    def over(wait: JobWait) -> None:
        enough = not group.open or (wait.error is not None and not return_exceptions)
        if enough and not woken.done():
            woken.set_result(wait)

    try:
        group.enter(over)
        last = await woken if handles else None
    finally:
        group.leave()
        await group.drained()
    if last is not None and last.error is not None and not return_exceptions:
        raise last.error
    return [wait.error or wait.result() for wait in group.waits]


def as_completed(jobs: Iterable[JobHandle], timeout: float | None = DEFAULT_TIMEOUT) -> AsCompleted:
    """Return an async iterator that yields each handle when its job has ended, the first first.

    A failed job is yielded like any other, and so is one that can be waited for no
    longer (401, 404, no answer for five minutes): look at ``job.status`` and
    ``job.done``, or await it to have the error raised anew.

    ``break`` ends the polling. So does leaving ``async with as_completed(jobs) as done:``,
    which is the better way where handles are kept in reference cycles.

    Args:
        jobs: The handles.
        timeout: Bounds the whole iteration from its first step, in seconds; None has no end.

    Raises:
        ConfigurationError: *jobs* holds something else than handles.
    """
    check_timeout(timeout)
    return AsCompleted(_handles(jobs), timeout)


def _handles(jobs: Iterable[JobHandle]) -> list[JobHandle]:
    handles: list[object] = list(jobs) if isinstance(jobs, Iterable) else [jobs]  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
    if not all(isinstance(handle, JobHandle) for handle in handles):
        raise ConfigurationError(
            "jobs must be an iterable of JobHandle; session.job(ref) makes one", field="jobs"
        )
    return cast("list[JobHandle]", handles)


class _Group:
    """Waits that are entered and left together."""

    def __init__(self, handles: list[JobHandle], rules: WaitRules, timeout: float | None) -> None:
        self.waits = [begin_wait(handle, rules, timeout) for handle in handles]
        self.open = len(self.waits)
        self._schedulers = [scheduler_of(handle) for handle in handles]

    def enter(self, over: Callable[[JobWait], object]) -> None:
        """Enter all; *over* is told of each that is over."""

        def count(wait: JobWait) -> None:
            self.open -= 1
            over(wait)

        for scheduler, wait in zip(self._schedulers, self.waits, strict=True):
            wait.notify = count
            scheduler.enter(wait)

    def leave(self) -> None:
        """Leave all; those that are over have left."""
        for scheduler, wait in zip(self._schedulers, self.waits, strict=True):
            scheduler.leave(wait)

    async def drained(self) -> None:
        """Return when no poll is left that nobody waits for."""
        for scheduler in set(self._schedulers):
            await scheduler.drained()


class AsCompleted:
    """An async iterator over handles whose jobs have ended; see :func:`as_completed`."""

    def __init__(self, handles: list[JobHandle], timeout: float | None) -> None:
        """Keep *handles*; nothing is asked before the first step."""
        self._handles = handles
        self._timeout = timeout
        self._group: _Group | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owners: dict[JobWait, JobHandle] = {}
        self._finished = _Finished()
        self._ended = not handles

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> JobHandle:
        """Return the next handle whose job has ended.

        Raises:
            JobTimeoutError: The time is up; the jobs go on at the service.
            StateError: The session is closed, or another task is in a step.
        """
        if self._ended:
            raise StopAsyncIteration
        if self._group is None:
            self._enter()
        wait = await self._finished.next()
        if wait is None:
            raise StopAsyncIteration
        handle = self._owners.pop(wait)
        self._ended = not self._owners
        if isinstance(wait.error, JobTimeoutError | StateError):
            await self.aclose()
            raise wait.error
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
        """Stop polling; twice is harmless."""
        self._ended = True
        self._finished.close()
        group, self._group = self._group, None
        if group is not None:
            group.leave()
            await group.drained()

    def __del__(self) -> None:
        """Stop polling when the loop was left with ``break``."""
        group, loop = self._group, self._loop
        if group is None or not group.open or loop is None or loop.is_closed():
            return
        if _running_loop() is loop:
            group.leave()
        else:
            loop.call_soon_threadsafe(group.leave)

    def _enter(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._group = group = _Group(self._handles, WaitRules(check=False), self._timeout)
        self._owners = dict(zip(group.waits, self._handles, strict=True))
        try:
            group.enter(self._finished.add)
        except BaseException:
            group.leave()
            raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Finished:
    """Waits that are over and not handed out yet. Knows nothing of the iterator, which can so be dropped."""

    def __init__(self) -> None:
        self._waits: deque[JobWait] = deque()
        self._woken: asyncio.Future[None] | None = None
        self._closed = False

    def add(self, wait: JobWait) -> None:
        """Take in a wait that is over."""
        self._waits.append(wait)
        self._wake()

    def close(self) -> None:
        """Hand out no more, not to a step that waits either."""
        self._closed = True
        self._wake()

    async def next(self) -> JobWait | None:
        """Return the next, or None when closed; a cancelled call loses none."""
        if self._woken is not None:
            raise StateError("this iterator is already being stepped; one consumer at a time")
        try:
            while not self._waits and not self._closed:
                self._woken = asyncio.get_running_loop().create_future()
                await self._woken
        finally:
            self._woken = None
        return None if self._closed else self._waits.popleft()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
