"""The data of an event comes in; a typed, frozen event goes out.

One class a type of the AI SDK's "UI message stream", versions 5, 6 and 7; each class says which
versions send it. The annotation of a field is its schema: a field without a default is required,
the wire's name is the field's in camelCase. What a type does not know is kept in ``extra``, a type
that is not known becomes :class:`UnknownEvent`. Null in an optional field counts as absent; where
null means something, :data:`~mintlify_async.wire.MISSING` stands for absence.

A thread's key never stays in an event: it is masked here, and ``to_wire()`` leaves it out.

>>> parse_event('{"type":"text-delta","id":"0","delta":"Hi"}')
TextDelta(id='0', delta='Hi')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, get_args

from attrs import frozen

from .errors import StreamDecodeError, printable
from .wire import (
    MISSING,
    NO_EXTRA,
    JSONObject,
    NotReadable,
    Objects,
    ProviderMetadata,
    ThreadId,
    Value,
    blank,
    decode_json,
    mask_keys,
    mask_text,
    open_twin,
    schema,
    structure,
    unstructure,
)

__all__ = [
    "EVENT_TYPES",
    "AbortEvent",
    "Custom",
    "Data",
    "ErrorEvent",
    "Event",
    "File",
    "Finish",
    "FinishStep",
    "MessageMetadata",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningFile",
    "ReasoningStart",
    "ResetStep",
    "SourceDocument",
    "SourceUrl",
    "Start",
    "StartStep",
    "SteeringMessage",
    "StreamEvent",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ToolApprovalRequest",
    "ToolApprovalResponse",
    "ToolInputAvailable",
    "ToolInputDelta",
    "ToolInputError",
    "ToolInputStart",
    "ToolOutputAvailable",
    "ToolOutputDenied",
    "ToolOutputError",
    "UnknownEvent",
    "build_event",
    "parse_event",
]


class Event(Value):
    """What every event has: a ``type``, its name on the wire, and :meth:`to_wire`."""

    __slots__ = ()

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object, valid JSON: without the thread's key, infinity as None."""
        event = cast("StreamEvent", self)
        return unstructure(event, schema(type(event)), {"type": event.type})


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Start(Event):
    """The answer begins. Versions 5, 6, 7.

    Args:
        message_id: The message's id, or None.
        message_metadata: Whatever the server says of the message.
    """

    type: ClassVar[str] = "start"
    message_id: str | None = None
    message_metadata: Any = MISSING
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class StartStep(Event):
    """A step begins: one call of the model, with its tools. Versions 5, 6, 7."""

    type: ClassVar[str] = "start-step"
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class FinishStep(Event):
    """A step has ended. Versions 5, 6, 7."""

    type: ClassVar[str] = "finish-step"
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class TextStart(Event):
    """A text part begins. Versions 5, 6, 7."""

    type: ClassVar[str] = "text-start"
    id: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class TextDelta(Event):
    r"""The text part *id* goes on. Versions 5, 6, 7.

    A character outside the basic plane may come in two deltas, a half in each; the reply's
    text and its ``text_stream`` join them.
    """

    type: ClassVar[str] = "text-delta"
    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class TextEnd(Event):
    """The text part *id* is complete. Versions 5, 6, 7; ``citations`` since 7."""

    type: ClassVar[str] = "text-end"
    id: str
    provider_metadata: ProviderMetadata | None = None
    citations: Objects | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ReasoningStart(Event):
    """A part that shows the model's reasoning begins. Versions 5, 6, 7."""

    type: ClassVar[str] = "reasoning-start"
    id: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ReasoningDelta(Event):
    """The reasoning part *id* goes on. Versions 5, 6, 7."""

    type: ClassVar[str] = "reasoning-delta"
    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ReasoningEnd(Event):
    """The reasoning part *id* is complete. Versions 5, 6, 7."""

    type: ClassVar[str] = "reasoning-end"
    id: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolInputStart(Event):
    """A tool's input begins. Versions 5, 6, 7; what follows ``dynamic`` since 6."""

    type: ClassVar[str] = "tool-input-start"
    tool_call_id: str
    tool_name: str
    provider_executed: bool | None = None
    dynamic: bool | None = None
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: JSONObject | None = None
    input_encoding: str | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolInputDelta(Event):
    """A tool's input goes on: JSON text, in pieces. Versions 5, 6, 7."""

    type: ClassVar[str] = "tool-input-delta"
    tool_call_id: str
    input_text_delta: str
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolInputAvailable(Event):
    """A tool's input is complete. Versions 5, 6, 7; ``title`` and ``tool_metadata`` since 6."""

    type: ClassVar[str] = "tool-input-available"
    tool_call_id: str
    tool_name: str
    input: Any = MISSING
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    dynamic: bool | None = None
    title: str | None = None
    tool_metadata: JSONObject | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolInputError(Event):
    """A tool's input is wrong. Versions 5 (5.0.7), 6, 7; ``title`` and ``tool_metadata`` since 6."""

    type: ClassVar[str] = "tool-input-error"
    tool_call_id: str
    tool_name: str
    error_text: str
    input: Any = MISSING
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    dynamic: bool | None = None
    title: str | None = None
    tool_metadata: JSONObject | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolOutputAvailable(Event):
    """A tool's result. Versions 5, 6, 7; ``provider_metadata`` and ``tool_metadata`` since 6.

    Args:
        tool_call_id: The call.
        output: The result; the ``search`` tool's holds ``results``.
        provider_executed: Whether the model's provider ran it.
        dynamic: Whether the tool is none of the server's own.
        preliminary: Whether another result will replace this one.
        provider_metadata: What the provider adds.
        tool_metadata: What the tool adds.
    """

    type: ClassVar[str] = "tool-output-available"
    tool_call_id: str
    output: Any = MISSING
    provider_executed: bool | None = None
    dynamic: bool | None = None
    preliminary: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: JSONObject | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolOutputError(Event):
    """A tool failed. Versions 5, 6, 7; ``provider_metadata`` and ``tool_metadata`` since 6."""

    type: ClassVar[str] = "tool-output-error"
    tool_call_id: str
    error_text: str
    provider_executed: bool | None = None
    dynamic: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: JSONObject | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolApprovalRequest(Event):
    """A tool waits for the user's consent. Versions 6, 7; ``reason`` and ``is_automatic`` since 7."""

    type: ClassVar[str] = "tool-approval-request"
    approval_id: str
    tool_call_id: str
    signature: str | None = None
    approval_descriptor: Any = MISSING
    input_schema_input: Any = MISSING
    reason: str | None = None
    is_automatic: bool | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolApprovalResponse(Event):
    """The consent was given or refused. Version 7."""

    type: ClassVar[str] = "tool-approval-response"
    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolOutputDenied(Event):
    """The tool was not run. Versions 6, 7."""

    type: ClassVar[str] = "tool-output-denied"
    tool_call_id: str
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SourceUrl(Event):
    """A page that the answer rests on. Versions 5, 6, 7."""

    type: ClassVar[str] = "source-url"
    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SourceDocument(Event):
    """A document that the answer rests on. Versions 5, 6, 7."""

    type: ClassVar[str] = "source-document"
    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class File(Event):
    """A file, often as a ``data:`` URL. Versions 5, 6, 7."""

    type: ClassVar[str] = "file"
    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ReasoningFile(Event):
    """A file that belongs to the reasoning. Version 7."""

    type: ClassVar[str] = "reasoning-file"
    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Custom(Event):
    """A part of a kind that only the provider knows. Version 7."""

    type: ClassVar[str] = "custom"
    kind: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Data(Event):
    """Data of the server's own, of type ``data-NAME``. Versions 5, 6, 7.

    Args:
        name: What follows ``data-`` in the type.
        data: Anything.
        id: Names the data: a later event of the same type and id replaces it. May be None.
        transient: Whether it is left out of the message.
    """

    name: str
    data: Any = MISSING
    id: str | None = None
    transient: bool | None = None
    extra: Mapping[str, Any] = NO_EXTRA

    @property
    def type(self) -> str:
        """The type's name on the wire."""
        return "data-" + self.name


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class MessageMetadata(Event):
    """What the server says of the message. Versions 5, 6, 7."""

    type: ClassVar[str] = "message-metadata"
    message_metadata: Any = MISSING
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Finish(Event):
    """The answer is complete. Versions 5, 6, 7.

    Args:
        finish_reason: ``stop``, ``length``, ``content-filter``, ``tool-calls``, ``error``, ``other``,
            ``unknown`` (5), ``interrupted`` (7), or a word that this version does not know.
        message_metadata: Whatever the server says of the message.
        thread_id: The thread's id, where this event names it; ``reply.thread`` looks elsewhere, too.
    """

    type: ClassVar[str] = "finish"
    finish_reason: str | None = None
    message_metadata: Any = MISSING
    thread_id: ThreadId | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class AbortEvent(Event):
    """The server stopped the answer. Versions 5, 6, 7; ``reason`` since 6."""

    type: ClassVar[str] = "abort"
    reason: str | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ErrorEvent(Event):
    """The answer failed. Versions 5, 6, 7. ``AssistantError`` follows."""

    type: ClassVar[str] = "error"
    error_text: str
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ResetStep(Event):
    """Everything since the step began is void. Version 7 (7.0.70)."""

    type: ClassVar[str] = "reset-step"
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SteeringMessage(Event):
    """Something the user said while the answer ran. Version 7."""

    type: ClassVar[str] = "steering-message"
    id: str
    parts: Objects
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class UnknownEvent(Event):
    """An event of a type that this version does not know; it does not change the message.

    Args:
        type: The type's name on the wire.
        raw: The whole object, the thread's key masked.
    """

    type: str
    raw: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Everything but the type."""
        return {name: content for name, content in self.raw.items() if name != "type"}


StreamEvent: TypeAlias = (
    Start
    | StartStep
    | FinishStep
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputAvailable
    | ToolInputError
    | ToolOutputAvailable
    | ToolOutputError
    | ToolApprovalRequest
    | ToolApprovalResponse
    | ToolOutputDenied
    | SourceUrl
    | SourceDocument
    | File
    | ReasoningFile
    | Custom
    | Data
    | MessageMetadata
    | Finish
    | AbortEvent
    | ErrorEvent
    | ResetStep
    | SteeringMessage
    | UnknownEvent
)
"""Any event of the stream."""


EVENT_TYPES: Final[Mapping[str, type[Event]]] = MappingProxyType(
    {cls.type: cls for cls in get_args(StreamEvent) if cls is not Data and cls is not UnknownEvent}
)
"""The class of each type on the wire; ``data-*`` is :class:`Data`, any other :class:`UnknownEvent`."""


EXCERPT: Final = 2000
"""Characters of an event's data that an error keeps."""


def unreadable(problem: str, data: str) -> StreamDecodeError:
    """Return the error for an event that cannot be read, keys masked."""
    excerpt = mask_text(data[:EXCERPT])
    return StreamDecodeError(f"{problem}: {printable(excerpt)}", excerpt=excerpt)


def parse_event(data: str) -> StreamEvent:
    """Return the event that *data*, the data of one server-sent event, stands for.

    Raises:
        StreamDecodeError: It is no JSON object with a ``type``, lacks a field that its type
            requires, or has one of another type.
    """
    try:
        content = decode_json(data)
    except NotReadable as error:
        problem = str(error)
    else:
        return build_event(content, data)
    raise unreadable(f"the event {problem}", data)


def build_event(content: Any, data: str) -> StreamEvent:
    """Return the event for *content*, the JSON read from *data*.

    Raises:
        StreamDecodeError: As :func:`parse_event`.
    """
    wire: dict[str, Any] = content if isinstance(content, dict) else {}  # pyright: ignore[reportUnknownVariableType] - JSON
    kind = wire.get("type")
    if not isinstance(kind, str):
        raise unreadable("the event is no object with a type", data)
    if kind in _DELTAS and len(wire) == 3:
        delta = _delta(kind, wire)
        if delta is not None:
            return delta
    cls = EVENT_TYPES.get(kind)
    try:
        if cls is not None:
            event: Any = structure(cls, wire)
            return event  # type: ignore[no-any-return]  # one of them
        if kind.startswith("data-"):
            return structure(Data, wire, given={"name": kind[5:]})
    except NotReadable as error:
        problem = str(error)
    else:
        return UnknownEvent(type=kind, raw=mask_keys(wire))
    raise unreadable(kind + problem, data)


_EventT = TypeVar("_EventT", bound=Event)


def _two_texts(cls: type[_EventT], first: str, second: str) -> Callable[[str, str], _EventT]:
    """Return a function that makes a *cls* of its two texts, with plain stores."""

    def make(one: str, two: str) -> _EventT:
        event = blank(cls)
        setattr(event, first, one)
        setattr(event, second, two)
        event.__class__ = cls
        return event  # type: ignore[no-any-return]  # its class was set the line before

    return make


_open_text_delta: Final = open_twin(TextDelta)


def make_text_delta(id: str, delta: str) -> TextDelta:
    """Make a text delta with plain stores: nine of ten events are one, and a setter is a call."""
    event = _open_text_delta()
    event.id = id
    event.delta = delta
    event.provider_metadata = None
    event.extra = NO_EXTRA
    event.__class__ = TextDelta
    return event  # type: ignore[no-any-return]  # its class was set the line before


_DELTAS: Final[dict[str, tuple[str, str, Callable[[str, str], StreamEvent]]]] = {
    "text-delta": ("id", "delta", make_text_delta),
    "reasoning-delta": ("id", "delta", _two_texts(ReasoningDelta, "id", "delta")),
    "tool-input-delta": (
        "toolCallId",
        "inputTextDelta",
        _two_texts(ToolInputDelta, "tool_call_id", "input_text_delta"),
    ),
}
"""The types that come in hundreds: their two fields, and what makes them."""


def _delta(kind: str, wire: dict[str, Any]) -> StreamEvent | None:
    """Return the event when it is a delta with its two texts and nothing else."""
    first, second, make = _DELTAS[kind]
    name, delta = wire.get(first), wire.get(second)
    return make(name, delta) if isinstance(name, str) and isinstance(delta, str) else None
