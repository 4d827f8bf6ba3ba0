"""What a page may post: the messages that are passed on, and the bodies that are refused."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oracle_data import ORACLE

pytest.importorskip("fastapi")

from relay_desk import TURN, desk, page_of, x_user
from relay_kit import SECRET, Page, user_message
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from yarl import URL

from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import OpenReply, Relay, RelayLimits, relay_routes
from mintlify_async.testing import LocalService

ANSWER = {
    "id": "a1",
    "role": "assistant",
    "metadata": {"a": 1},
    "parts": [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm", "state": "done", "id": "0"},
        {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {}, "output": {}},
        {"type": "dynamic-tool", "toolName": "x", "toolCallId": "d", "state": "input-available", "input": 1},
        {"type": "source-url", "sourceId": "s", "url": "/a", "title": "A", "providerMetadata": {}},
        {"type": "source-document", "sourceId": "s", "mediaType": "a/b", "title": "t"},
        {"type": "data-x", "data": 1},
        {"type": "text", "text": "ans", "state": "done", "providerMetadata": {"p": {}}},
    ],
}


PASSED = {
    "id": "a1",
    "role": "assistant",
    "parts": [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm"},
        {"type": "source-url", "sourceId": "s", "url": "/a", "title": "A"},
        {"type": "text", "text": "ans"},
    ],
}


FILE = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==", "filename": "a.png"}


SHAPES = {
    "submit": ([user_message("q")], [user_message("q")]),
    "metadata": ([user_message("q", metadata={"page": "/x"})], [user_message("q")]),
    "file": (
        [{"id": "u1", "role": "user", "parts": [FILE, {"type": "text", "text": "Look"}]}],
        [{"id": "u1", "role": "user", "parts": [FILE, {"type": "text", "text": "Look"}]}],
    ),
    "history": (
        [user_message("q"), ANSWER, user_message("r", "u2")],
        [user_message("q"), PASSED, user_message("r", "u2")],
    ),
    "continue": ([user_message("q"), ANSWER], [user_message("q"), PASSED]),
    "stopped": (
        [user_message("q"), {"id": "a", "role": "assistant", "parts": []}, user_message("r", "u2")],
        [user_message("q"), user_message("r", "u2")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_passes_of_the_history(shape):
    """The transport's messages are passed on without tools, data and metadata."""
    sent, passed = SHAPES[shape]
    async with desk() as here:
        here.service.script.ask(events=TURN)
        await here.page.ask(*sent, trigger="regenerate-message", messageId="a1")
        assert here.asked["messages"] == passed


CAPTURED = ORACLE / "http"


@pytest.mark.parametrize("version", ["v5", "v6", "v7"])
async def test_what_the_published_transports_post(version):
    """Each request captured from the published transports is answered; resuming finds nothing."""
    captured = json.loads((CAPTURED / f"{version}.json").read_text(encoding="utf-8"))["requests"]
    async with LocalService() as service, service.session() as session:
        app = Starlette(routes=relay_routes(session, secrets=[SECRET], user=x_user))
        async with page_of(app) as page:
            for shape, requests in captured.items():
                for request in requests:
                    expected = 204 if request["method"] == "GET" else 200  # resuming finds nothing
                    assert await replayed(page, request) == expected, shape
    assert len(service.requests) >= 10


async def replayed(page: Page, request: dict[str, Any]) -> int:
    path = request["url"].removeprefix("https://relay.example")
    headers = {**request["headers"], "x-user": "ada"}
    data = None if request["body"] is None else json.dumps(request["body"]).encode()
    url = URL(page.address + path, encoded=True)
    async with page.http.request(request["method"], url, data=data, headers=headers) as response:
        await response.read()
        return response.status


def question(**message: Any) -> dict[str, Any]:
    return {"id": "c", "messages": [{**user_message("q"), **message}]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"\xff{}", 400),
        (b'{"messages": NaN}', 400),
        (b"[" * 65 + b"]" * 65, 400),
        (b"[" * 45_000, 400),
        (b"[" * 100_000, 413),
        (b'{"a":' + b"9" * 5000 + b"}", 400),
        ({}, 400),
        ({"messages": []}, 400),
        ({"messages": {}}, 400),
        ({"messages": [1]}, 400),
        (question(role="system"), 400),
        (question(role=None), 400),
        (question(id=7), 400),
        (question(id=""), 400),
        (question(parts="x"), 400),
        (question(parts=[]), 400),
        (question(parts=[1]), 400),
        (question(parts=[{}]), 400),
        (question(parts=[{"type": "text"}]), 400),
        (question(parts=[{"type": "text", "text": 1}]), 400),
        (question(parts=[{"type": "data-x", "data": 1}]), 400),
        (question(parts=[{"type": "step-start"}]), 400),
        (question(parts=[{"type": "file", "mediaType": "a/b", "url": "file:///etc/passwd"}]), 400),
        (question(parts=[{"type": "text", "text": "x" * 32_001}]), 413),
        (question(parts=[{"type": "text", "text": "x"}] * 1501), 413),
        ({"messages": [user_message("q", f"u{n}") for n in range(201)]}, 413),
        (question(parts=[{"type": "file", "mediaType": "a/b", "url": "data:" + "x" * 2**21}]), 413),
        ({"messages": [user_message("q")], "a": "x" * 2**22}, 413),
    ],
)
async def test_what_no_page_sends_is_refused(body, status):
    """A malformed or oversized body gets a 4xx with a short text, and nothing is asked."""
    async with desk() as here:
        got, text, headers = await here.page.post(body)
        assert got == status
        assert headers["content-type"].startswith("text/plain")
        assert 0 < len(text) < 100
        assert here.service.requests == []


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "x/json"])
async def test_only_json_is_taken(content_type):
    """Other content types get 415, so that browsers ask before a foreign page may post."""
    async with desk() as here:
        status, _, _ = await here.page.post(headers={"content-type": content_type})
        assert status == 415
        assert here.service.requests == []


async def test_a_large_body_is_refused_early():
    """A body over the limit is refused after part of it was read, and none of it is kept."""
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        piece = b" " * 65_536
        while sent < 50 * 2**20:
            sent += len(piece)
            yield piece

    async with desk() as here:
        tracemalloc.start()
        try:
            headers = {"content-type": "application/json", "x-user": "ada"}
            url = f"{here.page.address}/api/chat"
            async with here.page.http.post(url, data=flood(), headers=headers) as response:
                assert response.status == 413
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert sent < 25 * 2**20
        assert peak < 20 * 2**20
        promised = {"content-length": str(50 * 2**20)}
        status, _, _ = await here.page.post(b"", headers=promised, skip_auto_headers=["content-length"])
        assert status == 413
        assert here.service.requests == []


async def test_a_slow_body_is_refused():
    """A body that takes longer than body_seconds gets 408."""

    async def drip() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with desk(limits=RelayLimits(body_seconds=0.05)) as here:
        headers = {"content-type": "application/json", "x-user": "ada"}
        async with here.page.http.post(
            f"{here.page.address}/api/chat", data=drip(), headers=headers
        ) as response:
            assert response.status == 408


async def test_limits_are_the_apps():
    """Each limit can be set; a bad one is named."""
    async with desk(limits=RelayLimits(messages=1, question_characters=3)) as here:
        status, _, _ = await here.page.post({"messages": [user_message("a"), user_message("b", "u2")]})
        assert status == 413
        status, _, _ = await here.page.post({"messages": [user_message("four")]})
        assert status == 413
    with pytest.raises(ConfigurationError) as caught:
        RelayLimits(body_bytes=0)
    assert caught.value.field == "body_bytes"


async def test_what_a_page_sent_besides_is_not_kept_while_it_reads():
    """Fields that the ask hook has seen are not kept in memory while the answer runs."""
    seen: list[Any] = []

    def ask(request: Request, fields: Any) -> dict[str, Any]:
        seen.append(len(fields["a"]))
        return {}

    kept: list[OpenReply] = []
    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user, ask=ask)

        async def handler(request: Request) -> Response:
            kept.append(await relay.open(request))
            return kept[-1].response()

        app = Starlette()
        app.add_route("/api/chat", handler, methods=["POST"])
        async with page_of(app) as page:
            await page.ask(user_message("q"), a=[[]] * 1000)
    assert seen == [1000]
    assert kept[0].question.fields == {}
    assert kept[0].question.chat_id == "chat-1"


@pytest.mark.parametrize("text", ["\ud83d", "\u0000", "\u2028", "a\r\nb"])
async def test_odd_texts_are_asked_or_refused(text):
    """Half a surrogate pair, a NUL or unusual line ends are asked or refused, never an error of ours."""
    async with desk() as here:
        body = json.dumps({"messages": [user_message(text)]}).encode()
        status, _, _ = await here.page.post(body)
        assert status in (200, 400)
