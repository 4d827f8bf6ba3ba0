"""Faults are the ways in which a failing server or network delivers a response.

::

    service.script.ask(fault=Cut(at=100, how="rst"))    # the answer to the next question
    service.script.connect(Reset())                     # the next new connection
"""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar

from attrs import field, frozen

from .http_answer import Answer, Pause, Piece, join_bytes, to_bytes, to_pieces
from .raw_connection import Ending, RawWire, chunk, framed, framing_of, head, split_body


class Fault(ABC):
    """One way in which a response fails. Derive your own fault from this class.

    Attributes:
        unread: Whether the fault happens before the request's body is read.
        for_connections: Whether the fault needs no request, so that ``script.connect`` accepts it.
    """

    unread: bool = False
    for_connections: ClassVar[bool] = False

    @abstractmethod
    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Write to *wire*. Without a fault, the service would send *answer*."""


class _Written(Fault):
    """Some bytes, and then the end of the connection."""

    how: Ending = "fin"

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send the bytes and end the connection."""
        await wire.send_all(self._pieces(answer))
        await wire.end(self.how)

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        return ()


@frozen
class Reset(_Written):
    """The connection is reset.

    Args:
        unread: Whether this happens before the request's body is read. By default the service first reads and
            handles the whole request.
    """

    unread: bool = False
    how = "rst"
    for_connections = True


@frozen
class Close(_Written):
    """The connection is closed without a response.

    Args:
        unread: As for :class:`Reset`.
    """

    unread: bool = False
    for_connections = True


@frozen
class NoAnswer(Fault):
    """The service reads and handles the request, but sends no response.

    Args:
        seconds: Close the connection after this many seconds. None leaves it open.
    """

    seconds: float | None = None
    for_connections = True

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Send nothing."""
        if self.seconds is None:
            await wire.hang()
        else:
            await wire.pause(self.seconds)
            wire.fin()


@frozen
class HalfHead(_Written):
    """The response ends inside its status line or headers.

    Args:
        size: The number of bytes of the head that are sent.
        how: The end of the connection, one of ``fin``, ``rst`` and ``hang``.
    """

    size: int = 20
    how: Ending = "fin"

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        return [head(answer, framing_of(answer))[: self.size]]


@frozen
class Cut(_Written):
    """The response ends inside its body.

    Args:
        at: The number of bytes of the body before the fault. A negative number counts from the end.
        how: The end of the connection, one of ``fin``, ``rst`` and ``hang``.
        clean: Whether to finish the body properly. Then only its content shows that something is missing. Use
            it with ``fin``.
    """

    at: int
    how: Ending = "fin"
    clean: bool = field(default=False, kw_only=True)

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        pieces_before, _ = split_body(answer, self.at)
        size = len(join_bytes(pieces_before)) if self.clean else None
        yield head(answer, framing_of(answer, size))
        yield from framed(pieces_before, chunked=answer.chunked, ended=self.clean)


@frozen
class Stall(_Written):
    """The response stops inside its body and continues later.

    Args:
        at: The number of bytes of the body before the fault. A negative number counts from the end.
        seconds: The length of the stop.
    """

    at: int
    seconds: float

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        pieces_before, pieces_after = split_body(answer, self.at)
        yield head(answer, framing_of(answer))
        yield from framed(
            [*pieces_before, Pause(self.seconds), *pieces_after], chunked=answer.chunked, ended=True
        )


@frozen
class Drip(_Written):
    """Head and body arrive a few bytes at a time.

    Args:
        pause: Seconds between two pieces.
        size: Bytes per piece.
    """

    pause: float = 0.0
    size: int = 1

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        body = join_bytes(framed(answer.body, chunked=answer.chunked, ended=True))
        data = head(answer, framing_of(answer)) + body
        for start in range(0, len(data), self.size):
            if self.pause:
                yield Pause(self.pause)
            yield data[start : start + self.size]


@frozen
class WrongLength(_Written):
    """The ``Content-Length`` is not the length of the body.

    Args:
        by: The difference in bytes. A positive number promises too many, a negative one too few.
    """

    by: int = 10

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        length = max(0, len(answer.content) + self.by)
        return [head(answer, {"Content-Length": str(length)}), *answer.body]


@frozen
class BrokenChunking(_Written):
    """The size of an HTTP chunk is not a number.

    aiohttp does not report it in the middle of a response, so a reply ends when its idle timeout is reached.

    Args:
        at: The number of bytes of the body before the fault. A negative number counts from the end.
        how: The end of the connection, one of ``fin``, ``rst`` and ``hang``.
    """

    at: int = 0
    how: Ending = "hang"

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        pieces_before, pieces_after = split_body(answer, self.at)
        yield head(answer, {"Transfer-Encoding": "chunked"})
        yield from framed(pieces_before, chunked=True)
        yield b"ZZZ\r\n" + join_bytes(pieces_after) + b"\r\n"


def _gzipped(answer: Answer, body: bytes) -> list[Piece]:
    framing = {"Content-Encoding": "gzip", **framing_of(answer, len(body))}
    return [head(answer, framing), *framed([body], chunked=answer.chunked, ended=True)]


@frozen
class BrokenGzip(_Written):
    """The body is declared as gzip but cannot be unpacked.

    Args:
        cut: Whether to leave the last third of the gzip data out, in a body whose framing is correct. By
            default, bytes that are not gzip follow the first ones.
    """

    cut: bool = False

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        packed = gzip.compress(answer.content)
        body = packed[: len(packed) * 2 // 3] if self.cut else packed[:10] + b"\xff" * 64
        return _gzipped(answer, body)


@frozen
class GzipBomb(_Written):
    """A small gzip body that unpacks to a very large one.

    Args:
        size_bytes: The unpacked size.
    """

    size_bytes: int = 100_000_000

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        return _gzipped(answer, _compressed_spaces(self.size_bytes))


@lru_cache(maxsize=4)  # packing a large bomb takes some tenths of a second
def _compressed_spaces(size_bytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    megabyte = b" " * 1_000_000
    packed = [packer.compress(megabyte) for _ in range(size_bytes // len(megabyte))]
    packed.append(packer.compress(b" " * (size_bytes % len(megabyte))) + packer.flush())
    return b"".join(packed)


@frozen
class Endless(_Written):
    """The body does not end. The same piece is sent again and again.

    Args:
        piece: The piece. The default is an SSE comment, which is a heartbeat without content.
        pause: Seconds between two pieces.
        at: The number of bytes of the response's own body before the pieces start.
    """

    piece: bytes = field(default=b": still here\n\n", converter=to_bytes)
    pause: float = 1.0
    at: int = 0

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        pieces_before, _ = split_body(answer, self.at)
        yield head(answer, {"Transfer-Encoding": "chunked"})
        yield from framed(pieces_before, chunked=True)
        while True:
            yield Pause(self.pause)
            yield chunk(self.piece)


@frozen
class TlsAlert(_Written):
    """The TLS handshake is refused. Give the session ``base_url=service.tls_url``."""

    for_connections = True

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        return [b"\x15\x03\x03\x00\x02\x02\x28"]  # the alert handshake_failure


@frozen
class Raw(_Written):
    r"""Exactly these bytes, from the status line on, whether they are HTTP or not.

    ::

        Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", 7.0, b"b"])

    Args:
        pieces: Bytes or texts, each sent with its own write. A number is a pause, in seconds.
        how: The end of the connection, one of ``fin``, ``rst`` and ``hang``.
    """

    pieces: tuple[Piece, ...] = field(converter=to_pieces)
    how: Ending = "fin"
    for_connections = True

    def _pieces(self, answer: Answer) -> Iterable[Piece]:
        return self.pieces
