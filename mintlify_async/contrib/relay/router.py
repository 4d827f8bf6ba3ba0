"""Routes for FastAPI and Starlette apps that answer pages with a relay, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from .relay import Relay, RelaySettings

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.routing import Route

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
    hook: Any = user if callable(user) else None  # FastAPI's Depends is not
    return Relay(session, user=hook, **settings).router(path=path, user=None if hook else user)


def relay_routes(
    session: MintlifySession, *, path: str = "/api/chat", user: Any = None, **settings: Unpack[RelaySettings]
) -> list[Route]:
    """Return Starlette routes that answer ``useChat`` pages: ``Starlette(routes=[*relay_routes(...)])``.

    The arguments and errors are those of :func:`relay_router`; *user* is a function of the request.
    """
    return Relay(session, user=user, **settings).routes(path=path)
