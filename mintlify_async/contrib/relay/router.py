"""Routes for FastAPI and Starlette apps that answer pages with a relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mintlify_async import ConfigurationError

from .. import extra_missing
from .relay import Relay, RelaySettings

if TYPE_CHECKING:
    from fastapi import APIRouter

    from mintlify_async import MintlifySession


def relay_router(
    session: MintlifySession, *, path: str = "/api/chat", user: Any = None, **settings: Unpack[RelaySettings]
) -> APIRouter:
    """Return a FastAPI router that answers ``useChat`` pages: ``app.include_router(relay_router(...))``.

    Args:
        session: The session that asks the assistant. The relay never closes it.
        path: The path that pages post to.
        user: Identifies the user: a function of the request, as for :class:`Relay`, or
            ``Depends(current_user)`` with a dependency of your own that returns the user's id.
        settings: The other arguments of :class:`Relay`; ``secrets`` is required.

    Raises:
        ConfigurationError: An argument is missing or invalid; ``.field`` names it.
    """
    try:
        from fastapi import APIRouter  # here, because relay_routes needs Starlette only
        from fastapi.params import Depends
    except ModuleNotFoundError as error:
        raise extra_missing("relay", error) from None

    _check(path, user)
    router = APIRouter()
    if isinstance(user, Depends):
        relay = Relay(session, **settings)

        async def answer_user(request: Request, user: Any = user) -> Response:
            return await relay.respond(request, user=user or "")

        async def feedback_user(request: Request, user: Any = user) -> Response:
            return await relay.feedback(request, user=user or "")

        async def history_user(request: Request, user: Any = user) -> Response:
            return await relay.history(request, user=user or "")

        answer: Any = answer_user
        feedback: Any = feedback_user
        history: Any = history_user
    else:
        relay = Relay(session, user=user, **settings)

        async def answer_request(request: Request) -> Response:
            return await relay.respond(request)

        async def feedback_request(request: Request) -> Response:
            return await relay.feedback(request)

        async def history_request(request: Request) -> Response:
            return await relay.history(request)

        answer, feedback, history = answer_request, feedback_request, history_request
    options: dict[str, Any] = {"response_model": None, "include_in_schema": False}
    router.add_api_route(path, answer, methods=["POST"], **options)
    router.add_api_route(_feedback_path(path), feedback, methods=["POST"], **options)
    router.add_api_route(_resume_path(path), relay.resume, methods=["GET"], **options)
    if settings.get("store") is not None:
        router.add_api_route(_history_path(path), history, methods=["GET"], **options)
    return router


def relay_routes(
    session: MintlifySession, *, path: str = "/api/chat", user: Any = None, **settings: Unpack[RelaySettings]
) -> list[Route]:
    """Return Starlette routes that answer ``useChat`` pages: ``Starlette(routes=[*relay_routes(...)])``.

    The arguments and errors are those of :func:`relay_router`; *user* is a function of the request.
    """
    _check(path, user)
    relay = Relay(session, user=user, **settings)
    routes = [
        Route(path, relay.respond, methods=["POST"]),
        Route(_feedback_path(path), relay.feedback, methods=["POST"]),
        Route(_resume_path(path), relay.resume, methods=["GET"]),
    ]
    if settings.get("store") is not None:
        routes.append(Route(_history_path(path), relay.history, methods=["GET"]))
    return routes


def _check(path: str, user: object) -> None:
    if not (isinstance(path, str) and path.startswith("/")):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigurationError('path must begin with "/"', field="path")
    if user is None:
        raise ConfigurationError(
            "user is missing: pass a function that takes the request and returns the user's id, "
            "or an id of the browser for people without an account",
            field="user",
        )


def _feedback_path(path: str) -> str:
    return f"{path.rstrip('/')}/feedback"


def _resume_path(path: str) -> str:
    """Return the path at which pages ask to resume; ai 5.0.0 does not encode slashes in the chat's id."""
    return f"{_history_path(path)}/stream"


def _history_path(path: str) -> str:
    return f"{path.rstrip('/')}/{{chat_id:path}}"
