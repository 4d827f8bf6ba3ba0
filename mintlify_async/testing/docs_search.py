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
        "a about an and any are as at be by can do does find for from get has have how i if in into is it "
        "its me my no not of on or please so than that the their then there these they this to was we what "
        "when where which who why will with you your",
    )
)
"""Words that nearly every page has; searching for them would only level the scores."""

SECTION = {"heading": 4.0, "content": 1.0}
PAGE = {"headings": 2.0, "content": 1.0}
NAME = {"title": 2.25, "description": 1.5}
"""How much a word counts in a section, in the whole page around it, and in that page's title and description.

The three are searched apart, because a word that many pages use may still be in few titles: a page that is
about the question then comes before a section elsewhere that merely has its words.
"""

MOST_PER_PAGE = 3
"""How many sections of one page come before those of other pages, so that an answer has several sources."""


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
        """Return the best sections for *query*, best first; more than three of one page come last.

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
    first, rest = list[Section](), list[Section]()
    for hit in hits:
        taken[hit.page.path] += 1
        (first if taken[hit.page.path] <= MOST_PER_PAGE else rest).append(hit)
    return first + rest


def _scores(table: str, weights: Mapping[str, float]) -> str:
    score = f"-bm25({table}, {', '.join(map(str, weights.values()))}) AS score"
    return f"(SELECT rowid AS id, page, {score} FROM {table} WHERE {table} MATCH :match)"


SEARCH = f"""
SELECT section.id, section.score + page.score + ifnull(name.score, 0)
FROM {_scores("sections", SECTION)} AS section
JOIN {_scores("pages", PAGE)} AS page USING (page)
LEFT JOIN {_scores("names", NAME)} AS name USING (page)
"""


def _build_database(sections: Sequence[Section]) -> sqlite3.Connection:
    by_page: dict[Page, list[Section]] = {}
    for section in sections:
        by_page.setdefault(section.page, []).append(section)
    pages = [
        (" ".join(one.heading for one in inside), " ".join(one.content for one in inside), page.path)
        for page, inside in by_page.items()
    ]
    database = sqlite3.connect(":memory:", check_same_thread=False)
    for table, weights, rows in (
        ("sections", SECTION, [(one.heading, one.content, one.page.path) for one in sections]),
        ("pages", PAGE, pages),
        ("names", NAME, [(page.title, page.description, page.path) for page in by_page]),
    ):
        columns = f"{', '.join(weights)}, page UNINDEXED, tokenize='porter unicode61'"
        database.execute(f"CREATE VIRTUAL TABLE {table} USING fts5({columns})")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    return database
