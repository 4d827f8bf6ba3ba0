"""Search in a folder of Markdown pages, by section: SQLite's FTS5 in memory, with stemming and BM25."""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from ..errors import ConfigurationError
from .docs_pages import Page, Section, page_files, read_page, split_sections

DEFAULT_DOCS = Path(__file__).parents[1] / "docs"
"""The documentation that ships with the package, in the service's own format."""

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about an and any are as at be by can do does for from get has have how i if in into is it its me "
        "my no not of on or please so than that the their then there these they this to was we what when "
        "where which who why will with you your",
    )
)
"""Words that nearly every page has; searching for them would only level the scores."""

HEADING_WEIGHT, CONTENT_WEIGHT = 6.0, 1.0
"""How much a word counts in a section."""

PAGE_WEIGHTS = (6.0, 4.0, 2.0, 1.0)
"""How much it counts in the page around it: in its title, description, headings and text. A page that is
about the question so beats a section of another page that merely has its words."""

MOST_PER_PAGE = 3
"""How many sections of one page a search returns at most, so that an answer has several sources."""


def words(text: str) -> list[str]:
    """Return the words of *text* that are worth searching for, in order, each once."""
    found = re.findall(r"[^\W_]+", text.lower())
    return list(dict.fromkeys(word for word in found if word not in STOP_WORDS))


@frozen(kw_only=True, eq=False)
class DocsIndex:
    """The pages of a folder, with a search over their sections: ``service.docs``.

    Pages are read when they are first needed.

    ::

        index = DocsIndex.load("docs")
        best = index.search("How do I log in?", 3)[0]
        print(best.path, best.content)

    Attributes:
        folder: The folder.
    """

    folder: Path

    @classmethod
    def load(cls, folder: Path | str | None = None) -> DocsIndex:
        """Take the ``.md`` and ``.mdx`` files under *folder* (default: the package's own documentation).

        Raises:
            ConfigurationError: The folder does not exist or has no page.
        """
        place = DEFAULT_DOCS if folder is None else Path(folder)
        if not page_files(place):
            raise ConfigurationError(
                f"docs must be a folder with Markdown pages (.md, .mdx); {str(place)!r} has none",
                field="docs",
            )
        return cls(folder=place)

    @cached_property
    def pages(self) -> Mapping[str, Page]:
        """The pages by their path on the site, in the order of ``docs.json``, others after them."""
        return {
            page.path: page for page in (read_page(self.folder, file) for file in page_files(self.folder))
        }

    @cached_property
    def _sections(self) -> Sequence[Section]:
        return [section for page in self.pages.values() for section in split_sections(page)]

    @cached_property
    def _database(self) -> sqlite3.Connection:
        database = _build_database(self._sections)
        weakref.finalize(self, database.close)  # services share an index, so no service may close it
        return database

    def search(
        self, query: str, limit: int, *, criteria: Mapping[str, Any] | None = None, near: str | None = None
    ) -> list[Section]:
        """Return the best sections for *query*, best first, at most three of one page.

        Args:
            query: Words in any order; very common ones are ignored.
            limit: How many sections at most.
            criteria: The request's ``filter``.
            near: The page that the user is viewing; its sections score higher.
        """
        found = words(query)
        if not found:
            return []
        match = " OR ".join(f'"{word}"' for word in found)
        rows = self._database.execute(SEARCH, {"match": match}).fetchall()
        hits = [self._scored(rowid - 1, score, near) for rowid, score in rows]
        allowed = [hit for hit in hits if hit.page.allowed(criteria)]
        return _spread(sorted(allowed, key=lambda hit: (-hit.score, hit.path)))[:limit]

    def _scored(self, index: int, score: float, near: str | None) -> Section:
        section = self._sections[index]
        closer = near is not None and section.page.path == "/" + near.split("#")[0].strip("/")
        return evolve(section, score=score * 3 + 1 if closer else score)


def _spread(hits: list[Section]) -> list[Section]:
    taken: Counter[str] = Counter()
    kept: list[Section] = []
    for hit in hits:
        taken[hit.page.path] += 1
        if taken[hit.page.path] <= MOST_PER_PAGE:
            kept.append(hit)
    return kept


SEARCH = f"""
WITH
  inside AS (SELECT rowid, -bm25(sections, {HEADING_WEIGHT}, {CONTENT_WEIGHT}) AS score
             FROM sections WHERE sections MATCH :match),
  around AS (SELECT rowid, -bm25(pages, {", ".join(map(str, PAGE_WEIGHTS))}) AS score
             FROM pages WHERE pages MATCH :match)
SELECT inside.rowid, inside.score + around.score FROM inside
JOIN page_of ON page_of.section = inside.rowid JOIN around ON around.rowid = page_of.page
"""


def _build_database(sections: Sequence[Section]) -> sqlite3.Connection:
    by_page: dict[str, list[Section]] = {}
    for section in sections:
        by_page.setdefault(section.page.path, []).append(section)
    numbers = {path: number for number, path in enumerate(by_page, 1)}
    database = sqlite3.connect(":memory:", check_same_thread=False)
    stemmed = "tokenize='porter unicode61'"
    database.execute(f"CREATE VIRTUAL TABLE sections USING fts5(heading, content, {stemmed})")
    database.execute(
        f"CREATE VIRTUAL TABLE pages USING fts5(title, description, headings, content, {stemmed})"
    )
    database.execute("CREATE TABLE page_of (section INTEGER PRIMARY KEY, page INTEGER)")
    for number, section in enumerate(sections, 1):
        row = (number, section.heading, section.content)
        database.execute("INSERT INTO sections(rowid, heading, content) VALUES (?, ?, ?)", row)
        database.execute("INSERT INTO page_of VALUES (?, ?)", (number, numbers[section.page.path]))
    for path, inside in by_page.items():
        page = (numbers[path], *_as_one(inside))
        columns = "rowid, title, description, headings, content"
        database.execute(f"INSERT INTO pages({columns}) VALUES (?, ?, ?, ?, ?)", page)
    return database


def _as_one(sections: Sequence[Section]) -> tuple[str, str, str, str]:
    """Return a page's title, its description, all headings and all texts."""
    page = sections[0].page
    headings = " ".join(section.heading for section in sections)
    return page.title, page.description, headings, " ".join(section.content for section in sections)
