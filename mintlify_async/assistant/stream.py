r"""Reads one answer without I/O: bytes in any pieces become typed events and the message they build.

Feed what arrives, then its end; take events until there is none. Each event is decoded and folded when
it is taken, so that ``message`` and ``text`` always match the events that were handed out.

An answer is complete only if ``finish``, ``abort``, ``error`` or ``[DONE]`` was received: any other end
is an error that carries what had arrived.

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
from typing import Any, Final, NoReturn, TypeAlias, cast

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
from ..events import AbortEvent, ErrorEvent, Finish, StreamEvent
from ..messages import Message
from ..model.json_text import SHALLOW, DecodeProblem, decode_json, mask_text, scan_json, scan_text, too_deep
from ..model.thread import Thread
from ..model.wire_value import EMPTY, MISSING
from .decode import (
    DELTA_MAKERS,
    PLAIN,
    THREAD_FIELDS,
    DeltaMaker,
    build_event,
    parse_json,
    read_delta,
    read_rest,
)
from .message_builder import GrowingText, MessageBuilder
from .sse import DEFAULT_MAX_EVENT_BYTES, SSEDecoder, whole_events

__all__ = ["MessageStream"]

_DONE: Final = "[DONE]"
# One list for all of them: thousands of streams may wait, and each list costs the garbage collector time.
_NO_EVENTS: Final[list[str]] = []
"""The queue of a stream that waits for bytes."""
_HEAD_BYTES: Final = 4096
"""How many bytes of a body are kept for the excerpt, in case it is not an event stream."""
_EXCERPT: Final = 2000
_ENDS: Final = frozenset((Finish, AbortEvent, ErrorEvent))
"""The events that announce an end."""
_DELTA_OPENING: Final = re.compile(
    r'\s*\{\s*"type"\s*:\s*"(?:text|reasoning)-delta"\s*,\s*"id"\s*:\s*"[^"\\]*"\s*,\s*"delta"\s*:\s*"'
)


_Opened: TypeAlias = tuple[tuple[str, str], DeltaMaker]
"""The type of deltas and the id of an open part, and the function that makes its deltas."""
_NOT_OPENED: Final[_Opened] = (("", ""), DELTA_MAKERS["text-delta"])


class _ThreadFinder:
    """Finds the thread that an answer names: its id, and the key of that same id.

    Places in the order of preference: ``finish``, the metadata of ``finish``, any other event, its
    metadata, the headers. The id of the first place wins. A key counts if it came with the same id,
    or with none.
    """

    __slots__ = ("_ids", "_keys", "_secret", "_sent", "thread")

    def __init__(
        self, sent: Thread | None, header_id: str | None, header_key: str | None, secret: str | None
    ) -> None:
        self._sent = sent
        self._secret = secret  # no error may show it
        self._ids: dict[int, str] = {}
        self._keys: dict[int, tuple[str, str | None]] = {}  # the key, and the id beside it
        self._note(4, header_id, header_key, None)

    def look(self, content: dict[str, Any]) -> None:
        """Note what an event with one of ``THREAD_FIELDS`` says about the thread."""
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
        self.thread = self._best()  # as far as it is known

    def _best(self) -> Thread | None:
        sent = self._sent
        id = next((self._ids[place] for place in sorted(self._ids)), None) or (sent.id if sent else None)
        if id is None or (sent is not None and sent.id == id and sent.key is not None):
            return sent  # the service tells the key once: the one that was sent stays valid
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
    """Decodes and folds the stream of one answer.

    Args:
        message: The assistant's message that the answer continues, or None for a new one.
        thread: The thread that was sent with the question, or None.
        max_event_bytes: Largest event accepted, in bytes.
        site: The documentation's address, or None: links to paths in the text become whole.

    Attributes:
        events_seen: How many events were handed out.
        wrote: Whether the last event changed the message as far as readers are shown it.
        complete: Whether an end was announced: ``finish``, ``abort``, ``error`` or ``[DONE]``.
        ended: Whether there are no more events.
    """

    def __init__(
        self,
        *,
        message: Message | None = None,
        thread: Thread | None = None,
        max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES,
        site: str | None = None,
    ) -> None:
        """Begin before the first byte."""
        self._builder = MessageBuilder(message)
        self._thread = thread
        self._max_event_bytes = max_event_bytes
        self._site = site
        self._headers: Mapping[str, str] = EMPTY
        self._thread_headers = ("", "")
        self._secret: str | None = None
        self._found: _ThreadFinder | None = None  # made when it is needed, mostly at the end
        # Made for the first bytes that are not whole events; _begun says whether there were events before it.
        self._decoder: SSEDecoder | None = None
        self._begun = False
        # The data of events, in reverse order; a deque takes 700 bytes more per stream.
        self._queue = _NO_EVENTS
        # How the deltas of the part _opened begin; "" while that is unknown. They differ in what follows.
        self._opening = ""
        self._opened = _NOT_OPENED
        self._head = b""
        self._eof = False
        self._cause: str | None = None
        self._ends: Mapping[str, StreamEvent | None] = EMPTY  # by type: the announced ends
        self.events_seen = 0
        self.wrote = False
        self.complete = False
        self.ended = False

    # Input ------------------------------------------------------------------------------------

    def begin(
        self, headers: Mapping[str, str], thread_headers: tuple[str, str], secret: str | None = None
    ) -> None:
        """Set what is known before the body.

        Args:
            headers: The headers of the response; looked up in lower case.
            thread_headers: The names of the headers with the thread's id and its key.
            secret: The API key, which no error may show if the answer repeats it.
        """
        self._headers, self._thread_headers, self._secret = headers, thread_headers, secret
        self._found = None

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the body; bytes after its end are ignored."""
        decoder = self._decoder
        if self._eof or self.ended or (decoder is not None and decoder.too_large):
            return
        begun = self._begun or (decoder is not None and decoder.data_seen)
        if not begun:
            self._head += data[: _HEAD_BYTES - len(self._head)]  # in case it is not an event stream
        events = whole_events(data, self._max_event_bytes) if decoder is None else None
        if events is not None:
            self._begun = True
        else:
            if decoder is None:
                decoder = self._decoder = SSEDecoder(self._max_event_bytes, begun=self._begun)
            events = decoder.feed(data)
        events.reverse()  # they are taken from the end
        self._queue = events + self._queue if self._queue else events

    def feed_eof(self, cause: str | None = None) -> None:
        """End the body.

        Args:
            cause: What cut it, for the error's message; None if it ended properly.
        """
        if self._eof or self.ended:
            return
        self._eof = True
        self._cause = cause
        if self._decoder is not None and not self._decoder.too_large:
            with suppress(StreamDecodeError):  # a last line that is too large fails later, in its turn
                last = self._decoder.close()
                if last is not None and _is_whole(last):  # no blank line ended it
                    self._queue = [last, *self._queue]

    # Output -----------------------------------------------------------------------------------

    def next_event(self) -> StreamEvent | None:
        """Return the next event, or None: feed more, unless ``ended``.

        Raises:
            StreamDecodeError: An event cannot be decoded, or is too large.
            StreamStateError: An event names a part or a tool call that does not exist.
            AssistantError: The event before was an ``error``.
            StreamInterruptedError: The body ended before the answer did.
            UnexpectedResponseError: The body is not an event stream.
        """
        queue = self._queue
        if not queue:
            return self._at_rest()
        data = queue.pop()
        content: Any = MISSING
        make: DeltaMaker | None
        try:
            # Nine of ten events are deltas. This short cut decodes and folds one in 1.2 µs, with further
            # fields in 2; the way of all events takes 4.
            rest = data.removeprefix(self._opening)
            if rest != data:
                key, make = self._opened
                delta, end = scan_text(rest, 0)
                rest = rest[end:]
                further = PLAIN if rest == "}" else read_rest(rest)
            else:
                content, end = scan_json(data, 0)
                if end != len(data):
                    content = MISSING
                kind: str = content["type"]
                make = DELTA_MAKERS.get(kind)
                id, delta, further = ("", "", PLAIN) if make is None else read_delta(content, data)
                key = (kind, id)
                if make is not None:
                    self._learn_opening(data, (key, make))
            if make is not None:
                part = self._builder.open_parts[key]
                part.pieces.append(delta)
                if further[0] is not None:
                    part.metadata = further[0]
                self.events_seen += 1
                self.wrote = True
                return make(key[1], delta, further)
        except (StopIteration, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # the event is wrong in some way, which _take finds out
        taken = self._take(data, content)
        # What an answer says may repeat a key, and errors show the variables of frames.
        data = kind = id = delta = rest = ""
        content, further, key = None, PLAIN, ("", "")
        if isinstance(taken, StreamError):
            self._fail(taken)
        return self._at_rest() if taken is None else taken

    def _learn_opening(self, data: str, opened: _Opened) -> None:
        """Learn how the deltas of a part begin, when it has the second one in a row."""
        found = _DELTA_OPENING.match(data) if opened == self._opened else None
        self._opened, self._opening = opened, found[0] if found else ""

    def _take(self, data: str, content: Any) -> StreamEvent | StreamError | None:
        """Decode and fold an event that is not a plain text delta; return the error of one that is wrong.

        None means that no event is left, or that the answer has ended.
        """
        while data == _DONE:
            self._announce(_DONE, None)
            if not self._queue:
                return None
            data, content = self._queue.pop(), MISSING
        try:
            return self._fold_event(self._build(data, content))
        except StreamError as error:
            if not self.complete:
                return error.with_traceback(None)  # its frames hold the event
            self._end()  # the answer is whole: what follows its end cannot harm it
            return None

    def _build(self, data: str, content: Any) -> StreamEvent:
        """Decode an event and note what it says about the thread."""
        if content is MISSING or (len(data) > SHALLOW and too_deep(data, content)):
            content = parse_json(data)
        if content.__class__ is dict and not THREAD_FIELDS.isdisjoint(content):
            self._finder.look(content)
        return build_event(content, data)

    def _fold_event(self, event: StreamEvent) -> StreamEvent:
        if isinstance(event, ErrorEvent):
            event = evolve(event, error_text=self._finder.mask(event.error_text))
        self.wrote = self._builder.apply(event)
        self.events_seen += 1
        if event.__class__ in _ENDS:
            self._announce(event.type, event)
            if isinstance(event, ErrorEvent):
                self._queue.clear()
        return event

    def _announce(self, kind: str, event: StreamEvent | None) -> None:
        """Remember the last end of each *kind*: a server may send thousands."""
        self._ends = {**self._ends, kind: event}
        self.complete = True

    def _at_rest(self) -> StreamEvent | None:
        """Decide how to go on when every complete event was taken."""
        self._queue = _NO_EVENTS
        if self.ended:
            return None
        if self._ends:
            self._fail_as_announced()
        if self._decoder is not None and self._decoder.too_large:
            if not self.complete:
                self._fail(self._foreign_body() or self._decoder.size_error())
            self._end()
        if not self._eof:
            return None
        if not self.complete:
            self._fail(self._foreign_body() or self._interrupted())
        self._end()
        return None

    def _end(self) -> None:
        """End without an error."""
        self.ended = True
        self._queue.clear()

    def _fail_as_announced(self) -> None:
        """Raise the error that an ``error`` event announced, unless the answer had ended before it."""
        error = self._ends.get("error")
        if isinstance(error, ErrorEvent) and len(self._ends) == 1:
            said = printable(error.error_text) or "it did not say why"  # masked when the event was folded
            self._fail(AssistantError(f"the assistant failed: {said}", error_text=error.error_text))

    # Failing ----------------------------------------------------------------------------------

    def _fail(self, error: MintlifyError) -> NoReturn:
        """End the stream and raise *error*, with what had arrived and with secrets masked."""
        self.ended = True
        self._queue.clear()
        mask = self._finder.mask
        error.args = tuple(mask(arg) if isinstance(arg, str) else arg for arg in error.args)
        texts = {name: mask(value) for name, value in vars(error).items() if isinstance(value, str)}
        error.__dict__.update(texts)  # such as the excerpt, and the id of a missing part
        if isinstance(error, StreamError):
            error.__dict__.update(self.kept())
        if isinstance(error, StreamDecodeError):
            error.index = self.events_seen
        raise error

    def kept(self) -> dict[str, Any]:
        """Return what has arrived, as the fields of a ``StreamError``."""
        text = self.growing_text()
        return {
            "partial": None if self._builder.empty else self._builder.message,
            "text": text.before + text.close(),
            "thread": self.thread,
            "events_seen": self.events_seen,
        }

    def _interrupted(self) -> StreamInterruptedError:
        seen = f"{self.events_seen} event{'' if self.events_seen == 1 else 's'}"
        if self._cause is not None:
            return StreamInterruptedError(f"the answer was cut after {seen}: {self._cause}")
        if not self._head.strip():
            return StreamInterruptedError("the answer is empty")
        return StreamInterruptedError(f"the answer stopped after {seen}, before its end")

    def _foreign_body(self) -> UnexpectedResponseError | None:
        """Return the error for a body that is not an event stream, or None if it is one."""
        if self._decoder is None or self._decoder.data_seen or self._decoder.foreign is None:
            return None
        head = self._head[:_HEAD_BYTES].decode("utf-8", "replace").lstrip("\ufeff")
        excerpt = self._finder.mask(head)[:_EXCERPT]
        return UnexpectedResponseError(
            f"the answer is not an event stream but {_kind_of(excerpt.lstrip())}: {printable(excerpt)}",
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

    # State ------------------------------------------------------------------------------------

    @property
    def at_hand(self) -> bool:
        """Whether the next step gives an event, or an error, without further bytes."""
        queue = self._queue
        return queue[-1] != _DONE if queue else False

    @property
    def finish_seen(self) -> bool:
        """Whether ``finish`` was handed out."""
        return "finish" in self._ends

    @property
    def done_seen(self) -> bool:
        """Whether ``[DONE]`` has arrived."""
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
        """The message that the events handed out so far build."""
        return self._builder.message

    @property
    def text(self) -> str:
        """The text of the events handed out so far, as people read it."""
        return self.growing_text().before

    def growing_text(self) -> GrowingText:
        """Return the text of the events handed out so far, to be told of the next ones."""
        return GrowingText(self._builder, self._site)

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread as far as it is known."""
        return self._finder.thread

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, in the service's words, or None."""
        return self._builder.finish_reason


def _is_whole(last: str) -> bool:
    """Return whether the last event, which no blank line ended, is complete."""
    if last == _DONE:
        return True
    try:
        return isinstance(decode_json(last), dict)
    except DecodeProblem:
        return False


_V4: Final = r'[0-9a-k]:["\[{]'


def _kind_of(body: str) -> str:
    """Say what a body that is not an event stream looks like."""
    if re.match(_V4, body):
        return (
            "the AI SDK 4 data stream, which the v1 assistant endpoint sends; "
            "ask the v2 endpoint (check base_url= and Assumptions(ask_path=…))"
        )
    if body.startswith("<"):
        return "a page"
    if body.startswith(("{", "[")):
        return "a JSON document"
    return "plain text"
