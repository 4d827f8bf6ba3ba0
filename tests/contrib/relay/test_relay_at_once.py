"""Questions that pages ask in one chat at the same moment: one is answered, and each page gets an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("redis")

from relay_desk import TURN, Desk, desk, x_user
from relay_kit import SECRET, Page, events, serving, until
from relay_resume_kit import HELD, Gate, Told
from relay_store_kit import again, form
from starlette.applications import Starlette

from mintlify_async.contrib.redis import RedisConversationStore, RedisStreamStore
from mintlify_async.contrib.relay import MemoryStreamStore, relay_routes
from mintlify_async.contrib.relay.running_answers import chat_key
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import LocalService, VirtualClock


class AtOnce:
    """The app's ``ask`` function: each question goes on when all have arrived."""

    def __init__(self) -> None:
        self.number = self.arrived = 0
        self.all = asyncio.Event()

    async def __call__(self, request: Any, fields: Any) -> dict[str, Any]:
        self.arrived += 1
        if self.arrived >= self.number:
            self.all.set()
        await self.all.wait()
        return {}

    def expect(self, number: int) -> None:
        self.number, self.arrived = number, 0
        self.all.clear()


@asynccontextmanager
async def chat(
    kind: str, redis: Any, gate: Gate, at_once: AtOnce, **settings: Any
) -> AsyncIterator[tuple[Desk, list[Page]]]:
    """Serve one stored chat by one worker or, as *kind* says, by two; yield a page of each."""
    settings |= {"ask": at_once}

    def stores() -> dict[str, Any]:
        if kind == "memory":
            return {"streams": MemoryStreamStore(), "store": MemoryConversationStore()}
        return {"streams": RedisStreamStore(redis, timeout=20), "store": RedisConversationStore(redis)}

    async with desk(service={"clock": gate}, **stores(), **settings) as here, AsyncExitStack() as stack:
        made = [here.page]
        if kind == "two workers":
            routes = relay_routes(here.session, secrets=[SECRET], user=x_user, **stores(), **settings)
            address = await stack.enter_async_context(serving(Starlette(routes=routes)))
            made.append(Page(await stack.enter_async_context(aiohttp.ClientSession()), address))
        yield here, made


kinds = pytest.mark.parametrize("kind", ["memory", "one worker", "two workers"])


@kinds
@pytest.mark.parametrize("number", [2, 3, 10])
@pytest.mark.parametrize("second", ["new", "again"])
async def test_one_question_of_several_is_answered(kind: str, number: int, second: str, redis_client: Any):
    """The others end as stopped; the store has whole turns in order, and the chat goes on."""
    gate, at_once, told = Gate(), AtOnce(), Told()
    async with chat(kind, redis_client, gate, at_once, **told.hooks) as (here, made):
        await made[0].post(form("before", "u0"))
        here.service.script.ask(events=[{"type": "start"}, *HELD[1:]], times=None)
        at_once.expect(number)
        bodies = [form(f"q{n}", f"u{n}") if second == "new" else again() for n in range(1, number + 1)]
        asking = [asyncio.create_task(made[n % len(made)].post(body)) for n, body in enumerate(bodies)]
        await until(lambda: sum(task.done() for task in asking) == number - 1 and here.service.answering)
        (running,) = [task for task in asking if not task.done()]
        gate.open.set()
        outcomes = await asyncio.gather(*asking)
        assert [status for status, _, _ in outcomes] == [200] * number
        ends = [events(body)[-1]["type"] for _, body, _ in outcomes]
        assert sorted(ends) == ["abort"] * (number - 1) + ["finish"]
        assert events((await running)[1])[-1]["type"] == "finish"
        await here.all_closed()
        status, messages = await made[-1].history()
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert len({message["id"] for message in messages}) == len(messages)
        asked = bodies[asking.index(running)].get("message", {}).get("id", "u0")
        assert [messages[-2]["id"], messages[-1]["parts"][-1]["state"]] == [asked, "done"]
        assert told.answers[-1].outcome == "finished"
        assert [await page.history() for page in made] == [(status, messages)] * len(made)
        for n, page in enumerate(made):
            _, body, _ = await page.post(form("after", f"after-{n}"))
            assert events(body)[-1]["type"] == "finish"


@kinds
async def test_the_later_question_wins(kind: str, redis_client: Any):
    """The earlier one ends as stopped, and the store keeps what had arrived of its answer."""
    gate, at_once = Gate(), AtOnce()
    async with chat(kind, redis_client, gate, at_once) as (here, made):
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=[{**TURN[0], "messageId": "m2"}, *TURN[1:]])
        async with made[0].request(form("one")) as response:
            head = await response.content.readuntil(b'Hello "}\n\n')
            _, body, _ = await made[-1].post(form("two", "u2"))
            assert events(body)[-1]["type"] == "finish"
            assert events(head + await response.read())[-1]["type"] == "abort"
        _, messages = await made[0].history()
        assert [message["id"] for message in messages] == ["u1", "m1", "u2", "m2"]
        assert [message["parts"][0]["text"] for message in messages[1::2]] == ["Hello ", "Hello there"]


async def ask_when(page: Page, service: LocalService, clock: VirtualClock) -> float:
    """Ask the second question, and return the seconds of *clock* after which the service has it."""
    asking, began = asyncio.create_task(page.post(form("two", "u2"))), clock.now()
    for _ in range(30):
        if len(service.requests) == 1:
            await clock.advance(0.1)
    waited = clock.now() - began
    status, body, _ = await asking
    assert status == 200, body
    assert events(body)[-1]["type"] == "finish"
    return waited


async def test_a_hook_that_does_not_return_holds_the_next_question_for_a_moment_only():
    """Two seconds, by the relay's clock."""
    clock, hook = VirtualClock(auto=False, grace=0.02), asyncio.Event()

    async def on_unfinished(answer: Any) -> None:
        await hook.wait()

    settings: dict[str, Any] = {"clock": clock, "on_unfinished": on_unfinished}
    settings |= {"streams": MemoryStreamStore(), "store": MemoryConversationStore()}
    async with desk(service={"clock": Gate()}, **settings) as here:
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=TURN)
        async with here.page.request(form("one")) as response:
            await response.content.readuntil(b"Hello ")
            assert 2 <= await ask_when(here.page, here.service, clock) < 2.5
            hook.set()
            assert events(await response.read())[-1] == {"type": "abort"}


async def beat(streams: RedisStreamStore, chat: str) -> None:
    """Write as a worker does that is alive, and do not stop."""
    while True:
        await streams.write(chat, "a", b"", at=1, question="u1")
        await asyncio.sleep(0.05)


async def test_a_worker_that_does_not_stop_holds_the_next_question_for_a_moment_only(redis_client: Any):
    """It goes on as if it were not told to stop. Its answer loses the place after two seconds."""
    clock, streams = VirtualClock(auto=False, grace=0.02), RedisStreamStore(redis_client, timeout=20)
    async with desk(streams=streams, store=MemoryConversationStore(), clock=clock) as here:
        await here.page.post(form("other", chat="chat-2"))
        chat = chat_key("ada", "chat-1")
        await streams.write(chat, "a", b"x", at=0, question="u1", first=True)
        deaf = asyncio.create_task(beat(streams, chat))
        try:
            assert 2 <= await ask_when(here.page, here.service, clock) < 2.5
        finally:
            deaf.cancel()
            await asyncio.wait([deaf])
        assert (await streams.write(chat, "a", b"y", at=1, question="u1")).stopped
        await clock.advance(1)


async def test_stop_while_the_question_waits_for_its_turn(redis_client: Any):
    """It is not asked; its page gets the end of a stopped answer. The chat's next question is answered."""
    streams = RedisStreamStore(redis_client, timeout=20)
    async with desk(streams=streams, store=MemoryConversationStore()) as here:
        await streams.write(chat_key("ada", "chat-1"), "a", b"x", at=0, question="u1", first=True)
        asking = asyncio.create_task(here.page.post(form("two", "u2")))
        async with asyncio.timeout(10):
            while not (await streams.write(chat_key("ada", "chat-1"), "a", b"", at=1, question="u1")).stopped:
                await asyncio.sleep(0.02)
        assert await here.page.stop() == 204
        status, body, _ = await asking
        assert (status, events(body)) == (200, [{"type": "abort"}])
        assert here.service.requests == []
        await streams.write(chat_key("ada", "chat-1"), "a", b"", at=1, question="u1", ended=True)
        _, body, _ = await here.page.post(form("three", "u3"))
        assert events(body)[-1]["type"] == "finish"


async def test_the_last_of_those_that_wait_is_answered(redis_client: Any):
    """Whichever looks first when the answer before has ended; the one that was asked earlier gets a Stop."""
    store = RedisStreamStore(redis_client, timeout=20)

    async def take(answer: str, **more: Any) -> tuple[int, bool]:
        told = await store.write("c", answer, b"", at=0, question="", first=True, **more)
        return told.size, told.stopped

    await take("running")
    assert [await take("one"), await take("two"), await take("two", again=True)] == [(-1, False)] * 3
    assert await take("one", again=True, force=True) == (-1, True)
    await store.write("c", "running", b"", at=0, question="", ended=True)
    assert await take("one", again=True) == (-1, True)
    assert await take("two", again=True) == (0, False)
    assert await take("one", again=True) == (-1, True)
    assert not (await store.write("c", "two", b"", at=0, question="")).stopped
    assert await take("three", force=True) == (0, False)


@pytest.mark.parametrize("ended", [False, True])
async def test_stop_on_another_worker_while_the_question_waits(redis_client: Any, ended: bool):
    """It is not asked, also when the answer that it waited for has just ended."""
    key = chat_key("ada", "chat-1")
    streams, other = (RedisStreamStore(redis_client, timeout=20) for _ in range(2))
    async with desk(streams=streams, store=MemoryConversationStore()) as here:
        await other.write(key, "a", b"x", at=0, question="u1", first=True)
        asking = asyncio.create_task(here.page.post(form("two", "u2")))
        async with asyncio.timeout(10):
            while not (await other.write(key, "a", b"", at=1, question="u1")).stopped:
                await asyncio.sleep(0.02)
        if ended:
            await asyncio.gather(other.write(key, "a", b"", at=1, question="u1", ended=True), other.stop(key))
        else:
            assert await other.stop(key)
            await other.write(key, "a", b"", at=1, question="u1", ended=True)
        status, body, _ = await asking
        assert (status, events(body)) == (200, [{"type": "abort"}])
        assert here.service.requests == []
