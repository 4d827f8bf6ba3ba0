"""Virtual time for the tests of jobs."""

from __future__ import annotations

import pytest

from mintlify_async.testing import LocalService
from mintlify_async.testing.virtual_clock import virtual_time


@pytest.fixture
async def virtual(monkeypatch):
    """The loop's time jumps ahead as soon as everything waits; the intervals of polls do not vary."""
    monkeypatch.setattr("random.random", lambda: 0.5)
    with virtual_time():
        yield


@pytest.fixture
async def service(virtual):
    async with LocalService() as service:
        yield service
