"""A server of plain asyncio streams. It shares no code with the testing kit, nor what the kit assumes."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For ``SO_LINGER``: closing sends RST instead of FIN."""

JOB = {"id": "job_1", "status": "completed", "prLink": "https://github.com/acme/docs/pull/1"}

EVENTS = [
    {"type": "start"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Press the button."},
    {"type": "text-end", "id": "0"},
    {"type": "finish"},
]
"""A complete answer."""


def job_answer() -> bytes:
    """Return a response with the record of a job that has ended."""
    body = json.dumps(JOB).encode()
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


def stream_answer() -> bytes:
    """Return a response with a complete answer of the assistant."""
    body = (
        b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


class Connection:
    """One connection to a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.left = 0  # bytes of the body that were not read

    async def head(self) -> str:
        """Return the request line, when the complete head has arrived."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        self.left = int(lengths[0].split(b":")[1]) if lengths else 0
        return head.split(b"\r\n", 1)[0].decode()

    async def body(self, most: float = float("inf")) -> None:
        """Read the rest of the body, or *most* bytes of it."""
        size = int(min(most, self.left))
        await self.reader.readexactly(size)
        self.left -= size

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def lose(self, how: str) -> None:
        """End the connection: ``fin`` closes it, ``rst`` resets it."""
        if how == "rst":
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.writer.transport.abort()
        else:
            self.writer.close()


class RawServer:
    """Serves each connection by *play*. ``requests`` has the request lines that arrived."""

    def __init__(self, play: Callable[[Connection, str], Awaitable[Any]]) -> None:
        self.play = play
        self.requests: list[str] = []
        self._connections: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def count(self, method: str) -> int:
        """Return how many requests of *method* arrived."""
        return sum(line.startswith(f"{method} ") for line in self.requests)

    async def until(self, amount: int) -> None:
        """Wait until *amount* requests have arrived."""
        async with asyncio.timeout(20):
            while len(self.requests) < amount:
                await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = Connection(reader, writer)
        try:
            while not writer.is_closing():
                line = await connection.head()
                self.requests.append(line)
                await self.play(connection, line)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has left, or the server stops
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**16)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections)
