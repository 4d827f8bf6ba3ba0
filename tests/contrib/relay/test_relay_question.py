"""What a page may post: the messages that are passed on, and the bodies that are refused."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.oracle_data import ORACLE

pytest.importorskip("fastapi")

from yarl import URL

from mintlify_async.contrib.relay import request_body
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.relay_desk import TURN, Desk, desk
from tests.support.relay_kit import pseudonym, user_message

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
LOOK = {"type": "text", "text": "Look"}
SHAPES = {
    "file": ([user_message("", parts=[FILE, LOOK])], [user_message("", parts=[FILE, LOOK])]),
    "history": (
        [user_message("q", metadata={"page": "/x"}), ANSWER, user_message("r", "u2")],
        [user_message("q"), PASSED, user_message("r", "u2")],
    ),
    "continue": ([user_message("q"), ANSWER], [user_message("q"), PASSED]),
    "stopped": (
        [user_message("q"), {"id": "a", "role": "assistant", "parts": []}, user_message("r", "u2")],
        [user_message("q"), user_message("r", "u2")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_passes_of_the_history(here, shape):
    """The transport's messages are passed on without tools, data and metadata."""
    sent, passed = SHAPES[shape]
    here.service.script.ask(events=TURN)
    await here.page.ask(*sent, trigger="regenerate-message", messageId="a1")
    assert here.asked["messages"] == passed


CAPTURED = ORACLE / "http"


@pytest.mark.parametrize("version", ["v5", "v6", "v7"])
async def test_what_the_published_transports_post(here, version):
    """Each request captured from the published transports is answered; resuming finds nothing."""
    captured = json.loads((CAPTURED / f"{version}.json").read_text(encoding="utf-8"))["requests"]
    for shape, requests in captured.items():
        for request in requests:
            path = request["url"].removeprefix("https://relay.example")
            sent = {"headers": {**request["headers"], "x-user": "ada"}, "json": request["body"]}
            url = URL(here.page.address + path, encoded=True)
            async with here.page.http.request(request["method"], url, **sent) as response:
                assert response.status == (204 if request["method"] == "GET" else 200), shape
    assert len(here.service.requests) >= 10


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "x/json"])
async def test_only_json_is_taken(here, content_type):
    """Other content types get 415, so that browsers ask before a foreign page may post."""
    status, _, _ = await here.page.post(headers={"content-type": content_type})
    assert status == 415
    assert here.service.requests == []


def arriving(here: Desk, body: AsyncIterator[bytes]) -> Any:
    """Return the request whose *body* arrives piece by piece."""
    headers = {"content-type": "application/json", "x-user": "ada"}
    return here.page.http.post(f"{here.page.address}/api/chat", data=body, headers=headers)


async def test_a_large_body_is_refused_early(here):
    """A body over the limit is refused after part of it was read, and none of it is kept."""

    async def flood() -> AsyncIterator[bytes]:
        for _ in range(800):
            yield b" " * 65_536

    tracemalloc.start()
    try:
        async with arriving(here, flood()) as response:
            assert response.status == 413
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20
    assert here.service.requests == []


async def test_a_slow_body_is_refused(here):
    """A body that takes longer than half a minute gets 408."""

    async def drip() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    with virtual_time():
        async with arriving(here, drip()) as response:
            assert response.status == 408


async def test_all_that_arrives_is_bounded(monkeypatch):
    """Slow bodies do not fill the memory: one that is too much in sum gets 503."""
    monkeypatch.setattr(request_body, "ARRIVING_BYTES", 400_000)
    hold, refusing = asyncio.Event(), asyncio.Event()

    async def linger(request: Any) -> None:
        refusing.set()

    monkeypatch.setattr(request_body, "_linger", linger)

    async def slow() -> AsyncIterator[bytes]:
        yield b" " * 60_000
        await hold.wait()
        yield json.dumps({"messages": [user_message("q")]}).encode()

    async with desk(max_body_bytes=100_000) as here:
        asking = [asyncio.ensure_future(arriving(here, slow())) for _ in "ab"]
        await refusing.wait()
        hold.set()
        responses = [await one for one in asking]
        assert sorted(response.status for response in responses) == [200, 503]
        for response in responses:
            response.close()


async def test_limits_are_the_apps():
    """The app can set them. A text may have exactly the number of characters, in any number of parts."""
    async with desk(max_messages=1, max_characters=10) as here:
        for messages in ([user_message("a"), user_message("b", "u2")], [user_message("eleven char")]):
            assert (await here.page.post({"messages": messages}))[0] == 413
        parts = [{"type": "text", "text": "12345"}] * 2
        assert (await here.page.post({"messages": [user_message("", parts=parts)]}))[0] == 200


@pytest.mark.parametrize(
    ("kind", "name"),
    [("text", "text"), ("reasoning", "text"), ("source-url", "url"), ("file", "mediaType"), ("file", "url")],
)
async def test_a_part_without_a_field_that_it_needs_is_refused(here, kind, name):
    """Whether the field is null or absent. The refusal names it, and nothing is asked."""
    parts = {"text": LOOK, "reasoning": {"type": "reasoning", "text": "hm"}, "file": FILE}
    part = parts.get(kind, {"type": "source-url", "sourceId": "s", "url": "/a"})
    absent = {key: value for key, value in part.items() if key != name}
    for wrong in (absent, {**part, name: None}):
        messages = [user_message("q"), {"id": "a1", "role": "assistant", "parts": [wrong]}]
        if kind in ("text", "file"):
            messages = [user_message("", parts=[wrong, LOOK])]
        status, body, _ = await here.page.post({"messages": [*messages, user_message("r", "u2")]})
        assert (status, f"{kind} part's {name} is missing".encode() in body) == (400, True)
    assert here.service.requests == []


@pytest.mark.parametrize("text", ["a\ud83d", "a\0", "a\u2028", "a\r\nb"])
async def test_odd_texts_do_not_end_a_chat(here, text):
    """An answer may have held half a character; no request may, so a question mark is sent in its place."""
    await here.page.ask(user_message(text))
    sent = text.replace("\ud83d", "\ufffd")
    assert here.asked["messages"][0]["parts"] == [{"type": "text", "text": sent}]


# --- Who may choose what ------------------------------------------------------------------------------


async def test_a_page_chooses_nothing_else():
    """The user, the thread's key and every field that is not listed are the app's alone."""
    forged = {"fp": "root", "threadKey": "x", "retrievalPageSize": 100, "filter": {}, "context": [], "a": 1}
    async with desk(ask={"retrieval_page_size": 3}) as here:
        await here.page.ask(user_message("q"), currentPath="/quickstart", **forged)
        assert {name: value for name, value in here.asked.items() if name != "messages"} == {
            "fp": pseudonym("ada"),
            "retrievalPageSize": 3,
            "currentPath": "/quickstart",
        }


async def test_an_app_may_let_its_page_choose():
    """A function sees the request and what the page sent besides; what it returns wins."""

    def options(request: Any, fields: Any) -> dict[str, Any]:
        assert request.headers["x-user"] == "ada"
        return {
            "retrieval_page_size": min(int(fields["size"]), 7),
            "filter": {"groups": ["staff"], "version": fields["version"]},
            "current_path": "/app",
        }

    async with desk(ask=options) as here:
        await here.page.ask(user_message("q"), size=100, version="9", currentPath="/page")
        assert here.asked["filter"] == {"groups": ["staff"], "version": "9"}
        assert (here.asked["retrievalPageSize"], here.asked["currentPath"]) == (7, "/app")
