"""Reads the code blocks of README and pages. A comment above a block says how it runs.

The comment is ``<!-- block: script -->``. What stands after a block's language is a file name.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

FENCE = re.compile(
    r"^(?P<lead>[ \t]*<!-- block: (?P<mark>[^\n]*?) -->\n)?"
    r"(?P<indent>[ \t]*)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^[ \t]*(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
RUN = ("python", "console")
"""The languages that run; blocks of others are only shown."""

KINDS = {"python": ("fragment", "script", "test", "example", "skip"), "console": ("console", "skip")}


class Block(NamedTuple):
    """One fenced block.

    Attributes:
        file: The page.
        line: The line of the block's first line of text, from 1.
        language: The first word after the fence.
        kind: How it runs, a word of ``KINDS``, or ``shown`` for other languages.
        text: The text, without the fence's indentation.
        title: Its file name on the page, if it has one.
        reason: Why it does not run.
    """

    file: Path
    line: int
    language: str
    kind: str
    text: str
    title: str = ""
    reason: str = ""

    @property
    def where(self) -> str:
        """The place, as the id of a test."""
        return f"{self.file.stem}-{self.line}-{self.kind}"


def blocks_of(file: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order. A block inside a list may be indented."""
    page = file.read_text(encoding="utf-8")
    return [_block(file, match) for match in FENCE.finditer(page)]


def _block(file: Path, match: re.Match[str]) -> Block:
    indent, text = match["indent"], match["text"]
    line = match.string.count("\n", 0, match.start("text")) + 1
    text = "".join(part.removeprefix(indent) for part in text.splitlines(keepends=True))
    language, _, title = match["info"].strip().partition(" ")
    if language not in RUN:
        return Block(file, line, language, "shown", text)
    place = f"{file.name}:{line}"
    assert re.fullmatch(r"(?:[\w-]+\.\w+)?", title), f"{place}: {title!r} is not a file name"
    default = "fragment" if language == "python" else "console"
    kind, _, reason = (match["mark"] or default).partition("=")
    assert kind in KINDS[language], f"{place}: {kind!r} is none of {KINDS[language]}"
    assert bool(reason) == (kind == "skip"), f'{place}: write skip="reason"'
    assert title or kind != "example", f"{place}: an example has the name of its file as its title"
    return Block(file, line, language, kind, text, title, reason.strip('"'))


def modules_of(block: Block) -> set[str]:
    """Return the modules that a Python block imports, by their first names."""
    nodes = list(ast.walk(ast.parse(block.text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}


def example_text(name: str) -> str:
    """Return the contents of ``examples/name``."""
    return (ROOT / "examples" / name).read_text(encoding="utf-8")


def with_examples(page: str) -> str:
    """Return the text of a page, with the present contents of each example that it shows."""

    def renewed(match: re.Match[str]) -> str:
        if match["mark"] != "example":
            return match[0]
        indent, fence, info = match["indent"], match["fence"], match["info"]
        text = textwrap.indent(example_text(info.split()[-1]), indent)
        return f"{match['lead']}{indent}{fence}{info}\n{text}{indent}{fence}"

    return FENCE.sub(renewed, page)
