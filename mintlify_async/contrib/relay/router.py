"""Routes for FastAPI and Starlette apps that answer pages with a relay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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

Handler = Callable[..., Awaitable[Response]]


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
    depends = isinstance(user, Depends)
    relay = Relay(session, user=None if depends else user, **settings)

    def route(handler: Handler) -> Any:
        async def with_user(request: Request, user: Any = user) -> Response:
            return await handler(request, user=user or "")

        async def without(request: Request) -> Response:
            return await handler(request)

        return with_user if depends and handler is not _nothing_runs else without

    options: dict[str, Any] = {"response_model": None, "include_in_schema": False}
    for method, at, handler in _routes(path, relay, settings):
        router.add_api_route(at, route(handler), methods=[method], **options)
    return router


def relay_routes(
    session: MintlifySession, *, path: str = "/api/chat", user: Any = None, **settings: Unpack[RelaySettings]
) -> list[Route]:
    """Return Starlette routes that answer ``useChat`` pages: ``Starlette(routes=[*relay_routes(...)])``.

    The arguments and errors are those of :func:`relay_router`; *user* is a function of the request.
    """
    _check(path, user)
    relay = Relay(session, user=user, **settings)
    return [Route(at, handler, methods=[method]) for method, at, handler in _routes(path, relay, settings)]


def _check(path: str, user: object) -> None:
    if not (isinstance(path, str) and path.startswith("/")):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigurationError('path must begin with "/"', field="path")
    if user is None:
        raise ConfigurationError(
            "user is missing: pass a function that takes the request and returns the user's id, "
            "or an id of the browser for people without an account",
            field="user",
        )


def _routes(path: str, relay: Relay, settings: RelaySettings) -> list[tuple[str, str, Handler]]:
    """Return the method, path and handler of each route."""
    base = path.rstrip("/")
    chat = f"{base}/{{chat_id:path}}"  # ai 5.0.0 does not encode slashes in the chat's id
    routes: list[tuple[str, str, Handler]] = [
        ("POST", path, relay.respond),
        ("POST", f"{base}/feedback", relay.feedback),
    ]
    if settings.get("streams") is None:
        routes.append(("GET", f"{chat}/stream", _nothing_runs))
    else:
        routes += [("GET", f"{chat}/stream", relay.resume), ("DELETE", f"{chat}/stream", relay.stop)]
    if settings.get("store") is not None:
        routes.append(("GET", chat, relay.history))
    return routes


async def _nothing_runs(request: Request) -> Response:
    """Answer a page that asks to resume a stream, where no answer outlives its reader."""
    return Response(status_code=204)
