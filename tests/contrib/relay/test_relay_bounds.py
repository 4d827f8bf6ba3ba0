"""What one reader may cost: stored chats, answers that nobody reads, histories, odd names, rates."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.applications import Starlette

import mintlify_async
from mintlify_async.contrib.relay import MemoryStreamStore
from mintlify_async.contrib.relay.answer_log import MemoryLog
from mintlify_async.contrib.relay.page_response import PageResponse
from mintlify_async.contrib.relay.refusal_texts import BUSY_TEXT, TOO_MANY_TEXT
from mintlify_async.storage import MemoryStore
from mintlify_async.testing import Customer
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.relay_desk import ENDLESS, HEAD, TURN, Desk, desk, form
from tests.support.relay_kit import until, user_message

# --- A live event -------------------------------------------------------------------------------------


async def test_a_live_event_sets_no_timer(monkeypatch):
    """The limits on silence and on a page that stalls only move, because a timer costs more than an event."""
    loop, log, sent = asyncio.get_running_loop(), MemoryLog(), []
    timers, call_at = [], loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda *args, **more: timers.append(args) or call_at(*args, **more))

    async def send(message):
        sent.append(message)

    @asynccontextmanager
    async def opened():
        yield log

    response = asyncio.create_task(PageResponse(opened())({"method": "POST"}, asyncio.Event().wait, send))
    for number in range(100):
        log.append(b"data: %d\n\n" % number)
        while len(sent) < number + 2:
            await asyncio.sleep(0)
    log.end()
    await response
    assert len(sent) == 102
    assert len(timers) < 10


class SharedLog(MemoryLog):
    """A log whose data arrives after a second, as from another worker. It counts the cancelled reads."""

    cancelled = 0

    async def read(self, place):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return (b"data: %d\n\n" % place, place + 1) if place < 6 else (None, place)


async def test_a_page_that_accepts_each_piece_late_gets_every_piece_and_no_comment():
    """The silence of a log is counted from its read, not from the piece before, which the page took late."""
    log, sent = SharedLog(), []

    async def send(message):
        sent.append(message.get("body"))
        await asyncio.sleep(20)

    @asynccontextmanager
    async def opened():
        yield log

    with virtual_time():
        await PageResponse(opened())({"method": "POST"}, asyncio.Event().wait, send)
    assert sent == [None, *(b"data: %d\n\n" % number for number in range(6)), b""]
    assert log.cancelled == 0


async def test_a_live_event_wakes_one_task():
    """A reader that waits reads the service. When it leaves, the next one does, then the answer's task."""
    log, arriving, steppers = MemoryLog(), asyncio.Queue[bytes](), list[Any]()

    async def step() -> bool:
        log.append(await arriving.get())
        steppers.append(asyncio.current_task())
        return log.size < 5

    async def read() -> bytes:
        whole, place, frames = b"", 0, b""
        with log.reading():
            while frames is not None:
                whole += frames
                frames, place = await log.read(place)
        return whole

    readers = [asyncio.create_task(read()) for _ in "ab"]
    await asyncio.sleep(0)
    filling = asyncio.create_task(log.fill(step))
    for number in range(5):
        arriving.put_nowait(b"%d" % number)
        await until(lambda: log.size > number)  # noqa: B023 - it is over in this round
        await asyncio.sleep(0.01)
        if number < 2:
            steppers[-1].cancel()
            await asyncio.wait([steppers[-1]])
    assert {*steppers[:2]} == {*readers}
    assert steppers[2:] == [filling] * 3
    await filling
    log.end()
    assert await read() == b"01234"


async def test_a_page_that_takes_nothing_holds_only_itself_back():
    """Another page gets all of the answer, though the first one still counts as a reader."""
    log = MemoryLog()

    async def step() -> bool:
        await asyncio.sleep(0)
        log.append(b"x")
        return log.size < 5

    with log.reading(), log.reading():  # the first one is sending, and does not come back
        filling = asyncio.create_task(log.fill(step))
        for place in range(5):
            assert await log.read(place) == (b"x", place + 1)
        await filling


async def test_what_a_reader_finds_is_raised_to_the_answer():
    """The service's error ends the answer, and not the response that happened to read it."""
    log, place = MemoryLog(), 0

    async def step() -> bool:
        raise ValueError("a broken answer")

    with log.reading():
        filling = asyncio.create_task(log.fill(step))
        reading = asyncio.create_task(log.read(place))
        with pytest.raises(ValueError, match="a broken answer"):
            await filling
        log.append(b"its error")
        assert await reading == (b"its error", 9)


# --- A stored conversation ----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["text", "files"])
async def test_a_stored_conversation_is_bounded_by_characters_and_files(what):
    """As without a store: 413, and nothing is sent; a question of a few bytes does not send megabytes."""
    file = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * 1_500_000}
    async with desk(store=MemoryStore()) as here:
        here.service.script.ask(events=[{"type": "start"}, *TURN[1:]], times=None)
        for number in range(30):
            body = form("x" * 31_000 if what == "text" else "q", f"u{number}")
            if what == "files":
                body["message"]["parts"].append(file)
            status, content, _ = await here.page.post(body)
            if status != 200:
                break
        assert (status, content) == (413, b"This conversation is too long. Please start a new one.")
        sent = len(here.service.requests)
        assert max(len(request.body) for request in here.service.requests) < 4 * 1024 * 1024
        assert sent == (16 if what == "text" else 2)
        await here.page.post(form("And now?", "last"))
        assert sum(len(request.body) for request in here.service.requests[sent:]) < 4 * 1024 * 1024


async def test_a_stored_thread_belongs_to_its_site():
    """A chat that is asked at another domain does not go there with the first site's thread."""

    def ask(request: Any, fields: Any) -> dict[str, Any]:
        return {"domain": fields["site"]}

    key = Customer().assistant_key
    sites = [Customer(name, domain=name, assistant_key=key) for name in ("one", "two")]
    async with desk(service={"customers": sites}, store=MemoryStore(), ask=ask) as here:
        await here.page.post(form("one", "u1", site="one"))
        thread = here.service.requests[-1]
        await here.page.post(form("two", "u2", site="two"))
        assert here.service.requests[-1].path.split("/")[-2] == "two"
        # One request without the thread, and not a second one after a 404.
        assert [request.json.get("threadId") for request in here.service.requests] == [None, None]
        assert "threadKey" not in here.asked
        assert thread.path != here.service.requests[-1].path
        await here.page.post(form("three", "u3", site="two"))
        assert here.asked["threadId"] == list(here.service.threads)[-1]
        assert b"threadSite" not in json.dumps((await here.page.history())[1]).encode()


async def test_an_unread_history_gives_up_its_place():
    """After a minute in which its reader takes nothing."""
    sending, never = asyncio.Event(), asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            sending.set()
            await never.wait()

    async with desk(store=MemoryStore()) as here:
        here.service.script.ask(events=TURN)
        await here.page.post(form("one", "u1"))
        app: Any = Starlette(routes=here.relay.routes())  # asked as a server does
        where = {"type": "http", "method": "GET", "path": "/api/chat/chat-1", "query_string": b""}
        scope = {**where, "headers": [(b"x-user", b"ada")]}
        with virtual_time():
            reading = asyncio.create_task(app(scope, never.wait, send))
            await sending.wait()
            await asyncio.sleep(70)
            assert reading.done()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_no_cache_keeps_that_there_is_no_answer(method):
    """A page that asks again a moment later must not get an old 204."""
    async with desk(streams=MemoryStreamStore()) as here, here.page.stream(method) as response:
        assert (response.status, response.headers["cache-control"]) == (204, "no-store")


# --- Answers that nobody reads ------------------------------------------------------------------------


async def ask_and_leave(here: Desk, user: str, chat: str) -> None:
    page = here.other(user)
    async with page.request({"id": chat, "messages": [user_message("q")]}) as response:
        await response.content.readuntil(b"Hello ")


async def test_answers_that_nobody_reads_do_not_keep_readers_out():
    """When all places are taken, the one that was left first ends for a new question."""
    async with desk(streams=MemoryStreamStore(), max_concurrent=6) as here:
        here.service.script.ask(events=ENDLESS, times=6)
        for number in range(6):
            await ask_and_leave(here, f"user-{number}", "chat")
        assert here.service.answering == 6
        here.service.script.ask(events=TURN)
        status, _, _ = await here.page.post()
        assert status == 200
        assert here.service.requests[0].client_left
        await here.relay.drain(0)


async def test_at_most_two_answers_of_a_user_go_on_unread():
    """The one that was left first ends."""
    async with desk(streams=MemoryStreamStore()) as here:
        here.service.script.ask(events=ENDLESS, times=None)
        for number in range(5):
            await ask_and_leave(here, "ada", f"chat-{number}")
        await until(lambda: here.service.answering <= 2)
        assert [request.client_left for request in here.service.requests] == [True] * 3 + [False] * 2
        await here.relay.drain(0)


@pytest.mark.parametrize(
    ("settings", "users", "statuses"),
    [
        ({"max_concurrent": 2}, ["ada", "bob", "eve"], [200, 200, 503]),
        ({"max_per_user": 2}, ["ada", "ada", "ada", "bob"], [200, 200, 429, 200]),
        ({"max_concurrent": 100}, [f"user-{number}" for number in range(26)], [200] * 25 + [429]),
    ],
    ids=["all", "a user", "an IP address"],
)
async def test_places_are_counted(settings, users, statuses):
    """In all, by user and by IP address. An address gets a quarter of all, even with invented users."""
    async with desk(**settings) as here:
        here.service.script.ask(events=ENDLESS, times=None)
        bodies = [{"id": f"chat-{number}", "messages": [user_message("q")]} for number in range(len(users))]
        asking = [here.other(user).request(body) for user, body in zip(users, bodies, strict=True)]
        responses = [await request.__aenter__() for request in asking]
        assert [response.status for response in responses] == statuses
        assert {response.headers.get("retry-after") for response in responses} == {None, "1"}
        (refusal,) = [await response.text() for response in responses if response.status != 200]
        assert refusal == (BUSY_TEXT if 503 in statuses else TOO_MANY_TEXT)
        for response in responses:
            response.close()


async def test_a_page_that_does_not_read_holds_the_answer_back():
    """The relay reads on only as far as its connections hold."""
    much = [{"type": "text-delta", "id": "0", "delta": "x" * 50_000}] * 150  # less than an answer may have
    async with desk(streams=MemoryStreamStore()) as here:
        here.service.script.ask(events=[*HEAD, *much, *TURN[3:]])
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            (answer,) = here.relay._answers._running
            size = 0
            while answer.log.size > size:  # until it has come to rest
                size = answer.log.size
                await asyncio.sleep(0.3)
            assert answer.log.size < 7_000_000  # of 7.5 million; two sockets hold up to six
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        await until(lambda: not here.relay.streaming)


# --- Names and rates ----------------------------------------------------------------------------------

ODD = ["anonymous", "x" * 201, "x" * 100_000, "a\0b", "\ud800", "a\nb", "\x7f", 7]


async def test_an_odd_name_is_refused():
    """Whatever a client calls itself: 401 for each request, and never an error of the app."""
    names = list[Any]()
    stores = {"store": MemoryStore(), "streams": MemoryStreamStore()}
    async with desk(user=lambda request: names[-1], **stores) as here:
        for name in ODD:
            names.append(name)
            assert (await here.page.post(form("q", "u1", messages=[user_message("q")])))[0] == 401
            assert (await here.page.history())[0] == 401
            assert (await here.page.resume())[0] == 401
            assert await here.page.stop() == 401
        assert here.service.requests == []


@pytest.mark.parametrize("wait", [-1, -2, 0, 0.2])
async def test_a_number_of_seconds_is_a_refusal(wait):
    """Redis says -1 for a counter that never expires: that must not let everything through."""
    async with desk(rate=lambda user, request: wait) as here:
        status, _, headers = await here.page.post()
        assert (status, headers["retry-after"]) == (429, "1")


async def test_the_counter_of_the_documentation_always_expires(redis_client):
    """Also that of a counter whose expiry met the next reload, and which has none since."""
    page = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "relay-deploy.md"
    (recipe,) = re.findall(r"^async def rate\(.*?(?=^\S)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"redis": redis_client, "Request": object}
    exec("from __future__ import annotations\n" + recipe, namespace)
    request: Any = type("Request", (), {"method": "GET"})

    await namespace["rate"]("bob", request)
    await redis_client.set("reloads:ada", 5)
    await namespace["rate"]("ada", request)
    for user in ("bob", "ada"):
        assert 0 < await redis_client.ttl(f"reloads:{user}") <= 60
