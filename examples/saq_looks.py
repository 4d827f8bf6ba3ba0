"""The reschedule style with SAQ. A task looks once and comes back later, so that none runs for long.

For queues that do not recover long tasks, and for waits of hours. The web handler is from ``saq_jobs.py``,
but with this ``hand_over``. Set REDIS_URL and the agent's settings; saq saq_looks.settings
"""

import json
import os
import time
from typing import Any

from redis.asyncio import Redis
from saq import CronJob
from saq.queue.redis import RedisQueue

from mintlify_async import JobRef, MintlifySession

redis = Redis.from_url(os.environ["REDIS_URL"])
queue = RedisQueue(Redis.from_url(os.environ["REDIS_URL"]))
PAUSE = int(os.environ.get("PAUSE", "20"))  # seconds between two looks


async def hand_over(ref: str, looks: int = 0) -> None:
    """Store the next look, and enqueue it."""
    await redis.hset("open-looks", JobRef.parse(ref).id, f"{looks} {ref}")
    await enqueue_look(ref, looks)


async def enqueue_look(ref: str, looks: int) -> None:
    """Enqueue a look once. Its number is in the key, and SAQ ignores a key that it already has."""
    later = int(time.time()) + PAUSE if looks else 0
    key = f"look:{JobRef.parse(ref).id}:{looks}"
    await queue.enqueue("look", ref=ref, looks=looks, key=key, scheduled=later, timeout=PAUSE, retries=10_000)


async def look(ctx: Any, *, ref: str, looks: int) -> None:
    job = ctx["session"].job(ref)
    seen = await job.refresh()
    if not job.done:
        await hand_over(str(job.ref), looks + 1)
        return
    await redis.hset("job-results", job.id, json.dumps(seen.to_wire()))
    await redis.hdel("open-looks", job.id)


async def look_again(ctx: Any) -> None:
    """Enqueue lost tasks. If a worker is killed while it sweeps, SAQ loses that task."""
    for entry in await redis.hvals("open-looks"):
        looks, ref = (entry.decode() if isinstance(entry, bytes) else entry).split()
        await enqueue_look(ref, int(looks))


async def startup(ctx: Any) -> None:
    ctx["session"] = MintlifySession()


async def shutdown(ctx: Any) -> None:
    await ctx["session"].close()
    await redis.aclose()


settings = {
    "queue": queue,
    "functions": [look],
    "cron_jobs": [CronJob(look_again, cron=os.environ.get("AGAIN", "* * * * *"))],
    "startup": startup,
    "shutdown": shutdown,
    "timers": {"sweep": max(1, PAUSE // 3)},
}
