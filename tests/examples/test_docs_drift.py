"""The example for CI: which change each merge belongs to, and what is sent for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import docs_drift
import pytest
from child_process import child_environment
from git_kit import claim_refs, clone, git, make_remote

from mintlify_async.testing import JobLife, LocalService

PROGRAM = Path(docs_drift.__file__)


@pytest.fixture
async def service():
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        yield service


@pytest.fixture
def remote(tmp_path):
    return make_remote(tmp_path)


@pytest.fixture
def merge(remote, tmp_path):
    """Commits a change of ``src`` with a message, and pushes it, as a merge does."""
    work = clone(remote, tmp_path / "work")
    (work / "src").mkdir()

    def merge(message, text="def login(): ...\n", file="src/app.py"):
        (work / file).write_text(text)
        git(work, "add", ".")
        git(work, "commit", "--quiet", "-m", message)
        git(work, "push", "--quiet", "origin", "HEAD:main")

    return merge


@pytest.fixture
def command(tmp_path):
    path = tmp_path / "bin" / "mintlify-async"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mintlify_async "$@" --timeout 0.5\n')
    path.chmod(0o755)
    return f"{path.parent}:{os.environ['PATH']}"


@pytest.fixture
def run(service, remote, tmp_path, command):
    """Runs the example in a fresh checkout of the newest commit, as a CI job does."""

    def run(*paths):
        number = len(list(tmp_path.glob("ci-*")))
        checkout = clone(remote, tmp_path / f"ci-{number}", "--depth=2")
        env = child_environment(service, PATH=command, GITHUB_ACTIONS=None, GITHUB_REPOSITORY=None)
        return subprocess.run(
            [sys.executable, str(PROGRAM), *(paths or ["src"])],
            cwd=checkout, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return lambda *paths: asyncio.to_thread(run, *paths)


def posts(service):
    return [(request.operation, request.json["prompt"]) for request in service.requests if request.json]


async def test_a_merged_change_has_one_job(service, remote, merge, run):
    """Its prompt has message and diff; a re-run sends nothing; the follow-up goes to the same job."""
    merge("Add a login (#12)\n\nIt takes a password.")
    for _ in range(2):
        ended = await run()
        assert ended.returncode == 0, ended.stderr
    ((operation, prompt),) = posts(service)
    assert operation == "create_job"
    assert "It takes a password." in prompt
    assert "+def login(): ..." in prompt
    merge("Log in by SSO, too (#15)\n\nFollow-up to #12", "def login(sso): ...\n")
    ended = await run()
    assert ended.returncode == 4, ended.stderr  # the result of a follow-up is believed after a minute
    assert [operation for operation, _ in posts(service)] == ["create_job", "send_message"]
    assert service.requests.of("send_message")[0].path.endswith("/job_1/message")
    merge("Log out (#16)", "def logout(): ...\n")
    assert (await run()).returncode == 0
    assert [operation for operation, _ in posts(service)][2:] == ["create_job"]
    assert len(claim_refs(remote)) == 3


async def test_what_is_not_documented_sends_nothing(service, merge, run):
    """A change outside the given paths."""
    merge("Fix a test (#13)", file="test.py")
    ended = await run("src", "openapi.json")
    assert (ended.returncode, ended.stdout) == (0, "nothing that is documented was changed\n")
    assert not service.requests


async def test_a_change_in_another_encoding(service, merge, run, tmp_path):
    """The prompt is text all the same."""
    (tmp_path / "work" / "src" / "old.txt").write_bytes("grün".encode("latin-1"))
    merge("Add an old file (#17)")
    ended = await run()
    assert ended.returncode == 0, ended.stderr
    assert "+gr\ufffdn" in posts(service)[0][1]


async def test_a_long_change_is_cut(service, merge, run):
    """The prompt stays bounded, and names all files."""
    merge("Rewrite it (#14)", "x = 1\n" * 50_000)
    ended = await run()
    assert ended.returncode == 0, ended.stderr
    ((_, prompt),) = posts(service)
    assert len(prompt) < 70_000
    assert "src/app.py | 50000 +" in prompt


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Add a login (#12)", "#12"),
        ("Merge pull request #12 from acme/login\n\nAdd a login", "#12"),
        ("Log in by SSO (#15)\n\nIt is new.\n\nfollow-up to #12", "#12"),
        ("Add a login\n\nCloses #3", "abc"),
        ("", "abc"),
    ],
)
def test_what_names_a_change(message, name):
    """The pull request, where the message's first line has it; else the commit."""
    assert docs_drift.name_of(message, "abc") == name
