"""The worker example in processes of its own: real signals, a restart, and no job twice."""

from __future__ import annotations

import asyncio
import re
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


async def end(process, number):
    """Send the signal; return what the worker printed. It ends by itself, with status 0."""
    process.send_signal(number)
    out, err = await process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in err.decode()
    return lines_in(out)


def lines_in(out):
    return out.decode().splitlines()


def jobs_in(said):
    """Return the ids of the jobs whose references were printed."""
    return [
        JobRef.parse(line.rpartition(" ")[2]).id for line in said if "keeps running at the service: " in line
    ]


async def test_it_ends_with_the_references_and_goes_on(tasks):
    """The jobs go on; the next start waits for the same ones, and one after that finds them finished."""
    async with LocalService(life=JobLife(seconds=1000)) as service:
        process = await start(service, tasks)
        await service.until(lambda service: service.requests.count("get_job") >= 2)
        said = await end(process, signal.SIGTERM)
        names = sorted(line.partition(":")[0] for line in said)
        assert names == ["login", "typos"]
        assert sorted(jobs_in(said)) == ["job_1", "job_2"]
        process = await start(service, tasks)
        await service.until(lambda service: service.requests.count("get_job") >= 4)
        assert sorted(jobs_in(await end(process, signal.SIGINT))) == ["job_1", "job_2"]
        service.script.get_job(fields={"status": "completed"}, times=None)
        out, _ = await (await start(service, tasks)).communicate()
        assert sorted(re.findall(r"^(\w+): completed", out.decode(), re.MULTILINE)) == names
        assert service.requests.count("create_job") == 2
        prompts = {request.json["prompt"] for request in service.requests.of("create_job")}
        assert prompts == {"Fix the typos", "Explain SSO: what it is, and how to log in"}


async def test_what_cannot_be_done_is_told_and_stops_nothing_else(tasks):
    """A failed job, and a creation whose outcome is not known."""
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        service.script.create_job(status=500)
        out, _ = await (await start(service, tasks)).communicate()
    said = sorted(lines_in(out))
    assert [re.split(r"[ :]+", line)[1] for line in said] in (
        ["OutcomeUnknownError", "completed"],
        ["completed", "OutcomeUnknownError"],
    )


async def test_used_up_credits_end_the_queue(tasks):
    """No further job is created; those that run are waited for."""
    tasks.write_text("".join(f"task {number}: Fix it\n" for number in range(60)))
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        service.script.create_job()
        service.script.create_job(status=402, times=None, delay=0.2)
        out, _ = await (await start(service, tasks)).communicate()
        assert service.requests.count("create_job") <= worker.AT_ONCE + 1  # the first makes room for one
    said = lines_in(out)
    assert sum("completed" in line for line in said) == 1
    assert any("PaymentRequiredError: create_job: 402" in line for line in said)


async def test_two_lines_with_one_name(tasks):
    """The worker says which of the two it drops."""
    tasks.write_text("typos: Fix the typos\ntypos: Fix the links\n")
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        out, _ = await (await start(service, tasks)).communicate()
        assert [request.json["prompt"] for request in service.requests.of("create_job")] == ["Fix the typos"]
    assert "dropped: Fix the links" in lines_in(out)[0]
