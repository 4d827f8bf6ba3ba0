"""A real page with the real ``useChat``, old and new, in a real browser, against the example app."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi")

from mintlify_async.testing import faults
from tests.support.relay_browser import RELEASES
from tests.support.relay_kit import until
from tests.support.relay_shop import HEAD, shop

pytestmark = [pytest.mark.parametrize("release", RELEASES), pytest.mark.real]


async def test_an_answer_grows_and_the_next_goes_on(release):
    """Text as it streams, and sources; the second question is in the thread of the first."""
    async with shop(release) as here:
        here.service.script.ask(
            events=[
                *HEAD,
                *({"type": "text-delta", "id": "0", "delta": f"{n} "} for n in range(20)),
                {"type": "finish"},
            ],
            pause=0.02,
        )
        await here.ask("Count!")
        await here.status("ready")
        texts = await here.page.evaluate("window.texts")
        assert len(texts) >= 5
        assert [text for text in texts if not texts[-1].startswith(text.strip())] == []
        assert texts[-1].split() == ["Hello", *map(str, range(20))]

        await here.page.get_by_role("button", name="New chat").click()
        await here.ask("How do I wait for a job?")
        await here.status("ready")
        assert await here.page.locator(".sources a").count() > 0
        assert "```" not in "".join(await here.answers())

        await here.ask("And by SSO?")
        await here.status("ready")
        (thread,) = here.service.threads.values()
        assert thread.questions == ["How do I wait for a job?", "And by SSO?"]
        assert here.service.requests[-1].json["threadKey"] == thread.key
        assert len(await here.answers()) == 2


async def test_stop_closes_the_answer(release):
    """The text stays, the service is let go, and the thread goes on."""
    async with shop(release) as here:
        here.service.script.ask(events=[*HEAD, 60.0], headers={"X-Thread-Id": "thread_1"})
        await here.ask("Stop me")
        await here.page.get_by_text("Hello").wait_for()
        assert here.service.answering == 1
        await here.page.get_by_role("button", name="Stop").click()
        await here.status("ready")
        await until(lambda: not here.service.answering)
        assert here.service.requests[-1].client_left
        here.service.script.ask(events=[*HEAD, {"type": "finish"}])
        await here.ask("Go on")
        await here.status("ready")
        assert here.service.requests[-1].json["threadId"] == "thread_1"
        assert await here.page.get_by_role("alert").count() == 0


async def test_leaving_closes_the_answer(release):
    """Closing the page is as good as pressing Stop."""
    async with shop(release) as here:
        here.service.script.ask(events=[*HEAD, 60.0])
        await here.ask("Leave me")
        await here.page.get_by_text("Hello").wait_for()
        await here.page.goto("about:blank")
        await until(lambda: not here.service.answering)
        assert here.service.requests[-1].client_left


async def test_failures_are_shown(release):
    """An error in the stream, a cut and a refusal each say what the reader can do; asking again works."""
    async with shop(release) as here:
        here.service.script.ask(events=[*HEAD, {"type": "error", "errorText": "key mint_dsc_0123456789"}])
        await here.ask("Fail")
        assert await here.alert() == "The assistant could not finish this answer. Please try again."
        assert await here.answers() == ["Hello"]

        here.service.script.ask(events=HEAD, fault=faults.Cut(-20, "rst"))
        await here.page.get_by_role("button", name="Retry").click()
        await until(lambda: here.service.requests[1:])
        assert await here.alert() == "The answer was interrupted. Please try again."

        here.service.script.ask(status=429, headers={"Retry-After": "3"})
        await here.page.get_by_role("button", name="New chat").click()
        await here.ask("Too much")
        await here.page.get_by_text("Too many questions").wait_for()
        assert await here.alert() == "Too many questions. Please wait a moment and try again."

        await here.click("Retry")  # when the seconds are over; until then the button counts them down
        await here.status("ready")
        assert await here.page.get_by_role("alert").count() == 0
        assert len(await here.answers()) == 1


ZOO = [
    {"type": "start", "messageId": "m1", "messageMetadata": None, "extra": 1},
    {"type": "reset-step"},
    {"type": "start-step"},
    {"type": "next-years-event", "a": {"b": 1}},
    {
        "type": "tool-input-start",
        "toolCallId": "c",
        "toolName": "search",
        "title": "t",
        "inputEncoding": "json",
    },
    {"type": "tool-input-available", "toolCallId": "c", "toolName": "search", "dynamic": True},
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


async def test_what_old_pages_do_not_know_harms_none(release):
    """New types, new fields, nulls, unknown reasons, odd orders: each page shows the text and is ready."""
    async with shop(release) as here:
        body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in ZOO)
        here.service.script.ask(chunks=[body, b"data: [DONE]\n\n"])
        await here.ask("Everything")
        await here.status("ready")
        (text,) = await here.answers()
        assert text.startswith("Hello")
        assert text.endswith("again <img src=x onerror=alert(1)>")
        assert await here.page.locator(".sources a").all_inner_texts() == ["/a"]
