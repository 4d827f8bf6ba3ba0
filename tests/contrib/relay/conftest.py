"""The stores that the relay's tests run with: memory, SQLite and a real Redis."""

from __future__ import annotations

import pytest

from mintlify_async.storage import MemoryConversationStore, SQLiteConversationStore


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryConversationStore()
    elif request.param == "sqlite":
        yield SQLiteConversationStore(tmp_path / "chats.sqlite")
    else:
        redis = pytest.importorskip("mintlify_async.contrib.redis")
        async with request.getfixturevalue("redis_server").client() as client:
            yield redis.RedisConversationStore(client)
