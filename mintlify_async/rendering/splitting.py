"""MarkdownSplitter: splits a growing Markdown text into chat messages of limited length. No I/O.

Chat services accept messages of some thousand characters. A long answer is split between
paragraphs, lines or words; a code block that has to be split is closed in one message and opened
again in the next. What was shown in a message is never taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from attrs import frozen

from ..errors import ConfigurationError

MIN_LIMIT: Final = 200
"""Smallest limit of a message: below it, closing and opening a code block would leave no room for text."""

ROOM: Final = 64
"""Units left free while a message grows, for the word or the opening of a code block that fills it."""

HELD_CHARACTERS: Final = 24
"""Longest word that is held back until it is complete; of a longer one, only the last character is."""

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
    return len(text) + sum(character > "\uffff" for character in text) if not text.isascii() else len(text)


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
        The messages, in order; none is empty. A code block that is split is closed in one
        message and opened again in the next. Only white space between two messages is left out.

    Raises:
        ConfigurationError: *limit* is below 200.

    Example::

        for text in split_markdown(answer.text, 4096):
            await bot.send_message(chat_id, text)
    """
    splitter = MarkdownSplitter(limit)
    splitter.feed(text)
    edits = [*iter(splitter.complete, None), splitter.finish()]
    return [edit.text for edit in edits if edit is not None]


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


_OPENING: Final = re.compile(r"([ \t]*(?:>[ \t]*)*)(`{3,}|~{3,})([^\n]*)")


def _fence_after(line: str, fence: _Fence | None) -> _Fence | None:
    """Return the code block that is open after *line*, when *fence* was open before it."""
    if fence is not None:
        return None if fence.ends_with(line) else fence
    match = _OPENING.match(line)
    if match is None or ("`" in match[3] and match[2][0] == "`") or len(match[1]) + len(match[2]) > 30:
        return None  # repeating an indent and mark of that length would leave no room for text
    return _Fence(match[1], match[2], match[3])


_COMBINING: Final = re.compile("[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
"""What belongs to the character before it: accents, the joiner, variants and skin tones."""
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK: Final = re.compile(r"\s*")
_CLOSING: Final = re.compile(r"[ \t\r>]*+(`{3,}|~{3,})[ \t\r>]*(\n|\Z)")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the start of each line, and the line with its line break."""
    for match in _LINE.finditer(text):
        yield match.start(), match[0]


class _Place(NamedTuple):
    """A place where a message may end."""

    at: int
    rank: int
    fence: _Fence | None  # the code block that is open there


PARAGRAPH, LINE, CODE_LINE, WORD, ANYWHERE = range(5)
"""The ranks of places where a message may end, best first."""


class MarkdownSplitter:
    """Splits a growing text into messages.

    After each :meth:`feed`, call :meth:`complete` until it returns None, then :meth:`growing`.
    At the end of the text call :meth:`complete` until it returns None, then :meth:`finish`.
    """

    def __init__(self, limit: int) -> None:
        """Begin the first message; *limit* is the longest message, in UTF-16 code units."""
        self._limit = _check_limit(limit)
        self._index = 0
        self._text = ""  # from _at on: the text that is not in a complete message yet
        self._at = 0
        self._blank = 0  # where the first word of this message begins, while none of it is shown
        self._fed: list[str] = []
        self._opening = ""  # begins this message when the one before ended inside a code block
        self._fence: _Fence | None = None  # the code block that is open where this message begins
        self._shown = 0  # how much of the text is shown already, from _at on
        self._seen = ""  # the message as it is shown now
        self._sent = ""  # the deltas of this message together

    def feed(self, text: str) -> None:
        """Add the next piece of text."""
        self._fed.append(text)

    def complete(self) -> Edit | None:
        """Return the current message if it is full, and begin the next one; else None."""
        while True:
            text, place = self._full()
            if place is None:
                return None
            edit = self._edit(text, place.at, place.fence, final=True)
            self._begin_next(place)
            if edit.delta:  # a thousand spaces fill a message and add nothing to it
                return edit

    def growing(self) -> Edit | None:
        """Return the message with the whole words that were added since; None when there are none.

        The last word is held back: it may not be whole. So the final edit always has something to add.
        """
        text = self._window()
        at = self._end_of_words(text)
        fence = self._open_at(text, at)
        if at <= self._shown or not text[self._shown : at].strip():
            return None
        if fence is not None and not text[at:].strip(f" \t\r\n>{fence.mark[0]}"):
            return None  # the closing fence is arriving; the message already shows one
        edit = self._edit(text, at, fence, final=False)
        self._shown = at
        return edit

    def finish(self) -> Edit | None:
        """Return the last message, or None when everything was shown."""
        text = self._window(ending=True)
        at = len(text.rstrip())
        if not text[self._shown : at].strip():
            return None
        return self._edit(text, at, self._open_at(text, at), final=True)

    # Inside ---------------------------------------------------------------------------------

    def _full(self) -> tuple[str, _Place | None]:
        """Return the text of this message and where to end it; None when it is not full."""
        self._take_fed(ending=False)
        if self._at + self._limit < self._blank < len(self._text):  # white space alone fills it
            return "", _Place(self._limit, ANYWHERE, self._fence)
        text = self._window()
        at = len(text.rstrip())
        return text, None if self._fits(text, at, self._open_at(text, at)) else self._best_place(text)

    def _take_fed(self, *, ending: bool) -> None:
        if self._fed:
            self._text = self._text[self._at :] + "".join(self._fed)
            self._blank -= self._at
            self._at = 0
            self._fed.clear()
        if not self._shown:
            self._trim_beginning(ending=ending)

    def _window(self, *, ending: bool = False) -> str:
        """Return the text of this message, and enough of what follows to see whether it is full."""
        self._take_fed(ending=ending)
        end = self._at + self._limit + 1
        while self._text[end - 1 : end].isspace():  # space at a message's end is not shown
            end += 1
        return self._text[self._at : end + 1]

    def _trim_beginning(self, *, ending: bool) -> None:
        """Leave out blank lines, and the closing fence of a code block of which nothing is left."""
        if self._fence is not None:
            line = _CLOSING.match(self._text, self._at)
            if line and line[1].startswith(self._fence.mark) and (ending or line[2]):
                self._at, self._fence, self._opening = line.end(), None, ""
        blank = _BLANK.match(self._text, max(self._at, self._blank))
        self._blank = blank.end() if blank else self._at
        if self._fence is None:
            self._at = self._text.rfind("\n", self._at, self._blank) + 1 or self._at

    def _open_at(self, text: str, at: int) -> _Fence | None:
        """Return the code block that is open after the first *at* characters."""
        fence = self._fence
        for _, line in _lines(text[:at]):
            fence = _fence_after(line, fence)
        return fence

    def _full_text(self, text: str, at: int, fence: _Fence | None) -> str:
        body = self._opening + text[:at].rstrip()
        return body + fence.closing if fence is not None else body

    def _fits(self, text: str, at: int, fence: _Fence | None) -> bool:
        return utf16_units(self._full_text(text, at, fence)) <= self._limit

    def _edit(self, text: str, at: int, fence: _Fence | None, *, final: bool) -> Edit:
        self._seen = self._full_text(text, at, fence)
        appended = self._seen if final or fence is None else self._seen.removesuffix(fence.closing)
        delta, self._sent = appended[len(self._sent) :], appended
        return Edit(index=self._index, text=self._seen, delta=delta, final=final)

    def _begin_next(self, place: _Place) -> None:
        """Begin the next message after *place*."""
        self._at += place.at
        self._index += 1
        self._shown, self._sent, self._seen = 0, "", ""
        self._fence = place.fence
        self._opening = place.fence.opening if place.fence is not None else ""
        if place.rank == WORD:
            while self._text[self._at : self._at + 1] == " ":
                self._at += 1

    def _end_of_words(self, text: str) -> int:
        """Return the end of the last whole word that leaves room to find a good place to split."""
        at = len(text.rstrip())
        word = re.search(r"\S*\Z", text[:at])
        begin = word.start() if word else at
        at = begin if at - begin <= HELD_CHARACTERS else at - 1
        at = len(text[:at].rstrip())
        most = self._limit - max(ROOM, self._limit // 8)
        while at > self._shown and utf16_units(self._full_text(text, at, self._open_at(text, at))) > most:
            cut = max(text.rfind(" ", 0, at), text.rfind("\n", 0, at))
            at = len(text[: max(cut, 0)].rstrip())
        return self._before_a_growing_fence(text, at)

    def _before_a_growing_fence(self, text: str, at: int) -> int:
        """Return *at*, or the end of the line before if *at* is inside a line that opens a code block."""
        begin = text.rfind("\n", 0, at) + 1
        line = text[begin : text.find("\n", at)] if "\n" in text[at:] else text[begin:]
        fence = self._open_at(text, begin)
        opens = fence is None and _fence_after(line, None) is not None
        whole = text[at:].lstrip(" \t").startswith("\n")
        return len(text[:begin].rstrip()) if opens and not whole else at

    def _best_place(self, text: str) -> _Place:
        """Return the best place to split; there is always one."""
        places = list(self._places(text))[::-1]
        for least, ranks in (
            (self._limit // 3, (PARAGRAPH, LINE)),
            (self._limit // 2, (CODE_LINE, WORD)),
            (0, (PARAGRAPH, LINE, CODE_LINE, WORD)),
        ):
            for rank in ranks:
                for place in places:
                    if place.rank == rank and place.at >= least and self._usable(text, place):
                        return place
        return self._anywhere(text)

    def _usable(self, text: str, place: _Place) -> bool:
        """Return whether a message that ends at *place* fits, and adds to what is shown."""
        return (
            bool(text[self._shown : place.at].strip())
            and self._fits(text, place.at, place.fence)
            and self._full_text(text, place.at, place.fence) != self._seen
        )

    def _places(self, text: str) -> Iterator[_Place]:
        """Yield where a message may end: before each line, and between the words of each line."""
        fence = self._fence
        blank = False
        for begin, line in _lines(text):
            after = _fence_after(line, fence)
            if fence is not None:
                yield _Place(begin, CODE_LINE, fence)
            else:
                yield _Place(begin, PARAGRAPH if blank or after is not None else LINE, None)
            if fence is after:  # a line that opens or closes a block is not split
                for space in re.finditer(r"(?<=\S) +(?=\S)", line):
                    yield _Place(begin + space.start(), WORD, fence)
            blank = not line.strip()
            fence = after

    def _anywhere(self, text: str) -> _Place:
        """Return the last place at which the message fits, for a word that is longer than a message."""
        at = min(len(text), self._limit)
        while at > 1 and not self._fits(text, at, self._open_at(text, at)):
            over = utf16_units(self._full_text(text, at, self._open_at(text, at))) - self._limit
            at = max(1, at - max(1, over // 2))
        while at > self._shown + 1 and _COMBINING.match(text, at):
            at -= 1
        return _Place(at, ANYWHERE, self._open_at(text, at))
