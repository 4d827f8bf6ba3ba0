"""The AI SDK's UIMessage as frozen classes: messages and their parts, read from JSON and written to it.

The class of a part has the part's name on the wire, with ``Part`` added. A part of an unknown type is an
:class:`UnknownPart`, which keeps all fields. For wrong input, a ``ConfigurationError`` names the field, such
as ``messages[2].parts[0].text``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast, get_args

import attrs
from attrs import frozen

from .argument_checks import MAX_DEPTH, TOO_DEEP, check_json, check_text
from .errors import ConfigurationError
from .model.pydantic_fields import InModels, schema_of
from .model.secret import drop_keys, mask_keys
from .model.strict_json import as_object, join_surrogates, json_safe, whole_characters
from .model.wire_value import (
    EMPTY,
    LOCAL,
    MISSING,
    JSONObject,
    Objects,
    ProviderMetadata,
    WireValue,
    read_argument,
    without_halves,
)


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Part(WireValue):
    """Base of all parts. Each has a ``type``: its name on the wire.

    Args:
        extra: All additional fields that were sent.
    """

    extra: Mapping[str, Any] = EMPTY


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class TextPart(Part):
    """A part of text.

    Args:
        text: The text. While it streams, it may end with the first half of a surrogate pair, which
            ``Message.text`` leaves out. Every other lone surrogate in an answer is replaced by U+FFFD.
        state: ``streaming`` or ``done``. None in a message that was not streamed.
        provider_metadata: Metadata of the model's provider.
        citations: Sources of passages.
        extra: Everything else that was sent.
    """

    type: ClassVar[str] = "text"
    text: str
    state: str | None = None
    provider_metadata: ProviderMetadata | None = None
    citations: Objects | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ReasoningPart(Part):
    """A part with the model's reasoning."""

    type: ClassVar[str] = "reasoning"
    text: str
    id: str | None = None
    state: str | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolApproval(WireValue):
    """The user's approval of a tool call, requested or given.

    Args:
        id: The request's id.
        approved: The decision, or None if there is none yet.
        reason: The reason for the decision.
        request_reason: The reason for the request.
        is_automatic: Whether a rule decided instead of a person.
        descriptor: The server's description of the request.
        input_schema_input: The input in the form of the tool's schema.
        signature: The server's signature of the request.
        extra: Everything else that was sent.
    """

    id: str
    approved: bool | None = None
    reason: str | None = None
    request_reason: str | None = None
    is_automatic: bool | None = None
    descriptor: Any = MISSING
    input_schema_input: Any = MISSING
    signature: str | None = None
    extra: Mapping[str, Any] = EMPTY


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ToolPart(Part):
    """A tool call: its input, and its result when there is one. On the wire ``tool-NAME``.

    Args:
        tool_name: The tool.
        tool_call_id: The call.
        state: ``input-streaming``, ``input-available``, ``output-available``, ``output-error``,
            ``approval-requested``, ``approval-responded``, ``output-denied``, or a word of a later version.
        input: The input. ``MISSING`` while it streams, like every field that was not sent.
        output: The result of the tool.
        error_text: The reason why the tool failed.
        raw_input: The text of the input up to now, or an input that does not fit the tool's schema.
        preliminary: Whether another result will replace this one.
        provider_executed: Whether the model's provider ran the tool.
        title: A name to show to people.
        tool_metadata: Metadata of the tool.
        input_encoding: ``json`` or ``text``.
        call_provider_metadata: The provider's metadata of the call.
        result_provider_metadata: The provider's metadata of the result.
        approval: The user's approval, or None if none was requested.
        extra: Everything else that was sent.
    """

    tool_name: str = attrs.field(metadata=LOCAL)
    tool_call_id: str
    state: str
    input: Any = MISSING
    output: Any = MISSING
    error_text: str | None = None
    raw_input: Any = MISSING
    preliminary: bool | None = None
    provider_executed: bool | None = None
    title: str | None = None
    tool_metadata: JSONObject | None = None
    input_encoding: str | None = None
    call_provider_metadata: ProviderMetadata | None = None
    result_provider_metadata: ProviderMetadata | None = None
    approval: ToolApproval | None = None

    @property
    def type(self) -> str:
        """The part's name on the wire."""
        return "tool-" + self.tool_name


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class DynamicToolPart(ToolPart):
    """A call of a tool that was defined at run time. On the wire ``dynamic-tool``."""

    @property
    def type(self) -> str:
        """The part's name on the wire."""
        return "dynamic-tool"

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object. It is always valid JSON, because an infinite number becomes None."""
        return {"type": self.type, "toolName": self.tool_name, **super().to_wire()}


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SourceUrlPart(Part):
    """A documentation page that the answer is based on."""

    type: ClassVar[str] = "source-url"
    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SourceDocumentPart(Part):
    """A document that the answer is based on."""

    type: ClassVar[str] = "source-document"
    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class FilePart(Part):
    """A file with its media type and its URL, often a ``data:`` URL."""

    type: ClassVar[str] = "file"
    media_type: str
    url: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ReasoningFilePart(Part):
    """A file that belongs to the reasoning."""

    type: ClassVar[str] = "reasoning-file"
    media_type: str
    url: str
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class CustomPart(Part):
    """A part that is specific to the model's provider."""

    type: ClassVar[str] = "custom"
    kind: str
    provider_metadata: ProviderMetadata | None = None


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class DataPart(Part):
    """Application data. On the wire ``data-NAME``."""

    name: str = attrs.field(metadata=LOCAL)
    data: Any = MISSING
    id: str | None = None

    @property
    def type(self) -> str:
        """The part's name on the wire."""
        return "data-" + self.name


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class StepStartPart(Part):
    """Marks the start of a step."""

    type: ClassVar[str] = "step-start"


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SteeringMessagePart(Part):
    """A message that the user sent during the answer."""

    type: ClassVar[str] = "steering-message"
    id: str
    parts: Objects


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class UnknownPart(Part):
    """A part of an unknown type. It keeps all fields.

    Args:
        type: The part's name on the wire.
        extra: All other fields.
    """

    type: str

    @property
    def raw(self) -> Mapping[str, Any]:
        """The complete JSON object."""
        return {"type": self.type, **self.extra}


MessagePart: TypeAlias = (
    TextPart
    | ReasoningPart
    | ToolPart
    | DynamicToolPart
    | SourceUrlPart
    | SourceDocumentPart
    | FilePart
    | ReasoningFilePart
    | CustomPart
    | DataPart
    | StepStartPart
    | SteeringMessagePart
    | UnknownPart
)
"""Any part of a message."""

_CLASSES: Final[dict[str, type[Part]]] = {  # assumption: part shapes
    cls.type: cls for cls in get_args(MessagePart) if isinstance(getattr(cls, "type", None), str)
}
"""The class of each type, except tools and data, whose types contain a name."""


def part_from_wire(wire: object, where: str = "part") -> MessagePart:
    """Read one part of a UIMessage.

    Raises:
        ConfigurationError: *wire* is no valid part. The error names the field, starting with *where*.
    """
    content = as_object(wire)
    if content is None:
        raise ConfigurationError(f"{where} must be an object, not {type(wire).__name__}", field=where)
    kind = check_text(content.get("type"), f"{where}.type")
    cls = _CLASSES.get(kind)
    if cls is not None:
        return cast("MessagePart", read_argument(cls, content, where))
    if kind == "dynamic-tool":
        name = check_text(content.pop("toolName", None), f"{where}.toolName", empty=True)
        return read_argument(DynamicToolPart, content, where, tool_name=name)
    if kind.startswith("tool-"):
        return read_argument(ToolPart, content, where, tool_name=kind.removeprefix("tool-"))
    if kind.startswith("data-"):
        return read_argument(DataPart, content, where, name=kind.removeprefix("data-"))
    return UnknownPart(type=kind, extra={k: v for k, v in content.items() if k != "type"})


def _parts_from_wire(parts: Sequence[object], where: str) -> tuple[MessagePart, ...]:
    return tuple(part_from_wire(part, f"{where}.parts[{i}]") for i, part in enumerate(parts))


def clean_text(text: str, *, streaming: bool = False) -> str:
    """Return *text* for display. Surrogate pairs are joined, and each lone surrogate becomes U+FFFD.

    With *streaming*, a high surrogate at the end is left out, because its low surrogate may follow.
    """
    joined = join_surrogates(text)
    if streaming and joined and "\ud800" <= joined[-1] <= "\udbff":
        joined = joined[:-1]
    return whole_characters(joined)


MESSAGES_DEPTH: Final = MAX_DEPTH + 4
"""Maximum nesting of a list of messages. Parts contain fields of events, which may be nested 200 deep."""


def _to_tuple(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    return tuple(parts)


Role: TypeAlias = Literal["user", "system", "assistant"] | str
"""A message's role. The service documents ``user``, and the AI SDK adds ``system`` and ``assistant``.

Other words are allowed, because the service does not list its roles.
"""


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Message(WireValue, InModels):
    """One message of a conversation: a UIMessage.

    It can be a field of a pydantic model and the result of a FastAPI handler.

    Args:
        id: The message's id, or empty if the server gave none.
        role: ``user``, ``system``, ``assistant``, or a word of a later version.
        parts: The parts of the message, in order.
        metadata: The server's metadata, any JSON value, or None.
        extra: Additional fields of a stored message.
    """

    id: str
    role: Role
    parts: tuple[MessagePart, ...] = attrs.field(default=(), converter=_to_tuple)
    metadata: Any = None
    extra: Mapping[str, Any] = EMPTY

    @property
    def text(self) -> str:
        """The text of all text parts. It never ends with a lone surrogate."""
        return "".join(
            clean_text(part.text, streaming=part.state == "streaming")
            for part in self.parts
            if isinstance(part, TextPart)
        )

    @classmethod
    def user(cls, text: str, id: str | None = None) -> Message:
        """Return a user message with one text. Without an *id*, it gets an id when it is sent."""
        return cls(id=id or "", role="user", parts=(TextPart(text=check_text(text, "text")),))

    @classmethod
    def system(cls, text: str, id: str | None = None) -> Message:
        """Return a system message with one text. Without an *id*, it gets an id when it is sent."""
        return cls(id=id or "", role="system", parts=(TextPart(text=check_text(text, "text")),))

    def to_wire(self) -> dict[str, Any]:
        """Return the message as JSON. It is always valid JSON and contains no thread's key."""
        wire: dict[str, Any] = {"id": self.id, "role": self.role}
        if self.metadata is not None:
            wire["metadata"] = json_safe(drop_keys(self.metadata))
        wire["parts"] = [part.to_wire() for part in self.parts]
        if self.extra:
            wire.update(json_safe(dict(self.extra)))
        return wire

    @classmethod
    def from_wire(cls, wire: object, where: str = "message") -> Message:
        """Read a UIMessage, or ``{"role": "user", "content": "text"}``.

        Raises:
            ConfigurationError: *wire* is no valid message. The error names the field, starting with *where*.
        """
        content = as_object(wire)
        if content is None:
            hint = "; pass its .message" if hasattr(type(wire), "message") else ""  # for an Answer or a Reply
            kind = type(wire).__name__
            raise ConfigurationError(
                f"{where} must be text, a Message or its dict, not {kind}{hint}", field=where
            )
        check_json(content, where, depth=MESSAGES_DEPTH)
        id = check_text(content.pop("id", ""), f"{where}.id", empty=True)
        role = check_text(content.pop("role", None), f"{where}.role")
        parts = content.pop("parts", None)
        if not parts and "content" in content:  # other SDKs write messages in this form
            parts = [{"type": "text", "text": _text_of(content.pop("content"), where)}]
        if not isinstance(parts, list):
            raise ConfigurationError(
                f'{where}.parts must be a list, such as [{{"type": "text", "text": "Hi"}}]',
                field=f"{where}.parts",
            )
        metadata = mask_keys(content.pop("metadata", None))
        message_parts = _parts_from_wire(cast("Sequence[object]", parts), where)
        return cls(id=id, role=role, parts=message_parts, metadata=metadata, extra=content or EMPTY)

    @classmethod
    def _model_schema(cls) -> dict[str, Any]:
        return {**schema_of(cls), "required": ["id", "role", "parts"]}

    @classmethod
    def _from_model(cls, content: object) -> Message:
        return cls.from_wire(content)

    _to_model = to_wire


def whole_message(message: Message, *, streaming: bool = False) -> Message:
    """Return *message* with each lone surrogate replaced by U+FFFD, also in ids and metadata.

    With *streaming*, a text part that is not complete keeps a high surrogate at its end.
    """
    whole = without_halves(message)
    if not streaming or whole is message:
        return whole
    pairs = zip(message.parts, whole.parts, strict=True)
    return attrs.evolve(whole, parts=[_with_last_half(*pair) for pair in pairs])


def _with_last_half(part: MessagePart, whole: MessagePart) -> MessagePart:
    """Return *whole*, which was made from *part*.

    If more text may follow, the returned part ends with the last character of *part*.
    """
    name = "raw_input" if isinstance(part, ToolPart) else "text"
    text = getattr(part, name, None)
    if not isinstance(text, str) or not "\ud800" <= text[-1:] <= "\udbff":
        return whole
    if getattr(part, "state", None) not in ("streaming", "input-streaming"):
        return whole
    return attrs.evolve(whole, **{name: getattr(whole, name)[:-1] + text[-1]})


def _text_of(content: object, where: str) -> str:
    if not isinstance(content, str):
        raise ConfigurationError(
            f"{where}.content must be text, not {type(content).__name__}; give a list of parts as "
            f'{where}.parts, such as [{{"type": "text", "text": "Hi"}}]',
            field=f"{where}.content",
        )
    return check_text(content, f"{where}.content")


def coerce_messages(content: object, make_id: Callable[[], str]) -> list[Message]:
    """Return *content* as messages, each with an id.

    Args:
        content: A text, a :class:`Message`, a UIMessage as a dict, or a list of these.
        make_id: Makes an id for a message that has none.

    Raises:
        ConfigurationError: *content* is empty, or a message is invalid. The error names the field.
    """
    if isinstance(content, str) and content:
        return [Message(id=make_id(), role="user", parts=(TextPart(text=content),))]
    if isinstance(content, Sequence) and not content:
        raise ConfigurationError("messages is empty; a question needs at least 1 character", field="messages")
    if isinstance(content, Message | Mapping):
        return [_with_id(_coerce(cast("object", content), "messages"), make_id)]
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        kind = type(content).__name__
        raise ConfigurationError(f"messages must be text, a message or a list, not {kind}", field="messages")
    items = enumerate(cast("Sequence[object]", content))
    return [_with_id(_coerce(item, f"messages[{i}]"), make_id) for i, item in items]


def _coerce(item: object, where: str) -> Message:
    if isinstance(item, Message):
        return _checked(item, where)
    if isinstance(item, str):
        return Message.user(check_text(item, where))
    return Message.from_wire(item, where)


def _with_id(message: Message, make_id: Callable[[], str]) -> Message:
    return message if message.id else attrs.evolve(message, id=make_id())


def _checked(message: Message, where: str) -> Message:
    """Return *message* if its fields are valid. The caller may have set any value."""
    check_text(message.role, f"{where}.role")
    check_text(message.id, f"{where}.id", empty=True)
    for i, part in enumerate(cast("Sequence[object]", message.parts)):
        at = f"{where}.parts[{i}]"
        if not isinstance(part, Part):
            raise ConfigurationError(f"{at} must be a part, not {type(part).__name__}", field=at)
    try:
        wire = message.to_wire()
        check_json(wire, where, depth=MESSAGES_DEPTH)
        _parts_from_wire(wire["parts"], where)
    except RecursionError:
        pass
    else:
        return message
    raise ConfigurationError(f"{where} {TOO_DEEP}", field=where)


Question: TypeAlias = str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]]
"""A question: a text, a message, a browser's UIMessage dict, or several of these."""

__all__ = ["MISSING", "Message", "MessagePart", "Part", "Question", "Role", "ToolApproval"]
__all__ += [cls.__name__ for cls in get_args(MessagePart)]
