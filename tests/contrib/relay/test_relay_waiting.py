"""A page that waits for the first word: its connection is kept open, and what goes wrong reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, desk
from relay_kit import events, opened_with, until
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from mintlify_async.contrib.relay.waiting_page import WaitingResponse
from mintlify_async.testing import VirtualClock

COMMENT = b": keep-alive\n\n"


class Waiting:
    """A response that takes its time, on a virtual clock, and what a server was given of it."""

    def __init__(self, *, before: float, after: float, then: Any, keep_alive: float | None = 15.0) -> None:
        """Take *before* seconds for the upload and *after* for the answer; then return or raise *then*."""
        self.clock = clock = VirtualClock()
        self.sent: list[tuple[float, Any]] = []
        self._began = clock.now()

        async def answer(asked: Callable[[], object]) -> Response:
            await clock.sleep(before)
            asked()
            await clock.sleep(after)
            if isinstance(then, Exception):
                raise then
            return then

        settings = opened_with(b"", clock=clock, keep_alive=keep_alive).settings
        self.response = WaitingResponse(answer, settings)

    async def run(self) -> None:
        async def send(message: Any) -> None:
            self.sent.append((self.clock.now() - self._began, message))

        await self.response({"type": "http"}, asyncio.Event().wait, send)

    @property
    def statuses(self) -> list[int]:
        return [message["status"] for _, message in self.sent if "status" in message]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for _, message in self.sent)

    @property
    def comments(self) -> list[float]:
        return [at for at, message in self.sent if message.get("body") == COMMENT]


REFUSAL = PlainTextResponse("Too many questions.", 429)


async def test_the_first_byte_comes_after_five_seconds():
    """Counted from the question, not from a slow upload; further comments come as in any silence."""
    opened = opened_with(b'data: {"type":"start"}\n\ndata: {"type":"finish"}\n\n')
    waiting = Waiting(before=100, after=40, then=opened.response())
    await waiting.run()
    assert waiting.comments == [105, 120, 135]
    assert waiting.statuses == [200]
    assert [event["type"] for event in events(waiting.body)] == ["start", "finish"]
    assert dict(waiting.sent[0][1]["headers"])[b"content-type"] == b"text/event-stream"


async def test_a_refusal_in_time_keeps_its_status():
    """The status can say it as long as no byte was sent."""
    waiting = Waiting(before=100, after=4.9, then=REFUSAL)
    await waiting.run()
    assert (waiting.statuses, waiting.body) == ([429], b"Too many questions.")


@pytest.mark.parametrize(
    ("then", "text"),
    [(REFUSAL, "Too many questions."), (HTTPException(403, "Not you."), "Not you.")],
    ids=["the relay's", "the app's"],
)
async def test_a_refusal_that_comes_later_is_an_error_event(then, text):
    """The page shows the same sentence, and the stream ends as it must."""
    waiting = Waiting(before=0, after=6, then=then)
    await waiting.run()
    assert waiting.statuses == [200]
    assert events(waiting.body) == [{"type": "error", "errorText": text}]
    assert waiting.sent[-1][1]["more_body"] is False


@pytest.mark.parametrize("after", [1, 6])
async def test_a_mistake_of_the_app_is_the_servers_to_see(after):
    """Its text is not for the page, which gets an end all the same if the stream has begun."""
    waiting = Waiting(before=0, after=after, then=ValueError("at line 7"))
    with pytest.raises(ValueError, match="at line 7"):
        await waiting.run()
    failed = [{"type": "error", "errorText": "The assistant could not finish this answer. Please try again."}]
    assert (events(waiting.body) if waiting.sent else []) == (failed if after > 5 else [])


@pytest.mark.parametrize(("keep_alive", "comments"), [(None, []), (2.0, [2, 4, 6])])
async def test_comments_are_as_the_app_wants_them(keep_alive, comments):
    """None turns them off, the first one, too; a shorter silence begins at once."""
    waiting = Waiting(before=0, after=7, then=REFUSAL, keep_alive=keep_alive)
    await waiting.run()
    assert waiting.comments == comments


@pytest.mark.parametrize("after", [0, 6])
async def test_what_the_app_adds_is_sent(after):
    """A cookie that a handler sets on the response goes out with the head, whenever that is sent."""
    waiting = Waiting(before=0, after=after, then=REFUSAL)
    waiting.response.set_cookie("seen", "yes")
    await waiting.run()
    assert dict(waiting.sent[0][1]["headers"])[b"set-cookie"].startswith(b"seen=yes")


@pytest.mark.parametrize(("pieces", "waited"), [(3, 0), (None, 1)], ids=["the rest comes", "it trickles"])
async def test_a_refused_upload_is_read_before_the_connection_closes(pieces, waited):
    """A close with bytes unread resets the connection, and the page would see no refusal."""
    waiting = Waiting(before=0, after=0, then=PlainTextResponse("Too large.", 413, {"connection": "close"}))
    happened: list[str] = []
    left = iter(range(pieces or 1000))

    async def receive() -> Any:
        if pieces is None:
            await waiting.clock.sleep(0.3)
        happened.append("read")
        return {"type": "http.request", "body": b"x", "more_body": next(left) != (pieces or 0) - 1}

    async def send(message: Any) -> None:
        happened.append(f"{message.get('body', b'').decode()} {message.get('more_body', False)}")

    began = waiting.clock.now()
    await waiting.response({"type": "http"}, receive, send)
    assert waiting.clock.now() - began == waited
    assert happened == [" False", "Too large. True", "read", "read", "read", " False"]


async def test_a_page_sees_the_comment_while_the_service_is_silent(monkeypatch):
    """On the wire: headers and a comment come first, the answer follows in the same stream."""
    monkeypatch.setattr("mintlify_async.contrib.relay.waiting_page.FIRST_COMMENT", 0.01)
    async with desk() as here:
        here.service.script.ask(events=[60.0, *HEAD])
        async with here.page.request() as response:
            assert response.status == 200
            assert await response.content.readuntil(COMMENT) == COMMENT
            assert here.service.answering == 1
            response.close()
        await until(lambda: not here.service.answering and not here.relay.streaming)
        assert here.service.requests[-1].client_left
