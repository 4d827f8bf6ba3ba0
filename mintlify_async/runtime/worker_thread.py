"""Computes in a worker thread, so the event loop keeps running meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["compute"]

T = TypeVar("T")


async def compute(steps: Iterable[Callable[[], T]]) -> list[T]:
    """Run *steps* in a worker thread, one after the other, and return their results.

    The loop runs between two steps. Within a step, Python itself may block the loop. If the call is
    cancelled, the present step keeps running and its result is lost.
    """
    # A separate thread, because all threads of the loop or of anyio may wait for this call.
    with_thread = ThreadPoolExecutor(1)
    run = asyncio.get_running_loop().run_in_executor
    try:
        return [await run(with_thread, step) for step in steps]
    finally:
        with_thread.shutdown(wait=False)
