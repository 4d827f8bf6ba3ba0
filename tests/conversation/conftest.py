"""Virtual time and stores, for the tests of conversations."""

from __future__ import annotations

import pytest

from mintlify_async.storage import MemoryStore
from tests.support.keyed_worker import opened


@pytest.fixture(autouse=True)
def clock(virtual):
    """Every test here runs in virtual time."""
    return virtual


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    """A store of each kind; a file in real time can ask for one in Redis, too."""
    if request.param == "memory":
        yield MemoryStore()
        return
    sqlite = request.param == "sqlite"
    place = str(tmp_path / "chats.sqlite") if sqlite else request.getfixturevalue("redis_server").url
    async with opened(place, timeout=10) as store:
        yield store
