r"""The bytes of an answer come in; events, the message they make, the thread, and the verdict go out.

A reply's whole logic without I/O: feed what arrives, then its end; take events until there is none.
Each event is decoded and folded when it is taken, so that ``message`` and ``text`` are exactly what
the events that were handed out make.

An answer is complete only when ``finish``, ``abort``, ``error`` or ``[DONE]`` has come: everything
else that ends it is an error that carries what had arrived.

>>> stream = MessageStream()
>>> stream.feed(b'data: {"type":"text-start","id":"0"}\n\ndata: {"type":"text-delta","id":"0",')
>>> stream.feed(b'"delta":"Hi"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n')
>>> stream.feed_eof()
>>> [event.type for event in iter(stream.next_event, None)], stream.text, stream.ended
(['text-start', 'text-delta', 'finish'], 'Hi', True)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, cast

from .errors import (
    AssistantError,
    MintlifyError,
    StreamDecodeError,
    StreamError,
    StreamInterruptedError,
    UnexpectedResponseError,
    printable,
)
from .events import (
    AbortEvent,
    ErrorEvent,
    Finish,
    StreamEvent,
    build_event,
    make_text_delta,
    unreadable,
)
from .message import AnswerSource, MessageFold
from .models import Thread
from .parts import Message
from .sse import DEFAULT_MAX_EVENT_BYTES, SSEDecoder, whole_events
from .wire import (
    MISSING,
    NO_EXTRA,
    SHALLOW,
    NotReadable,
    decode_json,
    mask_text,
    scan_json,
    scan_text,
    too_deep,
)

__all__ = ["MessageStream"]

_DONE: Final = "[DONE]"
_NO_EVENTS: Final[list[str]] = []
"""The queue of a stream that waits: thousands may, and each list is one more for the garbage collector."""
_HEAD_BYTES: Final = 4096
"""How much of a body that is no event stream is kept for the error's excerpt."""
_FEW_BYTES: Final = 512
"""What comes with the first event and is no longer is split with it: the time of a tenth of an event."""
_EXCERPT: Final = 2000
_OF_THREADS: Final = frozenset(("threadId", "threadKey", "messageMetadata"))
"""The fields of an event that may say which thread it is."""
_ENDS: Final = frozenset((Finish, AbortEvent, ErrorEvent))
"""The events that announce an end."""
_DELTA_OPENING: Final = r'\s*\{\s*"type"\s*:\s*"text-delta"\s*,\s*"id"\s*:\s*"[^"\\]*"\s*,\s*"delta"\s*:\s*"'


class _ThreadFinder:
    """Finds the thread in an answer: its id, and the key that belongs to that very id.

    Where they may stand, the best place first: ``finish``, the metadata of ``finish``, any other
    event, its metadata, the headers. The id of the best place wins. A key counts when what it came
    with named the same id, or none.
    """

    __slots__ = ("_ids", "_keys", "_secret", "_sent")

    def __init__(
        self, sent: Thread | None, header_id: str | None, header_key: str | None, secret: str | None
    ) -> None:
        self._sent = sent
        self._secret = secret  # what no error may show besides
        self._ids: dict[int, str] = {}
        self._keys: dict[int, tuple[str, str | None]] = {}  # the key, and the id that came with it
        self._note(4, header_id, header_key, None)

    def look(self, content: dict[str, Any]) -> None:
        """Take what an event says of the thread, when it has one of ``_OF_THREADS``."""
        metadata = content.get("messageMetadata")
        place = 0 if content.get("type") == "finish" else 2
        inside = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        top_id, inner_id = content.get("threadId"), inside.get("threadId")
        self._note(place, top_id, content.get("threadKey"), inner_id)
        self._note(place + 1, inner_id, inside.get("threadKey"), top_id)

    def _note(self, place: int, id: object, key: object, other_id: object) -> None:
        named = _text_or_none(id)
        if named is not None:
            self._ids[place] = named
        if isinstance(key, str) and key:
            self._keys[place] = (key, named or _text_or_none(other_id))

    @property
    def thread(self) -> Thread | None:
        """The thread as far as it is known."""
        sent = self._sent
        id = next((self._ids[place] for place in sorted(self._ids)), None) or (sent.id if sent else None)
        if id is None or (sent is not None and sent.id == id and sent.key is not None):
            return sent  # the key comes once: the one that was sent stays
        fitting = (self._keys[place][0] for place in sorted(self._keys) if self._keys[place][1] in (None, id))
        return Thread(id, next(fitting, None))

    def mask(self, text: str) -> str:
        """Return *text* without any key that is known."""
        sent = self._sent.key if self._sent else None
        for key in {key for key, _ in self._keys.values()} | {sent, self._secret}:
            text = mask_text(text, key)
        return text


def _text_or_none(content: object) -> str | None:
    return content if isinstance(content, str) and content else None


class MessageStream:
    """Reads one answer.

    Args:
        message: The assistant's message that the answer continues, or None for a new one.
        thread: The thread that was sent with the question, or None.
        max_event_bytes: Largest event accepted, in bytes.

    Attributes:
        events_seen: How many events were handed out.
        wrote: Whether the last of them published the message anew.
        ended: Whether nothing more will come.
    """

    __slots__ = (
        "_begun",
        "_cause",
        "_decoder",
        "_ends",
        "_eof",
        "_fold",
        "_found",
        "_head",
        "_headers",
        "_last",
        "_later",
        "_max_event_bytes",
        "_opening",
        "_opening_id",
        "_queue",
        "_secret",
        "_texts",
        "_thread",
        "_thread_headers",
        "ended",
        "events_seen",
        "wrote",
    )

    def __init__(
        self,
        *,
        message: Message | None = None,
        thread: Thread | None = None,
        max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES,
    ) -> None:
        """Start before the first byte of the body."""
        self._max_event_bytes = max_event_bytes
        self._decoder: SSEDecoder | None = None  # made for the first piece that is no whole events
        self._begun = False  # whether events came before that
        self._fold = MessageFold(message)
        self._texts = self._fold.open_texts
        self._thread = thread
        self._headers: Mapping[str, str] = NO_EXTRA
        self._thread_headers = ("", "")
        self._secret: str | None = None
        self._found: _ThreadFinder | None = None  # made when it is needed, at the end mostly
        self._queue = _NO_EVENTS  # the next one last; a deque takes 700 bytes more of each stream
        self._opening: str | tuple[()] = ()  # how a delta of the text _opening_id begins; () is no beginning
        self._opening_id = ""
        self._head = b""
        self._later = b""  # what came with the first event
        self._last: str | None = None  # the data of an event that the end of the body cut, perhaps
        self._eof = False
        self._cause: str | None = None
        self._ends: Mapping[str, StreamEvent | None] = NO_EXTRA  # what announced an end, by its type
        self.events_seen = 0
        self.wrote = self.ended = False

    # What goes in -----------------------------------------------------------------------------

    def begin(
        self, headers: Mapping[str, str], thread_headers: tuple[str, str], secret: str | None = None
    ) -> None:
        """Take what is known before the body.

        Args:
            headers: The answer's, asked for in lower case.
            thread_headers: Which of them name the thread's id and its key.
            secret: What no error may show, should the answer repeat it: the API key.
        """
        self._headers, self._thread_headers, self._secret = headers, thread_headers, secret
        self._found = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body; what comes after its end is ignored."""
        decoder = self._decoder
        if self._eof or self.ended or (decoder is not None and decoder.too_large):
            return
        if self._later:  # fed again before all was taken, which a reply never does
            data, self._later = self._later + data, b""
        if not (self._begun or (decoder is not None and decoder.data_seen)) and len(self._head) < _HEAD_BYTES:
            head = self._head
            self._head += data[:_HEAD_BYTES]
            if not head:
                data = self._first_of(data)
        self._split(data)

    def _first_of(self, data: bytes) -> bytes:
        """Return the first event of *data* and leave the others for later: it does not wait for many."""
        end = data.find(b"\n\n") + 2
        if 1 < end < len(data) - _FEW_BYTES:
            self._later = data[end:]
            return data[:end]
        return data

    def _split(self, data: bytes) -> None:
        """Find the events in *data* and put them in line."""
        decoder = self._decoder
        if decoder is None:
            events = whole_events(data, self._max_event_bytes)
            if events is None:
                decoder = self._decoder = SSEDecoder(self._max_event_bytes, begun=self._begun)
                events = decoder.feed(data)
            else:
                self._begun = True
        else:
            events = decoder.feed(data)
        events.reverse()  # they are taken from the end
        if self._queue:
            self._queue[:0] = events
        else:
            self._queue = events

    def _split_later(self) -> None:
        data, self._later = self._later, b""
        if self._decoder is None or not self._decoder.too_large:
            self._split(data)

    def feed_eof(self, cause: str | None = None) -> None:
        """Take the end of the body.

        Args:
            cause: None when it ended as it should; else what cut it, for the error's message.
        """
        if self._eof or self.ended:
            return
        if self._later:
            self._split_later()
        self._eof = True
        self._cause = cause
        if self._decoder is not None and not self._decoder.too_large:
            with suppress(StreamDecodeError):  # the last line is too large: said when it is its turn
                self._last = self._decoder.close()

    # What comes out ---------------------------------------------------------------------------

    def next_event(self) -> StreamEvent | None:
        """Return the next event, or None: feed more, unless ``ended``.

        Raises:
            StreamDecodeError: An event cannot be read, or is too large.
            StreamStateError: An event names a part or a call that is not there.
            AssistantError: The event before was an ``error``.
            StreamInterruptedError: The body ended before the answer did.
            UnexpectedResponseError: The body is no event stream.
        """
        queue = self._queue
        if not queue:
            if not self._later:
                return self._at_rest()
            self._split_later()
            return self.next_event()
        data = queue.pop()
        content: Any = MISSING
        try:
            # Nine of ten events are text deltas: this is theirs, with nothing in it that could be left out.
            if data.startswith(self._opening):
                name = self._opening_id
                delta, end = scan_text(data, len(self._opening))
                if data[end:] == "}":
                    self._texts[name].append(delta)
                    self.events_seen += 1
                    self.wrote = True
                    return make_text_delta(name, delta)
            content, end = scan_json(data, 0)
            if end != len(data):
                content = MISSING
            elif content["type"] == "text-delta" and len(content) == 3:
                name, delta = content["id"], content["delta"]
                if delta.__class__ is str:
                    self._texts[name].append(delta)
                    self.events_seen += 1
                    self.wrote = True
                    self._learn_opening(data, name)
                    return make_text_delta(name, delta)
        except (StopIteration, ValueError, LookupError, TypeError, RecursionError):
            pass  # whatever it is: the careful way says it
        return self._take(data, content)

    def _learn_opening(self, data: str, id: str) -> None:
        """Remember how *data*, a text delta, begins: what begins the same differs in its delta alone."""
        if id != self._opening_id:
            found = re.match(_DELTA_OPENING, data)
            self._opening_id, self._opening = id, found[0] if found else ()

    def _take(self, data: str, content: Any) -> StreamEvent | None:
        """Take an event that is no plain text delta, or that something is wrong with."""
        while data == _DONE:
            self._announce(_DONE, None)
            if not self._queue:
                return self.next_event()
            data, content = self._queue.pop(), MISSING
        try:
            return self._fold_event(self._build(data, content))
        except StreamError as error:
            self._fail(error)

    def _build(self, data: str, content: Any) -> StreamEvent:
        """Decode an event and learn what it says of the thread."""
        problem = ""
        try:
            if content is MISSING or (len(data) > SHALLOW and too_deep(data, content)):
                content = decode_json(data)
        except NotReadable as error:
            problem = str(error)
        if problem:
            raise unreadable(f"the event {problem}", data)
        if isinstance(content, dict):
            wire: dict[str, Any] = content  # pyright: ignore[reportUnknownVariableType] - JSON
            if not _OF_THREADS.isdisjoint(wire):
                self._finder.look(wire)
        return build_event(content, data)

    def _fold_event(self, event: StreamEvent) -> StreamEvent:
        self.wrote = self._fold.apply(event)
        self.events_seen += 1
        if event.__class__ in _ENDS:
            self._announce(event.type, event)
            if isinstance(event, ErrorEvent):
                self._queue.clear()
                self._later = b""
        return event

    def _announce(self, kind: str, event: StreamEvent | None) -> None:
        """Remember an end of its *kind*: a server may send thousands, so the last of each."""
        self._ends = {**self._ends, kind: event}

    def _at_rest(self) -> StreamEvent | None:
        """Do what is left when every whole event was taken."""
        self._queue = _NO_EVENTS
        if self.ended:
            return None
        if self._ends:
            self._fail_as_announced()
        if self._decoder is not None and self._decoder.too_large:
            self._fail(self._foreign_body() or self._decoder.size_error())
        if not self._eof:
            return None
        last, self._last = self._last, None
        if last is not None and self._is_whole(last):
            return self._take(last, MISSING)
        if not self.complete:
            self._fail(self._foreign_body() or self._interrupted())
        self.ended = True
        return None

    def _fail_as_announced(self) -> None:
        """Raise what an ``error`` event said, if there was one."""
        error = self._ends.get("error")
        if isinstance(error, ErrorEvent):
            text = self._finder.mask(error.error_text)
            self._fail(AssistantError(f"the assistant failed: {printable(text)}", error_text=text))

    def _is_whole(self, last: str) -> bool:
        """Return whether the event at the end of the body, which no blank line ended, is all there."""
        if last == _DONE:
            return True
        try:
            return isinstance(decode_json(last), dict)
        except NotReadable:
            return False

    # The verdict ------------------------------------------------------------------------------

    def _fail(self, error: MintlifyError) -> NoReturn:
        """End here: fill in what had arrived, mask what is secret, raise."""
        self.ended = True
        self._queue.clear()
        self._later = b""
        error.args = tuple(self._finder.mask(arg) if isinstance(arg, str) else arg for arg in error.args)
        if isinstance(error, StreamError):
            error.partial = None if self._fold.empty else self._fold.message
            error.thread = self.thread
            error.events_seen = self.events_seen
        if isinstance(error, StreamDecodeError):
            error.index = self.events_seen
        if isinstance(error, StreamDecodeError | UnexpectedResponseError):
            error.excerpt = self._finder.mask(error.excerpt)
        raise error

    def _interrupted(self) -> StreamInterruptedError:
        seen = f"{self.events_seen} event{'' if self.events_seen == 1 else 's'}"
        if self._cause is not None:
            return StreamInterruptedError(f"the answer was cut after {seen}: {self._cause}")
        if not self._head.strip():
            return StreamInterruptedError("the answer is empty")
        return StreamInterruptedError(f"the answer stopped after {seen}, without its end")

    def _foreign_body(self) -> UnexpectedResponseError | None:
        """Return the error for a body that is no event stream, or None when it is one."""
        if self._decoder is None or self._decoder.data_seen or self._decoder.foreign is None:
            return None
        excerpt = self._finder.mask(self._head[:_HEAD_BYTES].decode("utf-8", "replace").lstrip("\ufeff"))[
            :_EXCERPT
        ]
        return UnexpectedResponseError(
            f"the answer is no event stream but {_kind_of(excerpt.lstrip())}: {printable(excerpt)}",
            excerpt=excerpt,
        )

    @property
    def _finder(self) -> _ThreadFinder:
        if self._found is None:
            id_header, key_header = self._thread_headers
            self._found = _ThreadFinder(
                self._thread, self._headers.get(id_header), self._headers.get(key_header), self._secret
            )
        return self._found

    # The views --------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether an end was announced: ``finish``, ``abort``, ``error`` or ``[DONE]``."""
        return bool(self._ends)

    @property
    def finish_seen(self) -> bool:
        """Whether ``finish`` was handed out."""
        return "finish" in self._ends

    @property
    def done_seen(self) -> bool:
        """Whether ``[DONE]`` has come."""
        return _DONE in self._ends

    @property
    def aborted(self) -> bool:
        """Whether ``abort`` was handed out."""
        return "abort" in self._ends

    @property
    def abort_reason(self) -> str | None:
        """The server's reason for an abort, or None."""
        abort = self._ends.get("abort")
        return abort.reason if isinstance(abort, AbortEvent) else None

    @property
    def message(self) -> Message:
        """The message that the events handed out so far make."""
        return self._fold.message

    @property
    def text(self) -> str:
        """The message's text; never half a character."""
        return self._fold.text

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread as far as it is known."""
        return self._finder.thread

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, in the service's word, or None."""
        return self._fold.finish_reason

    @property
    def sources(self) -> list[AnswerSource]:
        """What the answer rests on, in order, each once."""
        return self._fold.sources()


_V4: Final = r'[0-9a-k]:["\[{]'


def _kind_of(body: str) -> str:
    """Say what a body that is no event stream looks like."""
    if re.match(_V4, body):
        return "the AI SDK 4 data stream, which the v1 endpoint sends"
    if body.startswith("<"):
        return "a page"
    if body.startswith(("{", "[")):
        return "a JSON document"
    return "plain text"
