"""Sources of an answer, and the pages that it suggests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, cast

import attrs
from attrs import frozen

from ..messages import Message, SourceDocumentPart, SourceUrlPart, ToolPart
from ..model.json_text import as_object
from ..model.wire_value import WireValue


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class AnswerSource(WireValue):
    """A source of an answer.

    Args:
        type: ``url`` (a page's address), ``document``, or ``page`` (found by the ``search`` tool).
        url: The address, or the path relative to the site; None for a document.
        title: Its title, or None.
        id: The source's id in the stream, or None.
        filename: A document's file name, or None.
        media_type: A document's media type, or None.
    """

    type: Literal["url", "document", "page"]
    url: str | None = None
    title: str | None = None
    id: str | None = None
    filename: str | None = None
    media_type: str | None = None


def sources_of(message: Message) -> list[AnswerSource]:
    """Return the sources of *message* in the order of its parts, without duplicates.

    Sources are parts of their own, or results of the ``search`` tool. Two with the same
    address are one; if only the later one has a title, it is used.
    """
    found: dict[tuple[str | None, ...], AnswerSource] = {}
    for source in _all_sources(message):
        key = (source.url,) if source.url is not None else ("", source.id, source.title, source.filename)
        known = found.setdefault(key, source)
        if known.title is None and source.title is not None:
            found[key] = attrs.evolve(known, title=source.title)
    return list(found.values())


def _all_sources(message: Message) -> Iterator[AnswerSource]:
    for part in message.parts:
        if isinstance(part, SourceUrlPart):
            yield AnswerSource(type="url", url=part.url, title=part.title, id=part.source_id)
        elif isinstance(part, SourceDocumentPart):
            yield AnswerSource(
                type="document",
                title=part.title,
                id=part.source_id,
                filename=part.filename,
                media_type=part.media_type,
            )
        elif isinstance(part, ToolPart) and part.tool_name == "search":
            yield from _search_results(part.output)


def _search_results(output: object) -> Iterator[AnswerSource]:
    """Yield the pages in a search's output; anything else in it is skipped."""
    results = (as_object(output) or {}).get("results")
    for result in cast("Sequence[object]", results) if isinstance(results, list) else ():
        page = as_object(result) or {}
        path = page.get("path") or page.get("url")
        title = (as_object(page.get("metadata")) or {}).get("title") or page.get("title")
        if isinstance(path, str):
            yield AnswerSource(type="page", url=path, title=title if isinstance(title, str) else None)


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Suggestion(WireValue):
    """A page that an answer suggests.

    Args:
        title: What to show.
        path: The page's path on the site, or a whole address.
    """

    title: str
    path: str


_FENCE: Final = r" {0,3}(`{3,}|~{3,})(.*)"
_BULLET: Final = r"[ \t]*(?:[-*][ \t]+)?"


def split_suggestions(text: str) -> tuple[str, list[Suggestion]]:
    r"""Split the ``suggestions`` block off an answer's text.

    The assistant may end a text with a fenced block whose lines are ``(Title)[/path]``: reversed
    links, to be shown as buttons. Blocks inside other fenced blocks are left alone. A block whose
    end has not arrived yet is split off, too.

    >>> split_suggestions("See above.\n\n```suggestions\n(Quickstart)[/quickstart]\n```")
    ('See above.', [Suggestion(title='Quickstart', path='/quickstart')])
    """
    blocks = SuggestionBlocks()
    kept: list[str] = []
    hidden: list[str] = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        (hidden if blocks.hides(line) else kept).append(line)
    suggestions = [found for line in hidden for found in _suggestion(line)]
    if not kept or suggestions or blocks.inside:
        return "".join(kept).rstrip(), suggestions
    return text, suggestions


class SuggestionBlocks:
    """Follows the code blocks of a text, line by line, to tell a ``suggestions`` block from the rest.

    Attributes:
        fence: The mark that opened the present block; empty outside of blocks.
        inside: Whether that is a ``suggestions`` block.
    """

    def __init__(self) -> None:
        """Begin outside of any block."""
        self.fence = ""
        self.inside = False

    def hides(self, line: str) -> bool:
        """Take the next whole line; return whether it belongs to a ``suggestions`` block."""
        was_inside = self.inside
        mark, word = _fence_of(line)
        if self.fence:
            if mark.startswith(self.fence) and not word:
                self.fence, self.inside = "", False
        elif mark and not (mark[0] == "`" and "`" in word):
            self.fence, self.inside = mark, word == "suggestions"
        return was_inside or self.inside


# The end of a line is stripped before matching: an expression that looks for it after ``.*`` or after
# each ``)[`` takes time quadratic in the length of the line.


def _fence_of(line: str) -> tuple[str, str]:
    """Return the fence that *line* is, and the word after it; empty strings when it is no fence."""
    found = re.match(_FENCE, line)
    return (found[1], _without_end(found[2]).lstrip(" \t")) if found else ("", "")


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r").rstrip(" \t")


def _suggestion(line: str) -> Iterator[Suggestion]:
    """Yield the suggestion of *line*, if it is a link: ``(Title)[/path]`` or ``[Title](/path)``."""
    link = re.sub(_BULLET, "", _without_end(line), count=1)
    between, end = (")[", "]") if link.startswith("(") else ("](", ")")
    at = link.rfind(between, 2, -2)  # neither the title nor the path is empty
    title, path = link[1:at], link[at + 2 : -1]
    if at > 0 and link[0] in "([" and link[-1] == end and end not in path and path.split() == [path]:
        yield Suggestion(title=title, path=path)
