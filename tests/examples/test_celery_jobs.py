"""The Celery example's tasks: an error is data, and an outage ends the looks."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mintlify_async import JobRef
from mintlify_async.model.job_ref import Stamp
from mintlify_async.runtime import clock
from mintlify_async.testing import JobLife, LocalService
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.real

celery: Any = pytest.importorskip("celery", reason="celery is not installed")


@pytest.fixture
async def service() -> AsyncIterator[LocalService]:
    async with LocalService(life=JobLife(seconds=0)) as service:
        yield service


@pytest.fixture
def jobs(service: LocalService, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module. Its tasks run in this process, without a worker."""
    for name, value in {**service.environment, "REDIS_URL": redis_server.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    monkeypatch.delitem(sys.modules, "celery_jobs", raising=False)
    module = importlib.import_module("celery_jobs")
    module.app.conf.update(task_always_eager=True, task_store_eager_result=False)
    return module


async def test_an_error_of_a_creation_is_data(jobs: ModuleType, service: LocalService):
    """JSON results would give back a bare Exception for most classes of errors."""
    service.script.create_job(status=503)
    result = await asyncio.to_thread(lambda: jobs.create.apply(("ticket-1", "Fix it")).get())
    assert (result["error"], result["name"]) == ("OutcomeUnknownError", "ticket-1")
    assert result["text"]


async def test_looks_end_with_an_outage(
    jobs: ModuleType, service: LocalService, monkeypatch: pytest.MonkeyPatch
):
    """While polls fail, the task comes back with a reference that says since when; then the error is data."""
    monkeypatch.setattr(jobs, "LOOK", 0.1)
    service.script.get_job(status=503, times=None)
    seen: list[str] = []

    def comes_back(*, args: tuple[str, str], countdown: int) -> Exception:
        seen.append(args[1])
        return celery.exceptions.Retry()

    monkeypatch.setattr(jobs.look, "retry", comes_back)
    ref = str(JobRef(service.project_id, "job_1", created=Stamp(clock.now())))
    await asyncio.to_thread(lambda: jobs.look.apply(("ticket-1", ref)))
    (ref,) = seen
    failing = JobRef.parse(ref).failing
    assert failing is not None
    long_ago = str(JobRef(service.project_id, "job_1", failing=Stamp(failing.at - 300)))
    result = await asyncio.to_thread(lambda: jobs.look.apply(("ticket-1", long_ago)).get())
    assert (result["error"], result["ref"]) == ("ServerError", long_ago)


@pytest.mark.leaves_open("Celery keeps its connections to Redis until the process ends")
async def test_a_job_is_created_and_looked_at(jobs: ModuleType, service: LocalService):
    """The result of a look is the job's record."""
    result = await asyncio.to_thread(lambda: jobs.create.apply(("ticket-1", "Fix it")).get())
    assert JobRef.parse(result["ref"]).id == "job_1"
    looked = await asyncio.to_thread(lambda: jobs.look.apply(("ticket-1", result["ref"])).get())
    assert looked["job"]["status"] == "completed"
