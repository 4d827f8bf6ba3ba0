"""Where the relay lives: FastAPI, and by a mount Starlette; and what its makers refuse."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from page_blocks import blocks_of

pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import mintlify_async
from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import MemoryStreamStore, Relay
from mintlify_async.storage import MemoryStore
from tests.support.relay_desk import TURN, desk, x_user
from tests.support.relay_kit import SECRET, Page, events, pseudonym, serving

DEPLOY = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "relay-deploy.md"


def user_of(request: Request) -> str:
    """The tests' own authentication, which refuses by an error of Starlette's."""
    if request.headers.get("x-user") == "mallory":
        raise HTTPException(403, "Not you.", {"x-why": "banned"})
    return x_user(request)


def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse("own")


def in_fastapi(relay: Relay, **settings: Any) -> Any:
    app = FastAPI()
    app.include_router(relay.router(**settings))
    app.add_route("/own", own)
    return app


def by_a_dependency(relay: Relay) -> Any:
    return in_fastapi(relay, user=Depends(user_of))


def mounted(relay: Relay) -> Any:
    return Starlette(routes=[Route("/own", own), Mount("/api", Starlette(routes=relay.routes(path="/chat")))])


def around_another_app(relay: Relay) -> Any:
    """As the page prints it, around an ASGI app of no framework."""
    (recipe,) = [block.text for block in blocks_of(DEPLOY) if "def with_relay" in block.text]
    names: dict[str, Any] = {}
    exec(recipe, names)
    return names["with_relay"](relay, PlainTextResponse("own"))


HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
    "connection": None,
    "content-length": None,
}


@pytest.mark.parametrize("home", [in_fastapi, by_a_dependency, mounted, around_another_app])
async def test_a_home(service, session, home):
    """It answers, keeps, resumes, refuses, and leaves the app its own paths."""
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


WRONG: list[tuple[Any, str]] = [
    (lambda relay: relay(secrets=[]), "secrets"),
    (lambda relay: relay(max_concurrent=0), "max_concurrent"),
    (lambda relay: relay(max_per_user=0), "max_per_user"),
    (lambda relay: relay(max_body_bytes=0), "max_body_bytes"),
    (lambda relay: relay(max_characters=0), "max_characters"),
    (lambda relay: relay(max_messages=0), "max_messages"),
    (lambda relay: relay(max_file_characters=0), "max_file_characters"),
    (lambda relay: relay(streams="redis://localhost"), "streams"),
    (lambda relay: relay(streams=MemoryStreamStore), "streams"),
    (lambda relay: relay(store="chats.sqlite"), "store"),
    (lambda relay: relay(user=None).routes(), "user"),
    (lambda relay: relay(user=None).router(), "user"),
    (lambda relay: relay(user=None).router(user=x_user), "user"),
    (lambda relay: relay().routes(path="c"), "path"),
    (lambda relay: relay().router(path="c"), "path"),
    (lambda relay: MemoryStreamStore(grace=-1), "grace"),
    (lambda relay: MemoryStreamStore(grace=True), "grace"),
    (lambda relay: MemoryStreamStore(keep=float("nan")), "keep"),
]


@pytest.mark.parametrize(("make", "field"), WRONG, ids=[field for _, field in WRONG])
async def test_bad_settings_are_named(session, make, field):
    """The error names the field, and is raised before any question is sent."""
    with pytest.raises(ConfigurationError) as caught:
        make(partial(Relay, session, secrets=[SECRET], user=x_user))
    assert caught.value.field == field


async def test_a_plain_hook_runs_in_a_thread():
    """A database query does not stop the other answers; an async one runs on the loop, an object, too."""
    threads: list[int] = []

    def user(request: Request) -> str:
        threads.append(threading.get_ident())
        return "ada"

    class Rate:
        async def __call__(self, user: str, request: Request) -> None:
            threads.append(threading.get_ident())

    async with desk(user=user, rate=Rate()) as here:
        assert (await here.page.post())[0] == 200
    assert [thread == threading.get_ident() for thread in threads] == [False, True]
