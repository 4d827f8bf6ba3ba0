"""The relay in an app: FastAPI, Starlette, a handler of one's own, middleware."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI, Header, HTTPException
from relay_desk import HEAD, page_of, x_user
from relay_kit import SECRET, events, pseudonym, until, user_message
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from mintlify_async import ConfigurationError
from mintlify_async.contrib.relay import (
    OpenReply,
    Relay,
    RelayedAnswer,
    RelayResponse,
    relay_router,
    relay_routes,
)
from mintlify_async.testing import LocalService


async def current_user(x_user: Annotated[str, Header()]) -> str:
    """An app's own dependency."""
    if x_user == "nobody":
        raise HTTPException(401, "who are you?")
    return f"user-{x_user}"


@pytest.mark.parametrize("user", [x_user, Depends(current_user)], ids=["function", "dependency"])
async def test_three_lines_in_a_fastapi_app(user):
    """The router answers questions, resumes nothing, and takes no other method."""
    async with LocalService() as service, service.session() as session:
        app = FastAPI()
        app.include_router(relay_router(session, secrets=[SECRET], user=user))
        async with page_of(app) as page:
            assert events(await page.ask(user_message("q")))[-1]["type"] == "finish"
            assert service.requests[-1].json["fp"] in (pseudonym("ada"), pseudonym("user-ada"))
            for chat in ("c", "a%2Fb%20%3F", "a/b"):
                stream = f"{page.address}/api/chat/{chat}/stream"
                async with page.http.get(stream, headers={"x-user": "ada"}) as response:
                    assert (response.status, await response.read()) == (204, b"")
            for method in ("GET", "PUT", "DELETE"):
                async with page.http.request(method, f"{page.address}/api/chat") as response:
                    assert response.status == 405
            if user is not x_user:
                page.user = "nobody"
                assert (await page.post())[0] == 401


async def test_routes_of_a_starlette_app():
    """The routes work in Starlette without FastAPI, and under another path."""
    async with LocalService() as service, service.session() as session:
        app = Starlette(routes=relay_routes(session, secrets=[SECRET], user=x_user, path="/chat"))
        async with page_of(app) as page:
            page.address += "/chat/../"
            async with page.http.post(
                page.address + "chat",
                json={"messages": [user_message("q")]},
                headers={"x-user": "ada"},
            ) as response:
                assert events(await response.read())[-1]["type"] == "finish"
            async with page.http.get(page.address + "chat/c/stream") as response:
                assert response.status == 204


async def test_a_page_cannot_choose_the_user():
    """FastAPI would read any other default of the parameter from the query."""
    async with LocalService() as service, service.session() as session:
        with pytest.raises(ConfigurationError, match="Depends"):
            relay_router(session, secrets=[SECRET], user="ada")
        for user in (x_user, "ada"):
            with pytest.raises(ConfigurationError, match="Depends"):
                Relay(session, secrets=[SECRET], user=x_user).router(user=user)


@pytest.mark.parametrize("make", [relay_router, relay_routes])
async def test_an_app_must_say_who_asks(make):
    """The user has no default: an anonymous page needs an id of its own."""
    async with LocalService() as service, service.session() as session:
        for settings, field in (({}, "user"), ({"user": x_user, "path": "chat"}, "path")):
            with pytest.raises(ConfigurationError) as caught:
                make(session, secrets=[SECRET], **settings)
            assert caught.value.field == field


async def test_a_handler_of_ones_own():
    """A handler may open the answer by a dependency, or respond in one call."""
    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)
        app = FastAPI()

        @app.post("/api/chat")
        async def chat(opened: OpenReply = Depends(relay.opened)) -> Response:  # noqa: B008 - FastAPI's own way
            response = RelayResponse(opened)
            response.set_cookie("seen", opened.user)
            return response

        @app.post("/unused")
        async def unused(opened: OpenReply = Depends(relay.opened)) -> str:  # noqa: B008 - FastAPI's own way
            return "nothing of it is read"

        @app.post("/own")
        async def own(request: Request) -> Response:
            return await relay.respond(request, user="somebody")

        async with page_of(app) as page:
            status, body, headers = await page.post()
            assert (status, events(body)[-1]["type"]) == (200, "finish")
            assert headers["set-cookie"].startswith("seen=ada")
            status, body, headers = await page.post({"messages": []})
            assert (status, json.loads(body)) == (400, {"detail": "The question has no messages."})
            page.address += "/own?"
            assert (await page.post())[0] == 200
            assert service.requests[-1].json["fp"] == pseudonym("somebody")
            page.address = page.address.replace("/own?", "/unused?")
            assert (await page.post())[0] == 200
            await until(lambda: not service.answering and not relay.streaming)


async def test_common_middleware_in_front():
    """Behind compression, CORS and a wrapper the answer streams, and a reader who leaves is noticed."""

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            return await call_next(request)

    async with LocalService() as service, service.session() as session:
        told: list[str] = []

        def tell(answer: RelayedAnswer) -> None:
            told.append(answer.outcome)

        relay = Relay(session, secrets=[SECRET], user=x_user, on_unfinished=tell)
        app = Starlette()
        app.add_route("/api/chat", relay.respond, methods=["POST"])
        app.add_middleware(GZipMiddleware)
        app.add_middleware(CORSMiddleware, allow_origins=["https://docs.example"])
        app.add_middleware(Passing)
        async with page_of(app) as page:
            service.script.ask(events=[*HEAD, 60.0])
            async with page.request(headers={"origin": "https://docs.example"}) as response:
                assert "content-encoding" not in response.headers
                assert response.headers["access-control-allow-origin"] == "https://docs.example"
                await response.content.readuntil(b"Hello ")
            await until(lambda: told and not service.answering and not relay.streaming)
            assert told == ["left"]
