"""A connection on which faults write the bytes of an HTTP response, so that they can break it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Literal

from .http_answer import Answer, Pause, Piece, let_client_read, merge_headers

Ending = Literal["fin", "rst", "hang"]
"""How a connection ends: ``fin`` closes it, ``rst`` resets it, ``hang`` leaves it open and silent."""

WRITE_BUFFER_BYTES = 256 * 1024
"""How many bytes may wait for a slow client before a fault stops writing."""


class RawWire:
    r"""One client connection, for faults that write bytes without the rules of HTTP.

    Your own :class:`Fault` gets one in ``play``::

        class Hiccup(Fault):
            async def play(self, wire: RawWire, answer: Answer) -> None:
                await wire.send(b"HTTP/1.1 200 OK\r\n")
                await wire.pause(30)
                wire.rst()

    Args:
        transport: The connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    async def send(self, data: bytes) -> None:
        """Write *data* in one piece. Wait while the client reads too slowly."""
        self._transport.write(data)
        await let_client_read()
        # Polled, because only the protocol of the transport gets a callback when there is room again.
        seconds = 0.001
        while self._transport.get_write_buffer_size() > WRITE_BUFFER_BYTES:
            await asyncio.sleep(seconds)
            seconds = min(1.0, 2 * seconds)

    async def send_all(self, pieces: Iterable[Piece]) -> None:
        """Write each piece separately. A :class:`Pause` waits."""
        for piece in pieces:
            if isinstance(piece, Pause):
                await self.pause(piece.seconds)
            else:
                await self.send(piece)

    async def pause(self, seconds: float) -> None:
        """Send nothing for *seconds*."""
        await asyncio.sleep(seconds)

    async def hang(self) -> None:
        """Send nothing until the client disconnects or the service stops."""
        await asyncio.Event().wait()

    def fin(self) -> None:
        """Close the connection after all written bytes are sent."""
        self._transport.close()

    def rst(self) -> None:
        """Reset the connection. The client loses all unread bytes."""
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        if sock is not None:  # lingering for zero seconds makes the system send a reset
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def end(self, how: Ending) -> None:
        """End the connection with ``fin``, ``rst`` or ``hang``."""
        if how == "hang":
            await self.hang()
        elif how == "rst":
            self.rst()
        else:
            self.fin()


def head(answer: Answer, framing: Mapping[str, str]) -> bytes:
    """Return the status line and the headers, with ``Connection: close``. A fault uses up its connection."""
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Unknown"
    headers = merge_headers({"Connection": "close"}, merge_headers(answer.headers, framing))
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def framing_of(answer: Answer, size: int | None = None) -> dict[str, str]:
    """Return the header that frames a body of *size* bytes (default: the size of *answer*)."""
    if answer.chunked:
        return {"Transfer-Encoding": "chunked"}
    return {"Content-Length": str(len(answer.content) if size is None else size)}


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk. An empty one ends the body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def framed(pieces: Iterable[Piece], *, chunked: bool, ended: bool = False) -> Iterator[Piece]:
    """Yield *pieces*. If the body is *chunked*, yield HTTP chunks, and the last chunk if it is *ended*."""
    for piece in pieces:
        yield chunk(piece) if chunked and isinstance(piece, bytes) else piece
    if chunked and ended:
        yield chunk(b"")


def split_body(answer: Answer, at: int) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces before and after byte *at* of the body. A negative *at* counts from the end."""
    size = len(answer.content)
    bytes_left = max(0, size + at) if at < 0 else min(at, size)
    pieces_before, pieces_after = list[Piece](), list[Piece]()
    for piece in answer.body:
        if bytes_left <= 0:
            pieces_after.append(piece)
        elif isinstance(piece, Pause):
            pieces_before.append(piece)
        else:
            pieces_before.append(piece[:bytes_left])
            if piece[bytes_left:]:
                pieces_after.append(piece[bytes_left:])
            bytes_left -= len(piece)
    return pieces_before, pieces_after
