"""Workers that share a ledger and are killed at random moments: each request goes out at most once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from pathlib import Path

import pytest
from child_process import child_environment

from mintlify_async import OutcomeUnknownError
from mintlify_async.storage import MemoryLedger, SQLiteLedger
from mintlify_async.testing import JobLife, LocalService, VirtualClock

PROGRAM = Path(__file__).parents[1] / "support" / "keyed_worker.py"

WHOLE = os.environ.get("SWEEPS") == "whole"
"""``SWEEPS=whole python -m pytest tests/jobs/test_killed_workers.py`` runs every round."""

ROUNDS = 300 if WHOLE else 5
CANCELLED = 400 if WHOLE else 20


async def start(service, ledger, key):
    """Start a worker and wait until it is ready to create its job."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, ledger, key,
        env=child_environment(service),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert await worker.stdout.readline() == b"ready\n"
    return worker


async def run(worker, kill_after=None):
    """Let a worker begin; kill it after so many seconds. Return what it printed."""
    said = asyncio.create_task(worker.communicate(b"\n"))
    if kill_after is not None:
        await asyncio.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
    out, _ = await said
    return out.decode().strip()


def sent(service, operation, prompt):
    """Count the requests that carried *prompt*."""
    requests = [r for r in service.requests if r.operation == operation]
    return sum(prompt in r.body.decode() for r in requests)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_workers_killed_at_random_moments(number, tmp_path):
    """Three workers race, two are killed, a fourth comes later: no request is ever seen twice."""
    dice = random.Random(number)
    ledger = str(tmp_path / "ledger.db")
    key = f"key {number}"
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        service.script.create_job(delay=0.02, times=None)
        service.script.send_message(delay=0.02, times=None)
        workers = await asyncio.gather(*(start(service, ledger, key) for _ in range(3)))
        moments = [dice.uniform(0, 0.4), dice.uniform(0, 0.4), None]
        said = await asyncio.gather(*map(run, workers, moments))
        said.append(await run(await start(service, ledger, key)))
        assert sent(service, "create_job", f"Create {key}") <= 1
        assert sent(service, "send_message", f"Follow up {key}") <= 1
    assert {line.split(" ")[0] for line in said[2:]} <= {"done", "unknown"}, said
    done = {line for line in said if line.startswith("done")}
    assert len(done) <= 1, said


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_cancelled_at_random_moments_with_a_key(kind, tmp_path):
    """A second call gets the job, is told that it is unknown, or sends what was never sent."""
    dice = random.Random(kind)
    ledger = MemoryLedger() if kind == "memory" else SQLiteLedger(tmp_path / "ledger.db")
    cancelled = 0
    clock = VirtualClock()
    async with LocalService(life=JobLife(looks=["completed"]), clock=clock) as service:
        service.script.create_job(delay=0.02, times=None)
        service.script.send_message(delay=0.02, times=None)
        async with service.session(ledger=ledger) as session:
            for number in range(CANCELLED):
                key = f"[{number}]"
                first = asyncio.create_task(work(session, key))
                await clock.sleep(dice.uniform(0, 0.06))
                for _ in range(dice.randrange(10)):
                    await asyncio.sleep(0)
                first.cancel()
                await asyncio.wait([first])
                cancelled += first.cancelled()
                await work(session, key)
                assert sent(service, "create_job", f"Create {key}") <= 1
                assert sent(service, "send_message", f"Follow up {key}") <= 1
    assert cancelled >= CANCELLED / 10, "the calls were over before they could be cancelled"


async def work(session, key):
    """Create the job of *key* and send its follow-up, unless another call did or may have done so."""
    with contextlib.suppress(OutcomeUnknownError):
        job = await session.create_job(f"Create {key}", dedupe_key=key)
        await job.send(f"Follow up {key}", dedupe_key=f"{key} again")
