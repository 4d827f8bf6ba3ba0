"""Each case here runs in real time, on asyncio's loop and on uvloop's.

A job takes three polls, each 0.02 s after the last. No limit in a case is below ten times what is expected.
"""

from __future__ import annotations

import pytest

from mintlify_async.testing import JobLife, LocalService
from tests.support.event_loops import LOOP_FACTORIES
from tests.support.quick_polls import QuickPolls


def pytest_asyncio_loop_factories():
    return LOOP_FACTORIES


@pytest.fixture
async def service():
    async with LocalService(life=JobLife(looks=["active", "active", "completed"])) as service:
        yield service


@pytest.fixture
async def session(service):
    async with service.session(poll=QuickPolls()) as session:
        yield session
