"""Indexes the words of headings, titles and descriptions in a folder of Markdown pages."""

from __future__ import annotations

import math
import posixpath
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import frozen

from ..errors import ConfigurationError
from ..wrong_names import helpful

DEFAULT_DOCS = Path(__file__).parents[1] / "docs"
"""The documentation that ships with the package."""

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about an and any are as at be by can do does find for from get has have how i if in into is it "
        "its me my no not of on or please so than that the their then there these they this to was we what "
        "when where which who why will with you your",
    )
)
"""Words that nearly every page contains."""

LOG_IN = re.compile(r"\b(?:log|sign)(?:ging|ged|s|ing|ed)?[ -]?in\b")
""""To log in" means to use a key here. It is not related to logs."""

MOST_PER_PAGE = 3
"""Maximum number of sections found on one page, so that an answer has several sources."""

TOKEN = re.compile(
    r"^(?P<fence>[ \t]*(?P<mark>`{3,}|~{3,})\w*)[^\n]*(?P<code>.*?)(?P<end>^[ \t]*(?P=mark)[`~]*[ \t]*$|\Z)"
    r"|^\#{1,6}[ ](?P<heading>[^\n]+)$"
    r"|(?P<shown>`[^`\n]+`)|\\(?P<escaped>[<{}])"
    r"|\{/\*.*?\*/\}|<!--.*?-->|^import[ ][^\n]*[\"'][^\n]*$"
    r"|</?[A-Za-z][\w.]*(?:\s[^<>]*)?>",
    re.MULTILINE | re.DOTALL,
)
"""Code blocks, headings, code, and syntax of MDX: escapes, comments, imports, tags."""


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


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading as GitHub makes it: words in lower case, with hyphens between them."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _site_path(name: str) -> str:
    """Return the path of a page on the site. *name* is the path of its file without the extension."""
    return "/" if name == "index" else "/" + name.removesuffix("/index")


@frozen(kw_only=True)
class Section:
    """A heading and the text below it.

    Attributes:
        page: The path of its page on the site, such as ``/guides/errors``.
        title: The title of its page.
        description: The description of its page.
        heading: The text of its heading.
        content: The Markdown below the heading, without the tags of components. A link to a file of the
            folder becomes a path on the site.
    """

    page: str
    title: str
    description: str
    heading: str
    content: str

    @property
    def path(self) -> str:
        """The section's path on the site. If the section does not start the page, the path has an anchor."""
        return self.page if self.heading == self.title else f"{self.page}#{anchor_of(self.heading)}"

    def weights(self) -> Counter[str]:
        """Return the section's words. A word in its heading counts three times, in its page's title twice."""
        heading, title = list(words(self.heading)), list(words(self.title))
        return Counter([*heading * 3, *title * 2, *words(self.description)])

    def to_result(self) -> dict[str, Any]:
        """Return the section as an entry of the search tool's results."""
        return {"path": self.path, "metadata": {"title": self.heading}, "content": self.content}


def read_sections(folder: Path, file: Path) -> Iterator[Section]:
    """Yield the sections of one Markdown file that have text.

    Without front matter, the first heading is the title, and the paragraph below it is the description.
    """
    text = file.read_text(encoding="utf-8-sig")
    front = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    settings = dict(re.findall(r"^(\w+): *[\"']?(.*?)[\"']?$", front[1] if front else "", re.MULTILINE))
    stem = file.relative_to(folder).with_suffix("").as_posix()
    first = re.search(r"^# (.+)$(?:\n+(?!\#)((?:.+\n?)*))?", text, re.MULTILINE)
    title = settings.get("title") or (first[1].strip() if first else stem)
    description = settings.get("description") or ((first[2] if first and not front else "") or "")
    for heading, content in _split(text[front.end() :] if front else text, title, stem):
        if content:
            yield Section(
                page=_site_path(stem),
                title=title,
                description=description,
                heading=heading,
                content=content,
            )


def _site_links(name: str, prose: str) -> str:
    """Return *prose* of the page *name*. Links to files of the folder become paths on the site."""

    def path(match: re.Match[str]) -> str:
        place, hash_, anchor = match[1].partition("#")
        if not place:
            return f"]({_site_path(name)}{hash_}{anchor})"
        target = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), place))[1:]
        stem, suffix = posixpath.splitext(target)
        site_path = _site_path(stem) if suffix in (".md", ".mdx") else f"/{target}"
        return f"]({site_path}{hash_}{anchor})"

    return re.sub(r"\]\((?!/|[a-zA-Z][\w+.-]*:)([^)\s]+)\)", path, prose)


def _split(text: str, title: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield each heading of the page *name* and the text below it. Links become paths on the site.

    The text before the first heading has the page's title.
    """
    heading, content, prose, at = title, "", "", 0
    for token in TOKEN.finditer(text):
        prose += _site_links(name, text[at : token.start()])
        at = token.end()
        if token["fence"]:
            block = textwrap.dedent(token["fence"] + token["code"] + token["end"])
            content, prose = content + _without_indent(prose) + block, ""
        elif token["heading"]:
            yield heading, _without_gaps(content + _without_indent(prose))
            heading, content, prose = token["heading"].strip(), "", ""
        else:
            component = re.search(r'\stitle="([^"]*)"', token[0])
            prose += token["shown"] or token["escaped"] or (f"\n**{component[1]}**\n" if component else "")
    yield heading, _without_gaps(content + _without_indent(prose + _site_links(name, text[at:])))


def _without_indent(text: str) -> str:
    """Return *text* without the indentation of a component's content. Lists keep their indentation."""
    return re.sub(r"^[ \t]+(?=[^\s*+\-\d])|[ \t]+$", "", text, flags=re.MULTILINE)


def _without_gaps(content: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", content).strip()


@helpful
@frozen(kw_only=True, eq=False)
class DocsIndex:
    """``service.docs`` contains the pages of a folder, and an index of their words.

    Pages are read on first use.

    ::

        index = DocsIndex.load("docs")
        best = index.search("How do I log in?", 3)[0]
        print(best.path, best.content)

    Attributes:
        files: The files of the pages.
        folder: The folder.
    """

    folder: Path
    files: Sequence[Path]

    @classmethod
    def load(cls, folder: Path | str | None = None) -> DocsIndex:
        """Use the ``.md`` and ``.mdx`` files under *folder* (default: the package's own documentation).

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
        return cls(folder=place, files=files)

    @cached_property
    def _sections(self) -> Sequence[tuple[Section, Counter[str]]]:
        """Each section with its words and their weights."""
        sections = (section for file in self.files for section in read_sections(self.folder, file))
        return [(section, section.weights()) for section in sections]

    @cached_property
    def _rarity(self) -> Mapping[str, float]:
        """Maps each word to its weight. A rare word has a higher weight."""
        uses = Counter(word for _, row in self._sections for word in row)
        return {word: math.log(1 + len(self._sections) / count) for word, count in uses.items()}

    def search(self, query: str, limit: int) -> list[Section]:
        """Return at most *limit* sections for the words of *query*, best first, at most three of a page."""
        query_words = words(query)
        scores = [
            (sum(row[word] * self._rarity[word] for word in query_words & row.keys()), section)
            for section, row in self._sections
        ]
        best, sections_per_page = list[Section](), Counter[str]()
        for score, section in sorted(scores, key=lambda pair: -pair[0]):  # equal scores stay in their order
            sections_per_page[section.page] += 1
            if score and sections_per_page[section.page] <= MOST_PER_PAGE:
                best.append(section)
        return best[:limit]
