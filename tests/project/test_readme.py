"""The README as it stands, and the tutorial in order."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT, Block, blocks_of

from mintlify_async.testing import AnswerStyle, JobLife, LocalService
from tests.support.child_process import child_environment, run_to_end
from tests.support.command_line import run
from tests.support.page_runner import DOCS, run_file, write_files

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
DEMO = "python3 -m venv .venv && .venv/bin/pip install -q '.[cli]' && .venv/bin/mintlify-async demo\n"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -q tox && .venv/bin/tox\n"


def check_printed(out: str, shown: str) -> None:
    """Compare output with what a page shows; ``…`` stands for any lines, a number for any number."""
    pattern = re.sub(r"\d+", r"\\d+", re.escape(shown.strip("\n")))
    assert re.fullmatch(pattern.replace("…", r"[\s\S]*"), out.strip("\n")), f"{out}\n--- is not\n{shown}"


def test_it_is_a_front_door():
    """It is short, and the two commands for a checkout are there as they are tested."""
    assert len(TEXT.splitlines()) <= 120
    shell = [block.text for block in blocks_of(README) if block.language == "bash"]
    assert DEMO in shell
    assert TESTS in shell
    # `.ci/run` and the workflow run the lines with this end.
    assert re.findall(r".*\.venv/bin/tox\n", TEXT) == [TESTS]


@pytest.mark.real
async def test_the_programs_print_what_is_shown(tmp_path):
    """The first one only asks, for a job costs money; the second one creates a job."""
    programs = [block for block in blocks_of(README) if block.kind == "script"]
    shown = [block.text for block in blocks_of(README) if block.language == "text"]
    for program, text, operation in zip(programs, shown, ("ask", "create_job"), strict=True):
        async with LocalService(docs=DOCS, life=JobLife(seconds=0.3)) as service:
            environment = child_environment(service, MINTLIFY_SITE=AnswerStyle().site)  # as `serve` prints
            out = await run_file(program, environment, tmp_path)
            assert service.requests[0].operation == operation
            assert (service.requests.count("create_job") > 0) == (operation == "create_job")
        check_printed(out, text)


def tutorial() -> list[tuple[Block, str]]:
    """Return the tutorial's files, each with the output that the page shows for it."""
    found: list[tuple[Block, str]] = []
    for block in blocks_of(DOCS / "tutorial.md"):
        if block.title:
            found.append((block, ""))
        elif block.language == "text":
            found[-1] = (found[-1][0], block.text)
    return found


@pytest.mark.real
async def test_the_tutorial_runs_in_order(tmp_path):
    """One service, one folder, every step as it is printed; each prints what the page shows."""
    steps = tutorial()
    assert len(steps) == 5
    async with LocalService(docs=DOCS, life=JobLife(seconds=0.3)) as service:
        for block, shown in steps:
            write_files(block, tmp_path)
            out = await run_file(block, child_environment(service), tmp_path)
            check_printed(out.splitlines()[-1] if block.kind == "test" else out, shown or "…")
    assert service.requests.count("create_job") == 2


async def test_each_command_exists():
    """Each command that the README names has a help text."""
    for command in set(re.findall(r"mintlify-async (\w+)`", TEXT)):
        assert (await run(command, "--help")).status == 0, command


@pytest.mark.real
async def test_the_test_in_node(tmp_path):
    """The page's test passes in node."""
    shown = {block.language: block.text for block in blocks_of(DOCS / "how-to" / "other-languages.md")}
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (tmp_path / "page.test.mjs").write_text(shown["js"], encoding="utf-8")
    env = child_environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert "pass 1" in await run_to_end("node", "--test", "page.test.mjs", cwd=tmp_path, env=env)


@pytest.mark.sweep
async def test_the_first_command_in_an_empty_environment(tmp_path):
    """The command for a checkout, in a fresh copy: exit status 0, a thread id, a completed job."""
    if os.environ.get("MINTLIFY_ASYNC_REQUIRE_REAL") != "1" or not (ROOT / "mintlify_async").is_dir():
        pytest.skip("it installs from the package index: only `tox -e sweep` runs it")
    left_out = shutil.ignore_patterns(".git", ".tox", ".venv", "node_modules", "__pycache__")
    where = Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=left_out))
    foreign = ("MINTLIFY_", "PYTHON", "VIRTUAL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    out = await run_to_end("bash", "-c", DEMO, cwd=where, env=kept)
    assert re.search(r"thread id: \S+", out)
    assert "completed" in out
