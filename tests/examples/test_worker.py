"""The worker example in processes of its own: real signals, a restart, and no job twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
import worker

from mintlify_async import JobRef
from mintlify_async.testing import JobLife, LocalService
from tests.support.child_process import child_environment

pytestmark = pytest.mark.real

PROGRAM = Path(worker.__file__)
TASKS = "typos: Fix the typos\nlogin: Explain SSO: what it is, and how to log in\n\n"


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.txt"
    path.write_text(TASKS)
    return path


async def start(service, tasks):
    return await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), str(tasks),
        env=child_environment(service),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def end(process, number=None):
    """Wait for the worker, after the signal *number* if there is one. Return what it printed."""
    if number is not None:
        process.send_signal(number)
    out, err = await process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in err.decode()
    return sorted(out.decode().splitlines())


def jobs_in(said):
    """Return the ids of the jobs whose references were printed, by task."""
    lines = [line.split(": keeps running at the service: ") for line in said]
    return {name: JobRef.parse(reference).id for name, reference in lines}


async def test_it_ends_with_the_references_and_goes_on(tasks):
    """The jobs go on; the next start waits for the same ones, and one after that finds them finished."""
    async with LocalService(life=JobLife(seconds=1000)) as service:
        process = await start(service, tasks)
        await service.until(lambda service: service.requests.count("get_job") >= 2)
        jobs = jobs_in(await end(process, signal.SIGTERM))
        assert (list(jobs), sorted(jobs.values())) == (["login", "typos"], ["job_1", "job_2"])
        process = await start(service, tasks)
        await service.until(lambda service: service.requests.count("get_job") >= 4)
        assert jobs_in(await end(process, signal.SIGINT)) == jobs
        service.script.get_job(fields={"status": "completed"}, times=None)
        said = await end(await start(service, tasks))
        assert [line.partition(" ")[0] for line in said] == ["login:", "typos:"]
        assert all(": completed " in line for line in said)
        prompts = sorted(request.json["prompt"] for request in service.requests.of("create_job"))
        assert prompts == ["Explain SSO: what it is, and how to log in", "Fix the typos"]


async def test_what_cannot_be_done_is_told_and_stops_nothing_else(tasks):
    """A creation whose outcome is not known, and the second of two lines with one name."""
    tasks.write_text(f"{TASKS}typos: Fix the links\n")
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        service.script.create_job(status=500)
        said = await end(await start(service, tasks))
        assert "Fix the links" not in [
            request.json["prompt"] for request in service.requests.of("create_job")
        ]
    assert len(said) == 3
    for told in ("OutcomeUnknownError", "completed", "dropped: Fix the links"):
        assert sum(told in line for line in said) == 1


async def test_used_up_credits_end_the_queue(tasks):
    """No further job is created; those that run are waited for."""
    tasks.write_text("".join(f"task {number}: Fix it\n" for number in range(60)))
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        service.script.create_job()
        service.script.create_job(status=402, times=None, delay=0.2)
        said = await end(await start(service, tasks))
        assert service.requests.count("create_job") <= worker.AT_ONCE + 1  # the first makes room for one
    assert sum("completed" in line for line in said) == 1
    assert any("PaymentRequiredError: create_job: 402" in line for line in said)
