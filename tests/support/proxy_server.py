"""A proxy on loopback that connects its clients with the local service, also through a tunnel."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from mintlify_async.testing import LocalService


class Proxy:
    """A proxy that connects each client with one service, whatever host the client names.

    Attributes:
        requests: The first request of each connection: its first line, and its ``Proxy-Authorization``.
        url: Its URL.
    """

    def __init__(self, service: LocalService, context: ssl.SSLContext | None) -> None:
        self.requests: list[tuple[str, str]] = []
        self._service, self._context = service, context
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._context else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        head = await reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        sent = {name.lower(): value for name, _, value in (one.partition(": ") for one in headers)}
        self.requests.append((line, sent.get("proxy-authorization", "")))
        there, to_service = await asyncio.open_connection("127.0.0.1", self._service.port)
        if line.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            to_service.write(head.replace(b" http://service.test/", b" /", 1))
        await asyncio.gather(copy(reader, to_service), copy(there, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
