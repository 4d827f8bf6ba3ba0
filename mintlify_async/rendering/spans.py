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
        was_open = bool(marks)
        escape, mark = match.groups()
        if marks and marks[-1][0] == "`":
            if mark == marks[-1]:
                marks.pop()
        elif not escape:
            _take(mark, marks, match)
        if marks and not was_open:
            start = match.start()
        elif was_open and not marks:
            spans.append((start, match.end()))
    return [*spans, (start, len(line) + 1)] if marks else spans


def _take(mark: str, marks: list[str], match: re.Match[str]) -> None:
    """Open or close a span with *mark*."""
    if mark in "()":
        if marks and marks[-1] == "(":
            if mark == ")":
                marks.pop()
            elif len(marks) < _MOST_MARKS:
                marks.append(mark)
    elif mark[0] == "]":
        if "[" in marks:
            del marks[len(marks) - 1 - marks[::-1].index("[") :]
            if mark == "](":
                marks.append("(")
    elif mark[0] == "`" or mark[-1] == "[":
        if len(marks) < _MOST_MARKS:
            marks.append(mark[-1] if mark[-1] == "[" else mark)
    else:
        line, start, end = match.string, match.start(), match.end()
        before, after = line[start - 1 : start], line[end : end + 1]
        if before.strip() and mark in marks:
            del marks[marks.index(mark) :]
        elif len(marks) < _MOST_MARKS and after.strip() and not before.isalnum():
            marks.append(mark)
