"""An open answer as an ASGI server carries it: silence, readers who stall, servers of other kinds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_kit import events, opened_with

from mintlify_async.contrib.relay import RelayResponse
from mintlify_async.contrib.relay.page_events import DONE
from mintlify_async.testing import VirtualClock

BODY = (
    b'data: {"type":"start","messageId":"m"}\n\n'
    b'data: {"type":"text-start","id":"0"}\n\n'
    b'data: {"type":"text-delta","id":"0","delta":"Hi"}\n\n'
    b'data: {"type":"finish"}\n\n'
)


class Server:
    """What an ASGI server is for an app: it takes messages, and says when the reader has left."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self, response: RelayResponse, http_version: str = "1.1") -> None:
        await response({"type": "http", "http_version": http_version}, self.receive, self.send)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def test_each_read_is_one_message():
    """What arrived together leaves together; the hook runs before the page is told of the end."""
    server = Server()
    told: list[int] = []
    opened = opened_with(BODY, on_finish=lambda answer: told.append(len(server.sent)))
    await server.run(opened.response())
    assert [message["type"] for message in server.sent] == ["http.response.start"] + [
        "http.response.body"
    ] * 2
    assert [message["more_body"] for message in server.sent[1:]] == [True, False]
    assert server.sent[2]["body"] == b"data: [DONE]\n\n"
    assert told == [2]
    assert [event["type"] for event in events(server.body)] == ["start", "text-start", "text-delta", "finish"]
    assert opened.reply.closed


async def test_a_thread_is_hidden_from_where_it_is_named_on():
    """In the middle of one read, too: the delta after the event that names the thread does not show it."""
    named = b'data: {"type":"data-x","data":1,"threadId":"thread_of_ada"}\n\n'
    told = BODY.replace(b"Hi", b"It is thread_of_ada")
    begun, _, rest = told.partition(b'data: {"type":"text-delta"')
    body = begun + named + b'data: {"type":"text-delta"' + rest
    server = Server()
    await server.run(opened_with(body).response())
    assert b"thread_of_ada" not in server.body
    assert b"It is [hidden]" in server.body


async def test_nothing_waits_for_more_than_its_read():
    """The announced end is not waited for: what came before it is sent first."""
    server = Server()
    gate = asyncio.Event()
    opened = opened_with(BODY + b"data: [DONE]\n\n", then=gate.wait())
    running = asyncio.create_task(server.run(opened.response()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert b'"finish"' in server.body
    gate.set()
    await running
    assert events(server.body)[-1]["type"] == "finish"


async def test_a_read_of_many_events_leaves_the_loop_to_others():
    """Ten thousand small events in one read become pieces, and other tasks run between them."""
    delta = b'data: {"type":"text-delta","id":"0","delta":"Hi"}\n\n'
    server = Server()
    body = BODY.replace(delta, delta * 10_000)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await server.run(opened_with(body).response())
    beside.cancel()
    assert server.body.count(delta) == 10_000
    assert 20 <= len(server.sent) <= 25
    assert turns >= 20


async def test_silence_is_filled():
    """A comment each quarter of a minute; an event begins the silence anew."""
    clock = VirtualClock()
    server = Server()
    opened = opened_with(BODY, then=clock.sleep(50), clock=clock, keep_alive=15)
    await server.run(opened.response())
    assert server.body.count(b": keep-alive\n\n") == 3
    assert server.body.endswith(b": keep-alive\n\ndata: [DONE]\n\n")
    assert [event["type"] for event in events(server.body)][-1] == "finish"


async def test_silence_before_the_first_event_is_filled_sooner():
    """After 5 seconds: proxies are strict with the first byte of a body; then each quarter of a minute."""
    clock = VirtualClock()
    began = clock.now()
    comments: list[float] = []

    class Listening(Server):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if message.get("body", b"").startswith(b":"):
                comments.append(clock.now() - began)

    opened = opened_with(b"", then=clock.sleep(45), clock=clock, keep_alive=15)
    await Listening().run(opened.response())
    assert comments == [5, 20, 35]


async def test_a_reader_who_does_not_read_is_given_up():
    """After a minute for one piece; the answer is closed and told as left."""
    clock = VirtualClock()
    told: list[str] = []
    opened = opened_with(
        BODY, clock=clock, stall=60, on_unfinished=lambda answer: told.append(answer.outcome)
    )

    class Stuck(Server):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if b"text-delta" in message.get("body", b""):
                await asyncio.Event().wait()

    began = clock.now()
    await Stuck().run(opened.response())
    assert clock.now() - began == 60
    assert opened.reply.closed
    assert told == ["left"]


@pytest.mark.parametrize("stuck", ["start", "end"])
async def test_a_reader_who_takes_neither_head_nor_end_is_given_up(stuck):
    """The first and the last message wait for the reader, too, and a comment never follows the last."""
    clock = VirtualClock()
    opened = opened_with(BODY, clock=clock, stall=60, keep_alive=15)

    class Stuck(Server):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if (message["type"] == "http.response.start") == (stuck == "start") and not message.get(
                "more_body"
            ):
                await asyncio.Event().wait()

    server = Stuck()
    began = clock.now()
    async with asyncio.timeout(20):
        await server.run(opened.response())
    assert clock.now() - began == 60
    assert opened.reply.closed
    assert stuck == "start" or server.sent[-1]["more_body"] is False


async def test_no_comment_follows_the_end():
    """A slow reader takes the last message after a silence: a server would fail at another one."""
    clock = VirtualClock()

    class Slow(Server):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if message.get("more_body") is False:
                await clock.sleep(20)

    server = Slow()
    await server.run(opened_with(BODY, clock=clock, stall=60, keep_alive=15).response())
    assert [message.get("more_body") for message in server.sent].index(False) == len(server.sent) - 1


@pytest.mark.parametrize("comment", [1, 16, 31])
@pytest.mark.parametrize("event", [0, 10, 16])
async def test_one_message_is_sent_at_a_time(comment, event):
    """However slow the reader is: a comment never begins beside an event, nor an event beside a comment."""
    clock = VirtualClock()

    class Slow(Server):
        sending = 0

        async def send(self, message: Any) -> None:
            await super().send(message)
            self.sending += 1
            assert self.sending == 1
            await clock.sleep(comment if message.get("body", b"").startswith(b":") else event)
            self.sending -= 1

    class Pauses:
        """An answer whose events come after silences, and two of them together."""

        settings = opened_with(b"", clock=clock, keep_alive=15).settings

        async def frames(self) -> AsyncGenerator[bytes]:
            for silence in (0, 20, 0, 40, 0):
                await clock.sleep(silence)
                yield b"event"
            yield DONE

        async def close(self) -> None: ...

    server = Slow()
    await server.run(RelayResponse(Pauses()))
    assert server.body.replace(b": keep-alive\n\n", b"") == b"event" * 5 + DONE
    assert server.body.count(b": keep-alive") >= 2
    assert server.body.endswith(DONE)


async def test_a_server_may_say_it_by_an_error():
    """Some raise when the reader has left, instead of a message."""
    told: list[str] = []
    opened = opened_with(BODY, on_unfinished=lambda answer: told.append(answer.outcome))

    class Gone(Server):
        async def send(self, message: Any) -> None:
            if message["type"] == "http.response.body":
                raise OSError("broken pipe")

    await Gone().run(opened.response())
    assert opened.reply.closed
    assert told == ["left"]


async def test_another_error_is_the_servers_to_see():
    """A mistake is not taken for a reader who left, and the answer is closed all the same."""
    opened = opened_with(BODY)

    class Broken(Server):
        async def send(self, message: Any) -> None:
            raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await Broken().run(opened.response())
    assert opened.reply.closed


async def test_a_hook_runs_to_its_end():
    """The reader leaves while the app stores the finished answer: it is stored."""
    server = Server()
    stored: list[str] = []

    async def store(answer: Any) -> None:
        server.left.set()
        for _ in range(5):
            await asyncio.sleep(0)
        stored.append(answer.message.text)

    await server.run(opened_with(BODY, on_finish=store).response())
    assert stored == ["Hi"]


async def test_a_finish_counts_though_the_reader_left():
    """The answer was whole when the page was closed."""
    server = Server()
    told: list[str] = []
    opened = opened_with(
        BODY,
        then=asyncio.Event().wait(),
        on_finish=lambda answer: told.append(answer.outcome),
    )
    running = asyncio.create_task(server.run(opened.response()))
    while b"finish" not in server.body:
        await asyncio.sleep(0)
    server.left.set()
    await running
    assert told == ["finished"]


async def test_frames_for_another_framework():
    """They can be read without the response; the block closes the answer."""
    async with opened_with(BODY) as opened:
        body = b"".join([frame async for frame in opened.frames()])
    assert events(body)[-1]["type"] == "finish"
    assert opened.reply.closed
    await opened.close()  # harmless
    await opened.aclose()  # by its other name, too


async def test_an_answer_leaves_nothing_to_the_garbage_collector():
    """What an answer needed is freed when it ends: the collector's runs would stop all other answers."""
    clock = VirtualClock()
    server = Server()
    for last in (False, True):  # what is made once is made by the first
        gc.collect()
        gc.disable()
        try:
            await server.run(opened_with(BODY, clock=clock, keep_alive=15, stall=60).response())
            await asyncio.sleep(0)
            assert gc.collect() == 0 or not last
        finally:
            gc.enable()


async def test_an_answer_has_two_tasks():
    """One sends and one notices that the reader leaves; comments and the limit on a stall begin when due."""
    server = Server()
    gate = asyncio.Event()
    before = len(asyncio.all_tasks())
    opened = opened_with(BODY, then=gate.wait(), keep_alive=15, stall=60)
    running = asyncio.create_task(server.run(opened.response()))
    while not server.body:
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before + 3  # and the server's own
    gate.set()
    await running
