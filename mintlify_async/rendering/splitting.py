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

from ..errors import ConfigurationError

MIN_LIMIT: Final = 200
"""Smallest limit of a message: below it, closing and opening a code block would leave no room for text."""

LONG_WORD: Final = 24
"""A word of more characters is shown while it grows, and may be cut; some languages have no blanks."""

FENCE_CHARACTERS: Final = 60
"""How much of a line is read to see whether it opens or closes a code block."""

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
_UNDECIDED: Final = " \t\r\n\f\v`~>"
"""Characters that do nothing at the end of a text, and may begin a code block when more text follows."""
_BLANK_LINES: Final = re.compile(r"(?:\s*\n)?")
_BLANKS: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"\S+")


def _fence_after(line: str, fence: _Fence | None) -> _Fence | None:
    """Return the code block that is open after *line*, when *fence* was open before it."""
    head = line[:FENCE_CHARACTERS]
    if fence is not None:  # only the same mark closes it, at least as long
        mark = head.strip(" \t\r>")
        return None if mark.startswith(fence.mark) and not mark.strip(fence.mark[0]) else fence
    match = _FENCE.match(head)
    return _Fence(*match.groups()) if match else None


def _closing_units(fence: _Fence | None) -> int:
    return 0 if fence is None else len(fence.closing)


ANYWHERE, WORD, CODE_LINE, LINE, PARAGRAPH = range(5)
"""The ranks of places where a message may end, best last."""


class _Place(NamedTuple):
    """A place where a message may end: at *end*; the next one starts at *following*."""

    end: int
    following: int
    rank: int
    fence: _Fence | None  # the code block that is open there
    reopened: _Fence | None  # the code block that the next message opens again


class MarkdownSplitter:
    """Splits a growing text into messages.

    After each :meth:`feed`, and after :meth:`close`, call :meth:`next_edit` until it returns None.

    The text is read once, line by line, and the last line word by word. Of the places where the current
    message may end, only the best is kept; a later place is never worse than an equal one before it. So the
    message ends at that place or after it, and the text before it can be shown. Without pauses, the messages
    are the same however the text arrives.

    Args:
        limit: The longest message, in UTF-16 code units; at least 200.

    Attributes:
        shown: How many characters of the text were shown, the blanks between messages included.
    """

    def __init__(self, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < MIN_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise ConfigurationError(
                f"limit must be a whole number of at least {MIN_LIMIT} UTF-16 units; got {limit!r}",
                field="limit",
            )
        self._limit = limit
        self._late = limit - limit // 3  # where the last third of a message starts
        self._text: str = ""
        self._offset: int = 0  # of this text in all that was fed
        self._undecided: str = ""  # follows this text
        self._closed = False
        self._index: int = -1
        self.shown = 0
        self._last_fence: _Fence | None = None  # the code block that is open at the end of the text
        self._best: _Place | None = None
        self._sure: _Place | None = None  # the place before the best, until it was shown
        self._last: _Place | None = None
        self._begin: int = 0
        self._begin_message(0, None)

    def feed(self, text: str) -> None:
        """Add the next piece of text."""
        text = self._undecided + text
        decided = text.rstrip(_UNDECIDED)
        self._text, self._undecided = self._text + decided, text[len(decided) :]

    def close(self, below: str = "") -> None:
        """Mark the end of the text. The text *below* follows after a blank line."""
        text = (self._text + self._undecided).rstrip()
        self._text, self._undecided = f"{text}\n\n{below.strip()}".rstrip(), ""
        self._closed = True

    def next_edit(self, *, pause: bool = False) -> Edit | None:
        """Return the next change of the shown text; None if it needs more text.

        The last words are held back, because they may be incomplete and the final edit of a message adds to
        them.

        Args:
            pause: Whether the text pauses. If true, all of it is shown.
        """
        if pause:
            marks = self._undecided.rstrip()
            self._text, self._undecided = self._text + marks, self._undecided[len(marks) :]
        while (place := self._end_of_message(decided=self._closed or pause)) is not None:
            edit = self._edit(place, final=True)
            self._begin_message(place.following, place.reopened)
            if edit is not None:
                return edit
        end = len(self._text)
        if self._begin < end and (self._closed or pause):
            edit = self._edit(_Place(end, end, ANYWHERE, self._last_fence, None), final=self._closed)
            if self._closed:
                self._begin = end
            else:  # the message does not end before the shown text
                self._best = self._sure = None
                self._floor = end
            return edit
        if self._sure is None:
            return None
        place, self._sure = self._sure, None
        return self._edit(place, final=False)

    # Inside ---------------------------------------------------------------------------------

    def _begin_message(self, at: int, fence: _Fence | None) -> None:
        """Start a message with the text from *at* on; *fence* is the code block that is open there."""
        if at > len(self._text) // 2:  # not each time, because the rest may be long
            self._text, self._offset, at = self._text[at:], self._offset + at, 0
        self._index += 1
        self._begin = self._read = at  # the text is read up to the end of a line
        self._opening = "" if fence is None else fence.opening
        self._units: int = utf16_units(self._opening)  # of the text read
        self._fence = self._last_fence = fence  # the code block that is open there
        self._best = self._sure = self._last = None
        self._floor = at  # the message does not end here or before
        self._shown_text: str = ""
        self._sent: int = 0  # characters of the deltas so far

    def _edit(self, place: _Place, *, final: bool) -> Edit | None:
        """Return the edit that shows the message up to *place*; None if that adds nothing."""
        body = self._opening + self._text[self._begin : place.end].rstrip()
        text = body if place.fence is None else body + place.fence.closing
        appended = text if final else body
        if len(appended) <= self._sent or (text == self._shown_text and not final):
            return None
        delta, self._sent, self._shown_text = appended[self._sent :], len(appended), text
        self.shown = self._offset + place.end
        return Edit(index=self._index, text=text, delta=delta, final=final)

    def _end_of_message(self, *, decided: bool) -> _Place | None:
        """Read more text. Return the end of the message, or None if it needs more text.

        *decided* says that the last word and the last line do not grow.
        """
        text = self._text
        if self._read == self._floor == self._begin:
            self._skip_blanks()
        while True:
            line = _end(_BLANK_LINES, text, self._read)  # where the line starts
            longest_line: int = self._limit + LONG_WORD + 2  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - an int
            body = text[line : line + longest_line].partition("\n")[0].rstrip()
            end = line + len(body)
            following = _end(_BLANKS, text, end)
            is_last_line, goes_on = following == len(text), "\n" not in text[end:following]
            grows = is_last_line and not decided
            marked = _LIKE_FENCE.match(body) is not None
            if not body or (grows and marked and self._fence is None and len(body) < FENCE_CHARACTERS):
                return None
            fence = _fence_after(body, self._fence)
            self._add_line(line, end, fence)
            units = self._units + line - self._read  # before the line
            room = self._limit - units - _closing_units(fence)
            # The words before were read. The word there may be long.
            start = max(line + FENCE_CHARACTERS if marked else line, self._floor - LONG_WORD - 2)
            words = [*_WORD.finditer(text, start, end if is_last_line or not goes_on else following + 1)]
            if grows:
                end = _known_end(end, words) if words else line
            if utf16_units(text[line:end]) <= room and (is_last_line or not goes_on):
                self._add_words(words, end, line, units, fence, cut=grows)
                if is_last_line:
                    self._last_fence = fence
                    return None
                if fence is not self._fence:
                    self._fence, self._floor = fence, max(end, self._floor) if fence else self._floor
                self._last_fence = fence
                self._read, self._units = end, units + utf16_units(body)
            else:
                end = line + bisect_right(range(1, end - line + 1), room, key=lambda n: utf16_units(body[:n]))
                self._add_words(words, end, line, units, fence, cut=True)
                at = max(end, self._floor)
                fence = _fence_after(text[line:at], self._fence) if at > line else self._fence
                return self._best or _Place(at, at, ANYWHERE, fence, fence)

    def _skip_blanks(self) -> None:
        """Start the message after blank lines, and after more indentation than a quarter of a message."""
        at = _end(_BLANK_LINES, self._text, self._read)
        word = _end(_BLANKS, self._text, at)
        self._begin = self._read = self._floor = word if word - at > self._limit // 4 else at

    def _add_line(self, line: int, end: int, fence: _Fence | None) -> None:
        """Add the place before the line from *line* to *end*; *fence* is the code block open after it."""
        if self._fence is None:
            is_paragraph = fence is not None or self._text.count("\n", self._read, line) > 1
            place = _Place(self._read, line, PARAGRAPH if is_paragraph else LINE, None, None)
        elif fence is not None:
            place = _Place(self._read, line, CODE_LINE, fence, fence)
        else:  # the line that closes the block is left out, for the message closes it
            place = _Place(self._read, end, LINE, self._fence, None)
        self._add_place(place, self._units)

    def _add_words(
        self, words: list[re.Match[str]], end: int, line: int, units: int, fence: _Fence | None, *, cut: bool
    ) -> None:
        """Add the last places up to *end*, between *words*. With *cut*, add places inside a long word.

        *line* is where the line of the words starts, *units* the length of the message up to there.
        """
        text = self._text
        starts = [
            word.start()
            for word_before, word in pairwise(words)
            if word_before.end() <= end and not _LIKE_FENCE.match(text, word.start())
        ]
        places = [_Place(at, at, WORD, fence, fence) for at in starts[-2:]]
        word = next((word for word in reversed(words) if word.start() < end), None)
        if cut and word is not None and word.end() - word.start() > LONG_WORD:
            places_inside = range(min(end, word.end() - 1), word.start(), -1)
            boundaries = islice((at for at in places_inside if _is_boundary(text, at)), 2)
            places += reversed([_Place(at, at, ANYWHERE, fence, fence) for at in boundaries])
        for place in places:
            self._add_place(place, units + utf16_units(text[line : place.end]))

    def _add_place(self, place: _Place, units: int) -> None:
        """Add a place where the message may end; *units* is its length up to there."""
        if place.end <= self._floor:
            return
        if units < self._late:
            place = _Place(*place[:2], ANYWHERE, *place[3:])  # too early, any later place is better
        if self._best is None or place.rank >= self._best.rank:
            self._best, self._sure = place, self._last
        self._floor = place.end
        if place.reopened is place.fence:  # else the shown text would not change behind the block's end
            self._last = place


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of the match of *pattern*, which may be empty, at *at*."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _known_end(end: int, words: list[re.Match[str]]) -> int:
    """Return the known length of a growing line. Its last word may grow, or get a mark if it is long."""
    *previous, last = words
    if last.end() - last.start() > LONG_WORD:
        return end - 1
    return previous[-1].end() if previous else last.start()


def _is_boundary(text: str, at: int) -> bool:
    """Return whether a message may start at *at*, inside a word, with neither a mark nor a code block."""
    joins = category(text[at]).startswith("M") or "\udc00" <= text[at] <= "\udfff"
    return not joins and not _LIKE_FENCE.match(text, at)
