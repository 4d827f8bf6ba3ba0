"""``docs``: where the pages are, and those that contain a text."""

from __future__ import annotations

from pathlib import Path

import mintlify_async
from tests.support.command_line import run

PACKAGE = Path(mintlify_async.__file__).parent
TEXTS = {page: page.read_text(encoding="utf-8") for page in (PACKAGE / "docs").rglob("*.md")}


async def test_it_prints_where_every_page_is():
    """The first two lines are the folder and the list. Each further line begins with a file."""
    ended = await run("docs")
    folder, overview, *lines = ended.out.splitlines()
    assert (ended.status, Path(folder), Path(overview)) == (0, PACKAGE / "docs", PACKAGE / "llms.txt")
    assert {Path(line.partition("  ")[0]) for line in lines} == set(TEXTS)


async def test_it_finds_the_pages_with_a_text():
    """In any case of letters. A page with the text in its title comes first."""
    ended = await run("docs", "TELEGRAM")
    paths = [Path(line.partition("  ")[0]) for line in ended.out.splitlines()]
    assert ended.status == 0
    assert paths[0] == PACKAGE / "docs" / "how-to" / "telegram.md"
    assert set(paths) == {page for page, text in TEXTS.items() if "telegram" in text.lower()}


async def test_a_text_that_no_page_has_is_told():
    """On standard error, with the folder. A script sees the status."""
    ended = await run("docs", "no page has this")
    assert (ended.status, ended.out) == (1, "")
    assert str(PACKAGE / "docs") in ended.err
    assert (await run("docs", "")).status == 2


def test_the_module_names_the_list():
    """An agent that reads the module's docstring finds the pages."""
    assert "llms.txt" in str(mintlify_async.__doc__)
