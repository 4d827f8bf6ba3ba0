"""A worker that creates one job with a key and sends one keyed follow-up. Run by test_killed_workers.

In ``python keyed_worker.py LEDGER KEY``, LEDGER is the path of a file, or the URL of a Redis. The service's
URL and keys come from the environment.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mintlify_async import MintlifyError, MintlifySession, OutcomeUnknownError, SQLiteStore
from mintlify_async.jobs import claims
from mintlify_async.storage.store import Store

LIMIT = 2.0  # seconds per call
claims.SENDING_SECONDS = 3.0  # seconds longer, because no recording is retried here for a minute


@asynccontextmanager
async def opened(ledger: str) -> AsyncIterator[Store]:
    """Open the ledger."""
    if not ledger.startswith("redis://"):
        yield SQLiteStore(ledger)
        return
    from redis.asyncio import Redis

    from mintlify_async.contrib.redis import RedisStore

    async with Redis.from_url(ledger) as client:
        yield RedisStore(client)


async def main(ledger: str, key: str) -> None:
    """Print ``ready`` and wait for a line, so that all workers of a round start together."""
    async with opened(ledger) as store, MintlifySession(ledger=store) as session:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            job = await session.create_job(f"Create {key}", dedupe_key=key, timeout=LIMIT)
            await job.send(f"Follow up {key}", dedupe_key=f"{key} again", timeout=LIMIT)
        except OutcomeUnknownError as error:
            print("unknown", error.reason)
        except MintlifyError as error:
            print("failed", repr(error))
        else:
            print("done", job.id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
