"""The examples for work queues: workers are killed at random, every result arrives, none is made twice."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mintlify_async.testing import JobLife, LocalService
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.sweep

pytest.importorskip("saq", reason="saq is not installed")
pytest.importorskip("celery", reason="celery is not installed")
pytest.importorskip("streaq", reason="streaq is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = 50
KILLS = 8
LIMIT_SECONDS = 150.0
"""When a recipe that lost a job is said to have lost it."""


class Workers:
    """Worker processes of one recipe, to be killed at random."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._running: list[asyncio.subprocess.Process] = []
        self.killed = 0

    async def start(self) -> None:
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=EXAMPLES,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Celery's worker has processes of its own
            )
        self._running.append(process)

    async def kill(self, which: int) -> None:
        process = self._running.pop(which)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        self.killed += 1

    async def stop(self) -> None:
        while self._running:
            await self.kill(0)

    async def kill_at_random(self, dice: random.Random) -> None:
        """Kill one worker of two at a random moment, *KILLS* times, and start another in its place."""
        for _ in range(KILLS):
            await asyncio.sleep(dice.uniform(0.2, 2.5))
            await self.kill(dice.randrange(len(self._running)))
            await self.start()


@pytest.fixture
async def service() -> AsyncIterator[LocalService]:
    async with LocalService(life=JobLife(seconds=4)) as service:
        yield service


@pytest.fixture
def recipe(
    service: LocalService, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], ModuleType]:
    """Import a recipe as its user would, with the settings in the environment; times are shortened."""
    for name, value in {
        "REDIS_URL": redis_server.url,
        "MINTLIFY_BASE_URL": service.base_url,
        "MINTLIFY_PROJECT_ID": service.project_id,
        "MINTLIFY_ADMIN_API_KEY": service.admin_key,
        "MINTLIFY_ASSISTANT_API_KEY": service.assistant_key,
        "MINTLIFY_DOMAIN": service.domain,
        "HEARTBEAT": "2",
        "IDLE_TIMEOUT": "10",  # a worker that is late for longer than this counts as dead
        "PAUSE": "2",
        "LOST_AFTER": "6",
        "AGAIN": "* * * * * */3",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


@asynccontextmanager
async def web(app: Any) -> AsyncIterator[Any]:
    """Serve *app* in this process."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)  # a failure is a 500
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://web") as client,
    ):
        yield client


async def create_twice(client: Any, number: int) -> str:
    """Send one request twice, as an impatient browser does, again after a 500. Return the one job's id."""
    query = {"request_id": f"request-{number}", "prompt": f"Fix typo {number}"}
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:  # a busy Redis can take longer than the store's two seconds
            answers = await asyncio.gather(*(client.post("/jobs", params=query) for _ in range(2)))
            if {answer.status_code for answer in answers} == {200}:
                (job_id,) = {answer.json()["id"] for answer in answers}
                return job_id


async def all_results(ids: list[str], look: Callable[[str], Any]) -> dict[str, Any]:
    """Ask until every job has a result."""
    found: dict[str, Any] = {}
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(found) < len(ids):
            for job_id in ids:
                if job_id not in found and (answer := await look(job_id)) is not None:
                    found[job_id] = answer
            await asyncio.sleep(0.2)
    return found


def check(service: LocalService, ids: list[str], results: dict[str, Any]) -> None:
    assert len(set(ids)) == JOBS
    assert service.requests.count("create_job") == JOBS
    assert {job_id: found["status"] for job_id, found in results.items()} == dict.fromkeys(ids, "completed")
    assert all(found["prLink"] for found in results.values())


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("saq_jobs", ["-m", "saq", "saq_jobs.settings"]),
        ("streaq_jobs", ["-m", "streaq", "run", "streaq_jobs:worker"]),
    ],
)
async def test_killed_workers_lose_nothing(
    recipe: Callable[[str], ModuleType],
    service: LocalService,
    tmp_path: Path,
    name: str,
    command: list[str],
):
    """Fifty jobs, each requested twice; eight kills: every result arrives, and there were fifty POSTs."""
    workers, dice = Workers([sys.executable, *command], tmp_path / "workers.log"), random.Random(name)
    await workers.start()
    await workers.start()
    try:
        async with web(recipe(name).app) as client, asyncio.TaskGroup() as group:
            group.create_task(workers.kill_at_random(dice))
            ids = [await create_twice(client, number) for number in range(JOBS)]

            async def look(job_id: str) -> Any:
                answer = await client.get(f"/jobs/{job_id}")
                assert answer.status_code in (200, 404), answer.text
                return answer.json() if answer.status_code == 200 else None

            results = await all_results(ids, look)
    finally:
        await workers.stop()
    check(service, ids, results)
    assert workers.killed == KILLS + 2


async def test_looks_that_come_back_later_lose_nothing(
    recipe: Callable[[str], ModuleType], service: LocalService, redis_client: Any, tmp_path: Path
):
    """The reschedule style under the same kills; no task runs for longer than a look."""
    workers = Workers([sys.executable, "-m", "saq", "saq_looks.settings"], tmp_path / "workers.log")
    looks, dice = recipe("saq_looks"), random.Random(7)
    await workers.start()
    await workers.start()

    async def look(job_id: str) -> Any:
        found = await redis_client.hget("job-results", job_id)
        return None if found is None else json.loads(found)

    try:
        async with service.session() as session:
            killing = asyncio.create_task(workers.kill_at_random(dice))
            jobs = [await session.create_job(f"Fix typo {number}") for number in range(JOBS)]
            for job in jobs:
                await looks.hand_over(str(job.ref))
            results = await all_results([job.id for job in jobs], look)
            await killing
    finally:
        await workers.stop()
        await looks.queue.disconnect()
        await looks.redis.aclose()
    check(service, [job.id for job in jobs], results)


@pytest.mark.leaves_open("Celery keeps its connections to Redis until the process ends")
async def test_celery_workers_that_are_killed_lose_nothing(
    recipe: Callable[[str], ModuleType], service: LocalService, tmp_path: Path
):
    """The same with synchronous tasks, each of which has a session of its own."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "celery_jobs",
        "worker",
        "--concurrency=4",
        "--loglevel=INFO",
    ]
    workers, jobs = Workers(command, tmp_path / "workers.log"), recipe("celery_jobs")
    names = [f"request-{number}" for number in range(JOBS)]

    async def look(name: str) -> Any:
        result = jobs.app.AsyncResult(f"job-{name}")
        return result.result if await asyncio.to_thread(result.successful) else None

    await workers.start()
    await workers.start()
    try:
        killing = asyncio.create_task(workers.kill_at_random(random.Random(7)))
        program = await asyncio.create_subprocess_exec(
            sys.executable, "celery_jobs.py", names[0], "Fix it", cwd=EXAMPLES, stdout=asyncio.subprocess.PIPE
        )
        for name in [*names[1:], *names[1:]]:
            await asyncio.to_thread(jobs.create.delay, name, f"Fix the typos of {name}")
        results = await all_results(names, look)
        assert b"completed" in (await program.communicate())[0]
        await killing
    finally:
        await workers.stop()
        jobs.app.close()
    check(service, [record["id"] for record in results.values()], {r["id"]: r for r in results.values()})
