"""The example for CI: which change each merge belongs to, and what is sent for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import docs_drift
import pytest

from mintlify_async.testing import JobLife, LocalService
from tests.support.child_process import child_environment

pytestmark = pytest.mark.real

PROGRAM = Path(docs_drift.__file__)


@pytest.fixture
async def service():
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        yield service


@pytest.fixture
def merge(tmp_path):
    """Commits a change with a message in the checkout, as a merge does."""
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)

    def git(*arguments):
        author = ["-c", "user.name=Ada", "-c", "user.email=ada@acme.test"]
        subprocess.run(["git", *author, *arguments], cwd=work, check=True)

    def merge(message, text="def login(): ...\n", file="src/app.py"):
        (work / file).write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", message)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "Begin")
    return merge


@pytest.fixture
def run(service, tmp_path):
    """Runs the example in the checkout, where the cache has restored the ledger's folder."""
    command = tmp_path / "bin" / "mintlify-async"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mintlify_async "$@"\n')
    command.chmod(0o755)

    def run(*paths):
        env = child_environment(service, PATH=f"{command.parent}:{os.environ['PATH']}")
        return subprocess.run(
            [sys.executable, str(PROGRAM), *(paths or ["src"])],
            cwd=tmp_path / "work", env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return lambda *paths: asyncio.to_thread(run, *paths)


def posts(service):
    return [(request.operation, request.json["prompt"]) for request in service.requests if request.json]


async def test_a_merged_change_has_one_job(service, merge, run):
    """Its prompt has message and diff; a re-run sends nothing, nor does what is outside the given paths."""
    merge("Fix a test (#11)", file="test.py")
    ended = await run("src", "openapi.json")
    assert (ended.returncode, ended.stdout) == (0, "nothing that is documented was changed\n")
    merge("Add a login (#12)\n\nIt takes a password.")
    for _ in range(2):
        ended = await run()
        assert ended.returncode == 0, ended.stderr
    ((operation, prompt),) = posts(service)
    assert operation == "create_job"
    assert "It takes a password." in prompt
    assert "+def login(): ..." in prompt
    merge("Log out (#16)", "def logout(): ...\n")
    assert (await run()).returncode == 0
    assert [operation for operation, _ in posts(service)] == ["create_job", "create_job"]
