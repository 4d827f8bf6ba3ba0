"""One event, decoded as a stream decodes it."""

from __future__ import annotations

from mintlify_async.assistant.event_stream import build_event, parse_json
from mintlify_async.events import StreamEvent


def parse_event(data: str) -> StreamEvent:
    """Return the event in *data*, the data of one server-sent event."""
    return build_event(parse_json(data), data)
