"""Turns events of the service into events that a web page accepts and may get.

``useChat`` of ai 5.0.0 rejects an answer with one unknown field. Every release rejects an unknown type, a
``null`` in an optional field, and an unknown finish reason. So :class:`SafeEvents` passes only fields of
5.0.0, avoids sequences of events for which the page throws, and replaces the service's error texts with fixed
sentences. :class:`ThreadHider` removes the thread's id and key. For a page that loads a chat,
:func:`stored_message_json` does the same with a stored message.
"""

from __future__ import annotations

import json
import math
import re
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from mintlify_async.events import ReasoningDelta, StreamEvent, TextDelta
from mintlify_async.model.secret import MASK, mask_service_keys

from .page_question import Wire, is_field, is_id, is_list, is_object, shapes
from .refusal_texts import CUT_TEXT, STEP_FAILED_TEXT

OUR_DATA = "data-mintlify-"  # the prefix of the relay's own data parts


# --- What ai 5.0.0 accepts, field by field ------------------------------------------------------------

# The fields of each event type. A question mark marks an optional field.
_SHAPES = shapes(
    {
        "start": "messageId? messageMetadata?",
        "start-step": "",
        "finish-step": "",
        "text-start": "id providerMetadata?",
        "text-delta": "id delta providerMetadata?",
        "text-end": "id providerMetadata?",
        "reasoning-start": "id providerMetadata?",
        "reasoning-delta": "id delta providerMetadata?",
        "reasoning-end": "id providerMetadata?",
        "tool-input-start": "toolCallId toolName providerExecuted? dynamic?",
        "tool-input-delta": "toolCallId inputTextDelta",
        "tool-input-available": "toolCallId toolName input providerExecuted? dynamic? providerMetadata?",
        "tool-output-available": "toolCallId output providerExecuted? dynamic?",
        "tool-output-error": "toolCallId errorText providerExecuted? dynamic?",
        # This type is newer than 5.0.0. SafeEvents replaces it with two older events, so the call has a part.
        "tool-input-error": "toolCallId toolName input errorText dynamic?",
        "source-url": "sourceId url title? providerMetadata?",
        "source-document": "sourceId mediaType title filename? providerMetadata?",
        "file": "url mediaType providerMetadata?",
        "data": "data id? transient?",
        "message-metadata": "messageMetadata",
        "finish": "messageMetadata?",
        "abort": "",
        "error": "errorText",
    }
)


def _fit(kind: str, wire: Wire) -> Wire | None:
    """Return only the fields of *kind* from *wire*. None if a required field is missing or invalid."""
    event: Wire = {"type": wire["type"]}
    for name, optional in _SHAPES[kind]:
        value = wire.get(name)  # the service may omit input, output and data, but the page requires them
        if is_field(kind, name, value):
            event[name] = value
        elif not optional:
            return None
    return event


class SafeEvents:
    """Makes one answer valid for every ``useChat`` from ai 5.0.0 on. Tracks the open parts and calls."""

    def __init__(self) -> None:
        # The start of the next delta's frame, for each open part.
        self._open: dict[str, dict[str, str]] = {"text": {}, "reasoning": {}}
        self._dynamic: dict[str, bool] = {}
        self._named = False

    def delta_head(self, delta: TextDelta | ReasoningDelta) -> str | None:
        """Return the start of the frame of *delta*, or None if its part is not open in the page."""
        return self._open["text" if delta.__class__ is TextDelta else "reasoning"].get(delta.id)

    def page(self, wire: Wire) -> list[Wire]:
        """Return the events for *wire* that pages of every release accept."""
        kind: str = wire["type"]
        shape = "data" if kind.startswith("data-") else kind
        if shape not in _SHAPES or kind == "data":
            rest = {name: value for name, value in wire.items() if name != "type"}
            return [{"type": OUR_DATA + kind, "data": rest, "transient": True}]
        event = _fit(shape, wire)
        if event is None:
            return []
        part, _, step = kind.partition("-")
        if part in self._open:
            return self._part(part, step, event)
        if kind == "start":
            # A second id is left out, because the page would show a second message. If there is no id, the
            # page makes one.
            if self._named or not is_id(event.get("messageId")):
                event.pop("messageId", None)
            self._named = self._named or "messageId" in event
        elif kind == "finish-step":
            return [*self._ends(), event]
        elif kind == "tool-input-error":
            # Without providerExecuted, the page would call its onToolCall for a call that cannot run.
            call = {**event, "type": "tool-input-available", "providerExecuted": True}
            del call["errorText"]
            return [*self.page(call), *self.page({**event, "type": "tool-output-error"})]
        elif part == "tool":
            self._tool(step, event)
        return [event]

    def _part(self, part: str, step: str, event: Wire) -> list[Wire]:
        opened, id_ = self._open[part], event["id"]
        is_open = id_ in opened
        if step == "end":
            opened.pop(id_, None)
            return [event] if is_open else []
        opened[id_] = f'data: {{"type":"{part}-delta","id":{quoted(id_)},"delta":'
        # A part may continue after finish-step, where ai 5 and 6 drop all open parts. So it is opened again.
        again = step == "delta" and not is_open
        return [{"type": f"{part}-start", "id": id_}, event] if again else [event]

    def _ends(self) -> list[Wire]:
        ends = [{"type": f"{part}-end", "id": id_} for part, opened in self._open.items() for id_ in opened]
        for opened in self._open.values():
            opened.clear()
        return ends

    def _tool(self, step: str, event: Wire) -> None:
        if step in ("input-start", "input-available"):
            self._dynamic[event["toolCallId"]] = event.get("dynamic", False)
        elif step.startswith("output"):
            # ai 5 searches only the calls with the same value of dynamic.
            dynamic = self._dynamic.get(event["toolCallId"])
            if dynamic is not None:
                event.pop("dynamic", None)
            if dynamic:
                event["dynamic"] = True
        if step == "output-error":
            event["errorText"] = STEP_FAILED_TEXT  # pages from 7 on show it instead of an internal text


# --- What no page may see -----------------------------------------------------------------------------

MIN_HIDDEN_CHARACTERS = 6  # a shorter id, such as "1", is hidden only if it is the complete string
THREAD_DOMAIN = "threadSite"  # in a stored answer's metadata: its thread's domain, if not the session's
_THREAD_NAME = re.compile(r'"(?:x[-_]?)?thread[-_]?(?:id|key|site)"', re.IGNORECASE)


class ThreadHider:
    """Removes a thread's id and key from events, in any field."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}  # each value, and its form in JSON
        self._in_json: tuple[str, ...] = ()

    def learn(self, *values: str | None) -> None:
        """Hide these strings from now on."""
        self._values |= {value: quoted(value)[1:-1] for value in values if value}
        self._in_json = tuple(self._values.values())

    def hide(self, wire: Wire) -> Wire:
        """Return *wire* without thread ids and keys. If it contains none, return the same object."""
        return self._hidden(wire) if self.concerns(json.dumps(wire)) else wire

    def concerns(self, text: str) -> bool:
        """Return whether the JSON text *text* may contain a name or a string to hide."""
        return _THREAD_NAME.search(text) is not None or self.finds(text)

    def finds(self, text: str) -> bool:
        """Return whether the JSON text *text* may contain a string to hide."""
        for value in self._in_json:  # noqa: SIM110 - any() is three times slower, for each delta
            if value in text:
                return True
        return False

    def _hidden(self, value: Any) -> Any:
        if is_object(value):
            return {
                self._text(name): self._hidden(inner)
                for name, inner in value.items()
                if not _THREAD_NAME.fullmatch(f'"{name}"')
            }
        if is_list(value):
            return [self._hidden(inner) for inner in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for value in self._values:
            if text == value or (len(value) >= MIN_HIDDEN_CHARACTERS and value in text):
                text = text.replace(value, MASK)
        return text


# --- Frames -------------------------------------------------------------------------------------------

DONE = b"data: [DONE]\n\n"
STOPPED = b'data: {"type":"abort"}\n\n'
INTERRUPTED = b'data: {"type":"error","errorText":"%b"}\n\n' % CUT_TEXT.encode()
KEEP_ALIVE = b": keep-alive\n\n"
_DELTAS = (TextDelta, ReasoningDelta)
_TEXTS = ("text", "reasoning")  # the model's texts; see frame


def delta_frame(event: StreamEvent, events: SafeEvents, hider: ThreadHider) -> bytes | None:
    """Return the same frame for a delta as *events* and :func:`frame`, in a tenth of the time.

    None means that *event* needs the full check, because it is no delta, or has another field or a secret.
    """
    if not isinstance(event, _DELTAS):
        return None
    head = events.delta_head(event)
    if head is None or event.extra or event.provider_metadata is not None:
        return None
    text = f"{head}{quoted(event.delta)}}}\n\n"
    return None if hider.finds(text) else text.encode("ascii")


def frame(event: Wire, hider: ThreadHider | None = None) -> bytes:
    """Return *event* as one server-sent event, in ASCII and strict JSON for the page's parser.

    The thread of *hider* is hidden. Keys of the service, for example in an error's text, are masked. Deltas
    of the model's text are not changed, because documentation contains such keys as examples.
    """
    text = _strict_json(event)
    if hider is not None and hider.concerns(text):
        text = _strict_json(hider.hide(event))
    if not event["type"].endswith("-delta"):
        text = mask_service_keys(text)
    return b"data: %b\n\n" % text.encode("ascii")


def stored_message_json(message: Wire, events: SafeEvents, hider: ThreadHider) -> bytes:
    """Return a stored message as JSON for a page, without the data that *events* and *hider* remove."""
    rest = dict(hider.hide(message))
    parts = [page_part for part in rest.pop("parts") if (page_part := _stored_part(part, events)) is not None]
    texts = [(part["type"], _strict_json(part)) for part in parts]
    shown = ",".join(text if kind in _TEXTS else mask_service_keys(text) for kind, text in texts)
    return f'{mask_service_keys(_strict_json(rest))[:-1]},"parts":[{shown}]}}'.encode("ascii")


def _stored_part(part: Wire, events: SafeEvents) -> Wire | None:
    """Return a stored part for the web page. None if *events* drops the part's event.

    The example page makes sources from the outputs of searches (``sourcesOf`` in its ``message.js``).
    """
    kind: str = part["type"]
    if kind.startswith("tool-") or kind == "dynamic-tool":
        return {**part, "errorText": STEP_FAILED_TEXT} if "errorText" in part else part
    if kind in (*_TEXTS, "step-start"):
        return part
    page_events = events.page(part)  # all other parts have the same fields as their event
    return part if page_events and page_events[0]["type"] == kind else None


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _strict_json(event: Wire) -> str:
    try:
        text = _encode(event)
    except ValueError:  # JSON has no infinity and no NaN
        return _encode(_parsable(event))
    return _encode(_parsable(event)) if "__proto__" in text or '"constructor"' in text else text


def _parsable(value: object) -> object:
    """Leave out names that the page's JSON parser rejects as an attack. Infinity becomes null."""
    if is_object(value):
        return {name: _parsable(inner) for name, inner in value.items() if not _is_attack(name, inner)}
    if is_list(value):
        return [_parsable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_attack(name: str, value: object) -> bool:
    return name == "__proto__" or (name == "constructor" and is_object(value) and "prototype" in value)
