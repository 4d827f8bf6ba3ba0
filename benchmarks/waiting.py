"""A number of jobs in; out: the memory of each that is waited for, and how late the loop runs meanwhile.

The jobs are waited for in a process of its own (this module, run) against the
server in another, through ``wait_all``, with the session's own cap on polls.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .calls import bare_aiohttp
from .held import control, resident
from .rounds import Row, figure, ratios
from .server import ServerAddress, running
from .subjects import session_for

__all__ = ["waited_jobs"]

ROOT = Path(__file__).resolve().parent.parent
TICK = 0.001
BUSY, IDLE = "loop lag p99, ms", "idle loop lag p99, ms"
BARE = "loop lag p99 with bare aiohttp polling, ms"


async def lag(seconds: float) -> float:
    """Return how late the loop wakes a task, in milliseconds: the 99th percentile over *seconds*."""
    loop = asyncio.get_running_loop()
    late = []
    end = loop.time() + seconds
    while (due := loop.time() + TICK) < end:
        await asyncio.sleep(TICK)
        late.append(loop.time() - due)
    late.sort()
    return 1e3 * late[len(late) * 99 // 100]


async def measure(server: ServerAddress, jobs: int, seconds: float, per_second: float) -> dict[str, float]:
    """Wait for *jobs* jobs that stay active for *seconds*, then for their end; return the figures."""
    from mintlify_async import PollPolicy, wait_all

    idle = await lag(seconds)
    finish = PollPolicy(per_second=1000.0, concurrency=64, cap=5.0)
    async with session_for(server, poll=PollPolicy(per_second=per_second)) as session:
        await session.job("job_0").refresh()
        before = resident()
        waiting = asyncio.ensure_future(wait_all([session.job(f"job_{n}") for n in range(jobs)]))
        await asyncio.sleep(seconds)  # every wait has begun, some jobs were seen
        each = (resident() - before) / jobs
        gc.freeze()  # a full collection over 10,000 waits is the harness's, not the loop's
        busy = await lag(seconds)
        gc.unfreeze()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    bare = await lag_beside_aiohttp(server, seconds, per_second)
    await control(server, "jobs/completed")
    async with session_for(server, poll=finish) as session:
        done: list[Any] = await wait_all([session.job(f"job_{n}") for n in range(jobs)])
    assert [job.status for job in done] == ["completed"] * jobs
    return {"bytes each": each, BUSY: busy, BARE: bare, IDLE: idle}


async def lag_beside_aiohttp(server: ServerAddress, seconds: float, per_second: float) -> float:
    """Return the lag while bare aiohttp asks for one job as often as we ask for all: the floor of polling."""
    async with bare_aiohttp(server) as calls:

        async def ask_on() -> None:
            async with asyncio.TaskGroup() as asked:
                while True:
                    asked.create_task(calls["get"]())
                    await asyncio.sleep(1 / per_second)

        asking = asyncio.ensure_future(ask_on())
        late = await lag(seconds)
        assert not asking.done()  # it ends when a request fails
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    return late


def waited_jobs(jobs: int, *, rounds: int, seconds: float = 5.0, per_second: float = 50.0) -> Row:
    """Measure *jobs* jobs waited for at once."""
    found = []
    for _ in range(rounds):
        with running() as server:
            arguments = [server.base_url, str(jobs), str(seconds), str(per_second)]
            command = [sys.executable, "-m", "benchmarks.waiting", *arguments]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        found.append(json.loads(done.stdout))
    samples = {key: [each[key] for each in found] for key in found[0]}
    costs = {key: figure(values) for key, values in samples.items()}
    shares = ratios({key: samples[key] for key in (BUSY, IDLE, BARE)}, BUSY)
    notes = {
        "lag ÷ idle loop's": shares[IDLE].median,
        "lag ÷ that with bare aiohttp": shares[BARE].median,
        "reach, bytes each": 2500,
        "reach, lag ÷ idle loop's": 3.0,
    }
    return Row(f"jobs-{jobs}", f"{jobs:,} jobs waited for at once", "", costs, {}, {}, notes)


def main() -> None:
    """Measure as the command line says and print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("jobs", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("per_second", type=float)
    options = parser.parse_args()
    work = measure(ServerAddress(options.base_url), options.jobs, options.seconds, options.per_second)
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
