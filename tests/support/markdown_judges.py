"""What two foreign parsers of CommonMark, with HTML as text, see in a Markdown text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import commonmark.blocks
from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN = MarkdownIt("commonmark", {"maxNesting": 100}).disable("html_block")
_FENCE_LINE = re.compile(r"[\s>]*(?:(?:[-+*]|\d+[.)])[\s>]*)*(?:```|~~~)")


def kinds(text: str) -> list[str]:
    """Return the kind of each line: prose, code, a code block's ``mark``, or one that is left ``open``."""
    lines = text.split("\n")
    result = ["prose"] * len(lines)
    for token in MARKDOWN.parse(text):
        if token.type in ("fence", "code_block") and token.map:
            start, end = token.map[0], min(token.map[1], len(lines))
            result[start:end] = ["code"] * (end - start)
            if token.type == "fence":
                count = token.content.count("\n") + (token.content[-1:] not in ("", "\n"))
                is_closed = end - start == count + 2
                result[start] = "mark" if is_closed else "open"
                if is_closed:
                    result[end - 1] = "mark"
    return result


def suggestion_lines(text: str) -> set[int]:
    """Return the numbers of the lines of ``suggestions`` blocks in no quote and in no item."""
    return {
        number
        for token in MARKDOWN.parse(text)
        if token.type == "fence" and token.level == 0 and token.info.strip() == "suggestions" and token.map
        for number in range(*token.map)
    }


def agree(text: str) -> bool:
    """Return whether both parsers see the same lines as code; blank ones do not count."""
    lines = text.split("\n")
    code = [False] * len(lines)
    for node, entering in _commonmark().parse(text).walker():
        if entering and node.t == "code_block":
            start, end = node.sourcepos[0][0] - 1, min(node.sourcepos[1][0], len(lines))
            code[start:end] = [True] * (end - start)
    pairs = zip(kinds(text), code, lines, strict=True)
    return all((kind != "prose") == is_code for kind, is_code, line in pairs if line.strip(" \t>"))


def _commonmark() -> commonmark.blocks.Parser:
    starts = commonmark.blocks.BlockStarts
    starts.METHODS = [method for method in starts.METHODS if method != "html_block"]
    return commonmark.blocks.Parser()


def characters(text: str) -> list[tuple[str, bool]]:
    """Return each character that is no blank and belongs to no mark of a block, and whether it is code."""
    return [
        (character, kind != "prose")
        for line, kind in zip(text.split("\n"), kinds(text), strict=True)
        if not _FENCE_LINE.match(line)
        for character in "".join(line.split()).replace(">", "")
    ]


def links(text: str) -> list[str]:
    """Return the addresses of links and pictures."""
    tokens = _inside(MARKDOWN.parse(text))
    return [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in tokens if token.attrs]


def code(text: str) -> list[str]:
    """Return the content of code blocks and of code in lines."""
    types = ("fence", "code_block", "code_inline")
    return [token.content for token in _inside(MARKDOWN.parse(text)) if token.type in types]


def _inside(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inside(token.children or [])
