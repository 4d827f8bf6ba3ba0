"""A small FastAPI app that runs jobs, waits for jobs and asks: ``uvicorn tests.support.web_app:app``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from mintlify_async import MintlifySession
from tests.support.quick_polls import QuickPolls


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with MintlifySession(poll=QuickPolls()) as session:
        app.state.session = session
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/run")
async def run() -> dict[str, str]:
    job = await app.state.session.run_job("Fix the typos")
    return {"id": job.id, "status": job.status}


@app.get("/wait/{job_id}")
async def wait(job_id: str) -> dict[str, str]:
    job = await app.state.session.job(job_id).wait()
    return {"id": job.id, "status": job.status}


@app.get("/ask")
async def ask() -> dict[str, str]:
    answer = await MintlifySession().ask("How do I log in?")  # nobody keeps this session
    return {"text": answer.text}
