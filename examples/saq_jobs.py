"""Agent jobs created in a web handler and waited for by SAQ workers, any of which may die at any moment.

uvicorn saq_jobs:app            saq saq_jobs.settings
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from redis.asyncio import Redis
from saq import CronJob, Job
from saq.queue.redis import RedisQueue

from mintlify_async import JobRef, MintlifySession, Quota
from mintlify_async.contrib.redis import RedisLedger, RedisQuotaStore

redis = Redis.from_url(os.environ["REDIS_URL"])
HEARTBEAT = int(os.environ.get("HEARTBEAT", "30"))  # seconds without a sign of life: the worker is dead


class Queue(RedisQueue):
    async def sweep(self, lock: int = 60, abort: float = HEARTBEAT / 60) -> list[str]:
        return await super().sweep(lock, abort)  # SAQ's own 5 s for each dead worker's task add up


CONCURRENCY = 50  # each slot of a worker that has nothing to do keeps one connection
queue = Queue(Redis.from_url(os.environ["REDIS_URL"], max_connections=CONCURRENCY + 50))


def new_session() -> MintlifySession:
    quota = Quota.interface(mode="wait", store=RedisQuotaStore(redis))
    return MintlifySession(ledger=RedisLedger(redis), quota=quota)


# The web side: create, remember, hand over. Repeating the request is safe at every point.


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with new_session() as app.state.session:
        yield
    await queue.disconnect()
    await redis.aclose()


app = FastAPI(lifespan=lifespan)


@app.post("/jobs")
async def create(request_id: str, prompt: str) -> dict[str, str]:
    job = await app.state.session.create_job(prompt, dedupe_key=request_id)
    if not await redis.hexists("job-results", job.id):
        await redis.sadd("open-jobs", str(job.ref))
        await hand_over(str(job.ref))
    return {"id": job.id}


@app.get("/jobs/{job_id}")
async def result(job_id: str) -> Any:
    found = await redis.hget("job-results", job_id)
    if found is None:
        raise HTTPException(404, "not finished yet")
    return json.loads(found)


async def hand_over(ref: str) -> None:
    """Enqueue the wait, once: SAQ ignores a key that it already has."""
    key = f"wait:{JobRef.parse(ref).id}"
    await queue.enqueue("wait_for_job", ref=ref, key=key, timeout=0, heartbeat=HEARTBEAT, retries=10_000)


# The workers: one session each, made in the start-up hook.


async def startup(ctx: Any) -> None:
    ctx["session"] = new_session()


async def shutdown(ctx: Any) -> None:
    await ctx["session"].close()
    await redis.aclose()


async def wait_for_job(ctx: Any, *, ref: str) -> None:
    async with beating(ctx["job"]):
        done = await ctx["session"].job(ref).wait(timeout=None, check=False)
    async with redis.pipeline(transaction=True) as pipe:
        await pipe.hset("job-results", done.id, json.dumps(done.to_wire())).srem("open-jobs", ref).execute()


@asynccontextmanager
async def beating(task: Job) -> AsyncIterator[None]:
    """Tell SAQ that this worker lives, as long as the block runs."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT / 3)
            await task.update()

    heart = asyncio.create_task(beat())
    try:
        yield
    finally:
        heart.cancel()


async def hand_over_again(ctx: Any) -> None:
    """Enqueue what SAQ has lost: a worker that is killed while it sweeps takes that task with it."""
    for ref in await redis.smembers("open-jobs"):
        await hand_over(ref.decode())


settings = {
    "queue": queue,
    "functions": [wait_for_job],
    "cron_jobs": [CronJob(hand_over_again, cron=os.environ.get("AGAIN", "* * * * *"))],
    "startup": startup,
    "shutdown": shutdown,
    "concurrency": CONCURRENCY,
    "timers": {"sweep": max(1, HEARTBEAT // 3)},
}
