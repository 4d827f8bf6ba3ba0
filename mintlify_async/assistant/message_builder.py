"""Builds a message from the events of a stream, as the AI SDK 7 does.

The parts of the message are frozen, and each event replaces the part that it changes. Only the pieces of an
open text, or of an open tool input, are collected separately. They are joined when the part is read, so the
cost is linear. A message that was returned never changes afterwards.

>>> from mintlify_async.events import TextDelta, TextStart
>>> builder = MessageBuilder()
>>> builder.apply(TextStart(id="0")), builder.apply(TextDelta(id="0", delta="Hi"))
(None, None)
>>> builder.message.text
'Hi'
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from copy import deepcopy
from heapq import heappop, heappush
from typing import Any, ClassVar, Final, TypeAlias, cast

from attrs import define, evolve, field, fields

from .. import events as ev
from .. import messages as msg
from ..errors import StreamStateError, printable
from ..model.strict_json import join_surrogates
from ..model.wire_value import MISSING
from ..rendering.readable_text import ReadableText

_TextPart: TypeAlias = msg.TextPart | msg.ReasoningPart

_EMPTY: Final = msg.Message(id="", role="assistant")

_ONE_PART_EVENTS: Final[Mapping[type[object], Callable[..., msg.MessagePart]]] = {
    ev.SourceUrl: msg.SourceUrlPart,
    ev.SourceDocument: msg.SourceDocumentPart,
    ev.File: msg.FilePart,
    ev.ReasoningFile: msg.ReasoningFilePart,
    ev.Custom: msg.CustomPart,
    ev.SteeringMessage: msg.SteeringMessagePart,
}
"""The events that become one part each, and the class of that part."""

_CLEARED: Final = {
    "input": MISSING,
    "output": MISSING,
    "error_text": None,
    "raw_input": MISSING,
    "preliminary": None,
    "input_encoding": None,
}
"""Maps fields of a tool's part to their empty values. A change of the state clears each of these fields that
the change does not set.
"""


@define(eq=False, repr=False)
class _OpenText:
    """A text or reasoning part that is still open, because deltas may extend it.

    Attributes:
        at: Index of the part.
        pieces: The deltas that are not in the part yet.
    """

    at: int
    pieces: list[str] = field(factory=list[str], init=False)


@define(eq=False, repr=False)
class _OpenInput:
    """The input of a tool call while it streams.

    Attributes:
        start: The event that started the input, with the fields of the call.
        dynamic: Whether the part of the call is a DynamicToolPart.
        pieces: The pieces of the input's text.
        at: Index of the part that shows the input. None before the first delta.
    """

    start: ev.ToolInputStart | msg.ToolPart
    dynamic: bool
    pieces: list[str]
    at: int | None = None

    def text(self) -> str:
        self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0]


class MessageBuilder:
    """Builds a message from events.

    Args:
        message: The assistant's message that the stream continues, or None for a new one.

    Attributes:
        finish_reason: The reason for the end of the answer, or None.
        parts: The parts, in order. Open parts may lack their last pieces.
        has_halves: Whether the message may contain a lone surrogate. It stays in a text, because the other
            half of the pair may follow.
        open_texts: The open text parts by id, in the order of the message.
    """

    def __init__(self, message: msg.Message | None = None) -> None:
        self._base = message or _EMPTY
        self._id = self._base.id
        self.has_halves = message is not None
        self._clear()
        if message is not None:
            self._continue(message)

    def _continue(self, message: msg.Message) -> None:
        """Start with the content of *message*."""
        self._merge(message.metadata)
        for part in message.parts:
            self._add(part)
            if isinstance(part, msg.StepStartPart):
                self._step_start = len(self.parts)
        for part in self.parts[self._step_start :]:
            if isinstance(part, msg.ToolPart) and part.state == "input-streaming":
                text = part.raw_input if isinstance(part.raw_input, str) else ""
                dynamic = isinstance(part, msg.DynamicToolPart)
                self._inputs[part.tool_call_id] = _OpenInput(part, dynamic, [text])

    def _clear(self) -> None:
        """Start again without parts and metadata."""
        self._close_parts()
        self.parts: list[msg.MessagePart] = []
        self._step_start = 0  # index of the first part of the current step
        self._calls: dict[str, list[int]] = {}  # maps each call to the indexes of its parts, in order
        self._approvals: dict[str, list[int]] = {}  # maps each request to a heap of the indexes of its parts
        self._data: dict[tuple[str, str], int] = {}
        self._metadata: Any = None
        self.finish_reason: str | None = None

    def _close_parts(self) -> None:
        self.open_texts: dict[str, _OpenText] = {}
        self._open_reasoning: dict[str, _OpenText] = {}
        self._inputs: dict[str, _OpenInput] = {}

    def _add(self, part: msg.MessagePart) -> int:
        """Append *part* and return its index."""
        at = len(self.parts)
        self.parts.append(part)
        if isinstance(part, msg.ToolPart):
            self._calls.setdefault(part.tool_call_id, []).append(at)
            if part.approval:
                heappush(self._approvals.setdefault(part.approval.id, []), at)
        elif isinstance(part, msg.DataPart) and part.id is not None:
            self._data.setdefault((part.name, part.id), at)
        return at

    @property
    def message(self) -> msg.Message:
        """The message in its current state. Later events do not change the returned object."""
        self.settle()
        for call_id in self._inputs:
            self._settle_input(call_id)
        return evolve(self._base, id=self._id, parts=tuple(self.parts), metadata=deepcopy(self._metadata))

    @property
    def empty(self) -> bool:
        """Whether the message has no id, no part and no metadata yet."""
        return not self._id and not self.parts and self._metadata is None

    def apply(self, event: ev.StreamEvent) -> None:
        """Add *event* to the message.

        Raises:
            StreamStateError: *event* names a missing part or tool call. The message is unchanged.
        """
        fold = self._folds.get(event.__class__)
        if fold is not None:
            fold(self, event)

    # Start, metadata, end, steps --------------------------------------------------------------

    def is_replaced_by(self, event: ev.Start) -> bool:
        """Return whether *event* starts another message that replaces this message."""
        is_other = event.message_id is not None and event.message_id != self._id
        return is_other and (not self.empty or self.finish_reason is not None)

    def _start(self, event: ev.Start) -> None:
        if event.message_id is not None:
            if self.is_replaced_by(event):
                self._clear()
            self._id = event.message_id
        self._merge(event.message_metadata)

    def _finish(self, event: ev.Finish) -> None:
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason
        self._merge(event.message_metadata)

    def _message_metadata(self, event: ev.MessageMetadata) -> None:
        self._merge(event.message_metadata)

    def _merge(self, metadata: Any) -> None:
        base = self._metadata
        if isinstance(base, dict) and isinstance(metadata, dict):
            _merge_into(cast("dict[str, Any]", base), cast("dict[str, Any]", metadata))
        elif metadata is not MISSING and metadata is not None:
            self._metadata = deepcopy(metadata)

    def _start_step(self, event: ev.StartStep) -> None:
        self._step_start = self._add(msg.StepStartPart()) + 1

    def _reset_step(self, event: ev.ResetStep) -> None:
        for at in reversed(range(self._step_start, len(self.parts))):
            part = self.parts.pop()
            if isinstance(part, msg.ToolPart):
                self._calls[part.tool_call_id].pop()
            elif isinstance(part, msg.DataPart) and self._data.get((part.name, part.id or "")) == at:
                del self._data[part.name, part.id or ""]
        self._close_parts()

    # Text and reasoning -----------------------------------------------------------------------

    def _open_parts(self, event: ev.StreamEvent) -> dict[str, _OpenText]:
        return self.open_texts if event.type.startswith("text") else self._open_reasoning

    def _text_start(self, event: ev.TextStart | ev.ReasoningStart) -> None:
        metadata = event.provider_metadata
        part: _TextPart
        if isinstance(event, ev.TextStart):
            part = msg.TextPart(text="", state="streaming", provider_metadata=metadata)
        else:
            part = msg.ReasoningPart(text="", id=event.id, state="streaming", provider_metadata=metadata)
        texts = self._open_parts(event)
        previous = texts.pop(event.id, None)
        if previous is not None:
            self._settle_text(previous)
        texts[event.id] = _OpenText(self._add(part))

    def add_delta(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        """Apply a delta, as :meth:`apply` does."""
        text = (self.open_texts if event.__class__ is ev.TextDelta else self._open_reasoning).get(event.id)
        if text is None:
            raise _not_open(event, event.id)
        text.pieces.append(event.delta)
        if event.provider_metadata is not None:
            part = cast("_TextPart", self.parts[text.at])
            self.parts[text.at] = evolve(part, provider_metadata=event.provider_metadata)

    def _text_end(self, event: ev.TextEnd | ev.ReasoningEnd) -> None:
        text = self._open_parts(event).pop(event.id, None)
        if text is None:
            raise _not_open(event, event.id)
        changes: dict[str, Any] = {"state": "done"}
        if event.provider_metadata is not None:
            changes["provider_metadata"] = event.provider_metadata
        if isinstance(event, ev.TextEnd) and event.citations is not None:
            changes["citations"] = event.citations
        self._settle_text(text, **changes)

    def _settle_text(self, text: _OpenText, **changes: Any) -> None:
        """Move the pieces of *text* to its part, and make *changes* to the part."""
        part = cast("_TextPart", self.parts[text.at])
        if text.pieces:
            changes["text"] = self._joined(part.text + "".join(text.pieces))
            text.pieces.clear()
        if changes:
            self.parts[text.at] = evolve(part, **changes)

    def _joined(self, text: str) -> str:
        joined = join_surrogates(text)
        self.has_halves = self.has_halves or joined is not text
        return joined

    def settle(self) -> None:
        """Update the open text and reasoning parts in ``parts``."""
        for texts in (self.open_texts, self._open_reasoning):
            for text in texts.values():
                self._settle_text(text)

    def text_at(self, at: int) -> str | None:
        """Return the text of the part at index *at*, or None if it is no text part.

        If an earlier text part is open, the text may lack its newest deltas; see :meth:`settle`.
        """
        first = next(iter(self.open_texts.values()), None)
        if first is not None and first.at == at:
            self._settle_text(first)
        part = self.parts[at]
        return part.text if isinstance(part, msg.TextPart) else None

    # Parts of one event -----------------------------------------------------------------------

    def _one_part(self, event: ev.Event) -> None:
        """Add the part of *event*. The event and the part have the same fields, except ``extra``."""
        names = [field.name for field in fields(type(event)) if field.name != "extra"]
        self._add(_ONE_PART_EVENTS[type(event)](**{name: getattr(event, name) for name in names}))

    def _data_event(self, event: ev.Data) -> None:
        if event.transient:
            return
        at = None if event.id is None else self._data.get((event.name, event.id))
        if at is not None:
            self.parts[at] = evolve(cast("msg.DataPart", self.parts[at]), data=event.data)
            return
        extra = event.extra if event.transient is None else {**event.extra, "transient": event.transient}
        self._add(msg.DataPart(name=event.name, data=event.data, id=event.id, extra=extra))

    # Tools ------------------------------------------------------------------------------------

    def _in_step(self, call_id: str, *, dynamic: bool | None = None) -> int | None:
        """Return the index of the first part of a call in the current step, or None."""
        places = self._calls.get(call_id, [])
        for at in places[bisect_left(places, self._step_start) :]:  # another step may have the same call
            is_dynamic = isinstance(self.parts[at], msg.DynamicToolPart)
            if dynamic in (None, is_dynamic):
                return at
        return None

    def _find(self, event: ev.StreamEvent, call_id: str) -> tuple[int, msg.ToolPart]:
        """Return a call's part in the current step, or else the call's last part, and the part's index."""
        places = self._calls.get(call_id)
        if not places:
            raise _not_open(event, call_id)
        at = self._in_step(call_id)
        at = places[-1] if at is None else at
        self._settle_input(call_id)
        return at, cast("msg.ToolPart", self.parts[at])

    def _call(self, call_id: str, name: str, *, dynamic: bool) -> tuple[int, bool]:
        """Return the index of the call's part in the current step, and whether the part is new."""
        self._settle_input(call_id)
        at = self._in_step(call_id, dynamic=dynamic)
        if at is not None:
            self._change(at, tool_name=name)
            return at, False
        cls = msg.DynamicToolPart if dynamic else msg.ToolPart
        return self._add(cls(tool_name=name, tool_call_id=call_id, state="")), True

    def _change(self, at: int, **changes: Any) -> None:
        self.parts[at] = evolve(cast("msg.ToolPart", self.parts[at]), **changes)

    def _set_state(self, at: int, state: str, event: ev.ToolEvent | None = None, **changes: Any) -> None:
        """Set the *state* of the call at index *at*.

        Apply *changes*, and copy the fields of *event* that the call also has.
        """
        if event is not None:
            whose = "result" if state.startswith("output") else "call"
            changes |= _without_none(
                provider_executed=event.provider_executed,
                tool_metadata=event.tool_metadata,
                **{f"{whose}_provider_metadata": event.provider_metadata},
            )
        self._change(at, state=state, **(_CLEARED | changes))

    def _settle_input(self, call_id: str) -> None:
        """Update the raw input of a streaming call."""
        source = self._inputs.get(call_id)
        if source is not None and source.at is not None and len(source.pieces) > 1:
            self._change(source.at, raw_input=self._joined(source.text()))

    def _tool_input_start(self, event: ev.ToolInputStart) -> None:
        dynamic = event.dynamic is True
        at, _ = self._call(event.tool_call_id, event.tool_name, dynamic=dynamic)
        title = _without_none(title=event.title)
        self._set_state(at, "input-streaming", event, input_encoding=event.input_encoding, **title)
        self._inputs[event.tool_call_id] = _OpenInput(event, dynamic, [""])

    def _tool_input_delta(self, event: ev.ToolInputDelta) -> None:
        source = self._inputs.get(event.tool_call_id)
        if source is None:
            raise _not_open(event, event.tool_call_id)
        if not self._shows(source, event.tool_call_id):
            start = source.start
            at, new = self._call(event.tool_call_id, start.tool_name, dynamic=source.dynamic)
            facts = _without_none(title=start.title, tool_metadata=start.tool_metadata)
            self._set_state(at, "input-streaming", None, input_encoding=start.input_encoding, **facts)
            # As in the AI SDK, the delta that adds a dynamic part does not show the raw text.
            source.at = None if new and source.dynamic else at
        source.pieces.append(event.input_text_delta)

    def _shows(self, source: _OpenInput, call_id: str) -> bool:
        """Return whether the next delta changes the part that shows *source*."""
        at = source.at
        if at is None or at != self._in_step(call_id, dynamic=source.dynamic):
            return False
        return cast("msg.ToolPart", self.parts[at]).state == "input-streaming"

    def _tool_input_available(self, event: ev.ToolInputAvailable) -> None:
        at, _ = self._call(event.tool_call_id, event.tool_name, dynamic=event.dynamic is True)
        self._set_state(at, "input-available", event, input=event.input, **_without_none(title=event.title))

    def _tool_input_error(self, event: ev.ToolInputError) -> None:
        at = self._in_step(event.tool_call_id)
        dynamic = event.dynamic is True if at is None else isinstance(self.parts[at], msg.DynamicToolPart)
        at, _ = self._call(event.tool_call_id, event.tool_name, dynamic=dynamic)
        self._set_state(at, "output-error", event, input=event.input, error_text=event.error_text)

    def _tool_output_available(self, event: ev.ToolOutputAvailable) -> None:
        at, part = self._find(event, event.tool_call_id)
        changes = {"input": part.input, "output": event.output, "preliminary": event.preliminary}
        self._set_state(at, "output-available", event, **changes)

    def _tool_output_error(self, event: ev.ToolOutputError) -> None:
        at, part = self._find(event, event.tool_call_id)
        raw = MISSING if isinstance(part, msg.DynamicToolPart) else part.raw_input
        changes = {"input": part.input, "raw_input": raw, "error_text": event.error_text}
        self._set_state(at, "output-error", event, **changes)

    def _tool_approval_request(self, event: ev.ToolApprovalRequest) -> None:
        at, _ = self._find(event, event.tool_call_id)
        approval = msg.ToolApproval(
            id=event.approval_id,
            descriptor=MISSING if event.approval_descriptor is None else event.approval_descriptor,
            input_schema_input=event.input_schema_input,
            request_reason=event.reason,
            is_automatic=event.is_automatic or None,
            signature=event.signature,
        )
        self._change(at, state="approval-requested", approval=approval)
        heappush(self._approvals.setdefault(approval.id, []), at)

    def _tool_approval_response(self, event: ev.ToolApprovalResponse) -> None:
        places = self._approvals.get(event.approval_id, [])
        while places and self._approval_at(places[0], event.approval_id) is None:
            heappop(places)  # the part has a newer request, or its step was reset
        approval = self._approval_at(places[0], event.approval_id) if places else None
        if approval is None:
            raise _not_open(event, event.approval_id)
        at = places[0]
        self._change(
            at,
            state="approval-responded",
            approval=evolve(approval, approved=event.approved, **_without_none(reason=event.reason)),
            **_without_none(
                provider_executed=event.provider_executed, call_provider_metadata=event.provider_metadata
            ),
        )

    def _approval_at(self, at: int, id: str) -> msg.ToolApproval | None:
        """Return the approval *id* if the part at index *at* has it."""
        part = self.parts[at] if at < len(self.parts) else None
        approval = part.approval if isinstance(part, msg.ToolPart) else None
        return approval if approval is not None and approval.id == id else None

    def _tool_output_denied(self, event: ev.ToolOutputDenied) -> None:
        at, _ = self._find(event, event.tool_call_id)
        self._change(at, state="output-denied")

    _folds: ClassVar[dict[type[object], Callable[[MessageBuilder, Any], None]]] = {
        ev.Start: _start,
        ev.StartStep: _start_step,
        ev.TextStart: _text_start,
        ev.TextDelta: add_delta,
        ev.TextEnd: _text_end,
        ev.ReasoningStart: _text_start,
        ev.ReasoningDelta: add_delta,
        ev.ReasoningEnd: _text_end,
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
        **dict.fromkeys(_ONE_PART_EVENTS, _one_part),
    }
    """Maps types of events to functions that change the message. Other types do not change it."""


class GrowingText:
    """The text that each event adds to a message, for display.

    Pass each event after the builder has applied it. Text is added in the order of the message. If a text
    part starts while an earlier part is open, the text of the new part waits for the end of the earlier part.
    Added text cannot be taken back. If a ``reset-step`` discards text, the new text is another paragraph.

    Attributes:
        initial: The text of the events before this object was made.
    """

    def __init__(self, builder: MessageBuilder, site: str | None, earlier: str, *, begun: bool) -> None:
        """Start with the current message of *builder*.

        Args:
            builder: The builder of the message.
            site: The site URL, or None. With it, links to paths become full URLs.
            earlier: The text of messages that this message replaced.
            begun: Whether the answer has events. If not, the next message replaces this one completely.
        """
        self._builder = builder
        self._text = ReadableText(site, has_shown=bool(earlier))
        self._next = 0  # index of the next part to read
        self._part: int | None = None  # index of the text part that is being read
        self.initial = earlier + self._advance()
        self._text.has_shown = begun and self._text.has_shown

    def after(self, event: ev.StreamEvent) -> str:
        """Return the text that *event* adds to the display."""
        if isinstance(event, ev.TextDelta):
            text = self._builder.open_texts.get(event.id)
            return self._text.feed(event.delta) if text is not None and text.at == self._part else ""
        return self._advance() if event.__class__ in _MOVES_TEXT else ""

    def close(self) -> str:
        """Return the text that was held back. No event follows."""
        return self._advance(ended=True)

    def _advance(self, *, ended: bool = False) -> str:
        """Return the waiting text, up to the first open part or to the end."""
        builder = self._builder
        if ended:
            builder.settle()
        if self._next > len(builder.parts):  # the part that was being read was discarded
            self._text.drop_part()
            self._next, self._part = len(builder.parts), None
        added: list[str] = []
        while self._part is None or ended or not self._is_open(self._part):
            if self._part is not None:
                added.append(self._text.end_part())
                self._part = None
            if self._next == len(builder.parts):
                break
            text = builder.text_at(self._next)
            if text is not None:
                self._part = self._next
                added.append(self._text.feed(text))
            self._next += 1
        return "".join(added)

    def _is_open(self, at: int) -> bool:
        # The part that is being read is the first that may be open, because all earlier parts have ended.
        first = next(iter(self._builder.open_texts.values()), None)
        return first is not None and first.at == at


_MOVES_TEXT: Final = frozenset((ev.Start, ev.TextStart, ev.TextEnd, ev.ResetStep))
"""The events that add or discard text, except deltas."""


def _without_none(**changes: Any) -> dict[str, Any]:
    """Return the keyword arguments that are not None."""
    return {name: content for name, content in changes.items() if content is not None}


def _not_open(event: ev.StreamEvent, name: str) -> StreamStateError:
    return StreamStateError(
        f"{event.type} names {printable(name)!r}, but no such part or call is open",
        event_type=event.type,
        event_id=name,
    )


_NOT_MERGED: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Keys that the AI SDK ignores when it merges metadata."""


def _merge_into(base: dict[str, Any], new: dict[str, Any]) -> None:
    """Merge *new* into *base*. Objects are merged key by key, and any other value is replaced."""
    for name, content in new.items():
        if name in _NOT_MERGED:
            continue
        inside = base.get(name)
        if isinstance(inside, dict) and isinstance(content, dict):
            _merge_into(cast("dict[str, Any]", inside), cast("dict[str, Any]", content))
        else:
            base[name] = deepcopy(content)
