"""The runner of pages' code blocks: each kind of wrong block fails."""

from __future__ import annotations

import pytest
from page_blocks import blocks_of

BAD = {
    "fragment": ("python", "print(nothing)"),
    "test": ("python", "def test_it():\n    assert False", "test"),
    "console": ("console", "$ mintlify-async ask Hello\n$ echo $?\n2"),
}


def page(folder, info, text, mark=""):
    """Write a page with one block, and return it as it is read."""
    path = folder / "page.md"
    comment = f"<!-- block: {mark} -->\n" if mark else ""
    path.write_text(f"Words.\n\n{comment}```{info}\n{text}\n```\n", encoding="utf-8")
    (block,) = blocks_of(path)
    return block


@pytest.mark.parametrize("block", BAD.values(), ids=list(BAD))
async def test_what_is_wrong_fails(block, tmp_path, run_block):
    """An exception, a failed test and another exit status are failures."""
    with pytest.raises((Exception, AssertionError)):
        await run_block(page(tmp_path, *block))


def test_a_word_that_means_nothing_is_refused(tmp_path):
    """A slip of the pen must not switch a block's test off. What follows the language is a file's name."""
    with pytest.raises(AssertionError, match=r"page.md:5: 'scipt'"):
        page(tmp_path, "python", "pass", "scipt")
    with pytest.raises(AssertionError, match=r"page.md:4: 'script'"):
        page(tmp_path, "python script", "pass")
