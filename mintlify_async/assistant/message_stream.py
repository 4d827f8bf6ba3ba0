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
from typing import Any, Final, NoReturn, cast

from attrs import evolve

from ..checks import copying_slip
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
    AbortEvent,
    ErrorEvent,
    Finish,
    ReasoningDelta,
    ResetStep,
    Start,
    StreamEvent,
    TextDelta,
    ToolInputDelta,
)
from ..messages import Message, whole_message
from ..model.secret import mask_text
from ..model.strict_json import EXCERPT_CHARACTERS, DecodeProblem, decode_json, json_safe, whole_characters
from ..model.thread import Thread
from ..model.wire_value import without_halves
from ..protocol.byte_limits import MAX_EVENT_BYTES, MAX_REPLY_BYTES
from ..protocol.failure_words import words_in
from .decode import DONE, DeltaDecoder, build_event, parse_json
from .message_builder import GrowingText, MessageBuilder
from .sse import SSEDecoder

__all__ = ["MessageStream"]

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
_THREAD_FIELDS: Final = frozenset(("threadId", "threadKey", "messageMetadata"))
"""The fields of an event that may contain its thread."""


class _ThreadFinder:
    """Finds the thread of an answer: its id, and the key of the same id.

    The order of preference is: ``finish``, the metadata of ``finish``, any other event, its metadata, the
    headers. The id of the first place is used. A key is used if it came with the same id, or without an id.

    Attributes:
        thread: The thread, with the fields that are known.
        secret: The API key. No error may show it, even if the answer repeats it.
    """

    def __init__(self, sent: Thread | None) -> None:
        self._sent = self.thread = sent
        self.secret: str | None = None
        self._ids: dict[int, str] = {}
        self._keys: dict[int, tuple[str, str | None]] = {}  # each place's key, and the id next to that key

    def look(self, content: dict[str, Any]) -> None:
        """Record the thread in *content*, an event with one of ``_THREAD_FIELDS``."""
        metadata = content.get("messageMetadata")
        place = 0 if content.get("type") == "finish" else 2
        inside = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        top_id, inner_id = content.get("threadId"), inside.get("threadId")
        self.note(place, top_id, content.get("threadKey"), inner_id)
        self.note(place + 1, inner_id, inside.get("threadKey"), top_id)

    def note(self, place: int, id: object, key: object, other_id: object = None) -> None:
        """Record the *id* and the *key* of one place. *other_id* is the id in the place next to it."""
        name = _text_or_none(id)
        if name is not None and copying_slip(name):
            name = None  # no question can name this thread
        if name is not None:
            self._ids[place] = name
        secret = _text_or_none(key)
        if secret is not None:
            self._keys[place] = (secret, name or _text_or_none(other_id))
        self.thread = self._best()

    def _best(self) -> Thread | None:
        sent_thread = self._sent
        id = self._ids[min(self._ids)] if self._ids else sent_thread.id if sent_thread else None
        if id is None or (sent_thread is not None and sent_thread.id == id and sent_thread.key is not None):
            return sent_thread  # the service sends the key once, so the sent key stays valid
        matches = (self._keys[place][0] for place in sorted(self._keys) if self._keys[place][1] in (None, id))
        return Thread(id, next(matches, None))

    def mask(self, text: str) -> str:
        """Return *text* with all known keys masked."""
        sent_thread = self._sent.key if self._sent else None
        for key in {key for key, _ in self._keys.values()} | {sent_thread, self.secret}:
            text = mask_text(text, key)
        return text


def _text_or_none(content: object) -> str | None:
    return whole_characters(content) if isinstance(content, str) and content else None


class MessageStream:
    """Decodes the stream of one answer and builds its message.

    Args:
        message: The assistant's message that the answer continues, or None for a new one.
        thread: The thread that was sent with the question, or None.
        site: The site URL, or None. With it, links to paths in the text become full URLs.

    Attributes:
        events_seen: The number of events returned up to now.
        ended: Whether there are no more events.
        complete: Whether an end was announced: ``finish``, ``abort``, ``error`` or ``[DONE]``.
        queue: The data of the events that have arrived and were not returned yet.
    """

    def __init__(
        self, message: Message | None = None, thread: Thread | None = None, site: str | None = None
    ) -> None:
        self._builder = MessageBuilder(message)
        self._earlier: list[str] = []  # the texts of replaced messages
        self._has_halves = False  # whether the message may contain a lone surrogate
        self._finder = _ThreadFinder(thread)
        self._site = site
        self._text: GrowingText | None = (
            None  # set once the text was read, so that each reading costs only the new text
        )
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
        self.complete = False
        self.queue: deque[str] = deque()

    # Input ------------------------------------------------------------------------------------

    def begin(
        self, headers: Mapping[str, str], thread_headers: tuple[str, str], secret: str | None = None
    ) -> None:
        """Set the values that are known before the body.

        Args:
            headers: The headers of the response, with names in lower case.
            thread_headers: The names of the headers with the thread's id and its key.
            secret: The API key. No error may show it, even if the answer repeats it.
        """
        self._finder.secret = secret
        id, key = map(headers.get, thread_headers)
        if id or key:
            self._finder.note(4, id, key)

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

    # An answer may repeat a key, and tools show the variables of an error's frames. So errors are returned to
    # a frame without the data, and this frame raises them.

    def _take(self, data: str) -> StreamEvent | StreamError | None:
        """Decode and apply one event. Return an error if it is wrong. Return None if *data* is no event."""
        try:
            if data == DONE:
                self._ends[DONE] = None
                self.complete = True
                return None
            if not data.strip(" \t\r\n"):
                return None  # a proxy's heartbeat without content
            event = self._decode(data)
            if isinstance(event, Start) and self.events_seen and self._builder.is_replaced_by(event):
                self._keep_text()
            self._builder.apply(event)  # unchanged, because two ids may differ only in lone surrogates
            event = self._readable(event, data)
        except StreamError as error:
            return error.with_traceback(None)
        self.events_seen += 1
        if self._text is not None:
            self._note_text(event)
        return event

    def _keep_text(self) -> None:
        """Keep the text of a replaced message, because it may have been shown."""
        text = self.growing_text().initial
        if text:
            self._earlier.append(text)

    def _note_text(self, event: StreamEvent) -> None:
        """Add the text of *event* to the text that was already read."""
        if isinstance(event, (Start, ResetStep)):  # these events may discard text
            self._text = None
        elif self._text is not None:
            self._texts.append(self._text.after(event))

    def _decode(self, data: str) -> StreamEvent:
        """Decode an event of any type, and record its thread."""
        content = parse_json(data)
        if content.__class__ is dict and not _THREAD_FIELDS.isdisjoint(content):
            self._finder.look(content)
        return build_event(content, data)

    def _readable(self, event: StreamEvent, data: str) -> StreamEvent:
        """Return *event* without lone surrogates and keys. Record the end that it announces."""
        if "\\ud" in data or "\\uD" in data:  # only an escape can contain a lone surrogate
            whole_event = without_halves(event)
            self._has_halves = self._has_halves or whole_event is not event
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
        if not (self._has_halves or self._builder.has_halves):
            return message
        return whole_message(message, streaming=streaming)

    @property
    def text(self) -> str:
        """The text of the events returned up to now, for display."""
        if self._text is None:
            self._text = self.growing_text()
            self._texts = [*self._earlier, self._text.initial]
        self._texts[:] = ["".join(self._texts)]
        return self._texts[0]

    @property
    def text_so_far(self) -> str:
        """Like :attr:`text`, for a caller that reads the text once, so later events cost no extra time."""
        return "".join([*self._earlier, self.growing_text().initial])

    @property
    def partial_text(self) -> str:
        """Like :attr:`text`, for use after the last event."""
        text = self.growing_text()
        return "".join([*self._earlier, text.initial, text.close()])

    @property
    def earlier_text(self) -> str:
        """The text of the messages that a ``start`` with another id replaced."""
        return "".join(self._earlier)

    def growing_text(self) -> GrowingText:
        """Return the text of the events returned up to now. Later events are added to it."""
        begun = self.events_seen > 0
        return GrowingText(self._builder, self._site, has_earlier=bool(self._earlier), begun=begun)

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
    """Return the text of *error*, from any field name that the service uses."""
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
