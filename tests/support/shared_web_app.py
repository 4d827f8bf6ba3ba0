"""A FastAPI app on Postgres that creates jobs, waits and asks, for several workers of uvicorn."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from mintlify_async import Limit, MintlifySession, Quota, QuotaExceededError
from tests.support.keyed_worker import opened
from tests.support.quick_polls import QuickPolls


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with opened(os.environ["POSTGRES_URL"], timeout=20) as store:
        quota = Quota(ask_per_user=Limit(7, per=3600), store=store)
        async with MintlifySession(poll=QuickPolls(), quota=quota, ledger=store) as session:
            app.state.session = session
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/work/{key}/{user}")
async def work(key: str, user: str) -> JSONResponse:
    job = await app.state.session.run_job("Fix the typos", dedupe_key=key)
    try:
        answer = await app.state.session.ask("How do I log in?", fp=user)
    except QuotaExceededError as error:
        return JSONResponse({"id": job.id, "limit": error.limit}, 429)
    return JSONResponse({"id": job.id, "text": answer.text})
