"""The rows about thousands of open streams, and thousands of waits for jobs, at the same time."""

import asyncio
import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .measuring import CONTROL, OURS, Effort, Row, between_marks, in_processes, mark, row_of
from .server import SPEAKING, control, running
from .subjects import ADMIN_KEY, AIOHTTP, CLIENTS

AT_ONCE = 200  # streams that are being opened
PER_SECOND = 500.0  # events, over all streams together
NEVER = 30.0  # seconds until the wait for a first look ends
#: The measured values, each with the title of its row and its unit.
STREAMS = {
    "memory": ("memory of each", "KiB"),
    "silent": ("CPU while all are silent", "% of a core"),
    "event": (f"CPU per event while {SPEAKING} get {PER_SECOND:.0f} a second in all, the others none", "µs"),
}
JOBS = {
    "memory": ("memory of each, its task included", "bytes"),
    "lag": ("loop lag while they are polled, p99", "ms"),
    "look": ("until a further wait has looked at its job", "s"),
}


class Held:
    def __init__(self) -> None:
        self.open, self.delays, self.slots = 0, list[float](), asyncio.Semaphore(AT_ONCE)

    def opened(self) -> None:
        self.open += 1
        self.slots.release()

    def heard(self, written: str) -> None:
        self.delays.append(time.monotonic() - float(written))

    async def until(self, streams: int, events: int = 0) -> None:
        while self.open < streams or len(self.delays) < events:  # noqa: ASYNC110 - ten looks a second
            await asyncio.sleep(0.1)


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def hold(client: str, server: str, streams: int, seconds: float) -> dict[str, float]:
    """Open *streams*, be silent for *seconds*, read events as long. Mark before and after the opening."""
    async with CLIENTS[client](server) as opened, asyncio.TaskGroup() as tasks:
        held = Held()
        for number in range(1 + streams):
            await held.slots.acquire()
            tasks.create_task(opened.hold(held))
            if number == 0:  # objects that are made once
                await held.until(1)
                before = resident()
                mark()
        await held.until(1 + streams)
        mark()
        memory = (resident() - before) / streams
        gc.freeze()  # a full collection over all of them is the harness's
        events, start = int(PER_SECOND * seconds), time.process_time()
        await asyncio.sleep(seconds)
        silent, start = time.process_time() - start, time.process_time()
        await control(server, f"emit/{events}/{PER_SECOND}")
        await held.until(1 + streams, events)
        spent = time.process_time() - start
        await control(server, "end")
    assert len(held.delays) == events
    return {"memory": memory / 1024, "silent": 100 * silent / seconds, "event": 1e6 * spent / events}


def streams(effort: Effort) -> Iterator[Row]:
    with running() as (server, _):
        count, seconds = (10, 0.2) if effort.small else (1_000, 10.0)
        # In separate processes, because memory that one leaves behind would flatter the next.
        arguments = {"server": server, "streams": count, "seconds": seconds}
        found = in_processes(hold, effort, "client", (OURS, AIOHTTP, CONTROL), **arguments)
        for key, (title, unit) in STREAMS.items():
            samples = {label: [max(each[key], 1e-6) for each in every] for label, every in found.items()}
            yield row_of(f"streams-{key}", f"{count:,} open streams: {title}", unit, samples)
        arguments |= {"seconds": 0.2}
        costs = {n: [between_marks(hold, effort, client=n, **arguments)[0] / count] for n in (OURS, AIOHTTP)}
    yield row_of("streams-opening", f"opening one of {count:,} streams", effort.counted(), costs)


async def lag(server: str, seconds: float) -> float:
    """Return the delay of the loop after another process writes to a socket, p99 in milliseconds."""
    gc.collect()
    gc.freeze()  # a full collection over 1,000 waits is the harness's, not the loop's
    async with CLIENTS[AIOHTTP](server) as probe:
        held, events = Held(), int(PER_SECOND * seconds)
        holding = asyncio.create_task(probe.hold(held))
        await held.until(1)
        await control(server, f"emit/{events}/{PER_SECOND}")
        await held.until(1, events)
        await control(server, "end")
        await holding
    gc.unfreeze()
    return 1e3 * sorted(held.delays)[len(held.delays) * 99 // 100]


async def first_look(job: Any) -> float:
    """Return the seconds until a wait that joins the others has looked at *job*, or *NEVER*."""
    wait, start = asyncio.create_task(job.wait(timeout=None)), time.monotonic()
    while job.job is None and time.monotonic() - start < NEVER:  # noqa: ASYNC110 - no event tells of a look
        await asyncio.sleep(0.01)
    wait.cancel()
    return time.monotonic() - start


async def wait_for_jobs(server: str, jobs: int, seconds: float) -> dict[str, dict[str, float]]:
    """Measure in three slices, with *jobs* waited for by a task each and idle, then wait for their end."""
    from mintlify_async import MintlifySession, PollPolicy, wait_all

    # The service stands for another machine. On another core, it takes no time of ours.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    await control(server, "jobs/active")
    keys: dict[str, Any] = {"project_id": "p", "admin_key": ADMIN_KEY, "base_url": server}
    found = defaultdict[str, list[float]](list)
    for _ in range(3):
        async with MintlifySession(**keys) as session:
            await session.job("job_0").refresh()
            before = resident()
            waits = [asyncio.create_task(session.job(f"job_{n}").wait(timeout=None)) for n in range(jobs)]
            await asyncio.sleep(seconds)  # every wait has begun
            found["memory"].append((resident() - before) / jobs)
            found[OURS].append(await lag(server, seconds))
            found["look"].append(await first_look(session.job("job_new")))
            assert not any(wait.done() for wait in waits)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for name in ("idle loop", "idle loop again"):
            found[name].append(await lag(server, seconds))
    await control(server, "jobs/completed")
    async with MintlifySession(**keys, poll=PollPolicy(per_second=1000.0, cap=5.0)) as session:
        done = await wait_all([session.job(f"job_{n}") for n in range(jobs)])
    assert [job.status for job in done] == ["completed"] * jobs
    lags = {name: statistics.median(found[name]) for name in (OURS, "idle loop", "idle loop again")}
    # The first memory, as the later ones lie where the first has lain.
    return {"memory": {OURS: found["memory"][0]}, "lag": lags, "look": {OURS: max(found["look"])}}


def jobs(effort: Effort) -> Iterator[Row]:
    count, seconds = (20, 0.2) if effort.small else (1_000, 3.0)
    with running() as (server, _):
        found = in_processes(wait_for_jobs, effort, "jobs", [count], server=server, seconds=seconds)[count]
    for key, (title, unit) in JOBS.items():
        samples = {subject: [each[key][subject] for each in found] for subject in found[0][key]}
        yield row_of(f"jobs-{key}", f"{count:,} waited jobs: {title}", unit, samples)
