r"""Splits a stream of bytes into server-sent events and returns the data of each.

A line ends with LF, CRLF or CR and with nothing else; one byte order mark at the start is
dropped; invalid UTF-8 becomes U+FFFD. Event names, ids, retries and comments mean nothing in
this protocol and are skipped. The result does not depend on how the bytes are split.

>>> decoder = SSEDecoder()
>>> decoder.feed(b'data: {"a":'), decoder.feed(b'1}\n\nda'), decoder.feed(b'ta: 2\n\n')
([], ['{"a":1}'], ['2'])
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Final

from attrs import Factory, define, field

from ..errors import StreamDecodeError

# A tool's result is 50 to 100 KB on one line. A line that never ends must not fill the memory.
DEFAULT_MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Largest event accepted, in bytes."""

_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = ("data", "event", "id", "retry")  # assumption: framing
_SKIPPED: Final = re.compile(r"\n(?:event:|id:|retry:|:)[^\n]*")
"""A line end, and behind it a line that means nothing."""
_EXCERPT: Final = 2000
"""Characters of a foreign line that are kept for an error's excerpt."""


@define(eq=False, repr=False)
class SSEDecoder:
    """Finds the events in a stream of bytes.

    Feed what arrives, then :meth:`close`. The cost is linear in the bytes for every
    shape and split; memory is bounded by ``max_event_bytes`` and one read.

    Args:
        max_event_bytes: Largest size of a line, and of an event's lines together, in bytes.
        begun: Whether :func:`whole_events` found events before.

    Attributes:
        data_seen: Whether a ``data`` line was seen.
        foreign: The first line that is not part of an event stream, cut at 2,000 characters, or None.
        too_large: Whether the limit was exceeded; nothing is read after that.
    """

    max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES
    data_seen: bool = field(default=False, kw_only=True, alias="begun")
    foreign: str | None = field(default=None, init=False)
    too_large: bool = field(default=False, init=False)
    _started: bool = field(default=Factory(attrgetter("data_seen"), takes_self=True), init=False)
    _tail: bytearray = field(factory=bytearray, init=False)  # the line in progress
    _data: list[str] | None = field(default=None, init=False)  # the data lines of the event in progress
    _data_bytes: int = field(default=0, init=False)
    _after_cr: bool = field(default=False, init=False)  # a LF that follows belongs to the CR before it

    def feed(self, data: bytes) -> list[str]:
        """Add the next bytes and return the data of each event that they complete.

        Raises:
            StreamDecodeError: An earlier call exceeded ``max_event_bytes``. The call that
                exceeds it still returns the events before, and sets ``too_large``.
        """
        if self.too_large:
            raise self.size_error()
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            if data:  # more than the rest of a CR LF
                self._keep(data)
            return []
        block = data[:end]
        if self._tail:
            block = bytes(self._tail) + block
            self._tail = bytearray()
        events = self._block(block)
        if end == len(data):
            self._after_cr = data[-1] == 13
        elif not self.too_large:
            self._keep(data[end:])
        return events

    def close(self) -> str | None:
        """End the stream; return the data of an event that was not ended by a blank line, or None.

        Raises:
            StreamDecodeError: The stream exceeded ``max_event_bytes``.
        """
        if self.too_large:
            raise self.size_error()
        line = bytes(self._tail)
        self._tail = bytearray()
        if not self._started and line.startswith(_BOM):
            line = line[3:]
        if line and not (_BOM.startswith(line) and not self._started):
            self._last_line(line.decode("utf-8", "replace"))
            if self.too_large:
                raise self.size_error()
        pending, self._data = self._data, None
        return None if pending is None else "\n".join(pending)

    def size_error(self) -> StreamDecodeError:
        """Return the error for an event that is too large."""
        return StreamDecodeError(f"an event is larger than max_event_bytes ({self.max_event_bytes} bytes)")

    def _keep(self, piece: bytes) -> None:
        """Keep a piece of a line that is not complete."""
        self._tail += piece
        bom = 0 if self._started else len(_BOM)  # it may be among the bytes, and does not count
        if len(self._tail) + self._data_bytes > self.max_event_bytes + bom:
            self._give_up(self._tail[:_EXCERPT].decode("utf-8", "replace"))

    def _give_up(self, line: str) -> None:
        self.too_large = True
        self._see(line)
        self._tail = bytearray()
        self._data = None

    def _block(self, block: bytes) -> list[str]:
        """Return the events in *block*, which consists of whole lines."""
        if not self._started:
            self._started = True
            block = block.removeprefix(_BOM)
        text = block.decode("utf-8", "replace")
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self._data is None and 3 * len(block) <= self.max_event_bytes:
            # Three times, because an invalid byte becomes a character of three bytes, which count.
            whole, blank, rest = text.rpartition("\n\n")
            events = _usual(whole + blank)
            if events is not None:
                self.data_seen = True
                return events + self._lines(rest)
        return self._lines(text)

    def _lines(self, text: str) -> list[str]:
        """Return the events in *text*, line by line."""
        events: list[str] = []
        lines = text.split("\n")
        lines.pop()  # what follows the last line end: nothing
        for line in lines:
            if line:
                self._line(line)
                if self.too_large:
                    break
            elif self._data is not None:
                events.append("\n".join(self._data))
                self._data = None
                self._data_bytes = 0
        return events

    def _line(self, line: str) -> None:
        size = len(line) if line.isascii() else len(line.encode())
        if size + self._data_bytes > self.max_event_bytes:
            self._give_up(line[:_EXCERPT])
        elif line.startswith("data:"):
            self._add(line[6:] if line.startswith(" ", 5) else line[5:], size)
        elif line == "data":
            self._add("", size)
        else:
            self._see(line)

    def _add(self, content: str, size: int) -> None:
        """Add a data line to the event in progress; its line end counts, so that empty lines count, too."""
        self.data_seen = True
        self._data_bytes += size + 1
        if self._data is None:
            self._data = [content]
        else:
            self._data.append(content)

    def _see(self, line: str) -> None:
        """Remember the first line that is not part of an event stream."""
        if self.foreign is None and line[0] != ":" and line.partition(":")[0] not in _FIELDS and line.strip():
            self.foreign = line[:_EXCERPT]

    def _last_line(self, line: str) -> None:
        """Handle the last line, which has no line end; the name of its field may be cut off, too."""
        if ":" in line or not any(field.startswith(line) for field in _FIELDS):
            self._line(line)


def whole_events(data: bytes, max_event_bytes: int) -> list[str] | None:
    """Return the events in *data* if it consists of whole events of one ``data: `` line each, else None.

    *data* must begin at the beginning of a line. Live streams mostly send such pieces; this is five
    times faster than reading them line by line.
    """
    if len(data) > max_event_bytes:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # Looked for in the text: in bytes, it would take half as long as all the rest of this function.
    return None if "\r" in text else _usual(text)


def _usual(text: str) -> list[str] | None:
    """Return the events in *text* if it consists of whole events of one ``data: `` line each, else None.

    Lines that mean nothing, such as ``event: message``, may stand beside it.
    """
    body = text.removeprefix("data: ").removesuffix("\n\n")
    if len(text) - len(body) == 8:  # it had both
        if "\n" not in body:
            return [body]
        events = body.split("\n\ndata: ")
        if text.count("\n") == 2 * len(events):  # each has two line ends, and no more
            return events
    if not text.endswith("\n\n"):
        return None
    bare = _SKIPPED.sub("", "\n" + text)[1:]
    return _usual(bare) if len(bare) < len(text) else None
