"""A service and a session on a virtual clock, for the tests of conversations."""

from __future__ import annotations

import pytest

from mintlify_async.testing import LocalService, VirtualClock


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    async with LocalService(clock=clock) as service:
        yield service


@pytest.fixture
async def session(service):
    async with service.session() as session:
        yield session
