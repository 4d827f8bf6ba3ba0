"""A worker that dies in mid-answer: the chat keeps the question and the part, whichever worker finds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from attrs import define

pytest.importorskip("fastapi")
pytest.importorskip("redis")

from redis_server import RedisServer, Stutter
from relay_desk import HEAD, TURN, Desk, desk
from relay_kit import Page, events, pseudonym, until, user_message
from relay_resume_kit import HELD, Gate, Told, another_worker, store_of
from relay_store_kit import again, form
from relay_workers import workers

from mintlify_async.contrib.redis import RedisConversationStore
from mintlify_async.contrib.relay.running_answers import chat_key
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import LocalService

PART: list[Any] = [
    {"type": "start", "messageId": "m1", "messageMetadata": {"model": "m-1"}},
    {"type": "tool-input-available", "toolCallId": "c", "toolName": "search", "input": {"query": "q"}},
    {"type": "tool-output-available", "toolCallId": "c", "output": ["found"]},
    {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello "},
]
KEPT = ["u1", "m1"]
STATE = f"mintlify:streams:{{{chat_key('ada', 'chat-1')}}}"


async def test_the_history_after_a_worker_was_killed(redis_server: RedisServer):
    """It has question and part, as after a cut that the worker survives; the next question follows."""
    async with LocalService() as service, aiohttp.ClientSession() as http:
        service.script.ask(events=[*PART, 60.0])
        service.script.ask(events=PART, done=False)
        async with workers(service, redis=redis_server.url, store=True) as (one, other):
            here = Page(http, other.address)
            async with Page(http, one.address).request(form("one")) as response:
                await response.content.readuntil(b"Hello ")
                async with here.stream() as elsewhere:
                    await elsewhere.content.readuntil(b"Hello ")
                await one.kill()
            while (await here.history())[1][-1]["role"] == "user":
                await asyncio.sleep(0.1)
            status, (question, answer) = await here.history()
            assert (status, question) == (200, user_message("one"))
            status, body, _ = await here.post(form("one", chat="chat-2"))
            assert events(body)[-1]["type"] == "error"
            assert (await here.history("chat-2"))[1] == [question, answer]
            service.script.ask(events=PART, done=False)
            await here.post(form("two", "u2"))
            assert [message["id"] for message in service.requests[-1].json["messages"]] == [*KEPT, "u2"]


class Mortal:
    """A worker's Redis client. Once dead, the worker is as good as killed: others hear no more of it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.dead = False
        self.left = 10**9  # scripts, after which it dies by itself
        self._running = 0

    async def evalsha(self, sha: str, numkeys: int, *rest: Any) -> Any:
        self.left -= 1
        if self.dead or self.left < 0:
            raise ConnectionError("dead")
        self._running += 1
        try:
            return await self.client.evalsha(sha, numkeys, *rest)
        finally:
            self._running -= 1

    def eval(self, script: str, numkeys: int, *rest: Any) -> Any:
        return self.client.eval(script, numkeys, *rest)

    async def die(self, *, noticed: bool = True) -> None:
        """Die. The others notice at once, or in their own time."""
        self.dead = True
        await until(lambda: not self._running)
        if noticed:
            await self.client.hset(STATE, "alive", 0)


@define
class Story:
    """A worker that dies, and another; the service goes on when the gate is opened."""

    gate: Gate
    here: Desk
    other: Page
    mortal: Mortal
    told: Told
    client: Any

    async def ask_and_die(self, body: Any, seen: bytes = b"Hello ", *, noticed: bool = True) -> None:
        async with self.here.page.request(body) as response:
            async with self.other.stream() as elsewhere:
                await elsewhere.content.readuntil(seen)
            await self.mortal.die(noticed=noticed)
            response.close()

    async def ids(self) -> list[str]:
        status, messages = await self.other.history()
        assert status == 200, messages
        return [message["id"] for message in messages]

    async def saved(self) -> Any:
        return await RedisConversationStore(self.client).load("chat-1", owner="ada")


@asynccontextmanager
async def story(
    client: Any, found: Any = None, *, saving: Any = None, before: bool = False, **settings: Any
) -> AsyncIterator[Story]:
    """Put up both workers.

    *found*: the other's Redis client; *saving*: the first one's for conversations, which lives on; *before*:
    the chat has a turn already.
    """
    gate, told, mortal = Gate(), Told(), Mortal(client)
    first: Any = {"streams": store_of(mortal), "store": RedisConversationStore(saving or mortal, timeout=20)}
    async with desk(service={"clock": gate}, **first) as here:
        if before:
            here.service.script.ask(events=[{"type": "start", "messageId": "m0"}, *TURN[1:]])
            await here.page.post(form("zero", "u0"))
        here.service.script.ask(events=HELD)
        second = {"store": RedisConversationStore(found or client, timeout=20), **told.hooks, **settings}
        try:
            async with another_worker(here, found or client, **second) as other:
                yield Story(gate, here, other, mortal, told, client)
        finally:
            gate.open.set()


@pytest.mark.parametrize("finds", ["history", "stream", "question"])
async def test_each_way_to_find_it_keeps_the_turn(redis_client: Any, finds: str):
    """A history, a reader, or the next question: the turn is there once, and the hook is told once."""
    async with story(redis_client, before=True) as given:
        await given.ask_and_die(form("one"))
        if finds == "question":
            given.here.service.script.ask(events=TURN)
            await given.other.post(form("two", "u2"))
            sent = given.here.asked
            assert [message["id"] for message in sent["messages"]] == ["u0", "m0", *KEPT, "u2"]
            assert sent["threadId"] == "thread_77"
        elif finds == "stream":
            _, body = await given.other.resume(params={"after": "u1"})
            assert [event["type"] for event in events(body)][-2:] == ["text-delta", "error"]
        assert (await given.ids())[:4] == ["u0", "m0", *KEPT]
        kept = await given.saved()
        assert f'"fp": "{pseudonym("ada")}"' in kept.head
        assert "thread_77" in kept.head
        lost = given.told.answers[0]
        assert (lost.outcome, lost.message.id, lost.message.text) == ("failed", "m1", "Hello ")
        assert len(given.told.answers) == (2 if finds == "question" else 1)
        await given.other.resume()
        await given.ids()
        assert await given.saved() == kept


async def test_a_question_right_after_the_death(redis_client: Any):
    """It does not wait until the worker counts as dead for all; what it replaces is kept before it."""
    async with story(redis_client) as given:
        await given.ask_and_die(form("one"), noticed=False)
        given.here.service.script.ask(events=TURN)
        status, body, _ = await given.other.post(form("two", "u2"))
        assert (status, events(body)[-1]["type"]) == (200, "finish")
        assert (await given.ids())[:3] == [*KEPT, "u2"]
        assert [answer.outcome for answer in given.told.answers] == ["failed", "finished"]


async def test_many_find_it_at_once(redis_client: Any):
    """Also when each believes to be the one that ends it."""
    async with story(redis_client, streams=store_of(redis_client, lost_after=0.001)) as given:
        await given.ask_and_die(form("one"))
        pages = [given.other.resume(params={"after": "u1"}) for _ in range(5)]
        await asyncio.gather(*pages, *(given.other.history() for _ in range(5)))
        assert await given.ids() == KEPT
        assert [answer.outcome for answer in given.told.answers] == ["failed"]


@pytest.mark.parametrize("body", [again(), form("edited", "u0")])
async def test_an_edit_whose_worker_dies_loses_nothing(redis_client: Any, body: dict[str, Any]):
    """The old question and its answer stay, as when the worker lives; the hook gets the part."""
    async with story(redis_client, before=True) as given:
        before = await given.saved()
        await given.ask_and_die(body)
        assert await given.ids() == ["u0", "m0"]
        assert await given.saved() == before
        assert [answer.message.text for answer in given.told.answers] == ["Hello "]


async def test_no_word_of_an_answer_keeps_no_question(redis_client: Any):
    """As when the worker lives: the page still shows the question, and can ask again."""
    async with story(redis_client) as given:
        given.here.service.script.clear()
        given.here.service.script.ask(events=[*HEAD[:2], 60.0])
        await given.ask_and_die(form("one"), b"text-start")
        assert (await given.other.history())[0] == 404
        assert len(given.told.answers) == 1
        assert await given.saved() is None


async def test_a_chat_that_has_gone_on_stays_as_it_is(redis_client: Any):
    """A newer turn wins; the hook still gets the part."""
    async with story(redis_client, before=True) as given:
        await given.ask_and_die(form("one"))
        store = RedisConversationStore(redis_client)
        chat = given.here.session.conversation(fp="ada", id="chat-1", store=store)
        await chat.add_turn("newer", "yes")
        after = await given.saved()
        assert (await given.ids())[:2] == ["u0", "m0"]
        assert "u1" not in await given.ids()
        assert await given.saved() == after
        assert [answer.message.text for answer in given.told.answers] == ["Hello "]


async def test_an_answer_that_was_saved_before_its_worker_died_is_not_doubled(redis_client: Any):
    """The store has it, and Redis does not have its end yet."""
    async with story(redis_client, saving=redis_client) as given:
        await given.ask_and_die(form("one"))
        given.gate.open.set()
        await until(lambda: not given.here.relay.streaming)
        assert await given.ids() == KEPT
        assert (await given.other.history())[1][1]["parts"][0]["text"] == "Hello there"
        assert [answer.outcome for answer in given.told.answers] == ["failed"]


class Stubborn(MemoryConversationStore):
    """A store that loads, and then refuses or hangs."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error
        self.saves = 0

    async def save(self, *args: Any, **named: Any) -> int:
        self.saves += 1
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        return 0


@pytest.mark.parametrize("error", [RuntimeError("full"), None])
async def test_a_store_that_fails_does_not_keep_the_end_from_the_page(
    redis_client: Any,
    error: Exception | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """The page gets the part and the error, the log says what was not saved, and the hook gets the part."""
    monkeypatch.setattr("mintlify_async.contrib.relay.punctual_store.STORE_SECONDS", 0.2)
    store = Stubborn(error)
    async with story(redis_client, store=store) as given:
        await given.ask_and_die(form("one"))
        _, body = await given.other.resume(params={"after": "u1"})
        assert [event["type"] for event in events(body)][-2:] == ["text-delta", "error"]
        assert "an answer was not saved: StoreError" in caplog.text
        assert store.saves == 1
        assert [answer.message.text for answer in given.told.answers] == ["Hello "]


class Slow(RedisConversationStore):
    """A store that saves when it is told to."""

    def __init__(self, client: Any, **settings: Any) -> None:
        super().__init__(client, **settings)
        self.saving, self.go = asyncio.Event(), asyncio.Event()

    async def save(self, *args: Any, **named: Any) -> int:
        self.saving.set()
        await self.go.wait()
        return await super().save(*args, **named)


async def test_a_page_that_leaves_meanwhile_does_not_lose_the_part(redis_client: Any):
    """What its look has begun is done to its end."""
    store = Slow(redis_client, timeout=20)
    async with story(redis_client, store=store) as given:
        await given.ask_and_die(form("one"))
        async with given.other.stream(params={"after": "u1"}) as response:
            await store.saving.wait()
            response.close()
        store.go.set()
        await until(lambda: given.told.answers)
        assert await given.ids() == KEPT


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
async def test_the_one_that_found_it_dies_too(redis_client: Any, steps: int):
    """Or its Redis is away: a later look does what is left, and nothing twice."""
    second = Mortal(redis_client)
    async with story(redis_client, second) as given:
        await given.ask_and_die(form("one"))
        second.left = steps
        await given.other.history()
        second.left = 10**9
        assert given.told.answers == []
        await redis_client.hset(STATE, "alive", 0)
        assert await given.ids() == KEPT
        assert len((await given.saved()).turns) == 1
        assert [answer.outcome for answer in given.told.answers] == ["failed"]


async def test_a_worker_that_only_seemed_to_be_dead(redis_client: Any):
    """It stops when it notices, and what it had is in the chat once."""
    async with story(redis_client) as given:
        async with given.here.page.request(form("one")) as response:
            await response.content.readuntil(b"Hello ")
            async with given.other.stream() as elsewhere:
                await elsewhere.content.readuntil(b"Hello ")
            await given.mortal.die()
            assert await given.ids() == KEPT
            given.mortal.dead = False
            assert events(await response.read())[-1]["type"] in ("abort", "error")
        await given.here.all_closed()
        assert given.here.service.requests[0].client_left
        assert await given.ids() == KEPT
        assert len((await given.saved()).turns) == 1


async def test_the_part_waits_a_day_for_a_look(redis_client: Any):
    """A reader may come back much later than an answer that has ended is kept."""
    async with story(redis_client) as given:
        await given.ask_and_die(form("one"))
        for key in (STATE, f"{STATE}:frames"):
            assert 86_000_000 < await redis_client.pttl(key) <= 86_400_000
        await given.ids()
        for key in (STATE, f"{STATE}:frames"):
            assert 0 < await redis_client.pttl(key) <= 65_000


@pytest.mark.parametrize("finds", ["reader", "question"])
async def test_the_next_question_waits_until_the_part_is_kept(
    redis_client: Any, finds: str, monkeypatch: pytest.MonkeyPatch
):
    """Else one of the two turns would be refused by the store. Also longer than it waits for a worker."""
    monkeypatch.setattr(
        "mintlify_async.contrib.relay.running_answers.MAKE_WAY", 2.0 if finds == "reader" else 0.1
    )
    store = Slow(redis_client, timeout=20)
    async with story(redis_client, store=store) as given:
        await given.ask_and_die(form("one"))
        given.here.service.script.ask(events=TURN)
        requests = [given.other.post(form("two", "u2"))]
        if finds == "reader":
            requests.insert(0, given.other.resume())
        running: list[Any] = []
        for request in requests:
            running.append(asyncio.create_task(request))
            await store.saving.wait()
        await asyncio.sleep(0.3)
        store.go.set()
        await asyncio.gather(*running)
        assert events(running[-1].result()[1])[-1]["type"] == "finish"
        assert (await given.ids())[:3] == [*KEPT, "u2"]
        assert [answer.outcome for answer in given.told.answers] == ["failed", "finished"]


async def test_the_end_of_a_lost_answer_is_written_once(redis_client: Any):
    """By the call that returns True, also when its client sends it twice."""
    store = store_of(redis_client, lost_after=0.001)
    await store.write("c", "a", b"part", at=0, question="q", first=True, ended=False)
    assert await store.end_lost("c", "a", b"!") is False
    await asyncio.sleep(0.01)
    found = await store.read("c", None, 4)
    assert found is not None
    assert (found.lost, found.running, found.frames) == (True, True, b"")
    assert (await store.write("c", "a", b" and more", at=4, question="q", first=False, ended=False)).stopped
    assert await store_of(Stutter(redis_client)).end_lost("c", "a", b"!") is True
    assert await store.end_lost("c", "a", b"!") is False
    whole = await store.read("c", None, 0)
    assert whole is not None
    assert (whole.lost, whole.running, whole.frames) == (False, False, b"part!")
    assert await store.stop("c") is False
