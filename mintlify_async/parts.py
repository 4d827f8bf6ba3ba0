"""Messages: the AI SDK's UIMessage JSON comes in and goes out; frozen, typed parts between.

A message is what a reply folds into, what a history is made of, and what a page shows. Its parts
are classes named after the wire's word with ``Part``; a part of a type that this version does not
know is kept whole as :class:`UnknownPart`. Wrong input is a ``ConfigurationError`` that names the
field, such as ``messages[2].parts[0].text``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, TypeAlias, cast, get_args

import attrs
from attrs import frozen

from .errors import ConfigurationError
from .wire import (
    MAX_DEPTH,
    MISSING,
    NO_EXTRA,
    Field,
    JSONObject,
    NotReadable,
    Objects,
    ProviderMetadata,
    Value,
    as_object,
    drop_keys,
    json_safe,
    mask_keys,
    require_json,
    require_text,
    schema,
    structure,
    unstructure,
)

__all__ = [
    "CustomPart",
    "DataPart",
    "DynamicToolPart",
    "FilePart",
    "Message",
    "MessagePart",
    "Part",
    "ReasoningFilePart",
    "ReasoningPart",
    "SourceDocumentPart",
    "SourceUrlPart",
    "SteeringMessagePart",
    "StepStartPart",
    "TextPart",
    "ToolApproval",
    "ToolPart",
    "UnknownPart",
    "clean_text",
    "coerce_messages",
    "join_surrogates",
]


class Part(Value):
    """What every part has: a ``type``, its name on the wire, and :meth:`to_wire`."""

    __slots__ = ()

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object, valid JSON: infinity as None."""
        part = cast("MessagePart", self)
        return unstructure(part, schema(type(part)), {"type": part.type})


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class TextPart(Part):
    """Text.

    Args:
        text: The text. While it streams, its last character may be half of a pair;
            ``Message.text`` holds that half back.
        state: ``streaming`` or ``done``; None in a message that was not streamed.
        provider_metadata: What the provider adds.
        citations: Sources of passages.
        extra: Whatever else was sent.
    """

    type: ClassVar[str] = "text"
    text: str
    state: str | None = None
    provider_metadata: ProviderMetadata | None = None
    citations: Objects | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ReasoningPart(Part):
    """The model's reasoning, as far as it is shown."""

    type: ClassVar[str] = "reasoning"
    text: str
    id: str | None = None
    state: str | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolApproval(Value):
    """A user's consent to a tool's call, asked for or given.

    Args:
        id: The request's id.
        approved: The answer, or None while there is none.
        reason: The answer's reason.
        request_reason: The request's reason.
        is_automatic: Whether a rule answered, not a person.
        descriptor: What the server says of it.
        input_schema_input: The input as the tool's schema reads it.
        signature: The server's proof.
        extra: Whatever else was sent.
    """

    id: str
    approved: bool | None = None
    reason: str | None = None
    request_reason: str | None = None
    is_automatic: bool | None = None
    descriptor: Any = MISSING
    input_schema_input: Any = MISSING
    signature: str | None = None
    extra: Mapping[str, Any] = NO_EXTRA

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object."""
        return unstructure(self, schema(ToolApproval), {})


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ToolPart(Part):
    """A tool's call: its input, and its result when there is one. On the wire ``tool-NAME``.

    Args:
        tool_name: The tool.
        tool_call_id: The call.
        state: ``input-streaming``, ``input-available``, ``output-available``, ``output-error``,
            ``approval-requested``, ``approval-responded``, ``output-denied``, or a word of later versions.
        input: The input; while it streams, as much as can be read of it.
        output: The result.
        error_text: Why it failed.
        raw_input: The input's text so far, or an input that fits no schema.
        preliminary: Whether another result will replace this one.
        provider_executed: Whether the model's provider ran it.
        title: A name for people.
        tool_metadata: What the tool adds.
        input_encoding: ``json`` or ``text``.
        call_provider_metadata: What the provider adds to the call.
        result_provider_metadata: What the provider adds to the result.
        approval: The consent.
        extra: Whatever else was sent.
    """

    tool_name: str
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
    extra: Mapping[str, Any] = NO_EXTRA

    @property
    def type(self) -> str:
        """The type's name on the wire."""
        return "tool-" + self.tool_name

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object, valid JSON: infinity as None."""
        wire: dict[str, Any] = {"type": self.type}
        if isinstance(self, DynamicToolPart):
            wire["toolName"] = self.tool_name
        if self.approval is not None:
            wire["approval"] = self.approval.to_wire()
        return unstructure(self, _tool_schema(), wire)


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class DynamicToolPart(ToolPart):
    """A call of a tool that is none of the server's own. On the wire ``dynamic-tool``."""

    @property
    def type(self) -> str:
        """The type's name on the wire."""
        return "dynamic-tool"


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SourceUrlPart(Part):
    """A page that the answer rests on."""

    type: ClassVar[str] = "source-url"
    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SourceDocumentPart(Part):
    """A document that the answer rests on."""

    type: ClassVar[str] = "source-document"
    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class FilePart(Part):
    """A file: its media type, and an address, often a ``data:`` URL."""

    type: ClassVar[str] = "file"
    media_type: str
    url: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ReasoningFilePart(Part):
    """A file that belongs to the reasoning."""

    type: ClassVar[str] = "reasoning-file"
    media_type: str
    url: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class CustomPart(Part):
    """A part of a kind that only the provider knows."""

    type: ClassVar[str] = "custom"
    kind: str
    provider_metadata: ProviderMetadata | None = None
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class DataPart(Part):
    """Data of the server's own. On the wire ``data-NAME``."""

    name: str
    data: Any = MISSING
    id: str | None = None
    extra: Mapping[str, Any] = NO_EXTRA

    @property
    def type(self) -> str:
        """The type's name on the wire."""
        return "data-" + self.name


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class StepStartPart(Part):
    """Where a step begins."""

    type: ClassVar[str] = "step-start"
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SteeringMessagePart(Part):
    """Something the user said while the answer ran."""

    type: ClassVar[str] = "steering-message"
    id: str
    parts: Objects
    extra: Mapping[str, Any] = NO_EXTRA


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class UnknownPart(Part):
    """A part of a type that this version does not know, kept whole.

    Args:
        type: The type's name on the wire.
        raw: The whole object.
    """

    type: str
    raw: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Everything but the type."""
        return {name: content for name, content in self.raw.items() if name != "type"}


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

_CLASSES: Final[dict[str, type[Part]]] = {
    cls.type: cls for cls in get_args(MessagePart) if isinstance(cls.type, str)
}
"""The class of each type that has one name; those of tools and data have a name in theirs."""


@cache
def _tool_schema() -> tuple[Field, ...]:
    """Return the fields of a tool's part that are on the wire as they are here."""
    return tuple(field for field in schema(ToolPart) if field.name not in ("tool_name", "approval"))


def part_from_wire(wire: object, where: str = "part") -> MessagePart:
    """Read one part of a UIMessage.

    Raises:
        ConfigurationError: It is no such part; *where* begins the name of the field to blame.
    """
    content = as_object(wire)
    if content is None:
        raise ConfigurationError(f"{where} must be an object, not {type(wire).__name__}", field=where)
    kind = require_text(content.get("type"), f"{where}.type")
    try:
        return _read_part(kind, content)
    except NotReadable as error:
        problem = str(error)
    raise ConfigurationError(where + problem, field=where + problem.partition(" ")[0])


def _read_part(kind: str, content: dict[str, Any]) -> MessagePart:
    cls = _CLASSES.get(kind)
    if cls is not None:
        return cast("MessagePart", structure(cls, content))
    if kind == "dynamic-tool":
        name = content.pop("toolName", None)
        if not isinstance(name, str):
            raise NotReadable(".toolName must be a string")
        return _read_tool(DynamicToolPart, name, content)
    if kind.startswith("tool-"):
        return _read_tool(ToolPart, kind[5:], content)
    if kind.startswith("data-"):
        return structure(DataPart, content, given={"name": kind[5:]})
    return UnknownPart(type=kind, raw=content)


def _read_tool(cls: type[ToolPart], name: str, content: dict[str, Any]) -> ToolPart:
    approval = content.pop("approval", None)
    if approval is None:
        return structure(cls, content, _tool_schema(), {"tool_name": name})
    if not isinstance(approval, dict):
        raise NotReadable(".approval must be an object")
    try:
        consent = structure(ToolApproval, cast("dict[str, Any]", approval))
    except NotReadable as error:
        raise NotReadable(f".approval{error}") from None
    return structure(cls, content, _tool_schema(), {"tool_name": name, "approval": consent})


def join_surrogates(text: str) -> str:
    r"""Return *text* with the halves of a character that came in two pieces joined; others stay.

    >>> join_surrogates("\ud83d\ude00") == "\U0001f600"
    True
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def clean_text(text: str, *, streaming: bool = False) -> str:
    """Return *text* fit to be shown: halves joined, a lone half as U+FFFD.

    While it is *streaming*, a half at the end is held back: its other half may come.
    """
    joined = join_surrogates(text)
    if streaming and joined and "\ud800" <= joined[-1] <= "\udbff":
        joined = joined[:-1]
    if joined.isascii():
        return joined
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _as_tuple(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    return tuple(parts)


ROLES: Final = ("system", "user", "assistant")
"""Whose a message may be."""


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Message(Value):
    """One message of a conversation: a UIMessage.

    Args:
        id: The message's id; empty when the server gave none.
        role: ``system``, ``user`` or ``assistant``.
        parts: What it consists of.
        metadata: Whatever the server says of it, or None.
        extra: Whatever else a stored message held.
    """

    id: str
    role: str
    parts: tuple[MessagePart, ...] = attrs.field(default=(), converter=_as_tuple)
    metadata: Any = None
    extra: Mapping[str, Any] = NO_EXTRA

    @property
    def text(self) -> str:
        """The text parts, one after the other. Never half a character."""
        return "".join(
            clean_text(part.text, streaming=part.state == "streaming")
            for part in self.parts
            if isinstance(part, TextPart)
        )

    @classmethod
    def user(cls, text: str, id: str | None = None) -> Message:
        """Return a user's message of one text; without an *id* it gets one when it is sent."""
        return cls(id=id or "", role="user", parts=(TextPart(text=require_text(text, "text")),))

    @classmethod
    def system(cls, text: str, id: str | None = None) -> Message:
        """Return a system message of one text; without an *id* it gets one when it is sent."""
        return cls(id=id or "", role="system", parts=(TextPart(text=require_text(text, "text")),))

    def to_wire(self) -> dict[str, Any]:
        """Return the UIMessage JSON: valid JSON, without a thread's key."""
        wire: dict[str, Any] = {"id": self.id, "role": self.role}
        if self.metadata is not None:
            wire["metadata"] = json_safe(drop_keys(self.metadata))
        wire["parts"] = [part.to_wire() for part in self.parts]
        if self.extra:
            wire.update(json_safe(dict(self.extra)))
        return wire

    @classmethod
    def from_wire(cls, wire: object, where: str = "message") -> Message:
        """Read UIMessage JSON.

        Raises:
            ConfigurationError: It is no such message; *where* begins the name of the field to blame.
        """
        content = as_object(wire)
        if content is None:
            raise ConfigurationError(f"{where} must be an object, not {type(wire).__name__}", field=where)
        require_json(content, where)
        id = require_text(content.pop("id", ""), f"{where}.id", empty=True)
        role = content.pop("role", None)
        _check_role(role, where)
        parts = content.pop("parts", None)
        if not isinstance(parts, list):
            raise ConfigurationError(f"{where}.parts must be a list", field=f"{where}.parts")
        return cls(
            id=id,
            role=role,
            parts=tuple(
                part_from_wire(part, f"{where}.parts[{i}]")
                for i, part in enumerate(cast("Sequence[Any]", parts))
            ),
            metadata=mask_keys(content.pop("metadata", None)),
            extra=content or NO_EXTRA,
        )


def coerce_messages(given: object, make_id: Callable[[], str], *, field: str = "messages") -> list[Message]:
    """Return the messages that *given* stands for, each with an id.

    Args:
        given: A question as text, a :class:`Message`, a UIMessage as a dict, or a list of those.
        make_id: Makes an id for a message that has none.
        field: What the argument is called, for errors.

    Raises:
        ConfigurationError: There is none, or one is wrong: the error names the field.
    """
    if isinstance(given, str):
        return [Message.user(require_text(given, field), make_id())]
    if isinstance(given, Message | Mapping):
        return [_with_id(_coerce(cast("object", given), field), make_id)]
    if not isinstance(given, Sequence):
        kind = type(given).__name__
        raise ConfigurationError(
            f"{field} must be text, a message, or a list of those, not {kind}", field=field
        )
    messages = [_coerce(item, f"{field}[{i}]") for i, item in enumerate(cast("Sequence[object]", given))]
    if not messages:
        raise ConfigurationError(f"{field} must not be empty", field=field)
    return [_with_id(message, make_id) for message in messages]


def _coerce(given: object, where: str) -> Message:
    if isinstance(given, Message):
        return _checked(given, where)
    if isinstance(given, str):
        return Message.user(require_text(given, where))
    return Message.from_wire(given, where)


def _check_role(role: object, where: str) -> None:
    if role not in ROLES:
        raise ConfigurationError(
            f"{where}.role must be 'system', 'user' or 'assistant', not {role!r}", field=f"{where}.role"
        )


def _with_id(message: Message, make_id: Callable[[], str]) -> Message:
    return message if message.id else attrs.evolve(message, id=make_id())


def _checked(message: Message, where: str) -> Message:
    """Return *message*, whose fields may hold anything, when they hold what they should."""
    _check_role(message.role, where)
    require_text(message.id, f"{where}.id", empty=True)
    for i, part in enumerate(cast("Sequence[object]", message.parts)):
        at = f"{where}.parts[{i}]"
        if not isinstance(part, Part):
            raise ConfigurationError(f"{at} must be a part, not {type(part).__name__}", field=at)
        for field in schema(type(part)):
            content = getattr(part, field.name)
            absent = content is MISSING or (content is None and not field.nullable)
            if field.required if absent else not field.check(content):
                raise ConfigurationError(
                    f"{at}.{field.wire} must be {field.what}", field=f"{at}.{field.wire}"
                )
    try:
        require_json(message.to_wire(), where)
    except RecursionError:
        pass
    else:
        return message
    raise ConfigurationError(f"{where} is nested deeper than {MAX_DEPTH}", field=where)
