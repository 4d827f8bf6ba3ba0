"""The ledger in a git remote: what reaches the remote, what it leaves alone, and how it fails."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from git_kit import claim_refs, clone, git, make_remote
from ledger_kit import LEASE, PRINT, Post, create

from mintlify_async.contrib.git import GitLedger, GitLedgerError
from mintlify_async.errors import ConfigurationError
from mintlify_async.storage import Claim
from mintlify_async.testing import VirtualClock

REF = "refs/mintlify/8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"  # SHA-256 of "k"


def claim_of(token="t"):
    return Claim(key="k", fingerprint=PRINT, token=token, claimed_at=1.5, lease_until=1.5 + LEASE)


@pytest.fixture
def remote(tmp_path):
    return make_remote(tmp_path)


@pytest.fixture
def checkout(remote, tmp_path):
    return clone(remote, tmp_path / "checkout", "--depth=1")


async def failure(ledger):
    """Return the error of a creation; nothing is sent."""
    post = Post()
    with pytest.raises(GitLedgerError) as caught:
        await create(ledger, VirtualClock(), post)
    assert post.count == 0
    return caught.value


async def test_what_is_in_the_remote(remote, checkout):
    """One ref named after the key's hash: a commit without files that has the claim, then the id."""
    ledger = GitLedger(directory=checkout)
    assert await ledger.claim(claim_of()) == claim_of()
    assert ledger.ref("k") == REF
    assert claim_refs(remote) == [REF]
    first = git(remote, "rev-parse", REF)
    assert git(remote, "ls-tree", REF) == ""
    assert json.loads(git(remote, "log", "-1", "--format=%b", REF))["fingerprint"] == PRINT
    await ledger.record(claim_of(), "job_1")
    assert json.loads(git(remote, "log", "-1", "--format=%b", REF))["job_id"] == "job_1"
    assert git(remote, "rev-parse", f"{REF}^") == first
    git(remote, "fsck", "--strict")


async def test_a_shallow_checkout_is_left_as_it_was(remote, checkout):
    """Its refs, files, settings and FETCH_HEAD are the same; its hooks do not run."""
    hook = checkout / ".git" / "hooks" / "pre-push"
    hook.write_text("#!/bin/sh\ntouch ../ran; exit 1\n")
    hook.chmod(0o755)

    def state():
        config = (checkout / ".git" / "config").read_text()
        return git(checkout, "for-each-ref"), git(checkout, "status", "--short"), config

    before = state()
    ledger = GitLedger(directory=checkout)
    await create(ledger, VirtualClock(), Post())
    assert (await ledger.find("k")).job_id == "job_1"
    assert state() == before
    assert not (checkout / ".git" / "FETCH_HEAD").exists()
    assert git(remote, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", REF]


@pytest.mark.parametrize("prefix", ["refs/tags/mintlify/", "refs/heads/mintlify/"])
async def test_a_host_that_takes_no_such_refs(remote, checkout, prefix):
    """The error names the prefixes to use instead, and with each of them it works."""
    hook = remote / "hooks" / "update"
    hook.write_text(
        '#!/bin/sh\ncase "$1" in refs/heads/*|refs/tags/*) ;; *) echo no such refs; exit 1;; esac\n'
    )
    hook.chmod(0o755)
    git(remote, "config", "receive.denyNonFastForwards", "true")
    error = await failure(GitLedger(directory=checkout))
    assert error.reason == "refused"
    assert f"prefix='{prefix}'" in str(error)
    assert REF in str(error)
    ledger = GitLedger(directory=checkout, prefix=prefix)
    assert (await create(ledger, VirtualClock(), Post())).id == "job_1"
    assert await create(ledger, VirtualClock(), Post()) == "job_1"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("remote: Permission to acme/docs.git denied to github-actions[bot].", "permission"),
        ("remote: Write access to repository not granted.", "permission"),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 403", "permission"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "permission"),
        ("git@h: Permission denied (publickey).\nfatal: Could not read from remote", "permission"),
        ("remote: You are not allowed to push code to this project.", "permission"),
        ("fatal: Authentication failed for 'https://h/'", "permission"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "unreachable"),
        ("fatal: unable to access 'https://h/': Failed to connect to h port 443", "unreachable"),
        ("ssh: connect to host h port 22: Connection refused", "unreachable"),
        ("fatal: the remote end hung up unexpectedly", "unreachable"),
    ],
)
async def test_what_a_host_says_is_understood(checkout, tmp_path, monkeypatch, said, reason):
    """A missing right is named; else the remote was not reached. A password is hidden."""
    real = shutil.which("git")
    stub = tmp_path / "bin" / "git"
    stub.parent.mkdir()
    said = said.replace("https://h", "https://me:s3cret@h")
    stub.write_text(
        f"#!/bin/sh\ncase \"$*\" in *' push '*|*' fetch '*) cat >&2 <<'END'\n{said}\nEND\nexit 128;; esac\n"
        f'exec {real} "$@"\n'
    )
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    error = await failure(GitLedger(directory=checkout))
    assert error.reason == reason
    assert ("contents: write" in str(error)) == (reason == "permission")
    assert "s3cret" not in str(error)
    assert pickle.loads(pickle.dumps(error)).reason == reason
    assert len(str(error).splitlines()) == 2


async def test_a_remote_that_is_away(checkout):
    """Nothing listens there: it was not reached."""
    error = await failure(GitLedger("http://127.0.0.1:1/acme/docs.git", directory=checkout))
    assert error.reason == "unreachable"
    shutil.rmtree(checkout.parent / "remote.git")
    assert (await failure(GitLedger(directory=checkout))).reason == "unreachable"


async def test_without_git_or_a_checkout(checkout, tmp_path, monkeypatch):
    """The error says what to run it in."""
    (tmp_path / "empty").mkdir()
    for directory in ("empty", "nowhere"):
        error = await failure(GitLedger(directory=tmp_path / directory))
        assert error.reason == "git"
        assert "checkout" in str(error)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "is git installed?" in str(await failure(GitLedger(directory=checkout)))


@pytest.fixture
def hung(tmp_path, monkeypatch):
    """A git that writes its environment and its process id, and then hangs, with a child."""
    stub = tmp_path / "bin" / "git"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nenv > {tmp_path}/env\nsleep 1000 &\necho "$$ $!" > {tmp_path}/ids\nwait\n')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MINTLIFY_ADMIN_API_KEY", "mint_secret")
    return tmp_path / "ids"


def alive(process):
    """Return whether a process runs; a zombie, which its parent has yet to notice, does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("how", ["timeout", "cancel", "cancel while it starts"])
async def test_a_git_that_hangs_is_killed(checkout, hung, monkeypatch, how):
    """With what it has started; it never got the service's key, and may not ask for a password."""

    class Slow(subprocess.Popen):
        """The cancellation arrives before asyncio has taken the new process over."""

        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            while not hung.exists() or not hung.read_text().strip():
                time.sleep(0.01)
            finding.cancel()

    if how == "cancel while it starts":
        monkeypatch.setattr(subprocess, "Popen", Slow)
    ledger = GitLedger(directory=checkout, timeout=0.5 if how == "timeout" else 60)
    finding = asyncio.create_task(ledger.find("k"))
    while not hung.exists() or not hung.read_text().strip():
        await asyncio.sleep(0.01)
    if how == "timeout":
        with pytest.raises(GitLedgerError, match="no answer within") as caught:
            await finding
        assert caught.value.reason == "unreachable"
    else:
        finding.cancel()
        await asyncio.wait([finding])
        assert finding.cancelled()
    async with asyncio.timeout(30):
        while any(alive(process) for process in hung.read_text().split()):
            await asyncio.sleep(0.01)
    env = (hung.parent / "env").read_text()
    assert "mint_secret" not in env
    assert "GIT_TERMINAL_PROMPT=0" in env


@pytest.mark.parametrize("moment", ["hash-object", "push"])
async def test_cancelled_while_it_claims(remote, checkout, monkeypatch, moment):
    """The push is brought to its end, and the claim is released: the key is free."""
    ledger, reached = GitLedger(directory=checkout), asyncio.Event()
    run = ledger._run

    async def watched(*arguments, stdin=""):
        if arguments[0] == moment:
            reached.set()
        return await run(*arguments, stdin=stdin)

    monkeypatch.setattr(ledger, "_run", watched)
    post = Post()
    creating = asyncio.create_task(create(ledger, VirtualClock(), post))
    await reached.wait()
    creating.cancel()
    await asyncio.wait([creating])
    assert creating.cancelled()
    assert post.count == 0
    assert claim_refs(remote) == []


async def test_a_lost_answer_is_looked_up(checkout, monkeypatch):
    """A push that was done, and seems to have failed, is not taken for another's claim, nor for a failure."""
    ledger = GitLedger(directory=checkout)
    run = ledger._run

    async def lossy(*arguments, stdin=""):
        done = await run(*arguments, stdin=stdin)
        return (128, "", "fatal: the remote end hung up unexpectedly") if arguments[0] == "push" else done

    monkeypatch.setattr(ledger, "_run", lossy)
    assert (await create(ledger, VirtualClock(), Post())).id == "job_1"
    assert await ledger.open_claims() == []
    await ledger.forget("k")
    assert await ledger.find("k") is None


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("remote", {"remote": ""}),
        ("remote", {"remote": "--upload-pack=evil"}),
        ("remote", {"remote": None}),
        ("remote", {"remote": "https://me:token@github.com/acme/docs"}),
        ("remote", {"remote": "https://token@github.com/acme/docs"}),
        ("prefix", {"prefix": "refs/mintlify"}),
        ("prefix", {"prefix": "refs/../x/"}),
        ("prefix", {"prefix": "refs/a*/"}),
        ("directory", {"directory": 7}),
        ("timeout", {"timeout": 0}),
    ],
)
def test_arguments_are_checked(field, arguments):
    """An argument that git would misunderstand, or that has a password, is refused and not shown."""
    with pytest.raises(ConfigurationError) as caught:
        GitLedger(**arguments)
    assert caught.value.field == field
    assert "token" not in str(caught.value).replace("password", "")
