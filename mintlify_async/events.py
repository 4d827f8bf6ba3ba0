"""One frozen class per event type of the AI SDK's "UI message stream".

Each class says which versions of the protocol (5, 6, 7) send it. Unknown fields of an event are kept in
``extra``, and an event of an unknown type is an :class:`UnknownEvent`. Null in an optional field counts as
absent. In a field of type ``Any``, ``None`` is null, and ``MISSING`` means that the field is absent.

An event never contains a thread's key, because the key is masked when the event is read, and ``to_wire()``
leaves it out. This does not apply to data of an application or a tool. ``data`` of :class:`Data`, and a
tool's ``input`` and ``output``, are not changed, because a web page may need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, get_args

import attrs
from attrs import frozen

from .model.wire_value import (
    EMPTY,
    LOCAL,
    MISSING,
    JSONObject,
    LenientText,
    MaskedJSON,
    Objects,
    ProviderMetadata,
    ThreadId,
    WireValue,
)


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Event(WireValue):
    """Base of all events. Each has a ``type``, its name on the wire.

    Args:
        extra: All additional fields that were sent.
    """

    extra: Mapping[str, Any] = EMPTY


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Start(Event):
    """The answer starts. Versions 5, 6, 7.

    Args:
        message_id: The message's id, or None.
        message_metadata: The server's metadata of the message, any JSON value.
    """

    type: ClassVar[str] = "start"
    message_id: str | None = None
    message_metadata: MaskedJSON = MISSING


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class StartStep(Event):
    """A step starts. It is one call of the model, with its tools. Versions 5, 6, 7."""

    type: ClassVar[str] = "start-step"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class FinishStep(Event):
    """A step has ended. Versions 5, 6, 7."""

    type: ClassVar[str] = "finish-step"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class BlockEvent(Event):
    """Base of the events of one text part or reasoning part."""

    id: str
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class TextStart(BlockEvent):
    """A text part starts. Versions 5, 6, 7."""

    type: ClassVar[str] = "text-start"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class TextDelta(BlockEvent):
    r"""The next piece of the text part *id*. Versions 5, 6, 7.

    A character outside the basic plane may be split into two deltas, one surrogate in each. The reply's
    ``text`` and ``text_stream`` join the two.
    """

    type: ClassVar[str] = "text-delta"
    delta: str


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class TextEnd(BlockEvent):
    """The text part *id* is complete. Versions 5, 6, 7; ``citations`` since 7."""

    type: ClassVar[str] = "text-end"
    citations: Objects | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ReasoningStart(BlockEvent):
    """A part with the model's reasoning starts. Versions 5, 6, 7."""

    type: ClassVar[str] = "reasoning-start"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ReasoningDelta(BlockEvent):
    """The next piece of the reasoning part *id*. Versions 5, 6, 7."""

    type: ClassVar[str] = "reasoning-delta"
    delta: str


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ReasoningEnd(BlockEvent):
    """The reasoning part *id* is complete. Versions 5, 6, 7."""

    type: ClassVar[str] = "reasoning-end"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolEvent(Event):
    """Base of the events that change the state of a tool call."""

    tool_call_id: str
    provider_executed: bool | None = None
    dynamic: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: JSONObject | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolInputStart(ToolEvent):
    """A tool's input starts. Versions 5, 6, 7.

    ``provider_metadata``, ``tool_metadata``, ``title`` and ``input_encoding`` exist since 6.
    """

    type: ClassVar[str] = "tool-input-start"
    tool_name: str
    title: str | None = None
    input_encoding: str | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolInputDelta(Event):
    """The next piece of a tool's input, part of a JSON text. Versions 5, 6, 7."""

    type: ClassVar[str] = "tool-input-delta"
    tool_call_id: str
    input_text_delta: str


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolInputAvailable(ToolEvent):
    """A tool's input is complete. Versions 5, 6, 7; ``title`` and ``tool_metadata`` since 6."""

    type: ClassVar[str] = "tool-input-available"
    tool_name: str
    input: Any = MISSING
    title: str | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolInputError(ToolEvent):
    """A tool's input is wrong. Versions 5 (5.0.7), 6, 7; ``title`` and ``tool_metadata`` since 6."""

    type: ClassVar[str] = "tool-input-error"
    tool_name: str
    error_text: str
    input: Any = MISSING
    title: str | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolOutputAvailable(ToolEvent):
    """A tool's result. Versions 5, 6, 7; ``provider_metadata`` and ``tool_metadata`` since 6.

    Args:
        tool_call_id: The id of the call.
        output: The result. The result of the ``search`` tool has a list ``results``.
        provider_executed: Whether the model's provider ran the tool.
        dynamic: Whether the tool was defined at run time, not in the server's code.
        preliminary: Whether another result will replace this one.
        provider_metadata: Metadata of the model's provider.
        tool_metadata: Metadata of the tool.
    """

    type: ClassVar[str] = "tool-output-available"
    output: Any = MISSING
    preliminary: bool | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolOutputError(ToolEvent):
    """A tool failed. Versions 5, 6, 7; ``provider_metadata`` and ``tool_metadata`` since 6."""

    type: ClassVar[str] = "tool-output-error"
    error_text: str


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolApprovalRequest(Event):
    """A tool call needs the user's approval. Versions 6, 7; ``reason`` and ``is_automatic`` since 7."""

    type: ClassVar[str] = "tool-approval-request"
    approval_id: str
    tool_call_id: str
    signature: str | None = None
    approval_descriptor: Any = MISSING
    input_schema_input: Any = MISSING
    reason: str | None = None
    is_automatic: bool | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolApprovalResponse(Event):
    """The tool call was approved or denied. Version 7."""

    type: ClassVar[str] = "tool-approval-response"
    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolOutputDenied(Event):
    """The tool was not run, because the approval was denied. Versions 6, 7."""

    type: ClassVar[str] = "tool-output-denied"
    tool_call_id: str


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SourceUrl(Event):
    """A documentation page that the answer is based on. Versions 5, 6, 7."""

    type: ClassVar[str] = "source-url"
    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SourceDocument(Event):
    """A document that the answer is based on. Versions 5, 6, 7."""

    type: ClassVar[str] = "source-document"
    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class File(Event):
    """A file, often as a ``data:`` URL. Versions 5, 6, 7."""

    type: ClassVar[str] = "file"
    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ReasoningFile(Event):
    """A file that belongs to the reasoning. Version 7."""

    type: ClassVar[str] = "reasoning-file"
    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Custom(Event):
    """A part that is specific to the model's provider. Version 7."""

    type: ClassVar[str] = "custom"
    kind: str
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Data(Event):
    """Application data, of type ``data-NAME``. Versions 5, 6, 7.

    Args:
        name: The type without ``data-``.
        data: Any JSON value.
        id: Identifies the data, or None. A later event with the same type and id replaces the data.
        transient: Whether the message does not keep the data.
    """

    name: str = attrs.field(metadata=LOCAL)
    data: Any = MISSING
    id: str | None = None
    transient: bool | None = None

    @property
    def type(self) -> str:
        """The event's name on the wire."""
        return "data-" + self.name


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class MessageMetadata(Event):
    """Metadata of the message. Versions 5, 6, 7."""

    type: ClassVar[str] = "message-metadata"
    message_metadata: MaskedJSON = MISSING


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Finish(Event):
    """The answer is complete. Versions 5, 6, 7.

    Args:
        finish_reason: ``stop``, ``length``, ``content-filter``, ``tool-calls``, ``error``, ``other``,
            ``unknown`` (5), ``interrupted`` (7), or a word of a later version.
        message_metadata: The server's metadata of the message, any JSON value.
        thread_id: The thread's id, if this event has one. ``reply.thread`` also reads other places.
    """

    type: ClassVar[str] = "finish"
    finish_reason: str | None = None
    message_metadata: MaskedJSON = MISSING
    thread_id: ThreadId = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class AbortEvent(Event):
    """The server stopped the answer. Versions 5, 6, 7; ``reason`` since 6."""

    type: ClassVar[str] = "abort"
    reason: str | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ErrorEvent(Event):
    """The answer failed. Versions 5, 6, 7. The next step raises ``AssistantError``.

    Args:
        error_text: The field ``errorText``, or empty if the event has none. ``extra`` has the other fields,
            and ``AssistantError.error_text`` the text under any field name.
    """

    type: ClassVar[str] = "error"
    error_text: LenientText = ""


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ResetStep(Event):
    """The step is discarded. The message drops all parts since the step started. Version 7 (7.0.70)."""

    type: ClassVar[str] = "reset-step"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SteeringMessage(Event):
    """A message that the user sent during the answer. Its *parts* are not decoded. Version 7."""

    type: ClassVar[str] = "steering-message"
    id: str
    parts: Objects


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class UnknownEvent(Event):
    """An event of an unknown type. It does not change the message.

    Args:
        type: The type's name on the wire.
        extra: All other fields. The thread's key is masked.
    """

    type: str

    @property
    def raw(self) -> Mapping[str, Any]:
        """The complete JSON object."""
        return {"type": self.type, **self.extra}


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
"""The class of each type on the wire. ``data-*`` is :class:`Data`, any other type :class:`UnknownEvent`."""

__all__ = ["MISSING", "Event", "StreamEvent"]
__all__ += [cls.__name__ for cls in get_args(StreamEvent)]
