"""Agent jobs created in a web handler and waited for by streaq workers, any of which may die at any moment.

pip install '/path/to/mintlify-async[redis]' fastapi uvicorn streaq; set REDIS_URL and the agent's settings;
uvicorn streaq_jobs:app and, as often as you like, streaq run streaq_jobs:worker
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from fastapi import FastAPI, HTTPException
from streaq import TaskStatus, Worker

from mintlify_async import MintlifySession, Quota
from mintlify_async.contrib.store_urls import open_store


@asynccontextmanager
async def new_session() -> AsyncGenerator[MintlifySession]:
    async with open_store(os.environ.get("MINTLIFY_LEDGER", os.environ["REDIS_URL"])) as store:
        quota = Quota(mode="wait", store=store)
        async with MintlifySession(ledger=store, quota=quota) as session:
            yield session


# The workers. The lifespan makes one session for each. After idle_timeout, another worker gets the
# tasks of a dead one. This counts as a try, so max_tries is off.

worker: Worker[MintlifySession] = Worker(
    redis_url=os.environ["REDIS_URL"],
    lifespan=new_session,
    concurrency=100,
    idle_timeout=float(os.environ.get("IDLE_TIMEOUT", "60")),
)


@worker.task(max_tries=None, timeout=None, ttl=timedelta(days=1))
async def wait_for_job(ref: str) -> dict[str, Any]:
    done = await worker.context.job(ref).wait(timeout=None, check=False)
    return done.to_wire()


# The web side creates and hands over. Repeating the request is safe at every point.


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with worker, new_session() as app.state.session:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/jobs")
async def create(request_id: str, prompt: str) -> dict[str, str]:
    job = await app.state.session.create_job(prompt, dedupe_key=request_id)
    task = wait_for_job.enqueue(str(job.ref))
    task.id = job.id  # streaq ignores an id that it already has
    if await worker.status_by_id(job.id) != TaskStatus.DONE:
        await task
    return {"id": job.id}


@app.get("/jobs/{job_id}")
async def result(job_id: str) -> Any:
    if await worker.status_by_id(job_id) != TaskStatus.DONE:
        raise HTTPException(404, "not finished yet")
    outcome = await worker.result_by_id(job_id)
    if not outcome.success:
        raise HTTPException(502, repr(outcome.exception))
    return outcome.result
