"""HTTP responses as values, with a status, headers, and a body in pieces that are written one by one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from attrs import evolve, field, frozen

from ..events import Event

# The AI SDK's servers send these headers with a stream. No client needs any of them.
STREAM_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Vercel-AI-UI-Message-Stream": "v1",
    "X-Accel-Buffering": "no",
}
DONE = b"data: [DONE]\n\n"


async def let_client_read() -> None:
    """Let a client on the same event loop read the bytes that are already written."""
    for _ in range(3):  # one turn to see the bytes, one to read them, one of margin
        await asyncio.sleep(0)


@frozen
class Pause:
    """A pause between two pieces of a body, in seconds."""

    seconds: float


Piece = bytes | Pause
"""A part of a body: bytes that are written at once, or a pause."""


@frozen(kw_only=True)
class Answer:
    """One HTTP response of the local service, for scripts that build it from the request.

    ::

        def respond(request: RecordedRequest) -> Answer:
            return Answer(status=503, headers={"Retry-After": "2"}, body=(b"busy",))

        service.script.ask(respond=respond)

    Args:
        status: The HTTP status.
        headers: The headers. ``Content-Length`` and ``Transfer-Encoding`` are added when it is sent.
        body: The pieces of the body, in order. Bytes are sent with one write. A :class:`Pause` waits.
        chunked: Whether to send the body with chunked encoding instead of a ``Content-Length``.
        separate: Whether to give the client time to read each piece before the next one is written.
    """

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict[str, str])
    body: tuple[Piece, ...] = ()
    chunked: bool = False
    separate: bool = False

    @property
    def content(self) -> bytes:
        """The complete body as bytes, without its pauses."""
        return join_bytes(self.body)

    @property
    def whole(self) -> bool:
        """Whether head and body can be sent with one write."""
        return not self.chunked and all(isinstance(piece, bytes) for piece in self.body)

    def with_headers(self, headers: Mapping[str, str]) -> Answer:
        """Return the same response with *headers* added. They replace headers of the same name."""
        return evolve(self, headers=merge_headers(self.headers, headers))


def to_bytes(text: bytes | str) -> bytes:
    """Return *text* as bytes."""
    if not isinstance(text, bytes | str):  # pyright: ignore[reportUnnecessaryIsInstance] - users may pass anything
        raise TypeError(f"body, chunks and pieces must be text or bytes, not {type(text).__name__}")
    return text.encode() if isinstance(text, str) else text


def to_pieces(values: Iterable[bytes | str | float]) -> tuple[Piece, ...]:
    """Return texts and bytes as bytes, and numbers as pauses in seconds."""
    return tuple(
        Pause(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else to_bytes(cast("bytes | str", value))
        for value in values
    )


def join_bytes(pieces: Iterable[Piece]) -> bytes:
    """Return the bytes of *pieces*, without the pauses."""
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def merge_headers(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Return both. A header of *second* replaces a header of *first* with the same name, in any case."""
    replaced = {name.lower() for name in second}
    return {name: value for name, value in first.items() if name.lower() not in replaced} | dict(second)


def json_answer(status: int, document: object, headers: Mapping[str, str] | None = None) -> Answer:
    """Return *document* as a JSON response."""
    body = (json.dumps(document, ensure_ascii=False).encode(),)
    own = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(status=status, headers=merge_headers(own, headers or {}), body=body)


def too_many_requests(headers: Mapping[str, str] | None = None) -> Answer:
    """Return a 429 in the service's form, with plain text and the headers for the next try."""
    own = {"Content-Type": "text/plain; charset=utf-8"}
    body = (b"Too many requests, please try again later.",)
    return Answer(status=429, headers=merge_headers(own, headers or {}), body=body)


def encode_event(event: Mapping[str, Any] | Event) -> bytes:
    """Return one server-sent event in the format of the AI SDK's servers."""
    wire = event.to_wire() if isinstance(event, Event) else event
    try:
        text = json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which a JSON escape can express but UTF-8 cannot
        text = json.dumps(wire, separators=(",", ":")).encode()
    return b"data: " + text + b"\n\n"


def event_stream(
    events: Iterable[Mapping[str, Any] | Event | float],
    *,
    headers: Mapping[str, str] | None = None,
    pause: float = 0.0,
    done: bool = True,
    status: int = 200,
) -> Answer:
    """Return *events* as a streamed response, one write per event. A number is a pause, in seconds."""
    body: list[Piece] = []
    for event in events:
        if isinstance(event, int | float):
            body.append(Pause(event))
            continue
        if body and pause:
            body.append(Pause(pause))
        body.append(encode_event(event))
    if done:
        body.append(DONE)
    headers = merge_headers(STREAM_HEADERS, headers or {})
    return Answer(status=status, headers=headers, body=tuple(body), chunked=True)
