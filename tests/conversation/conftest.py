"""A service and a session in virtual time, for the tests of conversations."""

from __future__ import annotations

import pytest

from mintlify_async.testing import LocalService


@pytest.fixture(autouse=True)
def clock(virtual):
    """Every test here runs in virtual time."""
    return virtual


@pytest.fixture
async def service(clock):
    async with LocalService() as service:
        yield service
