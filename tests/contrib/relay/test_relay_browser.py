"""A real page with the real ``useChat``, old and new, in a real browser, against the example app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.support.relay_browser import RELEASES
from tests.support.relay_desk import HEAD
from tests.support.relay_kit import serving, until
from tests.support.relay_shop import Shop, shop

pytestmark = pytest.mark.real

ATTEMPTS = Path(__file__).parents[2] / "support" / "js" / "other_origin.js"
ZOO = [
    {"type": "start", "messageId": "m1", "messageMetadata": None, "extra": 1},
    {"type": "reset-step"},
    {"type": "start-step"},
    {"type": "next-years-event", "a": {"b": 1}},
    {"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "title": "t", "inputEncoding": "json"},
    {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "dynamic": True},
    {"type": "tool-output-available", "toolCallId": "c", "preliminary": True, "toolMetadata": {}},
    {"type": "tool-input-error", "toolCallId": "d", "toolName": "x", "input": 1, "errorText": "no"},
    {"type": "tool-output-error", "toolCallId": "d", "errorText": "no"},
    {"type": "source-url", "sourceId": "s", "url": "https://docs.example/a", "title": None, "rank": 1},
    {"type": "source-url", "sourceId": "s", "url": "javascript:alert(1)", "title": "evil"},
    {"type": "data-note", "data": {"__proto__": {"a": 1}, "constructor": {"prototype": 1}}, "x": 1},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello \ud83d"},
    {"type": "finish-step"},
    {"type": "text-delta", "id": "0", "delta": "again <img src=x onerror=alert(1)>"},
    {"type": "custom", "kind": "a.b"},
    {"type": "finish", "finishReason": "next-years-reason", "threadId": "t", "usage": {}},
]


@pytest.mark.parametrize("release", RELEASES)
async def test_a_page(release):
    """One page for all situations: growing text, an error, Stop, a refusal, events that it does not know."""
    async with shop(release) as here:
        for situation in (grows, breaks_off, is_refused, meets_unknown_events):
            await situation(here)
            await here.click("New chat")


async def grows(here: Shop) -> None:
    """The page shows the text as it streams."""
    words = [{"type": "text-delta", "id": "0", "delta": f"{n} "} for n in range(20)]
    here.service.script.ask(events=[*HEAD, *words, {"type": "finish"}], pause=0.1)
    await here.answered("Count!")
    texts = await here.page.evaluate("window.texts")
    assert len(texts) >= 5
    assert [text for text in texts if not texts[-1].startswith(text.strip())] == []
    assert texts[-1].split() == ["Hello", *map(str, range(20))]


async def breaks_off(here: Shop) -> None:
    """An error, which here quotes the key, and a Stop in this tab: the part stays, and asking again works."""
    error = {"type": "error", "errorText": f"key {here.service.assistant_key}"}
    here.service.script.ask(events=[*HEAD, error])
    await here.ask("Fail")
    assert await here.alert() == "The assistant could not finish this answer. Please try again."
    assert await here.answers() == ["Hello"]
    here.service.script.ask(events=[*HEAD, 60.0])
    await here.click("Retry")
    await until(lambda: here.service.answering)
    await here.shows("Hello")
    await here.click("Stop")
    await here.status("ready")
    await until(lambda: not here.service.answering)
    assert await here.page.get_by_role("alert").count() == 0


async def is_refused(here: Shop) -> None:
    """A refusal says what the reader can do; asking again works when its time is over."""
    here.service.script.ask(status=429, headers={"Retry-After": "3"})
    await here.ask("Too much")
    await here.shows("Too many questions. Please wait a moment and try again.")
    await here.click("Retry")  # when the seconds are over; until then the button counts them down
    await here.status("ready")
    assert await here.page.get_by_role("alert").count() == 0
    assert len(await here.answers()) == 1


async def meets_unknown_events(here: Shop) -> None:
    """New types, new fields, nulls, unknown reasons, odd orders: the page shows the text and is ready."""
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in ZOO)
    here.service.script.ask(body=[body, b"data: [DONE]\n\n"])
    await here.ask("Everything")
    await here.shows("/a")
    await here.status("ready")
    (text,) = await here.answers()
    assert text.startswith("Hello")
    assert text.endswith("again <img src=x onerror=alert(1)>")
    assert await here.page.locator(".sources a").all_inner_texts() == ["/a"]


async def test_a_page_of_another_origin_gets_nothing():
    """Neither by form, beacon, XHR, fetch nor frame, although the browser sends the cookie."""
    other = Starlette(routes=[Route("/", lambda request: HTMLResponse("<iframe name=frame></iframe>"))])
    async with shop() as here, serving(other) as address:
        here.service.script.ask(events=[*HEAD, 60.0])
        await here.ask("Mine")
        await here.shows("Hello")
        chat = here.page.url.partition("?chat=")[2]
        tab = await here.page.context.new_page()
        await tab.goto(address)
        app = here.page.url.partition("/?")[0]
        assert await tab.evaluate(ATTEMPTS.read_text("utf-8"), [app, chat]) == []
        assert len(here.service.requests) == 1
        assert here.service.answering == 1
        await tab.close()
        await here.click("Stop")
