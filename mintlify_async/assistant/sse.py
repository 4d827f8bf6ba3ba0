r"""Splits a stream of bytes into server-sent events and returns the data of each.

Only LF, CRLF and CR end a line. One byte order mark at the start is dropped, and invalid UTF-8 becomes
U+FFFD. Event names, ids, retries and comments have no meaning in this protocol and are skipped. The result
does not depend on how the bytes are split. ``event_stream`` handles ``[DONE]``. The rules are in
https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.

>>> decoder = SSEDecoder()
>>> decoder.feed(b'data: {"a":'), decoder.feed(b'1}\n\nda'), decoder.feed(b'ta: 2\n\n')
([], ['{"a":1}'], ['2'])
"""

from __future__ import annotations

from codecs import BOM_UTF8, utf_8_decode
from io import StringIO
from typing import Final

from ..protocol.byte_limits import MAX_EVENT_BYTES

_FIELDS: Final = ("data", "event", "id", "retry")  # assumption: framing


class SSEDecoder:
    """Finds the events in a stream of bytes.

    Call :meth:`feed` with the bytes as they arrive, then :meth:`close`. The cost is linear in the bytes,
    however they are split. Memory is limited to :data:`MAX_EVENT_BYTES` and one read.

    Attributes:
        data_seen: Whether there was a ``data`` line.
        foreign_seen: Whether there was a line that is not part of an event stream.
        too_large: Whether a line or an event is too large. The decoder reads nothing after it.
    """

    def __init__(self) -> None:
        self.data_seen = False
        self.foreign_seen = False
        self.too_large = False
        self._started = False  # whether a character was decoded
        self._rest = b""  # the first bytes of a character
        self._line = StringIO()  # the line in progress
        self._line_bytes = 0
        self._data: list[str] = []  # the data lines of the event in progress
        self._data_bytes = 0  # counted with line endings, so an empty line also has a length
        self._after_cr = False  # a following LF belongs to the CR

    def feed(self, data: bytes) -> list[str]:
        """Add the next bytes and return the data of each event that they complete."""
        if self._rest:
            data = self._rest + data
        text, end_of_used = utf_8_decode(data, "replace")
        self._rest = data[end_of_used:]
        if not self._started and text:
            self._started = True
            text = text.removeprefix("\ufeff")
        return self._feed(text) if text else []

    def close(self) -> str | None:
        """End the stream. Return the data of a last event without a blank line after it, or None."""
        if self._rest and (self._started or not BOM_UTF8.startswith(self._rest)):
            self._feed(self._rest.decode("utf-8", "replace"))
        line = self._line.getvalue()
        # The field name of the last line may also be incomplete.
        if ":" in line or not any(name.startswith(line) for name in _FIELDS):
            self._feed("\n")
        return "\n".join(self._data) if self._data and not self.too_large else None

    def _feed(self, text: str) -> list[str]:
        if self._after_cr:
            text = text.removeprefix("\n")
            self._after_cr = False
        if "\r" in text:
            self._after_cr = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self.too_large or len(text) > MAX_EVENT_BYTES // 4:  # a character has at most 4 bytes
            return self._add_lines(text)
        events: list[str] = []
        if self._line_bytes or self._data:  # the rest of an event
            first, end, text = text.partition("\n\n")
            events += self._add_lines(first + end)
            if self.too_large:
                return events
        line, _, rest = text.partition("\n")
        if rest == "\n" and line.startswith("data: "):  # nearly all live reads
            self.data_seen = True
            return [*events, line[6:]]
        whole, end, rest = text.rpartition("\n\n")
        if whole.startswith("data: "):
            each = whole[6:].split("\n\ndata: ")
            if whole.count("\n") == 2 * len(each) - 2:  # nearly all events are one line
                self.data_seen = True
                events += each
            else:
                events += self._add_lines(whole + end)
        elif end:
            events += self._add_lines(whole + end)
        return events + self._add_lines(rest) if rest else events

    def _add_lines(self, text: str) -> list[str]:
        events: list[str] = []
        if self.too_large:
            return events
        *lines, incomplete_line = text.split("\n")
        if lines and self._line_bytes:
            lines[0] = self._line.getvalue() + lines[0]
            self._line, self._line_bytes = StringIO(), 0
        for line in lines:
            if line:
                self._add_line(line)
            elif self._data:
                events.append("\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
            if self.too_large:
                return events
        if incomplete_line:
            self._line.write(incomplete_line)
            self._line_bytes += _size(incomplete_line)
            if self._data_bytes + self._line_bytes > MAX_EVENT_BYTES:
                self._give_up(self._line.getvalue())
        return events

    def _add_line(self, line: str) -> None:
        size = self._data_bytes + _size(line)
        if size > MAX_EVENT_BYTES:
            self._give_up(line)
        elif line.startswith("data:") or line == "data":
            self.data_seen = True
            self._data.append(line[6:] if line.startswith(" ", 5) else line[5:])
            self._data_bytes = size + 1
        else:
            self._note_foreign(line)

    def _note_foreign(self, line: str) -> None:
        name = line.partition(":")[0]
        if name and name not in _FIELDS and line.strip():
            self.foreign_seen = True

    def _give_up(self, line: str) -> None:
        """Stop reading, because *line* makes its event too large."""
        self.too_large = True
        self._note_foreign(line)
        self._line = StringIO()
        self._data.clear()


def _size(text: str) -> int:
    """Return the number of bytes of *text* in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
