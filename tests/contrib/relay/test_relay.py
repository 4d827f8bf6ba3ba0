"""The relay between a page and the assistant, over real connections on loopback."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import MemoryStreamStore, Relay
from mintlify_async.testing import LocalService
from tests.support.relay_desk import HEAD, TURN, desk, x_user
from tests.support.relay_kit import SECRET, events, pseudonym, user_message


async def test_a_question_goes_out_and_the_answer_comes_back():
    """The service gets the question and the user; the page gets the answer and the headers of a stream."""
    async with desk() as here:
        status, body, headers = await here.page.post()
        assert status == 200
        kinds = [event["type"] for event in events(body)]
        assert kinds[0] == "start"
        assert kinds[-1] == "finish"
        assert {"source-url", "text-delta", "tool-output-available"} <= set(kinds)
        assert here.asked == {
            "fp": pseudonym("ada"),
            "messages": [
                {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "How do I log in?"}]}
            ],
            "retrievalPageSize": 5,
        }
        assert here.service.requests[-1].key == here.service.assistant_key
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert "connection" not in headers
        assert headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers


async def test_the_key_never_shows():
    """A key that the service repeats in its answer is hidden from the page."""
    async with desk() as here:
        key = here.service.assistant_key
        told = [*HEAD[:2], {"type": "text-delta", "id": "0", "delta": f"Bearer {key}!"}]
        here.service.script.ask(events=[*told, {"type": "data-x", "data": {key: key}}, *TURN[-2:]])
        shown = await here.page.ask(user_message("q"))
        assert b"Bearer [hidden]!" in shown


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"secrets": []}, "secrets"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"max_per_user": 0}, "max_per_user"),
        ({"streams": "redis://localhost"}, "streams"),
        ({"streams": MemoryStreamStore}, "streams"),
        ({"store": "chats.sqlite"}, "store"),
    ],
)
async def test_bad_settings_are_named(settings, field):
    """The constructor refuses a bad setting and names it."""
    async with LocalService() as service, service.session() as session:
        with pytest.raises(ConfigurationError) as caught:
            Relay(session, **{"secrets": [SECRET], "user": x_user, **settings})
        assert caught.value.field == field


@pytest.mark.parametrize("wrong", [{"grace": -1}, {"keep": float("nan")}, {"grace": True}])
def test_wrong_stream_settings_are_named(wrong):
    """Before any question."""
    with pytest.raises(ConfigurationError) as caught:
        MemoryStreamStore(**wrong)
    assert caught.value.field == next(iter(wrong))
