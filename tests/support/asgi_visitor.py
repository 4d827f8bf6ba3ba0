"""Sends requests to an ASGI app as a server does, from any IP address and at any pace."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Visit:
    """One request. It stays open until its response has ended, or until :meth:`leave`.

    Args:
        app: The app.
        client: The IP address of the client, as the server gives it. None: the server gives none.
        user: The name of the user.
        method: The method.
        path: The path.
        body: The body as JSON, or its first bytes, after which nothing more comes.
    """

    def __init__(
        self,
        app: Any,
        client: str | None,
        user: str,
        *,
        method: str = "POST",
        path: str = "/api/chat",
        body: Any = None,
    ) -> None:
        self.headers: dict[str, str] = {}
        self.content = b""
        self._half = isinstance(body, bytes)
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._sent = False
        self._left = asyncio.Event()
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"x-user", user.encode())],
            "client": None if client is None else (client, 50_000),
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def status(self) -> int:
        """Return the status of the response as soon as it has started."""
        await asyncio.wait([self._status, self.task], return_when=asyncio.FIRST_COMPLETED)
        if not self._status.done():
            await self.task
        return self._status.result()

    async def read(self) -> bytes:
        """Return the complete body of the response."""
        await self.task
        return self.content

    async def leave(self) -> None:
        """Close the connection, and wait until the app has ended the response."""
        self._left.set()
        await asyncio.wait([self.task])

    async def _receive(self) -> Any:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body, "more_body": self._half}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self._status.set_result(message["status"])
        else:
            self.content += message["body"]
