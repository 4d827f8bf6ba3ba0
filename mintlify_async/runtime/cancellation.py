"""Steps that finish although the caller is cancelled, and how often it was cancelled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
CANCEL_AGAIN = 0.25  # seconds between two cancellations of a running step, because libraries swallow some


async def finish_shielded(step: Awaitable[T], *, patience: float | None = None, hurry: bool = False) -> T:
    """Finish *step* even if the caller is cancelled. The cancellation is raised afterwards.

    Args:
        step: The step to finish.
        patience: How long to wait after a cancellation before *step* is also cancelled, in seconds. None
            sets no limit.
        hurry: Whether the caller was cancelled before, so that *patience* starts now.
    """
    import anyio  # imported on use, because it takes a tenth of the session's import time

    task = asyncio.ensure_future(step)
    cancellation: asyncio.CancelledError | None = None
    now, due = asyncio.get_running_loop().time, math.inf
    with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel every await again
        while not task.done():
            if hurry and due == math.inf and patience is not None:
                due = now() + patience
            try:
                await asyncio.wait([task], timeout=None if due == math.inf else max(0.0, due - now()))
            except asyncio.CancelledError as error:
                cancellation, hurry = error, True
            else:
                task.cancel()  # its time limit has passed, or it is done
                due = now() + CANCEL_AGAIN
    if cancellation is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio logs that it never was
    raise cancellation


def cancel_requests() -> int:
    """Return how often the running task was cancelled. If the count grew, code swallowed a cancellation."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
