"""Tasks: their start and end, steps that finish although the caller is cancelled, and a worker thread.

The program's task factory makes every task. An older factory takes only the loop and the coroutine, so no
task gets a name or a context as an argument.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

__all__ = ["compute"]

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread. None if no loop is running."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def start_task(work: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> asyncio.Task[T]:
    """Return a task that runs *work*, in *context* or else in a copy of the caller's context.

    Raises:
        BaseException: The error of the program's task factory. *work* was not started.
    """
    try:
        loop = asyncio.get_running_loop()
        return loop.create_task(work) if context is None else context.run(loop.create_task, work)
    except BaseException:
        work.close()  # otherwise Python warns that it was never awaited
        raise


async def end_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel *tasks* and wait for their end, even if the caller is cancelled."""
    tasks = [task for task in tasks if not task.done() and not task.get_loop().is_closed()]
    for task in tasks:
        task.cancel()
    if tasks and running_loop() is not None:  # without a loop, Python closes the coroutine
        import anyio  # loaded here, because it takes a tenth of the session's import time

        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)


async def finish_shielded(step: Awaitable[T]) -> T:
    """Finish *step* even if the caller is cancelled. The cancellation is raised afterwards."""
    import anyio  # loaded here, because it takes a tenth of the session's import time

    task = asyncio.ensure_future(step)
    cancellation: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel every await again
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancellation = error
    if cancellation is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # mark as retrieved, otherwise asyncio logs it
    raise cancellation


async def compute(steps: Iterable[Callable[[], T]]) -> list[T]:
    """Run *steps* in a worker thread, one after the other, and return their results.

    The loop runs between two steps. Within a step, Python itself may block the loop. If the call is
    cancelled, the current step keeps running and its result is lost.
    """
    from concurrent.futures import ThreadPoolExecutor  # loaded here, because few programs need it

    # A separate thread, because all threads of the loop or of anyio may wait for this call.
    with_thread = ThreadPoolExecutor(1)
    run = asyncio.get_running_loop().run_in_executor
    try:
        return [await run(with_thread, step) for step in steps]
    finally:
        with_thread.shutdown(wait=False)


def cancel_requests() -> int:
    """Return the number of the running task's cancellations. If it grew, code swallowed a cancellation."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
