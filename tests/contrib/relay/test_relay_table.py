"""Situations by stores: what a page sees of an answer, wherever answers and conversations are kept.

A setup says where running answers are (nowhere, in memory, on Redis with two workers) and where the
conversation is (with the page, in memory, on Redis). ``here.far`` is a page of another worker, if there is
one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("redis")

from attrs import define

from mintlify_async.contrib.redis import RedisStore, RedisStreamStore
from mintlify_async.contrib.relay import MemoryStreamStore, RelayedAnswer, running_answer
from mintlify_async.contrib.relay.answer_lifetimes import chat_key
from mintlify_async.contrib.relay.refusal_texts import CUT_TEXT, FAILED_TEXT
from mintlify_async.storage import MemoryStore
from mintlify_async.testing import NoAnswer
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.relay_desk import ENDLESS, HEAD, TURN, Desk, assert_nothing_shown, desk, other_worker
from tests.support.relay_kit import Page, events, thread_token, until, user_message

CUT = {"type": "error", "errorText": CUT_TEXT}
FAILED = {"type": "error", "errorText": FAILED_TEXT}
SLOW = [*HEAD, 0.5, *TURN[3:]]
THREAD = {"headers": {"X-Thread-Id": "thread_77", "X-Thread-Key": "thread_key_0123456789"}}
NO_STREAMS = ["nowhere", "nowhere+store"]
REDIS = [pytest.param("redis", marks=pytest.mark.real), pytest.param("redis+store", marks=pytest.mark.real)]
STREAMS = ["memory", "memory+store", *REDIS]
setups = pytest.mark.parametrize("setup", [*NO_STREAMS, *STREAMS])
streams = pytest.mark.parametrize("setup", STREAMS)
stored = pytest.mark.parametrize("setup", ["nowhere+store", "memory+store", REDIS[1]])


@define
class Table:
    """One chat, and the pages of one reader on one worker or two."""

    desk: Desk
    far: Page
    stored: bool
    ended: list[RelayedAnswer]

    @property
    def page(self) -> Page:
        return self.desk.page

    @property
    def service(self) -> Any:
        return self.desk.service

    def body(self, text: str = "one", id: str = "u1", **fields: Any) -> dict[str, Any]:
        question = user_message(text, id)
        return {"id": "chat-1", "trigger": "submit-message", "messages": [question], **fields}

    def token(self, content: bytes) -> dict[str, str]:
        """Return what a page adds to its next question, for the thread of the answer in *content*."""
        return {} if self.stored else {"threadId": thread_token(content)}

    async def ask(self, page: Page, *args: Any, **fields: Any) -> list[dict[str, Any]]:
        status, content, _ = await page.post(self.body(*args, **fields))
        assert status == 200, content
        return events(content)

    async def ask_and_leave(self, *, silent: bool) -> None:
        """Ask on a page that leaves after the first word, or before it, if the service is *silent*."""
        asking = asyncio.create_task(self.page.request(self.body()).__aenter__())
        await until(lambda: self.service.answering)
        if not silent:
            await read_until(await asking)
            (await asking).close()
        asking.cancel()
        await asyncio.wait([asking])

    async def outcomes(self, *expected: str) -> None:
        await until(lambda: len(self.ended) >= len(expected))
        assert [answer.outcome for answer in self.ended] == list(expected)


@asynccontextmanager
async def table(setup: str, redis: Any, *, grace: float = 60.0, **settings: Any) -> AsyncIterator[Table]:
    where, _, kept = setup.partition("+")
    ended: list[RelayedAnswer] = []
    memory = MemoryStore()

    def worker() -> dict[str, Any]:
        """Return the settings of a worker, with its own streams and store."""
        running = {
            "nowhere": lambda: None,
            "memory": lambda: MemoryStreamStore(grace=grace),
            "redis": lambda: RedisStreamStore(redis, timeout=20, grace=grace),
        }[where]
        chats = RedisStore(redis) if where == "redis" else memory
        return {"streams": running(), "store": chats if kept else None, "on_end": ended.append, **settings}

    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(desk(**worker()))
        far = here.page
        if where == "redis":
            far = await stack.enter_async_context(other_worker(here, **worker()))
        yield Table(here, far, bool(kept), ended)
        await until(lambda: not here.service.answering and not here.relay.streaming)
        assert_nothing_shown(here.service, far.seen)


@pytest.fixture
def redis(request: pytest.FixtureRequest, setup: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The Redis of a setup that has one. It runs in real time, where a busy machine takes long."""
    if not setup.startswith("redis"):
        return None
    monkeypatch.setattr(running_answer, "MAKE_WAY", 60)
    return request.getfixturevalue("redis_client")


@pytest.fixture
async def here(setup: str, redis: Any) -> AsyncIterator[Table]:
    async with table(setup, redis) as made:
        yield made


async def read_until(response: Any, mark: bytes = b"Hello ") -> bytes:
    content = b""
    while mark not in content:
        piece = await response.content.readany()
        assert piece, content
        content += piece
    return content


@setups
async def test_a_chat_goes_on(here):
    """The second question is in the thread of the first, on another worker, too; the hook gets both."""
    here.service.script.ask(events=TURN, times=None, **THREAD)
    status, content, headers = await here.page.post(here.body())
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert [event["type"] for event in events(content)] == [event["type"] for event in TURN]
    await here.ask(here.far, "two", "u2", **here.token(content))
    assert here.desk.asked["threadId"] == "thread_77"
    assert here.desk.asked["threadKey"] == "thread_key_0123456789"
    sent = [message["id"] for message in here.desk.asked["messages"]]
    assert sent == (["u1", "m1", "u2"] if here.stored else ["u2"])
    await here.outcomes("finished", "finished")
    answer = here.ended[0]
    assert (answer.user, answer.chat_id, answer.message.text) == ("ada", "chat-1", "Hello there")
    assert (answer.thread.id, answer.thread.key) == ("thread_77", "thread_key_0123456789")
    assert [dict(message) for message in here.ended[1].question] == here.desk.asked["messages"]
    assert [message["id"] for message in answer.question] == ["u1"]
    if here.stored:
        _, messages = await here.page.history()
        assert [message["role"] for message in messages] == ["user", "assistant"] * 2
        assert len({message["id"] for message in messages}) == 4
    else:
        assert (await here.page.history())[0] == 404


@setups
async def test_a_thread_that_the_service_has_lost(here):
    """One further POST, without the thread and with the history; the new thread is the chat's."""
    _, content, _ = await here.page.post(here.body())
    lost = [secret for thread in here.service.threads.values() for secret in (thread.id, thread.key)]
    here.service.threads.clear()
    for id in ("u2", "u3"):
        _, content, _ = await here.far.post(here.body("again", id, **here.token(content)))
    _, first, second, third = (request.json for request in here.service.requests)
    assert [first.pop("threadId"), first.pop("threadKey")] == lost
    assert first == second
    assert len(second["messages"]) == (3 if here.stored else 1)
    assert third["threadId"] == next(iter(here.service.threads))
    assert [secret for secret in lost if secret.encode() in here.far.seen] == []


@pytest.mark.parametrize("setup", NO_STREAMS)
@pytest.mark.parametrize("silent", [True, False])
async def test_without_streams_an_answer_ends_with_its_reader(here, silent):
    """The service is let go, before the first word, too; the part of a stored answer is kept."""
    here.service.script.ask(**({"fault": NoAnswer()} if silent else {"events": ENDLESS}))
    await here.ask_and_leave(silent=silent)
    await here.desk.all_closed()
    assert here.service.requests[0].client_left
    await here.outcomes(*([] if silent else ["left"]))
    if here.stored and not silent:
        _, messages = await here.page.history()
        assert messages[-1]["parts"] == [{"type": "text", "text": "Hello ", "state": "streaming"}]


@streams
@pytest.mark.parametrize("silent", [True, False])
async def test_a_page_that_comes_back_gets_the_whole_answer(here, silent):
    """On any worker, from the first event and once; also when it ended meanwhile, if it says what it has."""
    here.service.script.ask(events=[0.5, *TURN] if silent else SLOW)
    await here.ask_and_leave(silent=silent)
    for page in (here.far, here.page):
        status, content = await page.resume(params={"after": "u1"})
        assert (status, [event["type"] for event in events(content)]) == (
            200,
            [event["type"] for event in TURN],
        )
        assert (await page.resume(params={"after": "m1"}))[0] == 204
    assert (await here.far.resume())[0] == 204
    assert len(here.service.requests) == 1
    await here.outcomes("finished")


@setups
async def test_stop(here):
    """From another tab or worker: the service is let go, each page has the end, the thread goes on."""
    here.service.script.ask(events=ENDLESS, **THREAD)
    async with here.page.request(here.body()) as first, here.far.stream() as second:
        head = await read_until(first)
        assert second.status == 200
        assert await here.far.stop() == 204
        bodies = [head + await first.read(), await second.read()]
    assert [events(body)[-1] for body in bodies] == [{"type": "abort"}] * 2
    await here.desk.all_closed()
    assert here.service.requests[0].client_left
    await here.outcomes("left")
    assert (here.ended[0].message.text, here.ended[0].error) == ("Hello ", None)
    assert (await here.far.resume())[0] == 204
    here.service.script.ask(events=[{"type": "start"}, *TURN[1:]])
    await here.ask(here.far, "two", "u2", **here.token(bodies[0]))
    assert here.desk.asked["threadId"] == "thread_77"


@setups
async def test_stop_before_the_first_word(here):
    """The question is withdrawn: the page gets the end of a stopped answer, and may ask again at once."""
    here.service.script.ask(fault=NoAnswer())
    asking = asyncio.create_task(here.page.post(here.body()))
    await until(lambda: here.service.answering)
    assert await here.far.stop() == 204
    status, body, _ = await asking
    assert (status, events(body)) == (200, [{"type": "abort"}])
    here.service.script.ask(events=TURN)
    assert (await here.ask(here.page))[-1]["type"] == "finish"
    await here.outcomes("finished")


@setups
async def test_the_next_question_stops_the_answer_before(setup, redis):
    """On any worker; it is asked when the earlier part is saved, and never refused."""
    async with table(setup, redis, max_per_user=1) as here:
        here.service.script.ask(events=ENDLESS)
        here.service.script.ask(events=[{**TURN[0], "messageId": "m2"}, *TURN[1:]])
        async with here.page.request(here.body()) as first:
            head = await read_until(first)
            assert (await here.ask(here.far, "two", "u2"))[-1]["type"] == "finish"
            assert events(head + await first.read())[-1] == {"type": "abort"}
        await here.outcomes("left", "finished")
        if here.stored:
            _, messages = await here.far.history()
            assert [message["id"] for message in messages] == ["u1", "m1", "u2", "m2"]
            assert [message["parts"][0]["text"] for message in messages[1::2]] == ["Hello ", "Hello there"]


@streams
@pytest.mark.parametrize("number", [2, 5])
async def test_of_several_questions_at_once_one_is_answered(here, number):
    """The others end as stopped; the store has whole turns, and the chat goes on."""
    endless = here.service.script.ask(events=ENDLESS, times=None)
    pages = [here.page, here.far]
    bodies = [here.body(f"q{n}", f"u{n}") for n in range(number)]
    asking = {asyncio.create_task(pages[n % 2].post(body)): n for n, body in enumerate(bodies)}
    running = set(asking)
    while len(running) > 1:
        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    (answered,) = running
    await until(lambda: here.service.answering)
    async with here.far.stream() as response:
        await read_until(response)
    await here.far.stop()
    for status, body, _ in await asyncio.gather(*asking):
        assert (status, events(body)[-1]) == (200, {"type": "abort"})
    await here.desk.all_closed()
    if here.stored:
        _, messages = await here.page.history()
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert messages[-2]["id"] == f"u{asking[answered]}"
    endless.stop()
    here.service.script.ask(events=TURN)
    assert (await here.ask(here.far, "after", "u9"))[-1]["type"] == "finish"


@setups
async def test_a_refusal_keeps_its_status(setup, redis):
    """The page that waits gets it, and nothing is kept: the same question can be asked again at once."""
    async with table(setup, redis, max_per_user=1) as here:
        here.service.script.ask(status=429, headers={"Retry-After": "3600"})
        status, content, headers = await here.page.post(here.body())
        assert (status, headers.get("retry-after")) == (429, "3600")
        assert b"mint_" not in content
        assert (await here.ask(here.far))[-1]["type"] == "finish"
        await here.outcomes("finished")


@setups
@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ([], CUT),
        ([{"type": "error", "errorText": "key mint_dsc_0123456789"}], FAILED),
        ([{"type": "abort"}], {"type": "abort"}),
    ],
    ids=["cut", "error", "abort"],
)
async def test_an_answer_that_breaks_off(here, last, shown):
    """The page gets the part, a fixed sentence and the end; a stored part is kept, and can be replaced."""
    here.service.script.ask(body=[*HEAD, *last])
    assert (await here.ask(here.page))[-1] == shown
    await here.outcomes("failed")
    assert (here.ended[0].error is None) == (shown["type"] == "abort")
    if here.stored:
        _, messages = await here.far.history()
        assert messages[-1]["parts"][0]["text"] == "Hello "
        again = {"id": "chat-1", "trigger": "regenerate-message", "messageId": "m1"}
        assert (await here.far.post(again))[0] == 200
        _, messages = await here.page.history()
        assert len(messages) == 2
        assert messages[1]["id"] != "m1"


@streams
async def test_nobody_reads(setup, redis):
    """After the grace the answer is stopped; one that is read again in time goes on."""
    grace = 8.0 if redis else 1.5  # a slow machine takes seconds between the two readers
    # Other workers notice a reader within a second, in real time.
    with nullcontext() if redis else virtual_time():
        async with table(setup, redis, grace=grace) as here:
            here.service.script.ask(events=ENDLESS)
            async with here.page.request(here.body()) as response:
                await read_until(response)
            async with here.far.stream() as response:
                await read_until(response)
                await asyncio.sleep(grace + 1)
                assert here.service.answering == 1
            await here.desk.all_closed()
            assert here.service.requests[0].client_left
            await here.outcomes("left")


@setups
async def test_another_user_finds_nothing(here):
    """Neither the answer nor the history, and a Stop does nothing: as for a chat that does not exist."""
    here.service.script.ask(events=SLOW)
    async with here.page.request(here.body()) as response:
        assert b"there" not in await read_until(response)  # words come as they are made
        bob = here.desk.other("bob")
        assert await bob.resume() == (204, b"")
        assert await bob.resume(params={"after": "u1"}) == (204, b"")
        assert await bob.stop() == 204
        assert (await bob.history())[0] == 404
        assert (await here.desk.other("").resume())[0] == 401
        assert events(await response.read())[-1]["type"] == "finish"
    assert (await bob.history())[0] == 404


@setups
async def test_a_hook_that_raises_changes_nothing(setup, redis, caplog):
    """It is called before the page hears of the end, and the log has a line."""

    async def fail(answer: RelayedAnswer) -> None:
        raise RuntimeError("no")

    async with table(setup, redis, on_end=fail) as here:
        here.service.script.ask(events=TURN)
        assert (await here.ask(here.page))[-1]["type"] == "finish"
    assert [record.levelname for record in caplog.records if "on_end" in record.message] == ["ERROR"]


@setups
@pytest.mark.parametrize("silent", [True, False])
async def test_the_shutdown_cuts_what_still_runs(here, silent):
    """New questions get 503, the page an error and the end, the hook the part; the service is let go."""
    here.service.script.ask(**({"fault": NoAnswer()} if silent else {"events": ENDLESS}))
    asking = asyncio.create_task(here.page.post(here.body()))
    await until(lambda: here.service.answering)
    if not silent:
        async with here.far.stream() as response:
            await read_until(response)
    draining = asyncio.create_task(here.desk.relay.drain(0.3))
    await asyncio.sleep(0)
    assert (await here.page.post(here.body("two", chat="chat-2")))[0] == 503
    await draining
    status, body, headers = await asking
    assert (status, headers.get("retry-after")) == ((503, "1") if silent else (200, None))
    assert silent or events(body)[-1]["type"] == "error"
    assert here.desk.relay.streaming == 0
    await here.outcomes(*([] if silent else ["interrupted"]))


@setups
async def test_the_shutdown_waits_for_what_ends_in_time(here):
    """The answer that a page reads is whole, with streams and without."""
    here.service.script.ask(events=SLOW)
    asking = asyncio.create_task(here.page.post(here.body()))
    await until(lambda: here.service.answering)
    await here.desk.relay.drain(20)
    assert events((await asking)[1])[-1]["type"] == "finish"
    await here.outcomes("finished")


@streams
async def test_a_second_tab_reads_on_when_the_first_one_leaves(here):
    """The second tab gets the complete answer, from the first event to the end."""
    here.service.script.ask(events=SLOW)
    async with here.far.request(here.body()) as first:
        await read_until(first)
        async with here.page.stream() as second:
            seen = await read_until(second)
            first.close()
            seen += await second.read()
    assert [event["type"] for event in events(seen)] == [event["type"] for event in TURN]
    await here.outcomes("finished")


@streams
async def test_the_shutdown_waits_for_an_answer_that_nobody_reads(here):
    """If the answer ends in time, it is complete."""
    here.service.script.ask(events=SLOW)
    await here.ask_and_leave(silent=False)
    await here.desk.relay.drain(20)
    assert [answer.outcome for answer in here.ended] == ["finished"]


@pytest.mark.parametrize("setup", ["nowhere", "nowhere+store", "memory", "memory+store"])
@pytest.mark.parametrize("end", ["refusal", "answer"])
async def test_a_silent_service(setup, redis, end, caplog):
    """A comment after 5 s, then one each 15 s; a later refusal is an error event and a line in the log."""
    with virtual_time():
        async with table(setup, redis) as here:
            if end == "answer":
                here.service.script.ask(events=[40.0, *TURN])
            else:
                here.service.script.ask(status=429, delay=40.0, headers={"Retry-After": "3600"})
            status, body, _ = await here.page.post(here.body())
            assert status == 200
            assert body.startswith(b": keep-alive\n\n: keep-alive\n\n: keep-alive\n\ndata")
            last = events(body)[-1]
            assert last["type"] == ("finish" if end == "answer" else "error")
            refused = [record for record in caplog.records if "is refused with 429" in record.getMessage()]
            assert len(refused) == (end == "refusal")


@stored
async def test_the_history_while_an_answer_comes(here):
    """It ends with the question, on any worker, so that the page can go on."""
    await here.ask(here.page, "before", "u0")
    here.service.script.ask(events=ENDLESS)
    here.service.script.ask(events=[{**TURN[0], "messageId": "m2"}, *TURN[1:]])
    async with here.page.request(here.body()) as response:
        head = await read_until(response)
        _, messages = await here.far.history()
        assert [message["id"] for message in messages][2:] == ["u1"]
        again = {"id": "chat-1", "trigger": "regenerate-message", "message": user_message("one")}
        assert events((await here.far.post(again))[1])[-1]["type"] == "finish"
        assert events(head + await response.read())[-1] == {"type": "abort"}
    _, messages = await here.far.history()
    assert [message["id"] for message in messages][2:] == ["u1", "m2"]


@pytest.mark.parametrize("setup", REDIS)
async def test_what_redis_holds_is_no_secret(here, redis_client):
    """No key, no thread and no user is in a running answer or in its keys' names."""
    here.service.script.ask(events=SLOW, **THREAD)
    here.page.user = "ada@private.example"
    async with here.page.request(here.body()) as response:
        await read_until(response)
        seen = b""
        while b"Hello" not in seen:  # the worker writes twice a second
            await asyncio.sleep(0.1)
            seen = b""
            async for key in redis_client.scan_iter(match="*streams*"):
                kind = await redis_client.type(key)
                value = await (redis_client.xrange(key) if kind == b"stream" else redis_client.get(key))
                seen += key + repr(value).encode()
        await response.read()
    secrets = ["thread_77", "thread_key", "ada@private", "chat-1", here.service.assistant_key]
    assert [secret for secret in secrets if secret.encode() in seen] == []


@pytest.mark.parametrize("setup", REDIS)
@pytest.mark.parametrize("wait", [0.0, 1.2])
@pytest.mark.parametrize("lost", ["all", "newest"])
async def test_stop_after_redis_has_lost_an_answer(here, redis_client, wait, lost):
    """A restart without data, or an eviction: 204 means that the answer stops, immediately and later."""
    here.service.script.ask(events=ENDLESS)
    async with here.page.request(here.body()) as response:
        head = await read_until(response)
        await until(lambda: here.desk.relay.streaming)
        await asyncio.sleep(0.6)  # the worker has written
        keys = [key async for key in redis_client.scan_iter(match="*newest*" if lost == "newest" else "*")]
        assert keys
        await redis_client.delete(*keys)
        await asyncio.sleep(wait)
        assert await here.far.stop() == 204
        assert events(head + await response.read())[-1] == {"type": "abort"}
    await here.outcomes("left")


@pytest.mark.parametrize("setup", REDIS)
async def test_a_question_after_redis_has_lost_an_answer(here, redis_client):
    """The answer before still stops for it, and the Stop of an earlier answer does not count."""
    assert await here.far.stop() == 204
    here.service.script.ask(events=ENDLESS)
    here.service.script.ask(events=SLOW)
    async with here.page.request(here.body()) as response:
        head = await read_until(response)
        await redis_client.flushall()
        await asyncio.sleep(1.2)
        assert (await here.ask(here.far, "two", "u2"))[-1]["type"] == "finish"
        assert events(head + await response.read())[-1] == {"type": "abort"}
    await here.outcomes("left", "finished")


@pytest.mark.parametrize("setup", REDIS)
async def test_redis_is_away(setup, redis, redis_server, caplog):
    """The answer goes to its reader alone; a Stop is refused, since it may not reach the answer."""
    from redis.asyncio import Redis

    async with (
        Redis(host="127.0.0.1", port=1) as nowhere,
        table(setup.partition("+")[0], redis) as here,
        other_worker(here.desk, streams=RedisStreamStore(nowhere, timeout=1)) as page,
    ):
        here.service.script.ask(events=TURN)
        assert (await here.ask(page))[-1]["type"] == "finish"
        assert (await page.resume())[0] == 204
        assert await page.stop() == 503
    assert any("cannot be resumed" in record.message for record in caplog.records)


async def test_a_worker_dies(redis_client):
    """Readers on other workers get the part, an error and the end; the next question is asked."""
    store = RedisStreamStore(redis_client, timeout=20)
    async with desk(streams=store) as here:
        key = chat_key("ada", "chat-1")
        await store.begin(key, "dead")
        await store.describe(key, "dead", json.dumps({"question": "u1", "progress": {}}))
        await store.write(key, "dead", b'data: {"type":"start"}\n\n', at=0, ended=False)
        status, body = await here.page.resume()
        assert (status, [event["type"] for event in events(body)]) == (200, ["start", "error"])
        status, body = await here.page.resume(params={"after": "u1"})
        assert (status, [event["type"] for event in events(body)]) == (200, ["start", "error"])
        assert (await here.page.resume())[0] == 204
        await here.page.ask(user_message("two", "u2"))
