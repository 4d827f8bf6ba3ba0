"""The relay in other frameworks than FastAPI: each answers, refuses, and stops for a reader who left."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

pytest.importorskip("fastapi")

from aiohttp import web
from relay_desk import HEAD, TURN, x_user
from relay_kit import SECRET, Page, events, pseudonym, serving, until, user_message
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import Relay, RelayFeedback, RelayLimits
from mintlify_async.contrib.relay.adapters import PageRoute, asgi_app
from mintlify_async.testing import LocalService


def user_of(request: Request) -> str:
    """The tests' own authentication, which refuses by an error of Starlette's."""
    if request.headers.get("x-user") == "mallory":
        raise HTTPException(403, "Not you.", {"x-why": "banned"})
    return x_user(request)


@asynccontextmanager
async def by_uvicorn(app: Any) -> AsyncIterator[str]:
    async with serving(app, lifespan="auto") as address:
        yield address


def in_starlette(relay: Relay) -> Any:
    return by_uvicorn(
        Starlette(routes=[Route("/own", lambda request: PlainTextResponse("own")), *relay.routes()])
    )


def mounted_in_starlette(relay: Relay) -> Any:
    own = Route("/own", lambda request: PlainTextResponse("own"))
    return by_uvicorn(Starlette(routes=[own, Mount("/api", relay.app(path="/chat"))]))


def in_front_of_starlette(relay: Relay) -> Any:
    async def own(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.url_for("own").path.strip("/"))

    return by_uvicorn(relay.app(rest=Starlette(routes=[Route("/own", own, name="own")])))


def mounted_in_litestar(relay: Relay) -> Any:
    litestar = pytest.importorskip("litestar", reason="litestar is missing")

    @litestar.get("/own", media_type="text/plain")
    async def own() -> str:
        return "own"

    chat = litestar.asgi("/api/chat", is_mount=True, copy_scope=True)(relay.app(path="/"))
    return by_uvicorn(litestar.Litestar([own, chat]))


def in_quart(relay: Relay) -> Any:
    quart = pytest.importorskip("quart", reason="quart is missing")
    app = quart.Quart("app")

    @app.get("/own")
    async def own() -> str:
        return "own"

    app.asgi_app = relay.app(rest=app.asgi_app)
    return by_uvicorn(app)


def in_front_of_django(relay: Relay) -> Any:
    django = pytest.importorskip("django", reason="django is missing")
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import HttpResponse
    from django.urls import path

    async def own(request: Any) -> Any:
        return HttpResponse("own")

    if not settings.configured:
        settings.configure(ROOT_URLCONF=(), ALLOWED_HOSTS=["*"], SECRET_KEY="x", LOGGING_CONFIG=None)
        django.setup()
    settings.ROOT_URLCONF = (path("own", own),)
    return by_uvicorn(relay.app(rest=get_asgi_application()))


@asynccontextmanager
async def in_aiohttp(relay: Relay, **server: Any) -> AsyncIterator[str]:
    async def own(request: web.Request) -> web.Response:
        return web.Response(text="own")

    inner = web.Application()
    inner.add_routes(relay.aiohttp_routes(path="/chat"))
    app = web.Application()
    app.router.add_get("/own", own)
    app.add_subapp("/api/", inner)
    async with running(app, **server) as address:
        yield address


@asynccontextmanager
async def running(app: web.Application, **server: Any) -> AsyncIterator[str]:
    runner = web.AppRunner(app, **{"shutdown_timeout": 1.0, "lingering_time": 0.0, **server})
    await runner.setup()
    with contextlib.closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        await web.SockSite(runner, sock).start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            await runner.cleanup()


def in_cancelling_aiohttp(relay: Relay) -> Any:
    return in_aiohttp(relay, handler_cancellation=True)


HOMES = [
    in_starlette,
    mounted_in_starlette,
    in_front_of_starlette,
    mounted_in_litestar,
    in_quart,
    in_front_of_django,
    in_aiohttp,
    in_cancelling_aiohttp,
]


@pytest.fixture(params=HOMES, ids=lambda home: home.__name__)
async def home(request):
    """A page at a relay in each framework; the service, the relay and what the hooks were told beside it."""
    told: list[Any] = []
    async with LocalService() as service, service.session() as session:
        relay = Relay(
            session,
            secrets=[SECRET],
            user=user_of,
            on_finish=told.append,
            on_unfinished=told.append,
            on_feedback=told.append,
            limits=RelayLimits(body_bytes=100_000, body_seconds=0.3),
        )
        async with request.param(relay) as address, aiohttp.ClientSession() as http:
            yield Page(http, address), service, relay, told
            await until(lambda: not service.answering and not relay.streaming)


async def test_a_question_is_answered(home):
    """The answer streams, with the headers of a stream and none of ours for one hop; the app goes on, too."""
    page, service, _, told = home
    service.script.ask(events=TURN)
    status, body, headers = await page.post()
    assert (status, events(body)[-1]["type"]) == (200, "finish")
    assert headers["content-type"] == "text/event-stream"
    assert "content-length" not in headers
    assert service.requests[-1].json["fp"] == pseudonym("ada")
    assert [answer.outcome for answer in told] == ["finished"]
    async with page.http.get(f"{page.address}/own") as response:
        assert (response.status, await response.text()) == (200, "own")


async def test_events_come_as_they_are_made_until_the_reader_leaves(home):
    """The service is closed within a moment, though it is silent, and the hook hears that the reader left."""
    page, service, relay, told = home
    service.script.ask(events=[*HEAD, 60.0])
    async with page.request() as response:
        await response.content.readuntil(b"Hello ")
        assert service.answering == 1
        response.close()
    await until(lambda: told and not service.answering and not relay.streaming)
    assert service.requests[-1].client_left
    assert [answer.outcome for answer in told] == ["left"]


async def test_a_reader_who_leaves_before_the_answer(home):
    """The question is taken back, too, while the service has not said a word."""
    page, service, relay, _ = home
    service.script.ask(events=[60.0])
    asking = asyncio.create_task(page.post())
    await until(lambda: service.answering)
    asking.cancel()
    await until(lambda: not service.answering and not relay.streaming)
    assert service.requests[-1].client_left


async def test_the_other_paths(home):
    """Feedback and resuming are there; another method is refused, and so is a user whom the app refuses."""
    page, service, _, told = home
    url, headers = f"{page.address}/api/chat", {"x-user": "ada"}
    verdict = {"chatId": "c", "messageId": "m", "value": 1}
    async with page.http.post(f"{url}/feedback", json=verdict, headers=headers) as response:
        assert (response.status, await response.read()) == (204, b"")
    assert told == [RelayFeedback(user="ada", chat_id="c", message_id="m", value=1)]
    for chat in ("c", "a%2Fb%20%3F", "a/b"):
        async with page.http.get(f"{url}/{chat}/stream", headers=headers) as response:
            assert (response.status, await response.read()) == (204, b"")
    async with page.http.put(url, headers=headers) as response:
        assert response.status == 405
    page.user = "mallory"
    status, body, headers = await page.post()
    assert (status, body, headers["x-why"]) == (403, b"Not you.", "banned")
    page.user = ""
    assert (await page.post())[0] == 401
    assert service.requests == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_uploads_are_limited(home, chunked):
    """In size, whether the length is declared or not, and in time; nothing is asked."""
    page, service, _, _ = home

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 20_000

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)
        yield b"}"

    headers = {"content-type": "application/json", "x-user": "ada"}
    data: Any = pieces() if chunked else b" " * 400_000
    with contextlib.suppress(aiohttp.ClientConnectionError):  # it may be closed while more is on its way
        async with page.http.post(f"{page.address}/api/chat", data=data, headers=headers) as response:
            assert response.status == 413
    if chunked:
        async with page.http.post(f"{page.address}/api/chat", data=slowly(), headers=headers) as response:
            assert response.status == 408
    assert service.requests == []


@pytest.mark.parametrize("framing", [b"content-length: 100", b"transfer-encoding: chunked"])
async def test_a_reader_who_leaves_in_mid_upload(home, framing, caplog):
    """The place is free again, nothing is asked, and the log has no error."""
    page, service, relay, _ = home
    host, port = page.address.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /api/chat HTTP/1.1\r\nhost: x\r\nx-user: ada\r\ncontent-type: application/json\r\n"
    writer.write(head + framing + b"\r\n\r\n" + b"2\r\n{ \r\n")
    await until(lambda: relay.arriving)
    writer.close()
    await until(lambda: not relay.arriving)
    assert service.requests == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_aiohttps_own_request_is_there_for_the_hooks():
    """Its application, its session and its refusals: the hook is a function of the app."""
    seen: list[Any] = []

    def user(request: Request) -> str:
        own: web.Request = request.scope["aiohttp.request"]
        seen.append((own.remote, request.client and request.client.host, request.url.path))
        if own.query.get("who") is None:
            raise web.HTTPForbidden(text="no")
        return own.query["who"]

    async with LocalService() as service, service.session() as session:
        app = web.Application()
        app.add_routes(Relay(session, secrets=[SECRET], user=user).aiohttp_routes())
        async with running(app) as address, aiohttp.ClientSession() as http:
            body = {"messages": [user_message("q")]}
            async with http.post(f"{address}/api/chat", json=body) as response:
                assert (response.status, await response.text()) == (403, "no")
            async with http.post(f"{address}/api/chat?who=ada", json=body) as response:
                assert events(await response.read())[-1]["type"] == "finish"
        assert service.requests[-1].json["fp"] == pseudonym("ada")
        assert seen == [("127.0.0.1", "127.0.0.1", "/api/chat")] * 2


async def test_aiohttp_drains_on_shutdown():
    """It calls the hook before it waits for its connections."""
    told: list[Any] = []
    async with LocalService() as service, service.session() as session, aiohttp.ClientSession() as http:
        relay = Relay(session, secrets=[SECRET], user=x_user, on_unfinished=told.append)

        async def drain(app: web.Application) -> None:
            await relay.drain(0)

        app = web.Application()
        app.add_routes(relay.aiohttp_routes())
        app.on_shutdown.append(drain)
        service.script.ask(events=[*HEAD, 60.0])
        async with contextlib.AsyncExitStack() as stack:
            address = await stack.enter_async_context(running(app, shutdown_timeout=20))
            async with Page(http, address).request() as response:
                await response.content.readuntil(b"Hello ")
                stopping = asyncio.create_task(stack.aclose())
                assert events(await response.read())[-1]["type"] == "error"
                await stopping
        assert [answer.outcome for answer in told] == ["interrupted"]


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", ["/", "/api/chat"])
async def test_a_slash_at_the_end_changes_nothing(path, slash):
    """Litestar adds one: the same route answers, and the chat's id is the same."""

    def says(name: str) -> Callable[..., Any]:
        async def answer(request: Request) -> PlainTextResponse:
            return PlainTextResponse(f"{name} {request.path_params.get('chat_id')}")

        return answer

    table = [("POST", ""), ("GET", "/{chat_id:path}/stream"), ("GET", "/{chat_id:path}")]
    app = asgi_app([PageRoute(method, below, says(below)) for method, below in table], path, None)
    base = path.rstrip("/")
    async with by_uvicorn(app) as address, aiohttp.ClientSession() as http:
        for method, url, told in [
            ("POST", "", " None"),
            ("GET", "/a/b/stream", "/{chat_id:path}/stream a/b"),
            ("GET", "/a/b", "/{chat_id:path} a/b"),
        ]:
            async with http.request(method, f"{address}{base}{url}{slash}") as response:
                assert await response.text() == told


@pytest.mark.parametrize("make", ["router", "routes", "app", "aiohttp_routes"])
async def test_nothing_is_added_that_cannot_say_who_asks(make):
    """And a path begins with a slash."""
    async with LocalService() as service, service.session() as session:
        for settings, path, field in (({}, "/c", "user"), ({"user": x_user}, "c", "path")):
            add: Callable[..., Any] = getattr(Relay(session, secrets=[SECRET], **settings), make)
            with pytest.raises(ConfigurationError) as caught:
                add(path=path)
            assert caught.value.field == field
