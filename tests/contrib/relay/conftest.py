"""The relay's desk, and the stores that its tests run with: memory, SQLite and a real Redis."""

from __future__ import annotations

import pytest

from mintlify_async.contrib.relay import chats
from mintlify_async.storage import MemoryStore, SQLiteStore


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.real)])
async def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(chats, "STORE_SECONDS", 60.0)  # a busy computer fails no test
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        yield SQLiteStore(tmp_path / "chats.sqlite")
    else:
        redis = pytest.importorskip("mintlify_async.contrib.redis")
        async with request.getfixturevalue("redis_server").client() as client:
            yield redis.RedisStore(client)


@pytest.fixture
async def here():
    """A service, an app with the relay as it is by default, and a page of it."""
    from tests.support.relay_desk import desk  # it is skipped without FastAPI

    async with desk() as made:
        yield made
