"""Indexes the words of headings, titles and descriptions in a folder of Markdown pages."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
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
"""Words that nearly every page has."""

LOG_IN = re.compile(r"\b(?:log|sign)(?:ging|ged|s|ing|ed)?[ -]?in\b")
"""To log in takes a key here, and has nothing to do with logs."""

IN_HEADING, IN_TITLE, IN_DESCRIPTION = 3.0, 2.0, 1.0
"""How much a word counts in a section's heading, and in its page's title and description."""

MOST_PER_PAGE = 3
"""How many sections of one page are found, so that an answer has several sources."""


def words(text: str) -> set[str]:
    """Return the stems of the words in *text*, without very common words."""
    plain = LOG_IN.sub("login key", text.lower())
    return {_stem(word) for word in re.findall(r"[^\W_]+", plain) if word not in STOP_WORDS}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            word = word.removesuffix(ending)
            break
    return re.sub(r"([^\Waeiou])\1$", r"\1", word)  # logging, log


@frozen(kw_only=True, eq=False)
class DocsIndex:
    """``service.docs`` has the pages of a folder and an index of their headings.

    Pages are read on first use.

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
    def _sections(self) -> Sequence[tuple[Section, Mapping[str, float]]]:
        """Each section with its words and their weights."""
        rows = list[tuple[Section, Mapping[str, float]]]()
        for page in self.pages.values():
            for section in split_sections(page):
                places = (
                    (words(section.heading), IN_HEADING),
                    (words(page.title), IN_TITLE),
                    (words(page.description), IN_DESCRIPTION),
                )
                row = defaultdict[str, float](float)
                for found, weight in places:
                    for word in found:
                        row[word] += weight
                rows.append((section, row))
        return rows

    @cached_property
    def _rarity(self) -> Mapping[str, float]:
        """The weight of a word. A rare word has a higher weight."""
        uses = Counter(word for _, row in self._sections for word in row)
        return {word: math.log(1 + len(self._sections) / count) for word, count in uses.items()}

    def search(
        self, query: str, limit: int, *, criteria: Mapping[str, Any] | None = None, near: str | None = None
    ) -> list[Section]:
        """Return the best sections for *query*, best first, at most three of one page.

        Args:
            query: Words in any order. Very common ones are ignored.
            limit: The maximum number of sections.
            criteria: The request's ``filter``.
            near: The page that the user is viewing. Its sections score higher.
        """
        wanted = words(query)
        here = None if near is None else "/" + near.split("#")[0].strip("/")
        hits = list[Section]()
        for section, row in self._sections:
            score = sum(row[word] * self._rarity[word] for word in wanted if word in row)
            if score and section.page.allowed(criteria):
                hits.append(evolve(section, score=score * (2 if section.page.path == here else 1)))
        taken = Counter[str]()
        best = list[Section]()
        for hit in sorted(hits, key=lambda hit: -hit.score):  # equal scores keep the site's order
            taken[hit.page.path] += 1
            if taken[hit.page.path] <= MOST_PER_PAGE:
                best.append(hit)
        return best[:limit]
