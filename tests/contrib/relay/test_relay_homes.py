"""Where the relay lives: FastAPI, Starlette, and by a mount any ASGI app; and what its makers refuse."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import MemoryStreamStore, Relay
from mintlify_async.storage import MemoryStore
from mintlify_async.testing import LocalService
from tests.support.relay_desk import TURN, x_user
from tests.support.relay_kit import SECRET, Page, events, pseudonym, serving


def user_of(request: Request) -> str:
    """The tests' own authentication, which refuses by an error of Starlette's."""
    if request.headers.get("x-user") == "mallory":
        raise HTTPException(403, "Not you.", {"x-why": "banned"})
    return x_user(request)


def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse("own")


async def other(scope: Any, receive: Any, send: Any) -> None:
    """An app of another framework."""
    await PlainTextResponse("own")(scope, receive, send)


def in_fastapi(relay: Relay) -> Any:
    app = FastAPI()
    app.include_router(relay.router())
    app.add_route("/own", own)
    return app


def by_a_dependency(relay: Relay) -> Any:
    app = FastAPI()
    app.include_router(relay.router(user=Depends(user_of)))
    app.add_route("/own", own)
    return app


def in_starlette(relay: Relay) -> Any:
    return Starlette(routes=[Route("/own", own), *relay.routes()])


def mounted(relay: Relay) -> Any:
    return Starlette(routes=[Route("/own", own), Mount("/api", Starlette(routes=relay.routes(path="/chat")))])


def around_another_framework(relay: Relay) -> Any:
    return Starlette(routes=[*relay.routes(), Mount("/", other)])


HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
    "connection": None,
    "content-length": None,
}


@pytest.mark.parametrize(
    "home", [in_fastapi, by_a_dependency, in_starlette, mounted, around_another_framework]
)
async def test_a_home(home):
    """It answers, keeps, resumes, refuses, and leaves the app its own paths."""
    async with LocalService() as service, service.session() as session:
        service.script.ask(events=TURN)
        stores: dict[str, Any] = {"store": MemoryStore(), "streams": MemoryStreamStore()}
        relay = Relay(session, secrets=[SECRET], user=user_of, **stores)
        async with serving(home(relay)) as address, aiohttp.ClientSession() as http:
            page = Page(http, address)
            status, body, headers = await page.post()
            assert (status, events(body)[-1]["type"]) == (200, "finish")
            for name, value in HEADERS.items():
                assert headers.get(name) == value
            assert service.requests[-1].json["fp"] == pseudonym("ada")
            assert (await page.history())[1][0]["id"] == "u1"
            assert (await page.resume(params={"after": "u1"}))[0] == 200
            for chat in ("c", "a%2Fb%20%3F", "a/b"):
                assert await page.resume(chat=chat) == (204, b"")
                assert await page.stop(chat=chat) == 204
            async with http.put(f"{address}/api/chat") as response:
                assert response.status in (200, 405)
            async with http.get(f"{address}/own") as response:
                assert await response.text() == "own"
            page.user = "mallory"
            status, body, headers = await page.post()
            assert (status, headers["x-why"]) == (403, "banned")
            page.user = ""
            assert (await page.post())[0] == 401
            assert len(service.requests) == 1


@pytest.mark.parametrize("make", ["router", "routes"])
async def test_nothing_is_added_that_cannot_say_who_asks(make):
    """And a path begins with a slash."""
    async with LocalService() as service, service.session() as session:
        for settings, path, field in (({}, "/c", "user"), ({"user": x_user}, "c", "path")):
            with pytest.raises(ConfigurationError) as caught:
                getattr(Relay(session, secrets=[SECRET], **settings), make)(path=path)
            assert caught.value.field == field
        with pytest.raises(ConfigurationError) as caught:
            Relay(session, secrets=[SECRET]).router(user=x_user)
        assert caught.value.field == "user"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"secrets": []}, "secrets"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"max_per_user": 0}, "max_per_user"),
        ({"max_body_bytes": 0}, "max_body_bytes"),
        ({"max_characters": 0}, "max_characters"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_file_characters": 0}, "max_file_characters"),
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
    """A bad setting is refused before any question."""
    with pytest.raises(ConfigurationError) as caught:
        MemoryStreamStore(**wrong)
    assert caught.value.field == next(iter(wrong))


async def test_a_plain_hook_runs_in_a_thread():
    """A database query does not stop the other answers; an async one runs on the loop, an object, too."""
    import threading

    threads: list[int] = []

    def user(request: Request) -> str:
        threads.append(threading.get_ident())
        return "ada"

    class Rate:
        async def __call__(self, user: str, request: Request) -> None:
            threads.append(threading.get_ident())

    async with LocalService() as service, service.session() as session:
        app = Starlette(routes=Relay(session, secrets=[SECRET], user=user, rate=Rate()).routes())
        async with serving(app) as address, aiohttp.ClientSession() as http:
            assert (await Page(http, address).post())[0] == 200
    assert [thread == threading.get_ident() for thread in threads] == [False, True]
