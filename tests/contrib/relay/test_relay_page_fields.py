"""Which fields of a question the page may choose, and which the app alone."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import desk
from relay_kit import pseudonym, user_message
from starlette.requests import Request

from mintlify_async import SearchFilter


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
            "fp": pseudonym("ada"),
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
    ("own", "sent"),
    [
        ({"groups": ["staff"]}, {"groups": ["staff"], "version": "9", "language": "de"}),
        (
            SearchFilter(groups=["staff"], version="1"),
            {"groups": ["staff"], "version": "1", "language": "de"},
        ),
        ({"version": "1", "since": 2024}, {"version": "1", "language": "de", "since": 2024}),
        (None, {"version": "9", "language": "de"}),
    ],
)
@pytest.mark.parametrize("as_function", [False, True])
async def test_the_apps_filter_lies_over_the_pages(own, sent, as_function):
    """A page may narrow the search where the app left it open; the app's groups and fields stay."""
    ask = {"filter": own, "current_path": "/app", "context": None}
    item = {"type": "code", "value": "x"}
    async with desk(
        ask=(lambda request, fields: ask) if as_function else ask,
        page_fields=["filter", "currentPath", "context"],
    ) as here:
        chosen = {"filter": {"version": "9", "language": "de"}, "currentPath": "/page", "context": [item]}
        await here.page.ask(user_message("q"), **chosen)
        assert here.asked["filter"] == sent
        assert here.asked["currentPath"] == "/app"
        assert here.asked["context"] == [item]


@pytest.mark.parametrize("groups", [["admin"], [""], "admin", {"a": 1}, 1])
async def test_a_page_never_names_groups(groups):
    """Groups say what a reader may see: a page that names some is refused, whatever the app sets."""
    for ask in (None, {"filter": {"groups": ["reader"]}}):
        async with desk(ask=ask, page_fields=["filter"]) as here:
            status, text, _ = await here.page.post(
                {"messages": [user_message("q")], "filter": {"version": "2", "groups": groups}}
            )
            assert status == 400
            assert b"admin" not in text
            assert here.service.requests == []


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
    """An answer may have held it; no request may, so a question mark is sent in its place."""
    async with desk() as here:
        await here.page.ask(user_message("a\ud83d"))
        assert here.asked["messages"][0]["parts"] == [{"type": "text", "text": "a?"}]
