"""Where the relay's parts meet: shutdown, places, answers that outlive their reader, and stored chats."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
from typing import Any

import aiohttp
import pytest

pytest.importorskip("fastapi")

from aiohttp import web
from aiohttp.test_utils import TestServer
from relay_desk import HEAD, TURN, desk, x_user
from relay_kit import SECRET, Page, events, request_of, until, user_message
from relay_resume_kit import HELD, Gate, Told, ask_and_leave
from starlette.exceptions import HTTPException

from mintlify_async.contrib.relay import MemoryStreamStore, Relay
from mintlify_async.contrib.stream_store import SharedPiece, Written
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import LocalService, VirtualClock, faults


def both(**settings: Any) -> Any:
    return desk(**{"streams": MemoryStreamStore(), "store": MemoryConversationStore(), **settings})


class Shared:
    """A stream store of several workers, which remembers what it was told last."""

    grace, keep, max_bytes = 60.0, 60.0, 10**6

    def __init__(self) -> None:
        self.frames, self.ended = b"", False

    async def write(self, chat: str, answer: str, frames: bytes, *, at: int, **told: Any) -> Written:
        self.frames, self.ended = self.frames[:at] + frames, told.get("ended", False)
        return Written(len(self.frames), 0, False)

    async def read(self, chat: str, answer: str | None, place: int, **named: Any) -> SharedPiece | None:
        return None

    async def stop(self, chat: str) -> bool:
        return False


class Looks(Shared):
    """Notes when the worker of an answer looks for a Stop; each look takes *seconds*."""

    max_bytes = 10**8

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.times: list[float] = []

    async def write(self, chat: str, answer: str, frames: bytes, *, at: int, **told: Any) -> Written:
        self.times.append(self.clock.now())
        if self.seconds:
            await self.clock.sleep(self.seconds)
        return await super().write(chat, answer, frames, at=at, **told)


class Elsewhere(Shared):
    """Has an answer that runs on another worker."""

    async def read(self, chat: str, answer: str | None, place: int, **named: Any) -> SharedPiece | None:
        frames = b'data: {"type":"start","messageId":"m"}\n\n'
        return SharedPiece("a", "u1", True, False, frames[place:], len(frames))


async def test_a_question_that_arrives_during_the_drain_is_refused():
    """Its body was on its way when the drain began; asked then, it would run when the drain has returned."""
    async with desk() as here:
        arriving = asyncio.Event()
        arrived = asyncio.Event()

        async def receive() -> Any:
            if arriving.is_set():
                await asyncio.Event().wait()
            arriving.set()
            await arrived.wait()
            body = json.dumps({"id": "c", "messages": [user_message("q")]}).encode()
            return {"type": "http.request", "body": body, "more_body": False}

        opening = asyncio.create_task(here.relay.open(request_of(b"", receive=receive)))
        await arriving.wait()
        await here.relay.drain(0)
        arrived.set()
        with pytest.raises(HTTPException) as caught:
            async with await opening:
                pass
        assert caught.value.status_code == 503
        assert here.service.requests == []


@pytest.mark.parametrize("silent", ["before the first word", "after it"])
@pytest.mark.parametrize("seconds", [0, 0.05, 0.4])
async def test_a_stop_of_another_worker_is_looked_for_twice_a_second(silent: str, seconds: float):
    """Whether the service is silent, the page reads nothing or the store is slow: a Stop takes no longer."""
    clock = VirtualClock(auto=False)
    looks = Looks(clock, 0)
    async with desk(service={"clock": Gate()}, streams=looks, clock=clock) as here:
        much = [{"type": "text-delta", "id": "0", "delta": "x" * 50_000}] * 100  # more than connections hold
        if silent == "after it":
            here.service.script.ask(events=[*HEAD, *much, *HELD[3:]])
        else:
            here.service.script.ask(fault=faults.NoAnswer())
        asking = asyncio.create_task(here.page.request().__aenter__())
        await until(lambda: here.service.answering)
        looks.seconds = seconds
        for _ in range(50):
            await clock.advance(0.1)
        gaps = [after - before for before, after in itertools.pairwise(looks.times)]
        assert len(gaps) >= 8
        assert max(gaps) < 0.56
        assert await here.page.stop() == 204
        await (await asking).read()
        await clock.advance(2)


async def test_the_drain_ends_when_other_workers_have_the_whole_answer():
    """Then the app may close its Redis."""
    gate, shared = Gate(), Shared()
    async with desk(service={"clock": gate}, streams=shared) as here:
        here.service.script.ask(events=HELD)
        asking = asyncio.create_task(here.page.post())
        await until(lambda: b"Hello" in shared.frames)
        draining = asyncio.create_task(here.relay.drain(60))
        gate.open.set()
        await draining
        assert shared.ended
        await asking


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("there", [True, False])
async def test_the_drain_cuts_answers_that_outlive_their_reader(silent, there):
    """Opening or running, with and without a reader: the page gets the end, the hook hears of it."""
    told = Told()
    async with both(service={"clock": Gate()}, **told.hooks) as here:
        if silent:
            here.service.script.ask(fault=faults.NoAnswer())
        else:
            here.service.script.ask(events=HELD)
        asking = asyncio.create_task(here.page.post({"id": "chat-1", "message": user_message("q")}))
        await until(lambda: here.service.answering)
        if not silent:
            async with here.page.stream() as response:
                await response.content.readuntil(b"Hello ")
        if not there:
            asking.cancel()
            await asyncio.wait([asking])
        await here.relay.drain(0)
        assert here.relay.streaming == 0
        if there:
            status, body, _ = await asking
            assert status == (503 if silent else 200)
            if not silent:
                assert events(body)[-1]["type"] == "error"
        assert [answer.outcome for answer in told.answers] == ([] if silent else ["interrupted"])
        assert (await here.page.history())[0] == (404 if silent else 200)


async def test_a_refusal_of_the_apps_user_hook_is_no_failure(caplog):
    """The page gets it, and the log has no error."""

    async def user(request: Any) -> str:
        raise HTTPException(403, "Not you.")

    async with desk(streams=MemoryStreamStore(), user=user) as here:
        status, body, _ = await here.page.post()
        assert (status, body) == (403, b"Not you.")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_the_next_question_of_a_chat_needs_no_second_place():
    """It ends the answer that has the user's only place, whose page may be gone."""
    settings: dict[str, Any] = {"streams": MemoryStreamStore(), "max_concurrent_per_user": 1}
    async with desk(service={"clock": Gate()}, **settings) as here:
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=TURN)
        await ask_and_leave(here)
        status, body, _ = await here.page.post({"id": "chat-1", "messages": [user_message("r", "u2")]})
        assert status == 200, body


async def test_stop_before_the_first_word_frees_the_stored_chat():
    """The same question can be asked again at once."""
    async with both() as here:
        here.service.script.ask(fault=faults.NoAnswer())
        here.service.script.ask(events=TURN)
        asking = asyncio.create_task(here.page.post({"id": "chat-1", "message": user_message("q")}))
        await until(lambda: here.service.answering)
        assert await here.page.stop() == 204
        status, body, _ = await asking
        assert (status, events(body)) == (200, [{"type": "abort"}])
        status, body, _ = await here.page.post({"id": "chat-1", "message": user_message("q")})
        assert status == 200, body
        assert events(body)[-1]["type"] == "finish"


async def test_a_question_that_was_stopped_before_it_was_sent_is_not_in_the_history():
    """A reply whose opening is cancelled does not count as one that is being written."""

    class Slow(MemoryConversationStore):
        checking = asyncio.Event()

        async def load(self, id: str, *, owner: str, last: int | None = None) -> Any:
            if last == 0:
                self.checking.set()
                await asyncio.Event().wait()
            return await super().load(id, owner=owner, last=last)

    async with both(store=Slow()) as here:
        gc.disable()  # nor does it when an error's traceback keeps it alive
        try:
            asking = asyncio.create_task(here.page.post({"id": "chat-1", "message": user_message("q")}))
            await Slow.checking.wait()
            assert await here.page.stop() == 204
            status, body, _ = await asking
            assert (status, events(body)) == (200, [{"type": "abort"}])
            assert (await here.page.history())[0] == 404
        finally:
            gc.enable()


async def test_regenerate_while_the_answer_runs():
    """The history ends with the question until then; the new answer takes the place of the stopped part."""
    told = Told()
    async with both(service={"clock": Gate()}, **told.hooks) as here:
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=TURN)
        async with here.page.request({"id": "chat-1", "message": user_message("q")}) as response:
            await response.content.readuntil(b"Hello ")
            status, messages = await here.page.history()
            assert [message["id"] for message in messages] == ["u1"]
            status, body, _ = await here.page.post({"id": "chat-1", "trigger": "regenerate-message"})
            assert status == 200, body
            assert events(await response.read())[-1] == {"type": "abort"}
        status, messages = await here.page.history()
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert [answer.outcome for answer in told.answers] == ["left", "finished"]


async def test_a_lost_thread_with_store_and_streams():
    """One further POST, and the place is given back once."""
    async with both() as here:
        await here.page.post({"id": "chat-1", "message": user_message("q")})
        here.service.threads.clear()
        status, body, _ = await here.page.post({"id": "chat-1", "message": user_message("r", "u2")})
        assert status == 200
        assert events(body)[-1]["type"] == "finish"
        assert len(here.service.requests) == 3
        assert here.relay.streaming == 0


async def test_a_reader_of_another_workers_answer_is_told_of_the_shutdown():
    """Its connection is this worker's, and the server would wait for it."""
    async with desk(streams=Elsewhere()) as here, here.page.stream() as response:
        await response.content.readuntil(b"\n\n")
        await here.relay.drain(0)
        assert events(await response.read())[-1]["type"] == "error"


async def test_a_page_that_resumes_while_the_worker_drains_gets_an_end():
    """It comes after the cut, for an answer of another worker."""
    async with desk(streams=Elsewhere()) as here:
        await here.relay.drain(0)
        async with asyncio.timeout(20):
            async with here.page.stream() as first:  # nothing ran: nothing was cut
                await first.content.readuntil(b"\n\n")
                await here.relay.drain(0)
                async with here.page.stream() as second:
                    for response in (first, second):
                        assert events(await response.read())[-1]["type"] == "error"


async def test_a_page_that_resumes_between_the_last_event_and_the_end():
    """The app's hook runs in that time: both readers have all events, and get the end when it returns."""
    saved = asyncio.Event()

    async def on_finish(answer: Any) -> None:
        await saved.wait()

    async with desk(streams=MemoryStreamStore(), on_finish=on_finish) as here:
        here.service.script.ask(events=TURN)
        async with here.page.request() as first:
            head = await first.content.readuntil(b'"finish"')
            async with here.page.stream(params={"after": "u1"}) as second:
                assert await second.content.readuntil(b'"finish"') == head
                saved.set()
                assert await second.read() == await first.read()


async def test_a_stream_store_that_raises_anything_else():
    """The page gets an error, and does not wait."""

    class Broken(Shared):
        async def write(self, *arguments: Any, **told: Any) -> Written:
            raise ValueError("broken")

    async with desk(streams=Broken()) as here:
        assert (await here.page.post())[0] == 500
        assert here.service.requests == []


async def test_aiohttp_with_streams():
    """A reader who leaves a chat of aiohttp.web finds the answer again; Stop ends it."""
    settings: dict[str, Any] = {"streams": MemoryStreamStore(), "store": MemoryConversationStore()}
    async with LocalService(clock=Gate()) as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user, keep_alive=None, **settings)
        app = web.Application()
        app.add_routes(relay.aiohttp_routes())
        service.script.ask(events=HELD)
        async with TestServer(app) as server, aiohttp.ClientSession() as http:
            page = Page(http, f"{server.make_url('/')}".rstrip("/"))
            async with page.request({"id": "chat-1", "message": user_message("q")}) as response:
                await response.content.readuntil(b"Hello ")
                response.close()
            async with page.stream() as response:
                await response.content.readuntil(b"Hello ")
                assert await page.stop() == 204
                assert events(await response.read())[-1] == {"type": "abort"}
            await until(lambda: not relay.streaming)
            assert len(service.requests) == 1
