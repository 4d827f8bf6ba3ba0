"""Stream events → the frames that a page may see: fit for its release, and without the thread's secrets.

``useChat`` of ai 5.0.0 refuses an answer for one field that it does not know,
and every release refuses an unknown type, a ``null`` in an optional field or an
unknown finish reason. So :class:`SafeEvents` lets only those fields through that
5.0.0 knows, and keeps what makes its fold throw from happening.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, cast

from attrs import frozen

__all__ = ["ModernEvents", "PageEvents", "SafeEvents", "ThreadHider", "frame", "masked"]

Wire = dict[str, Any]


class PageEvents(Protocol):
    """Turns one event of the service into the events of the page: none, one, or a few."""

    def page(self, wire: Wire) -> list[Wire]:
        """Return what the page gets for *wire*."""
        ...


class ModernEvents:
    """Passes every event as it came, for pages whose release knows what the service sends today."""

    def page(self, wire: Wire) -> list[Wire]:
        """Return *wire*, without metadata that would break the page's merge, with the value it must have."""
        metadata = wire.get("messageMetadata")
        if metadata is not None and not isinstance(metadata, dict):
            if wire["type"] == "message-metadata":
                return []
            wire = {name: value for name, value in wire.items() if name != "messageMetadata"}
        needed = _NEEDED.get(wire["type"])
        return [wire if needed is None or needed in wire else {**wire, needed: None}]


_NEEDED = {"tool-input-available": "input", "tool-input-error": "input", "tool-output-available": "output"}

# --- What ai 5.0.0 accepts, field by field ------------------------------------------------------------


def _string(value: object) -> bool:
    return isinstance(value, str)


def _boolean(value: object) -> bool:
    return isinstance(value, bool)


def _anything(value: object) -> bool:
    return True


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _objects(value: object) -> bool:
    """Provider metadata: an object of objects."""
    return isinstance(value, dict) and all(
        isinstance(inner, dict) for inner in cast("dict[str, object]", value).values()
    )


Check = Callable[[object], bool]


@frozen
class _Shape:
    """The fields of one type: a required one that does not fit drops the event, an optional one itself."""

    required: Mapping[str, Check] = {}
    optional: Mapping[str, Check] = {}

    def fit(self, wire: Wire) -> Wire | None:
        event: Wire = {"type": wire["type"]}
        for name, check in self.required.items():
            value = wire.get(name)  # input, output and data may be missing here, but not on the page
            if not check(value):
                return None
            event[name] = value
        for name, check in self.optional.items():
            if name in wire and check(wire[name]):
                event[name] = wire[name]
        return event


_ID = {"id": _string}
_DELTA = {"id": _string, "delta": _string}
_CALL = {"toolCallId": _string}
_METADATA = {"messageMetadata": _object}
_PROVIDER = {"providerMetadata": _objects}
_FLAGS = {"providerExecuted": _boolean, "dynamic": _boolean}

_SHAPES: Mapping[str, _Shape] = {
    "start": _Shape({}, {"messageId": _string, **_METADATA}),
    "start-step": _Shape(),
    "finish-step": _Shape(),
    "text-start": _Shape(_ID, _PROVIDER),
    "text-delta": _Shape(_DELTA, _PROVIDER),
    "text-end": _Shape(_ID, _PROVIDER),
    "reasoning-start": _Shape(_ID, _PROVIDER),
    "reasoning-delta": _Shape(_DELTA, _PROVIDER),
    "reasoning-end": _Shape(_ID, _PROVIDER),
    "tool-input-start": _Shape({**_CALL, "toolName": _string}, _FLAGS),
    "tool-input-delta": _Shape({**_CALL, "inputTextDelta": _string}),
    "tool-input-available": _Shape(
        {**_CALL, "toolName": _string, "input": _anything}, {**_FLAGS, **_PROVIDER}
    ),
    "tool-output-available": _Shape({**_CALL, "output": _anything}, _FLAGS),
    "tool-output-error": _Shape({**_CALL, "errorText": _string}, _FLAGS),
    "source-url": _Shape({"sourceId": _string, "url": _string}, {"title": _string, **_PROVIDER}),
    "source-document": _Shape(
        {"sourceId": _string, "mediaType": _string, "title": _string}, {"filename": _string, **_PROVIDER}
    ),
    "file": _Shape({"url": _string, "mediaType": _string}, _PROVIDER),
    "message-metadata": _Shape(_METADATA),
    "finish": _Shape({}, _METADATA),
    "abort": _Shape(),
    "error": _Shape({"errorText": _string}),
}
_DATA = _Shape({"data": _anything}, {"id": _string, "transient": _boolean})
# Newer than 5.0.0 and dropping it would leave a call without its part: it is told in two older events.
_INPUT_ERROR = _Shape(
    {**_CALL, "toolName": _string, "input": _anything, "errorText": _string}, {"dynamic": _boolean}
)


class SafeEvents:
    """Makes one answer safe for every ``useChat`` from ai 5.0.0 on; it knows what is open."""

    __slots__ = ("_dynamic", "_named", "_open", "_steps")

    def __init__(self) -> None:
        """Begin an answer."""
        self._open: dict[str, dict[str, None]] = {"text": {}, "reasoning": {}}
        self._dynamic: dict[str, bool] = {}
        self._named = False
        self._steps: Mapping[str, Callable[[Wire], list[Wire]]] = {
            "start": self._start,
            "text-start": self._part_start,
            "text-delta": self._part_delta,
            "text-end": self._part_end,
            "reasoning-start": self._part_start,
            "reasoning-delta": self._part_delta,
            "reasoning-end": self._part_end,
            "finish-step": self._finish_step,
            "tool-input-start": self._input,
            "tool-input-available": self._input,
            "tool-output-available": self._output,
            "tool-output-error": self._output,
        }

    def page(self, wire: Wire) -> list[Wire]:
        """Return what a page of any release may get for *wire*."""
        kind: str = wire["type"]
        shape = _SHAPES.get(kind)
        if shape is None:
            return self._other(kind, wire)
        event = shape.fit(wire)
        if event is None:
            return []
        step = self._steps.get(kind)
        return [event] if step is None else step(event)

    def _other(self, kind: str, wire: Wire) -> list[Wire]:
        if kind.startswith("data-"):
            event = _DATA.fit(wire)
            return [event] if event is not None else []
        if kind == "tool-input-error":
            return self._input_error(wire)
        rest = {name: value for name, value in wire.items() if name != "type"}
        return [{"type": f"data-{kind}", "data": rest, "transient": True}]

    def _input_error(self, wire: Wire) -> list[Wire]:
        fit = _INPUT_ERROR.fit(wire)
        if fit is None:
            return []
        text = fit.pop("errorText")
        # providerExecuted: otherwise the page's onToolCall would be asked to run a call that cannot run
        call = {**fit, "type": "tool-input-available", "providerExecuted": True}
        error = {"type": "tool-output-error", "toolCallId": fit["toolCallId"], "errorText": text}
        return self._input(call) + self._output(error)

    def _start(self, event: Wire) -> list[Wire]:
        """A second id would leave a second message on the page."""
        if self._named:
            event.pop("messageId", None)
        self._named = self._named or "messageId" in event
        return [event]

    def _part_start(self, event: Wire) -> list[Wire]:
        self._open[_part(event)][event["id"]] = None
        return [event]

    def _part_delta(self, event: Wire) -> list[Wire]:
        """Open it again when it was closed: ai 5 and 6 forget at ``finish-step`` what is open."""
        part, opened = _part(event), self._open[_part(event)]
        if event["id"] in opened:
            return [event]
        opened[event["id"]] = None
        return [{"type": f"{part}-start", "id": event["id"]}, event]

    def _part_end(self, event: Wire) -> list[Wire]:
        opened = self._open[_part(event)]
        if event["id"] not in opened:
            return []
        del opened[event["id"]]
        return [event]

    def _finish_step(self, event: Wire) -> list[Wire]:
        ends = [{"type": f"{part}-end", "id": id_} for part, opened in self._open.items() for id_ in opened]
        for opened in self._open.values():
            opened.clear()
        return [*ends, event]

    def _input(self, event: Wire) -> list[Wire]:
        self._dynamic[event["toolCallId"]] = event.get("dynamic", False)
        return [event]

    def _output(self, event: Wire) -> list[Wire]:
        """Repeat the call's ``dynamic``: ai 5 looks only among the calls that say the same."""
        dynamic = self._dynamic.get(event["toolCallId"])
        if dynamic:
            event["dynamic"] = True
        elif dynamic is False:
            event.pop("dynamic", None)
        return [event]


def _part(event: Wire) -> str:
    kind: str = event["type"]
    return kind.partition("-")[0]


# --- What no page may see -----------------------------------------------------------------------------

HIDDEN = "[hidden]"
MIN_HIDDEN_CHARACTERS = 6  # a shorter id is hidden only where it is the whole string: "1" is in every text
_THREAD_NAMES = frozenset({"threadid", "threadkey", "xthreadid", "xthreadkey"})
_THREAD_NAME = re.compile(r'"(?:x[-_]?)?thread[-_]?(?:id|key)"', re.IGNORECASE)
# At a word's beginning, or after one of JSON's escapes, whose last letter only looks like a word's.
_SERVICE_KEY = re.compile(r"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))mint_[A-Za-z0-9_-]{8,}")


class ThreadHider:
    """Takes out of events what names or opens a thread, wherever the service put it."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        """Begin with no value known; names are known from the start."""
        self._values: tuple[str, ...] = ()

    def learn(self, *values: str | None) -> None:
        """Hide these strings from now on."""
        new = [value for value in values if value and value not in self._values]
        if new:
            self._values = (*self._values, *new)

    def hide(self, wire: Wire) -> Wire:
        """Return *wire* without thread ids and keys; the same object when there are none."""
        text = json.dumps(wire)
        if _THREAD_NAME.search(text) or any(json.dumps(value)[1:-1] in text for value in self._values):
            return self._without(wire)
        return wire

    def _without(self, wire: Mapping[str, object]) -> Wire:
        return {
            self._text(name): self._hidden(value) for name, value in wire.items() if not _names_thread(name)
        }

    def _hidden(self, value: object) -> object:
        match value:
            case dict():
                return self._without(cast("dict[str, object]", value))
            case list():
                return [self._hidden(inner) for inner in cast("list[object]", value)]
            case str():
                return self._text(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        for value in self._values:
            if text == value or (len(value) >= MIN_HIDDEN_CHARACTERS and value in text):
                text = text.replace(value, HIDDEN)
        return text


def _names_thread(name: str) -> bool:
    return name.replace("-", "").replace("_", "").lower() in _THREAD_NAMES


# --- Frames -------------------------------------------------------------------------------------------

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def frame(event: Wire) -> bytes:
    """Return *event* as one server-sent event: ASCII, strict JSON, nothing that a page's parser refuses.

    A key of the service that somebody printed into it (into an error's text,
    say) is masked; the model's own prose is left alone, since documentation
    shows such keys as examples.
    """
    try:
        text = json.dumps(event, separators=(",", ":"), allow_nan=False)
    except ValueError:  # an infinity, which JSON does not have
        text = json.dumps(_parsable(event), separators=(",", ":"), allow_nan=False)
    if "__proto__" in text or '"constructor"' in text:
        text = json.dumps(_parsable(event), separators=(",", ":"), allow_nan=False)
    if not event["type"].endswith("-delta"):
        text = masked(text)
    return b"data: %b\n\n" % text.encode("ascii")


def masked(text: str) -> str:
    """Return *text* with the keys of the service in it masked."""
    return _SERVICE_KEY.sub("mint_***", text) if "mint_" in text else text


def _parsable(value: object) -> object:
    """Leave out what the page's JSON parser takes for an attack, and write infinities as null."""
    match value:
        case dict():
            return dict(_parsable_items(cast("dict[str, object]", value)))
        case list():
            return [_parsable(inner) for inner in cast("list[object]", value)]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _parsable_items(items: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in items.items():
        forbidden = name == "__proto__" or (name == "constructor" and _has_prototype(value))
        if not forbidden:
            yield name, _parsable(value)


def _has_prototype(value: object) -> bool:
    return isinstance(value, dict) and "prototype" in cast("Collection[object]", value)
