"""A FastAPI app that streams the assistant's answers and creates agent jobs. Each user has a share.

pip install /path/to/mintlify-async fastapi uvicorn
mintlify-async serve            # prints `export` lines; or set your own keys, project and domain
uvicorn fastapi_app:app         # then open http://127.0.0.1:8000/docs
"""

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import Body, Depends, FastAPI, Header, Path, Request
from fastapi.responses import JSONResponse, StreamingResponse

from mintlify_async import Job, Limit, MintlifyError, MintlifySession, Quota, Reply, SQLiteStore, StreamError
from mintlify_async.errors import ConfigurationError, NotFoundError, QuotaExceededError, RateLimitError

SHARE = Limit(20, per=3600)
log = logging.getLogger("uvicorn.error")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    store = SQLiteStore("jobs.sqlite")
    quota = Quota(ask_per_user=SHARE, store=store)
    async with MintlifySession(ledger=store, quota=quota) as app.state.session:
        app.state.session.check()  # the app does not start without its settings, and the error names them
        yield


app = FastAPI(lifespan=lifespan)


def the_session(request: Request) -> MintlifySession:
    return cast("MintlifySession", request.app.state.session)


def the_user(request: Request) -> str:
    return request.client.host if request.client else "unknown"  # with accounts: the user's id


Session = Annotated[MintlifySession, Depends(the_session)]
User = Annotated[str, Depends(the_user)]
Key = Annotated[str, Header(alias="Idempotency-Key")]


@app.exception_handler(MintlifyError)
async def refused(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ConfigurationError) and error.field in ("messages", "prompt", "dedupe_key"):
        return JSONResponse({"error": str(error)}, 422)  # an error in another field is the app's own
    if isinstance(error, NotFoundError) and error.operation == "get_job":
        return JSONResponse({"error": "no such job"}, 404)
    later = {"Retry-After": str(math.ceil(getattr(error, "retry_after", None) or 60))}
    if isinstance(error, QuotaExceededError) and error.limit == "ask_per_user":
        return JSONResponse({"error": "you have asked too many questions"}, 429, later)
    log.error("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
    if isinstance(error, RateLimitError | QuotaExceededError):  # the limits that all users share
        return JSONResponse({"error": "too many requests"}, 503, later)
    return JSONResponse({"error": "the documentation service gave no usable answer"}, 502)


async def opened(q: str, user: User, session: Session) -> AsyncIterator[Reply]:
    async with session.ask(q, fp=user) as reply:  # a refusal is raised here, in time for a status
        yield reply  # closed when the answer is sent, or the client disconnects


@app.get("/ask")
async def ask(reply: Annotated[Reply, Depends(opened)]) -> StreamingResponse:
    async def body() -> AsyncIterator[str]:
        try:
            async for text in reply.text_stream:
                yield text
            if reply.aborted:
                raise StreamError("the service ended it early")
        except MintlifyError as error:  # too late for another status
            log.error("an answer was interrupted: %s: %s", type(error).__name__, error)
            yield "\n\n[the answer was interrupted]\n"

    no_buffer = {"X-Accel-Buffering": "no"}  # nginx would collect the answer
    return StreamingResponse(body(), media_type="text/plain; charset=utf-8", headers=no_buffer)


@app.post("/jobs", status_code=202)
async def new(prompt: Annotated[str, Body(embed=True)], key: Key, session: Session) -> dict[str, str]:
    return {"id": (await session.create_job(prompt, dedupe_key=key)).id}  # with accounts: f"{user.id} {key}"


@app.get("/jobs/{job_id}")
async def look(job_id: Annotated[str, Path(pattern=r"^[\w-]+$")], session: Session) -> Job:
    return await session.job(job_id).refresh()
