"""What an answer brought beside its text comes in; plain Markdown for a chat surface goes out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

from .errors import ConfigurationError
from .parts import Message
from .sources import AnswerSource, Suggestion, sources_of, split_suggestions

__all__ = ["HasAnswer", "WithoutSuggestions", "answer_markdown", "extras_markdown"]


class HasAnswer(Protocol):
    """A reply, or anything else that holds an answer's message."""

    @property
    def message(self) -> Message | None:
        """The answer as a message, or None."""
        ...


def answer_markdown(answer: HasAnswer | Message, *, site: str | None = None) -> str:
    """Return a whole answer as plain Markdown: its text, then its sources and suggestions as lists.

    Args:
        answer: A reply, or an assistant's message.
        site: The documentation's address, such as ``https://docs.acme.com``; makes whole
            addresses of the paths that the assistant names.

    Example::

        await channel.send(answer_markdown(reply, site="https://docs.acme.com"))
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
        answer: A reply, or an assistant's message.
        site: The documentation's address; makes whole addresses of paths.
        sources: The words above the sources; None leaves them out.
        suggestions: The words above the suggestions; None leaves them out.

    Raises:
        ConfigurationError: *site* is no address that begins with http.
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
    """Yield one link a page: an anchor makes no other page, and a whole address stands for its path."""
    found = [(source.title or source.filename, _whole(source.url or "", site)) for source in sources]
    addressed = {_page(urlsplit(url).path): url for _, url in reversed(found) if url.startswith("http")}
    pages: dict[str, tuple[str | None, str]] = {}
    for title, url in found:
        address = url if url.startswith("http") else addressed.get(_page(url), url)
        name = _page(address) or f"document {title}"
        known = pages.setdefault(name, (title, address))
        if known[0] is None:
            pages[name] = (title, known[1])
    for title, url in pages.values():
        yield f"[{_plain(title or url)}]({_address(url)})" if url else _plain(title or "a document")


def _page(url: str) -> str:
    return url.partition("#")[0].rstrip("/")


def _whole(url: str, site: str | None) -> str:
    """Return *url* with the site's address before it, when it is a path and the site is known."""
    return urljoin(site.rstrip("/") + "/", url.lstrip("/")) if site is not None and url else url


def _once(suggestions: Iterable[Suggestion]) -> Iterable[Suggestion]:
    return {suggestion.path: suggestion for suggestion in suggestions}.values()


def _link(title: str, url: str, site: str | None) -> str:
    return f"[{_plain(title)}]({_address(_whole(url, site))})"


_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>])")
_UNSAFE: Final = re.compile(r"[\s()<>\x00-\x1f\x7f]")


def _plain(text: str) -> str:
    """Return *text* as one line that no character of it turns into markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _address(url: str) -> str:
    """Return *url* with the characters escaped that would end a Markdown link."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)


_MAY_OPEN: Final = re.compile(r" {0,3}(`{0,2}|~{0,2}|`{3,}[^`\n]*|~{3,}[^\n]*)\Z")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(.*?)[ \t]*\r?\n?\Z")


class WithoutSuggestions:
    """Takes the ``suggestions`` block out of a text while it grows.

    A line's beginning is held back only as long as it may still open a block.
    """

    __slots__ = ("_fence", "_inside", "_line", "_shown")

    def __init__(self) -> None:
        """Begin at the start of a line."""
        self._line = ""
        self._shown = 0  # how much of the line went out
        self._fence = ""
        self._inside = False

    def feed(self, text: str) -> str:
        """Return what of *text*, and of what was held back, belongs to the answer."""
        return "".join(self._piece(piece) for piece in re.findall(r"[^\n]*\n|[^\n]+", text))

    def close(self) -> str:
        """Return what was still held back."""
        line, shown, self._line, self._shown = self._line, self._shown, "", 0
        mark = None if self._fence else _FENCE.match(line)
        return "" if self._inside or (mark and mark[2] == "suggestions") else line[shown:]

    def _piece(self, piece: str) -> str:
        self._line += piece
        if self._line.endswith("\n"):
            return self._whole_line()
        if self._inside or (not self._fence and _MAY_OPEN.match(self._line)):
            return ""
        line, shown = self._line, self._shown
        self._shown = len(line)
        return line[shown:]

    def _whole_line(self) -> str:
        line, shown, self._line, self._shown = self._line, self._shown, "", 0
        mark = _FENCE.match(line)
        hidden = self._inside
        if self._fence:
            if mark and mark[1].startswith(self._fence) and not mark[2]:
                self._fence, self._inside = "", False
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            self._fence, self._inside = mark[1], mark[2] == "suggestions"
            hidden = self._inside
        return "" if hidden else line[shown:]
