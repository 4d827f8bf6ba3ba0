"""The README as it stands, the tutorial in order, and what pages say that is counted or written elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from child_process import child_environment
from page_blocks import Block, blocks_of
from page_runner import run_file, succeed, write_files

import mintlify_async
from mintlify_async.testing import JobLife, LocalService, Script, load_script

ROOT = Path(__file__).parents[2]
PACKAGE = Path(mintlify_async.__file__).parent
DOCS = PACKAGE / "docs"
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
DEMO = "python3 -m venv .venv && .venv/bin/pip install -q '.[cli]' && .venv/bin/mintlify-async demo\n"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -q tox && .venv/bin/tox\n"


def page(name: str) -> str:
    """Return the text of a page of the documentation."""
    return (DOCS / f"{name}.mdx").read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, in the way that code hosts spell them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_printed(out: str, shown: str) -> None:
    """Compare output with what a page shows; ``…`` stands for any lines, a number for any number."""
    pattern = re.sub(r"\d+", r"\\d+", re.escape(shown.strip("\n")))
    assert re.fullmatch(pattern.replace("…", r"[\s\S]*"), out.strip("\n")), f"{out}\n--- is not\n{shown}"


def test_it_is_a_front_door():
    """It is short, and the two commands for a checkout are there as they are tested."""
    assert len(TEXT.splitlines()) <= 150
    shell = [block.text for block in blocks_of(README) if block.language == "bash"]
    assert DEMO in shell
    assert TESTS in shell


async def test_the_first_program_prints_what_is_shown(tmp_path):
    """A streamed answer, then a finished job with its pull request."""
    (program,) = [block for block in blocks_of(README) if block.kind == "script"]
    (shown,) = [block.text for block in blocks_of(README) if block.language == "text"]
    async with LocalService(docs=DOCS, life=JobLife(seconds=0.3)) as service:
        out = await run_file(program, child_environment(service), tmp_path)
        assert [request.operation for request in service.requests][:2] == ["ask", "create_job"]
    check_printed(out, shown)


def tutorial() -> list[tuple[Block, str]]:
    """Return the tutorial's files, each with the output that the page shows for it."""
    found: list[tuple[Block, str]] = []
    for block in blocks_of(DOCS / "tutorial.mdx"):
        if block.title:
            found.append((block, ""))
        elif block.language == "text":
            found[-1] = (found[-1][0], block.text)
    return found


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


@pytest.mark.parametrize("command", sorted(set(re.findall(r"mintlify-async (\w+)`", TEXT))))
async def test_each_command_exists(command, tmp_path):
    """Each command that the README names has a help text."""
    args = (sys.executable, "-m", "mintlify_async", command, "--help")
    assert "usage: mintlify-async" in await succeed(*args, cwd=tmp_path, env=child_environment())


def test_each_link_leads_somewhere():
    """Pages are in the site's navigation, which test_docs follows; headings, pictures and files are there."""
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    navigation = (DOCS / "docs.json").read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
        path, _, anchor = link.partition("#")
        base = PACKAGE.parent if path.startswith(f"{PACKAGE.name}/") else ROOT  # the wheel may be elsewhere
        if path.endswith(".mdx"):
            assert f'"{path.removeprefix("mintlify_async/docs/").removesuffix(".mdx")}"' in navigation
        else:
            assert (base / path).exists(), link
        if anchor:
            assert anchor in anchors((base / path).read_text(encoding="utf-8")), link


def test_every_assumption_has_its_row():
    """Each line that is marked in the code is told to the reader."""
    marked: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        marked |= set(re.findall(r"# assumption: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    table = page("explanation/assumptions").lower()
    assert marked
    assert not [words for words in marked if words.strip().lower() not in table]


def test_every_extra_is_shown_with_both_ways_to_install_it():
    """From the package index, and from a checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in project["optional-dependencies"]:
        assert f"pip install 'mintlify-async[{extra}]'" in TEXT
        assert f"| `pip install 'mintlify-async[{extra}]'` | `pip install '.[{extra}]'` |" in page("index")


async def test_every_variable_is_shown(tmp_path):
    """What the command line names as its environment is in the page's table."""
    args = (sys.executable, "-m", "mintlify_async", "--help")
    told = await succeed(*args, cwd=tmp_path, env=child_environment())
    names = set(re.findall(r"^  (MINTLIFY_\w+)", told, re.MULTILINE))
    assert names == set(re.findall(r"^\| `(MINTLIFY_\w+)`", page("index"), re.MULTILINE))


def test_the_figures_are_those_of_the_benchmarks():
    """``tox -e docs`` renews table and chart; they cannot go stale unnoticed."""
    pictures = pytest.importorskip("pictures", reason="rich is not installed")
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    text = page("explanation/speed")
    assert pictures.with_speed_table(text, pictures.speed_table(results)) == text
    assert (DOCS / "images" / "speed.svg").read_text(encoding="utf-8") == pictures.speed_picture(results)


def test_the_picture_shows_the_terminal_as_it_is():
    """The command prints today what the picture shows."""
    pictures = pytest.importorskip("pictures", reason="rich is not installed")
    stored = (DOCS / "images" / "terminal.svg").read_text(encoding="utf-8")
    assert pictures.text_of(pictures.terminal_picture()) == pictures.text_of(stored)


async def test_the_test_in_node_and_its_script(tmp_path):
    """The page's test passes in node, and its script file is accepted whole."""
    shown = {block.language: block.text for block in blocks_of(DOCS / "how-to" / "other-languages.mdx")}
    (tmp_path / "answers.json").write_text(shown["json"], encoding="utf-8")
    assert len(load_script(tmp_path / "answers.json", Script())) == 4
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (tmp_path / "page.test.mjs").write_text(shown["js"], encoding="utf-8")
    (tmp_path / "mintlify-async").write_text(f'#!/bin/sh\nexec {sys.executable} -m mintlify_async "$@"\n')
    (tmp_path / "mintlify-async").chmod(0o755)
    env = child_environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "pass 1" in await succeed("node", "--test", "page.test.mjs", cwd=tmp_path, env=env)


async def test_the_first_command_in_an_empty_environment(tmp_path):
    """The command for a checkout, in a fresh copy: exit status 0, a thread id, a completed job."""
    if os.environ.get("MINTLIFY_ASYNC_REQUIRE_REAL") != "1" or not (ROOT / "mintlify_async").is_dir():
        pytest.skip("it installs from the package index: only `tox -e real` runs it")
    left_out = shutil.ignore_patterns(".git", ".tox", ".venv", "node_modules", "__pycache__")
    where = Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=left_out))
    foreign = ("MINTLIFY_", "PYTHON", "VIRTUAL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    out = await succeed("bash", "-c", DEMO, cwd=where, env=kept)
    assert re.search(r"thread id: \S+", out)
    assert "completed" in out
