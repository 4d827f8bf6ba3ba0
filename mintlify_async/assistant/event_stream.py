r"""Reads one answer without I/O. Bytes, split in any way, become typed events and a message.

Feed the bytes as they arrive, then their end. Take events until there is none. An event is decoded and
applied when it is taken, so ``message`` and ``text`` always match the events that were returned.

A stream has ended only if ``finish``, ``abort``, ``error`` or ``[DONE]`` was received. Any other end
raises an error with the partial answer. ``reply`` decides how long it reads after an end.

>>> stream = MessageStream()
>>> stream.feed(b'data: {"type":"text-start","id":"0"}\n\ndata: {"type":"text-delta","id":"0",')
>>> stream.feed(b'"delta":"Hi"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n')
>>> stream.feed_eof()
>>> [event.type for event in iter(stream.next_event, None)], stream.text, stream.ended
(['text-start', 'text-delta', 'finish'], 'Hi', True)
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

from attrs import evolve

from ..errors import (
    AssistantError,
    MintlifyError,
    StreamDecodeError,
    StreamError,
    StreamInterruptedError,
    UnexpectedResponseError,
    printable,
)
from ..events import (
    EVENT_TYPES,
    AbortEvent,
    Data,
    ErrorEvent,
    Finish,
    ReasoningDelta,
    ResetStep,
    Start,
    StreamEvent,
    TextDelta,
    ToolInputDelta,
    UnknownEvent,
)
from ..messages import Message, whole_message
from ..model.secret import mask_keys, mask_text
from ..model.strict_json import (
    EXCERPT_CHARACTERS,
    DecodeProblem,
    decode_json,
    json_safe,
    scan_text,
    whole_characters,
)
from ..model.thread import Thread
from ..model.wire_value import EMPTY, read_value, without_halves
from ..protocol.byte_limits import MAX_EVENT_BYTES, MAX_REPLY_BYTES
from ..protocol.failure_words import words_in
from .message_builder import GrowingText, MessageBuilder
from .sse import SSEDecoder
from .thread_finder import THREAD_FIELDS, ThreadFinder

__all__ = ["DONE", "MessageStream"]

_HEAD_BYTES: Final = 4096
"""If a body is not an event stream, this number of its bytes is kept for the excerpt of an error."""
_ENDS: Final = (Finish, AbortEvent, ErrorEvent)
"""The events that announce the end of an answer."""
_PIECES: Final[Mapping[type[object], str]] = {
    TextDelta: "delta",
    ReasoningDelta: "delta",
    ToolInputDelta: "input_text_delta",
}
"""The field of a delta that may end with a high surrogate. The next delta then has the low surrogate."""


DONE: Final = "[DONE]"
"""The data that ends an answer and is no event. The kit's ``redaction`` also uses it."""


_Delta: TypeAlias = TextDelta | ReasoningDelta

_DELTAS: Final[Mapping[str, type[_Delta]]] = {
    '{"type":"text-delta"': TextDelta,
    '{"type":"reasoning-delta"': ReasoningDelta,
}
"""The start of a delta's data, as JavaScript writes it, and the delta's class."""


class DeltaDecoder:
    """Decodes the deltas of one answer. Most start like the previous delta: with the same type and part."""

    # Nine of ten events are such deltas. The relay saves 5,000 of 176,000 instructions for such an event,
    # because this class neither parses the fields before the text nor calls the delta's class.

    def __init__(self) -> None:
        self._head: str | None = None  # the JSON of the last delta before its text
        self._class: type[_Delta] = TextDelta
        self._id = ""

    def plain_delta(self, data: str) -> _Delta | None:
        """Return the delta in *data* if it has an id, a text and nothing else. None for any other data."""
        if (self._head is None or not data.startswith(self._head)) and not self._read_head(data):
            return None
        assert self._head is not None
        try:
            text, end = scan_text(data, len(self._head))
        except ValueError:
            return None
        if data[end:] != "}":
            return None
        delta = object.__new__(self._class)
        fields = delta.__dict__  # like attrs' __init__
        fields["extra"], fields["id"] = EMPTY, self._id
        fields["provider_metadata"], fields["delta"] = None, text
        return delta

    def _read_head(self, data: str) -> bool:
        """Read the fields before the text. Return False if *data* is not a plain delta."""
        head, separator, _ = data.partition('","delta":"')
        start, _, id = head.partition(',"id":"')
        cls = _DELTAS.get(start)
        if cls is None or not separator or '"' in id or "\\" in id or not id.isprintable():
            return False
        self._head, self._class, self._id = head + separator, cls, id
        return True


def undecodable(problem: str, data: str) -> StreamDecodeError:
    """Return the error for event data that cannot be decoded, with thread keys masked."""
    excerpt = mask_text(data)[:EXCERPT_CHARACTERS]
    return StreamDecodeError(f"{problem}: {printable(excerpt)}", excerpt=excerpt)


def parse_json(data: str) -> Any:
    """Return the JSON value of *data*. Raises StreamDecodeError if there is none."""
    return decode_json(data, lambda problem: undecodable(f"the event {problem}", data))


def build_event(content: Any, data: str) -> StreamEvent:
    """Return the event of *content*, which is the JSON value of *data*.

    Raises:
        StreamDecodeError: *content* is not a JSON object with a ``type``, or a required field of that type is
            missing or has another type.
    """
    wire: dict[str, Any] = content if content.__class__ is dict else {}
    kind = wire.get("type")
    if not isinstance(kind, str):
        raise undecodable("the event is not an object with a type", data)

    def error(problem: str) -> StreamDecodeError:
        return undecodable(kind + problem, data)

    cls: Any = EVENT_TYPES.get(kind)
    if cls is not None:
        event: StreamEvent = read_value(cls, wire, error)
        return event
    if kind.startswith("data-"):
        return read_value(Data, wire, error, name=kind.removeprefix("data-"))
    return UnknownEvent(type=kind, extra=mask_keys({k: v for k, v in wire.items() if k != "type"}))


class MessageStream:
    """Decodes the stream of one answer and builds its message.

    Args:
        message: The assistant's message that the answer continues, or None for a new one.
        thread: The thread that was sent with the question, or None.
        site: The site URL, or None. With it, links to paths in the text become full URLs.

    Attributes:
        events_seen: The number of events returned up to now.
        ended: Whether there are no more events.
        earlier_text: The text of the messages that a ``start`` with another id replaced.
        complete: Whether an end was announced: ``finish``, ``abort``, ``error`` or ``[DONE]``.
        queue: The data of the events that have arrived and were not returned yet.
    """

    def __init__(
        self, message: Message | None = None, thread: Thread | None = None, site: str | None = None
    ) -> None:
        self._builder = MessageBuilder(message)
        self._finder = ThreadFinder(thread)
        self._site = site
        # Set once the text was read, so that each reading costs only the new text.
        self._text: GrowingText | None = None
        self._texts: list[str] = []
        self._sse_decoder = SSEDecoder()
        self._deltas = DeltaDecoder()
        self._head = b""
        self._size = 0  # size of the body, in bytes
        self._eof = False  # whether no more bytes are read
        self._cause: Exception | None = None
        self._ends: dict[str, StreamEvent | None] = {}  # each type's last event that announced an end
        self.events_seen = 0
        self.ended = False
        self.earlier_text = ""
        self.complete = False  # kept, because each read of a reply looks at it
        self.queue: deque[str] = deque()

    # Input ------------------------------------------------------------------------------------

    def begin(
        self, headers: Mapping[str, str], thread_headers: tuple[str, str], secret: str | None = None
    ) -> None:
        """Set the values that are known before the body.

        Args:
            headers: The headers of the response, with names in lower case.
            thread_headers: The names of the headers with the thread's id and its key.
            secret: The API key. No error may show it, even if the answer contains it.
        """
        self._finder.secret = secret
        self._finder.look_in_headers(headers, thread_headers)

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the body. Bytes after the end, or over the limit, are ignored."""
        if self._eof or self.ended:
            return
        decoder = self._sse_decoder
        if not decoder.data_seen:
            # Kept for an excerpt, if the body is no event stream.
            self._head += data[: _HEAD_BYTES - len(self._head)]
        self._size += len(data)
        if self._size > MAX_REPLY_BYTES:
            data = data[: MAX_REPLY_BYTES - self._size]
            self._eof = True
        self.queue.extend(decoder.feed(data))
        if decoder.too_large:
            self._eof = True

    def feed_eof(self, cause: Exception | None = None) -> None:
        """End the body. *cause* is the error that interrupted it, or None if it ended properly."""
        if self._eof or self.ended:
            return
        self._eof = True
        self._cause = cause
        last = self._sse_decoder.close()
        if last is not None and _is_complete(last):  # no blank line followed the event
            self.queue.append(last)

    # Output -----------------------------------------------------------------------------------

    def next_event(self) -> StreamEvent | None:
        """Return the next event. If it is None and ``ended`` is false, feed more bytes.

        Raises:
            StreamDecodeError: An event cannot be decoded, or an event or the answer is too large.
            StreamStateError: An event names a part or a tool call that does not exist.
            AssistantError: The previous event was an ``error``.
            StreamInterruptedError: The body ended before the end of the answer.
            UnexpectedResponseError: The body is not an event stream.
        """
        while self.queue:
            delta = self.next_delta()
            if delta is not None:
                return delta
            event = self._take(self.queue.popleft())
            if event is None:
                continue
            if not isinstance(event, StreamError):
                return event
            if not self.complete:
                self._fail(event)
            self._end()  # the answer is complete, so later data cannot harm it
        if self._eof and not self.ended:
            self._at_rest()
        return None

    def next_delta(self) -> TextDelta | ReasoningDelta | None:
        """Return the next event if it has arrived and is a delta of the usual shape, else None."""
        if not self.queue:
            return None
        delta = self._deltas.plain_delta(self.queue[0])
        if delta is None:
            return None
        try:
            self._builder.add_delta(delta)
        except StreamError:
            return None  # next_event() raises this error
        self.queue.popleft()
        self.events_seen += 1
        if self._text is not None:
            self._note_text(delta)
        return delta

    # The server may send a key back in an answer, and tools show the variables of an error's frames. So
    # errors are returned to a frame without the data, and this frame raises them.

    def _take(self, data: str) -> StreamEvent | StreamError | None:
        """Decode and apply one event. Return an error if it is wrong. Return None if *data* is no event."""
        try:
            if data == DONE:
                self._ends[DONE] = None
                self.complete = True
                return None
            if not data.strip(" \t\r\n"):
                return None  # a proxy's heartbeat without content
            content = parse_json(data)
            if content.__class__ is dict and not THREAD_FIELDS.isdisjoint(content):
                self._finder.look(content)
            event = build_event(content, data)
            if isinstance(event, Start) and self.events_seen and self._builder.is_replaced_by(event):
                self.earlier_text = self.growing_text().initial  # because it may have been shown
            self._builder.apply(event)  # unchanged, because two ids may differ only in lone surrogates
            event = self._readable(event, data)
        except StreamError as error:
            return error.with_traceback(None)
        self.events_seen += 1
        if self._text is not None:
            self._note_text(event)
        return event

    def _note_text(self, event: StreamEvent) -> None:
        """Add the text of *event* to the text that was already read."""
        if isinstance(event, (Start, ResetStep)):  # these events may discard text
            self._text = None
        elif self._text is not None:
            self._texts.append(self._text.after(event))

    def _readable(self, event: StreamEvent, data: str) -> StreamEvent:
        """Return *event* without lone surrogates and keys. Record the end that it announces."""
        if "\\ud" in data or "\\uD" in data:  # only an escape can contain a lone surrogate
            whole_event = without_halves(event)
            self._builder.has_halves = self._builder.has_halves or whole_event is not event
            piece = _PIECES.get(event.__class__)
            event = whole_event if piece is None else evolve(whole_event, **{piece: getattr(event, piece)})
        if isinstance(event, ErrorEvent):
            event = evolve(event, error_text=self._finder.mask(event.error_text))
            if not self.complete:
                self.queue.clear()  # no event follows; the next step raises the error
                self._eof = True
        if isinstance(event, _ENDS):
            self._ends[event.type] = event
            self.complete = True
        return event

    def _at_rest(self) -> None:
        """Decide how the stream ends, when every event was taken and no bytes follow."""
        error = self._ends.get("error") if len(self._ends) == 1 else None
        if isinstance(error, ErrorEvent):
            # Masked before the text is shortened, because half a key would not be recognized.
            text = self._finder.mask(_words_of(error))
            words = printable(text) or "it did not say why"
            self._fail(AssistantError(f"the assistant failed: {words}", error_text=text))
        problem: MintlifyError
        if self._sse_decoder.too_large:
            problem = StreamDecodeError(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        elif self._size > MAX_REPLY_BYTES:
            problem = StreamDecodeError(f"the answer is larger than {MAX_REPLY_BYTES} bytes")
        else:
            problem = self._interrupted()
        if not self.complete:
            self._fail(self._foreign_body() or problem)
        self._end()

    def _end(self) -> None:
        self.ended = True
        self.queue.clear()

    # Failing ----------------------------------------------------------------------------------

    def _fail(self, error: MintlifyError) -> NoReturn:
        """End the stream and raise *error* with the partial answer. Secrets are masked."""
        self._end()
        error.args = tuple(self._readable_text(arg) if isinstance(arg, str) else arg for arg in error.args)
        texts = {
            name: self._readable_text(value) for name, value in vars(error).items() if isinstance(value, str)
        }
        error.__dict__.update(texts)  # for example the excerpt, or the id of a missing part
        if isinstance(error, StreamError):
            error.__dict__.update(self.so_far())
        if isinstance(error, StreamDecodeError):
            error.index = self.events_seen
        raise error from error.__cause__

    def _readable_text(self, text: str) -> str:
        return whole_characters(self._finder.mask(text))

    def so_far(self) -> dict[str, Any]:
        """Return the partial answer, as the fields of a ``StreamError``."""
        return {
            "partial": None if self._builder.empty else self.partial,
            "text": self.partial_text,
            "thread": self.thread,
            "events_seen": self.events_seen,
        }

    def _interrupted(self) -> StreamInterruptedError:
        events_text = f"{self.events_seen} event{'' if self.events_seen == 1 else 's'}"
        if self._cause is not None:
            error = StreamInterruptedError(f"the answer was cut after {events_text}: {self._cause}")
            error.__cause__ = self._cause
            return error
        if not self._head.strip():
            return StreamInterruptedError("the answer is empty")
        return StreamInterruptedError(f"the answer stopped after {events_text}, before its end")

    def _foreign_body(self) -> UnexpectedResponseError | None:
        """Return the error for a body that is not an event stream, or None if it is one."""
        if self._sse_decoder.data_seen or not self._sse_decoder.foreign_seen:
            return None
        head = self._head.decode("utf-8", "replace").lstrip("\ufeff")
        excerpt = self._finder.mask(head)[:EXCERPT_CHARACTERS]
        return UnexpectedResponseError(
            f"the answer is not an event stream but {_kind_of(excerpt.lstrip())}: {printable(excerpt)}",
            excerpt=excerpt,
        )

    # State ------------------------------------------------------------------------------------

    @property
    def finish_seen(self) -> bool:
        """Whether ``finish`` was returned."""
        return "finish" in self._ends

    @property
    def done_seen(self) -> bool:
        """Whether ``[DONE]`` was received."""
        return DONE in self._ends

    @property
    def aborted(self) -> bool:
        """Whether ``abort`` was returned."""
        return "abort" in self._ends

    @property
    def abort_reason(self) -> str | None:
        """The server's reason for an abort, or None."""
        abort = self._ends.get("abort")
        return abort.reason if isinstance(abort, AbortEvent) else None

    @property
    def message(self) -> Message:
        """The message of the events returned up to now. Lone surrogates are replaced by U+FFFD.

        Before the end, a streaming text may end with a high surrogate, because its low surrogate may
        follow.
        """
        return self._message(streaming=not (self.ended or self.complete))

    @property
    def partial(self) -> Message:
        """Like :attr:`message`, for use after the last event."""
        return self._message(streaming=False)

    def _message(self, *, streaming: bool) -> Message:
        message = self._builder.message
        return whole_message(message, streaming=streaming) if self._builder.has_halves else message

    @property
    def text(self) -> str:
        """The text of the events returned up to now, for display."""
        if self._text is None:
            self._text = self.growing_text()
            self._texts = [self._text.initial]
        self._texts[:] = ["".join(self._texts)]
        return self._texts[0]

    @property
    def text_so_far(self) -> str:
        """Like :attr:`text`, but the text is not kept, so later events cost no extra time.

        For a caller that reads the text only once.
        """
        return self.growing_text().initial

    @property
    def partial_text(self) -> str:
        """Like :attr:`text`, for use after the last event."""
        text = self.growing_text()
        return text.initial + text.close()

    def growing_text(self) -> GrowingText:
        """Return the text of the events returned up to now. Later events are added to it."""
        return GrowingText(self._builder, self._site, self.earlier_text, begun=self.events_seen > 0)

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread, with the fields that are known."""
        return self._finder.thread

    @property
    def finish_reason(self) -> str | None:
        """The service's reason for the end, or None."""
        reason = self._builder.finish_reason
        return None if reason is None else whole_characters(reason)


def _words_of(error: ErrorEvent) -> str:
    """Return the text of *error*, read from each field that contains a message."""
    if not error.extra:
        return error.error_text
    words = words_in({"errorText": error.error_text, **error.extra})
    return words or json.dumps(json_safe(error.extra), ensure_ascii=False)


def _is_complete(last: str) -> bool:
    """Return whether the last event, which no blank line follows, is complete."""
    if last == DONE:
        return True
    try:
        return isinstance(decode_json(last), dict)
    except DecodeProblem:
        return False


_V4: Final = r'[0-9a-k]:["\[{]'


def _kind_of(body: str) -> str:
    """Describe a body that is not an event stream, for an error."""
    if re.match(_V4, body):
        return (
            "the AI SDK 4 data stream, which the v1 assistant endpoint sends; "
            "ask the v2 endpoint (check base_url= and Assumptions(ask_path=…))"
        )
    if body.startswith("<"):
        return "an HTML page"
    if body.startswith(("{", "[")):
        return "a JSON document"
    return "plain text"
