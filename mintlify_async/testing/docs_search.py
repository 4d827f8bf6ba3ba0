"""Search in a folder of Markdown pages, by section: SQLite's FTS5 in memory, with stemming and BM25."""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from ..errors import ConfigurationError

DEFAULT_DOCS = Path(__file__).parent / "docs"
"""The documentation that ships with the package."""

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about an and any are as at be by can do does for from get has have how i if in into is it its me "
        "my no not of on or please so than that the their then there these they this to was we what when "
        "where which who why will with you your",
    )
)
"""Words that nearly every page has; searching for them would only level the scores."""

TITLE_WEIGHT, HEADING_WEIGHT, BODY_WEIGHT = 4.0, 6.0, 1.0


@frozen(kw_only=True)
class Page:
    """One Markdown file.

    Attributes:
        path: Its path on the site, such as ``/guides/errors``.
        title: Its title, from the front matter, the first heading, or the file name.
        text: The Markdown without front matter.
        file: Its path inside the folder, such as ``guides/errors.md``.
        version: Its version of the documented product; None means all.
        language: Its language; None means all.
        groups: The groups of users that may see it; empty means all users.
    """

    path: str
    title: str
    text: str
    file: str
    version: str | None = None
    language: str | None = None
    groups: tuple[str, ...] = ()

    def allowed(self, criteria: Mapping[str, Any] | None) -> bool:
        """Return whether a search with these criteria may find the page; an unmarked page is always found."""
        wanted = criteria or {}
        if self.groups and not set(self.groups) & set(wanted.get("groups") or ()):
            return False
        own = {"version": self.version, "language": self.language}
        return all(value is None or wanted.get(name) in (None, value) for name, value in own.items())


@frozen(kw_only=True)
class Section:
    """A heading and the text below it.

    Attributes:
        page: The page.
        heading: The heading's text.
        content: The Markdown below it, with its code blocks.
        score: How well it matches the question; higher is better.
    """

    page: Page
    heading: str
    content: str
    score: float = 0.0

    @property
    def path(self) -> str:
        """The section's path on the site, with an anchor unless it opens the page."""
        place = self.page.path
        return place if self.heading == self.page.title else f"{place}#{anchor(self.heading)}"

    def to_result(self) -> dict[str, Any]:
        """Return the section as an entry of the search tool's results."""
        return {
            "path": self.path,
            "metadata": {"title": self.page.title, "section": self.heading},
            "content": self.content,
            "score": round(self.score, 4),
        }


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w]+", "-", heading.lower()).strip("-")


def words(text: str) -> list[str]:
    """Return the words of *text* that are worth searching for, in order, each once."""
    found = re.findall(r"[^\W_]+", text.lower())
    return list(dict.fromkeys(word for word in found if word not in STOP_WORDS))


def read_page(folder: Path, file: Path) -> Page:
    """Read one Markdown file with its front matter."""
    name = file.relative_to(folder).as_posix()
    head, text = split_front_matter(file.read_text(encoding="utf-8"))
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    stem = name.rsplit(".", 1)[0]
    groups = tuple(part for part in re.split(r"[\s,\[\]\"']+", head.get("groups", "")) if part)
    return Page(
        path="/" + stem.removesuffix("/index") if stem != "index" else "/",
        title=head.get("title") or (heading.group(1).strip() if heading else stem),
        text=text,
        file=name,
        version=head.get("version"),
        language=head.get("language"),
        groups=groups,
    )


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the ``name: value`` lines between ``---`` marks, and the rest."""
    match = re.match(r"\A---\n(.*?)\n---\n", text, re.DOTALL)
    if match is None:
        return {}, text
    pairs = (line.split(":", 1) for line in match.group(1).splitlines() if ":" in line)
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}, text[match.end() :]


def split_sections(page: Page) -> Iterator[Section]:
    """Yield the page's sections; a ``#`` inside a code block is no heading."""
    found: list[tuple[str, list[str]]] = [(page.title, [])]
    fenced = False
    for line in page.text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        match = None if fenced else re.match(r"#{1,6} (.+)$", line)
        if match is None:
            found[-1][1].append(line)
        else:
            found.append((match.group(1).strip(), []))
    for heading, lines in found:
        if content := "\n".join(lines).strip():
            yield Section(page=page, heading=heading, content=content)


@frozen(kw_only=True, eq=False)
class DocsIndex:
    """The pages of a folder, with a search over their sections: ``service.docs``.

    ::

        index = DocsIndex.load("docs")
        best = index.search("How do I log in?", 3)[0]
        print(best.path, best.content)

    Attributes:
        folder: The folder.
        pages: Its pages, by their path on the site.
    """

    folder: Path
    pages: Mapping[str, Page]
    _sections: Sequence[Section] = field(repr=False, alias="sections")
    _database: sqlite3.Connection = field(repr=False, alias="database")

    @classmethod
    def load(cls, folder: Path | str | None = None) -> DocsIndex:
        """Read every ``.md`` and ``.mdx`` file under *folder* (default: the package's own documentation).

        Raises:
            ConfigurationError: The folder does not exist or has no page.
        """
        place = DEFAULT_DOCS if folder is None else Path(folder)
        files = sorted(file for pattern in ("*.md", "*.mdx") for file in place.rglob(pattern))
        if not files:
            raise ConfigurationError(
                f"docs must be a folder with Markdown pages (.md, .mdx); {str(place)!r} has none",
                field="docs",
            )
        pages = [read_page(place, file) for file in files]
        sections = [section for page in pages for section in split_sections(page)]
        database = _build_database(sections)
        index = cls(
            folder=place, pages={page.path: page for page in pages}, sections=sections, database=database
        )
        weakref.finalize(index, database.close)  # services share an index, so no service may close it
        return index

    def search(
        self, query: str, limit: int, *, criteria: Mapping[str, Any] | None = None, near: str | None = None
    ) -> list[Section]:
        """Return the best sections for *query*, best first.

        Args:
            query: Words in any order; very common ones are ignored.
            limit: How many sections at most.
            criteria: The request's ``filter``.
            near: The page that the user is viewing; its sections score higher.
        """
        found = words(query)
        if not found:
            return []
        rows = self._database.execute(
            "SELECT rowid, -bm25(sections, ?, ?, ?) FROM sections WHERE sections MATCH ?",
            (TITLE_WEIGHT, HEADING_WEIGHT, BODY_WEIGHT, " OR ".join(f'"{word}"' for word in found)),
        ).fetchall()
        hits = [self._scored(rowid - 1, score, near) for rowid, score in rows]
        allowed = [hit for hit in hits if hit.page.allowed(criteria)]
        return sorted(allowed, key=lambda hit: (-hit.score, hit.path))[:limit]

    def _scored(self, index: int, score: float, near: str | None) -> Section:
        section = self._sections[index]
        closer = near is not None and section.page.path == "/" + near.split("#")[0].strip("/")
        return evolve(section, score=score * 3 + 1 if closer else score)


def _build_database(sections: Sequence[Section]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute(
        "CREATE VIRTUAL TABLE sections USING fts5(title, heading, content, tokenize='porter unicode61')"
    )
    database.executemany(
        "INSERT INTO sections(rowid, title, heading, content) VALUES (?, ?, ?, ?)",
        (
            (number, section.page.title, section.heading, section.content)
            for number, section in enumerate(sections, 1)
        ),
    )
    return database
