"""The runner of pages' code blocks: what passes, and that what is wrong does not."""

from __future__ import annotations

import pytest
from page_blocks import blocks_of, example_text, with_examples

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


async def test_block_that_needs_another_program_is_skipped(tmp_path, run_block):
    """Where that program is not installed; the page's own files count as installed."""
    (one,) = page(tmp_path, ("python", "import no_such_program"))
    with pytest.raises(pytest.skip.Exception, match="no_such_program is not installed"):
        await run_block(one)


async def test_block_that_never_ends_fails(tmp_path, run_block, monkeypatch):
    """It would hold up the suite."""
    monkeypatch.setattr("page_runner.LONGEST_SECONDS", 0.1)
    (endless,) = page(tmp_path, ("python", "await asyncio.Event().wait()"))
    with pytest.raises(TimeoutError):
        await run_block(endless)


async def test_script_has_the_settings_and_the_files_above(tmp_path, run_block):
    """What it prints can be compared."""
    text = "import asyncio\nfrom mintlify_async import MintlifySession\nfrom words import QUESTION\n\n\n"
    text += "async def main():\n    async with MintlifySession() as session:\n"
    text += "        print((await session.ask(QUESTION)).text)\n\n\nasyncio.run(main())"
    blocks = page(tmp_path, ('python script title="words.py"', "QUESTION = 'Hello'"), ("python script", text))
    assert await run_block(blocks[1])


async def test_page_with_its_configuration_tests(tmp_path, run_block):
    """A test needs no more than the page shows."""
    configuration = (
        "[tool.pytest.ini_options]\nasyncio_mode = 'auto'\nasyncio_default_fixture_loop_scope = 'function'"
    )
    test = "async def test_it(mintlify_session):\n    assert (await mintlify_session.ask('Hello')).text"
    await run_block(page(tmp_path, ("toml", configuration), ("python test", test))[1])


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


def test_block_inside_a_component_is_read(tmp_path):
    """Its indentation is the component's, and the fence may be longer than three."""
    path = tmp_path / "page.mdx"
    path.write_text(
        "<Step>\n    ````python\n    if True:\n        x = '```'\n    ````\n</Step>\n", encoding="utf-8"
    )
    (block,) = blocks_of(path)
    assert (block.text, block.kind, block.line) == ("if True:\n    x = '```'\n", "fragment", 3)


async def test_examples_are_copied_and_compared(tmp_path, run_block, monkeypatch):
    """The command that renews a page makes the comparison true; the rest of the page stays."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "worker.py").write_text("print('new')\n", encoding="utf-8")
    monkeypatch.setattr("page_blocks.ROOT", tmp_path)
    (stale,) = page(tmp_path, ("python example=worker.py", "print('old')"))
    with pytest.raises(AssertionError, match="tox -e docs"):
        await run_block(stale)
    stale.file.write_text(with_examples(stale.file.read_text(encoding="utf-8")), encoding="utf-8")
    (fresh,) = blocks_of(stale.file)
    assert await run_block(fresh) == example_text("worker.py")
    assert stale.file.read_text(encoding="utf-8").startswith("Words.\n\n```python example=worker.py\n")
