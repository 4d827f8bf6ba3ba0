"""Forty requests at once to a web app under uvicorn, whose handlers use one session."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

pytest.importorskip("fastapi")

from tests.support.relay_kit import serving
from tests.support.web_app import app

ROOT = Path(__file__).parents[2]
MANY = 40


@pytest.fixture
def connected(service, monkeypatch):
    """The service, with the environment variables that connect the app to it."""
    monkeypatch.delenv("MINTLIFY_SITE", raising=False)
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    return service


async def statuses(url, path):
    """Return the statuses and the bodies of forty requests at once."""
    limit = aiohttp.ClientTimeout(total=60)

    async def call(http):
        async with http.request("POST" if path == "/run" else "GET", url + path) as response:
            return response.status, await (response.json() if response.ok else response.text())

    async with aiohttp.ClientSession(timeout=limit, connector=aiohttp.TCPConnector(limit=0)) as http:
        return await asyncio.gather(*(call(http) for _ in range(MANY)))


async def check(service, url):
    """Make all three kinds of requests, and look at what arrived at the service."""
    results = await statuses(url, "/run")
    assert [status for status, _ in results] == [200] * MANY
    assert {body["status"] for _, body in results} == {"completed"}
    assert len({body["id"] for _, body in results}) == MANY
    assert service.requests.count("create_job") == MANY

    service.script.get_job(fields={"status": "active"})
    results = await statuses(url, "/wait/job_1")
    assert results == [(200, {"id": "job_1", "status": "completed"})] * MANY
    assert service.requests.count("create_job") == MANY


async def check_questions(service, url):
    results = await statuses(url, "/ask")
    assert [status for status, _ in results] == [200] * MANY
    assert all(body["text"] for _, body in results)
    assert service.requests.count("ask") == MANY


async def test_jobs_in_web_handlers(connected):
    """Each request that runs a job, or that waits for the same job, is answered; each POST is one job."""
    async with serving(app) as url:
        await check(connected, url)


@pytest.mark.filterwarnings("ignore:a MintlifySession made at:ResourceWarning")
async def test_questions_of_sessions_that_nobody_keeps(connected):
    """``await MintlifySession().ask(…)`` in a handler is answered completely."""
    async with serving(app) as url:
        await check_questions(connected, url)
        gc.collect()
        await asyncio.sleep(0.01)


@contextmanager
def uvicorn_process(loop, environment, app="tests.support.web_app:app", *more):
    """Run the app by uvicorn's command in a process of its own. Yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "uvicorn", app, *more]
        command += ["--fd", str(listener.fileno()), "--loop", loop, "--log-level", "warning"]
        env = os.environ | environment | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[listener.fileno()])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.real
@pytest.mark.asyncio(loop_factories=["asyncio"])  # the client's; the loop that is tested is uvicorn's
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_uvicorns_own_loop(connected, loop):
    """``uvicorn --loop`` as people start it, in another process."""
    with uvicorn_process(loop, connected.environment) as url:
        await check(connected, url)
        await check_questions(connected, url)


@pytest.mark.real
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_four_workers_on_postgres(connected, postgres_server):
    """Two hundred requests at once: all answered, one POST for each key, the limit of each user exact."""
    environment = {**connected.environment, "POSTGRES_URL": postgres_server.url}
    app, many = "tests.support.shared_web_app:app", 200
    with uvicorn_process("uvloop", environment, app, "--workers", "4") as url:
        limit = aiohttp.ClientTimeout(total=60)

        async def call(http, number):
            async with http.post(f"{url}/work/key{number % 20}/user{number % 10}") as response:
                return number, response.status, await response.json()

        async with aiohttp.ClientSession(timeout=limit, connector=aiohttp.TCPConnector(limit=0)) as http:
            results = await asyncio.gather(*(call(http, number) for number in range(many)))
    assert {status for _, status, _ in results} == {200, 429}
    assert len({(number % 20, body["id"]) for number, _, body in results}) == 20
    answered = [number % 10 for number, status, _ in results if status == 200]
    assert [answered.count(user) for user in range(10)] == [7] * 10
    assert {body["limit"] for _, status, body in results if status == 429} == {"ask_per_user"}
    assert connected.requests.count("create_job") == 20
    assert connected.requests.count("ask") == 70
