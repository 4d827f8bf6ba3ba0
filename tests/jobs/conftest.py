"""Virtual time for the tests of jobs."""

from __future__ import annotations

import pytest

from mintlify_async.testing.loop_time import virtual_time


@pytest.fixture
async def virtual():
    """The loop's time jumps ahead as soon as everything waits."""
    with virtual_time():
        yield
