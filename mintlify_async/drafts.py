"""Parts of a message as they grow: pieces come in; frozen parts go out when they are asked for.

Nothing is joined or parsed before that, so that a part of many pieces costs in proportion to its
size. A snapshot is kept until the draft changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from .partial_json import parse_partial
from .parts import DynamicToolPart, MessagePart, ReasoningPart, TextPart, ToolPart, join_surrogates
from .wire import MISSING, Objects, ProviderMetadata

__all__ = ["Draft", "FixedDraft", "InputDraft", "TextDraft", "ToolDraft"]


class FixedDraft:
    """A part that arrives whole. A data part may be replaced by a later one of its id."""

    __slots__ = ("part",)

    def __init__(self, part: MessagePart) -> None:
        """Hold *part*."""
        self.part = part

    def snapshot(self) -> MessagePart:
        """Return the part as it is now."""
        return self.part


class TextDraft(list[str]):
    """A text or reasoning part: the pieces of its text.

    A list itself: one that is held would be one more object of each of thousands of open streams.
    """

    __slots__ = ("_count", "_part", "citations", "id", "metadata", "reasoning", "state")

    def __init__(self, *, reasoning: bool, id: str | None, metadata: ProviderMetadata | None) -> None:
        """Begin without text."""
        self.reasoning = reasoning
        self.id = id
        self.metadata = metadata
        self.citations: Objects | None = None
        self.state = "streaming"
        self._part: MessagePart | None = None
        self._count = 0

    def change(self) -> None:
        """Forget the last snapshot."""
        self._part = None

    def snapshot(self) -> MessagePart:
        """Return the part as it is now."""
        if self._part is None or self._count != len(self):
            text = join_surrogates("".join(self))
            self[:] = [text]
            self._count = 1
            self._part = self._make(text)
        return self._part

    def _make(self, text: str) -> MessagePart:
        if self.reasoning:
            return ReasoningPart(text=text, id=self.id, state=self.state, provider_metadata=self.metadata)
        return TextPart(
            text=text, state=self.state, provider_metadata=self.metadata, citations=self.citations
        )


class InputDraft:
    """The text of a tool's input as it streams, and what its start said."""

    __slots__ = ("draft", "dynamic", "encoding", "length", "metadata", "name", "pieces", "step", "title")

    def __init__(
        self,
        name: str,
        *,
        dynamic: bool,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        encoding: str | None = None,
        text: str = "",
    ) -> None:
        """Begin with *text*."""
        self.name = name
        self.dynamic = dynamic
        self.title = title
        self.metadata = metadata
        self.encoding = encoding
        self.pieces = [text]
        self.length = len(text)
        self.draft: ToolDraft | None = None  # the part that shows it
        self.step = -1  # the step that the part is in

    def text(self, length: int | None = None) -> str:
        """Return the text, or its first *length* characters."""
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if length is None else self.pieces[0][:length]

    def value(self, length: int | None = None) -> Any:
        """Return as much of the input as can be read of the text."""
        text = join_surrogates(self.text(length))
        return text if self.encoding == "text" else parse_partial(text)


class _Cut:
    """An input, or its text, as it was when *length* characters had come; read when it is looked at."""

    __slots__ = ("input", "length", "raw")

    def __init__(self, input: InputDraft, *, raw: bool) -> None:
        self.input = input
        self.length = input.length
        self.raw = raw

    def read(self) -> Any:
        if self.raw:
            return join_surrogates(self.input.text(self.length))
        return self.input.value(self.length)


class ToolDraft:
    """A tool's call. While ``stream`` is set, its input is what that has by now."""

    __slots__ = ("_length", "_part", "call_id", "dynamic", "fields", "name", "order", "show_raw", "stream")

    def __init__(self, call_id: str, name: str, *, dynamic: bool) -> None:
        """Begin without fields."""
        self.call_id = call_id
        self.name = name
        self.dynamic = dynamic
        self.fields: dict[str, Any] = {}  # by the names of ToolPart's fields
        self.stream: InputDraft | None = None
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

    def follow(self, stream: InputDraft, step: int) -> None:
        """Show what *stream* has, from now on."""
        if stream.draft is not None and stream.draft is not self:
            stream.draft.settle()
        stream.draft, stream.step, self.stream = self, step, stream
        self._part = None

    def reopened(self) -> InputDraft:
        """Return the input of a call whose message is continued: its text so far, to go on with."""
        raw = self.fields.get("raw_input")
        return InputDraft(
            self.name,
            dynamic=self.dynamic,
            title=self.fields.get("title"),
            metadata=self.fields.get("tool_metadata"),
            encoding=self.fields.get("input_encoding"),
            text=raw if isinstance(raw, str) else "",
        )

    def settle(self) -> None:
        """Stop following the stream; keep what it has now."""
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


Draft: TypeAlias = FixedDraft | TextDraft | ToolDraft
"""Any part that grows."""
