"""Decodes one server-sent event's data into a typed event; what cannot be decoded is a StreamDecodeError.

>>> parse_event('{"type":"text-delta","id":"0","delta":"Hi"}')
TextDelta(id='0', delta='Hi')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from ..errors import StreamDecodeError, printable
from ..events import EVENT_TYPES, Data, ReasoningDelta, StreamEvent, TextDelta, UnknownEvent
from ..model.json_text import DecodeProblem, decode_json, mask_keys, mask_text
from ..model.wire_value import EMPTY, read_value

DeltaT = TypeVar("DeltaT", TextDelta, ReasoningDelta)
_EXCERPT: Final = 2000
"""Characters of an event's data that an error keeps."""


def undecodable(problem: str, data: str) -> StreamDecodeError:
    """Return the error for event data that cannot be decoded, with thread keys masked."""
    excerpt = mask_text(data[:_EXCERPT])
    return StreamDecodeError(f"{problem}: {printable(excerpt)}", excerpt=excerpt)


def parse_event(data: str) -> StreamEvent:
    """Return the event in *data*, the data of one server-sent event.

    Raises:
        StreamDecodeError: It is not a JSON object with a ``type``, or a field that its type requires
            is missing or of another type.
    """
    try:
        content = decode_json(data)
    except DecodeProblem as error:
        problem = str(error)
    else:
        return build_event(content, data)
    # Raised outside of the block, so that the error's context holds no data that is not masked.
    raise undecodable(f"the event {problem}", data)


def build_event(content: Any, data: str) -> StreamEvent:
    """Return the event that *content*, the JSON value of *data*, describes.

    Raises:
        StreamDecodeError: As :func:`parse_event`.
    """
    wire = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    kind = wire.get("type")
    if not isinstance(kind, str):
        raise undecodable("the event is not an object with a type", data)
    cls: Any = EVENT_TYPES.get(kind)
    try:
        if cls is not None:
            event: StreamEvent = read_value(cls, wire)
            return event
        if kind.startswith("data-"):
            return read_value(Data, wire, name=kind.removeprefix("data-"))
    except DecodeProblem as error:
        problem = str(error)
    else:
        return UnknownEvent(type=kind, extra=mask_keys({k: v for k, v in wire.items() if k != "type"}))
    raise undecodable(kind + problem, data)


def _delta_maker(cls: type[DeltaT]) -> Callable[[str, str], DeltaT]:
    """Return a faster ``lambda id, delta: cls(id=id, delta=delta)``.

    Nine of ten events are deltas. Setting the four slots through their descriptors takes 0.41 µs, calling
    the frozen class 0.85 µs, of the 1.2 µs that reading and folding a delta takes in all.
    """
    slots = (
        getattr(cast("Any", cls), name).__set__ for name in ("id", "delta", "provider_metadata", "extra")
    )
    set_id, set_delta, set_provider_metadata, set_extra = slots
    new = object.__new__

    def make(id: str, delta: str) -> DeltaT:
        event = new(cls)
        set_id(event, id)
        set_delta(event, delta)
        set_provider_metadata(event, None)
        set_extra(event, EMPTY)
        return event

    return make


DELTA_MAKERS: Final[Mapping[str, Callable[[str, str], TextDelta | ReasoningDelta]]] = {
    "text-delta": _delta_maker(TextDelta),
    "reasoning-delta": _delta_maker(ReasoningDelta),
}
"""For the type of a delta: a function that makes one from its id and its text."""
