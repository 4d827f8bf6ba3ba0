"""Faults of HTTP bodies that only the tests of this package play."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from functools import cache

from attrs import frozen

from mintlify_async.testing import Answer, Fault, Pause
from mintlify_async.testing.http_answer import Piece, join_bytes
from mintlify_async.testing.raw_connection import Ending, chunk, first_pieces, framed, head


@frozen
class WrongLength(Fault):
    """The ``Content-Length`` is *by* bytes more than the body has."""

    by: int

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        return [head(answer, {"Content-Length": str(len(answer.content) + self.by)}), *answer.body]


@frozen
class BrokenChunking(Fault):
    """The size of an HTTP chunk, *at* bytes into the body, is not a number."""

    at: int = 0
    how: Ending = "hang"

    def pieces(self, answer: Answer) -> Iterator[Piece]:
        first = first_pieces(answer, self.at)
        rest = answer.content[len(join_bytes(first)) :]
        yield head(answer, {"Transfer-Encoding": "chunked"})
        yield from framed(first, chunked=True)
        yield b"ZZZ\r\n" + rest + b"\r\n"


def gzipped(answer: Answer, body: bytes) -> Iterable[Piece]:
    return [head(answer.with_headers({"Content-Encoding": "gzip"}), {"Content-Length": str(len(body))}), body]


@frozen
class BrokenGzip(Fault):
    """The gzip data is wrong after its first bytes, or its last third is missing."""

    cut: bool = False

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        packed = gzip.compress(answer.content)
        return gzipped(answer, packed[: len(packed) * 2 // 3] if self.cut else packed[:10] + b"\xff" * 64)


@cache  # packing takes some tenths of a second
def bomb(size: int) -> bytes:
    return gzip.compress(b" " * size, 9)


@frozen
class GzipBomb(Fault):
    """A small gzip body that unpacks to *size* bytes."""

    size: int

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        return gzipped(answer, bomb(self.size))


@frozen
class Endless(Fault):
    """The same piece of the body is sent again and again."""

    piece: bytes = b": still here\n\n"
    pause: float = 1.0

    def pieces(self, answer: Answer) -> Iterator[Piece]:
        yield head(answer, {"Transfer-Encoding": "chunked"})
        while True:
            yield Pause(self.pause)
            yield chunk(self.piece)
