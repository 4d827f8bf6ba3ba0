"""An answer and a raw connection in; the answer as a failing server or network would deliver it out.

Give one to a script: ``service.script.ask(fault=Cut(at=100, how="rst"))``.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import ClassVar, Literal

from attrs import field, frozen

from ..clock import Clock
from .http_answer import Answer, Pause, Piece, give_way, merged_headers

__all__ = [
    "BrokenChunking",
    "BrokenGzip",
    "Close",
    "Cut",
    "Drip",
    "Endless",
    "Fault",
    "Garbage",
    "GzipBomb",
    "HalfHead",
    "NoAnswer",
    "Raw",
    "RawWire",
    "Redirect",
    "Reset",
    "Stall",
    "TlsAlert",
    "WrongLength",
]

Ending = Literal["fin", "rst", "hang"]
"""How a connection ends: closed in order, reset, or not at all."""

WRITE_BUFFER_BYTES = 256 * 1024
"""How much may wait for a slow client before a fault stops writing."""


class RawWire:
    """The bytes of one connection, past every rule of HTTP.

    Args:
        transport: The connection.
        clock: What pauses are measured by.
    """

    def __init__(self, transport: asyncio.Transport, clock: Clock) -> None:
        """Take over *transport*."""
        self._transport, self._clock = transport, clock

    async def send(self, data: bytes) -> None:
        """Write *data* at once; wait only for a client that does not read."""
        self._transport.write(data)
        await give_way()
        while self._transport.get_write_buffer_size() > WRITE_BUFFER_BYTES:  # noqa: ASYNC110 - the transport
            await asyncio.sleep(0.001)  # belongs to another protocol, which alone is told when there is room

    async def pause(self, seconds: float) -> None:
        """Stay silent for *seconds* of the service's clock."""
        await self._clock.sleep(seconds)

    async def hang(self) -> None:
        """Stay silent until the client leaves or the service stops."""
        await asyncio.Event().wait()

    def fin(self) -> None:
        """Close in order, after everything written has gone out."""
        self._transport.close()

    def rst(self) -> None:
        """Reset the connection; what was not read yet is lost."""
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def end(self, how: Ending) -> None:
        """End the connection in the way that *how* names."""
        if how == "hang":
            await self.hang()
        elif how == "rst":
            self.rst()
        else:
            self.fin()


class Fault(ABC):
    """One way to fail.

    Attributes:
        unread: Whether it strikes before the request's body is read.
    """

    unread: bool = False
    for_connections: ClassVar[bool] = False
    """Whether it makes sense before any request: ``script.connect(...)``."""

    @abstractmethod
    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Do it to *answer*, which is what the service would have said."""


def head(answer: Answer, framing: Mapping[str, str]) -> bytes:
    """Return the status line and the headers; they say that the connection is used up after this."""
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Unknown"
    lines = [f"HTTP/1.1 {answer.status} {reason}"]
    headers = merged_headers({"Connection": "close"}, merged_headers(answer.headers, framing))
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def framing_of(answer: Answer) -> dict[str, str]:
    """Return the header that frames the body."""
    if answer.chunked:
        return {"Transfer-Encoding": "chunked"}
    return {"Content-Length": str(len(answer.content))}


def framed(answer: Answer, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield *pieces* with the answer's framing around each."""
    for piece in pieces:
        if isinstance(piece, bytes) and answer.chunked:
            yield chunk(piece)
        else:
            yield piece


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk; an empty one ends the body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def split_at(pieces: Iterable[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces before byte *at* of the body, and those after it."""
    before, after = list[Piece](), list[Piece]()
    left = at
    for piece in pieces:
        size = len(piece) if isinstance(piece, bytes) else 0
        if left <= 0 or not isinstance(piece, bytes):
            (after if left <= 0 else before).append(piece)
        elif size <= left:
            before.append(piece)
        else:
            before.append(piece[:left])
            after.append(piece[left:])
        left -= size
    return before, after


def position(answer: Answer, at: int) -> int:
    """Return *at* as a place in the body; a negative one counts from the end."""
    size = len(answer.content)
    return max(0, size + at) if at < 0 else min(at, size)


async def send_all(wire: RawWire, pieces: Iterable[Piece]) -> None:
    """Send every piece; pause where one says so."""
    for piece in pieces:
        if isinstance(piece, Pause):
            await wire.pause(piece.seconds)
        else:
            await wire.send(piece)


@frozen
class Reset(Fault):
    """The connection is reset.

    Args:
        unread: Before the request's body is read; otherwise after all of it was.
    """

    unread: bool = False
    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Reset."""
        wire.rst()


@frozen
class Close(Fault):
    """The connection is closed in order, without an answer.

    Args:
        unread: Before the request's body is read; otherwise after all of it was.
    """

    unread: bool = False
    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Close."""
        wire.fin()


@frozen
class NoAnswer(Fault):
    """The request is read and never answered.

    Args:
        seconds: Close after this long; None: never.
    """

    seconds: float | None = None
    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Stay silent."""
        if self.seconds is None:
            await wire.hang()
        else:
            await wire.pause(self.seconds)
            wire.fin()


@frozen
class HalfHead(Fault):
    """Only the beginning of the answer's head is sent.

    Args:
        size: How many bytes of it.
        how: How the connection ends then.
    """

    size: int = 20
    how: Ending = "fin"

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the beginning, then end."""
        await wire.send(head(answer, framing_of(answer))[: self.size])
        await wire.end(self.how)


@frozen
class Cut(Fault):
    """The answer breaks off inside its body.

    Args:
        at: After how many bytes of the body; a negative number counts from the end.
        how: ``fin``, ``rst``, or ``hang``.
        clean: End the framing in order, so that only the content is cut short. Takes ``fin``.
    """

    at: int
    how: Ending = "fin"
    clean: bool = field(default=False, kw_only=True)

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the part before the cut, then end."""
        before, _ = split_at(answer.body, position(answer, self.at))
        size = sum(len(piece) for piece in before if isinstance(piece, bytes))
        framing = {"Content-Length": str(size)} if self.clean and not answer.chunked else framing_of(answer)
        await wire.send(head(answer, framing))
        await send_all(wire, framed(answer, before))
        if self.clean and answer.chunked:
            await wire.send(chunk(b""))
        await wire.end(self.how)


@frozen
class Stall(Fault):
    """The answer stops inside its body and goes on later.

    Args:
        at: After how many bytes of the body; a negative number counts from the end.
        seconds: For how long.
    """

    at: int
    seconds: float

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send one part, wait, send the rest."""
        before, after = split_at(answer.body, position(answer, self.at))
        await wire.send(head(answer, framing_of(answer)))
        await send_all(wire, framed(answer, [*before, Pause(self.seconds), *after]))
        await _end_in_order(wire, answer)


@frozen
class Drip(Fault):
    """Head and body come in single bytes.

    Args:
        pause: Seconds between two bytes.
        size: Bytes at a time.
    """

    pause: float = 0.0
    size: int = 1

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send everything, little by little."""
        body = b"".join(piece for piece in framed(answer, answer.body) if isinstance(piece, bytes))
        data = head(answer, framing_of(answer)) + body + (chunk(b"") if answer.chunked else b"")
        for start in range(0, len(data), self.size):
            if self.pause:
                await wire.pause(self.pause)
            await wire.send(data[start : start + self.size])
        wire.fin()


@frozen
class WrongLength(Fault):
    """The ``Content-Length`` is not the body's.

    Args:
        by: How many bytes more are promised than come; negative: fewer.
    """

    by: int = 10

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Promise one length, send another, close."""
        length = max(0, len(answer.content) + self.by)
        await wire.send(head(answer, {"Content-Length": str(length)}))
        await send_all(wire, answer.body)
        wire.fin()


@frozen
class BrokenChunking(Fault):
    """A chunk's size is no number.

    Args:
        at: After how many bytes of the body.
        how: How the connection ends then.
    """

    at: int = 0
    how: Ending = "hang"

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send good chunks, then a bad one."""
        before, after = split_at(answer.body, position(answer, self.at))
        await wire.send(head(answer, {"Transfer-Encoding": "chunked"}))
        await send_all(wire, (chunk(piece) if isinstance(piece, bytes) else piece for piece in before))
        rest = b"".join(piece for piece in after if isinstance(piece, bytes))
        await wire.send(b"ZZZ\r\n" + rest + b"\r\n")
        await wire.end(self.how)


@frozen
class BrokenGzip(Fault):
    """The body says that it is gzip, and is broken.

    Args:
        how: ``garbage``: no gzip at all after the first bytes; ``cut``: it stops early, well framed.
    """

    how: Literal["garbage", "cut"] = "garbage"

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the broken body in correct framing."""
        packed = gzip.compress(answer.content)
        body = packed[:10] + b"\xff" * 64 if self.how == "garbage" else packed[: len(packed) * 2 // 3]
        await _send_gzip(wire, answer, [body])
        await _end_in_order(wire, answer)


@frozen
class GzipBomb(Fault):
    """A small gzip body that unpacks to a large one.

    Args:
        size_bytes: How large.
    """

    size_bytes: int = 100_000_000

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send spaces, very well packed."""
        await _send_gzip(wire, answer, [packed_spaces(self.size_bytes)])
        await _end_in_order(wire, answer)


@lru_cache(maxsize=4)
def packed_spaces(size_bytes: int) -> bytes:
    """Return so many spaces as gzip, made once: packing a large bomb takes a good part of a second."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    megabyte = b" " * 1_000_000
    packed = [packer.compress(megabyte) for _ in range(size_bytes // len(megabyte))]
    packed.append(packer.compress(b" " * (size_bytes % len(megabyte))) + packer.flush())
    return b"".join(packed)


@frozen
class Endless(Fault):
    """The body never ends: one piece again and again.

    Args:
        piece: The piece; the default is a comment, which only keeps a stream alive.
        pause: Seconds between two.
        at: After how many bytes of the answer's own body it begins.
    """

    piece: bytes = b": still here\n\n"
    pause: float = 1.0
    at: int = 0

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the answer's head and the beginning of its body, then the piece for ever."""
        before, _ = split_at(answer.body, position(answer, self.at))
        await wire.send(head(answer, {"Transfer-Encoding": "chunked"}))
        await send_all(wire, (chunk(piece) if isinstance(piece, bytes) else piece for piece in before))
        while True:
            await wire.pause(self.pause)
            await wire.send(chunk(self.piece))


@frozen
class Redirect(Fault):
    """The answer is elsewhere.

    Args:
        location: Where.
        status: 301, 302, 303, 307 or 308.
    """

    location: str
    status: int = 307

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the redirect."""
        await wire.send(
            head(Answer(status=self.status, headers={"Location": self.location}), {"Content-Length": "0"})
        )
        wire.fin()


@frozen
class Garbage(Fault):
    """The answer is not HTTP.

    Args:
        data: What comes instead.
    """

    data: bytes = b"\x00\x01\x02 this is not HTTP\r\n\r\n"
    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send it and close."""
        await wire.send(self.data)
        wire.fin()


@frozen
class TlsAlert(Fault):
    """The TLS handshake is refused: for a session whose base URL is ``service.tls_url``."""

    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the alert ``handshake_failure`` and close."""
        await wire.send(b"\x15\x03\x03\x00\x02\x02\x28")
        wire.fin()


def _pieces(values: Iterable[bytes | float]) -> tuple[Piece, ...]:
    return tuple(value if isinstance(value, bytes) else Pause(value) for value in values)


@frozen
class Raw(Fault):
    """Exact bytes, from the status line on.

    Args:
        pieces: Bytes, each sent by itself; a number is a pause in seconds.
        how: How the connection ends then.
    """

    pieces: tuple[Piece, ...] = field(converter=_pieces)
    how: Ending = "fin"
    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send them."""
        await send_all(wire, self.pieces)
        await wire.end(self.how)


async def _send_gzip(wire: RawWire, answer: Answer, body: list[bytes]) -> None:
    size = sum(map(len, body))
    framing = {"Content-Encoding": "gzip"}
    framing |= {"Transfer-Encoding": "chunked"} if answer.chunked else {"Content-Length": str(size)}
    await wire.send(head(answer, framing))
    await send_all(wire, framed(answer, body))


async def _end_in_order(wire: RawWire, answer: Answer) -> None:
    if answer.chunked:
        await wire.send(chunk(b""))
    wire.fin()


KINDS: Mapping[str, type[Fault]] = {
    "reset": Reset,
    "close": Close,
    "no-answer": NoAnswer,
    "half-head": HalfHead,
    "cut": Cut,
    "stall": Stall,
    "drip": Drip,
    "wrong-length": WrongLength,
    "broken-chunking": BrokenChunking,
    "broken-gzip": BrokenGzip,
    "gzip-bomb": GzipBomb,
    "endless": Endless,
    "redirect": Redirect,
    "garbage": Garbage,
    "tls-alert": TlsAlert,
    "raw": Raw,
}
"""The faults by the names that script files use."""
