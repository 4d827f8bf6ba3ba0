"""Starts a relay's shutdown at a signal, in addition to the server's own handler."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def on_signal(drain: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Run *drain* at the block's end or at a signal to exit. The server's handler still runs."""
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    def begin() -> None:
        if not draining:
            draining.append(asyncio.create_task(drain()))

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(_hook(number, lambda: loop.call_soon_threadsafe(begin)))
        try:
            yield
        finally:
            begin()
            await draining[0]


def _hook(number: int, begin: Callable[[], object]) -> Callable[[], object]:
    """At the signal *number*, call *begin*, then the present handler. Return a function that undoes it."""
    earlier = signal.getsignal(number)
    if not callable(earlier):  # no server handles it, so the process ends immediately or never
        return lambda: None

    def handle(number: int, frame: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and another handler has kept this one
            begin()
        earlier(number, frame)

    def undo() -> None:
        if signal.getsignal(number) is handle:
            signal.signal(number, earlier)

    try:
        signal.signal(number, handle)
    except ValueError:  # not in the main thread, for instance in a test client's
        return lambda: None
    return undo
