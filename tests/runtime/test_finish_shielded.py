"""A step that must not be torn."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from mintlify_async.runtime.tasks import finish_shielded


async def step(steps: list[str], turns: int = 3, error: Exception | None = None) -> str:
    for turn in range(turns):
        await asyncio.sleep(0)
        steps.append(str(turn))
    if error is not None:
        raise error
    return "done"


async def test_a_step_gives_its_result_or_its_error():
    """As if it were awaited plainly."""
    assert await finish_shielded(step([])) == "done"
    with pytest.raises(OSError, match="broken"):
        await finish_shielded(step([], error=OSError("broken")))


@pytest.mark.parametrize("error", [None, OSError("broken")])
async def test_a_cancelled_step_runs_to_its_end(error):
    """However often; then the cancellation passes."""
    steps: list[str] = []
    task = asyncio.create_task(finish_shielded(step(steps, 5, error)))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == list("01234")


async def test_a_cancelled_scope_waits_for_the_step():
    """A scope of anyio cancels every await again: here it waits, and strikes at the next."""
    steps: list[str] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await finish_shielded(step(steps))
        assert steps == list("012")
        await asyncio.sleep(0)
        raise AssertionError
    assert scope.cancelled_caught
