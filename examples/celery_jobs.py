"""Agent jobs in Celery's synchronous tasks. One task creates a job, another looks until it has ended.

pip install '/path/to/mintlify-async[redis]' 'celery[redis]'; set REDIS_URL and the agent's settings;
celery -A celery_jobs worker, as often as you like; python celery_jobs.py NAME INSTRUCTION creates a job.
"""

import asyncio
import os
import sys
from typing import Any

from celery import Celery, Task

from mintlify_async import (
    APIConnectionError,
    JobTimeoutError,
    MintlifyError,
    MintlifySession,
    RateLimitError,
    StateError,
)
from mintlify_async.contrib.store_urls import open_store

URL = os.environ["REDIS_URL"]
LEDGER = os.environ.get("MINTLIFY_LEDGER", URL)
LOOK = 25.0  # seconds that one task waits for a job before it makes room for another
PAUSE = int(os.environ.get("PAUSE", "20"))  # seconds until the next try or look
TRIES = 30  # of a creation that certainly did not reach the service
LOST_AFTER = int(os.environ.get("LOST_AFTER", "180"))  # longer than any task and any pause

app = Celery("celery_jobs", broker=URL, backend=URL)  # the module's name, which tasks have in the worker
app.conf.update(
    task_acks_late=True,  # a task counts as done at its end, so a dead worker's task runs again
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": LOST_AFTER},
)


# One session per task, because each task has its own event loop.


async def created(name: str, instruction: str) -> str:
    async with open_store(LEDGER) as store, MintlifySession(ledger=store) as session:
        return str((await session.create_job(instruction, dedupe_key=name)).ref)


async def ended(ref: str) -> dict[str, Any]:
    async with MintlifySession() as session:
        return (await session.job(ref).wait(timeout=LOOK, check=False)).to_wire()


def failure(error: MintlifyError, **names: str) -> dict[str, Any]:
    """Return *error* as data, because Celery's JSON results lose the class of most errors."""
    return {"error": type(error).__name__, "text": str(error), **names}


@app.task(bind=True, max_retries=None)
def create(self: "Task[Any, Any]", name: str, instruction: str) -> dict[str, Any]:
    """Create a job, and hand its reference to :func:`look`. The name makes every repetition harmless."""
    try:
        ref = asyncio.run(created(name, instruction))
    except MintlifyError as error:
        not_sent = isinstance(error, APIConnectionError | RateLimitError | StateError)
        if not_sent and self.request.retries < TRIES:
            raise self.retry(exc=error, countdown=PAUSE) from error
        return failure(error, name=name)
    look.apply_async((name, ref), task_id=f"job-{name}")
    return {"ref": ref}


@app.task(bind=True, max_retries=None)
def look(self: "Task[Any, Any]", name: str, ref: str) -> dict[str, Any]:
    """Return the job's record when it has ended. While it runs, come back later."""
    try:
        return {"job": asyncio.run(ended(ref))}
    except JobTimeoutError as error:  # error.ref is the newest reference, and says since when polls fail
        raise self.retry(args=(name, str(error.ref)), countdown=PAUSE) from error
    except MintlifyError as error:  # also an outage of five minutes; call look again with this reference
        return failure(error, name=name, ref=ref)


if __name__ == "__main__":
    outcome = create.delay(sys.argv[1], sys.argv[2]).get()
    print(outcome if "error" in outcome else app.AsyncResult(f"job-{sys.argv[1]}").get())
