"""What the tests of answers that outlive their reader share."""

from __future__ import annotations

import asyncio
from typing import Any

from relay_desk import HEAD, TURN, Desk
from relay_kit import until

from mintlify_async.contrib.relay import RelayedAnswer
from mintlify_async.runtime.clock import SystemClock

HELD = [*HEAD, 0.5, *TURN[3:]]


class Gate(SystemClock):
    """A service's clock whose pauses last until the gate is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.open.wait()


class Told:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.answers: list[RelayedAnswer] = []

    @property
    def hooks(self) -> dict[str, Any]:
        return {"on_finish": self.answers.append, "on_unfinished": self.answers.append}


async def ask_and_leave(here: Desk, seen: bytes = b"Hello ") -> None:
    async with here.page.request() as response:
        await response.content.readuntil(seen)
        response.close()


async def ask_in_vain(here: Desk) -> None:
    """Ask, and leave before the answer begins."""
    asking = asyncio.create_task(here.page.post())
    await until(lambda: here.service.answering)
    asking.cancel()
    await asyncio.wait([asking])
