"""Markdown of whole answers: text, sources and suggestions as plain lists. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

from ..errors import ConfigurationError
from ..messages import Message
from .sources import AnswerSource, Suggestion, SuggestionBlocks, sources_of, split_suggestions

__all__ = ["WithoutSuggestions", "answer_markdown", "extras_markdown"]


class HasAnswer(Protocol):
    """An answer, a reply, or any other object with an answer's message."""

    @property
    def message(self) -> Message | None:
        """The answer as a message, or None."""
        ...


def answer_markdown(answer: HasAnswer | Message, *, site: str | None = None) -> str:
    """Return a whole answer as plain Markdown: its text, then its sources and suggestions as lists.

    Args:
        answer: An answer, a reply, or an assistant's message.
        site: The documentation's address, such as ``https://docs.acme.com``; paths that the
            assistant names become whole addresses.

    Example::

        await channel.send(answer_markdown(answer, site="https://docs.acme.com"))
    """
    message = _message(answer)
    text = split_suggestions(message.text)[0].rstrip() if message is not None else ""
    return "\n\n".join(filter(None, (text, extras_markdown(answer, site=site))))


def extras_markdown(
    answer: HasAnswer | Message,
    *,
    site: str | None = None,
    sources: str | None = "Sources",
    suggestions: str | None = "See also",
) -> str:
    """Return an answer's sources and suggestions as plain Markdown lists; empty when it has none.

    Args:
        answer: An answer, a reply, or an assistant's message.
        site: The documentation's address; paths become whole addresses.
        sources: The heading of the sources; None leaves them out.
        suggestions: The heading of the suggestions; None leaves them out.

    Raises:
        ConfigurationError: *site* does not begin with ``http://`` or ``https://``.
    """
    _check_site(site)
    message = _message(answer)
    if message is None:
        return ""
    blocks: list[str] = []
    if sources is not None:
        blocks.append(_list(sources, _sources(sources_of(message), site)))
    if suggestions is not None:
        found = split_suggestions(message.text)[1]
        blocks.append(_list(suggestions, (_link(one.title, one.path, site) for one in _once(found))))
    return "\n\n".join(filter(None, blocks))


def _message(answer: HasAnswer | Message) -> Message | None:
    return answer if isinstance(answer, Message) else answer.message


def _check_site(site: object) -> None:
    if site is None or (isinstance(site, str) and site.startswith(("http://", "https://"))):
        return
    raise ConfigurationError("site must be an address that begins with https:// or http://", field="site")


def _list(words: str, items: Iterable[str]) -> str:
    lines = [f"- {item}" for item in dict.fromkeys(items)]
    return "\n".join([f"**{words}**", "", *lines]) if lines else ""


def _sources(sources: Iterable[AnswerSource], site: str | None) -> Iterator[str]:
    """Yield one link per page, with its first title.

    Addresses that differ only in their anchor are one page, and so are a path and its whole address.
    """
    for title, url in _pages(sources, site):
        yield f"[{_plain(title or url)}]({_address(url)})" if url else _plain(title or "a document")


def _pages(sources: Iterable[AnswerSource], site: str | None) -> Iterable[tuple[str | None, str]]:
    """Return each page once: its first title, and its whole address where one is known."""
    found = [(source.title or source.filename, _whole(source.url or "", site)) for source in sources]
    addressed = {_page(urlsplit(url).path): url for _, url in reversed(found) if _is_whole(url)}
    pages: dict[str, tuple[str | None, str]] = {}
    for title, url in found:
        address = url if _is_whole(url) else addressed.get(_page(url), url)
        name = _page(address) or f"document {title}"
        known = pages.setdefault(name, (title, address))
        if known[0] is None:
            pages[name] = (title, known[1])
    return pages.values()


def _is_whole(url: str) -> bool:
    return url.startswith("http")


def _page(url: str) -> str:
    return url.partition("#")[0].rstrip("/")


def _whole(url: str, site: str | None) -> str:
    """Return *url* joined to the site's address, when the site is known."""
    return urljoin(site.rstrip("/") + "/", url.lstrip("/")) if site is not None and url else url


def _once(suggestions: Iterable[Suggestion]) -> Iterable[Suggestion]:
    return {suggestion.path: suggestion for suggestion in suggestions}.values()


def _link(title: str, url: str, site: str | None) -> str:
    return f"[{_plain(title)}]({_address(_whole(url, site))})"


_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>])")
_UNSAFE: Final = re.compile(r"[\s()<>\x00-\x1f\x7f]")


def _plain(text: str) -> str:
    """Return *text* as one line, with the characters of markup escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _address(url: str) -> str:
    """Return *url* with the characters percent-encoded that would end a Markdown link."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)


_MAY_BE_FENCE: Final = re.compile(r"( {0,3}(?:`{0,2}\Z|~{0,2}\Z|~~~|```(?=`*([^`]?)[^`]*\Z)))")
# Matches the beginning of a line that may still become a fence. Its groups are a few characters that
# replace the whole beginning: with the rest of the line they are a fence exactly when the line is. So the
# time per piece does not grow with the line.


class WithoutSuggestions:
    """Removes the ``suggestions`` block from a growing text.

    The beginning of a line is held back only while it may still open a block.
    """

    def __init__(self) -> None:
        """Begin at the start of a line."""
        self._line: list[str] = []  # the pieces held back; none of a line that cannot be a fence
        self._beginning: str | None = ""  # represents them; None when the line cannot be a fence
        self._blocks = SuggestionBlocks()

    def feed(self, text: str) -> str:
        """Return the text to show, of *text* and of what was held back."""
        return "".join(self._piece(piece) for piece in re.findall(r"[^\n]*\n|[^\n]+", text))

    def close(self) -> str:
        """Return the text to show of what was still held back."""
        return self._end_line("")

    def _piece(self, piece: str) -> str:
        self._line.append(piece)
        if piece.endswith("\n"):
            return self._end_line(piece)
        found = None if self._beginning is None else _MAY_BE_FENCE.match(self._beginning + piece)
        self._beginning = found[1] + (found[2] or "") if found else None
        held = self._take() if found is None else ""
        return "" if self._blocks.inside else piece if self._blocks.fence else held

    def _end_line(self, piece: str) -> str:
        """Return what to show at the end of a line, whose last piece is *piece*."""
        line, may_be_fence, self._beginning = self._take(), self._beginning is not None, ""
        shown = piece if self._blocks.fence else line  # inside another block nothing was held back
        return "" if self._blocks.hides(line if may_be_fence else "") else shown

    def _take(self) -> str:
        line = "".join(self._line)
        self._line.clear()
        return line
