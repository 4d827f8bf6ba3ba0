"""HTTP responses as values, with a status, headers, and a body in pieces that are written one by one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen

from ..events import Event
from ..wrong_names import helpful

# The AI SDK's servers send these headers with a stream. No client needs them.
STREAM_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Vercel-AI-UI-Message-Stream": "v1",
    "X-Accel-Buffering": "no",
}
DONE = b"data: [DONE]\n\n"


async def let_client_read() -> None:
    """Let a client on the same event loop read the bytes that are already written."""
    # In one cycle the socket becomes readable, in one the client reads the bytes, and one is in reserve.
    for _ in range(3):
        await asyncio.sleep(0)


@frozen
class Pause:
    """A pause between two pieces of a body.

    Args:
        seconds: The length of the pause, in seconds.
    """

    seconds: float


Piece = bytes | Pause
"""A piece of a body: bytes for one write, or a pause."""

Value = bytes | str | Mapping[str, Any] | Event | float
"""A piece of a body in a script: bytes, text, a stream event, or a pause in seconds."""


@helpful
@frozen(kw_only=True)
class Answer:
    """One HTTP response of the local service, for scripts that build it from the request.

    ::

        def respond(request: RecordedRequest) -> Answer:
            return Answer(status=503, headers={"Retry-After": "2"}, body=(b"busy",))

        service.script.ask(body=respond)

    Args:
        status: The HTTP status.
        headers: The headers. The sender adds ``Content-Length`` and ``Transfer-Encoding``.
        body: The pieces of the body, in order. Bytes are sent with one write. A :class:`Pause` waits.
        chunked: Whether to send the body with chunked encoding instead of a ``Content-Length``.
    """

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict[str, str])
    body: tuple[Piece, ...] = ()
    chunked: bool = False

    @property
    def content(self) -> bytes:
        """The complete body as bytes, without pauses."""
        return join_bytes(self.body)

    def with_headers(self, headers: Mapping[str, str]) -> Answer:
        """Return the same response with *headers* added. They replace headers of the same name."""
        return evolve(self, headers=merge_headers(self.headers, headers))


def to_pieces(values: Iterable[Value], pause: float | None = 0.0) -> tuple[Piece, ...]:
    """Return the pieces for *values*. A number is a pause, in seconds.

    Between two values without a number between them, wait for *pause* seconds. If *pause* is None, do not
    wait there.
    """
    pieces, separate = list[Piece](), False
    for value in values:
        if isinstance(value, int | float):
            pieces.append(Pause(value))
            separate = False
            continue
        if separate and pause is not None:
            pieces.append(Pause(pause))
        pieces.append(to_bytes(value))
        separate = True
    return tuple(pieces)


def to_bytes(value: bytes | str | Mapping[str, Any] | Event) -> bytes:
    """Return bytes and texts unchanged, and an event as a server-sent event in the form of the AI SDK."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    wire = value.to_wire() if isinstance(value, Event) else value
    try:
        text = json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, which a JSON escape can express but UTF-8 cannot
        text = json.dumps(wire, separators=(",", ":")).encode()
    return b"data: " + text + b"\n\n"


def join_bytes(pieces: Iterable[Piece]) -> bytes:
    """Return the bytes of *pieces*, without the pauses."""
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def merge_headers(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Return all headers. A header of *second* replaces the same one of *first*. Case is ignored."""
    replaced = {name.lower() for name in second}
    return {name: value for name, value in first.items() if name.lower() not in replaced} | dict(second)


def json_answer(status: int, document: object, headers: Mapping[str, str] | None = None) -> Answer:
    """Return *document* as a JSON response."""
    body = (json.dumps(document, ensure_ascii=False).encode(),)
    own = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(status=status, headers=merge_headers(own, headers or {}), body=body)


def too_many_requests(headers: Mapping[str, str] | None = None) -> Answer:
    """Return a 429 in the service's form, with plain text and headers about the next attempt."""
    own = {"Content-Type": "text/plain; charset=utf-8"}
    body = (b"Too many requests, please try again later.",)
    return Answer(status=429, headers=merge_headers(own, headers or {}), body=body)


def event_stream(
    events: Iterable[Value],
    *,
    headers: Mapping[str, str] | None = None,
    pause: float | None = None,
    status: int = 200,
) -> Answer:
    """Return *events* and ``[DONE]`` as a streamed response, with one write for each event."""
    headers = merge_headers(STREAM_HEADERS, headers or {})
    return Answer(status=status, headers=headers, body=(*to_pieces(events, pause), DONE), chunked=True)
