"""Steps that finish although the caller is cancelled, and how often it was cancelled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["cancel_requests", "finish_shielded"]

T = TypeVar("T")
CANCEL_AGAIN = 0.25  # seconds between two cancellations of a running step, because libraries swallow some


async def finish_shielded(
    step: Awaitable[T],
    *,
    patience: float | None = None,
    hurry: bool = False,
    limit: float = math.inf,
) -> T:
    """Finish *step* even if the caller is cancelled. The cancellation is raised afterwards.

    Args:
        step: The step to finish.
        patience: How long to wait after a cancellation before *step* is also cancelled, in seconds. None
            sets no limit.
        hurry: Whether the caller was cancelled before, so that *patience* starts now.
        limit: How long to wait after a cancellation in all, in seconds. A step that ignores its cancellation
            then keeps running alone, and its result is lost.
    """
    import anyio  # imported on use, because it takes a tenth of the session's import time

    task = asyncio.ensure_future(step)
    cancellation: asyncio.CancelledError | None = None
    now, due, end = asyncio.get_running_loop().time, math.inf, math.inf
    with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel every await again
        while not task.done() and now() < end:
            if hurry and end == due == math.inf:
                due, end = now() + (math.inf if patience is None else patience), now() + limit
            at = min(due, end)
            try:
                await asyncio.wait([task], timeout=None if at == math.inf else max(0.0, at - now()))
            except asyncio.CancelledError as error:
                cancellation, hurry = error, True
            else:
                task.cancel()  # its time limit has passed, or it is done
                due = now() + CANCEL_AGAIN
    if not task.done():
        _left.add(task)  # asyncio itself keeps no task alive
        task.add_done_callback(_end_of_left)
        raise cancellation or asyncio.CancelledError
    if cancellation is not None:
        _end_of_left(task)
        raise cancellation
    return task.result()


_left: set[asyncio.Future[Any]] = set()


def _end_of_left(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio logs that it never was


def cancel_requests() -> int:
    """Return how often the running task was cancelled. If the count grew, code swallowed a cancellation."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
