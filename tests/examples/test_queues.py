"""The examples for work queues: workers are killed at random, every result arrives, none is made twice.

One worker is killed. With ``SWEEPS=whole``, eight are.
"""

from __future__ import annotations

import asyncio
import importlib
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
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer

WHOLE = os.environ.get("SWEEPS") == "whole"
JOBS, KILLS = (50, 8) if WHOLE else (8, 1)

pytestmark = pytest.mark.sweep if WHOLE else pytest.mark.real

pytest.importorskip("saq", reason="saq is not installed")
pytest.importorskip("celery", reason="celery is not installed")
pytest.importorskip("streaq", reason="streaq is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_SECONDS = 150.0
"""When a recipe that lost a job is said to have lost it."""


@asynccontextmanager
async def killed_workers(log: Path, *arguments: str) -> AsyncIterator[None]:
    """Run two workers of a recipe. Kill one at a random moment, *KILLS* times, and start another instead."""
    dice, running = random.Random(7), list[asyncio.subprocess.Process]()

    async def start() -> None:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                cwd=EXAMPLES,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Celery's worker has processes of its own
            )
        running.append(process)

    async def kill(which: int) -> None:
        process = running.pop(which)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def kill_at_random() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(dice.uniform(0.2, 2.5))
            await kill(dice.randrange(len(running)))
            await start()

    try:
        await start()
        await start()
        async with asyncio.TaskGroup() as group:
            group.create_task(kill_at_random())
            yield
    finally:
        while running:
            await kill(0)


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
        **service.environment,
        "REDIS_URL": redis_server.url,
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


@pytest.fixture
def ledger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PostgresServer | None:
    """The Postgres that has the ledger, or None: then the recipe's own Redis has it."""
    if request.param is None:
        return None
    server: PostgresServer = request.getfixturevalue(request.param)
    monkeypatch.setenv("MINTLIFY_LEDGER", server.url)
    return server


def claims(server: PostgresServer) -> int:
    """Return how many claims of creations the ledger in Postgres has."""
    return int(server.say("SELECT count(*) FROM mintlify_async WHERE slot = '' AND key LIKE '%claim%'"))


@pytest.mark.parametrize(
    ("name", "command", "ledger"),
    [
        ("saq_jobs", "-m saq saq_jobs.settings", None),
        ("saq_jobs", "-m saq saq_jobs.settings", "postgres_server"),
        ("streaq_jobs", "-m streaq run streaq_jobs:worker", None),
    ],
    indirect=["ledger"],
)
async def test_killed_workers_lose_nothing(
    recipe: Callable[[str], ModuleType],
    service: LocalService,
    tmp_path: Path,
    name: str,
    command: str,
    ledger: PostgresServer | None,
):
    """Each job is requested twice: every result arrives, and there is one POST for each."""
    async with killed_workers(tmp_path / "workers.log", *command.split()), web(recipe(name).app) as client:
        ids = [await create_twice(client, number) for number in range(JOBS)]

        async def look(job_id: str) -> Any:
            answer = await client.get(f"/jobs/{job_id}")
            assert answer.status_code in (200, 404), answer.text
            return answer.json() if answer.status_code == 200 else None

        results = await all_results(ids, look)
    check(service, ids, results)
    if ledger:
        assert claims(ledger) == JOBS


@pytest.mark.leaves_open("Celery keeps its connections to Redis until the process ends")
@pytest.mark.parametrize(
    "ledger", [None, pytest.param("postgres_server", marks=pytest.mark.sweep)], indirect=True
)
async def test_celery_workers_that_are_killed_lose_nothing(
    recipe: Callable[[str], ModuleType],
    service: LocalService,
    tmp_path: Path,
    ledger: PostgresServer | None,
):
    """The same with synchronous tasks, each of which has a session of its own."""
    command = ["-m", "celery", "-A", "celery_jobs", "worker", "--concurrency=4", "--loglevel=INFO"]
    jobs, names = recipe("celery_jobs"), [f"request-{number}" for number in range(JOBS)]

    async def look(name: str) -> Any:
        result = jobs.app.AsyncResult(f"job-{name}")
        return result.result["job"] if await asyncio.to_thread(result.successful) else None

    async with killed_workers(tmp_path / "workers.log", *command):
        program = await asyncio.create_subprocess_exec(
            sys.executable, "celery_jobs.py", names[0], "Fix it", cwd=EXAMPLES, stdout=asyncio.subprocess.PIPE
        )
        for name in [*names[1:], *names[1:]]:
            await asyncio.to_thread(jobs.create.delay, name, f"Fix the typos of {name}")
        results = await all_results(names, look)
        assert b"completed" in (await program.communicate())[0]
    jobs.app.close()
    check(service, [record["id"] for record in results.values()], {r["id"]: r for r in results.values()})
    if ledger:
        assert claims(ledger) == JOBS
