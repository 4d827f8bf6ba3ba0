"""Blocks of Markdown: how each line opens, continues or closes quotes, list items and code blocks. No I/O.

:func:`read_line` reads one line after the other, by the rules of CommonMark. It is the only rule about code
blocks in this package, so all views agree where code starts and ends. HTML blocks and tables count as
paragraphs, because chat services and the pages of the documentation service show code blocks in them.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

QUOTE: Final = 0
HEAD_CHARACTERS: Final = 100
"""Number of characters of a line that are read, so a long line takes no more time."""

_ITEM: Final = re.compile(r"(?:[-+*]|([0-9]{1,9})[.)])(?= |\Z)")
_BREAK: Final = re.compile(r"(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})\Z")
_HEADING: Final = re.compile(r"#{1,6}(?: |\Z)")
_UNDERLINE: Final = re.compile(r"(?:=+|-+) *\Z")
_FENCE: Final = re.compile(r"(`{3,}(?=[^`]*\Z)|~{3,})(.*)")
_BLOCK_STARTS: Final = " \t\r`~#>-+*_=0123456789"
"""Outside of quotes and list items, a line that is more than text starts with one of these characters."""
_SETTLED: Final = re.compile(
    r"[\s>]*(?:(?:[-+*]|\d{1,9}[.)])[\s>]+)*"
    r"(?:[^\s\d`~>#*+_=-]|\d+(?:[^\d.)]|[.)]\S)|`{1,2}[^`]|~{1,2}[^~]|#+[^#]"
    r"|\*+[^*\s]|_+[^_\s]|=+[^=\s]|-+[^-\s]|\+\S)"
)


class Fence(NamedTuple):
    """The line that opened a code block: the blanks before its mark, the mark, and the language."""

    indent: int
    mark: str
    info: str


class OpenBlocks(NamedTuple):
    """The blocks that are open between two lines.

    Attributes:
        containers: The quotes and list items, outermost first. QUOTE, or the width of an item's indentation.
        fence: The code block with a mark, or None.
        is_paragraph: Whether the next line may continue a paragraph.
        is_new_item: Whether the innermost item is still empty.
    """

    containers: tuple[int, ...] = ()
    fence: Fence | None = None
    is_paragraph: bool = False
    is_new_item: bool = False

    def without_fence(self) -> OpenBlocks:
        """Return the same blocks without the code block."""
        return OpenBlocks(self.containers, None, self.is_paragraph, self.is_new_item)


class MarkdownLine(NamedTuple):
    """The kind of a line, and the blocks that are open after it.

    Attributes:
        kind: The line of a code block's mark is an ``opening`` or a ``closing``. ``more`` continues a
            paragraph.
        depth: The number of earlier open containers that continue in this line.
        after: The blocks that are open after the line.
    """

    kind: Literal["blank", "text", "more", "code", "opening", "closing"]
    depth: int
    after: OpenBlocks

    @property
    def is_code(self) -> bool:
        """Whether the line belongs to a code block."""
        return self.kind in ("code", "opening", "closing")


START: Final = OpenBlocks()
_PLAIN: Final = OpenBlocks(is_paragraph=True)


def is_settled(start: str) -> bool:
    """Return whether *start*, the start of a line, decides the line's kind, whatever text follows."""
    return len(start) >= HEAD_CHARACTERS or _SETTLED.match(start) is not None


def match_containers(text: str, containers: tuple[int, ...], *, is_new_item: bool = False) -> tuple[int, int]:
    """Return the number of *containers* that continue in *text*, a line without tabs, and their end."""
    at = 0
    for depth, width in enumerate(containers):
        indent = _indent(text, at)
        if width == QUOTE:
            if indent > 3 or not text.startswith(">", at + indent):
                return depth, at
            at += indent + 1
            at += text.startswith(" ", at)
        elif at + indent == len(text):
            if is_new_item and depth + 1 == len(containers):
                return depth, at
            at = len(text)
        elif indent < width:
            return depth, at
        else:
            at += width
    return len(containers), at


def read_line(line: str, before: OpenBlocks = START) -> MarkdownLine:
    """Return the kind of *line*, which has no line ending.

    *before* are the blocks that are open before the line.
    """
    if not before.containers and before.fence is None and line[:1] not in _BLOCK_STARTS:  # most lines
        return MarkdownLine("more" if before.is_paragraph else "text", 0, _PLAIN)
    head = line[:HEAD_CHARACTERS].rstrip(" \t\r")
    if not head and line.strip(" \t\r"):
        head = f"{line[:HEAD_CHARACTERS]}…"
    text = head.expandtabs(4)
    depth, at = match_containers(text, before.containers, is_new_item=before.is_new_item)
    if before.fence is not None and depth == len(before.containers):
        indent = _indent(text, at)
        rest, mark = text[at + indent :], before.fence.mark
        if indent < 4 and rest.startswith(mark) and not rest.strip(mark[0]):
            return MarkdownLine("closing", depth, OpenBlocks(before.containers))
        return MarkdownLine("code", depth, before)
    return _read_rest(text, at, before, depth)


def _read_rest(text: str, at: int, before: OpenBlocks, depth: int) -> MarkdownLine:
    """Return the kind of a line outside of a code block. Its text starts at the column *at*."""
    is_inside = depth == len(before.containers)
    new, at, indent = _new_containers(text, at, interrupts=before.is_paragraph and is_inside)
    containers = (*before.containers[:depth], *new)
    is_paragraph = before.is_paragraph and not new
    if at + indent == len(text):
        is_new_item = bool(new) and new[-1] != QUOTE
        return MarkdownLine(
            "text" if new else "blank", depth, OpenBlocks(containers, is_new_item=is_new_item)
        )
    if indent >= 4 and not is_paragraph:
        return MarkdownLine("code", depth, OpenBlocks(containers))
    rest = text[at + indent :]
    if indent < 4 and rest[0] in _BLOCK_STARTS:
        if fence := _FENCE.match(rest):
            return MarkdownLine("opening", depth, OpenBlocks(containers, Fence(indent, *fence.groups())))
        is_underline = is_paragraph and is_inside and _UNDERLINE.match(rest)
        if is_underline or _HEADING.match(rest) or _BREAK.match(rest):
            return MarkdownLine("text", depth, OpenBlocks(containers))
    if is_paragraph:  # a paragraph continues, even without its containers' marks
        return MarkdownLine("more", depth, OpenBlocks(before.containers, is_paragraph=True))
    return MarkdownLine("text", depth, OpenBlocks(containers, is_paragraph=True))


def _new_containers(text: str, at: int, *, interrupts: bool) -> tuple[list[int], int, int]:
    """Return the quotes and items that start at the column *at*, the column of their text, and its indent.

    *interrupts* means that a paragraph is open. Some items may not interrupt a paragraph.
    """
    containers: list[int] = []
    while (indent := _indent(text, at)) < 4 and text[at + indent : at + indent + 1] in _BLOCK_STARTS:
        start = at + indent
        if text.startswith(">", start):
            width, at = QUOTE, start + 1
            at += text.startswith(" ", at)
        elif (item := _ITEM.match(text, start)) and not _BREAK.match(text, start):
            if interrupts and not containers and (item[1] not in (None, "1") or item.end() == len(text)):
                break
            blanks = _indent(text, item.end())
            if not 1 <= blanks <= 4 or item.end() + blanks == len(text):
                blanks = 1
            width, at = item.end() + blanks - at, min(item.end() + blanks, len(text))
        else:
            break
        containers.append(width)
    return containers, at, indent


def _indent(text: str, at: int) -> int:
    return len(text) - at - len(text[at:].lstrip(" "))
