"""Writes HTTP responses to a connection, byte by byte, so that a fault can break them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Literal

from ..http.transport import reset_connection
from .http_response import Answer, Pause, Piece, let_client_read, merge_headers

Ending = Literal["fin", "rst", "hang"]
"""The end of a connection: ``fin`` closes it, ``rst`` resets it, ``hang`` leaves it open and silent."""

WRITE_BUFFER_BYTES = 256 * 1024
"""Number of bytes that may wait for a slow client. With more, the service stops writing."""


async def send(transport: asyncio.Transport, pieces: Iterable[Piece], *, separately: bool = False) -> None:
    """Write each piece. The client can read during a pause, and with *separately* after each piece.

    Raises:
        ConnectionResetError: The client has disconnected.
    """
    for piece in pieces:
        if isinstance(piece, Pause):
            await asyncio.sleep(piece.seconds)
            await let_client_read()
            continue
        if transport.is_closing():
            raise ConnectionResetError("the client disconnected")
        transport.write(piece)
        if separately:
            await let_client_read()
        # Polled, because only the transport's protocol gets a callback when the buffer has room again.
        seconds = 0.001
        while transport.get_write_buffer_size() > WRITE_BUFFER_BYTES:
            await asyncio.sleep(seconds)
            seconds = min(1.0, 2 * seconds)


async def end(transport: asyncio.Transport, how: Ending) -> None:
    """End a connection. With ``rst``, the client loses all bytes that it has not read by then."""
    if how == "hang":
        await asyncio.Event().wait()
    if how == "rst":
        reset_connection(transport)
    else:
        transport.close()


def head(
    answer: Answer,
    framing: Mapping[str, str] | None = None,
    *,
    closes: bool = True,
) -> bytes:
    """Return the status line and the headers.

    Args:
        answer: The response.
        framing: The headers that frame the body. By default, they are made from the body.
        closes: Whether the connection takes no other request.
    """
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Unknown"
    if framing is None and answer.chunked:
        framing = {"Transfer-Encoding": "chunked"}
    elif framing is None:
        framing = {"Content-Length": str(len(answer.content))}
    headers = {"Connection": "close"} if closes else dict[str, str]()
    headers = merge_headers(headers, merge_headers(answer.headers, framing))
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk. An empty chunk ends the body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def framed(pieces: Iterable[Piece], *, chunked: bool, ended: bool = False) -> Iterator[Piece]:
    """Yield *pieces*. With *chunked*, yield HTTP chunks, and with *ended* also the last chunk."""
    for piece in pieces:
        yield chunk(piece) if chunked and isinstance(piece, bytes) else piece
    if chunked and ended:
        yield chunk(b"")


def first_pieces(answer: Answer, size: int) -> list[Piece]:
    """Return the pieces up to the byte *size* of the body. A negative *size* counts from the end."""
    bytes_left = len(answer.content) + size if size < 0 else size
    pieces = list[Piece]()
    for piece in answer.body:
        if bytes_left <= 0:
            break
        if isinstance(piece, bytes):
            piece = piece[:bytes_left]
            bytes_left -= len(piece)
        pieces.append(piece)
    return pieces
