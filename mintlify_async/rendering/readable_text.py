"""The text of an answer for display, complete or while it grows. No I/O.

A blank line separates text parts, the ``suggestions`` block is left out, and characters are complete. With
the site URL, links to its pages become full URLs. All views of an answer's text use :class:`ReadableText`, so
they show the same text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from typing import Final

from attrs import evolve

from ..messages import Message, TextPart, clean_text
from .blocks import HEAD_CHARACTERS, QUOTE, START, OpenBlocks, is_settled, read_line
from .site_links import SiteLinks

_MAY_OPEN: Final = re.compile(r"( {0,3})(?:`{0,2}|~{0,2}|(?:`{3,}|~{3,})[ \t]*([a-z]*)[ \t\r]*)\Z")
"""The start of a line that may open a ``suggestions`` block."""
_SPACE: Final = " \t\r\n"


def text_of(message: Message, *, site: str | None = None) -> str:
    """Return the text of an assistant's message for display.

    A blank line separates its text parts. The ``suggestions`` block is left out; see :func:`suggestions_of`.
    ``Message.text`` joins the parts without changes.

    Args:
        message: The message.
        site: The site URL. With it, links to paths outside of code become full URLs.
    """
    return text_after("", message, site)


def text_after(earlier: str, message: Message, site: str | None) -> str:
    """Return *earlier*, the text of replaced messages, and after it the text of *message*.

    The text of *message* is the result of :func:`text_of`.
    """
    text = ReadableText(site, has_shown=bool(earlier))
    return "".join([earlier, *(text.feed(part) + text.end_part() for part in texts_of(message))])


def shorten(message: Message, characters: int, site: str | None = None) -> Message:
    """Return *message*, cut after *characters* characters of the text that :func:`text_of` returns.

    Args:
        message: An assistant's message.
        characters: The number of characters of its text to keep.
        site: The site URL, as for :func:`text_of`.
    """
    for at, part in enumerate(message.parts):
        if isinstance(part, TextPart):
            ends = range(len(part.text) + 1)
            place = bisect_left(ends, characters, key=partial(_length, message, at, part, site))
            if place in ends:
                return _cut(message, at, part, place)
    return message


def _length(message: Message, at: int, part: TextPart, site: str | None, end: int) -> int:
    return len(text_of(_cut(message, at, part, end), site=site))


def _cut(message: Message, at: int, part: TextPart, end: int) -> Message:
    """Return *message* up to the position *end* in its *part*, which has the index *at*."""
    return evolve(message, parts=(*message.parts[:at], evolve(part, text=part.text[:end])))


def texts_of(message: Message) -> Iterator[str]:
    """Return the texts of the text parts of *message*."""
    return (part.text for part in message.parts if isinstance(part, TextPart))


def is_hidden(blocks: OpenBlocks) -> bool:
    """Return whether a ``suggestions`` block is open, outside of quotes and list items."""
    return blocks.fence is not None and not blocks.containers and blocks.fence.info.strip() == "suggestions"


class ReadableText:
    """Makes the text for display from the text parts of an answer.

    Feed the pieces of a part, then end it. The joined results do not depend on how the text is split. The
    start of a line is held back while it may open a ``suggestions`` block. Half a surrogate pair is held back
    until its other half arrives, and line endings until text follows. With *site*, the start of a line is
    also held back until it is certain whether the line is code, and a link until it is complete.

    Args:
        site: The site URL.
        has_shown: Whether other text was shown before the first piece.

    Attributes:
        has_shown: Whether text was returned or shown earlier. Then a blank line separates it from the text
            that replaces a discarded part.
    """

    def __init__(self, site: str | None = None, *, has_shown: bool = False) -> None:
        self._links = None if site is None else SiteLinks(site)
        self.has_shown = has_shown
        self._has_text = has_shown  # like has_shown, but also true while _links holds the text back
        self._begin_part()

    def _begin_part(self) -> None:
        self._half = ""
        self._line = ""  # the start of the current line
        self._line_start = ""  # the hidden start of this line, which may open a suggestions block
        self._is_new_line = True  # whether _links still needs the kind of this line
        self._in_line = False  # whether text without a line ending is returned unchanged
        self._blocks = START  # the blocks that are open before the line
        self._space: list[str] = []  # the line endings held back, and the blanks after them
        self._apart = True  # whether a blank line belongs between the text before and the next text

    def feed(self, piece: str) -> str:
        """Return the text to show: from *piece*, and from the text held back before."""
        if self._half or not piece.isascii():
            text = self._half + piece
            self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
            piece = clean_text(text, streaming=True)
        if self._in_line and "\n" not in piece and "\r" not in piece:  # true for most deltas
            return self._linked(piece)
        *lines, last_line = piece.split("\n")
        texts = [self._show(self._rest_of_line(line) + self._end_line()) for line in lines]
        texts.append(self._show(self._rest_of_line(last_line)))
        is_holding = is_hidden(self._blocks) or self._apart or bool(self._space)
        self._in_line = not is_holding and is_settled(self._line)
        shown = "".join(texts)
        self.has_shown = self.has_shown or shown != ""
        return shown

    def end_part(self) -> str:
        """Return the text that is still held back. The next piece starts another part."""
        text = self._rest_of_line("\ufffd") if self._half else ""
        if not self._take_line():
            text += self._line_start
        output = self._show(text)
        if self._links is not None:
            output += self._links.close()
        self.has_shown = self.has_shown or output != ""
        self._begin_part()
        return output

    def drop_part(self) -> None:
        """Discard the text that is held back, because its part was discarded. Another part follows."""
        if self._links is not None:
            self._links.close()
        self._has_text = self.has_shown
        self._begin_part()

    def _rest_of_line(self, piece: str) -> str:
        """Return the text to show from *piece*, a piece of one line without a line ending."""
        room = HEAD_CHARACTERS - len(self._line)
        self._line += piece[:room]
        if is_hidden(self._blocks):
            return ""
        if room:
            if self._may_open() or (self._links is not None and not is_settled(self._line)):
                self._line_start += piece
                return ""
            if self._links is not None and self._is_new_line:
                self._note_kind()
        text, self._line_start = self._line_start + piece, ""
        return text

    def _may_open(self) -> bool:
        """Return whether this line may open a ``suggestions`` block, outside of quotes, items and blocks."""
        match = _MAY_OPEN.match(self._line)
        if match is None or not "suggestions".startswith(match[2] or ""):
            return False
        containers, fence, *_ = self._blocks
        return (containers[0] == QUOTE or len(match[1]) < containers[0]) if containers else fence is None

    def _note_kind(self) -> OpenBlocks:
        """Pass the kind of this line to the SiteLinks. Return the blocks that are open after this line."""
        line = read_line(self._line, self._blocks)
        if self._links is not None and self._is_new_line:
            self._links.begin_line(line)
            self._is_new_line = False
        return line.after

    def _take_line(self) -> bool:
        """End the line. Return whether it belongs to a ``suggestions`` block."""
        before, self._blocks = self._blocks, self._note_kind()
        self._is_new_line = True
        return is_hidden(before) or is_hidden(self._blocks)

    def _end_line(self) -> str:
        """Return the rest of a complete line, with its line ending."""
        text, hidden = self._line_start, self._take_line()
        self._line = self._line_start = ""
        if not hidden:
            return f"{text}\n"
        self._space.clear()
        self._apart = True
        return ""

    def _show(self, text: str) -> str:
        """Return the line endings held back, then *text* without the line endings at its end."""
        if not text:
            return ""
        body = text.rstrip(_SPACE)
        if not body and (self._space or self._apart):
            self._space.append(text)
            return ""
        if self._space:
            text = "".join([*self._space, text])
            body = text.rstrip(_SPACE)
            self._space.clear()
        gap = ""
        if self._apart:
            blank = text.rfind("\n", 0, len(text) - len(text.lstrip(_SPACE))) + 1
            gap = "\n\n" if self._has_text else ""
            text, body = text[blank:], body[blank:]
            self._has_text, self._apart = True, False
        end = text[len(body) :]
        blanks = len(end) - len(end.lstrip(" \t"))
        if blanks < len(end):
            self._space.append(end[blanks:])
        return self._linked(gap + body + end[:blanks])

    def _linked(self, text: str) -> str:
        if self._links is None:
            return text
        text = self._links.feed(text)
        self.has_shown = self.has_shown or text != ""
        return text
