"""Finds the sources of an answer: each page once, with its sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, cast

import attrs
from attrs import frozen

from ..argument_checks import check_site
from ..messages import Message, SourceDocumentPart, SourceUrlPart, ToolPart
from ..model.strict_json import as_object
from ..model.wire_value import WireValue
from .site_links import SiteAddress

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""The start of a full URL. A path that contains a colon starts with a slash."""


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class AnswerSource(WireValue):
    """A source of an answer: a documentation page, a section of a page, or a document.

    Args:
        type: ``url`` (a page's URL), ``document``, or ``page`` (found by the ``search`` tool).
        url: The full URL if it is known, else the path relative to the site. None for a document.
        title: The title of the source, or None.
        id: The source's id in the stream, or None.
        filename: A document's file name, or None.
        media_type: A document's media type, or None.
        sections: The sections of the documentation page that are sources, each with the anchor in its
            ``url``. A section without a title has the anchor as its ``title``.
    """

    type: Literal["url", "document", "page"]
    url: str | None = None
    title: str | None = None
    id: str | None = None
    filename: str | None = None
    media_type: str | None = None
    sections: tuple[AnswerSource, ...] = ()


def whole_address(url: str, site: str | None) -> str:
    """Return the full URL of a path on *site*. A full *url*, or any *url* without a site, is not changed."""
    if site is None or _is_whole(url):
        return url
    path = f"/{url.lstrip('/')}"
    return SiteAddress(site).before(path) + path


def sources_of(message: Message, *, site: str | None = None) -> list[AnswerSource]:
    """Return the sources of *message* in the order of its parts. Each page appears once, with its sections.

    A source is a part, or a result of the ``search`` tool. URLs that differ only in their anchor are sections
    of the same page. A path, and a full URL with that path, are the same page. The first title of a page is
    used.

    Args:
        message: An assistant's message.
        site: The site URL. With it, paths become full URLs.

    Raises:
        ConfigurationError: *site* is not a full URL.
    """
    site = check_site(site)
    sources = list(_all_sources(message))
    address_of_path: dict[str, str] = {}  # the first full URL by path
    for source in sources:
        if source.url and _is_whole(source.url):
            page = source.url.partition("#")[0]
            address_of_path.setdefault(_comparable_path(page), page)
    pages: dict[object, _Page] = {}
    for source in sources:
        if source.url is None:
            key = (source.id, source.title, source.filename)
            pages.setdefault(key, _Page(source, None))
            continue
        page, _, anchor = source.url.partition("#")
        address = whole_address(page, site)
        if address == page and not _is_whole(page):
            address = address_of_path.get(_comparable_path(page), page)
        pages.setdefault(_key(address), _Page(source, address)).add(source, anchor)
    return [page.source() for page in pages.values()]


class _Page:
    """A documentation page or a document, with its named sections."""

    def __init__(self, source: AnswerSource, address: str | None) -> None:
        self.first_source = source
        self.address = address
        self.title: str | None = None  # the title of the page itself
        self.sections: dict[str, AnswerSource] = {}

    def add(self, source: AnswerSource, anchor: str) -> None:
        if not anchor:
            self.title = self.title or source.title
            return
        section = self.sections.setdefault(anchor, attrs.evolve(source, url=f"{self.address}#{anchor}"))
        if section.title is None and source.title is not None:
            self.sections[anchor] = attrs.evolve(section, title=source.title)

    def source(self) -> AnswerSource:
        titles = [self.title, *(section.title for section in self.sections.values())]
        title = next(filter(None, titles), self.first_source.title)
        sections = [
            attrs.evolve(section, title=section.title if section.title not in (None, title) else f"#{anchor}")
            for anchor, section in self.sections.items()
        ]
        return attrs.evolve(self.first_source, url=self.address, title=title, sections=tuple(sections))


def _is_whole(url: str) -> bool:
    return re.match(_SCHEME, url) is not None


def _comparable_path(page: str) -> str:
    """Return the path and the query of a URL or of a path, in a form for comparison."""
    _, scheme_mark, host_and_path = page.partition("://")
    path = host_and_path.partition("/")[2] if scheme_mark else page
    return path.strip("/")


def _key(address: str) -> str:
    """Return a key that all URLs of one page have in common."""
    _, scheme_mark, host_and_path = address.partition("://")
    host = host_and_path.partition("/")[0].lower() if scheme_mark else ""
    return f"{host}/{_comparable_path(address)}"


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
    """Yield the documentation pages in a search's output. Skip all other content."""
    results = (as_object(output) or {}).get("results")
    for result in cast("Sequence[object]", results) if isinstance(results, list) else ():
        page = as_object(result) or {}
        path = page.get("path") or page.get("url")
        title = (as_object(page.get("metadata")) or {}).get("title") or page.get("title")
        if isinstance(path, str) and path:
            yield AnswerSource(type="page", url=path, title=title if isinstance(title, str) else None)
