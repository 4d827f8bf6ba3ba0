"""Tasks beside a response: when they begin, how they end, and what becomes of their errors."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

pytest.importorskip("fastapi")

from mintlify_async.contrib.relay.side_tasks import SideTasks
from mintlify_async.testing import VirtualClock

asking: ContextVar[str] = ContextVar("asking", default="")


async def test_the_end_of_the_block_ends_them():
    """Those that run are cancelled and waited for; those that are not due never begin."""
    clock = VirtualClock()
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("ended")

    async def later() -> None:
        seen.append("began")

    async with SideTasks() as beside:
        beside.start(work)
        beside.start_after(clock, 5, later)
        await clock.sleep(4)
    assert seen == ["ended"]
    beside.start_after(clock, 1, later)  # too late
    await clock.sleep(4)
    assert seen == ["ended"]


async def test_one_that_begins_later_knows_its_request():
    """It has the context variables of the task that ordered it, for instance the request's id in logs."""
    clock = VirtualClock()
    seen: list[tuple[float, str]] = []
    began = clock.now()

    async def later() -> None:
        seen.append((clock.now() - began, asking.get()))

    asking.set("ada")
    async with SideTasks() as beside:
        beside.start_after(clock, 5, later)
        await clock.sleep(6)
    assert seen == [(5, "ada")]


async def test_an_error_is_raised_at_the_end():
    """As it is, not in a group; an error of the block itself comes first."""

    async def fail() -> None:
        raise ValueError("a bug")

    async def run(error: Exception | None) -> None:
        async with SideTasks() as beside:
            beside.start(fail)
            await asyncio.sleep(0)
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="a bug"):
        await run(None)
    with pytest.raises(KeyError):
        await run(KeyError())
