"""Part builders: collect the pieces of a message's parts and make frozen parts when they are asked for.

Pieces are joined, and a tool's input is parsed, only then, so that the cost is linear in the size of the
part. A snapshot is kept until the builder changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from attrs import define, field

from ..messages import DynamicToolPart, MessagePart, ReasoningPart, TextPart, ToolPart, join_surrogates
from ..model.partial_json import parse_partial
from ..model.wire_value import MISSING, Objects, ProviderMetadata


class FixedPart:
    """A part that arrives whole. A data part may be replaced by a later one with the same id."""

    __slots__ = ("part",)

    def __init__(self, part: MessagePart) -> None:
        """Hold *part*."""
        self.part = part

    def snapshot(self) -> MessagePart:
        """Return the part as it is now."""
        return self.part


class TextPartBuilder:
    """Builds a text or reasoning part. Append to ``pieces``; call :meth:`changed` after any other change."""

    __slots__ = ("_part", "citations", "id", "metadata", "pieces", "reasoning", "state")

    def __init__(self, *, reasoning: bool, id: str | None, metadata: ProviderMetadata | None) -> None:
        """Begin without text."""
        self.reasoning = reasoning
        self.id = id
        self.metadata = metadata
        self.citations: Objects | None = None
        self.state = "streaming"
        self.pieces: list[str] = []
        self._part: MessagePart | None = None

    def changed(self) -> None:
        """Forget the last snapshot."""
        self._part = None

    def text(self) -> str:
        """Return the text as it is now."""
        text = join_surrogates("".join(self.pieces))
        if len(self.pieces) > 1:
            self._part = None  # made before the last pieces
        self.pieces[:] = [text]
        return text

    def snapshot(self) -> MessagePart:
        """Return the part as it is now."""
        if self._part is None or len(self.pieces) > 1:  # a snapshot leaves one piece
            self._part = self._make(self.text())
        return self._part

    def _make(self, text: str) -> MessagePart:
        if self.reasoning:
            return ReasoningPart(text=text, id=self.id, state=self.state, provider_metadata=self.metadata)
        return TextPart(
            text=text, state=self.state, provider_metadata=self.metadata, citations=self.citations
        )


@define(eq=False, repr=False, kw_only=True)
class ToolInput:
    """The text of a tool's input while it streams, and the facts from its start event."""

    name: str
    dynamic: bool
    title: str | None = None
    metadata: Mapping[str, Any] | None = None
    encoding: str | None = None
    pieces: list[str] = field(factory=lambda: [""])
    length: int = 0
    part: ToolPartBuilder | None = field(default=None, init=False)  # shows the input
    step: int = field(default=-1, init=False)  # the step of that part

    def text(self, length: int | None = None) -> str:
        """Return the text, or its first *length* characters."""
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if length is None else self.pieces[0][:length]

    def value(self, length: int | None = None) -> Any:
        """Return the part of the input that can be parsed from the text."""
        text = join_surrogates(self.text(length))
        return text if self.encoding == "text" else parse_partial(text)


class _Cut:
    """An input, or its raw text, as of the characters that had been received; parsed on demand."""

    __slots__ = ("input", "length", "raw")

    def __init__(self, input: ToolInput, *, raw: bool) -> None:
        self.input = input
        self.length = input.length
        self.raw = raw

    def read(self) -> Any:
        if self.raw:
            return join_surrogates(self.input.text(self.length))
        return self.input.value(self.length)


class ToolPartBuilder:
    """Builds the part of a tool call. While ``stream`` is set, the input is what it has by now."""

    __slots__ = ("_length", "_part", "call_id", "dynamic", "fields", "name", "order", "show_raw", "stream")

    def __init__(self, call_id: str, name: str, *, dynamic: bool) -> None:
        """Begin without fields."""
        self.call_id = call_id
        self.name = name
        self.dynamic = dynamic
        self.fields: dict[str, Any] = {}  # by the names of ToolPart's fields
        self.stream: ToolInput | None = None
        self.show_raw = True
        self.order = 0  # its place in the message
        self._part: MessagePart | None = None
        self._length = -1

    def set(self, **fields: Any) -> None:
        """Set fields; one that is None or MISSING is removed."""
        for name, content in fields.items():
            if content is MISSING or (content is None and name not in ("input", "output")):
                self.fields.pop(name, None)
            else:
                self.fields[name] = content
        self._part = None

    def set_given(self, **fields: Any) -> None:
        """Set the fields that are not None; the others stay."""
        self.set(**{name: content for name, content in fields.items() if content is not None})

    def follow(self, stream: ToolInput, step: int) -> None:
        """Take the input from *stream* from now on."""
        if stream.part is not None and stream.part is not self:
            stream.part.settle()
        stream.part, stream.step, self.stream = self, step, stream
        self._part = None

    def reopened(self) -> ToolInput:
        """Return the streaming input of a call in a message that is continued, with its text so far."""
        raw = self.fields.get("raw_input")
        text = raw if isinstance(raw, str) else ""
        return ToolInput(
            name=self.name,
            dynamic=self.dynamic,
            title=self.fields.get("title"),
            metadata=self.fields.get("tool_metadata"),
            encoding=self.fields.get("input_encoding"),
            pieces=[text],
            length=len(text),
        )

    def settle(self) -> None:
        """Stop following the stream and keep what it has now."""
        if self.stream is not None:
            raw = _Cut(self.stream, raw=True) if self.show_raw else MISSING
            self.set(input=_Cut(self.stream, raw=False), raw_input=raw)
            self.stream = None

    def snapshot(self) -> MessagePart:
        """Return the part as it is now."""
        length = -1 if self.stream is None else self.stream.length
        if self._part is None or self._length != length:
            self._length = length
            self._part = self._make()
        return self._part

    def _make(self) -> MessagePart:
        for name in ("input", "raw_input"):
            content = self.fields.get(name)
            if isinstance(content, _Cut):
                self.set(**{name: content.read()})
        fields: dict[str, Any] = self.fields
        if self.stream is not None:
            raw: Any = join_surrogates(self.stream.text()) if self.show_raw else MISSING
            fields = {**fields, "input": self.stream.value(), "raw_input": raw}
        cls = DynamicToolPart if self.dynamic else ToolPart
        return cls(tool_name=self.name, tool_call_id=self.call_id, **fields)


PartBuilder: TypeAlias = FixedPart | TextPartBuilder | ToolPartBuilder
"""Builds any part."""
