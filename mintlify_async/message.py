"""Stream events come in, one after the other; the message that they make goes out at any time.

The way of folding is that of the AI SDK 7. Folding is linear: deltas are appended to lists, and
joined (and a tool's partial input parsed) only when the message is looked at. What was handed out
never changes afterwards.

>>> from mintlify_async.events import TextDelta, TextStart
>>> fold = MessageFold()
>>> fold.apply(TextStart(id="0")), fold.apply(TextDelta(id="0", delta="Hi"))
(True, True)
>>> fold.message.text
'Hi'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, ClassVar, Final, TypeAlias, cast

import attrs

from . import events as ev
from .drafts import Draft, FixedDraft, InputDraft, TextDraft, ToolDraft
from .errors import StreamStateError, printable
from .parts import (
    CustomPart,
    DataPart,
    DynamicToolPart,
    FilePart,
    Message,
    MessagePart,
    ReasoningFilePart,
    SourceDocumentPart,
    SourceUrlPart,
    SteeringMessagePart,
    StepStartPart,
    TextPart,
    ToolApproval,
    ToolPart,
    clean_text,
)
from .sources import AnswerSource, Suggestion, sources_of, split_suggestions
from .wire import MISSING, NO_EXTRA

__all__ = ["AnswerSource", "MessageFold", "Suggestion", "sources_of", "split_suggestions"]

_TOOL_FIELDS: Final = tuple(
    field.name for field in attrs.fields(ToolPart) if field.name not in ("tool_name", "tool_call_id")
)


class _PartIndex:
    """Where the parts are that are no text. Most answers of which thousands are open have none yet."""

    __slots__ = ("approvals", "calls", "data", "inputs", "reasoning", "step_calls")

    def __init__(self) -> None:
        self.calls: dict[str, list[ToolDraft]] = {}
        self.step_calls: dict[str, list[ToolDraft]] = {}
        self.approvals: dict[str, list[int]] = {}  # by id: the places of the parts that asked, a heap
        self.data: dict[tuple[str, str], FixedDraft] = {}
        self.reasoning: dict[str, TextDraft] = {}
        self.inputs: dict[str, InputDraft] = {}


class MessageFold:
    """Folds events into a message.

    Args:
        message: The assistant's message that the stream continues, or None for a new one.

    Attributes:
        finish_reason: Why the answer ended, or None.
        role: Whose message it is: ``assistant``.
        extra: What the message that is continued held besides.
        open_texts: The open text parts by id; always the same dict.
    """

    __slots__ = (
        "_drafts",
        "_id",
        "_made",
        "_metadata",
        "_metadata_seen",
        "_step",
        "_step_begin",
        "extra",
        "finish_reason",
        "open_texts",
        "role",
    )

    def __init__(self, message: Message | None = None) -> None:
        """Begin with nothing, or with *message*."""
        self._id = ""
        self.role = "assistant"
        self.extra: Mapping[str, Any] = NO_EXTRA
        self._step = 1
        self.open_texts: dict[str, TextDraft] = {}
        self._clear()
        if message is not None:
            self._continue(message)

    def _clear(self) -> None:
        """Begin anew: no parts, no metadata."""
        self._drafts: list[Draft] = []
        self._step_begin = 0
        self.open_texts.clear()
        self._metadata: Any = None
        self._metadata_seen: Any = None  # the copy that was handed out last
        self._made: _PartIndex | None = None
        self.finish_reason: str | None = None

    @property
    def _index(self) -> _PartIndex:
        if self._made is None:
            self._made = _PartIndex()
        return self._made

    def _begin_step(self) -> None:
        self._step += 1
        self._step_begin = len(self._drafts)
        if self._made is not None:
            self._made.step_calls.clear()

    def _close_parts(self) -> None:
        """Forget which parts are open."""
        self.open_texts.clear()
        if self._made is not None:
            self._made.reasoning.clear()
            self._made.inputs.clear()

    def _continue(self, message: Message) -> None:
        self._id, self.role, self.extra = message.id, message.role, message.extra
        self._metadata = _owned(message.metadata)
        for part in message.parts:
            self._adopt(part)
        for draft in self._drafts[self._step_begin :]:
            if isinstance(draft, ToolDraft) and draft.fields["state"] == "input-streaming":
                self._index.inputs[draft.call_id] = draft.reopened()

    def _adopt(self, part: MessagePart) -> None:
        """Add a part of the message that is continued."""
        if isinstance(part, ToolPart):
            draft = ToolDraft(part.tool_call_id, part.tool_name, dynamic=isinstance(part, DynamicToolPart))
            draft.set(**{name: getattr(part, name) for name in _TOOL_FIELDS})
            self._add_tool(draft)
            if part.approval is not None:
                self._ask(part.approval.id, draft)
            return
        fixed = FixedDraft(part)
        self._drafts.append(fixed)
        if isinstance(part, DataPart) and part.id is not None:
            self._index.data.setdefault((part.name, part.id), fixed)
        elif isinstance(part, StepStartPart):
            self._begin_step()

    @property
    def message(self) -> Message:
        """The message as it is now; it does not change when more events come."""
        if self._metadata_seen is None:
            self._metadata_seen = _owned(self._metadata)
        return Message(
            id=self._id,
            role=self.role,
            parts=tuple([draft.snapshot() for draft in self._drafts]),
            metadata=self._metadata_seen,
            extra=self.extra,
        )

    @property
    def text(self) -> str:
        """The text so far; never half a character."""
        return "".join(
            clean_text(part.text, streaming=part.state == "streaming")
            for part in (
                draft.snapshot() for draft in self._drafts if isinstance(draft, TextDraft | FixedDraft)
            )
            if isinstance(part, TextPart)
        )

    @property
    def empty(self) -> bool:
        """Whether nothing has been folded: no id, no part, no metadata."""
        return not self._id and not self._drafts and self._metadata is None

    def sources(self) -> list[AnswerSource]:
        """Return what the answer rests on so far; see :func:`sources_of`."""
        return sources_of(self.message)

    def apply(self, event: ev.StreamEvent) -> bool:
        """Fold *event*; return whether the message is published anew, as ``readUIMessageStream`` does.

        Raises:
            StreamStateError: It names a part or a call that is not there; nothing has changed.
        """
        fold = self._folds.get(event.__class__)
        return fold(self, event) if fold is not None else False

    # Each of these folds one type.

    def _start(self, event: ev.Start) -> bool:
        if event.message_id is not None and event.message_id != self._id:
            if not self.empty or self.finish_reason is not None:
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
        self._drafts.append(FixedDraft(StepStartPart()))
        self._begin_step()
        return False

    def _reset_step(self, event: ev.ResetStep) -> bool:
        removed = self._drafts[self._step_begin :]
        del self._drafts[self._step_begin :]
        for draft in reversed(removed):
            self._forget(draft)
        self._begin_step()
        self._close_parts()
        return bool(removed)

    def _forget(self, draft: Draft) -> None:
        """Take a removed part out of what finds parts."""
        if isinstance(draft, ToolDraft):
            self._index.calls[draft.call_id].pop()  # the parts of a call are in the order of the message
        elif isinstance(draft, FixedDraft) and isinstance(draft.part, DataPart) and draft.part.id is not None:
            self._index.data.pop((draft.part.name, draft.part.id), None)

    def _text_start(self, event: ev.TextStart) -> bool:
        draft = TextDraft(reasoning=False, id=None, metadata=event.provider_metadata)
        self._drafts.append(draft)
        self.open_texts[event.id] = draft
        return True

    def _text_delta(self, event: ev.TextDelta) -> bool:
        return self._delta(self.open_texts, event)

    def _text_end(self, event: ev.TextEnd) -> bool:
        draft = self._end(self.open_texts, event)
        if event.citations is not None:
            draft.citations = event.citations
        return True

    def _reasoning_start(self, event: ev.ReasoningStart) -> bool:
        draft = TextDraft(reasoning=True, id=event.id, metadata=event.provider_metadata)
        self._drafts.append(draft)
        self._index.reasoning[event.id] = draft
        return True

    def _reasoning_delta(self, event: ev.ReasoningDelta) -> bool:
        return self._delta(self._index.reasoning, event)

    def _reasoning_end(self, event: ev.ReasoningEnd) -> bool:
        self._end(self._index.reasoning, event)
        return True

    def _delta(self, open: dict[str, TextDraft], event: ev.TextDelta | ev.ReasoningDelta) -> bool:
        draft = open.get(event.id)
        if draft is None:
            raise _not_open(event, event.id)
        draft.append(event.delta)
        if event.provider_metadata is not None:
            draft.metadata = event.provider_metadata
        return True

    def _end(self, open: dict[str, TextDraft], event: ev.TextEnd | ev.ReasoningEnd) -> TextDraft:
        draft = open.pop(event.id, None)
        if draft is None:
            raise _not_open(event, event.id)
        draft.state = "done"
        if event.provider_metadata is not None:
            draft.metadata = event.provider_metadata
        draft.change()
        return draft

    def _add(self, part: MessagePart) -> bool:
        self._drafts.append(FixedDraft(part))
        return True

    def _source_url(self, event: ev.SourceUrl) -> bool:
        return self._add(
            SourceUrlPart(
                source_id=event.source_id,
                url=event.url,
                title=event.title,
                provider_metadata=event.provider_metadata,
            )
        )

    def _source_document(self, event: ev.SourceDocument) -> bool:
        return self._add(
            SourceDocumentPart(
                source_id=event.source_id,
                media_type=event.media_type,
                title=event.title,
                filename=event.filename,
                provider_metadata=event.provider_metadata,
            )
        )

    def _file(self, event: ev.File) -> bool:
        return self._add(
            FilePart(media_type=event.media_type, url=event.url, provider_metadata=event.provider_metadata)
        )

    def _reasoning_file(self, event: ev.ReasoningFile) -> bool:
        return self._add(
            ReasoningFilePart(
                media_type=event.media_type, url=event.url, provider_metadata=event.provider_metadata
            )
        )

    def _custom(self, event: ev.Custom) -> bool:
        return self._add(CustomPart(kind=event.kind, provider_metadata=event.provider_metadata))

    def _steering_message(self, event: ev.SteeringMessage) -> bool:
        return self._add(SteeringMessagePart(id=event.id, parts=event.parts))

    def _data_event(self, event: ev.Data) -> bool:
        if event.transient:
            return False
        draft = None if event.id is None else self._index.data.get((event.name, event.id))
        if draft is not None:
            draft.part = attrs.evolve(cast("DataPart", draft.part), data=event.data)
            return True
        extra = event.extra if event.transient is None else {**event.extra, "transient": event.transient}
        self._add(DataPart(name=event.name, data=event.data, id=event.id, extra=extra))
        if event.id is not None:
            self._index.data[event.name, event.id] = cast("FixedDraft", self._drafts[-1])
        return True

    def _add_tool(self, draft: ToolDraft) -> None:
        draft.order = len(self._drafts)
        self._drafts.append(draft)
        self._index.calls.setdefault(draft.call_id, []).append(draft)
        here = self._index.step_calls.setdefault(draft.call_id, [])
        if all(other.dynamic is not draft.dynamic for other in here):
            here.append(draft)  # of a stored message's many, only the first of its kind is ever asked for

    def _call(self, event: ev.StreamEvent, call_id: str) -> ToolDraft:
        """Find the part of a call: the first in this step, else the last in the message."""
        here = self._index.step_calls.get(call_id)
        if here:
            return here[0]
        anywhere = self._index.calls.get(call_id)
        if not anywhere:
            raise _not_open(event, call_id)
        return anywhere[-1]

    def _here(self, call_id: str, name: str, *, dynamic: bool) -> tuple[ToolDraft, bool]:
        """Find this step's part of a call, or add one; say whether it is new."""
        for draft in self._index.step_calls.get(call_id, ()):
            if draft.dynamic is dynamic:
                draft.name = name
                return draft, False
        draft = ToolDraft(call_id, name, dynamic=dynamic)
        self._add_tool(draft)
        return draft, True

    def _update(self, draft: ToolDraft, state: str, **fields: Any) -> None:
        """Bring a call to *state*: these five fields are set anew, a missing one is removed."""
        draft.stream = None
        draft.set(
            state=state,
            input=fields.get("input", MISSING),
            output=fields.get("output", MISSING),
            error_text=fields.get("error_text"),
            raw_input=fields.get("raw_input", MISSING),
            preliminary=fields.get("preliminary"),
            input_encoding=fields.get("input_encoding"),
        )

    def _keep(self, draft: ToolDraft, event: _ToolEvent, *, result: bool) -> None:
        """Set what an event may add to a call and what stays when it does not."""
        metadata = event.provider_metadata
        draft.set_given(
            provider_executed=event.provider_executed,
            tool_metadata=event.tool_metadata,
            **{"result_provider_metadata" if result else "call_provider_metadata": metadata},
        )

    def _tool_input_start(self, event: ev.ToolInputStart) -> bool:
        dynamic = event.dynamic is True
        draft, _ = self._here(event.tool_call_id, event.tool_name, dynamic=dynamic)
        self._index.inputs[event.tool_call_id] = InputDraft(
            event.tool_name,
            dynamic=dynamic,
            title=event.title,
            metadata=event.tool_metadata,
            encoding=event.input_encoding,
        )
        self._update(draft, "input-streaming", input_encoding=event.input_encoding)
        self._keep(draft, event, result=False)
        draft.set_given(title=event.title)
        return True

    def _tool_input_delta(self, event: ev.ToolInputDelta) -> bool:
        stream = self._index.inputs.get(event.tool_call_id)
        if stream is None:
            raise _not_open(event, event.tool_call_id)
        draft = stream.draft
        if (
            draft is None
            or draft.stream is not stream
            or stream.step != self._step
            or not draft.show_raw
            or draft.fields["state"] != "input-streaming"
        ):
            self._show(stream, event.tool_call_id)
        stream.pieces.append(event.input_text_delta)
        stream.length += len(event.input_text_delta)
        return True

    def _show(self, stream: InputDraft, call_id: str) -> None:
        """Make this step's part of the call show *stream*."""
        draft, new = self._here(call_id, stream.name, dynamic=stream.dynamic)
        self._update(draft, "input-streaming", input_encoding=stream.encoding)
        draft.set_given(title=stream.title, tool_metadata=stream.metadata)
        draft.show_raw = not (new and stream.dynamic)
        draft.follow(stream, self._step)

    def _tool_input_available(self, event: ev.ToolInputAvailable) -> bool:
        draft, _ = self._here(event.tool_call_id, event.tool_name, dynamic=event.dynamic is True)
        self._update(draft, "input-available", input=event.input)
        self._keep(draft, event, result=False)
        draft.set_given(title=event.title)
        return True

    def _tool_input_error(self, event: ev.ToolInputError) -> bool:
        here = self._index.step_calls.get(event.tool_call_id)
        dynamic = here[0].dynamic if here else event.dynamic is True
        draft, _ = self._here(event.tool_call_id, event.tool_name, dynamic=dynamic)
        self._update(draft, "output-error", input=event.input, error_text=event.error_text)
        self._keep(draft, event, result=True)
        return True

    def _tool_output_available(self, event: ev.ToolOutputAvailable) -> bool:
        draft = self._call(event, event.tool_call_id)
        draft.settle()
        self._update(
            draft,
            "output-available",
            input=draft.fields.get("input", MISSING),
            output=event.output,
            preliminary=event.preliminary,
        )
        self._keep(draft, event, result=True)
        return True

    def _tool_output_error(self, event: ev.ToolOutputError) -> bool:
        draft = self._call(event, event.tool_call_id)
        draft.settle()
        self._update(
            draft,
            "output-error",
            input=draft.fields.get("input", MISSING),
            raw_input=MISSING if draft.dynamic else draft.fields.get("raw_input", MISSING),
            error_text=event.error_text,
        )
        self._keep(draft, event, result=True)
        return True

    def _tool_approval_request(self, event: ev.ToolApprovalRequest) -> bool:
        draft = self._call(event, event.tool_call_id)
        approval = ToolApproval(
            id=event.approval_id,
            descriptor=MISSING if event.approval_descriptor is None else event.approval_descriptor,
            input_schema_input=event.input_schema_input,
            request_reason=event.reason,
            is_automatic=event.is_automatic or None,
            signature=event.signature,
        )
        draft.set(state="approval-requested", approval=approval)
        self._ask(event.approval_id, draft)
        return True

    def _ask(self, approval_id: str, draft: ToolDraft) -> None:
        heappush(self._index.approvals.setdefault(approval_id, []), draft.order)

    def _asked(self, approval_id: str) -> ToolDraft | None:
        """Find the first part that waits for this consent; drop those that do not any more."""
        asked = self._index.approvals.get(approval_id, [])
        while asked:
            draft = self._drafts[asked[0]] if asked[0] < len(self._drafts) else None
            if isinstance(draft, ToolDraft):
                approval: ToolApproval | None = draft.fields.get("approval")
                if approval is not None and approval.id == approval_id:
                    return draft
            heappop(asked)
        return None

    def _tool_approval_response(self, event: ev.ToolApprovalResponse) -> bool:
        draft = self._asked(event.approval_id)
        if draft is None:
            raise _not_open(event, event.approval_id)
        approval: ToolApproval = draft.fields["approval"]
        given = {} if event.reason is None else {"reason": event.reason}
        draft.set(
            state="approval-responded",
            approval=attrs.evolve(approval, approved=event.approved, **cast("Any", given)),
        )
        draft.set_given(
            provider_executed=event.provider_executed, call_provider_metadata=event.provider_metadata
        )
        return True

    def _tool_output_denied(self, event: ev.ToolOutputDenied) -> bool:
        self._call(event, event.tool_call_id).set(state="output-denied")
        return True

    _folds: ClassVar[dict[type[object], Callable[[MessageFold, Any], bool]]] = {
        ev.Start: _start,
        ev.StartStep: _start_step,
        ev.TextStart: _text_start,
        ev.TextDelta: _text_delta,
        ev.TextEnd: _text_end,
        ev.ReasoningStart: _reasoning_start,
        ev.ReasoningDelta: _reasoning_delta,
        ev.ReasoningEnd: _reasoning_end,
        ev.ToolInputStart: _tool_input_start,
        ev.ToolInputDelta: _tool_input_delta,
        ev.ToolInputAvailable: _tool_input_available,
        ev.ToolInputError: _tool_input_error,
        ev.ToolOutputAvailable: _tool_output_available,
        ev.ToolOutputError: _tool_output_error,
        ev.ToolApprovalRequest: _tool_approval_request,
        ev.ToolApprovalResponse: _tool_approval_response,
        ev.ToolOutputDenied: _tool_output_denied,
        ev.SourceUrl: _source_url,
        ev.SourceDocument: _source_document,
        ev.File: _file,
        ev.ReasoningFile: _reasoning_file,
        ev.Custom: _custom,
        ev.Data: _data_event,
        ev.MessageMetadata: _message_metadata,
        ev.Finish: _finish,
        ev.ResetStep: _reset_step,
        ev.SteeringMessage: _steering_message,
    }
    """How each type changes the message. What is not here (finish-step, abort, error, unknown) does not."""


_ToolEvent: TypeAlias = (
    ev.ToolInputStart
    | ev.ToolInputAvailable
    | ev.ToolInputError
    | ev.ToolOutputAvailable
    | ev.ToolOutputError
)


def _not_open(event: ev.StreamEvent, name: str) -> StreamStateError:
    return StreamStateError(
        f"{event.type} names {printable(name)!r}, and there is no such open part or call",
        event_type=event.type,
        event_id=name,
    )


_NOT_MERGED: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Keys that the AI SDK skips when it merges metadata."""


def _owned(content: Any) -> Any:
    """Return a copy of JSON that shares nothing that can change."""
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
