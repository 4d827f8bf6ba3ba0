"""The faults that the tests of the transport and of endurance play, by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from attrs import frozen

from mintlify_async.testing import Answer, Close, Cut, Fault, Pause, Raw, Reset
from mintlify_async.testing.http_response import Piece, join_bytes
from mintlify_async.testing.raw_connection import Ending, chunk, first_pieces, framed, head


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


@frozen
class Gzip(Fault):
    """The body is said to be gzip; it is *packed*."""

    packed: bytes

    def pieces(self, answer: Answer) -> Iterator[Piece]:
        length = {"Content-Length": str(len(self.packed))}
        yield head(answer.with_headers({"Content-Encoding": "gzip"}), length)
        yield self.packed


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


HEAD = b"HTTP/1.1 200 OK\r\n"
LOST = {
    "closed before the body was read": Close(unread=True),
    "closed after the body was read": Close(),
    "reset before the body was read": Reset(unread=True),
    "reset after the body was read": Reset(),
    "half a status line": Raw([b"HTTP/1"]),
    "half a status line, reset": Raw([b"HTTP/1"], "rst"),
    "half the headers": Raw([HEAD + b"Content-Type: applicati"]),
    "garbage": Raw([b"\x00\x01\x02 this is not HTTP\r\n\r\n"]),
    "an HTTP/2 preface": Raw([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]),
    "TLS bytes": Raw([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]),
    "status 99": Raw([b"HTTP/1.1 99 Odd\r\nContent-Length: 0\r\n\r\n"]),
    "status 1000": Raw([b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n"]),
    "two lengths": Raw([HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"]),
    "length and chunks": Raw([HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]),
    "a header that is too large": Raw([HEAD + b"X-Big: " + b"a" * 100_000 + b"\r\n\r\n"]),
    "too many headers": Raw([HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(400)) + b"\r\n"]),
    "a NUL in a header": Raw([HEAD + b"X-Nul: a\x00b\r\nContent-Length: 0\r\n\r\n"]),
}

JOB = b'{"id": "job_1", "status": "active"}'
NO_GZIP = Gzip(gzip.compress(JOB)[:10] + b"\xff" * 64)
BROKEN_BODIES = {
    "cut by a close": Cut(10),
    "cut by a reset": Cut(10, "rst"),
    "cut before the body": Cut(0),
    "longer than it says": Raw(
        [HEAD + b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n" + JOB]
    ),
    "a chunk that is none": BrokenChunking(5),
    "a chunk that is none, closed": BrokenChunking(5, "fin"),
    "gzip that is none": NO_GZIP,
    "gzip cut short": Gzip(gzip.compress(JOB)[:40]),
    "a bomb": Gzip(gzip.compress(b" " * 10_000_000)),
    "a silence in the middle": Cut(10, "hang"),
    "bytes without end": Endless(b" " * 65536, pause=0.0),
}

EVENTS = [
    {"type": "start", "messageId": "m1"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello "},
    {"type": "text-delta", "id": "0", "delta": "world"},
    {"type": "text-end", "id": "0"},
    {"type": "finish", "finishReason": "stop", "threadId": "t1"},
]
BODY = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"
AFTER_HELLO = BODY.index(b"world") + 1
WHOLE_EVENTS = BODY.rindex(b"\n\n", 0, AFTER_HELLO) + 2


STREAM_CUTS = {
    "close": Cut(AFTER_HELLO),
    "reset": Cut(AFTER_HELLO, "rst"),
    "clean end": Cut(AFTER_HELLO, clean=True),
    "silence": Cut(AFTER_HELLO, "hang"),
    "a chunk that is none": BrokenChunking(AFTER_HELLO),
    "a chunk that is none, closed": BrokenChunking(AFTER_HELLO, "fin"),
    "a length that is too long": Raw(
        [HEAD, b"Content-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n", BODY[:AFTER_HELLO]]
    ),
}


POSTS = ("create_job", "send_message")


AGENT = (*POSTS, "get_job")


ALL = (*AGENT, "ask")


async def call(session, operation):
    """Do *operation* once, as a user would."""
    if operation == "create_job":
        return await session.create_job("Fix the typos")
    if operation == "send_message":
        return await session.job("job_1").send("More")
    if operation == "get_job":
        return await session.job("job_1").refresh()
    return await session.ask("How do I log in?")


def script(service, operation, **answer):
    """Queue *answer* for every request of *operation*."""
    return getattr(service.script, operation)(times=None, **answer)


async def failure(session, service, operation):
    """Return the error of *operation* and the number of its requests."""
    before = sum(request.operation == operation for request in service.requests)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at its type
        await call(session, operation)
    return caught.value, sum(r.operation == operation for r in service.requests) - before
