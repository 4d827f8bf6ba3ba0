"""Which fields of a question the page may choose, and which the app alone."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import desk
from relay_kit import user_message
from starlette.requests import Request


async def test_a_page_chooses_nothing_else():
    """The user, the thread's key and every field that is not listed are the app's alone."""
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
    """The app lets its page set fields by a list, or by a function of the request and the body."""

    def options(request: Request, body: Any) -> dict[str, Any]:
        return {"retrieval_page_size": min(int(body["size"]), 7)}

    async with desk(ask=options, page_fields=["filter", "context"]) as here:
        item = {"type": "code", "value": "x", "more": "dropped"}
        chosen = {"filter": {"version": "2"}, "context": [item], "size": 100}
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
        {"context": [{"type": "code", "value": "a\ud83d"}]},
        {"filter": {"version": "a\ud83d"}},
        {"currentPath": "/a\ud83d"},
        {"threadId": 7},
    ],
)
async def test_chosen_fields_are_checked(fields):
    """A field that the service would refuse is refused here with 400."""
    async with desk(page_fields=["currentPath", "filter", "context"]) as here:
        status, _, _ = await here.page.post({"id": "c", "messages": [user_message("q")], **fields})
        assert status == 400
        assert here.service.requests == []


async def test_half_a_character_in_the_history_does_not_end_a_chat():
    """An answer may have held it; no request may, so it is sent as U+FFFD."""
    async with desk() as here:
        await here.page.ask(user_message("a\ud83d"))
        assert here.asked["messages"][0]["parts"] == [{"type": "text", "text": "a\ufffd"}]
