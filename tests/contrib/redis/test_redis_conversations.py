"""Conversations on a real Redis: what only this store has; the promises of all stores are in test_stores."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from redis_server import RedisServer, Stutter

from mintlify_async import StateError, StoreConflictError
from mintlify_async.contrib.redis import RedisConversationStore
from mintlify_async.storage import StoredTurn
from mintlify_async.testing import LocalService

FIRST: Any = {"owner": "ada", "revision": 0, "keep": range(0)}

ANOTHER_MACHINE = """
import asyncio, json, sys
from mintlify_async import MintlifySession
from mintlify_async.contrib.redis import RedisConversationStore
from redis.asyncio import Redis

async def main():
    async with Redis.from_url(sys.argv[1]) as client, MintlifySession() as session:
        chat = session.conversation(store=RedisConversationStore(client, timeout=20), id="chat", owner="ada")
        await chat.ask("And by SSO?")
        print(json.dumps([len(chat.messages), chat.thread.id]))

asyncio.run(main())
"""


async def test_another_machine_goes_on_with_the_chat(redis_server: RedisServer, redis_client: Any):
    """Asked here, then in another process: one thread with its key, one history; who is late is told."""
    async with LocalService() as service, service.session() as session:
        store = RedisConversationStore(redis_client, timeout=20)
        chat = session.conversation(store=store, id="chat", owner="ada")
        await chat.ask("How do I log in?")
        settings = {
            "MINTLIFY_BASE_URL": service.base_url,
            "MINTLIFY_PROJECT_ID": service.project_id,
            "MINTLIFY_DOMAIN": service.domain,
            "MINTLIFY_ASSISTANT_API_KEY": service.assistant_key,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            ANOTHER_MACHINE,
            redis_server.url,
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert chat.thread is not None
        assert json.loads(output) == [4, chat.thread.id]
        second = service.requests.of("ask")[1].json
        assert (second["threadId"], second["threadKey"]) == (chat.thread.id, chat.thread.key)
        with pytest.raises(StoreConflictError):
            await chat.ask("What else?")
        await chat.load()
        assert len(chat.messages) == 4


async def test_names_and_expiry(redis_client: Any):
    """Keys contain no names and have the owner's hash tag; with keep= they and the list of ids expire."""
    store = RedisConversationStore(redis_client, keep=0.2)
    await store.save("chat-1", "{}", [], owner="ada@example.com", revision=0, keep=range(0))
    for key in [key.decode() for key in await redis_client.keys("*")]:
        assert key.startswith("mintlify:conversations:{")
        assert "ada" not in key
        assert "chat-1" not in key
        assert await redis_client.pttl(key) > 0
    assert await store.ids(owner="ada@example.com") == ["chat-1"]
    await asyncio.sleep(0.25)
    assert await store.ids(owner="ada@example.com") == []
    assert await store.load("chat-1", owner="ada@example.com") is None


async def test_kept_for_ever_beside_kept_for_a_while(redis_client: Any):
    """A conversation without an end keeps its place in the owner's list when others expire."""
    for_ever, a_while = RedisConversationStore(redis_client), RedisConversationStore(redis_client, keep=0.1)
    await for_ever.save("old", "1", [], **FIRST)
    await a_while.save("new", "2", [], **FIRST)
    await asyncio.sleep(0.15)
    assert await for_ever.ids(owner="ada") == ["old"]
    assert await for_ever.load("old", owner="ada") is not None


@pytest.mark.parametrize(("version", "named"), [("99", "format version 99"), (None, "no format version")])
async def test_a_conversation_of_an_unknown_version_is_refused(
    redis_client: Any, version: str | None, named: str
):
    """It is neither read nor written over; the error names the key and what to do. delete() frees it."""
    store = RedisConversationStore(redis_client)
    await store.save("chat", "{}", [], **FIRST)
    (key,) = [key.decode() for key in await redis_client.keys("*") if not key.endswith(b":ids")]
    await (redis_client.hset(key, "version", version) if version else redis_client.hdel(key, "version"))
    with pytest.raises(StateError, match=named) as caught:
        await store.load("chat", owner="ada")
    assert f"the Redis key '{key}'" in str(caught.value)
    assert "delete it" in str(caught.value)
    with pytest.raises(StoreConflictError):
        await store.save("chat", "{}", [], **FIRST)
    assert await store.delete("chat", owner="ada")
    assert await store.load("chat", owner="ada") is None


async def test_turns_expire_with_their_conversation(redis_client: Any):
    """Each turn prolongs all of it; nothing is left when it has ended."""
    store = RedisConversationStore(redis_client, keep=0.2)
    revision = await store.save("chat", "1", [StoredTurn(number=0, data="[]")], **FIRST)
    await asyncio.sleep(0.12)
    turns = [StoredTurn(number=2, data="[]")]
    await store.save("chat", "2", turns, owner="ada", revision=revision, keep=range(2))
    await asyncio.sleep(0.12)
    found = await store.load("chat", owner="ada")
    assert found is not None
    assert [turn.number for turn in found.turns] == [0, 2]
    await asyncio.sleep(0.12)
    assert await store.load("chat", owner="ada") is None
    assert [key for key in await redis_client.keys("*") if not key.endswith(b":ids")] == []


async def test_a_client_that_writes_twice_is_no_conflict(redis_client: Any):
    """A client's own retry after a lost answer finds its own writing there."""
    store = RedisConversationStore(Stutter(redis_client))
    revision = await store.save("chat", "1", [], **FIRST)
    assert await store.save("chat", "2", [], owner="ada", revision=revision, keep=range(0)) == revision + 1


async def test_redis_away_is_an_error(own_redis: Callable[..., RedisServer]):
    """A turn that cannot be saved is told, with a cause that shows no address."""
    server = own_redis()
    async with server.client() as client:
        store = RedisConversationStore(client)
        server.kill()
        with pytest.raises(StateError, match="conversation store on Redis cannot be used") as error:
            await store.save("chat", "1", [], **FIRST)
    assert type(error.value.__cause__).__name__ == "CauseSummary"
    assert repr(store) == "RedisConversationStore(namespace='mintlify')"
