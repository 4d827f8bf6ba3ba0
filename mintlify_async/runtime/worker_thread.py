"""Computing in a worker thread, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def compute(steps: Iterable[Callable[[], T]]) -> list[T]:
    """Run *steps* in a worker thread, one after the other, and return their results.

    The loop runs between two steps: within one, Python itself may not let it. Cancelled, the
    present step goes on and its result is lost.
    """
    # A thread of its own: all of the loop's or of anyio's may be busy with calls that wait for this one.
    with_thread = ThreadPoolExecutor(1)
    run = asyncio.get_running_loop().run_in_executor
    try:
        return [await run(with_thread, step) for step in steps]
    finally:
        with_thread.shutdown(wait=False)
