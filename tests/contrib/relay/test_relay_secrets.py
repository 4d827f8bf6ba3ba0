"""Every byte between page, app and service is searched for what must not be in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, TURN, Desk, desk
from relay_kit import pseudonym, thread_token, user_message
from relay_resume_kit import another_worker, store_of

from mintlify_async.contrib.relay.running_answers import chat_key
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import ThreadStyle, faults

USER = "ada.lovelace@example.com"
PLACES = ["header", "finish", "metadata", "data"]


async def day(here: Desk, *, stored: bool = False) -> None:
    """Ask, go on, be refused, be cut, and see errors that tell more than they should.

    *stored*: the thread is in the relay's store, and the page has no token of it.
    """
    script, page, numbers = here.service.script, here.page, count()

    def question() -> dict[str, Any]:
        return user_message("q", f"q{next(numbers)}")

    first = await page.ask(user_message("How do I log in?"))
    token = "" if stored else thread_token(first)
    await page.ask(user_message("And by SSO?", "u2"), threadId=token)
    (thread,) = here.service.threads.values()
    leaks = f"{here.service.assistant_key} {thread.id} {thread.key}"
    tool = {"toolCallId": "c", "toolName": "t", "input": {"thread": thread.id}}
    script.ask(
        events=[
            *HEAD,
            {"type": "tool-input-available", **tool},
            {"type": "tool-output-error", "toolCallId": "c", "errorText": f"refused: {leaks}"},
            {"type": "source-url", "sourceId": thread.id, "url": f"/a?key={here.service.assistant_key}"},
            {"type": "data-x", "data": {"threadId": thread.id, "note": [leaks]}},
            {"type": "next-years", "key": here.service.assistant_key, thread.id: 1},
            {"type": "error", "errorText": leaks},
        ]
    )
    await page.ask(question(), threadId=token)
    script.ask(fault=faults.Cut(-120))
    await page.ask(question(), threadId=token)
    for status in (400, 401, 404, 429, 500):
        script.ask(status=status, json={"message": leaks}, headers={"Retry-After": "9"})
        if status == 404:  # the thread may be lost: the question is asked again without it
            script.ask(status=status)
        body = {"id": "chat-1", "messages": [question()], "threadId": token}
        assert (await page.post(body))[0] not in (200, 409)
    for body in ({"messages": []}, b"{"):
        assert (await page.post(body))[0] == 400
    script.ask(events=TURN)
    await page.ask(question(), threadId=f"{token}x")
    script.ask(events=TURN)
    await page.ask(question(), threadId=token)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", ["safe", "modern"])
async def test_page_traffic_holds_no_secret(place, mode, caplog):
    """Neither the key, nor a thread's id or key, nor the user's own name crosses; the log has no secret."""
    style = ThreadStyle(id_in={place}, key_in={place})
    async with desk(service={"threads": style}, mode=mode, user=lambda request: USER) as here:
        await day(here)
        (thread, *_) = here.service.threads.values()
        keys = [here.service.assistant_key, here.service.admin_key, thread.key or thread.id]
        seen = here.page.seen
        assert len(seen) > 5_000
        assert [secret for secret in (*keys, thread.id, USER) if secret.encode() in seen] == []
        assert [key for key in keys[:2] if key in caplog.text] == []


@asynccontextmanager
async def listening(redis_server: Any) -> AsyncIterator[list[bytes]]:
    """Collect each command that Redis gets, also from its scripts."""
    seen: list[bytes] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", redis_server.port)
    writer.write(b"MONITOR\r\n")
    await reader.readline()

    async def collect() -> None:
        async for line in reader:
            seen.append(line)

    collecting = asyncio.create_task(collect())
    try:
        yield seen
    finally:
        writer.close()
        await collecting


@pytest.mark.parametrize("mode", ["safe", "modern"])
@pytest.mark.parametrize("saved", ["nowhere", "memory", "redis"])
async def test_redis_and_the_page_hold_no_secret(mode, saved, redis_server, redis_client):
    """All that Redis ever gets of running answers, and all that pages get from two workers; one seems to die.

    Conversations that are kept on Redis have their thread, as every conversation store, but no key of ours.
    """
    redis = pytest.importorskip("mintlify_async.contrib.redis")
    style = ThreadStyle(id_in=set(PLACES), key_in=set(PLACES))
    store = {"nowhere": None, "memory": MemoryConversationStore(), "redis": None}[saved]
    if saved == "redis":
        store = redis.RedisConversationStore(redis_client, timeout=20)
    state = f"mintlify:streams:{{{chat_key(USER, 'chat-1')}}}"
    settings: dict[str, Any] = {"store": store, "mode": mode, "user": lambda request: USER}
    streams = store_of(redis_client)
    async with (
        listening(redis_server) as commands,
        desk(service={"threads": style}, streams=streams, **settings) as here,
        another_worker(here, redis_client, **settings) as other,
    ):
        await day(here, stored=store is not None)
        (thread, *_) = here.service.threads.values()
        headers = {"X-Thread-Id": thread.id, "X-Thread-Key": thread.key or ""}
        here.service.script.ask(events=[*HEAD, 60.0], headers=headers)
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            async with other.stream() as elsewhere:
                await elsewhere.content.readuntil(b"Hello ")
            await redis_client.hset(state, "alive", 0)
            here.page.seen += (await other.resume())[1] + await response.read()
            await other.history()
        await here.all_closed()
        threads = [value for one in here.service.threads.values() for value in (one.id, one.key) if value]
        keys = [here.service.assistant_key, here.service.admin_key]
        chats = [line for line in commands if b"mintlify:conversations" in line]
        answers = b"".join(line for line in commands if line not in chats)
        assert (b"Hello " in answers, bool(chats)) == (True, saved == "redis")
        seen = answers + here.page.seen + other.seen
        assert [secret for secret in (*keys, *threads, USER) if secret.encode() in seen] == []
        assert [key for key in keys if key.encode() in b"".join(chats)] == []
        assert b"chat-1" not in answers


async def test_the_service_does_not_learn_who_asks():
    """All that goes upstream, in any request, names the user by the pseudonym alone."""
    async with desk(user=lambda request: USER) as here:
        await day(here)
        assert {request.json["fp"] for request in here.service.requests} == {pseudonym(USER)}
        for request in here.service.requests:
            sent = json.dumps([request.path, dict(request.headers), request.json])
            assert "lovelace" not in sent
