"""The ledger among processes, and after a kill at each step: never two POSTs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from child_process import child_environment
from ledger_process import KEY, STEPS

from mintlify_async.storage import SQLiteLedger

PROGRAM = Path(__file__).parents[1] / "support" / "ledger_process.py"


def start(tmp_path, step="never"):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(tmp_path / "ledger.db"), str(tmp_path / "posts"), step],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )


def finish(process):
    out, _ = process.communicate(timeout=60)
    return process.returncode, out.strip()


def posts(tmp_path):
    path = tmp_path / "posts"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("count", [2, 6])
def test_processes_that_race_make_one_post(tmp_path, count):
    """All get the same job."""
    results = [finish(process) for process in [start(tmp_path) for _ in range(count)]]
    (winner,) = posts(tmp_path)
    assert results == [(0, f"job_{winner}")] * count


@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_each_step(tmp_path, step):
    """What was, or may have been, sent is never sent again: the next process gets the job, or is told."""
    first = start(tmp_path, step)
    code, _ = finish(first)
    assert code == (0 if step == "never" else -signal.SIGKILL)
    open_claims = await SQLiteLedger(tmp_path / "ledger.db").open_claims()
    code, second = finish(start(tmp_path))
    assert code == 0
    assert len(posts(tmp_path)) == (0 if step in ("after the claim", "before the POST") else 1)
    if step == "before the claim":
        assert second == f"job_{posts(tmp_path)[0]}"
        assert open_claims == []
    elif step in ("never", "after the record"):
        assert second == f"job_{first.pid}"
        assert open_claims == []
    else:
        assert second == "unknown"
        assert [claim.key for claim in open_claims] == [KEY]


@pytest.mark.parametrize("step", ["after the POST", "before the POST"])
async def test_a_person_settles_an_open_claim(tmp_path, step):
    """Having looked, they name the job, or let it be sent."""
    first = start(tmp_path, step)
    finish(first)
    ledger = SQLiteLedger(tmp_path / "ledger.db")
    if step == "after the POST":
        await ledger.resolve(KEY, f"job_{first.pid}")
    else:
        await ledger.forget(KEY)
    _, second = finish(start(tmp_path))
    (poster,) = posts(tmp_path)
    assert second == f"job_{poster}"
