"""The text of an answer as people read it, whole or while it grows. No I/O.

Text parts stand apart by a blank line, the ``suggestions`` block is left out, and characters are whole.
With the documentation's address, links to its pages are whole, too.
Every view of an answer's text is made by :class:`ReadableText`, so that no two of them differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..messages import Message, TextPart, clean_text
from .sources import Suggestion, suggestions_in

_FENCE: Final = r" {0,3}(`{3,}|~{3,})(.*)"
_LATER_FENCE: Final = re.compile(r"\n {0,3}(?:```|~~~)[^\n]*")  # of a line that is not the first
_MAY_BE_FENCE: Final = re.compile(r"( {0,3}(?:`{0,2}\Z|~{0,2}\Z|~~~|```(?=`*([^`]?)[^`]*\Z)))")
# Matches the beginning of a line that may still become a fence. Its groups are a few characters that
# replace the whole beginning: with the rest of the line they are a fence exactly when the line is. So the
# time per piece does not grow with the line.
_SPACE: Final = " \t\r\n"
_LINKS: Final = re.compile(r"`+|\n|\]\((?=/[^/\s])")
_MAY_BE_LINK: Final = re.compile(r"(?:`+|\](?:\(/?)?)\Z")


def text_of(message: Message, *, site: str | None = None) -> str:
    """Return the text of an assistant's message as people read it.

    Its text parts stand apart by a blank line. The ``suggestions`` block is left out; see
    :func:`suggestions_of`. ``Message.text`` has the parts joined as they are.

    Args:
        message: The message.
        site: The documentation's address; links to paths, outside of code, become whole addresses.
    """
    text = ReadableText(site)
    return "".join([text.feed(part) + text.end_part() for part in _texts(message)])


def suggestions_of(message: Message, *, site: str | None = None) -> list[Suggestion]:
    """Return the pages that an assistant's message suggests, each once.

    Args:
        message: The message.
        site: The documentation's address; paths become whole addresses.
    """
    pages: dict[str, Suggestion] = {}
    for part in _texts(message):
        for found in suggestions_in(_hidden_lines(part), site):
            pages.setdefault(found.path, found)
    return list(pages.values())


def split_suggestions(text: str) -> tuple[str, list[Suggestion]]:
    r"""Split the ``suggestions`` block off a text.

    The assistant may add a fenced block whose lines are ``(Title)[/path]``: reversed links, to be
    shown as buttons. Blocks inside other fenced blocks are left alone. A block whose end has not
    arrived yet is split off, too. So are blank lines at the beginning, and line ends at the end.

    >>> split_suggestions("See above.\n\n```suggestions\n(Quickstart)[/quickstart]\n```")
    ('See above.', [Suggestion(title='Quickstart', path='/quickstart')])
    """
    readable = ReadableText()
    return readable.feed(text) + readable.end_part(), list(suggestions_in(_hidden_lines(text)))


def _texts(message: Message) -> Iterator[str]:
    return (part.text for part in message.parts if isinstance(part, TextPart))


def _hidden_lines(text: str) -> Iterator[str]:
    """Yield the lines of *text* that belong to a ``suggestions`` block."""
    blocks = _Blocks()
    return (line for line in re.findall(r"[^\n]*\n|[^\n]+", text) if blocks.hides(line))


class _Blocks:
    """Follows the code blocks of a text, line by line, to tell a ``suggestions`` block from the rest.

    Attributes:
        fence: The mark that opened the present block; empty outside of blocks.
        inside: Whether that is a ``suggestions`` block.
    """

    __slots__ = ("fence", "inside")

    def __init__(self) -> None:
        self.fence = ""
        self.inside = False

    def hides(self, line: str) -> bool:
        """Take the next whole line; return whether it belongs to a ``suggestions`` block."""
        was_inside = self.inside
        mark, word = _fence_of(line)
        if self.fence:
            if mark.startswith(self.fence) and not word:
                self.fence, self.inside = "", False
        elif mark and not (mark[0] == "`" and "`" in word):
            self.fence, self.inside = mark, word == "suggestions"
        return was_inside or self.inside


def _fence_of(line: str) -> tuple[str, str]:
    """Return the fence that *line* is, and the word after it; empty strings when it is no fence."""
    found = re.match(_FENCE, line)
    # Not part of the expression: looking for the end after ``.*`` takes quadratic time.
    return (found[1], found[2].strip(" \t\r")) if found else ("", "")


class _Links:
    """Completes the links to paths of a text, outside of code, in pieces."""

    __slots__ = ("_code", "_held", "_site")

    def __init__(self, site: str) -> None:
        self._site = site.rstrip("/")
        self._held = ""  # the end of the text, which may belong to a link or to a mark of code
        self._code = ""  # the mark that opened the code in this line

    def feed(self, text: str, *, in_block: bool) -> str:
        """Return what is certain of *text*; *in_block* says that it belongs to a code block."""
        text = self._held + text
        held = _MAY_BE_LINK.search(text)
        end = held.start() if held else len(text)
        self._held = text[end:]
        return text[:end] if in_block else _LINKS.sub(self._complete, text[:end])

    def close(self) -> str:
        """Return what was held back; the next piece begins another part."""
        held, self._held, self._code = self._held, "", ""
        return held

    def _complete(self, found: re.Match[str]) -> str:
        mark = found[0]
        if mark == "\n":
            self._code = ""
        elif mark == "](":
            return mark if self._code else mark + self._site
        elif not self._code or mark == self._code:
            self._code = "" if self._code else mark
        return mark


class ReadableText:
    """Turns the text parts of an answer into what people read.

    Feed the pieces of a part, then end it. What is returned, joined, does not depend on how the parts
    were cut. The beginning of a line is held back only while it may still open a block, half a surrogate
    pair until its other half arrives, and line ends until text follows them; with *site*, what may begin
    a link, too.
    """

    def __init__(self, site: str | None = None) -> None:
        self._links = None if site is None else _Links(site)
        self._begun = False  # whether there is text before
        self._begin_part()

    def _begin_part(self) -> None:
        self._half = ""
        self._line: list[str] = []  # the pieces held back; none of a line that cannot be a fence
        self._beginning: str | None = ""  # represents them; None when the line cannot be a fence
        self._blocks = _Blocks()
        self._space: list[str] = []  # the line ends held back, and the blanks after them
        self._apart = True  # whether a blank line belongs between the text before and what follows
        self._in_line = False  # whether text without a line end is shown as it is

    def feed(self, piece: str) -> str:
        """Return the text to show, of *piece* and of what was held back."""
        if self._half or not piece.isascii():
            piece = self._whole_characters(piece)
        if self._in_line and "\n" not in piece and "\r" not in piece:
            return self._linked(piece)  # most deltas
        shown = self._lines(piece)
        self._in_line = self._beginning is None and not (self._blocks.inside or self._space or self._apart)
        return shown

    def end_part(self) -> str:
        """Return the text to show of what was still held back. The next piece begins another part."""
        half = self._piece("\ufffd") if self._half else ""
        shown = self._show(half) + self._show(self._end_line(""))
        if self._links is not None:
            shown += self._links.close()
        self._begin_part()
        return shown

    def drop_part(self) -> None:
        """Forget what was held back of a part that is void. The next piece begins another part."""
        if self._links is not None:
            self._links.close()
        self._begin_part()

    def _linked(self, text: str) -> str:
        return text if self._links is None else self._links.feed(text, in_block=bool(self._blocks.fence))

    def _whole_characters(self, piece: str) -> str:
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return clean_text(text, streaming=True)

    def _plain(self, text: str) -> str:
        """Return what to show of *text*, which has no fence, when nothing is held back of its first line."""
        end = text.rfind("\n") + 1
        if end:
            self._beginning = ""
        last = text[end:]
        if self._beginning is None or not last:
            return text
        if last.strip(" ") or len(last) > 3:
            self._beginning = None
            return text
        self._beginning = last
        self._line.append(last)
        return text if self._blocks.fence else text[:end]

    def _lines(self, text: str) -> str:
        """Return what to show of *text*: the rest of a line, whole lines, the beginning of a line."""
        if not (self._line or self._blocks.inside or "`" in text or "~" in text):
            return self._show(self._plain(text))  # a third of the time, for most line ends
        at = text.find("\n") + 1
        if not at:
            return self._show(self._piece(text))
        shown = [self._show(self._piece(text[:at]))]
        end = text.rfind("\n") + 1
        for fence in _LATER_FENCE.finditer(text, at - 1, end):
            if not self._blocks.inside:
                shown.append(self._show(text[at : fence.start() + 1]))
            at = fence.end() + 1
            shown.append(self._show(self._whole_line(text[fence.start() + 1 : at])))
        if not self._blocks.inside:
            shown.append(self._show(text[at:end]))
        shown.append(self._show(self._piece(text[end:])))
        return "".join(shown)

    def _piece(self, piece: str) -> str:
        """Return what to show of *piece*, which is part of one line."""
        if not piece:
            return ""
        self._line.append(piece)
        if piece.endswith("\n"):
            return self._end_line(piece)
        found = None if self._beginning is None else _MAY_BE_FENCE.match(self._beginning + piece)
        self._beginning = found[1] + (found[2] or "") if found else None
        held = self._take() if found is None else ""
        return "" if self._blocks.inside else piece if self._blocks.fence else held

    def _end_line(self, piece: str) -> str:
        """Return what to show at the end of a line, whose last piece is *piece*."""
        line, may_be_fence, self._beginning = self._take(), self._beginning is not None, ""
        shown = piece if self._blocks.fence else line  # inside another block nothing was held back
        return self._whole_line(line if may_be_fence else "", shown)

    def _take(self) -> str:
        line = "".join(self._line)
        self._line.clear()
        return line

    def _whole_line(self, line: str, shown: str | None = None) -> str:
        """Return what to show of *line*; *shown* is what is left of it to show."""
        if self._blocks.hides(line):
            self._space.clear()
            self._apart = True
            return ""
        return line if shown is None else shown

    def _show(self, text: str) -> str:
        """Return *text* without the line ends at its end, after those that were held back."""
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
        before = ""
        if self._apart:
            blank = text.rfind("\n", 0, len(text) - len(text.lstrip(_SPACE))) + 1
            before = "\n\n" if self._begun else ""
            text, body = text[blank:], body[blank:]
            self._begun, self._apart = True, False
        rest = text[len(body) :]
        blanks = len(rest) - len(rest.lstrip(" \t"))
        if blanks < len(rest):
            self._space.append(rest[blanks:])
        return self._linked(before + body + rest[:blanks])
