"""Spans of Markdown in a line: links, code, bold and other marked words, which should not be cut. No I/O.

An open span counts as a span, because more text may close it.
"""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(r"(\\?)(`+|!?\[|\]\(|[\]()]|\*+|_+|~~+)")
_MOST_MARKS: Final = 20
"""Maximum number of open marks. Without a limit, a text of marks would take quadratic time."""


class SpanReader:
    """Finds the marked words of each line. If a line has grown, only its end is read again."""

    def __init__(self) -> None:
        self._line = ""
        self._begin(())

    def _begin(self, before: tuple[str, ...]) -> None:
        self._before = before
        self._at = 0  # up to here, more text changes nothing
        self._marks = [*before]  # the marks that are open at _at
        self._start = 0  # the start of the span that is open at _at
        self._spans: list[tuple[int, int]] = []  # the spans that have ended before _at

    def read(self, line: str, before: tuple[str, ...]) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
        """Return where marked words start and end in *line*. A span may continue after the line.

        Args:
            line: A line of a paragraph.
            before: The marks that are open before the line, outermost first.

        Returns:
            The spans, and the marks that are open at the line's end.
        """
        if before != self._before or not line.startswith(self._line):
            self._begin(before)
        self._line = line
        marks, spans, start, last = self._marks, self._spans, self._start, None
        for match in _MARK.finditer(line, self._at):
            if match.end() == len(line):  # the mark may grow
                marks, spans, last = [*marks], [*spans], match
            else:
                self._at = match.end()
            was_open = bool(marks)
            _take(match, marks)
            if marks and not was_open:
                start = match.start()
            elif was_open and not marks:
                spans.append((start, match.end()))
            if last is None:
                self._start = start
        if last is None:
            self._at = max(self._at, len(line.rstrip("\\!~")))
        return ([*spans, (start, len(line) + 1)] if marks else spans), tuple(marks)


def _take(match: re.Match[str], marks: list[str]) -> None:
    """Open or close a span with the mark of *match*. *marks* are the marks that are open before it."""
    escape, mark = match.groups()
    if marks and marks[-1][0] == "`":
        if mark == marks[-1]:
            marks.pop()
    elif escape:
        return
    elif mark in "()":
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
