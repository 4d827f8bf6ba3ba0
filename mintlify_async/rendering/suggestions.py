"""The pages that an answer suggests, and its ``suggestions`` block. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from ..messages import Message
from ..model.wire_value import WireValue
from .blocks import START, read_line
from .finding_sources import whole_address
from .readable_text import ReadableText, is_hidden, texts_of


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Suggestion(WireValue):
    """A documentation page that an answer suggests.

    Args:
        title: The text to show.
        path: The page's full URL if it is known, else its path on the site.
    """

    title: str
    path: str


_BULLET: Final = r"[ \t]*(?:[-*][ \t]+)?"


def suggestions_in(lines: Iterable[str], site: str | None = None) -> Iterator[Suggestion]:
    """Yield the suggestions in the lines of a block: ``(Title)[/path]`` or ``[Title](/path)`` each."""
    for line in lines:
        # The end of the line is stripped first. A regular expression that looks for it after each ``)[``
        # would take time quadratic in the length of the line.
        link = re.sub(_BULLET, "", line.rstrip(" \t\r\n"), count=1)
        between, end = (")[", "]") if link.startswith("(") else ("](", ")")
        at = link.rfind(between, 2, -2)  # neither the title nor the path is empty
        title, path = link[1:at], link[at + 2 : -1]
        if at > 0 and link[0] in "([" and link[-1] == end and end not in path and path.split() == [path]:
            yield Suggestion(title=title, path=whole_address(path, site))


def suggestions_of(message: Message, *, site: str | None = None) -> list[Suggestion]:
    """Return the pages that an assistant's message suggests. Each page appears once.

    Args:
        message: The message.
        site: The site URL. With it, paths become full URLs.
    """
    pages: dict[str, Suggestion] = {}
    for part in texts_of(message):
        for suggestion in suggestions_in(_hidden_lines(part), site):
            pages.setdefault(suggestion.path, suggestion)
    return list(pages.values())


def split_suggestions(text: str) -> tuple[str, list[Suggestion]]:
    r"""Remove the ``suggestions`` block from a text, and return the text and the suggestions.

    The assistant may add a fenced block of reversed links (``(Title)[/path]``) for buttons. Blocks inside
    other fenced blocks are not changed. A block whose end has not arrived yet is also removed. Blank lines at
    the start and line endings at the end are removed.

    Example:
        >>> split_suggestions("See above.\n\n```suggestions\n(Quickstart)[/quickstart]\n```")
        ('See above.', [Suggestion(title='Quickstart', path='/quickstart')])
    """
    readable = ReadableText()
    return readable.feed(text) + readable.end_part(), list(suggestions_in(_hidden_lines(text)))


def _hidden_lines(text: str) -> Iterator[str]:
    """Yield the lines of *text* that belong to a ``suggestions`` block."""
    blocks = START
    for line in text.split("\n"):
        before, blocks = blocks, read_line(line, blocks).after
        if is_hidden(before) or is_hidden(blocks):
            yield line
