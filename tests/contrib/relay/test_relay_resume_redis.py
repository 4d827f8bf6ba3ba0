"""Answers that outlive their reader, over Redis: another worker reads, stops and notices a dead worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("redis")

from redis_server import RedisServer, Stutter
from relay_desk import HEAD, TURN, desk
from relay_kit import Page, events, until, user_message
from relay_resume_kit import HELD, Gate, Told, another_worker, ask_and_leave, store_of
from relay_store_kit import again, form

from mintlify_async import ConfigurationError, Thread
from mintlify_async.contrib.redis import RedisConversationStore, RedisStreamStore
from mintlify_async.contrib.relay.running_answers import chat_key
from mintlify_async.testing import VirtualClock


async def until_shared(client: Any, user: str = "ada") -> None:
    """Return when other workers can read the chat's answer."""
    while not await client.exists(f"mintlify:streams:{{{chat_key(user, 'chat-1')}}}:frames"):
        await asyncio.sleep(0.02)


async def test_a_reload_goes_on_with_the_answer_on_another_worker(redis_client: Any):
    """The whole answer from its start, and then live, is the same on both workers."""
    gate, told = Gate(), Told()
    async with desk(service={"clock": gate}, streams=store_of(redis_client), **told.hooks) as here:
        here.service.script.ask(events=HELD)
        async with another_worker(here, redis_client) as other, here.page.request() as first:
            head = await first.content.readuntil(b"Hello ")
            async with other.stream() as second:
                assert (await second.content.readuntil(b"Hello ")) == head
                gate.open.set()
                assert await first.read() == await second.read()
            assert (await other.resume())[0] == 204
            assert (await other.resume(params={"after": "u1"}))[0] == 200
        assert len(here.service.requests) == 1
        assert [answer.outcome for answer in told.answers] == ["finished"]


async def test_stop_on_another_worker(redis_client: Any):
    """The worker that reads the answer learns of it with its next write, at most half a second later."""
    told = Told()
    async with desk(service={"clock": Gate()}, streams=store_of(redis_client), **told.hooks) as here:
        here.service.script.ask(events=HELD)
        async with another_worker(here, redis_client) as other, here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            assert await Page(other.http, other.address, "eve").stop() == 204
            assert await Page(other.http, other.address, "eve").resume() == (204, b"")
            assert await other.stop() == 204
            assert events(await response.read())[-1] == {"type": "abort"}
        await here.all_closed()
        assert here.service.requests[0].client_left
        assert [answer.outcome for answer in told.answers] == ["left"]


async def test_the_next_question_on_another_worker_stops_the_answer_before(redis_client: Any):
    """The hooks of the old answer are called first, so that a store has the turns in order."""
    told = Told()
    async with desk(service={"clock": Gate()}, streams=store_of(redis_client), **told.hooks) as here:
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=TURN)
        async with another_worker(here, redis_client, **told.hooks) as other, here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            assert events(await other.ask(user_message("again", "u2")))[-1]["type"] == "finish"
            assert events(await response.read())[-1] == {"type": "abort"}
        assert [answer.outcome for answer in told.answers] == ["left", "finished"]


async def test_a_reader_on_another_worker_keeps_the_answer_alive(redis_client: Any):
    """The grace is counted over all workers, by the clock of the worker that reads the answer."""
    clock = VirtualClock(auto=False, grace=0.02)
    streams = store_of(redis_client, grace=2.0, lost_after=600)
    async with desk(service={"clock": Gate()}, streams=streams, clock=clock) as here:
        here.service.script.ask(events=HELD)
        await ask_and_leave(here)
        await clock.advance(0.5)
        async with another_worker(here, redis_client) as other, other.stream() as response:
            await response.content.readuntil(b"Hello ")
            for _ in range(4):
                await asyncio.sleep(0.2)  # in which the reader looks once at least
                await clock.advance(1.0)
            assert here.service.answering == 1
        await clock.advance(2.5)
        await until(lambda: not here.service.answering)
        assert here.service.requests[0].client_left
        await clock.advance(0.5)


@pytest.mark.parametrize("domain", ["acme-docs", "another-site"])
async def test_the_worker_dies(redis_client: Any, domain: str):
    """The next reader gets the part, an error and the end; the hook is told once, with part and thread.

    The thread also when a function of the app has chosen another site for the question.
    """
    told = Told()
    answer: Any = {"question": "u1", "first": True, "ended": False}
    service: Any = {"clock": Gate(), "domain": None}
    async with desk(service=service, ask=lambda request, fields: {"domain": domain}) as here:
        here.service.script.ask(events=HELD, headers={"X-Thread-Id": "thread_77"})
        async with here.page.request() as response:
            part = await response.content.readuntil(b'Hello "}\n\n')
        dying = store_of(redis_client, lost_after=0.2)
        await dying.write(chat_key("ada", "chat-1"), "a", part, at=0, **answer)
        async with another_worker(here, redis_client, **told.hooks) as other:
            pages = [other.resume() for _ in range(3)]
            bodies = [body for _, body in await asyncio.gather(*pages)]
            assert (await other.resume())[0] == 204
            bodies.append((await other.resume(params={"after": "u1"}))[1])
        assert len(set(bodies)) == 1
        assert bodies[0].startswith(part)
        assert [event["type"] for event in events(bodies[0])[3:]] == ["error"]
        (lost,) = told.answers
        assert (lost.outcome, lost.user, lost.chat_id) == ("failed", "ada", "chat-1")
        assert (lost.message.text, lost.thread) == ("Hello ", Thread("thread_77"))
        assert "thread" not in repr(lost.message)


async def test_a_worker_that_was_taken_for_dead_stops(redis_client: Any):
    """It learns of it with its next write: what readers were told is true."""
    streams = store_of(redis_client, lost_after=0.001)
    async with desk(service={"clock": Gate()}, streams=streams) as here:
        here.service.script.ask(events=HELD)
        async with another_worker(here, redis_client) as other, here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            await asyncio.sleep(0.01)
            await other.resume()
            assert events(await response.read())[-1] == {"type": "abort"}


async def test_without_redis_all_is_as_without_a_store(own_redis: Any, caplog: pytest.LogCaptureFixture):
    """The answer goes to its reader, a log line says why, and a reader who leaves ends it."""
    server: RedisServer = own_redis()
    async with server.client() as client:
        server.kill()
        async with desk(streams=store_of(client)) as here:
            here.service.script.ask(events=TURN)
            here.service.script.ask(events=[*HEAD, 60.0])
            assert events(await here.page.ask(user_message("q")))[-1]["type"] == "finish"
            assert "an answer goes to its reader alone" in caplog.text
            assert await here.page.resume() == (204, b"")
            assert await here.page.stop() == 503
            await ask_and_leave(here)
            await here.all_closed()
            assert here.service.requests[-1].client_left


async def test_redis_leaves_in_the_middle(own_redis: Any, caplog: pytest.LogCaptureFixture):
    """The reader goes on from memory; when Redis is back, and empty, others can read the whole answer."""
    server, gate = own_redis(), Gate()
    async with server.client() as client, desk(service={"clock": gate}, streams=store_of(client)) as here:
        here.service.script.ask(events=HELD)
        async with another_worker(here, client) as other, here.page.request() as first:
            head = await first.content.readuntil(b"Hello ")
            server.kill()
            await until(lambda: "other workers cannot read an answer" in caplog.text)
            assert (await other.resume())[0] == 204
            server.start()
            await until_shared(client)
            async with other.stream() as second:
                assert await second.content.readuntil(b"Hello ") == head
                gate.open.set()
                assert await second.read() == await first.read()


async def test_redis_gets_what_pages_get_and_nothing_else(redis_client: Any):
    """No key of the service, no thread, no user and no chat, in any key or value; and all of it expires."""
    streams = store_of(redis_client)
    async with desk(service={"clock": Gate()}, streams=streams) as here:
        headers = {"X-Thread-Id": "thread_77", "X-Thread-Key": "thread_key_77"}
        here.service.script.ask(events=HELD, headers=headers)
        page = here.other("user-4711")
        async with page.request() as response:
            await response.content.readuntil(b"Hello ")
            await until_shared(redis_client, page.user)
            seen = b""
            for key in sorted(await redis_client.keys()):
                assert await redis_client.pttl(key) > 0
                kind = await redis_client.type(key)
                held = await (redis_client.xrange(key) if kind == b"stream" else redis_client.hgetall(key))
                seen += key + repr(held).encode()
            assert b"Hello " in seen
            secrets = [
                "thread_77",
                "thread_key_77",
                here.service.assistant_key,
                page.user,
                "chat-1",
                "log in",
            ]
            assert [secret for secret in secrets if secret.encode() in seen] == []
            await page.stop()


@pytest.mark.parametrize("decode", [False, True])
async def test_a_repeated_write_adds_nothing(redis_client: Any, redis_server: RedisServer, decode: bool):
    """A client whose answers were lost sends twice; also one that decodes what it reads."""
    async with redis_server.client(decode_responses=decode) as client:
        store, place = store_of(Stutter(client)), 0
        for number in range(3):
            told = await store.write(
                "c", "a", b"x%d" % number, at=place, question="q", first=not number, ended=number == 2
            )
            place += 2
            assert told.size == place
        found = await store_of(client).read("c", None, 0)
        assert found is not None
        assert (found.frames, found.place, found.running, found.question) == (b"x0x1x2", 6, False, "q")
        later = await store.read("c", "a", 2)
        assert later is not None
        assert later.frames == b"x1x2"


async def test_a_write_at_another_place_adds_nothing(redis_client: Any):
    """The writer learns what the store has, and begins again at 0."""
    store = store_of(redis_client)
    usual: Any = {"question": "q", "first": False, "ended": False}
    assert (await store.write("c", "a", b"later", at=5, **usual)).size == 0
    assert (await store.write("c", "a", b"whole", at=0, **usual)).size == 5
    assert (await store.write("c", "a", b"whole and more", at=0, **usual)).size == 14
    found = await store.read("c", "a", 0)
    assert found is not None
    assert found.frames == b"whole and more"
    first: Any = {**usual, "first": True}
    assert (await store.write("c", "b", b"", at=0, **first)).size == -1  # the other one runs, and is to stop
    assert (await store.write("c", "a", b"", at=14, **usual)).stopped is True
    assert (await store.write("c", "b", b"", at=0, **first, force=True)).stopped is False
    assert (await store.write("c", "a", b"!", at=14, **usual)).stopped is True
    assert await store.read("c", "a", 0) is None
    assert await store.stop("c") is True
    assert await store.stop("d") is False


async def test_a_reader_in_the_middle_of_what_was_written_anew_gets_the_rest(redis_client: Any):
    """Redis has lost the answer and got it again in other pieces: nothing comes twice."""
    store = store_of(redis_client)
    await store.write("c", "a", b"one", at=0, question="q", first=True)
    assert await store.read("c", "a", 0) is not None
    await redis_client.flushdb()
    assert (await store.write("c", "a", b" two", at=3, question="q")).size == 0
    await store.write("c", "a", b"one two", at=0, question="q")
    await store.write("c", "a", b" three", at=7, question="q", ended=True)
    found = await store.read("c", "a", 3)
    assert found is not None
    assert (found.frames, found.place, found.running) == (b" two three", 13, False)


@pytest.mark.parametrize("wrong", [{"grace": -1}, {"keep": "60"}, {"max_bytes": 0}, {"lost_after": 0}])
def test_wrong_settings_are_named(wrong: dict[str, Any], redis_client: Any):
    """Before any question."""
    with pytest.raises(ConfigurationError) as caught:
        RedisStreamStore(redis_client, **wrong)
    assert caught.value.field == next(iter(wrong))


@pytest.mark.parametrize("second", [form("again", "u2"), again("other", "u1"), again()])
async def test_a_history_on_another_worker_ends_with_the_question(redis_client: Any, second: Any):
    """While it is being answered, in place of what it replaces; afterwards the answer is there."""
    gate, (one, two) = Gate(), (RedisConversationStore(redis_client) for _ in range(2))
    async with desk(service={"clock": gate}, streams=store_of(redis_client), store=one) as here:
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=[{**HELD[0], "messageId": "m2"}, *HELD[1:]])
        async with another_worker(here, redis_client, store=two) as other:
            for question in (form("first"), second):
                gate.open.clear()
                async with here.page.request(question) as response:
                    await response.content.readuntil(b"Hello ")
                    status, messages = await other.history()
                    assert (status, messages) == await here.page.history()
                    assert messages[-1]["role"] == "user"
                    assert (await other.history(user="eve"))[0] == 404
                    gate.open.set()
                    await response.read()
                await here.all_closed()
                assert await other.history() == await here.page.history()
                assert (await other.history())[1][-1]["role"] == "assistant"
