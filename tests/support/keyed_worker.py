"""A worker that creates one job with a key and sends one keyed follow-up. Run by test_killed_workers.

``python keyed_worker.py LEDGER KEY``: the service's address and keys come from the environment.
"""

from __future__ import annotations

import asyncio
import sys

from mintlify_async import MintlifySession, OutcomeUnknownError
from mintlify_async.storage import SQLiteLedger

LIMIT = 2.0  # seconds: how long a call lasts, and a killed worker's claim is waited for


async def main(path: str, key: str) -> None:
    """Say ``ready`` and wait for a line, so that all workers of a round begin together."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with MintlifySession(ledger=SQLiteLedger(path)) as session:
        try:
            job = await session.create_job(f"Create {key}", dedupe_key=key, timeout=LIMIT)
            await job.send(f"Follow up {key}", dedupe_key=f"{key} again", timeout=LIMIT)
        except OutcomeUnknownError as error:
            print("unknown", error.reason)
        else:
            print("done", job.id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
