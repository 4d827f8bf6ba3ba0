"""The relay between a page and the assistant, over real connections on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import aiohttp
import pytest
from oracle_data import ORACLE

pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI, Header, HTTPException
from relay_kit import SECRET, Page, events, serving, thread_token, until, user_message
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from yarl import URL

from mintlify_async import ConfigurationError, MintlifySession, Thread, Timeouts
from mintlify_async.contrib.relay import (
    OpenReply,
    Relay,
    RelayedAnswer,
    RelayLimits,
    RelayResponse,
    ThreadSeal,
    relay_router,
    relay_routes,
)
from mintlify_async.testing import LocalService, faults

TURN = [
    {"type": "start", "messageId": "m1"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello "},
    {"type": "text-delta", "id": "0", "delta": "there"},
    {"type": "text-end", "id": "0"},
    {"type": "finish", "finishReason": "stop", "threadId": "thread_77"},
]
HEAD = TURN[:3]


def x_user(request: Request) -> str:
    """The tests' own authentication."""
    return request.headers.get("x-user", "")


class Desk:
    """A service, an app with the relay, and the page's side of it."""

    def __init__(self, service: LocalService, session: MintlifySession, page: Page, relay: Relay) -> None:
        self.service, self.session, self.page, self.relay = service, session, page, relay

    @property
    def asked(self) -> dict[str, Any]:
        """The body of the last question that the service got."""
        return self.service.requests[-1].json

    def other(self, user: str) -> Page:
        return Page(self.page.http, self.page.address, user)

    async def all_closed(self) -> None:
        """Return when nothing is being answered any more, on either side."""
        await until(lambda: not self.service.answering and not self.relay.streaming)


@asynccontextmanager
async def desk(
    *, session: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Desk]:
    """Put everything up, and check at the end that the page never saw a secret."""
    settings = {"secrets": [SECRET], "user": x_user, **settings}
    async with LocalService(**(service or {})) as local, local.session(**(session or {})) as asking:
        relay = Relay(asking, **settings)
        app = Starlette()
        app.add_route("/api/chat", relay.respond, methods=["POST"])
        async with serving(app) as address, aiohttp.ClientSession() as http:
            made = Desk(local, asking, Page(http, address), relay)
            yield made
            await made.all_closed()
        assert_nothing_shown(local, made.page.seen)


def assert_nothing_shown(service: LocalService, seen: bytes) -> None:
    """No key, no thread id and no thread key went to the page or came from it."""
    secrets = [service.assistant_key, service.admin_key]
    for thread in service.threads.values():
        secrets += [thread.id, thread.key or thread.id]
    secrets += ["thread_77", "thread_key"]
    assert [secret for secret in secrets if secret.encode() in seen] == []


# --- The answer ---------------------------------------------------------------------------------------


async def test_a_question_goes_out_and_the_answer_comes_back():
    """What the service gets is the question and who asks; what the page gets is the answer."""
    async with desk() as here:
        status, body, headers = await here.page.post()
        assert status == 200
        kinds = [event["type"] for event in events(body)]
        assert kinds[0] == "start"
        assert kinds[-1] == "finish"
        assert {"source-url", "text-delta", "tool-output-available"} <= set(kinds)
        assert here.asked == {
            "fp": "ada",
            "messages": [
                {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "How do I log in?"}]}
            ],
            "retrievalPageSize": 5,
        }
        assert here.service.requests[-1].key == here.service.assistant_key
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache"
        assert headers["connection"] == "keep-alive"
        assert headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers


async def test_events_come_as_they_are_made():
    """The page has the first words while the service is still silent about the rest."""
    async with desk() as here:
        here.service.script.ask(events=[*HEAD, 30.0, *TURN[3:]])
        async with here.page.request() as response:
            seen = b""
            while b"Hello" not in seen:
                seen += await response.content.readany()
            assert here.service.answering == 1


async def test_the_thread_goes_on():
    """The page sends back only what it was given; the service gets the thread and its key."""
    async with desk() as here:
        first = await here.page.ask(user_message("How do I log in?"))
        token = thread_token(first)
        answer = {"id": "m1", "role": "assistant", "parts": [], "metadata": {"threadId": token}}
        second = await here.page.ask(user_message("q"), answer, user_message("And by SSO?", "u2"))
        (thread,) = here.service.threads.values()
        assert here.asked["threadId"] == thread.id
        assert here.asked["threadKey"] == thread.key
        assert thread.questions == ["How do I log in?", "And by SSO?"]
        assert thread_token(second) != token


async def test_the_thread_survives_a_stop():
    """The seal is told with the first event, so that a stopped answer can be gone on from."""
    async with desk() as here:
        here.service.script.ask(
            events=[*HEAD, 60.0],
            headers={"X-Thread-Id": "thread_77", "X-Thread-Key": "thread_key_0123456789"},
        )
        async with here.page.request() as response:
            line = await response.content.readline()
        token = json.loads(line[6:])["messageMetadata"]["threadId"]
        assert ThreadSeal([SECRET]).open(token, "ada") == Thread("thread_77", "thread_key_0123456789")


async def test_the_latest_seal_counts():
    """An assistant message without one, a stopped first answer, say, does not end the thread."""
    async with desk() as here:
        seal = ThreadSeal([SECRET])
        tokens = [seal.seal(Thread(f"thread_{name}"), "ada") for name in ("old", "new")]
        history = [
            user_message("1"),
            {"id": "a1", "role": "assistant", "parts": [], "metadata": {"threadId": tokens[0]}},
            {"id": "a2", "role": "assistant", "parts": [], "metadata": {"threadId": tokens[1]}},
            {"id": "a3", "role": "assistant", "parts": [], "metadata": {"page": 1}},
            user_message("2", "u2", metadata={"threadId": "no seal, and no answer"}),
        ]
        here.service.script.ask(events=TURN, times=None)
        await here.page.ask(*history)
        assert here.asked["threadId"] == "thread_new"
        await here.page.ask(*history, threadId=tokens[0])  # by a page's own prepareSendMessagesRequest
        assert here.asked["threadId"] == "thread_old"


@pytest.mark.parametrize(
    ("spoil", "user", "status"),
    [
        ("{}", "bob", 404),
        ("{}x", "ada", 400),
        ("thread_1", "ada", 400),
        ("", "ada", 400),
    ],
)
async def test_a_seal_that_does_not_open_is_refused(spoil, user, status):
    """Another's is not there, a changed one is wrong; nothing is asked either way."""
    async with desk() as here:
        token = spoil.format(ThreadSeal([SECRET]).seal(Thread("thread_1"), "ada"))
        answer = {"id": "a", "role": "assistant", "parts": [], "metadata": {"threadId": token}}
        body = {"id": "c", "messages": [user_message("1"), answer, user_message("2", "u2")]}
        got, text, _ = await here.other(user).post(body)
        assert (got, text.endswith(b"Please start a new one.")) == (status, True)
        assert here.service.requests == []


async def test_an_expired_seal_is_refused():
    """After its time a thread cannot be gone on with."""

    class Past:
        def wall(self) -> float:
            return 1_000_000_000.0

    async with desk() as here:
        token = ThreadSeal([SECRET], clock=Past()).seal(Thread("thread_1"), "ada")
        status, text, _ = await here.page.post(
            {"id": "c", "messages": [user_message("1")], "threadId": token}
        )
        assert status == 400
        assert b"expired" in text
        assert here.service.requests == []


@pytest.mark.parametrize("place", ["header", "finish", "metadata", "data"])
@pytest.mark.parametrize("mode", ["safe", "modern"])
async def test_the_thread_never_shows(place, mode):
    """Wherever the service names it, the page gets the seal instead, and it opens the right thread."""
    from mintlify_async.testing import ThreadStyle

    style = ThreadStyle(id_in={place}, key_in={place})
    async with desk(service={"threads": style}, mode=mode) as here:
        body = await here.page.ask(user_message("How do I log in?"))
        (thread,) = here.service.threads.values()
        assert ThreadSeal([SECRET]).open(thread_token(body), "ada") == Thread(thread.id, thread.key)


@pytest.mark.parametrize("mode", ["safe", "modern"])
async def test_the_key_never_shows(mode):
    """A service that repeats it, in prose even, repeats it to us alone."""
    async with desk(mode=mode) as here:
        key = here.service.assistant_key
        told = [*HEAD[:2], {"type": "text-delta", "id": "0", "delta": f"Bearer {key}!"}]
        here.service.script.ask(events=[*told, {"type": "data-x", "data": {key: key}}, *TURN[-2:]])
        shown = await here.page.ask(user_message("q"))
        assert b"Bearer [hidden]!" in shown


async def test_modern_pages_get_more():
    """The finish reason, say, which ai 5.0.0 would refuse; unknown types as they are."""
    async with desk(mode="modern") as here:
        here.service.script.ask(events=[{"type": "next-years", "a": 1}, *TURN])
        shown = events(await here.page.ask(user_message("q")))
        assert shown[0] == {"type": "next-years", "a": 1}
        assert shown[-1]["finishReason"] == "stop"


async def test_a_page_chooses_nothing_else():
    """Who asks, the thread's key and every field that is not on a list are the app's."""
    async with desk(ask={"retrieval_page_size": 3}) as here:
        forged = {
            "fp": "root",
            "threadKey": "x",
            "retrievalPageSize": 100,
            "filter": {},
            "context": [],
            "a": 1,
        }
        await here.page.ask(user_message("q"), currentPath="/quickstart", **forged)
        assert {name: value for name, value in here.asked.items() if name != "messages"} == {
            "fp": "ada",
            "retrievalPageSize": 3,
            "currentPath": "/quickstart",
        }


async def test_an_app_may_let_its_page_choose():
    """By a list of fields, and by a function of the request and the body."""

    def options(request: Request, body: Any) -> dict[str, Any]:
        return {"retrieval_page_size": min(int(body["size"]), 7)}

    async with desk(ask=options, page_fields=["filter", "context"]) as here:
        chosen = {"filter": {"version": "2"}, "context": [{"type": "code", "value": "x"}], "size": 100}
        await here.page.ask(user_message("q"), currentPath="/a", **chosen)
        assert here.asked["filter"] == {"version": "2"}
        assert here.asked["context"] == [{"type": "code", "value": "x"}]
        assert here.asked["retrievalPageSize"] == 7
        assert "currentPath" not in here.asked


@pytest.mark.parametrize(
    "fields",
    [
        {"currentPath": "https://evil.example"},
        {"currentPath": "/" + "a" * 200},
        {"currentPath": 1},
        {"filter": []},
        {"context": "x"},
        {"context": [{"type": "x"}]},
        {"threadId": 7},
    ],
)
async def test_chosen_fields_are_checked(fields):
    """What the service would refuse is refused here, as the page's fault."""
    async with desk(page_fields=["currentPath", "filter", "context"]) as here:
        status, _, _ = await here.page.post({"id": "c", "messages": [user_message("q")], **fields})
        assert status == 400
        assert here.service.requests == []


# --- What a page sends --------------------------------------------------------------------------------

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
    """Every shape that the transport posts is taken; tools, data and metadata stay with the page."""
    sent, passed = SHAPES[shape]
    async with desk() as here:
        here.service.script.ask(events=TURN)
        await here.page.ask(*sent, trigger="regenerate-message", messageId="a1")
        assert here.asked["messages"] == passed


CAPTURED = ORACLE / "http"


@pytest.mark.parametrize("version", ["v5", "v6", "v7"])
async def test_what_the_published_transports_post(version):
    """Every request that was captured from them: questions are answered, a resume finds nothing."""
    captured = json.loads((CAPTURED / f"{version}.json").read_text(encoding="utf-8"))["requests"]
    async with LocalService() as service, service.session() as session:
        app = Starlette(routes=relay_routes(session, secrets=[SECRET], user=x_user))
        async with page_of(app) as page:
            for shape, requests in captured.items():
                for request in requests:
                    assert await replayed(page, request) == expected(shape, request), shape
    assert len(service.requests) >= 10


def expected(shape: str, request: dict[str, Any]) -> int:
    """Only the page that sends a bare thread id is refused: a relay's page has a sealed one."""
    if request["method"] == "GET":
        return 204
    return 400 if shape == "prepare-hook" else 200


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
        (b"[" * 100_000, 400),
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
        (question(parts=[{"type": "text", "text": "x"}] * 501), 413),
        ({"messages": [user_message("q", f"u{n}") for n in range(201)]}, 413),
        (question(parts=[{"type": "file", "mediaType": "a/b", "url": "data:" + "x" * 2**21}]), 413),
        ({"messages": [user_message("q")], "a": "x" * 2**22}, 413),
    ],
)
async def test_what_no_page_sends_is_refused(body, status):
    """A clear 4xx with a short text, and nothing is asked."""
    async with desk() as here:
        got, text, headers = await here.page.post(body)
        assert got == status
        assert headers["content-type"].startswith("text/plain")
        assert 0 < len(text) < 100
        assert here.service.requests == []


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "x/json"])
async def test_only_json_is_taken(content_type):
    """So that a browser asks before it lets a foreign page post."""
    async with desk() as here:
        status, _, _ = await here.page.post(headers={"content-type": content_type})
        assert status == 415
        assert here.service.requests == []


async def test_a_large_body_is_refused_early():
    """Fifty megabytes, in chunks whose length nobody promised: a tenth is read and none of it is kept."""
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
    """A request that drips in holds a place for a while and no longer."""

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
    """Each can be set; a bad one is named."""
    async with desk(limits=RelayLimits(messages=1, question_characters=3)) as here:
        status, _, _ = await here.page.post({"messages": [user_message("a"), user_message("b", "u2")]})
        assert status == 413
        status, _, _ = await here.page.post({"messages": [user_message("four")]})
        assert status == 413
    with pytest.raises(ConfigurationError) as caught:
        RelayLimits(body_bytes=0)
    assert caught.value.field == "body_bytes"


# --- Failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, 400),
        (401, 502),
        (402, 502),
        (403, 502),
        (404, 502),
        (409, 409),
        (413, 413),
        (418, 502),
        (422, 400),
        (429, 429),
        (500, 502),
        (503, 503),
        (504, 504),
        (302, 502),
    ],
)
async def test_a_refusal_of_the_service_is_told(status, told):
    """With the right status and a sentence of ours: our key's story is nobody's business."""
    async with desk(session={"retry": None}) as here:
        here.service.script.ask(
            status=status, json={"message": f"bad key {here.service.assistant_key}"}, times=None
        )
        got, text, headers = await here.page.post()
        assert got == told
        assert b"bad key" not in text
        assert b"key" not in text
        assert headers["content-type"].startswith("text/plain")


async def test_429_says_when():
    """The service's own figure, in whole seconds."""
    async with desk(session={"retry": None}) as here:
        here.service.script.ask(status=429, headers={"Retry-After": "90.5"})
        status, text, headers = await here.page.post()
        assert (status, headers["retry-after"]) == (429, "91")
        assert text == b"Too many questions. Please wait a moment and try again."


async def test_a_thread_that_is_gone_is_404():
    """The service forgot it; with no thread in the question, a 404 is our own mistake."""
    async with desk() as here:
        token = ThreadSeal([SECRET]).seal(Thread("thread_gone", "k"), "ada")
        status, _, _ = await here.page.post({"messages": [user_message("q")], "threadId": token})
        assert status == 404


async def test_no_answer_is_502():
    """Nobody listens there."""
    async with desk() as here, here.service.refusing():
        status, text, _ = await here.page.post()
        assert (status, text) == (502, b"The assistant is not available at the moment.")


async def test_silence_is_504():
    """It listens and says nothing."""
    async with desk(session={"timeouts": Timeouts(first_event=0.1)}) as here:
        here.service.script.ask(fault=faults.NoAnswer(), times=None)
        status, text, _ = await here.page.post()
        assert (status, text) == (504, b"The assistant did not answer in time. Please try again.")


async def test_a_closed_session_is_503():
    """The app is shutting down."""
    async with desk() as here:
        await here.session.close()
        status, _, _ = await here.page.post()
        assert status == 503


async def test_a_missing_key_is_500(monkeypatch):
    """The page learns nothing of it; the log does."""
    monkeypatch.delenv("MINTLIFY_ASSISTANT_API_KEY", raising=False)
    async with desk(session={"assistant_key": None}) as here:
        status, text, _ = await here.page.post()
        assert (status, text) == (500, b"The assistant is not available at the moment.")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"fault": faults.Cut(-120)}, "The answer was interrupted. Please try again."),
        ({"fault": faults.Cut(-120, "rst")}, "The answer was interrupted. Please try again."),
        (
            {"events": [*HEAD, {"type": "error", "errorText": "no credits on key mint_dsc_0123456789"}]},
            "The assistant could not finish this answer. Please try again.",
        ),
        ({"events": HEAD, "done": False}, "The answer was interrupted. Please try again."),
        (
            {"events": [*HEAD, {"type": "text-delta", "id": "9", "delta": "x"}]},
            "The assistant could not finish this answer. Please try again.",
        ),
        ({"body": "<html>busy</html>"}, "The assistant could not finish this answer. Please try again."),
        ({"status": 204}, "The answer was interrupted. Please try again."),
        ({"body": b"data: {bad\n\n"}, "The assistant could not finish this answer. Please try again."),
    ],
)
async def test_an_answer_that_breaks_off_says_so(script, told):
    """An error event and ``[DONE]``, never a silent end; what had come stays, and so does the thread."""
    async with desk() as here:
        here.service.script.ask(**script)
        shown = events(await here.page.ask(user_message("q")))
        assert shown[-1] == {"type": "error", "errorText": told}
        assert [event["type"] for event in shown].count("error") == 1


async def test_the_apps_own_words_for_an_error():
    """In the app's language, or with the service's reason."""
    async with desk(error_text=lambda error: f"Abbruch: {error.error_text}") as here:
        here.service.script.ask(events=[{"type": "error", "errorText": "voll"}])
        assert events(await here.page.ask(user_message("q"))) == [
            {"type": "error", "errorText": "Abbruch: voll"}
        ]


@pytest.mark.parametrize(
    "words", [lambda error: error.nothing, lambda error: None, lambda error: {"nothing"}]
)
async def test_words_that_cannot_be_made_are_ours(words, caplog):
    """The app's function fails or returns no text: the page is told all the same, and the log has why."""
    async with desk(error_text=words) as here:
        here.service.script.ask(events=[{"type": "error", "errorText": "voll"}])
        shown = events(await here.page.ask(user_message("q")))
        assert shown[-1]["errorText"] == "The assistant could not finish this answer. Please try again."
    assert "error_text" in caplog.text


async def test_modern_pages_get_the_services_words():
    """Everything but the thread and keys."""
    async with desk(mode="modern") as here:
        here.service.script.ask(events=[{"type": "error", "errorText": "full: mint_dsc_0123456789"}])
        assert events(await here.page.ask(user_message("q"))) == [
            {"type": "error", "errorText": "full: mint_***"}
        ]


async def test_an_abort_is_an_end():
    """The service broke off in order; ai 5.0.0 may not see why."""
    async with desk() as here:
        here.service.script.ask(events=[*HEAD, {"type": "abort", "reason": "x"}])
        assert events(await here.page.ask(user_message("q")))[-1] == {"type": "abort"}


async def test_a_session_that_closes_breaks_answers_off():
    """A page is told, whatever ends its answer."""
    async with desk() as here:
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request() as response:
            seen = b""
            while b"Hello" not in seen:
                seen += await response.content.readany()
            await here.session.close()
            seen += await response.read()
        assert events(seen)[-1]["type"] == "error"


# --- Readers who leave --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        {"events": [*HEAD, 60.0]},
        {"events": [60.0]},
        {"events": [*HEAD, *([{"type": "text-delta", "id": "0", "delta": "x" * 50_000}] * 2000)]},
    ],
    ids=["silent", "silent from the start", "flooding a reader who does not read"],
)
async def test_a_reader_who_leaves_closes_the_answer(script):
    """At the service, at once, whatever it is doing."""
    async with desk() as here:
        here.service.script.ask(**script)
        async with here.page.request() as response:
            await until(lambda: here.relay.streaming)
            response.close()
        await here.all_closed()
        assert here.service.requests[-1].client_left


async def test_a_reader_who_leaves_before_the_answer():
    """The service has not said a word yet, and need not any more."""
    async with desk() as here:
        here.service.script.ask(fault=faults.NoAnswer())
        asking = asyncio.create_task(here.page.post())
        await until(lambda: here.service.answering)
        asking.cancel()
        await asyncio.wait([asking])
        await here.all_closed()
        assert here.service.requests[-1].client_left


async def test_five_hundred_readers_and_a_third_leave():
    """On one worker: every answer that is read is whole, and nothing is left open by those that are not."""
    count = 500

    async def read(page: Page, number: int) -> str:
        async with page.request() as response:
            assert response.status == 200
            seen = await response.content.readuntil(b"Hello ")
            await everybody.wait()
            if number % 3 == 0:
                response.close()
                return "left"
            seen += await response.read()
        return "".join(event.get("delta", "") for event in events(seen))

    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user, max_concurrent_per_user=count)
        app = Starlette()
        app.add_route("/api/chat", relay.respond, methods=["POST"])
        service.script.ask(events=[*HEAD, 0.5, *TURN[3:]], times=None)
        everybody = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0)
        async with serving(app) as address, aiohttp.ClientSession(connector=connector) as http:
            before = len(asyncio.all_tasks())
            page = Page(http, address)
            readers = [asyncio.create_task(read(page, number)) for number in range(count)]
            await until(lambda: relay.streaming == count or any(reader.done() for reader in readers))
            everybody.set()
            texts = await asyncio.gather(*readers)
            assert texts == ["left" if number % 3 == 0 else "Hello there" for number in range(count)]
            await until(lambda: not service.answering and not relay.streaming)
            await session.close()  # with the pooled connections, whose other ends are tasks here
            await connector.close()
            await until(lambda: len(asyncio.all_tasks()) <= before)


# --- Guards -------------------------------------------------------------------------------------------


async def test_a_user_is_a_string(caplog):
    """A number, say, would seal one user's threads as another's text: the app is told."""
    async with desk(user=lambda request: 7) as here:
        assert (await here.page.post())[0] == 500
        assert here.service.requests == []


@pytest.mark.parametrize("user", ["", None])
async def test_nobody_gets_no_answer(user):
    """The app's hook names nobody: 401, and nothing is read."""
    async with desk(user=lambda request: user) as here:
        status, _, _ = await here.page.post()
        assert status == 401
        assert here.service.requests == []


async def test_the_user_hook_may_refuse_and_await():
    """With the framework's own exception, and as a coroutine."""

    async def refusing(request: Request) -> str:
        raise HTTPException(403, "not you")

    async with desk(user=refusing) as here:
        status, text, _ = await here.page.post()
        assert (status, text) == (403, b"not you")


async def test_anonymous_is_nobodys_name(caplog):
    """Everybody without an account would share one thread seal: the app is told."""
    async with desk(user=lambda request: "anonymous") as here:
        status, _, _ = await here.page.post()
        assert status == 500
        assert here.service.requests == []


async def test_a_user_asks_at_the_apps_own_rate():
    """The hook comes before anything is read; it says when to come back."""
    waits = {"ada": None, "bob": 12.2}

    async def rate(user: str) -> float | None:
        return waits[user]

    async with desk(rate=rate) as here:
        assert (await here.page.post())[0] == 200
        status, _, headers = await here.other("bob").post(b"not read")
        assert (status, headers["retry-after"]) == (429, "13")


async def test_a_rate_of_no_seconds_passes(caplog):
    """Only a time to wait refuses; a boolean, which could mean either, is the app's mistake."""
    waits = iter([0, -1, True, False])
    async with desk(rate=lambda user: next(waits)) as here:
        close = {"connection": "close"}  # a server ends the connection with a 500 anyway
        assert [(await here.page.post(headers=close))[0] for _ in range(4)] == [200, 200, 500, 500]


async def test_an_answer_that_nobody_sends_gives_its_place_back():
    """A handler opened it and forgot it; it is closed with the last reference."""
    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)

        async def forgetful(request: Request) -> Response:
            await relay.open(request)
            return Response("forgotten")

        app = Starlette()
        app.add_route("/api/chat", forgetful, methods=["POST"])
        async with page_of(app) as page:
            service.script.ask(events=[*HEAD, 60.0])
            assert (await page.post())[1] == b"forgotten"
            gc.collect()
            await until(lambda: not relay.streaming and not service.answering)


async def test_what_an_apps_own_key_function_raises_is_the_apps():
    """It is no refusal of the service: the framework sees it as it is."""

    def key() -> str:
        raise LookupError("the vault is sealed")

    async with desk(session={"assistant_key": key}) as here:
        assert (await here.page.post())[0] == 500
        assert here.service.requests == []


async def test_a_user_may_be_refused_for_good():
    """An app's "never again" has no figure to tell."""
    async with desk(rate=lambda user: float("inf")) as here:
        status, _, headers = await here.page.post()
        assert (status, "retry-after" in headers) == (429, False)


async def test_what_a_page_sent_besides_is_not_kept_while_it_reads():
    """Four megabytes of brackets are ninety of lists, for every open answer; the app has seen them."""
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
    """Half a character, a NUL, line ends of other worlds: never a failure of ours."""
    async with desk() as here:
        body = json.dumps({"messages": [user_message(text)]}).encode()
        status, _, _ = await here.page.post(body)
        assert status in (200, 400)


async def test_answers_at_once_are_bounded():
    """For one user and for all; an answer that ends makes room."""
    async with desk(max_concurrent=2, max_concurrent_per_user=1) as here:
        here.service.script.ask(events=[*HEAD, 60.0], times=2)
        async with here.page.request() as first:
            status, _, headers = await here.page.post()
            assert (status, headers["retry-after"]) == (429, "1")
            async with here.other("bob").request() as second:
                status, _, headers = await here.other("eve").post()
                assert (status, headers["retry-after"]) == (503, "1")
                second.close()
            first.close()
        await here.all_closed()
        assert (await here.page.post())[0] == 200


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"secrets": []}, "secrets"),
        ({"mode": "old"}, "mode"),
        ({"page_fields": ["fp"]}, "page_fields"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"max_concurrent_per_user": 0}, "max_concurrent_per_user"),
        ({"keep_alive": 0}, "keep_alive"),
        ({"seal_ttl": 0}, "seal_ttl"),
    ],
)
async def test_bad_settings_are_named(settings, field):
    """At construction, before any request."""
    async with LocalService() as service, service.session() as session:
        with pytest.raises(ConfigurationError) as caught:
            Relay(session, **{"secrets": [SECRET], "user": x_user, **settings})
        assert caught.value.field == field


# --- Hooks --------------------------------------------------------------------------------------------


class Told:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.finished: list[RelayedAnswer] = []
        self.unfinished: list[RelayedAnswer] = []

    async def on_finish(self, answer: RelayedAnswer) -> None:
        await asyncio.sleep(0)
        self.finished.append(answer)

    def on_unfinished(self, answer: RelayedAnswer) -> None:
        self.unfinished.append(answer)

    @property
    def hooks(self) -> dict[str, Any]:
        return {"on_finish": self.on_finish, "on_unfinished": self.on_unfinished}


async def test_a_finished_answer_is_told():
    """Whole, with the question, the user and the thread, before the page is told that it is over."""
    told = Told()
    async with desk(**told.hooks) as here:
        here.service.script.ask(events=TURN)
        await here.page.ask(user_message("q"))
        (answer,) = told.finished
        assert answer.outcome == "finished"
        assert (answer.user, answer.chat_id, answer.finish_reason) == ("ada", "chat-1", "stop")
        assert answer.question == [user_message("q")]
        assert answer.message is not None
        assert answer.message.text == "Hello there"
        assert answer.thread == Thread("thread_77")
        assert told.unfinished == []


async def test_an_unfinished_answer_is_told_apart():
    """What broke off or was left never looks like a whole answer."""
    told = Told()
    async with desk(**told.hooks) as here:
        here.service.script.ask(events=HEAD, done=False)
        await here.page.ask(user_message("q"))
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
        await until(lambda: len(told.unfinished) == 2)
        assert [answer.outcome for answer in told.unfinished] == ["failed", "left"]
        assert [answer.message.text for answer in told.unfinished] == ["Hello ", "Hello "]
        assert told.finished == []


async def test_a_hook_that_raises_harms_no_page(caplog):
    """It is logged; the answer is whole."""

    def broken(answer: RelayedAnswer) -> None:
        raise ValueError("the store is full")

    async with desk(on_finish=broken) as here:
        assert events(await here.page.ask(user_message("q")))[-1]["type"] == "finish"
    assert "the store is full" in caplog.text


# --- Apps ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def page_of(app: Any) -> AsyncIterator[Page]:
    async with serving(app) as address, aiohttp.ClientSession() as http:
        yield Page(http, address)


async def current_user(x_user: Annotated[str, Header()]) -> str:
    """An app's own dependency."""
    if x_user == "nobody":
        raise HTTPException(401, "who are you?")
    return f"user-{x_user}"


@pytest.mark.parametrize("user", [x_user, Depends(current_user)], ids=["function", "dependency"])
async def test_three_lines_in_a_fastapi_app(user):
    """The router answers questions, resumes nothing, and takes no other method."""
    async with LocalService() as service, service.session() as session:
        app = FastAPI()
        app.include_router(relay_router(session, secrets=[SECRET], user=user))
        async with page_of(app) as page:
            assert events(await page.ask(user_message("q")))[-1]["type"] == "finish"
            assert service.requests[-1].json["fp"] in ("ada", "user-ada")
            for chat in ("c", "a%2Fb%20%3F", "a/b"):
                async with page.http.get(f"{page.address}/api/chat/{chat}/stream") as response:
                    assert (response.status, await response.read()) == (204, b"")
            for method in ("GET", "PUT", "DELETE"):
                async with page.http.request(method, f"{page.address}/api/chat") as response:
                    assert response.status == 405
            if user is not x_user:
                page.user = "nobody"
                assert (await page.post())[0] == 401


async def test_routes_of_a_starlette_app():
    """Without FastAPI, under another path."""
    async with LocalService() as service, service.session() as session:
        app = Starlette(routes=relay_routes(session, secrets=[SECRET], user=x_user, path="/chat"))
        async with page_of(app) as page:
            page.address += "/chat/../"
            async with page.http.post(
                page.address + "chat",
                json={"messages": [user_message("q")]},
                headers={"x-user": "ada"},
            ) as response:
                assert events(await response.read())[-1]["type"] == "finish"
            async with page.http.get(page.address + "chat/c/stream") as response:
                assert response.status == 204


@pytest.mark.parametrize("make", [relay_router, relay_routes])
async def test_an_app_must_say_who_asks(make):
    """There is no default: an anonymous page needs an id of its own."""
    async with LocalService() as service, service.session() as session:
        for settings, field in (({}, "user"), ({"user": x_user, "path": "chat"}, "path")):
            with pytest.raises(ConfigurationError) as caught:
                make(session, secrets=[SECRET], **settings)
            assert caught.value.field == field


async def test_a_handler_of_ones_own():
    """The dependency opens the answer before the handler, the response streams it; or one call does both."""
    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)
        app = FastAPI()

        @app.post("/api/chat")
        async def chat(opened: OpenReply = Depends(relay.opened)) -> Response:  # noqa: B008 - FastAPI's own way
            response = RelayResponse(opened)
            response.set_cookie("seen", opened.user)
            return response

        @app.post("/unused")
        async def unused(opened: OpenReply = Depends(relay.opened)) -> str:  # noqa: B008 - FastAPI's own way
            return "nothing of it is read"

        @app.post("/own")
        async def own(request: Request) -> Response:
            return await relay.respond(request, user="somebody")

        async with page_of(app) as page:
            status, body, headers = await page.post()
            assert (status, events(body)[-1]["type"]) == (200, "finish")
            assert headers["set-cookie"].startswith("seen=ada")
            status, body, headers = await page.post({"messages": []})
            assert (status, json.loads(body)) == (400, {"detail": "The question has no messages."})
            page.address += "/own?"
            assert (await page.post())[0] == 200
            assert service.requests[-1].json["fp"] == "somebody"
            page.address = page.address.replace("/own?", "/unused?")
            assert (await page.post())[0] == 200
            await until(lambda: not service.answering and not relay.streaming)


async def test_common_middleware_in_front():
    """Compression, CORS and a wrapper of responses: it still streams, and still notices who leaves."""

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            return await call_next(request)

    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)
        app = Starlette()
        app.add_route("/api/chat", relay.respond, methods=["POST"])
        app.add_middleware(GZipMiddleware)
        app.add_middleware(CORSMiddleware, allow_origins=["https://docs.example"])
        app.add_middleware(Passing)
        async with page_of(app) as page:
            service.script.ask(events=[*HEAD, 60.0])
            async with page.request(headers={"origin": "https://docs.example"}) as response:
                assert "content-encoding" not in response.headers
                assert response.headers["access-control-allow-origin"] == "https://docs.example"
                await response.content.readuntil(b"Hello ")
            await until(lambda: not service.answering and not relay.streaming)
