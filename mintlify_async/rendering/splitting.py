"""MarkdownSplitter: splits a growing Markdown text into chat messages of limited length. No I/O.

Chat services accept messages of some thousand characters. A long answer is split between paragraphs, lines or
words. A split code block is closed in one message and opened again in the next. Text that was shown in a
message is never taken back.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice, pairwise
from typing import Final, NamedTuple
from unicodedata import category

from attrs import frozen

from ..checks import check_number

MIN_LIMIT: Final = 200
"""Smallest limit of a message: below it, closing and opening a code block would leave no room for text."""

LONG_WORD: Final = 24
"""A word of more characters is shown while it grows, and may be cut; some languages have no blanks."""

FENCE_CHARACTERS: Final = 60
"""How much of a line is read to see whether it opens or closes a code block."""

EARLIER_CHARACTERS: Final = 240
"""How much text before the last third of a message is searched for words where the message may end."""

INFO_CHARACTERS: Final = 20
"""Longest language name of a code block that is repeated where the block is opened again."""


@frozen(kw_only=True)
class Edit:
    """One change of one chat message: a new message the first time, an edit afterwards.

    Args:
        index: The message's number, from 0: an answer that is longer than the limit continues in the next.
        text: The message's complete text now: never empty, no longer than the limit, no code block left open.
        delta: The text to append to the message, for services that can append; never empty. The deltas of a
            complete message together are its text.
        final: Whether this message is complete. If a pause of the answer showed all of a message before its
            end was known, it gets no final edit. Then the next index, or the end, completes it.
    """

    index: int
    text: str
    delta: str
    final: bool


def utf16_units(text: str) -> int:
    """Return the length of *text* in UTF-16 code units, as Telegram counts. No chat service counts more.

    >>> utf16_units("a😀")
    3
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_markdown(text: str, limit: int) -> list[str]:
    """Split *text* into chat messages.

    Args:
        text: Markdown, such as ``answer.text``.
        limit: The longest message, in UTF-16 code units (Telegram: 4096, Discord: 2000); at least 200.

    Returns:
        The messages, in order. None is empty. Each ends at the best place in its last third: between
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


_FENCE: Final = re.compile(r"([ \t>]{0,30})(`{3,29}(?=[^`]*\Z)|~{3,29}(?!~))(.*)")
_LIKE_FENCE: Final = re.compile(r"[ \t>]*(?:```|~~~)")
_AMBIGUOUS_END: Final = " \t\r\n\f\v`~>"
"""Characters that do nothing at the end of a text, and may begin a code block when more text follows."""
_BLANK_LINES: Final = re.compile(r"(?:\s*\n)?")
_BLANKS: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"\S+")
_TO_LAST_WORDS: Final = re.compile(r"(?:.*\s)?(?=\S+\s+\S*\Z)", re.DOTALL)  # the last two


def _fence_after(line: str, fence: _Fence | None) -> _Fence | None:
    """Return the code block that is open after *line*, when *fence* was open before it."""
    head = line[:FENCE_CHARACTERS]
    if fence is not None:  # only the same mark closes it, at least as long
        mark = head.strip(" \t\r>")
        return None if mark.startswith(fence.mark) and not mark.strip(fence.mark[0]) else fence
    match = _FENCE.match(head)
    return _Fence(*match.groups()) if match else None


WORD, CODE_LINE, LINE, PARAGRAPH = range(1, 5)
"""The ranks of places where a message may end, best last. A place inside a word has rank 0."""


class _Place(NamedTuple):
    """A place where a message may end: at *end*; the next one starts at *following*."""

    end: int
    following: int
    rank: int
    units: int  # the length of the message up to there
    fence: _Fence | None  # the code block that is open there
    reopened: _Fence | None  # the code block that the next message opens again


class _Read(NamedTuple):
    """What is known of the complete lines of a message, which are read only once."""

    at: int  # the start of the line that may grow
    line_end: int  # the end of the last line before it that is not blank
    after_blank_line: bool
    units: int
    fence: _Fence | None
    places: list[_Place]


class MarkdownSplitter:
    """Splits a growing text into messages.

    After each :meth:`feed`, and after :meth:`close`, call :meth:`next_edit` until it returns None.

    Each call looks for the places where the current message may end. A later place is never worse than an
    equal one before it. So the message ends at the best place or after it, and the text before that place can
    be shown. Without pauses, the messages are the same however the text arrives.

    Args:
        limit: The longest message, in UTF-16 code units; at least 200.

    Attributes:
        shown_length: How many characters of the text were shown, the blanks between messages included.
    """

    def __init__(self, limit: int) -> None:
        check_number(limit, "limit", MIN_LIMIT, whole=True)
        self._limit = limit
        self._late = limit - limit // 3  # where the last third of a message begins
        self._text: str = ""  # from the start of the current message on
        self._trailing_text: str = ""  # follows this text
        self._closed = False
        self._offset: int = 0  # of this text in all that was fed
        self._index: int = 0
        self._fence: _Fence | None = None  # the code block that the current message opens again
        self._read: _Read | None = None
        self._floor: int = 0  # the message does not end before this place
        self._last_text: str = ""  # of the last edit of this message
        self._delta_length: int = 0  # characters of its deltas so far
        self.shown_length: int = 0

    def feed(self, text: str) -> None:
        """Add the next piece of text."""
        text = self._trailing_text + text
        body = text.rstrip(_AMBIGUOUS_END)
        self._text, self._trailing_text = self._text + body, text[len(body) :]

    def close(self, below: str = "") -> None:
        """Mark the end of the text. The text *below* follows after a blank line."""
        text = (self._text + self._trailing_text).rstrip()
        self._text, self._trailing_text = f"{text}\n\n{below.strip()}".rstrip(), ""
        self._closed = True

    def next_edit(self, *, pause: bool = False) -> Edit | None:
        """Return the next change of the shown text. None if it needs more text.

        The last words are held back, because they may be incomplete and the final edit of a message adds to
        them.

        Args:
            pause: Whether the text pauses. If true, all of it is shown.
        """
        if pause:
            marks = self._trailing_text.rstrip()
            self._text, self._trailing_text = self._text + marks, self._trailing_text[len(marks) :]
        is_settled = self._closed or pause
        while self._skip_blanks():
            # What follows a place decides its rank, so more text than a message is read.
            window = _end(_BLANKS, self._text, self._limit) + FENCE_CHARACTERS + LONG_WORD
            all_places, end, is_too_long = self._places(self._text[:window], is_settled=is_settled)
            floor = max(self._floor, 1)
            places = [place for place in all_places if place.end >= floor]
            late_places = [place for place in places if place.units >= self._late]
            best = max(reversed(late_places or places[-1:]), key=lambda place: place.rank, default=end)
            if is_too_long and (is_settled or len(self._text) > window):
                edit = self._edit(best, final=True)
                self._begin_message(best)
                if edit is not None:
                    return edit
            elif is_settled:
                self._floor = end.end
                edit = self._edit(end, final=self._closed)
                if self._closed:
                    self._begin_message(end)
                return edit
            else:
                # The best place is held back. Behind a block's end, the shown text would not change.
                certain_places = (
                    place
                    for place in reversed(places)
                    if place.end < best.end and place.reopened is place.fence
                )
                certain = next(certain_places, None)
                return None if certain is None else self._edit(certain, final=False)
        return None

    # Inside ---------------------------------------------------------------------------------

    def _begin_message(self, place: _Place) -> None:
        """Start a message after *place*."""
        self._text, self._offset = self._text[place.following :], self._offset + place.following
        self._index += 1
        self._read = None
        self._fence, self._floor, self._last_text, self._delta_length = place.reopened, 0, "", 0

    def _skip_blanks(self) -> str:
        """Leave out blank lines before a message, and long indentation. Return the text."""
        if not self._delta_length:
            line = _end(_BLANK_LINES, self._text, 0)
            word = _end(_BLANKS, self._text, line)
            start = word if word - line > self._limit // 4 else line
            self._text, self._offset = self._text[start:], self._offset + start
            self._read = None
        return self._text

    def _edit(self, place: _Place, *, final: bool) -> Edit | None:
        """Return the edit that shows the message up to *place*; None if that adds nothing."""
        opening = "" if self._fence is None else self._fence.opening
        body = opening + self._text[: place.end].rstrip()
        text = body if place.fence is None else body + place.fence.closing
        appended = text if final else body
        if len(appended) <= self._delta_length or (text == self._last_text and not final):
            return None
        delta, self._delta_length, self._last_text = appended[self._delta_length :], len(appended), text
        self.shown_length = self._offset + place.end
        return Edit(index=self._index, text=text, delta=delta, final=final)

    def _places(self, window: str, *, is_settled: bool) -> tuple[list[_Place], _Place, bool]:
        """Return the places where the message may end, its last possible end, and whether it is too long.

        *is_settled* says that the last word and the last line do not grow.
        """
        read = self._read
        if read is None:
            opening_units = 0 if self._fence is None else len(self._fence.opening)
            read = _Read(0, 0, False, opening_units, self._fence, [])
        at, line_end, after_blank_line, units, fence, complete_places = read
        places = complete_places.copy()
        count = len if window.isascii() else utf16_units  # for each line: 2,000 lines may fit in a message

        for number, line in enumerate(lines := window[at:].split("\n"), 1):
            if number == len(lines):
                self._read = _Read(at, line_end, after_blank_line, units, fence, places.copy())
            start, at, body = at, at + len(line) + 1, line.rstrip()
            if not body:
                after_blank_line = True
                continue
            end = start + len(body)
            grows = end == len(self._text) and not is_settled
            is_like_fence = body.lstrip(" \t>").startswith(("```", "~~~"))
            if grows and is_like_fence and fence is None and len(body) < FENCE_CHARACTERS:
                break
            next_fence = _fence_after(body, fence) if is_like_fence else fence
            if fence is None:
                rank = PARAGRAPH if after_blank_line or next_fence is not None else LINE
                places.append(_Place(line_end, start, rank, units, None, None))
            elif next_fence is not None:
                places.append(_Place(line_end, start, CODE_LINE, units, fence, fence))
            else:  # the line that closes the block is left out, for the message closes it
                places.append(_Place(line_end, end, LINE, units, fence, None))
            units += count(window[line_end:start])
            room = self._limit - units - (0 if next_fence is None else len(next_fence.closing))
            is_too_long = count(body) > room
            if is_too_long:
                end = start + bisect_right(range(1, len(body) + 1), room, key=lambda n: count(body[:n]))
            if is_too_long or grows or units + len(body) > self._limit // 2:
                words_start = start + FENCE_CHARACTERS if is_like_fence else start
                # Of the words before the last third, only the last ones may be needed.
                first_late = start + min(self._late - units, len(body))
                skipped = window[words_start : max(words_start, first_late - EARLIER_CHARACTERS)]
                words_start += _end(_TO_LAST_WORDS, skipped, 0)
                words = [*_WORD.finditer(window, words_start, max(words_start, start + len(body)))]
                length, counted = units, start
                for previous, word in pairwise(words):
                    length, counted = length + count(window[counted : previous.end()]), previous.end()
                    if previous.end() <= end and not _LIKE_FENCE.match(window, word.start()):
                        place = _Place(previous.end(), word.start(), WORD, length, next_fence, next_fence)
                        places.append(place)
                word_at_end = next((word for word in reversed(words) if word.start() < end), None)
                if (
                    (is_too_long or grows)
                    and word_at_end is not None
                    and word_at_end.end() - word_at_end.start() > LONG_WORD
                ):
                    positions = range(min(end, word_at_end.end() - 1), word_at_end.start(), -1)
                    boundaries = [*islice((at for at in positions if _is_boundary(window, at)), 2)]
                    for boundary in reversed(boundaries):
                        length = units + count(window[start:boundary])
                        places.append(_Place(boundary, boundary, 0, length, next_fence, next_fence))
            if is_too_long:
                end = max(end, self._floor)
                fence = _fence_after(window[start:end], fence) if end > start else fence
                return places, _Place(end, end, 0, self._limit, fence, fence), True
            line_end, units, fence, after_blank_line = end, units + count(body), next_fence, False
        return places, _Place(line_end, line_end, 0, units, fence, fence), False


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of the match of *pattern*, which may be empty, at *at*."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _is_boundary(text: str, at: int) -> bool:
    """Return whether a message may start at *at*, inside a word, with neither a mark nor a code block."""
    joins = category(text[at]).startswith("M") or "\udc00" <= text[at] <= "\udfff"
    return not joins and not _LIKE_FENCE.match(text, at)
