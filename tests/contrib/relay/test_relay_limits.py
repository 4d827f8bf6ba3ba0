"""Who may ask, how often, and how many answers run at once."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from typing import Any

from fastapi import HTTPException
from relay_desk import HEAD, TURN, desk, x_user
from relay_kit import SECRET, request_of, user_message
from starlette.requests import Request

from mintlify_async.contrib.relay import MemoryStreamStore, Relay
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import LocalService


async def test_a_user_is_a_string(caplog):
    """A user that is no string is refused, as another user's seals could open for it."""
    async with desk(user=lambda request: 7) as here:
        assert (await here.page.post())[0] == 500
        assert here.service.requests == []


@pytest.mark.parametrize("user", ["", None])
async def test_a_request_without_a_user_gets_no_answer(user):
    """A request without a user gets 401, and its body is not read."""
    async with desk(user=lambda request: user) as here:
        status, _, _ = await here.page.post()
        assert status == 401
        assert here.service.requests == []


async def test_the_user_hook_may_refuse_and_await():
    """The user hook may be a coroutine and may raise the framework's own exception."""

    async def refusing(request: Request) -> str:
        raise HTTPException(403, "not you")

    async with desk(user=refusing) as here:
        status, text, _ = await here.page.post()
        assert (status, text) == (403, b"not you")


async def test_anonymous_is_not_a_users_name(caplog):
    """The user "anonymous" is refused: all users without an account would share their threads."""
    async with desk(user=lambda request: "anonymous") as here:
        status, _, _ = await here.page.post()
        assert status == 500
        assert here.service.requests == []


async def test_a_user_asks_at_the_apps_own_rate():
    """The rate hook runs before the body is read, and its seconds become Retry-After."""
    waits = {"ada": None, "bob": 12.2}

    async def rate(user: str, request: Request) -> float | None:
        assert request.client is not None
        assert request.client.host == "127.0.0.1"
        return waits[user]

    async with desk(rate=rate) as here:
        assert (await here.page.post())[0] == 200
        status, _, headers = await here.other("bob").post(b"not read")
        assert (status, headers["retry-after"]) == (429, "13")


async def test_the_rate_of_reads_is_the_apps_and_a_stop_is_never_refused():
    """The hook sees the method. A reader over the limit reads nothing from a store, and can still stop."""
    asked: list[str] = []

    async def rate(user: str, request: Request) -> float | None:
        asked.append(request.method)
        return 30 if request.method == "GET" else None

    class Unread(MemoryConversationStore):
        async def load(self, *arguments: Any, **settings: Any) -> Any:
            raise AssertionError

    settings: dict[str, Any] = {"store": Unread(), "streams": MemoryStreamStore()}
    async with desk(rate=rate, **settings) as here:
        assert await here.page.history() == (429, "Too many questions. Please wait a moment and try again.")
        status, body = await here.page.resume()
        assert (status, body) == (429, b"Too many questions. Please wait a moment and try again.")
        assert await here.page.stop() == 204
        assert asked == ["GET", "GET"]


async def test_a_rate_of_no_seconds_passes(caplog):
    """Zero and negative seconds let the request pass; what is not a number is the app's mistake."""
    waits = iter([0, -1, True, "1"])
    async with desk(rate=lambda user, request: next(waits)) as here:
        close = {"connection": "close"}  # a server ends the connection with a 500 anyway
        assert [(await here.page.post(headers=close))[0] for _ in range(4)] == [200, 200, 500, 500]


async def test_a_user_may_be_refused_for_good():
    """An infinite wait is a 429 without Retry-After."""
    async with desk(rate=lambda user, request: float("inf")) as here:
        status, _, headers = await here.page.post()
        assert (status, "retry-after" in headers) == (429, False)


async def test_the_end_of_an_answer_lets_the_next_question_in():
    """The newest useChat sends a queued message the moment it sees the end: one answer at a time suffices."""
    seen: list[tuple[bool, int]] = []

    async with LocalService() as service, service.session() as session:
        service.script.ask(events=TURN, times=None)
        relay = Relay(session, secrets=[SECRET], user=x_user, max_concurrent_per_user=1)

        async def asking(depth: int) -> None:
            async def send(message: Any) -> None:
                if b"[DONE]" in message.get("body", b""):
                    seen.append((message["more_body"], relay.streaming))
                    if depth:
                        await asking(depth - 1)

            request = request_of({"messages": [user_message("q")]})
            response = await relay.respond(request)
            assert response.status_code == 200
            await response(request.scope, request.receive, send)

        await asking(5)
    assert seen == [(False, 0)] * 6


async def test_answers_at_once_are_bounded():
    """Running answers are bounded per user and in all; an answer that ends makes room."""
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
