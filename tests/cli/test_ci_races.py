"""``ci`` in processes that race on one remote, or are killed at any step: no request goes out twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
from child_process import child_environment
from git_kit import claim_refs, clone, make_remote

from mintlify_async.testing import JobLife, LocalService

PROGRAM = Path(__file__).parents[1] / "support" / "ci_worker.py"

WHOLE = os.environ.get("SWEEPS") == "whole"
"""``SWEEPS=whole python -m pytest tests/cli/test_ci_races.py`` runs every round and every step."""

PAIRS = 500 if WHOLE else 20
ROUNDS = 52 if WHOLE else 2
CLAIM = [f"{side} {number}" for number in (1, 2, 3) for side in ("before", "after")]
RECORD = [f"{side} {number}" for number in (4, 5, 6) for side in ("before", "after")]
STEPS = [*CLAIM, "before POST", "after POST", *RECORD]
"""A run that sends calls git three times to claim and three times to record; the last one is the push."""
TRIED = STEPS if WHOLE else ["before 3", "after 3", "after POST", "after 6"]

OTHER_CALLS = 7
"""A run that sends a follow-up has before tried to claim the job's key, and has looked for its turn's;
its first commit needs no second empty tree."""


@pytest.fixture
async def service():
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        yield service


@contextlib.asynccontextmanager
async def worker(service, checkout, *step, limit=60):
    """Start a worker in *checkout*, and end it; a POST may last *limit* seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, *step,
        env=child_environment(service, LIMIT=str(limit)),
        cwd=checkout,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )  # fmt: skip
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.stdin.close()
        await process.wait()


async def ci(process, key, turn, prompt="Fix it"):
    """Run ``ci`` in a worker; return the exit status and what it said, or None if it was killed."""
    # A follow-up's result would only be believed after a minute; what was sent is known at once.
    options = [prompt, "--key", key, "--turn", turn, "--timeout", "0.5"]
    process.stdin.write(json.dumps(options).encode() + b"\n")
    line = await process.stdout.readline()
    return json.loads(line) if line else None


def posts(service):
    return [request.operation for request in service.requests if request.method == "POST"]


async def test_pairs_of_runs_for_one_commit(service, tmp_path):
    """Two clones, one bare remote: each pair makes one POST, and both get its job."""
    remote = make_remote(tmp_path)
    async with (
        worker(service, clone(remote, tmp_path / "a")) as a,
        worker(service, clone(remote, tmp_path / "b", "--depth=1")) as b,
    ):
        for number in range(PAIRS):
            key = f"pull request {number}"
            results = await asyncio.gather(ci(a, key, "c1"), ci(b, key, "c1"))
            assert [status for status, _ in results] == [0, 0], results
            ids = {said.split("completed")[0].rsplit("\n", 1)[-1].strip() for _, said in results}
            assert len(ids) == 1
            assert len(posts(service)) == number + 1
    assert posts(service) == ["create_job"] * PAIRS
    assert len(claim_refs(remote)) == PAIRS


async def test_pairs_of_runs_for_two_commits(service, tmp_path):
    """One of them creates the job, the other waits for it and sends its follow-up."""
    remote = make_remote(tmp_path)
    async with (
        worker(service, clone(remote, tmp_path / "a")) as a,
        worker(service, clone(remote, tmp_path / "b")) as b,
    ):
        for number in range(ROUNDS):
            key = f"pull request {number}"
            results = await asyncio.gather(ci(a, key, "c1", "One"), ci(b, key, "c2", "Two"))
            assert sorted(status for status, _ in results) == [0, 4], results
            assert len(posts(service)) == 2 * (number + 1), results
    assert sorted(posts(service)) == ["create_job"] * ROUNDS + ["send_message"] * ROUNDS


@pytest.mark.parametrize("kind", ["create_job", "send_message"])
@pytest.mark.parametrize("step", TRIED)
async def test_killed_at_each_step(service, tmp_path, step, kind):
    """The next run sends what was never claimed, finds what was recorded, or names the ref to look at."""
    moment = STEPS.index(step)
    sent, recorded = moment >= STEPS.index("after POST"), step == "after 6"
    claimed = moment >= STEPS.index("after 3")
    remote = make_remote(tmp_path)
    key, before, turn = "pull request 7", 0, "c1"
    if kind == "send_message":
        async with worker(service, clone(remote, tmp_path / "before")) as process:
            assert (await ci(process, key, "c0"))[0] == 0
        before, turn = 1, "c2"
        side, number = step.split()
        step = step if number == "POST" else f"{side} {int(number) + OTHER_CALLS}"
    async with worker(service, clone(remote, tmp_path / "a"), *step.split(), limit=1) as process:
        assert await ci(process, key, turn) is None
    assert posts(service)[before:] == [kind] * sent
    async with worker(service, clone(remote, tmp_path / "b")) as process:
        status, said = await ci(process, key, turn)
    if claimed and not recorded:
        assert status == 1
        assert posts(service)[before:] == [kind] * sent
        (ref,) = [ref for ref in claim_refs(remote) if ref in said]
        assert f"git push origin --delete {ref}" in said
    else:
        assert status == (0 if kind == "create_job" else 4), said
        assert posts(service)[before:] == [kind]
