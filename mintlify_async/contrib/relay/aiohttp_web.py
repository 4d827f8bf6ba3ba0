"""Serves the relay's ASGI handlers with aiohttp.web."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from aiohttp import web
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request

from .adapters import PageRoute, full_path

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOK = 0.1  # seconds between two looks at whether readers have left


def aiohttp_routes(routes: Sequence[PageRoute], path: str) -> list[web.RouteDef]:
    """Return *routes* for ``aiohttp.web.Application.add_routes``."""
    connections = _Connections()
    made: list[web.RouteDef] = []
    for route in routes:
        pattern = full_path(path, route).replace(":path}", ":.+}")
        made.append(web.route(route.method, pattern, _handler(route, connections)))
    return made


def _handler(route: PageRoute, connections: _Connections) -> Callable[[web.Request], Awaitable[Any]]:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = await route.handler(Request(scope, receive, send))
        await response(scope, receive, send)

    app: ASGIApp = ExceptionMiddleware(answer)  # a refusal that the app's user hook raises

    async def run(exchange: _Exchange) -> None:
        try:
            await app(exchange.scope(), exchange.receive, exchange.send)
        except OSError:
            if not exchange.look():
                raise

    async def handle(request: web.Request) -> web.StreamResponse:
        exchange = _Exchange(request)
        with connections.watched(exchange):
            # In a task of its own: a server that cancels its handler when the reader leaves must not cancel
            # the answer, whose end would then be taken for the server's.
            running = asyncio.create_task(run(exchange))
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                if not exchange.look():
                    running.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([running])
                raise
        return exchange.response or web.Response(status=499)  # for logs: the reader has left

    return handle


class _Exchange:
    """One request of aiohttp.web and its response, as an ASGI application sees them."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._arrived = False  # whether the whole body was handed on
        self._left = asyncio.Event()
        self.response: web.StreamResponse | None = None

    def look(self) -> bool:
        """Return whether the reader has left."""
        if self._request.transport is None:
            self._left.set()
        return self._left.is_set()

    def scope(self) -> Scope:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.rel_url.raw_path.encode("ascii"),
            "query_string": request.rel_url.raw_query_string.encode("ascii"),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": (request.remote, 0) if request.remote else None,
            "path_params": dict(request.match_info),
            "aiohttp.request": request,
        }

    async def receive(self) -> Message:
        if not self._arrived:
            content = self._request.content
            try:
                piece = await content.readany()
            except (OSError, web.RequestPayloadError):
                return {"type": "http.disconnect"}
            self._arrived = not piece or content.at_eof()
            return {"type": "http.request", "body": piece, "more_body": not self._arrived}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.response is None:
            self.response = response = web.StreamResponse(status=message["status"])
            for name, value in message["headers"]:
                if name.lower() == b"connection":  # it is the server's: the relay sends "close" only
                    response.force_close()
                else:
                    response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
            await response.prepare(self._request)
            return
        if message.get("body"):
            await self.response.write(message["body"])
        if not message.get("more_body"):
            await self.response.write_eof()


class _Connections:
    """Looks for readers who have left, since aiohttp.web tells only a handler that reads or writes."""

    def __init__(self) -> None:
        self._open: set[_Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watched(self, exchange: _Exchange) -> Generator[None]:
        self._open.add(exchange)
        if self._timer is None:
            self._look()
        try:
            yield
        finally:
            self._open.discard(exchange)
            if not self._open and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look(self) -> None:
        for exchange in self._open:
            exchange.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)
