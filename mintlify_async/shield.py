"""One step that must not be torn comes in; its result comes out, however often the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["to_the_end"]

T = TypeVar("T")


async def to_the_end(step: Coroutine[Any, Any, T]) -> T:
    """Run *step* to its end, even when cancelled; the cancellation passes afterwards."""
    import anyio  # loaded when it is used: a tenth of what importing the session takes

    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at, or asyncio reports it as never retrieved
        raise cancelled
    return task.result()
