"""Turns events of the service into events that a page accepts and may see.

``useChat`` of ai 5.0.0 rejects an answer because of one unknown field, and every release rejects an unknown
type, a ``null`` in an optional field, and an unknown finish reason. So :class:`SafeEvents` passes only the
fields that 5.0.0 knows, avoids sequences of events that make the page throw, and replaces the service's error
texts by fixed sentences. :class:`ThreadHider` removes the thread's id and key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, ClassVar

from attrs import frozen

from mintlify_async.events import ReasoningDelta, StreamEvent, TextDelta

from .page_question import Wire, is_file_address, is_list, is_name, is_object, is_web_address
from .refusals import CUT, STEP_FAILED, masked

Check = Callable[[object], bool]
OUR_DATA = "data-mintlify-"  # starts the names of data parts that are ours and not the service's


# --- What ai 5.0.0 accepts, field by field ------------------------------------------------------------


def _string(value: object) -> bool:
    return isinstance(value, str)


def _boolean(value: object) -> bool:
    return isinstance(value, bool)


def _anything(value: object) -> bool:
    return True


def _objects(value: object) -> bool:
    """Return whether *value* is an object of objects, as provider metadata must be."""
    return is_object(value) and all(is_object(inner) for inner in value.values())


@frozen
class _Shape:
    """The fields of one event type. Without a valid required field, the event is dropped."""

    required: Mapping[str, Check] = {}
    optional: Mapping[str, Check] = {}

    def fit(self, wire: Wire) -> Wire | None:
        event: Wire = {"type": wire["type"]}
        for name, check in self.required.items():
            value = wire.get(name)  # the service may omit input, output and data, but the page needs them
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
_METADATA = {"messageMetadata": is_object}
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
    "source-url": _Shape({"sourceId": is_name, "url": is_web_address}, {"title": is_name, **_PROVIDER}),
    "source-document": _Shape(
        {"sourceId": _string, "mediaType": _string, "title": _string}, {"filename": _string, **_PROVIDER}
    ),
    "file": _Shape({"url": is_file_address, "mediaType": is_name}, _PROVIDER),
    "message-metadata": _Shape(_METADATA),
    "finish": _Shape({}, _METADATA),
    "abort": _Shape(),
    "error": _Shape({"errorText": _string}),
}
_DATA = _Shape({"data": _anything}, {"id": _string, "transient": _boolean})
# tool-input-error is newer than 5.0.0. Dropping it would leave a call without its part, so it becomes two
# older events.
_INPUT_ERROR = _Shape(
    {**_CALL, "toolName": _string, "input": _anything, "errorText": _string}, {"dynamic": _boolean}
)


class SafeEvents:
    """Makes one answer valid for every ``useChat`` from ai 5.0.0 on. Tracks the open parts and calls."""

    __slots__ = ("_dynamic", "_named", "_open")

    def __init__(self) -> None:
        self._open: dict[str, dict[str, None]] = {"text": {}, "reasoning": {}}
        self._dynamic: dict[str, bool] = {}
        self._named = False

    def page(self, wire: Wire) -> list[Wire]:
        """Return the events for *wire* that pages of every release accept."""
        kind: str = wire["type"]
        shape = _SHAPES.get(kind)
        if shape is None:
            return self._other(kind, wire)
        event = shape.fit(wire)
        if event is None:
            return []
        step = self._STEPS.get(kind)
        return [event] if step is None else step(self, event)

    def passes(self, delta: TextDelta | ReasoningDelta) -> bool:
        """Return whether the page has the delta's part open."""
        return delta.id in self._open["text" if delta.__class__ is TextDelta else "reasoning"]

    def _other(self, kind: str, wire: Wire) -> list[Wire]:
        if kind.startswith("data-"):
            event = _DATA.fit(wire)
            return [event] if event is not None else []
        if kind == "tool-input-error":
            return self._input_error(wire)
        rest = {name: value for name, value in wire.items() if name != "type"}
        return [{"type": OUR_DATA + kind, "data": rest, "transient": True}]

    def _input_error(self, wire: Wire) -> list[Wire]:
        fit = _INPUT_ERROR.fit(wire)
        if fit is None:
            return []
        del fit["errorText"]
        # Without providerExecuted the page would ask its onToolCall to run a call that cannot run.
        call = {**fit, "type": "tool-input-available", "providerExecuted": True}
        error = {"type": "tool-output-error", "toolCallId": fit["toolCallId"], "errorText": STEP_FAILED}
        return self._input(call) + self._output(error)

    def _start(self, event: Wire) -> list[Wire]:
        # A second id would make the page show a second message.
        if self._named:
            event.pop("messageId", None)
        self._named = self._named or "messageId" in event
        return [event]

    def _part_start(self, event: Wire) -> list[Wire]:
        self._open[_part(event)][event["id"]] = None
        return [event]

    def _part_delta(self, event: Wire) -> list[Wire]:
        # A part may continue after finish-step. There ai 5 and 6 drop all open parts, so open it again.
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
        # ai 5 looks for the call only among those with the same value of dynamic.
        dynamic = self._dynamic.get(event["toolCallId"])
        if dynamic:
            event["dynamic"] = True
        elif dynamic is False:
            event.pop("dynamic", None)
        return [event]

    def _output_error(self, event: Wire) -> list[Wire]:
        # The text is the service's own, and releases from 7 on show it.
        event["errorText"] = STEP_FAILED
        return self._output(event)

    _STEPS: ClassVar[Mapping[str, Callable[[Any, Wire], list[Wire]]]] = {
        "start": _start,
        "text-start": _part_start,
        "text-delta": _part_delta,
        "text-end": _part_end,
        "reasoning-start": _part_start,
        "reasoning-delta": _part_delta,
        "reasoning-end": _part_end,
        "finish-step": _finish_step,
        "tool-input-start": _input,
        "tool-input-available": _input,
        "tool-output-available": _output,
        "tool-output-error": _output_error,
    }


def _part(event: Wire) -> str:
    kind: str = event["type"]
    return kind.partition("-")[0]


# --- What no page may see -----------------------------------------------------------------------------

HIDDEN = "[hidden]"
MIN_HIDDEN_CHARACTERS = 6  # a shorter id, such as "1", is hidden only as a complete string
_THREAD_NAMES = frozenset({"threadid", "threadkey", "xthreadid", "xthreadkey"})
_THREAD_NAME = re.compile(r'"(?:x[-_]?)?thread[-_]?(?:id|key)"', re.IGNORECASE)


class ThreadHider:
    """Removes a thread's id and key from events, in whichever field the service put them.

    Attributes:
        shortest: How many characters the shortest string to hide has; 0 if there is none.
    """

    __slots__ = ("_escaped", "_values", "shortest")

    def __init__(self) -> None:
        self.shortest = 0
        self._values: tuple[str, ...] = ()
        self._escaped: tuple[str, ...] = ()  # the same, as they stand in JSON

    def learn(self, *values: str | None) -> None:
        """Hide these strings from now on."""
        new = [value for value in values if value and value not in self._values]
        if new:
            self._values = (*self._values, *new)
            self._escaped = tuple(quoted(value)[1:-1] for value in self._values)
            self.shortest = min(map(len, self._values))

    def hide(self, wire: Wire) -> Wire:
        """Return *wire* without thread ids and keys. If it has none, return the same object."""
        return self._hidden(wire) if self.concerns(json.dumps(wire)) else wire

    def concerns(self, text: str) -> bool:
        """Return whether *text*, which is JSON, may have a name or a string to hide."""
        return _THREAD_NAME.search(text) is not None or self.finds(text)

    def finds(self, text: str) -> bool:
        """Return whether *text*, which is JSON, may have one of the strings to hide."""
        for value in self._escaped:  # noqa: SIM110 - any() takes three times as long, for each delta
            if value in text:
                return True
        return False

    def _hidden(self, value: Any) -> Any:
        if is_object(value):
            items = value.items()
            return {self._text(name): self._hidden(inner) for name, inner in items if not _names_thread(name)}
        if is_list(value):
            return [self._hidden(inner) for inner in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for value in self._values:
            if text == value or (len(value) >= MIN_HIDDEN_CHARACTERS and value in text):
                text = text.replace(value, HIDDEN)
        return text


def _names_thread(name: str) -> bool:
    return name.replace("-", "").replace("_", "").lower() in _THREAD_NAMES


# --- Frames -------------------------------------------------------------------------------------------

DONE = b"data: [DONE]\n\n"
STOPPED = b'data: {"type":"abort"}\n\n'
INTERRUPTED = b'data: {"type":"error","errorText":"%b"}\n\n' % CUT.encode()
KEEP_ALIVE = b": keep-alive\n\n"
_DELTAS = (TextDelta, ReasoningDelta)
_TEXTS = ("text", "reasoning")  # of the model; see frame


def delta_frame(event: StreamEvent, events: SafeEvents, hider: ThreadHider) -> bytes | None:
    """Return a delta as *events* and :func:`frame` make it, in a tenth of the time.

    None means that *event* needs another check. It is no delta, has another field, or contains a secret.
    """
    if not isinstance(event, _DELTAS) or not events.passes(event):
        return None
    if event.extra or event.provider_metadata is not None:
        return None
    text = f'data: {{"type":"{event.type}","id":{quoted(event.id)},"delta":{quoted(event.delta)}}}\n\n'
    # A delta shorter than every string to hide has none of them; most are.
    hidden = len(event.id) + len(event.delta) >= hider.shortest and hider.finds(text)
    return None if hidden else text.encode("ascii")


def frame(event: Wire, hider: ThreadHider | None = None) -> bytes:
    """Return *event* as one server-sent event, in ASCII and strict JSON for the page's parser.

    The thread that *hider* knows is hidden. Keys of the service, for instance in an error's text, are masked.
    Deltas of the model's text are left alone, since documentation shows such keys as examples.
    """
    text = _strict_json(event)
    if hider is not None and hider.concerns(text):
        text = _strict_json(hider.hide(event))
    if not event["type"].endswith("-delta"):
        text = masked(text)
    return b"data: %b\n\n" % text.encode("ascii")


def message_json(message: Wire, events: SafeEvents, hider: ThreadHider) -> bytes:
    """Return a stored message as JSON for a page, without the data that *events* and *hider* remove."""
    rest = dict(hider.hide(message))
    parts = [page_part for part in rest.pop("parts") if (page_part := _page_part(part, events)) is not None]
    texts = [(part["type"], _strict_json(part)) for part in parts]
    shown = ",".join(text if kind in _TEXTS else masked(text) for kind, text in texts)
    return f'{masked(_strict_json(rest))[:-1]},"parts":[{shown}]}}'.encode("ascii")


def _page_part(part: Wire, events: SafeEvents) -> Wire | None:
    """Return a stored part for the web page. None if *events* drops the event that made it."""
    kind: str = part["type"]
    if kind.startswith("tool-") or kind == "dynamic-tool":
        if not isinstance(part.get("errorText"), str):
            return part
        failed = {"type": "tool-output-error", "toolCallId": "", "errorText": part["errorText"]}
        return {**part, "errorText": events.page(failed)[-1]["errorText"]}
    if kind in (*_TEXTS, "step-start"):
        return part
    page_events = events.page(part)  # all other parts have the fields of their event
    return part if page_events and page_events[0]["type"] == kind else None


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _strict_json(event: Wire) -> str:
    try:
        text = _encode(event)
    except ValueError:  # JSON has no infinity and no NaN
        text = _encode(_parsable(event))
    if "__proto__" in text or '"constructor"' in text:
        text = _encode(_parsable(event))
    return text


def _parsable(value: object) -> object:
    """Leave out names that the page's JSON parser rejects as an attack, and write infinities as null."""
    if is_object(value):
        return {name: _parsable(inner) for name, inner in value.items() if not _is_attack(name, inner)}
    if is_list(value):
        return [_parsable(inner) for inner in value]
    infinite = isinstance(value, float) and not math.isfinite(value)
    return None if infinite else value


def _is_attack(name: str, value: object) -> bool:
    return name == "__proto__" or (name == "constructor" and is_object(value) and "prototype" in value)
