"""Waiting for many jobs: all of them, or each as it ends. No task is started per job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal, Self, overload

from ..errors import ConfigurationError, JobTimeoutError, StateError
from ..model.job import Job
from ..protocol.argument_checks import check_seconds
from .handle import JobHandle, begin_wait, scheduler_of
from .wait import DEFAULT_TIMEOUT, JobWait, WaitRules


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

    This is cheaper than one task per job. The limits of the session's poll policy
    apply to all of them together.

    Args:
        jobs: The handles.
        timeout: Limits the whole wait, in seconds; None waits without end.
        return_exceptions: Return each error in the place of its record, rather than raise
            the first one and end the other waits.
        check: Treat a failed job as an error.

    Raises:
        MintlifyError: The error of the first wait that fails; see :meth:`JobHandle.wait`.
        ConfigurationError: *jobs* contains something else than handles.
    """
    handles = _handles(jobs)
    check_seconds(timeout, "timeout", zero=True, none="waits without end")
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
    """Return an async iterator that yields each handle when its job has ended.

    A failed job is yielded like any other, and so is a job whose wait failed (401,
    404, no answer for five minutes): check ``job.status`` and ``job.done``, or await
    the handle to raise the error again.

    ``break`` ends the polling. So does leaving ``async with as_completed(jobs) as done:``,
    which is better where the iterator is kept in a reference cycle.

    Args:
        jobs: The handles.
        timeout: Limits the whole iteration from its first step, in seconds; None sets no limit.

    Raises:
        ConfigurationError: *jobs* contains something else than handles.
    """
    check_seconds(timeout, "timeout", zero=True, none="waits without end")
    return AsCompleted(_handles(jobs), timeout)


def _handles(jobs: Iterable[JobHandle]) -> list[JobHandle]:
    given: list[object] = list(jobs) if isinstance(jobs, Iterable) else [jobs]  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
    handles = [handle for handle in given if isinstance(handle, JobHandle)]
    if len(handles) != len(given):
        raise ConfigurationError(
            "jobs must be an iterable of JobHandle; session.job(ref) makes one", field="jobs"
        )
    return handles


class _Group:
    """Waits that enter and leave their schedulers together."""

    def __init__(self, handles: list[JobHandle], rules: WaitRules, timeout: float | None) -> None:
        self.waits = [begin_wait(handle, rules, timeout) for handle in handles]
        self.open = len(self.waits)
        self._schedulers = [scheduler_of(handle) for handle in handles]

    def enter(self, on_over: Callable[[JobWait], object]) -> None:
        """Enter all waits; *on_over* is called with each one that is over."""

        def count(wait: JobWait) -> None:
            self.open -= 1
            on_over(wait)

        for scheduler, wait in zip(self._schedulers, self.waits, strict=True):
            wait.notify = count
            scheduler.enter(wait)

    def leave(self) -> None:
        """Leave with all waits; those that are over have left already."""
        for scheduler, wait in zip(self._schedulers, self.waits, strict=True):
            scheduler.leave(wait)

    async def drained(self) -> None:
        """Return when every cancelled poll has ended."""
        for scheduler in set(self._schedulers):
            await scheduler.drained()


class AsCompleted:
    """An async iterator over handles whose jobs have ended; see :func:`as_completed`."""

    def __init__(self, handles: list[JobHandle], timeout: float | None) -> None:
        """Keep *handles*; no poll is made before the first step."""
        self._handles = handles
        self._timeout = timeout
        self._group: _Group | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owners: dict[JobWait, JobHandle] = {}
        # The waits that are over, then None when the iterator is closed. A queue of its own, so that the
        # scheduler does not keep alive an iterator that was left with ``break``.
        self._finished: asyncio.Queue[JobWait | None] = asyncio.Queue()
        self._stepping = False
        self._ended = not handles

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> JobHandle:
        """Return the next handle whose job has ended.

        Raises:
            JobTimeoutError: The timeout has passed; the jobs go on at the service.
            StateError: The session is closed, or another task is in a step.
        """
        if self._ended:
            raise StopAsyncIteration
        if self._group is None:
            self._enter()
        wait = await self._next_wait()
        if wait is None or self._ended:
            raise StopAsyncIteration
        handle = self._owners.pop(wait)
        self._ended = not self._owners
        if isinstance(wait.error, JobTimeoutError | StateError):
            await self.aclose()
            raise wait.error
        return handle

    async def _next_wait(self) -> JobWait | None:
        if self._stepping:
            raise StateError("another task is already in a step of this iterator; one consumer at a time")
        self._stepping = True
        try:
            return await self._finished.get()
        finally:
            self._stepping = False

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop polling."""
        await self.aclose()

    async def aclose(self) -> None:
        """Stop polling; safe to repeat."""
        self._ended = True
        self._finished.put_nowait(None)  # wakes a step that waits
        group, self._group = self._group, None
        if group is not None:
            group.leave()
            await group.drained()

    def __del__(self) -> None:
        """Stop polling when the iteration was left with ``break``."""
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
            group.enter(self._finished.put_nowait)
        except BaseException:
            group.leave()
            raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
