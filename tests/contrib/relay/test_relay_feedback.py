"""Readers' verdicts on answers: what reaches the app's hook, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI
from relay_desk import page_of, x_user
from relay_kit import SECRET, Page
from starlette.applications import Starlette
from starlette.requests import Request

from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import Relay, RelayFeedback, relay_router, relay_routes
from mintlify_async.testing import LocalService

GOOD = {"chatId": "c1", "messageId": "m1", "value": 1}


async def send(page: Any, body: Any = GOOD, **headers: str) -> tuple[int, str, Any]:
    """Return the status, the text and the headers of the answer to a verdict."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "x-user": page.user, **headers}
    async with page.http.post(
        f"{page.address}/api/chat/feedback", data=io.BytesIO(data), headers=headers
    ) as response:
        return response.status, await response.text(), response.headers


async def depending(request: Request) -> str:
    return x_user(request)


def fastapi_app(session: Any, user: Any = x_user, **settings: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(relay_router(session, secrets=[SECRET], user=user, **settings))
    return app


@asynccontextmanager
async def feedback_page(**settings: Any) -> AsyncIterator[Page]:
    async with (
        LocalService() as service,
        service.session() as session,
        page_of(fastapi_app(session, **settings)) as page,
    ):
        yield page


@pytest.mark.parametrize("kind", ["router", "dependency", "routes"])
async def test_a_verdict_reaches_the_hook(kind):
    """Both values, a hook of either kind, and nothing is asked of the service."""
    got: list[RelayFeedback] = []

    async def keep(feedback: RelayFeedback) -> None:
        got.append(feedback)

    async with LocalService() as service, service.session() as session:
        if kind == "routes":
            app: Any = Starlette(
                routes=relay_routes(session, secrets=[SECRET], user=x_user, on_feedback=got.append)
            )
        else:
            user = Depends(depending) if kind == "dependency" else x_user
            app = fastapi_app(session, user, on_feedback=keep)
        async with page_of(app) as page:
            assert (await send(page))[0] == 204
            status, text, _ = await send(page, {"messageId": "m2", "value": -1, "more": [1]})
            assert (status, text) == (204, "")
            page.user = ""
            assert (await send(page))[0] == 401
        assert not service.requests
    assert got == [
        RelayFeedback(user="ada", chat_id="c1", message_id="m1", value=1),
        RelayFeedback(user="ada", chat_id=None, message_id="m2", value=-1),
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 2000, 400),
        (b"\xff", 400),
        ([], 400),
        ({"messageId": "m"}, 400),
        *(({**GOOD, "value": value}, 400) for value in (0, 2, True, 1.0, "1", None, [1], float("nan"))),
        *(({**GOOD, "messageId": id_}, 400) for id_ in ("", None, 1, {}, "m" * 201, "\ud83d", "a\nb")),
        *(({**GOOD, "chatId": id_}, 400) for id_ in (1, "", "c" * 201, "\x00")),
        ({**GOOD, "more": "x" * 5000}, 413),
    ],
)
async def test_what_is_no_verdict_is_refused(body, status):
    """Anybody can post anything: the hook sees only two ids and +1 or -1."""
    got: list[RelayFeedback] = []
    async with feedback_page(on_feedback=got.append) as page:
        assert (await send(page, body))[0] == status
    assert got == []


async def test_another_sites_form_is_refused():
    """A form of another site cannot send JSON without asking first."""
    got: list[RelayFeedback] = []
    async with feedback_page(on_feedback=got.append) as page:
        assert (await send(page, **{"content-type": "text/plain"}))[0] == 415
    assert got == []


async def test_verdicts_are_limited_like_questions():
    """The rate hook decides before the body is read."""
    got: list[RelayFeedback] = []
    waits = {"eve": 7.0}
    async with feedback_page(on_feedback=got.append, rate=lambda user, request: waits.get(user)) as page:
        page.user = "eve"
        status, text, headers = await send(page, b"{")
        assert (status, headers["retry-after"]) == (429, "7")
        assert text == "Too many questions. Please wait a moment and try again."
        page.user = "ada"
        assert (await send(page))[0] == 204
    assert [feedback.user for feedback in got] == ["ada"]


async def test_without_a_hook_there_is_no_such_path():
    """An app that does not want verdicts takes none."""
    async with LocalService() as service, service.session() as session:
        async with page_of(fastapi_app(session)) as page:
            assert (await send(page))[0] == 404
        with pytest.raises(ConfigurationError, match="on_feedback"):
            Relay(session, secrets=[SECRET], on_feedback="store")  # type: ignore[arg-type] - what is tested
