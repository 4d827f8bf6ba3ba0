"""What the tests of claims in git share: a bare remote, clones of it, and a ledger on the virtual clock."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from mintlify_async.contrib.git import GitLedger
from mintlify_async.testing import VirtualClock


def git(folder: Path, *arguments: str) -> str:
    """Run git in *folder*, whatever the user's own settings are, and return what it printed."""
    who = {f"GIT_{role}_{what}": "t@t" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = os.environ | who | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def make_remote(folder: Path) -> Path:
    """Make a bare repository with one commit on ``main``, and return its path."""
    remote = folder / "remote.git"
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(remote))
    first = clone(remote, folder / "first")
    git(first, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(first, "push", "--quiet", "origin", "HEAD:refs/heads/main")
    return remote


def clone(remote: Path, into: Path, *options: str) -> Path:
    """Clone *remote* and return the clone's path."""
    git(remote.parent, "clone", "--quiet", *options, f"file://{remote}", str(into))
    return into


def claim_refs(remote: Path) -> list[str]:
    """Return the refs of the remote that are claims."""
    return git(remote, "for-each-ref", "--format=%(refname)", "refs/mintlify/").split()


class HeldGitLedger(GitLedger):
    """A ledger in a remote of its own; the virtual time stands still while git works."""

    def __init__(self, folder: Path) -> None:
        for options in (["--bare", "remote.git"], ["checkout"]):
            git(folder, "init", "--quiet", *options)
        self.clock = VirtualClock()
        super().__init__(str(folder / "remote.git"), directory=folder / "checkout")

    async def _run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        with self.clock.hold():
            return await super()._run(*arguments, stdin=stdin)
