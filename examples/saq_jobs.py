"""Agent jobs created in a web handler and waited for by SAQ workers, any of which may die at any moment.

Set REDIS_URL and the agent's settings; uvicorn saq_jobs:app; as often as you like: saq saq_jobs.settings
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from redis.asyncio import Redis
from saq import CronJob
from saq.queue.redis import RedisQueue

from mintlify_async import JobRef, MintlifySession, Quota
from mintlify_async.contrib.store_urls import open_store

BEAT = int(os.environ.get("HEARTBEAT", "30"))  # seconds without a heartbeat until a worker counts as dead


class Queue(RedisQueue):
    async def sweep(self, lock: int = 60, abort: float = BEAT / 60) -> list[str]:
        return await super().sweep(lock, abort)  # SAQ waits 5 s for each task of a dead worker


redis = Redis.from_url(os.environ["REDIS_URL"], max_connections=100)  # an idle slot of a worker keeps one
queue = Queue(redis)


@asynccontextmanager
async def new_session() -> AsyncGenerator[MintlifySession]:
    async with open_store(os.environ.get("MINTLIFY_LEDGER", os.environ["REDIS_URL"])) as store:
        quota = Quota(mode="wait", store=store)
        async with MintlifySession(ledger=store, quota=quota) as session:
            yield session


async def startup(ctx: Any) -> None:
    ctx["open"] = AsyncExitStack()
    ctx["session"] = await ctx["open"].enter_async_context(new_session())


async def shutdown(ctx: Any) -> None:
    await ctx["open"].aclose()


async def hand_over(ctx: Any = None) -> None:
    """Enqueue the wait for each open job. SAQ ignores a key that it has. A lost wait is enqueued again."""
    for entry in await redis.smembers("open-jobs"):
        ref = JobRef.parse(entry.decode() if isinstance(entry, bytes) else entry)
        await queue.enqueue("wait", ref=str(ref), key=f"wait:{ref.id}", timeout=0, heartbeat=BEAT, retries=99)


async def wait(ctx: Any, *, ref: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(ctx["session"].job(ref).wait(timeout=None, check=False))
        while not (await asyncio.wait([waiting], timeout=BEAT / 3))[0]:
            await ctx["job"].update()  # a heartbeat
    done = waiting.result()
    await redis.hset("job-results", done.id, json.dumps(done.to_wire()))
    await redis.srem("open-jobs", ref)


again = CronJob(hand_over, cron=os.environ.get("AGAIN", "* * * * *"))
settings: dict[str, Any] = {"queue": queue, "functions": [wait], "cron_jobs": [again]}
settings |= {"startup": startup, "shutdown": shutdown}
settings |= {"concurrency": 50, "timers": {"sweep": max(1, BEAT // 3)}}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with new_session() as app.state.session:
        yield
    await queue.disconnect()


app = FastAPI(lifespan=lifespan)


@app.post("/jobs")
async def create(request_id: str, prompt: str) -> dict[str, str]:
    job = await app.state.session.create_job(prompt, dedupe_key=request_id)
    if not await redis.hexists("job-results", job.id):
        await redis.sadd("open-jobs", str(job.ref))
        await hand_over()
    return {"id": job.id}


@app.get("/jobs/{job_id}")
async def result(job_id: str) -> Any:
    if (found := await redis.hget("job-results", job_id)) is None:
        raise HTTPException(404, "not finished yet")
    return json.loads(found)
