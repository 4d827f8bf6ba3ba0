"""Recordings: steps that continue after their callers have left, such as the record of a paid job.

They belong to one event loop, and closing the session waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from .tasks import start_task

RETRY_SECONDS: Final = 60.0
"""For how long a step is retried, in seconds."""

RECORD_PATIENCE: Final = 5.0
"""How long a caller waits for the recording of its result, in seconds; close() waits as long."""

FIRST_PAUSE: Final = 0.05
"""Seconds until a step is tried again; doubles each time."""

LONGEST_PAUSE: Final = 1.0
"""Longest such pause, in seconds."""

log = logging.getLogger("mintlify_async")


class Recordings:
    """The steps of one event loop that are not done yet."""

    def __init__(self) -> None:
        """Start without any."""
        self._tasks: set[asyncio.Future[Any]] = set()

    @contextmanager
    def following(self) -> Generator[None]:
        """Let :meth:`close` wait for the end of the block."""
        loop = asyncio.get_running_loop()
        call = loop.create_future()
        self._tasks.add(call)
        try:
            yield
        finally:
            self._tasks.discard(call)
            if not loop.is_closed():
                call.cancel()

    async def insist(self, step: Callable[[], Awaitable[object]], failure: str, patience: float) -> None:
        """Repeat *step* until it succeeds, for 60 s, and return when it has, or after *patience* seconds.

        If the caller leaves, it continues in its own task. If it is given up, *failure* is logged.
        """
        task = start_task(_insist(step, failure))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=patience)

    async def close(self) -> None:
        """Wait until all writes are done. Give up after 5 s."""
        loop = asyncio.get_running_loop()
        end = loop.time() + RECORD_PATIENCE
        while self._tasks and loop.time() < end:
            await asyncio.wait(self._tasks, timeout=end - loop.time())
        for task in self._tasks:
            task.cancel()


async def _insist(step: Callable[[], Awaitable[object]], failure: str) -> None:
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + RETRY_SECONDS, FIRST_PAUSE
    try:
        while True:
            try:
                await step()
                return
            except Exception:
                if loop.time() + pause > end:
                    raise
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
    except asyncio.CancelledError:
        log.error("%s: the session was closed", failure)
        raise
    except Exception:
        log.exception("%s", failure)
