"""One process that creates a job with a key; killed by itself where it is told. Run by test_ledger_processes.

``python ledger_process.py LEDGER POSTS STEP``: POSTS is a file to which each POST appends a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from mintlify_async.errors import OutcomeUnknownError
from mintlify_async.jobs.create_once import create_once, fingerprint
from mintlify_async.model.job import Job
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.storage import Claim, SQLiteLedger

STEPS = [
    "before the claim",
    "after the claim",
    "before the POST",
    "after the POST",
    "before the record",
    "after the record",
    "never",
]
KEY = "issue-7"
LEASE = 1.0  # seconds: the next process waits as long for one that was killed
UNHURRIED = 60.0  # seconds: a process that is not killed finishes in time, even on a busy machine


class DeadlyLedger(SQLiteLedger):
    """A ledger whose process is killed at one step."""

    def __init__(self, path: str, step: str) -> None:
        super().__init__(path)
        self.step = step

    def die(self, step: str) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    async def claim(self, claim: Claim) -> Claim:
        self.die("before the claim")
        held = await super().claim(claim)
        self.die("after the claim")
        return held

    async def record(self, claim: Claim, job_id: str) -> None:
        self.die("before the record")
        await super().record(claim, job_id)
        self.die("after the record")


def post(posts: Path) -> str:
    """Append a line, as the service would make a job; return the job's id."""
    with posts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return f"job_{os.getpid()}"


async def main(path: str, posts: str, step: str) -> None:
    ledger = DeadlyLedger(path, step)

    async def send() -> Job:
        ledger.die("before the POST")
        await asyncio.sleep(0.05)
        job_id = post(Path(posts))
        ledger.die("after the POST")
        return Job(id=job_id, status="active")

    try:
        lease = UNHURRIED if step == "never" else LEASE
        created = await create_once(ledger, KEY, fingerprint("docs", "Fix it"), lease, send, SystemClock())
    except OutcomeUnknownError:
        print("unknown")
    else:
        print(created if isinstance(created, str) else created.id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
