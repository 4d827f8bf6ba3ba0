"""Documents and stream events in; answers as they go on the wire out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from attrs import evolve, field, frozen

__all__ = [
    "STREAM_HEADERS",
    "Answer",
    "Pause",
    "Piece",
    "encode_event",
    "event_stream",
    "give_way",
    "json_answer",
]

STREAM_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Vercel-AI-UI-Message-Stream": "v1",
    "X-Accel-Buffering": "no",
}
"""What servers of this stream send; no client needs any of them."""

DONE = b"data: [DONE]\n\n"


async def give_way() -> None:
    """Let a client on this loop read what was written: one turn to notice, one to read, one of margin."""
    for _ in range(3):
        await asyncio.sleep(0)


@frozen
class Pause:
    """Silence between two pieces of a body, in seconds of the service's clock."""

    seconds: float


Piece = bytes | Pause
"""A part of a body: bytes that go out in one write, or a pause."""


@runtime_checkable
class HasWire(Protocol):
    """Anything that knows its JSON form, such as a stream event."""

    def to_wire(self) -> Mapping[str, Any]:
        """Return the JSON form."""
        ...


@frozen(kw_only=True)
class Answer:
    """One HTTP answer.

    Attributes:
        status: The HTTP status.
        headers: The headers besides those that framing needs.
        body: The pieces, in order; each piece of bytes is one write.
        chunked: Whether the body is framed in chunks; otherwise it has a ``Content-Length``.
        separate: Whether each piece is given the time to be read by itself, though no pause stands between.
    """

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict[str, str])
    body: tuple[Piece, ...] = ()
    chunked: bool = False
    separate: bool = False

    @property
    def content(self) -> bytes:
        """The whole body, without its pauses."""
        return b"".join(piece for piece in self.body if isinstance(piece, bytes))

    @property
    def whole(self) -> bool:
        """Whether nothing stands between the pieces: head and body go out in one write."""
        return not self.chunked and all(isinstance(piece, bytes) for piece in self.body)

    def with_headers(self, headers: Mapping[str, str]) -> Answer:
        """Return the same answer with *headers* besides its own; the same name replaces."""
        return evolve(self, headers=merged_headers(self.headers, headers))


def merged_headers(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Return both; a name of *second* replaces it in *first*, whatever its case."""
    taken = {name.lower() for name in second}
    return {name: value for name, value in first.items() if name.lower() not in taken} | dict(second)


def json_answer(status: int, document: object, headers: Mapping[str, str] | None = None) -> Answer:
    """Return *document* as a JSON answer."""
    body = (json.dumps(document, ensure_ascii=False).encode(),)
    own = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(status=status, headers=merged_headers(own, headers or {}), body=body)


def encode_event(event: Mapping[str, Any] | HasWire) -> bytes:
    """Return one server-sent event, as the AI SDK's servers write it."""
    wire = event.to_wire() if isinstance(event, HasWire) else event
    try:
        text = json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can only escape it
        text = json.dumps(wire, separators=(",", ":")).encode()
    return b"data: " + text + b"\n\n"


def event_stream(
    events: Iterable[Mapping[str, Any] | HasWire | float],
    *,
    headers: Mapping[str, str] | None = None,
    pause: float = 0.0,
    done: bool = True,
    status: int = 200,
) -> Answer:
    """Return *events* as a streamed answer, each in a write of its own.

    Args:
        events: The events; a number is a pause, in seconds.
        headers: Further headers.
        pause: Seconds between two events.
        done: Whether ``[DONE]`` ends the stream.
        status: The HTTP status.
    """
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
    return Answer(
        status=status, headers=merged_headers(STREAM_HEADERS, headers or {}), body=tuple(body), chunked=True
    )
