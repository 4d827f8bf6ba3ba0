"""A number of jobs in; out: the memory of each that is waited for, and how late the loop runs meanwhile.

The jobs are waited for in a process of its own (this module, run) against the
server in another, through ``wait_all``, with the session's own cap on polls.
How late is seen by a descriptor that becomes ready, as a request's does. Sleepers
say little: selectors round epoll's timeout up to whole milliseconds, anew whenever
anything has woken the loop, so they are late on a loop that has nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import random
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from .calls import bare_aiohttp
from .held import control, resident
from .rounds import Row, figure, in_process, ratios
from .server import ServerAddress, running
from .subjects import session_for

__all__ = ["waited_jobs"]

TFD_TIMER_ABSTIME = 1
ALARMS_PER_SECOND = 700.0
TICK = 0.001
SLICES = 3
BUSY, IDLE = "loop lag p99, ms", "idle loop lag p99, ms"
BARE = "loop lag p99 with bare aiohttp polling, ms"
SLEEPER, SLEEPER_IDLE = "sleeper's lag p99, ms", "sleeper's, idle loop, ms"
SLEEPER_WOKEN = "sleeper's, idle loop that is woken as often, ms"


@contextmanager
def alarms(per_second: float, heard: Callable[[float], object]) -> Iterator[None]:
    """Make a descriptor ready at random moments; *heard* is told how late the loop was, in seconds."""
    libc = ctypes.CDLL(None)  # os.timerfd_create came with Python 3.13
    loop, due = asyncio.get_running_loop(), time.monotonic()
    descriptor = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0

    def plan() -> None:
        nonlocal due
        due += random.expovariate(per_second)  # never in step with the polls
        once = struct.pack("4l", 0, 0, *divmod(int(due * 1e9), 10**9))
        failed = libc.timerfd_settime(descriptor, TFD_TIMER_ABSTIME, once, None)
        assert not failed

    def on_ready() -> None:
        os.read(descriptor, 8)
        heard(time.monotonic() - due)
        plan()  # counted from when it was due: what comes while the loop is held up is late, too

    plan()
    loop.add_reader(descriptor, on_ready)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def lag(seconds: float) -> list[float]:
    """Return how late the loop handles a descriptor that is ready, over *seconds*."""
    late: list[float] = []
    with alarms(ALARMS_PER_SECOND, late.append):
        await asyncio.sleep(seconds)
    return late


async def sleepers_lag(seconds: float) -> list[float]:
    """Return how late the loop wakes a task that sleeps, over *seconds*."""
    loop = asyncio.get_running_loop()
    late = []
    end = loop.time() + seconds
    while (due := loop.time() + TICK) < end:
        await asyncio.sleep(TICK)
        late.append(loop.time() - due)
    return late


async def p99(work: Awaitable[list[float]]) -> float:
    """Return the 99th percentile of what *work* measures, in milliseconds."""
    gc.collect()
    gc.freeze()  # a full collection over 10,000 waits is the harness's, not the loop's
    late = sorted(await work)
    gc.unfreeze()
    return 1e3 * late[len(late) * 99 // 100]


@asynccontextmanager
async def waiting_for(
    server: ServerAddress, jobs: int, seconds: float, per_second: float
) -> AsyncIterator[float]:
    """Wait for *jobs* jobs while the block lasts; yield the memory of each when some have been looked at."""
    from mintlify_async import PollPolicy, wait_all

    async with session_for(server, poll=PollPolicy(per_second=per_second)) as session:
        await session.job("job_0").refresh()
        before = resident()
        waiting = asyncio.ensure_future(wait_all([session.job(f"job_{n}") for n in range(jobs)]))
        await asyncio.sleep(seconds)  # every wait has begun
        yield (resident() - before) / jobs
        await stopped(waiting)


@asynccontextmanager
async def aiohttp_asking(server: ServerAddress, per_second: float) -> AsyncIterator[None]:
    """Let bare aiohttp ask for one job as often as we ask for all: the floor of polling."""
    async with bare_aiohttp(server) as calls:

        async def ask_on() -> None:
            async with asyncio.TaskGroup() as asked:
                while True:
                    asked.create_task(calls["get"]())
                    await asyncio.sleep(1 / per_second)

        asking = asyncio.ensure_future(ask_on())
        await calls["get"]()
        yield
        await stopped(asking)


async def stopped(work: asyncio.Future[Any]) -> None:
    """End *work*, which would have gone on: it is done only when a request has failed."""
    assert not work.done()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def measure(
    server: ServerAddress, jobs: int, seconds: float, per_second: float
) -> dict[str, list[float]]:
    """Measure in slices of *seconds* that take turns, then wait for the jobs' end; return the figures."""
    from mintlify_async import PollPolicy, wait_all

    found: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(SLICES):
        async with waiting_for(server, jobs, seconds, per_second) as each:
            found.setdefault("bytes each", [each])  # later ones lie where the first have lain
            found[BUSY].append(await p99(lag(seconds)))
            found[SLEEPER].append(await p99(sleepers_lag(seconds)))
        async with aiohttp_asking(server, per_second):
            found[BARE].append(await p99(lag(seconds)))
        found[IDLE].append(await p99(lag(seconds)))
        found[SLEEPER_IDLE].append(await p99(sleepers_lag(seconds)))
        with alarms(per_second, lambda late: None):  # as the answer to each poll does; nobody acts on it
            found[SLEEPER_WOKEN].append(await p99(sleepers_lag(seconds)))
    await control(server, "jobs/completed")
    finish = PollPolicy(per_second=1000.0, concurrency=64, cap=5.0)
    async with session_for(server, poll=finish) as session:
        done: list[Any] = await wait_all([session.job(f"job_{n}") for n in range(jobs)])
    assert [job.status for job in done] == ["completed"] * jobs
    return found


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """Start the block's processes on one core: the service, another machine's, takes no time of ours."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def waited_jobs(jobs: int, *, rounds: int, seconds: float = 1.5, per_second: float = 50.0) -> Row:
    """Measure *jobs* jobs waited for at once."""
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with ExitStack() as stack:
            with on_core(1):
                server = stack.enter_context(running())
            with on_core(0):
                found = in_process("benchmarks.waiting", server.base_url, jobs, seconds, per_second)
        for key, values in found.items():
            samples[key] += values
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
