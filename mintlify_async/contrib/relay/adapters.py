"""Turns one table of the relay's routes into the routes of each framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router

from mintlify_async import ConfigurationError

from .. import extra_missing

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.types import ASGIApp, Receive, Scope, Send


class PageRoute(NamedTuple):
    """The handler for one kind of request that a page sends.

    Attributes:
        method: The HTTP method.
        below: The path below the path of the questions, in Starlette's form.
        handler: Takes the request and, by name, the user's id, or None to call the user hook.
    """

    method: str
    below: str
    handler: Callable[..., Awaitable[Response]]


def full_path(path: str, route: PageRoute) -> str:
    """Return the whole path of *route* where pages post their questions to *path*.

    Raises:
        ConfigurationError: *path* does not begin with a slash.
    """
    if not (isinstance(path, str) and path.startswith("/")):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigurationError('path must begin with "/"', field="path")
    return path.rstrip("/") + route.below or "/"


def starlette_routes(routes: Sequence[PageRoute], path: str) -> list[Route]:
    """Return *routes* for Starlette."""
    return [Route(full_path(path, route), route.handler, methods=[route.method]) for route in routes]


def fastapi_router(routes: Sequence[PageRoute], path: str, user: Any) -> APIRouter:
    """Return *routes* for FastAPI; *user* is None, or a dependency that returns the user's id."""
    try:
        from fastapi import APIRouter  # here, because the others need Starlette only
        from fastapi.params import Depends
    except ModuleNotFoundError as error:
        raise extra_missing("relay", error) from None
    if not (user is None or isinstance(user, Depends)):  # FastAPI would let the page choose it in the query
        raise ConfigurationError(
            "user must be Depends(your_dependency); give a function of the request to Relay(user=...)",
            field="user",
        )

    def endpoint(route: PageRoute) -> Any:
        async def answer(request: Request) -> Response:
            return await route.handler(request)

        async def answer_user(request: Request, user: Any = user) -> Response:
            return await route.handler(request, user=user or "")

        return answer if user is None else answer_user

    router = APIRouter()
    for route in routes:
        router.add_api_route(
            full_path(path, route),
            endpoint(route),
            methods=[route.method],
            response_model=None,
            include_in_schema=False,
        )
    return router


def asgi_app(routes: Sequence[PageRoute], path: str, rest: ASGIApp | None) -> ASGIApp:
    """Return an ASGI application of *routes*; *rest* gets all other requests."""
    # Litestar adds a slash to the path of a mounted application: it must not end up in the chat's id.
    pairs = ((PageRoute(route.method, f"{route.below}/", route.handler), route) for route in routes)
    own = starlette_routes([route for pair in pairs for route in pair], path)
    relay = ExceptionMiddleware(Router(own))
    if rest is None:
        return relay

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and any(route.matches(scope)[0] is not Match.NONE for route in own)
        if ours:
            await relay({**scope}, receive, send)
        else:
            await rest(scope, receive, send)

    return app
