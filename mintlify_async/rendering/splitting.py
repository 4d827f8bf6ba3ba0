"""MarkdownSplitter: splits a growing Markdown text into chat messages of limited length. No I/O.

Chat services accept messages of some thousand characters. A long answer is split between
paragraphs, lines or words; a code block that has to be split is closed in one message and opened
again in the next. What was shown in a message is never taken back.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from itertools import islice
from typing import Final, NamedTuple

from attrs import frozen

from ..errors import ConfigurationError
from .graphemes import is_boundary

MIN_LIMIT: Final = 200
"""Smallest limit of a message: below it, closing and opening a code block would leave no room for text."""

HELD_CHARACTERS: Final = 24
"""Longest word that is held back until it is complete; of a longer one, only the last character is."""

FENCE_CHARACTERS: Final = 60
"""How much of a line is read to see whether it opens or closes a code block."""

MARK_CHARACTERS: Final = 30
"""Longest indentation and mark of a code block: closing it with longer ones would leave no room for text."""

SKIPPED_CHARACTERS: Final = 100
"""Least that is read at once far from the end of a message; the end of the text is always read by words."""

INFO_CHARACTERS: Final = 20
"""Longest language name of a code block that is repeated where the block is opened again."""


@frozen(kw_only=True)
class Edit:
    """One change of one chat message: a new message the first time, an edit afterwards.

    Every edit changes what is shown. The last one of each message is ``final``.

    Args:
        index: The message's number, from 0: an answer that is longer than the limit continues in the next.
        text: The message's whole text now: never empty, no longer than the limit, no code block left open.
        delta: What to append to the message, for services that can append: the deltas of a
            message together are its final text.
        final: Whether this message is complete.
    """

    index: int
    text: str
    delta: str
    final: bool


def utf16_units(text: str) -> int:
    """Return the length of *text* in UTF-16 code units, as Telegram counts; no chat service counts more.

    >>> utf16_units("a😀")
    3
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _check_limit(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < MIN_LIMIT:
        raise ConfigurationError(
            f"limit must be a whole number of at least {MIN_LIMIT} UTF-16 units; got {limit!r}", field="limit"
        )
    return limit


def split_markdown(text: str, limit: int) -> list[str]:
    """Split *text* into chat messages.

    Args:
        text: Markdown, such as ``answer.text``.
        limit: The longest message, in UTF-16 code units (Telegram: 4096, Discord: 2000).

    Returns:
        The messages, in order; none is empty. Each ends at the best place in its last third: between
        paragraphs, else between lines, else between words. A code block that is split is closed in one
        message and opened again in the next. Only white space between two messages is left out.

    Raises:
        ConfigurationError: *limit* is below 200.

    Example::

        for text in split_markdown(answer.text, 4096):
            await bot.send_message(chat_id, text)
    """
    splitter = MarkdownSplitter(limit)
    splitter.feed(text)
    splitter.close()
    return [edit.text for edit in iter(splitter.next_edit, None)]


class _Fence(NamedTuple):
    """The line that opens a code block."""

    indent: str
    mark: str
    info: str

    @property
    def opening(self) -> str:
        """The line that opens the block again, without a long description."""
        word = self.info.strip().partition(" ")[0]
        return f"{self.indent}{self.mark}{word if len(word) <= INFO_CHARACTERS else ''}\n"

    @property
    def closing(self) -> str:
        return f"\n{self.indent}{self.mark}"

    def ends_with(self, line: str) -> bool:
        """Return whether *line* closes the block: only the same mark, at least as long."""
        mark = line.strip(" \t\r\n>")
        return mark.startswith(self.mark) and not mark.strip(self.mark[0])


_FENCE: Final = re.compile(r"([ \t>]*)(`{3,}(?=[^`]*\Z)|~{3,})(.*)")
_INLINE_CODE: Final = re.compile(r"[ \t>]*`{3,}[^`]*`")
_MARK_IN_CODE: Final = re.compile(r"[ \t\r>]*(?:`{3,}|~{3,})[ \t\r>]*.")
_LIKE_FENCE: Final = re.compile("```|~~~|>")
_NEXT_FENCE: Final = re.compile(r"\n[ \t>]*(?:```|~~~)")
_SPACES: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"\S*")
ANYWHERE, WORD, CODE_LINE, LINE, PARAGRAPH = range(5)
"""The ranks of places where a message may end, best last."""


class _Place(NamedTuple):
    """A place where a message may end: at *end*; the next one begins at *following*."""

    end: int
    following: int
    rank: int
    fence: _Fence | None  # the code block that is open there
    reopens: bool = True  # whether that block goes on in the next message


class _Token(NamedTuple):
    """The next word, or a whole line that opens or closes a code block."""

    end: int
    fence: _Fence | None  # the code block that is open after it
    inside: range = range(0)  # where a word may be cut because it is long


def _fence_after(line: str, fence: _Fence | None) -> _Fence | None:
    """Return the code block that is open after *line*, when *fence* was open before it."""
    if fence is not None:
        return None if fence.ends_with(line) else fence
    match = _FENCE.match(line)
    if match is None or len(match[1]) + len(match[2]) > MARK_CHARACTERS:
        return None
    return _Fence(*match.groups())


def _closing_units(fence: _Fence | None) -> int:
    return 0 if fence is None else len(fence.closing)


def _end(pattern: re.Pattern[str], text: str, at: int, stop: int = sys.maxsize) -> int:
    """Return the end of the match of *pattern*, which may be empty, at *at*."""
    match = pattern.match(text, at, stop)
    return match.end() if match else at


class MarkdownSplitter:
    """Splits a growing text into messages.

    After each :meth:`feed`, and after :meth:`close`, call :meth:`next_edit` until it returns None.

    The text is read once, word by word. Of the places where the current message may end, only the best is
    kept; a later place is never worse than an equal one before it. So a message ends at that place or after
    it, and what stands before it can be shown. The messages are the same however the text arrives.

    *limit* is the longest message, in UTF-16 code units.
    """

    def __init__(self, limit: int) -> None:
        self._limit = _check_limit(limit)
        self._late = limit - limit // 3  # where the last third of a message begins
        self._text = ""
        self._fed: list[str] = []
        self._closed = False
        self._index = -1
        self._sure: _Place | None = None  # what may be shown, and is not
        self._begin_message(0, None)

    @property
    def finished(self) -> bool:
        """Whether the text has ended and each of its messages is complete."""
        return self._closed and not self._fed and self._begin == self._spaces == len(self._text)

    def feed(self, text: str) -> None:
        """Add the next piece of text."""
        self._fed.append(text)

    def close(self) -> None:
        """Say that the text has ended."""
        self._closed = True

    def next_edit(self) -> Edit | None:
        """Return the next change of what is shown; None when there is none before more text comes.

        The last words are held back: they may not be whole, and the final edit of a message adds to it.
        """
        if self._fed:
            self._text += "".join(self._fed)
            self._fed.clear()
        place = self._full()
        if place is None and self._closed and self._begin < self._read:
            place = _Place(self._read, len(self._text), ANYWHERE, self._fence)
        if place is not None:
            edit = self._edit(place, final=True)
            self._begin_message(place.following, place.fence if place.reopens else None)
            return edit
        if (place := self._sure) is None:
            return None
        self._sure = None
        return self._edit(place, final=False)

    # Inside ---------------------------------------------------------------------------------

    def _begin_message(self, at: int, fence: _Fence | None) -> None:
        """Begin a message with the text from *at* on; *fence* is the code block that is open there."""
        if at > len(self._text) // 2:  # not each time: the rest may be long
            self._text, at = self._text[at:], 0
        self._index += 1
        self._begin = self._read = self._spaces = at  # read to where; to where there is only white space
        self._opening = "" if fence is None else fence.opening
        self._units = utf16_units(self._opening)  # of what is read
        self._fence = fence  # what is open where it was read to
        self._block = -1  # where the opening line of a code block ends
        self._best: _Place | None = None
        self._last: _Place | None = None
        self._sure = None
        self._sent = 0

    def _edit(self, place: _Place, *, final: bool) -> Edit:
        body = self._opening + self._text[self._begin : place.end].rstrip()
        text = body if place.fence is None else body + place.fence.closing
        appended = text if final else body
        delta, self._sent = appended[self._sent :], len(appended)
        return Edit(index=self._index, text=text, delta=delta, final=final)

    def _full(self) -> _Place | None:
        """Read on; return where the message ends, or None when that needs more text."""
        while (token := self._skip() or self._next_token()) is not None:
            end, fence, inside = token
            units = self._units + utf16_units(self._text[self._read : end])
            fits = units + _closing_units(fence) <= self._limit
            if inside:
                self._add_places_inside(inside, end if fits else self._fitting(end))
            if not fits:
                return self._cut(token)
            if fence is not self._fence:
                self._fence, self._block = fence, -1 if fence is None else end
            self._read, self._spaces, self._units = end, end, units
        return None

    def _cut(self, token: _Token) -> _Place:
        """Return where the message ends when *token* does not fit."""
        if token.fence is None and self._fence is not None:  # it closes a block, and so does our own line
            return _Place(self._read, token.end, PARAGRAPH, self._fence, reopens=False)
        at = self._fitting(token.end)
        return self._best or _Place(at, at, ANYWHERE, self._fence)

    def _fitting(self, end: int) -> int:
        """Return the last place up to *end* where the message fits, whatever it cuts through."""
        begin, room = self._read, self._limit - self._units - _closing_units(self._fence)
        lengths = range(1, min(end - begin, room) + 1)
        return begin + bisect_right(lengths, room, key=lambda n: utf16_units(self._text[begin : begin + n]))

    def _add_place(self, following: int, rank: int, end: int) -> None:
        """Add a place where the message may end: at *end*, the next one with what begins at *following*."""
        if end in (self._begin, self._block) or (self._last is not None and self._last.end == end):
            return  # nothing of the message, or of the block, is before it; or it is known
        if self._units < self._late:
            rank = ANYWHERE  # too early: any later place is better
        place = _Place(end, following, rank, self._fence)
        if self._best is None or rank >= self._best.rank:
            self._best, self._sure = place, self._last
        self._last = place

    def _add_places_inside(self, places: range, most: int) -> None:
        """Add the last two of *places*, up to *most*, that are between graphemes: the second can be shown."""
        found = filter(self._may_begin, range(min(places.stop - 1, most), places.start - 1, -1))
        for at in reversed([*islice(found, 2)]):
            self._add_place(at, ANYWHERE, at)

    def _skip(self) -> _Token | None:
        """Return many words at once: before the last third of a message, only the last place counts."""
        text, read = self._text, self._read
        stop = min(read + (self._late - self._units) // 2, len(text) - SKIPPED_CHARACTERS)
        if read == self._begin or stop - read < SKIPPED_CHARACTERS:
            return None
        fence = _NEXT_FENCE.search(text, read, stop + FENCE_CHARACTERS)
        stop = min(stop, fence.start()) if fence else stop
        at = text.rfind("\n", read, stop)
        if at < 0:
            at = text.rfind(" ", read, stop)
            if at < 0 or text[at + 1].isspace() or not self._may_begin(at + 1):
                return None
        end = read + len(text[read:at].rstrip())
        return _Token(end, self._fence) if end > read else None

    def _next_token(self) -> _Token | None:
        """Return what follows, and add the place before it; None while it is not there whole."""
        text = self._text
        begin = self._spaces = _end(_SPACES, text, self._spaces)
        if begin == len(text):
            return None
        line = text.rfind("\n", self._read, begin) + 1
        if self._begin < self._read and not line:
            return self._word(begin, begin, WORD)
        line = line or self._begin
        following = (
            line if begin - line <= self._limit // 4 else begin
        )  # more indentation could fill a message
        if self._begin == self._read:
            self._begin = self._read = following
        rank = CODE_LINE if self._fence else PARAGRAPH if text.count("\n", self._read, begin) > 1 else LINE
        return (self._line if text[begin] in "`~>" else self._word)(following, begin, rank)

    def _line(self, following: int, begin: int, rank: int) -> _Token | None:
        """Return the line at *following* if it opens or closes a code block, else the word at *begin*."""
        head, newline, _ = self._text[following : following + FENCE_CHARACTERS].partition("\n")
        whole = newline or len(head) == FENCE_CHARACTERS or self._closed
        fence = _fence_after(head, self._fence)
        marks = head.strip(" \t\r>")
        if not whole and (fence is not self._fence or not marks.strip("`") or not marks.strip("~")):
            return None
        if fence is self._fence:
            like_fence = (_INLINE_CODE if fence is None else _MARK_IN_CODE).match(head)
            if like_fence is None:
                return self._word(following, begin, rank)
            self._add_place(following, rank, self._read)
            return _Token(following + like_fence.end(), fence)  # a part of it would be a fence
        if fence is not None:  # a block is not cut before the line that closes it
            self._add_place(following, PARAGRAPH, self._read)
        return _Token(following + len(head.rstrip()), fence)

    def _word(self, following: int, begin: int, rank: int) -> _Token | None:
        """Return the word at *begin*, or what is there of a long one."""
        text = self._text
        stop = begin + self._limit + 2  # what is longer fills the message
        end = _end(_WORD, text, begin, stop)
        whole = end < stop and (end < len(text) or self._closed)
        goes_on = self._begin < self._read == begin  # its beginning was read: it is long
        long = goes_on or end - begin > HELD_CHARACTERS
        if not goes_on and (rank != WORD or self._may_begin(begin, known=whole or long)):
            self._add_place(following, rank, self._read)
        if not long:
            return _Token(end, self._fence) if whole else None
        ready = end if whole else end - 1  # a mark may follow the last character
        return _Token(ready, self._fence, range(begin + 1, end)) if ready > begin else None

    def _may_begin(self, at: int, *, known: bool = False) -> bool:
        """Return whether a message may begin at *at*, inside a line: not with what would be a fence there.

        *known* says that what stands there is known far enough to tell.
        """
        text = self._text
        unlike_fence = text[at] not in "`~>" or (known and not _LIKE_FENCE.match(text, at))
        return unlike_fence and is_boundary(text, at, self._begin)
