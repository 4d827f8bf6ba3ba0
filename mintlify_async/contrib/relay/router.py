"""A relay → the routes of a FastAPI or Starlette app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mintlify_async.errors import ConfigurationError

from .relay import Relay, RelaySettings

if TYPE_CHECKING:
    from fastapi import APIRouter

    from mintlify_async.session import MintlifySession

__all__ = ["relay_router", "relay_routes"]


def relay_router(
    session: MintlifySession, *, path: str = "/api/chat", user: Any = None, **settings: Unpack[RelaySettings]
) -> APIRouter:
    """Return a FastAPI router that answers ``useChat`` pages: ``app.include_router(relay_router(...))``.

    Args:
        session: Asks the assistant; yours to close.
        path: Where the page posts to.
        user: Tells who asks: a function of the request, as for :class:`Relay`,
            or ``Depends(current_user)`` with a dependency of your own that
            returns the user's id.
        settings: Everything else that :class:`Relay` takes; ``secrets`` is required.

    Raises:
        ConfigurationError: An argument is missing or wrong; it names which.
    """
    from fastapi import APIRouter  # here, so that Starlette alone is enough for relay_routes
    from fastapi.params import Depends

    _check(path, user)
    router = APIRouter()
    if isinstance(user, Depends):
        relay = Relay(session, **settings)

        async def answer_user(request: Request, user: Any = user) -> Response:
            return await relay.respond(request, user=cast("str | None", user) or "")

        answer: Any = answer_user
    else:
        relay = Relay(session, user=user, **settings)

        async def answer_request(request: Request) -> Response:
            return await relay.respond(request)

        answer = answer_request
    options: dict[str, Any] = {"response_model": None, "include_in_schema": False}
    router.add_api_route(path, answer, methods=["POST"], **options)
    router.add_api_route(_resume_path(path), relay.resume, methods=["GET"], **options)
    return router


def relay_routes(
    session: MintlifySession, *, path: str = "/api/chat", user: Any = None, **settings: Unpack[RelaySettings]
) -> list[Route]:
    """Return Starlette routes that answer ``useChat`` pages: ``Starlette(routes=[*relay_routes(...)])``.

    Args:
        session: Asks the assistant; yours to close.
        path: Where the page posts to.
        user: Tells who asks: a function of the request, as for :class:`Relay`.
        settings: Everything else that :class:`Relay` takes; ``secrets`` is required.

    Raises:
        ConfigurationError: An argument is missing or wrong; it names which.
    """
    _check(path, user)
    relay = Relay(session, user=user, **settings)
    return [
        Route(path, relay.respond, methods=["POST"]),
        Route(_resume_path(path), relay.resume, methods=["GET"]),
    ]


def _check(path: str, user: object) -> None:
    if not path.startswith("/"):
        raise ConfigurationError('path must begin with "/"', field="path")
    if user is None:
        raise ConfigurationError(
            "user is missing: pass a function that takes the request and returns the user's id, "
            "or an id of the browser for people without an account",
            field="user",
        )


def _resume_path(path: str) -> str:
    """Where a page asks for a stream to go on with; ai 5.0.0 puts the chat's id in as it is, slashes too."""
    return f"{path.rstrip('/')}/{{chat_id:path}}/stream"
