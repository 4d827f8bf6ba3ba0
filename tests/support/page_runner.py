"""Runs the printed code blocks of README and pages against a local service.

``run_block`` is a fixture. ``await run_block(block)`` returns the output of the block.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from page_blocks import Block, blocks_of, example_text, modules_of

import mintlify_async
from mintlify_async import PollPolicy
from mintlify_async.testing import JobLife, LocalService
from tests.support.child_process import LONGEST_SECONDS, child_environment, run_to_end

LIFE = JobLife(seconds=0.3)
DOCS = Path(mintlify_async.__file__).parent / "docs"


@pytest.fixture
def run_block(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs one block in a folder with only the files that the page shows before it.

    If the block fails, it fails. The block fails with an exception, another exit status, or, for an example,
    another text. A block that reads ``REDIS_URL`` gets a Redis, and one with ``DATABASE_URL`` a Postgres.
    """
    extra = {"RELAY_SECRET": "a secret of the app, " * 2}  # of an app on a page, besides our own settings

    async def run(block: Block) -> str:
        if block.kind == "example":
            assert block.text == example_text(block.title), f"examples/{block.title} changed: `tox -e docs`"
            return block.text
        skip_without_modules(block)
        write_files(block, tmp_path)
        async with LocalService(life=LIFE, docs=DOCS) as service:
            if block.kind == "fragment":
                for name, value in (service.environment | extra).items():
                    monkeypatch.setenv(name, value)
                monkeypatch.chdir(tmp_path)
                return await run_fragment(block, service)
            environment = child_environment(service, **extra)
            if block.kind == "console":
                return await run_console(block, environment, tmp_path)
            return await run_file(block, environment, tmp_path)

    for name, fixture in {"REDIS_URL": "redis_server", "DATABASE_URL": "postgres_server"}.items():
        if name in str(vars(request.node).get("callspec")):  # has the block, where it is a parameter
            extra[name] = request.getfixturevalue(fixture).url
    return run


def skip_without_modules(block: Block) -> None:
    """Skip the test of a block that imports another program, if that is not installed."""
    if block.language == "python":
        shown = {Path(one.title).stem for one in blocks_of(block.file) if one.title}
        for module in sorted(modules_of(block) - shown):
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed")


def write_files(block: Block, folder: Path) -> None:
    """Write the files that the page names before *block*, and the pytest configuration that it shows."""
    for earlier in blocks_of(block.file):
        if earlier.title.endswith(".py") and earlier.line < block.line:
            (folder / earlier.title).write_text(earlier.text, encoding="utf-8")
        if earlier.language == "toml" and "pytest" in tomllib.loads(earlier.text).get("tool", {}):
            (folder / "pyproject.toml").write_text(earlier.text, encoding="utf-8")


async def run_fragment(block: Block, service: LocalService) -> str:
    """Run the block in this process, with a session. Return an empty string."""
    names = {name: getattr(mintlify_async, name) for name in mintlify_async.__all__}
    names |= {"asyncio": asyncio, "os": os, "__name__": "fragment"}
    text = "\n" * (block.line - 1) + block.text  # its lines are the page's
    code = compile(text, str(block.file), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    poll = PollPolicy(initial=0.1, settle_seconds=service.settle_seconds)
    async with asyncio.timeout(LONGEST_SECONDS), service.session(poll=poll) as session:
        running = eval(code, names | {"session": session})
        if running is not None:  # the block awaits something
            await running
    return ""


async def run_file(block: Block, environment: dict[str, str], folder: Path) -> str:
    """Run a program, or a test file with pytest."""
    name = block.title or ("test_page.py" if block.kind == "test" else "program.py")
    (folder / name).write_text(block.text, encoding="utf-8")
    if block.kind == "script":
        return await run_to_end(sys.executable, name, env=environment, cwd=folder)
    return await run_tests(folder, environment, name)


async def run_tests(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    """Run pytest in *folder*. All tests must pass."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
    environment = environment | {"PYTHONWARNINGS": ""}  # pytest's plugins may warn
    out = await run_to_end(*command, env=environment, cwd=folder)
    assert re.search(r"^\d+ passed in", out, re.MULTILINE), out
    return out


COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)\n(?:(?!\$ ).*\n)*(?:\$ echo \$\?\n(\d+)\n)?", re.MULTILINE)
"""A command, what it prints, and its status where ``$ echo $?`` below shows another one than 0."""

SERVE = """\
{command} --port 0 > serve.out & server=$!
until grep -q ready serve.out; do kill -0 $server || exit 99; sleep 0.05; done
kill $server; wait $server
"""


async def run_console(block: Block, environment: dict[str, str], folder: Path) -> str:
    """Run the commands that name ``mintlify-async``, or a Python file that the page shows, in one shell."""
    lines = []
    for command, status in COMMAND.findall(block.text):
        program = re.match(r"python (\S+)", command)
        if "mintlify-async" not in command and not (program and (folder / program[1]).exists()):
            continue
        line = SERVE.format(command=command) if command.startswith("mintlify-async serve") else f"{command}\n"
        wrong = shlex.quote(f"instead of {status or 0}: {command}")
        lines.append(f"{line}got=$?; [ $got = {status or 0} ] || {{ echo $got {wrong} >&2; exit 99; }}\n")
    path = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment |= {"PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
    return await run_to_end("bash", "-c", "".join(lines), env=environment, cwd=folder) if lines else ""
