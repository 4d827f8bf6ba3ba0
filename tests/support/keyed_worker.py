"""Workers that create one job with a key and send one keyed follow-up. Run by test_killed_workers.

They are forked from a server process that has imported the package, because a round needs several of them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from multiprocessing.connection import Connection
from typing import Any

from mintlify_async import MintlifyError, MintlifySession, OutcomeUnknownError, SQLiteStore
from mintlify_async.jobs import ledger as claims
from mintlify_async.storage.store import Store

LIMIT = 2.0  # seconds per call

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        __name__,
        "mintlify_async.contrib.postgres",
        "mintlify_async.contrib.redis",
        "mintlify_async.storage.sqlite_store",
    ]
)


@asynccontextmanager
async def engine_of(url: str) -> AsyncIterator[tuple[Any, Callable[[], AbstractAsyncContextManager[Any]]]]:
    """Return an engine of SQLAlchemy, and a function that lends its connections, as the page shows it."""
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url, pool_size=2)

    @asynccontextmanager
    async def connection() -> AsyncIterator[Any]:
        async with engine.connect() as outer:
            raw: Any = (await outer.get_raw_connection()).driver_connection
            try:
                yield raw
            finally:
                if raw.is_closed():  # a cancelled step closes a connection that does not answer
                    await outer.invalidate()

    yield engine, connection
    await engine.dispose()


@asynccontextmanager
async def opened(ledger: str, timeout: float = 2.0) -> AsyncIterator[Store]:
    """Open the ledger: the path of a file, or the URL of a Redis, a Postgres or an engine of SQLAlchemy."""
    if ledger.startswith("postgresql"):
        from mintlify_async.contrib.postgres import PostgresStore

        async with engine_of(ledger) if "+" in ledger else nullcontext((None, ledger)) as (_, source):
            postgres = PostgresStore(source, timeout=timeout)
            await postgres.setup()
            yield postgres
            await postgres.close()
        return
    if not ledger.startswith("redis://"):
        yield SQLiteStore(ledger)
        return
    from redis.asyncio import Redis

    from mintlify_async.contrib.redis import RedisStore

    async with Redis.from_url(ledger) as client:
        yield RedisStore(client, timeout=timeout)


async def work(ledger: str, key: str) -> str:
    """Create the job and send the follow-up. Return how that has ended."""
    async with opened(ledger) as store, MintlifySession(ledger=store) as session:
        try:
            job = await session.create_job(f"Create {key}", dedupe_key=key, timeout=LIMIT)
            await job.send(f"Follow up {key}", dedupe_key=f"{key} again", timeout=LIMIT)
        except OutcomeUnknownError as error:
            return f"unknown {error.reason}"
        except MintlifyError as error:
            return f"failed {error!r}"
        return f"done {job.id}"


def main(pipe: Connection, environment: dict[str, str], ledger: str, key: str) -> None:
    """Work when the other end of *pipe* says so, and send the result there."""
    # In the worker alone: no recording is retried here for a minute.
    claims.SENDING_SECONDS = 3.0  # type: ignore[misc]
    os.environ.update(environment)
    pipe.send("ready")
    pipe.recv()
    pipe.send(asyncio.run(work(ledger, key)))


class Worker:
    """A worker process. It works when :meth:`run` is called."""

    def __init__(self, environment: dict[str, str], ledger: str, key: str) -> None:
        self.pipe, there = FORKS.Pipe()
        self.process = FORKS.Process(target=main, args=(there, environment, ledger, key), daemon=True)
        self.process.start()
        there.close()

    async def ready(self) -> None:
        """Wait until it could begin."""
        assert await self._receive() == "ready"

    async def run(self, kill_after: float | None = None) -> str:
        """Let it work; kill it after so many seconds. Return its result, or "" if it was killed."""
        seconds = 3600.0 if kill_after is None else kill_after
        killing = asyncio.get_running_loop().call_later(seconds, self.process.kill)
        self.pipe.send("go")
        result = await self._receive()
        killing.cancel()
        self.process.join()
        self.process.close()
        self.pipe.close()
        return result

    async def _receive(self) -> str:
        try:
            return str(await asyncio.to_thread(self.pipe.recv))
        except (EOFError, ConnectionError):
            return ""
