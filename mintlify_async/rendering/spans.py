"""Spans of Markdown: links, code, bold and other marked words in a line, which should not be cut. No I/O.

An open span counts until it is closed, because text that grows cannot tell whether that will happen.
"""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(r"(\\?)(`+|!?\[|\]\(|[\]()]|\*+|_+|~~+)")
_MOST_MARKS: Final = 20
"""How many marks may be open; a text that consists of marks would take quadratic time."""


def spans_of(line: str, marks: list[str]) -> list[tuple[int, int]]:
    """Return where marked words start and end in *line*, or that they continue beyond its end.

    Args:
        line: A line of a paragraph.
        marks: The marks that are open, outermost first. They are changed to those open at the line's end.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _MARK.finditer(line):
        was_open, mark = bool(marks), match[2]
        if marks and marks[-1][0] == "`":
            if mark == marks[-1]:
                marks.pop()
        elif not match[1]:
            _take(mark, marks, line[match.start() - 1 : match.start()], line[match.end() : match.end() + 1])
        if marks and not was_open:
            start = match.start()
        elif was_open and not marks:
            spans.append((start, match.end()))
    return [*spans, (start, len(line) + 1)] if marks else spans


def _take(mark: str, marks: list[str], before: str, after: str) -> None:
    """Open or close a span with *mark*, which stands between two characters."""
    can_open = len(marks) < _MOST_MARKS
    if mark[0] == "`" or mark[-1] == "[":
        if can_open:
            marks.append(mark[-1] if mark[-1] == "[" else mark)
    elif mark[0] == "]":
        if "[" in marks:
            del marks[len(marks) - 1 - marks[::-1].index("[") :]
            if mark == "](":
                marks.append("(")
    elif mark in "()":
        if marks and marks[-1] == "(":
            if mark == ")":
                marks.pop()
            elif can_open:
                marks.append(mark)
    elif before.strip() and mark in marks:
        del marks[marks.index(mark) :]
    elif can_open and after.strip() and not before.isalnum():
        marks.append(mark)
