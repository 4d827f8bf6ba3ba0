"""Completes links to paths of the documentation with the site URL, outside of code. No I/O.

A run of backticks starts code only if the same run follows in its paragraph. So a link after an open run is
held back until this is certain.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from .blocks import MarkdownLine

_TOKEN: Final = re.compile(r"\\.|`+|\]\([ \t\r\n]{0,9}<?(?=/(?!/))", re.DOTALL)
_RUN: Final = re.compile(r"`+")
_ENDS_PATH: Final = re.compile(r"[\s/?#)>]|\Z")


class SiteAddress:
    """The site URL, to put before paths. A path may start with the path of the site URL, or not.

    Attributes:
        path: The path of the site URL: empty, or with a slash at its start only.
    """

    def __init__(self, site: str) -> None:
        scheme, mark, host_and_path = site.rstrip("/").partition("://")
        host, slash, path = host_and_path.partition("/")
        self._host, self.path = scheme + mark + host, slash + path

    def before(self, path: str) -> str:
        """Return the text to put before *path*. *path* starts with a slash."""
        has_path = path.startswith(self.path) and _ENDS_PATH.match(path, len(self.path))
        return self._host if has_path else self._host + self.path


class SiteLinks:
    """Completes the links of one text part. The joined results do not depend on how the text is split."""

    def __init__(self, site: str) -> None:
        self._site = SiteAddress(site)
        # A path is read up to the character after the site's path.
        self._longest = len(self._site.path) + 2
        self._link_start = re.compile(
            rf"\](?:\([ \t\r\n]{{0,9}}(?:<?(?:/[^\s)>]{{0,{self._longest}}})?)?)?\Z"
        )
        self._in_code_block = False
        self._ready = ""  # the end of a paragraph, which was held back
        self._tail: list[str] = []  # the end of the text, if it may start a link or code
        self._run = ""  # the backticks that may have opened code
        self._span: list[str] = []  # the text since these backticks
        self._held: list[str] = []  # the text in _span that was not returned

    def begin_line(self, line: MarkdownLine) -> None:
        """Set the kind of the line that :meth:`feed` gets next, after the line ending."""
        if line.kind != "more":
            self._ready += self._end_paragraph()
        self._in_code_block = line.is_code

    def feed(self, text: str) -> str:
        """Add *text*. Return the text that cannot change any more."""
        if self._in_code_block:
            ready, self._ready = self._ready, ""
            return ready + text
        if self._tail and self._tail[0][0] == "`" and not text.strip("`"):  # a run of backticks that grows
            self._tail.append(text)
            return ""
        text = "".join([*self._tail, text])
        end = self._certain(text)
        self._tail = [text[end:]] if end < len(text) else []
        ready, self._ready = self._ready, ""
        return ready + self._complete(text, end)

    def close(self) -> str:
        """Return the text that is held back. The next piece starts another part."""
        ready, self._ready, self._in_code_block = self._ready + self._end_paragraph(), "", False
        return ready

    def _certain(self, text: str) -> int:
        """Return the length of *text* up to the first mark that may be incomplete."""
        bare = text.rstrip("`")
        escapes = len(bare) - len(bare.rstrip("\\"))
        if len(bare) < len(text) or escapes:
            return len(bare) - escapes % 2
        at = text.rfind("]", max(0, len(text) - self._longest - 16))
        match = self._link_start.match(text, at) if at >= 0 else None
        return len(text) if match is None else at

    def _complete(self, text: str, end: int) -> str:
        """Return *text* up to *end* with full URLs, without the text that is held back."""
        output: list[str] = []
        at = begin = 0
        while at < end:
            if self._run:
                at = begin = self._after_run(text, at, end, output)
                continue
            token = _TOKEN.search(text, at)
            if token is None or token.start() >= end:
                break
            at = token.end()
            if token[0][0] == "]":
                output += [text[begin:at], self._site.before(text[at : at + self._longest])]
                begin = at
            elif token[0][0] == "`":
                output.append(text[begin:at])
                self._run, self._span, begin = token[0], [token[0]], at
        output.append(text[begin:end])
        return "".join(output)

    def _after_run(self, text: str, at: int, end: int, output: list[str]) -> int:
        """Process the text after open backticks, up to *end*. Return the end of the code, or *end*."""
        stop = next((run.end() for run in _RUN.finditer(text, at, end) if run[0] == self._run), end)
        piece = text[at:stop]
        self._span.append(piece)
        link = 0 if self._held else piece.find("]")
        self._held += [piece[link:]] if link >= 0 else []
        output.append(piece[: link if link >= 0 else None])
        if stop < end or piece.endswith(self._run):
            output += self._held
            self._run, self._span, self._held = "", [], []
        return stop

    def _end_paragraph(self) -> str:
        """Return the text that was held back. No backticks follow."""
        text = "".join([*self._span, *self._tail])
        shown = sum(map(len, self._span)) - sum(map(len, self._held))
        self._run, self._span, self._held, self._tail = "", [], [], []
        return self._completed(text)[shown:]

    def _completed(self, text: str) -> str:
        """Return *text*, the end of a paragraph, with full URLs."""
        runs: dict[int, list[int]] = {}
        for run in _RUN.finditer(text):
            runs.setdefault(len(run[0]), []).append(run.start())
        output: list[str] = []
        at = begin = 0
        while token := _TOKEN.search(text, at):
            at = token.end()
            if token[0][0] == "]":
                output += [text[begin:at], self._site.before(text[at : at + self._longest])]
                begin = at
            elif token[0][0] == "`":
                same = runs.get(len(token[0]), [])
                closing = bisect_right(same, token.start())
                at = same[closing] + len(token[0]) if closing < len(same) else at
        return "".join([*output, text[begin:]])
