"""The runner of pages' code blocks: what passes, and that what is wrong does not."""

from __future__ import annotations

import pytest
from page_blocks import blocks_of

GOOD = {
    "names": "assert isinstance(await session.ask('Hello'), Answer)\nassert os.name\nawait asyncio.sleep(0)",
    "text of several lines": 'text = """\nflush left\n"""\nassert text == "\\nflush left\\n"\nreturn',
    "settings": "async with MintlifySession() as own:\n    assert (await own.ask('Hello')).text",
}
BAD = {
    "fragment": ("python", "await session.ask('')"),
    "name": ("python", "print(nothing)"),
    "script": ("python script", "raise SystemExit(1)"),
    "test": ("python test", "def test_it():\n    assert False"),
    "console": ("console", "$ mintlify-async ask --results none Hello"),
    "status": ("console", "$ mintlify-async ask Hello\n$ echo $?\n2"),
}


def page(folder, *blocks):
    """Write a page with the blocks, each an info string and a text, and return them as they are read."""
    path = folder / "page.mdx"
    path.write_text("".join(f"Words.\n\n```{info}\n{text}\n```\n" for info, text in blocks), encoding="utf-8")
    return blocks_of(path)


@pytest.mark.parametrize("text", GOOD.values(), ids=list(GOOD))
async def test_fragment_runs_in_a_function(text, tmp_path, run_block):
    """It has a session, the package's names, and the settings of the local service."""
    (block,) = page(tmp_path, ("python", text))
    await run_block(block)


@pytest.mark.parametrize("block", BAD.values(), ids=list(BAD))
async def test_what_is_wrong_fails(block, tmp_path, run_block):
    """An exception, a failed test and another exit status are failures."""
    (wrong,) = page(tmp_path, block)
    with pytest.raises((Exception, AssertionError)):
        await run_block(wrong)


async def test_commands_run_in_one_shell(tmp_path, run_block):
    """Statuses are 0, or what the page shows; a service is started and stopped; a file of the page runs."""
    commands = """\
$ mintlify-async serve
ready http://127.0.0.1:8765
$ ref=$(mintlify-async job create "Fix typos" \\
    --timeout 5)
$ mintlify-async job show "$ref"
active
$ env -u MINTLIFY_DOMAIN mintlify-async ask Hello
error: …
$ echo $?
2
$ python words.py
Hello
$ mail --me"""
    blocks = page(tmp_path, ('python script title="words.py"', "print('Hello')"), ("console", commands))
    out = await run_block(blocks[1])
    assert "job_1" in out
    assert out.endswith("Hello\n")


@pytest.mark.parametrize(
    "info", ["python scipt", "python skip", "python script test", "python example", "console test"]
)
def test_a_word_that_means_nothing_is_refused(info, tmp_path):
    """A slip of the pen must not switch a block's test off."""
    with pytest.raises(AssertionError, match=r"page.mdx:4"):
        page(tmp_path, (info, "pass"))
