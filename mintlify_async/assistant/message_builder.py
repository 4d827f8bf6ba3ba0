"""Builds a message from the events of a stream, in the way of the AI SDK 7.

The cost is linear: deltas are appended to lists, which are joined (and a tool's partial input parsed)
only when the message is looked at. A message that was handed out never changes afterwards.

>>> from mintlify_async.events import TextDelta, TextStart
>>> builder = MessageBuilder()
>>> builder.apply(TextStart(id="0")), builder.apply(TextDelta(id="0", delta="Hi"))
(True, True)
>>> builder.message.text
'Hi'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, ClassVar, Final, TypeAlias, cast

import attrs

from .. import events as ev
from .. import messages as msg
from ..errors import StreamStateError, printable
from ..model.wire_value import EMPTY, MISSING
from ..rendering.readable_text import ReadableText
from .part_builders import FixedPart, PartBuilder, TextPartBuilder, ToolInput, ToolPartBuilder

_TOOL_FIELDS: Final = tuple(
    field.name for field in attrs.fields(msg.ToolPart) if field.name not in ("tool_name", "tool_call_id")
)


_WHOLE_PARTS: Final[Mapping[type[object], Callable[..., msg.MessagePart]]] = {
    ev.SourceUrl: msg.SourceUrlPart,
    ev.SourceDocument: msg.SourceDocumentPart,
    ev.File: msg.FilePart,
    ev.ReasoningFile: msg.ReasoningFilePart,
    ev.Custom: msg.CustomPart,
    ev.SteeringMessage: msg.SteeringMessagePart,
}
"""The events that are a part each, and the part's class."""

_OF_ONE_STATE: Final = ("input", "output", "error_text", "raw_input", "preliminary", "input_encoding")
"""The fields of a tool's part that a new state does not keep."""


class MessageBuilder:
    """Builds a message from events.

    Args:
        message: The assistant's message that the stream continues, or None for a new one.

    Attributes:
        finish_reason: Why the answer ended, or None.
        role: The role of the message: ``assistant``, or that of the message that is continued.
        extra: Further fields of the message that is continued.
        parts: The parts, in order.
        open_parts: The open text and reasoning parts, by the type of their deltas and their id.
    """

    def __init__(self, message: msg.Message | None = None) -> None:
        """Begin with nothing, or with *message*."""
        self._id = ""
        self.role = "assistant"
        self.extra: Mapping[str, Any] = EMPTY
        self._step = 1
        self.open_parts: dict[tuple[str, str], TextPartBuilder] = {}
        self._inputs: dict[str, ToolInput] = {}
        self._clear()
        if message is not None:
            self._continue(message)

    def _clear(self) -> None:
        """Begin anew: no parts, no metadata."""
        self.parts: list[PartBuilder] = []
        self._step_begin = 0
        self._calls: dict[str, list[ToolPartBuilder]] = {}
        self._step_calls: dict[str, list[ToolPartBuilder]] = {}
        self._approvals: dict[str, list[int]] = {}  # by id: a heap of the places of the parts that asked
        self._data: dict[tuple[str, str], FixedPart] = {}
        self._metadata: Any = None
        self._metadata_seen: Any = None  # the copy that was handed out last
        self.finish_reason: str | None = None

    def _begin_step(self) -> None:
        self._step += 1
        self._step_begin = len(self.parts)
        self._step_calls.clear()

    def _close_parts(self) -> None:
        """Forget which parts are open."""
        self.open_parts.clear()
        self._inputs.clear()

    def _continue(self, message: msg.Message) -> None:
        self._id, self.role, self.extra = message.id, message.role, message.extra
        self._metadata = _owned(message.metadata)
        for part in message.parts:
            self._adopt(part)
        for builder in self.parts[self._step_begin :]:
            if isinstance(builder, ToolPartBuilder) and builder.fields["state"] == "input-streaming":
                self._inputs[builder.call_id] = builder.reopened()

    def _adopt(self, part: msg.MessagePart) -> None:
        """Add a part of the message that is continued."""
        if isinstance(part, msg.ToolPart):
            tool = ToolPartBuilder(
                part.tool_call_id, part.tool_name, dynamic=isinstance(part, msg.DynamicToolPart)
            )
            tool.set(**{name: getattr(part, name) for name in _TOOL_FIELDS})
            self._add_tool(tool)
            if part.approval is not None:
                self._ask(part.approval.id, tool)
            return
        fixed = self._add(part)
        if isinstance(part, msg.DataPart) and part.id is not None:
            self._data.setdefault((part.name, part.id), fixed)
        elif isinstance(part, msg.StepStartPart):
            self._begin_step()

    @property
    def message(self) -> msg.Message:
        """The message as it is now; it does not change when more events come."""
        if self._metadata_seen is None:
            self._metadata_seen = _owned(self._metadata)
        return msg.Message(
            id=self._id,
            role=self.role,
            parts=tuple([part.snapshot() for part in self.parts]),
            metadata=self._metadata_seen,
            extra=self.extra,
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing yet: no id, no part, no metadata."""
        return not self._id and not self.parts and self._metadata is None

    def apply(self, event: ev.StreamEvent) -> bool:
        """Add *event* to the message; return whether ``readUIMessageStream`` would publish the message now.

        Raises:
            StreamStateError: It names a part or a tool call that does not exist; the message is unchanged.
        """
        fold = self._folds.get(event.__class__)
        return fold(self, event) if fold is not None else False

    # One method per type of event.

    def _start(self, event: ev.Start) -> bool:
        if event.message_id is not None and event.message_id != self._id:
            if not self.empty or self.finish_reason is not None:
                self._close_parts()
                self._clear()
            self._id = event.message_id
        return self._merge(event.message_metadata) or event.message_id is not None

    def _finish(self, event: ev.Finish) -> bool:
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason
        return self._merge(event.message_metadata)

    def _message_metadata(self, event: ev.MessageMetadata) -> bool:
        return self._merge(event.message_metadata)

    def _merge(self, metadata: Any) -> bool:
        if metadata is MISSING or metadata is None:
            return False
        base = self._metadata
        if isinstance(base, dict) and isinstance(metadata, dict):
            _merge_into(cast("dict[str, Any]", base), cast("dict[str, Any]", metadata))
        else:
            self._metadata = _owned(metadata)
        self._metadata_seen = None
        return True

    def _start_step(self, event: ev.StartStep) -> bool:
        self._add(msg.StepStartPart())
        self._begin_step()
        return False

    def _reset_step(self, event: ev.ResetStep) -> bool:
        removed = self.parts[self._step_begin :]
        del self.parts[self._step_begin :]
        for part in reversed(removed):
            self._forget(part)
        self._begin_step()
        self._close_parts()
        return bool(removed)

    def _forget(self, part: PartBuilder) -> None:
        """Remove a part that was dropped from the indexes."""
        if isinstance(part, ToolPartBuilder):
            self._calls[part.call_id].pop()  # a call's parts are in the order of the message
        elif isinstance(part, FixedPart) and isinstance(part.part, msg.DataPart) and part.part.id is not None:
            self._data.pop((part.part.name, part.part.id), None)

    def _begin_text(self, event: ev.TextStart | ev.ReasoningStart) -> bool:
        reasoning = isinstance(event, ev.ReasoningStart)
        part = TextPartBuilder(reasoning=reasoning, id=event.id, metadata=event.provider_metadata)
        self.parts.append(part)
        self.open_parts["reasoning-delta" if reasoning else "text-delta", event.id] = part
        return True

    def _add_text(self, event: ev.TextDelta | ev.ReasoningDelta) -> bool:
        part = self.open_parts.get((event.type, event.id))
        if part is None:
            raise _not_open(event, event.id)
        part.pieces.append(event.delta)
        if event.provider_metadata is not None:
            part.metadata = event.provider_metadata
        return True

    def _end_text(self, event: ev.TextEnd | ev.ReasoningEnd) -> bool:
        kind = "text-delta" if isinstance(event, ev.TextEnd) else "reasoning-delta"
        part = self.open_parts.pop((kind, event.id), None)
        if part is None:
            raise _not_open(event, event.id)
        part.state = "done"
        if event.provider_metadata is not None:
            part.metadata = event.provider_metadata
        if isinstance(event, ev.TextEnd) and event.citations is not None:
            part.citations = event.citations
        part.changed()
        return True

    def _add(self, part: msg.MessagePart) -> FixedPart:
        fixed = FixedPart(part)
        self.parts.append(fixed)
        return fixed

    def _whole_part(self, event: ev.Event) -> bool:
        """Add the part that *event* describes: both have the same fields, except ``extra``."""
        cls = _WHOLE_PARTS[type(event)]
        names = [field.name for field in attrs.fields(type(event)) if field.name != "extra"]
        self._add(cls(**{name: getattr(event, name) for name in names}))
        return True

    def _data_event(self, event: ev.Data) -> bool:
        if event.transient:
            return False
        known = None if event.id is None else self._data.get((event.name, event.id))
        if known is not None:
            known.part = attrs.evolve(cast("msg.DataPart", known.part), data=event.data)
            return True
        extra = event.extra if event.transient is None else {**event.extra, "transient": event.transient}
        added = self._add(msg.DataPart(name=event.name, data=event.data, id=event.id, extra=extra))
        if event.id is not None:
            self._data[event.name, event.id] = added
        return True

    def _add_tool(self, part: ToolPartBuilder) -> None:
        part.order = len(self.parts)
        self.parts.append(part)
        self._calls.setdefault(part.call_id, []).append(part)
        here = self._step_calls.setdefault(part.call_id, [])
        if all(other.dynamic is not part.dynamic for other in here):
            here.append(part)  # a stored message may have many, but only the first of its kind is looked up

    def _call(self, event: ev.StreamEvent, call_id: str) -> ToolPartBuilder:
        """Find the part of a call: the first in this step, else the last in the message."""
        here = self._step_calls.get(call_id)
        if here:
            return here[0]
        anywhere = self._calls.get(call_id)
        if not anywhere:
            raise _not_open(event, call_id)
        return anywhere[-1]

    def _here(self, call_id: str, name: str, *, dynamic: bool) -> tuple[ToolPartBuilder, bool]:
        """Return this step's part of a call, and whether it was added now."""
        for part in self._step_calls.get(call_id, ()):
            if part.dynamic is dynamic:
                part.name = name
                return part, False
        part = ToolPartBuilder(call_id, name, dynamic=dynamic)
        self._add_tool(part)
        return part, True

    def _update(
        self, part: ToolPartBuilder, state: str, event: _ToolEvent | None = None, **fields: Any
    ) -> None:
        """Bring a call to *state* with these fields, and with those of *event* that it has."""
        part.stream = None
        part.set(state=state, **{name: fields.get(name, MISSING) for name in _OF_ONE_STATE})
        if event is not None:
            kept = {"provider_executed": event.provider_executed, "tool_metadata": event.tool_metadata}
            whose = "result" if state.startswith("output") else "call"
            part.set_given(**kept, **{f"{whose}_provider_metadata": event.provider_metadata})

    def _tool_input_start(self, event: ev.ToolInputStart) -> bool:
        dynamic = event.dynamic is True
        part, _ = self._here(event.tool_call_id, event.tool_name, dynamic=dynamic)
        self._inputs[event.tool_call_id] = ToolInput(
            name=event.tool_name,
            dynamic=dynamic,
            title=event.title,
            metadata=event.tool_metadata,
            encoding=event.input_encoding,
        )
        self._update(part, "input-streaming", event, input_encoding=event.input_encoding)
        part.set_given(title=event.title)
        return True

    def _tool_input_delta(self, event: ev.ToolInputDelta) -> bool:
        stream = self._inputs.get(event.tool_call_id)
        if stream is None:
            raise _not_open(event, event.tool_call_id)
        part = stream.part
        if (
            part is None
            or part.stream is not stream
            or stream.step != self._step
            or not part.show_raw
            or part.fields["state"] != "input-streaming"
        ):
            self._show(stream, event.tool_call_id)
        stream.pieces.append(event.input_text_delta)
        stream.length += len(event.input_text_delta)
        return True

    def _show(self, stream: ToolInput, call_id: str) -> None:
        """Make this step's part of the call take its input from *stream*."""
        part, new = self._here(call_id, stream.name, dynamic=stream.dynamic)
        self._update(part, "input-streaming", input_encoding=stream.encoding)
        part.set_given(title=stream.title, tool_metadata=stream.metadata)
        part.show_raw = not (new and stream.dynamic)
        part.follow(stream, self._step)

    def _tool_input_available(self, event: ev.ToolInputAvailable) -> bool:
        part, _ = self._here(event.tool_call_id, event.tool_name, dynamic=event.dynamic is True)
        self._update(part, "input-available", event, input=event.input)
        part.set_given(title=event.title)
        return True

    def _tool_input_error(self, event: ev.ToolInputError) -> bool:
        here = self._step_calls.get(event.tool_call_id)
        dynamic = here[0].dynamic if here else event.dynamic is True
        part, _ = self._here(event.tool_call_id, event.tool_name, dynamic=dynamic)
        self._update(part, "output-error", event, input=event.input, error_text=event.error_text)
        return True

    def _tool_output_available(self, event: ev.ToolOutputAvailable) -> bool:
        part = self._call(event, event.tool_call_id)
        part.settle()
        given = part.fields.get("input", MISSING)
        fields = {"input": given, "output": event.output, "preliminary": event.preliminary}
        self._update(part, "output-available", event, **fields)
        return True

    def _tool_output_error(self, event: ev.ToolOutputError) -> bool:
        part = self._call(event, event.tool_call_id)
        part.settle()
        given = part.fields.get("input", MISSING)
        raw = MISSING if part.dynamic else part.fields.get("raw_input", MISSING)
        self._update(part, "output-error", event, input=given, raw_input=raw, error_text=event.error_text)
        return True

    def _tool_approval_request(self, event: ev.ToolApprovalRequest) -> bool:
        part = self._call(event, event.tool_call_id)
        approval = msg.ToolApproval(
            id=event.approval_id,
            descriptor=MISSING if event.approval_descriptor is None else event.approval_descriptor,
            input_schema_input=event.input_schema_input,
            request_reason=event.reason,
            is_automatic=event.is_automatic or None,
            signature=event.signature,
        )
        part.set(state="approval-requested", approval=approval)
        self._ask(event.approval_id, part)
        return True

    def _ask(self, approval_id: str, part: ToolPartBuilder) -> None:
        heappush(self._approvals.setdefault(approval_id, []), part.order)

    def _asked(self, approval_id: str) -> ToolPartBuilder | None:
        """Return the first part that waits for this approval; forget those that no longer do."""
        asked = self._approvals.get(approval_id, [])
        while asked:
            part = self.parts[asked[0]] if asked[0] < len(self.parts) else None
            if isinstance(part, ToolPartBuilder):
                approval: msg.ToolApproval | None = part.fields.get("approval")
                if approval is not None and approval.id == approval_id:
                    return part
            heappop(asked)
        return None

    def _tool_approval_response(self, event: ev.ToolApprovalResponse) -> bool:
        part = self._asked(event.approval_id)
        if part is None:
            raise _not_open(event, event.approval_id)
        approval: msg.ToolApproval = part.fields["approval"]
        given = {} if event.reason is None else {"reason": event.reason}
        part.set(
            state="approval-responded",
            approval=attrs.evolve(approval, approved=event.approved, **cast("Any", given)),
        )
        part.set_given(
            provider_executed=event.provider_executed, call_provider_metadata=event.provider_metadata
        )
        return True

    def _tool_output_denied(self, event: ev.ToolOutputDenied) -> bool:
        self._call(event, event.tool_call_id).set(state="output-denied")
        return True

    _folds: ClassVar[dict[type[object], Callable[[MessageBuilder, Any], bool]]] = {
        ev.Start: _start,
        ev.StartStep: _start_step,
        ev.TextStart: _begin_text,
        ev.TextDelta: _add_text,
        ev.TextEnd: _end_text,
        ev.ReasoningStart: _begin_text,
        ev.ReasoningDelta: _add_text,
        ev.ReasoningEnd: _end_text,
        ev.ToolInputStart: _tool_input_start,
        ev.ToolInputDelta: _tool_input_delta,
        ev.ToolInputAvailable: _tool_input_available,
        ev.ToolInputError: _tool_input_error,
        ev.ToolOutputAvailable: _tool_output_available,
        ev.ToolOutputError: _tool_output_error,
        ev.ToolApprovalRequest: _tool_approval_request,
        ev.ToolApprovalResponse: _tool_approval_response,
        ev.ToolOutputDenied: _tool_output_denied,
        ev.Data: _data_event,
        ev.MessageMetadata: _message_metadata,
        ev.Finish: _finish,
        ev.ResetStep: _reset_step,
        **dict.fromkeys(_WHOLE_PARTS, _whole_part),
    }
    """How each type changes the message. Other types (finish-step, abort, error, unknown) do not."""


_ToolEvent: TypeAlias = (
    ev.ToolInputStart
    | ev.ToolInputAvailable
    | ev.ToolInputError
    | ev.ToolOutputAvailable
    | ev.ToolOutputError
)


class GrowingText:
    """The text of a message as people read it, while it is built: what each event adds to it.

    Pass each event on after the builder took it. Text is added in the order of the message: a text part
    that begins while an earlier one is open waits for that one's end. What was added cannot be taken back,
    not even when a ``reset-step`` makes it void: the text that replaces it is another paragraph.

    Attributes:
        before: The text of the events before.
    """

    __slots__ = ("_at", "_builder", "_id", "_part", "_text", "before")

    def __init__(self, builder: MessageBuilder, site: str | None = None) -> None:
        """Begin with the message that *builder* has now; with *site*, links to paths are whole."""
        self._builder = builder
        self._text = ReadableText(site)
        self._at = 0  # the part after those that were looked at
        self._part: PartBuilder | None = None  # whose deltas are added
        self._id: str | None = None  # its id while it is open
        self.before = self._advance()

    def after(self, event: ev.StreamEvent) -> str:
        """Return the text that *event* adds."""
        if isinstance(event, ev.TextDelta):
            return self._text.feed(event.delta) if event.id == self._id else ""
        return self._advance() if event.__class__ in _MOVES_TEXT else ""

    def close(self) -> str:
        """Return the text that was held back, now that no event follows."""
        return self._advance(ended=True)

    def _advance(self, *, ended: bool = False) -> str:
        """Return the text that waited, up to the first part that is open, or to the end."""
        parts = self._builder.parts
        if self._at > len(parts):  # the part that was read is void
            self._text.drop_part()
            self._at, self._part = len(parts), None
        added: list[str] = []
        while True:
            self._id = self._open_id()
            if self._id is not None and not ended:
                break
            if self._part is not None:
                added.append(self._text.end_part())
            text = self._next_text()
            if text is None:
                break
            added.append(self._text.feed(text))
        return "".join(added)

    def _open_id(self) -> str | None:
        """Return the id of the part that is read, if more deltas may follow."""
        part = self._part
        if not isinstance(part, TextPartBuilder) or part.id is None:
            return None
        return part.id if self._builder.open_parts.get(("text-delta", part.id)) is part else None

    def _next_text(self) -> str | None:
        """Return what the next text part has so far, and read that part; None if there is none."""
        parts = self._builder.parts
        while self._at < len(parts):
            self._part = part = parts[self._at]
            self._at += 1
            if isinstance(part, TextPartBuilder) and not part.reasoning:
                return part.text()
            if isinstance(part, FixedPart) and isinstance(part.part, msg.TextPart):
                return part.part.text
        self._part = None
        return None


_MOVES_TEXT: Final = frozenset((ev.Start, ev.TextStart, ev.TextEnd, ev.ResetStep))
"""The events, beside deltas, that add text or make it void."""


def _not_open(event: ev.StreamEvent, name: str) -> StreamStateError:
    return StreamStateError(
        f"{event.type} names {printable(name)!r}, but no such part or call is open",
        event_type=event.type,
        event_id=name,
    )


_NOT_MERGED: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Keys that the AI SDK skips when it merges metadata."""


def _owned(content: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(content, dict):
        return {name: _owned(inside) for name, inside in cast("dict[str, Any]", content).items()}
    if isinstance(content, list):
        return [_owned(inside) for inside in cast("Sequence[Any]", content)]
    return content


def _merge_into(base: dict[str, Any], new: dict[str, Any]) -> None:
    """Merge *new* into *base*: objects key by key, anything else replaces."""
    for name, content in new.items():
        if name in _NOT_MERGED:
            continue
        inside = base.get(name)
        if isinstance(inside, dict) and isinstance(content, dict):
            _merge_into(cast("dict[str, Any]", inside), cast("dict[str, Any]", content))
        else:
            base[name] = _owned(content)
