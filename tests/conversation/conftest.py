"""A service, a session and stores, for the tests of conversations."""

from __future__ import annotations

import pytest

from mintlify_async.storage import MemoryStore, SQLiteStore
from mintlify_async.testing import LocalService


@pytest.fixture(autouse=True)
def clock(virtual):
    """Every test here runs in virtual time."""
    return virtual


@pytest.fixture
async def service(clock):
    async with LocalService() as service:
        yield service


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    """A store of each kind; a file in real time can ask for one in Redis, too."""
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        store = SQLiteStore(tmp_path / "chats.sqlite")
        yield store
        await store.close()
    else:
        from mintlify_async.contrib.redis import RedisStore

        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisStore(client, timeout=10)
