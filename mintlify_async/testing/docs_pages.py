"""Reads the pages of a documentation folder in the order of ``docs.json``, and splits them into sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen


@frozen(kw_only=True)
class Page:
    """One Markdown file.

    Attributes:
        path: Its path on the site, such as ``/guides/errors``.
        title: Its title, from the front matter, the first heading, or the file name.
        text: The Markdown without front matter.
        file: Its path inside the folder, such as ``guides/errors.md``.
        description: Its description, from the front matter.
        version: Its version of the documented product. None means all.
        language: Its language. None means all.
        groups: The groups of users that may see it. Empty means all users.
    """

    path: str
    title: str
    text: str
    file: str
    description: str = ""
    version: str | None = None
    language: str | None = None
    groups: tuple[str, ...] = ()

    def allowed(self, criteria: Mapping[str, Any] | None) -> bool:
        """Return whether a search with these criteria may find the page. An unmarked page is always found."""
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
        content: The Markdown below it, with its code blocks and without the tags of components.
        score: The rank of its match with the question. Higher is better.
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
            "metadata": {"title": self.heading},
            "content": self.content,
            "score": round(self.score, 4),
        }


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w]+", "-", heading.lower()).strip("-")


def page_files(folder: Path) -> list[Path]:
    """Return the Markdown files under *folder*. The files in ``docs.json`` are first, in its order."""
    files = sorted(file for pattern in ("*.md", "*.mdx") for file in folder.rglob(pattern))
    place = {name: number for number, name in enumerate(_navigation(folder))}
    return sorted(files, key=lambda file: place.get(_stem(folder, file), len(place)))


def _stem(folder: Path, file: Path) -> str:
    return file.relative_to(folder).with_suffix("").as_posix()


def _navigation(folder: Path) -> list[str]:
    """Return the texts in the navigation of ``docs.json``, pages among them, in their order."""
    try:
        settings = (folder / "docs.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    texts = re.findall(r'"/*((?:[^"\\]|\\.)*?)/*"', settings.partition('"navigation"')[2])
    return list(dict.fromkeys(texts))


def read_page(folder: Path, file: Path) -> Page:
    """Read one Markdown file with its front matter."""
    stem = _stem(folder, file)
    head, text = split_front_matter(file.read_text(encoding="utf-8-sig"))
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    groups = tuple(part for part in re.split(r"[\s,\[\]\"']+", head.get("groups", "")) if part)
    return Page(
        path="/" + stem.removesuffix("/index") if stem != "index" else "/",
        title=head.get("title") or (heading.group(1).strip() if heading else stem),
        text=text,
        file=file.relative_to(folder).as_posix(),
        description=head.get("description", ""),
        version=head.get("version"),
        language=head.get("language"),
        groups=groups,
    )


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the ``name: value`` lines between ``---`` marks, and the text after them."""
    match = re.match(r"\A---\n(.*?)\n---\n", text, re.DOTALL)
    if match is None:
        return {}, text
    pairs = (line.split(":", 1) for line in match.group(1).splitlines() if ":" in line)
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}, text[match.end() :]


FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}).*?(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)

MARKUP = re.compile(
    r"(?P<code>`+(?:(?!\n\n)[^`])+`+)"
    r"|\\(?P<escaped>[<{}])"
    r"|\{/\*.*?\*/\}|<!--.*?-->"
    r"|^import [^\n]*[\"'][^\n]*$|^export (?:const|default|function) [^\n]*$"
    r"|<[A-Za-z][\w.]*(?P<attributes>(?:\s+[\w:-]+(?:=(?:\"[^\"]*\"|'[^']*'|\{[^{}]*\}))?)*)\s*/?>"
    r"|</[A-Za-z][\w.]*\s*>",
    re.MULTILINE | re.DOTALL,
)
"""Code, which stays; then what MDX has beside Markdown: escapes, comments, imports, and tags."""


def readable(text: str) -> str:
    """Return Markdown without the tags of components. Their titles stay as text or as links.

    Code is left as it is. The indentation of a component's content is removed.
    """
    pieces, at = list[str](), 0
    for fence in FENCE.finditer(text):
        block = "".join(line.removeprefix(fence["indent"]) for line in fence[0].splitlines(keepends=True))
        pieces += [_without_tags(text[at : fence.start()]), block]
        at = fence.end()
    pieces.append(_without_tags(text[at:]))
    return "".join(pieces)


def _without_tags(text: str) -> str:
    plain = MARKUP.sub(_kept, text) if re.search(r"[<{]|^(?:import|export) ", text, re.MULTILINE) else text
    if plain != text:
        plain = re.sub(r"^[ \t]+(?=[^\s*+\-\d])|[ \t]+$", "", plain, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", plain)


def _kept(markup: re.Match[str]) -> str:
    if whole := markup["code"] or markup["escaped"]:
        return whole
    attributes = dict(re.findall(r"([\w:-]+)=[\"']([^\"']*)[\"']", markup["attributes"] or ""))
    title, target = attributes.get("title"), attributes.get("href")
    if not title:
        return ""
    return f"\n[{title}]({target})\n" if target else f"\n**{title}**\n"


def split_sections(page: Page) -> Iterator[Section]:
    """Yield the page's sections. A ``#`` inside a code block is no heading."""
    text = readable(page.text)
    without_code = FENCE.sub(lambda fence: " " * len(fence[0]), text)  # each heading is where it was
    headings = list(re.finditer(r"^#{1,6} (.+)$", without_code, re.MULTILINE))
    starts = [(page.title, 0), *((match[1].strip(), match.end()) for match in headings)]
    ends = [*(match.start() for match in headings), len(text)]
    for (heading, start), end in zip(starts, ends, strict=True):
        if content := text[start:end].strip():
            yield Section(page=page, heading=heading, content=content)
