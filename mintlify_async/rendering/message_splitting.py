"""The places where a chat message may end, and the marks that the next message repeats. No I/O.

Each message alone shows the same blocks as the complete text. An open code block is closed at the end of a
message and opened again in the next. A message that starts inside a quote repeats the quote's marks. Inside a
list item, it leaves out the item's indentation, which would turn the text into code. So a draft follows two
states: the blocks that are open in the text, and the blocks that are open in the message.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import count as numbers
from itertools import islice, pairwise
from typing import Final, NamedTuple
from unicodedata import category

from .blocks import (
    HEAD_CHARACTERS,
    QUOTE,
    START,
    Fence,
    MarkdownLine,
    OpenBlocks,
    is_settled,
    match_containers,
    read_line,
)
from .spans import SpanReader

LONG_WORD: Final = 24
"""A longer word is shown while it grows, and may be cut, because some languages have no blanks."""

JOINER: Final = "\u200d"
LONGEST_CHARACTER: Final = 32
"""Number of code points to check for the start of a joined emoji. A longer emoji may be cut."""

LOOKAHEAD: Final = HEAD_CHARACTERS + LONG_WORD
"""Number of characters to read after a message, because the text after a place decides its rank."""

NEAR_CHARACTERS, FAR_CHARACTERS = 30, 240
"""Number of last characters in which to search for a place where a message may end.

If the first number finds no place, the second number is used.
"""

INFO_CHARACTERS: Final = 20
"""Maximum length of a code block's language that is repeated when the block is opened again."""

MOST_QUOTES, MOST_MARKS = 12, 16
"""Maximum number of quote marks, and length of a code block's mark, in a message. They fit into 200 units."""

_BLANKS: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"\S+")
_MARKS: Final = re.compile(r"(?:[\s>]|(?:[-+*]|\d{1,9}[.)])(?=\s))*")
_LIKE_BLOCK: Final = re.compile(r"```|~~~|(?:[-+*>]|#{1,6})(?=\s|\Z)|\d{1,9}(?:[.)](?=\s|\Z)|\Z)")
"""A word that would start another kind of block at the start of a message."""
# Checked first, because few words start with one of these characters, and _LIKE_BLOCK is slower.
_MARK_STARTS: Final = frozenset("`~-+*>#0123456789")

LETTER, SPAN_WORD, SPAN_LINE, WORD, CODE_LINE, LINE, PARAGRAPH = range(7)
"""The ranks of places where a message may end, best last. SPAN_… are inside a link or other marked words."""


class Place(NamedTuple):
    """A place where a message may end.

    Attributes:
        end: The position of the place in the message.
        following: Where the next message starts, counted from the start of this message in the text.
        rank: The rank of the place.
        units: The length of the message up to the place, in UTF-16 code units.
        closing: The text that closes the code block that is open at the place.
        blocks: The blocks that are open in the text at the place.
        line: For a place inside a line, the line that continues in the next message. Otherwise None.
    """

    end: int
    following: int
    rank: int
    units: int
    closing: str
    blocks: OpenBlocks
    line: MarkdownLine | None = None

    @property
    def ends_block(self) -> bool:
        """Whether the message closes a code block that is not opened again."""
        return self.closing != "" and self.blocks.fence is None


class _Shown(NamedTuple):
    """A line in the form that the message shows.

    Attributes:
        lead: A blank line before the line, or no text.
        body: The text of the line.
        after: The blocks that are open in the message after the line.
        prefixes: For each container of the text, the text that starts a line in the container.
    """

    lead: str
    body: str
    after: OpenBlocks
    prefixes: tuple[str, ...]


class Draft:
    """A message that is filled line by line.

    Args:
        limit: Maximum length of the message, in UTF-16 code units.
        blocks: The blocks that are open in the text at the start of the message.
        line: If the message starts inside a line, this line.

    Attributes:
        text: The text of the message.
        places: The places where the message may end, except the last.
        at: Where the next line starts, counted from the start of the message in the text.
        end: The last place where the message may end.
        is_too_long: Whether the text continues after the limit.
        late: Where the last third of the message starts, in UTF-16 code units.
    """

    def __init__(self, limit: int, blocks: OpenBlocks = START, line: MarkdownLine | None = None) -> None:
        self._limit = limit
        self.late = limit - limit // 3
        self._blocks: OpenBlocks = blocks
        self._line: MarkdownLine | None = line
        self._prefixes: tuple[str, ...] = _quotes(blocks.containers)
        self.text: str
        self._shown: OpenBlocks
        self.text, self._shown = _opening(blocks, self._prefixes)
        self._units: int = utf16_units(self.text)
        self.places: list[Place] = []
        self.at: int = 0
        self._is_empty: bool = True
        self._unclosed: str = ""  # closes a block that ended without a closing line
        self._gap: str = ""  # the blank lines after the last line
        self._after_blank_line: bool = False
        self._marks: tuple[str, ...] = ()  # the marks that are open in the paragraph
        self._spans = SpanReader()  # shared by copies, so that a growing line is read once
        self._chosen: tuple[str, str, int] | None = None  # how the line that grows was shown, up to where
        self.is_too_long: bool = False
        self.end: Place = Place(0, 0, LETTER, 0, self._closing(), blocks)

    def __copy__(self) -> Draft:
        draft = object.__new__(Draft)
        vars(draft).update(vars(self))
        draft.places = [*self.places]
        return draft

    def keep_shown(self, shown: Draft) -> None:
        """Keep the form in which *shown* showed the growing line. *shown* is this message with that line."""
        self._chosen = shown._chosen

    def add_line(self, text: str, *, is_whole: bool, grows: bool = False) -> None:
        """Add the next line of the text without its ending, or the start of a line that does not fit.

        Args:
            text: The line.
            is_whole: Whether the line's ending follows.
            grows: Whether the last word may be incomplete.
        """
        source, before = text.rstrip(), self._blocks
        if grows and self._line is None and not is_settled(source):
            return
        line = self._line or read_line(source, before)
        end = self.at + len(source)
        if before.fence is not None and line.after is not before and line.kind != "closing":
            self._unclosed = self.end.closing  # the block ends with its quote or list item
            self._shown = self._shown.without_fence()
        shown = self._shown_line(source, line)
        if shown.body:
            self._add_place_before(line, shown.body, end)
            self._add(self._unclosed + self._gap + shown.lead)
            self._gap = self._unclosed = ""
        self._blocks, self._shown, self._prefixes = line.after, shown.after, shown.prefixes
        if shown.body:
            self._add_body(shown.body, line, end, is_whole=is_whole, grows=grows)
        self.at += len(text) + 1
        self._gap += f"{text[len(source) :]}\n"
        self._after_blank_line, self._line = line.kind == "blank", None
        if is_whole:
            self._chosen = None

    def _shown_line(self, source: str, line: MarkdownLine) -> _Shown:
        """Return the line in a form that has the same meaning in the message as in the text."""
        before = self._blocks
        continuing = self._prefixes[: None if line.kind == "more" else line.depth]
        if self._shown == before and self._line is None and self._chosen is None:
            new_prefixes = map(_prefix, line.after.containers[len(continuing) :])
            return _Shown("", source, line.after, (*continuing, *new_prefixes))
        new = len(line.after.containers) - len(continuing)
        if self._chosen is None:
            candidates = [*self._candidates(source, line)]
        else:
            lead, body, end = self._chosen
            candidates = [(lead, body + source[end:])]
        lines = [
            read_line(body, read_line(lead[:-1], self._shown).after if lead else self._shown)
            for lead, body in candidates
        ]
        same = (n for n, shown in enumerate(lines) if self._is_same(shown, line, continuing))
        alike = (n for n, shown in enumerate(lines) if shown.is_code == line.is_code)
        best = next(same, next(alike, 0))
        self._chosen = (*candidates[best], len(source))
        after = lines[best].after
        opened = [*map(_prefix, after.containers[max(0, len(after.containers) - new) :])] if new else []
        return _Shown(*candidates[best], after, (*continuing, *[""] * (new - len(opened)), *opened))

    def _candidates(self, source: str, line: MarkdownLine) -> Iterator[tuple[str, str]]:
        """Yield possible forms of the line, best first.

        Each is a pair: a blank line to insert before it (or an empty text), and the line.
        """
        continues = line.kind == "more"
        if self._line is not None:
            indent = "    " if line.is_code and line.after.fence is None else ""
            yield "", "".join(self._prefixes) + indent + source
            return
        depth, column = match_containers(
            source.expandtabs(4), self._blocks.containers, is_new_item=self._blocks.is_new_item
        )
        start = "".join(self._prefixes[: None if continues and self._is_empty else depth])
        rest = _from_column(source, column)
        yield "", (start + rest).rstrip()
        if line.kind == "code" and line.after.fence is not None:
            yield "", f"{start}    {rest}"
            return
        bare = rest.lstrip()
        if line.kind != "code":
            yield "", start + bare
        if continues:
            yield "", f"{start}    {bare}"
        else:
            lead = f"{start.rstrip()}\n"
            yield lead, start + rest
            if line.kind == "code":
                yield lead, f"{start}    {rest}"
            else:
                yield lead, start + bare

    def _is_same(self, shown: MarkdownLine, line: MarkdownLine, continuing: tuple[str, ...]) -> bool:
        """Return whether a line of the message has *line*'s kind in the text, and opens the same blocks."""
        a, b = shown.after, line.after
        new = b.containers[len(continuing) :]
        first = sum(map(bool, continuing))
        return (
            shown.kind == ("text" if line.kind == "more" and self._is_empty else line.kind)
            and [width == QUOTE for width in a.containers[first:]] == [width == QUOTE for width in new]
            and len(a.containers) == first + len(new)
            and (a.fence is None, *a[2:]) == (b.fence is None, *b[2:])
        )

    def _add_place_before(self, line: MarkdownLine, body: str, end: int) -> None:
        """Add the place before a line. The place is at *end* in the text."""
        before, following, rank = self._blocks, self.at, LINE
        blocks = before
        if line.kind != "more":
            self._marks = ()
        if self._is_empty:
            return
        if line.kind == "closing":  # left out, because the message closes the block
            following, blocks = end, line.after
        elif before.fence is not None and line.after is before:
            rank = CODE_LINE
        else:
            blocks = before.without_fence()
            if self._after_blank_line or line.kind == "opening":
                rank = PARAGRAPH
            elif line.kind == "more" and _LIKE_BLOCK.match(bare := body.lstrip(" >")):
                if read_line(bare).kind == "opening":  # alone, it would be a code block
                    return
                rank = LETTER
            elif self._marks:
                rank = SPAN_LINE
        self.places.append(Place(len(self.text), following, rank, self._units, self.end.closing, blocks))

    def _add_body(
        self, body: str, line: MarkdownLine, source_end: int, *, is_whole: bool, grows: bool
    ) -> None:
        """Add as much text of a line as fits, and the places in it."""
        closing = self._closing()
        fitting = _fitting(body, max(self._limit - self._units - utf16_units(closing), 0))
        self.is_too_long = fitting < len(body)
        spans: list[tuple[int, int]] = []
        if not line.is_code:
            spans, self._marks = self._spans.read(body[: fitting + LOOKAHEAD], self._marks)
        offset, rest = source_end - len(body), None
        if line.kind in ("opening", "closing"):
            first = HEAD_CHARACTERS
        else:
            first = self.at - offset if self._line is not None else end_of(_MARKS, body, 0)
        if self.is_too_long or not is_whole:
            rest = MarkdownLine("code" if line.is_code else "more", len(line.after.containers), line.after)
            counted, units, is_ascii = 0, self._units, body.isascii()
            for stop, rank, word in self._words(body, fitting, spans, ends=self.is_too_long or grows):
                units += stop - counted if is_ascii else utf16_units(body[counted:stop])
                counted = stop
                if stop > first:
                    end = len(self.text) + stop
                    self.places.append(Place(end, offset + word, rank, units, closing, line.after, rest))
        if fitting > first or self._is_empty or not self.is_too_long:
            self._add(body[:fitting])
            self._is_empty = False
            self.end = Place(len(self.text), offset + fitting, LETTER, self._units, closing, line.after, rest)

    def _words(
        self, line: str, end: int, spans: list[tuple[int, int]], *, ends: bool
    ) -> list[tuple[int, int, int]]:
        """Return the places in *line* where the message may end, in order: end, rank, start of the next word.

        *ends* means that the message may also end in the last word.
        """
        window = end_of(_BLANKS, line, end) + LOOKAHEAD
        late = end - max(0, self._units + utf16_units(line[:end]) - self.late)
        # Outside of spans, only the last word and one word before it are needed.
        for place in (end - NEAR_CHARACTERS, end - FAR_CHARACTERS, late - FAR_CHARACTERS, 0):
            start = max(0, place)
            words = _joined_words(line, start, window)
            places = [*_word_places(words, end, spans)]
            if start == 0 or any(rank == WORD for _, rank, _ in places[1:]):
                break
            # Earlier places cannot be the end of a full message.
            if len(places) > 1 and self._units + utf16_units(line[: places[0][0]]) < self.late:
                break
        first, last = next((word for word in reversed(words) if word[0] < end), (0, 0))
        if ends and last - first > LONG_WORD:
            positions = range(min(end, last - 1), first, -1)
            boundaries = (at for at in positions if _is_boundary(line, at))
            places += ((at, LETTER, at) for at in islice(boundaries, 2))
            places.sort()
        return places

    def _closing(self) -> str:
        """Return the line that closes the open code block of the message, or no text."""
        if self._shown.fence is None:
            return ""
        closing = f"\n{''.join(self._prefixes)}{self._shown.fence.mark}"
        return closing if utf16_units(closing) <= self._limit // 2 else ""

    def _add(self, text: str) -> None:
        self.text += text
        self._units += utf16_units(text)


def utf16_units(text: str) -> int:
    """Return the length of *text* in UTF-16 code units, as Telegram counts. No chat service counts more.

    >>> utf16_units("a😀")
    3
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of the match of *pattern*, which may be empty, at *at*."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _fitting(text: str, room: int) -> int:
    """Return the number of characters of *text* that fit into *room*, in UTF-16 code units."""
    most = min(len(text), room)
    if utf16_units(text[:most]) > room:
        most = bisect_right(range(1, most + 1), room, key=lambda n: utf16_units(text[:n]))
    return most if text.isascii() else _outside_character(text, most)


def _outside_character(text: str, at: int) -> int:
    """Return the last place up to *at* that cuts no accent or joined emoji, or *at* if none is near."""
    for place in range(at, max(0, at - LONGEST_CHARACTER), -1):
        if place == len(text) or not (_extends(text[place]) or text[place - 1] == JOINER):
            return place
    return at


def _extends(character: str) -> bool:
    """Whether *character* is displayed as part of the character before it."""
    return character == JOINER or "\U0001f3fb" <= character <= "\U0001f3ff" or category(character)[0] == "M"


def _prefix(width: int) -> str:
    """Return the text that starts a line in a quote, or in a list item of this width."""
    return " " * width or "> "


def _quotes(containers: tuple[int, ...]) -> tuple[str, ...]:
    """Return the marks of the first quotes. A new message starts with them instead of the containers."""
    quotes = [at for at, width in enumerate(containers) if width == QUOTE][:MOST_QUOTES]
    return tuple("> " if at in quotes else "" for at in range(len(containers)))


def _opening(blocks: OpenBlocks, prefixes: tuple[str, ...]) -> tuple[str, OpenBlocks]:
    """Return the line that opens the open code block again, if any, and the blocks that are open after it."""
    if blocks.fence is None:
        return "", START
    word = blocks.fence.info.strip().partition(" ")[0]
    info = word if len(word) <= INFO_CHARACTERS else ""
    fence = Fence(blocks.fence.indent, blocks.fence.mark[:MOST_MARKS], info)
    quotes = "".join(prefixes)
    containers = (QUOTE,) * quotes.count(">")
    return f"{quotes}{' ' * fence.indent}{fence.mark}{info}\n", OpenBlocks(containers, fence)


def _from_column(line: str, column: int) -> str:
    """Return *line* from *column* to its end."""
    if "\t" not in line[:column]:
        return line[column:]
    at = next(at for at in numbers() if at == len(line) or len(line[:at].expandtabs(4)) >= column)
    return " " * (len(line[:at].expandtabs(4)) - column) + line[at:]


def _word_places(
    words: list[tuple[int, int]], end: int, spans: list[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """Yield the places after words that end at *end* or before.

    A place is: the end of the word, its rank, the start of the next word.
    """
    for (_, stop), (word, _) in pairwise(words):
        if stop <= end:
            at = bisect_left(spans, (stop, 0)) - 1 if spans else -1
            yield stop, SPAN_WORD if at >= 0 and stop < spans[at][1] else WORD, word


def _joined_words(line: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of words. A word that looks like a block's start belongs to the word before it."""
    words: list[tuple[int, int]] = []
    for match in _WORD.finditer(line, start, end):
        if words and line[match.start()] in _MARK_STARTS and _LIKE_BLOCK.match(line, match.start()):
            words[-1] = words[-1][0], match.end()
        else:
            words.append(match.span())
    return words


def _is_boundary(text: str, at: int) -> bool:
    """Return whether a message may start inside a word at *at*, without splitting a character or a block."""
    joins = category(text[at]).startswith("M") or "\udc00" <= text[at] <= "\udfff"
    return not joins and not text[at].isspace() and not _LIKE_BLOCK.match(text, at)
