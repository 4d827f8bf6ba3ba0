"""A line of Python in; what running it costs out: imports, the command's help, the stand-in's start.

Each run is a process of its own. For imports, what an empty program costs in
the same round is taken off.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import NamedTuple

from . import instructions
from .rounds import Row, figure, ratios
from .subjects import available

__all__ = ["command_help", "imports", "local_service"]

OURS = "mintlify-async"


class Line(NamedTuple):
    """A line of Python that is run, and the modules it needs."""

    name: str
    code: str
    needs: tuple[str, ...]


LINES = (
    Line(OURS, "from mintlify_async import MintlifySession, TextDelta, Finish", ("mintlify_async",)),
    Line("control", "from mintlify_async import MintlifySession, TextDelta, Finish", ("mintlify_async",)),
    Line("bare", "import mintlify_async", ("mintlify_async",)),
    Line("aiohttp", "import aiohttp", ("aiohttp",)),
    Line("httpx-sse", "import httpx, httpx_sse", ("httpx", "httpx_sse")),
    Line("langgraph", "from langgraph_sdk import get_client", ("langgraph_sdk",)),
    Line("openai", "from openai import AsyncOpenAI", ("openai",)),
    Line("anthropic", "from anthropic import AsyncAnthropic", ("anthropic",)),
)


def cpu(arguments: list[str]) -> float:
    """Return the seconds of CPU that ``python ARGUMENTS`` takes, its own children included."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_utime + usage.ru_stime


def turns(commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """Run each command once a round; return its seconds of CPU, by round."""
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(-1, rounds):  # the first is for the bytecode cache
        for name, command in commands.items():
            cost = cpu(command)
            if number >= 0:
                samples[name].append(cost)
    return samples


def imports(*, rounds: int, counted: bool = True) -> list[Row]:
    """Measure what importing costs: milliseconds of CPU and, with *counted*, instructions."""
    lines = available(LINES)
    commands = {line.name: ["-I", "-c", line.code] for line in lines}
    samples = turns({"nothing": ["-I", "-c", "pass"], **commands}, rounds)
    nothing = samples.pop("nothing")
    net = {name: [a - b for a, b in zip(each, nothing, strict=True)] for name, each in samples.items()}
    bare = figure([a / b for a, b in zip(net["bare"], net["aiohttp"], strict=True)]).median
    costs = {name: figure([1e3 * cost for cost in each]) for name, each in net.items()}
    rows = [Row("imports", "CPU of importing", "ms", costs, ratios(net, OURS), {}, {"bare ÷ aiohttp": bare})]
    if counted:
        base = instructions.count(["-I", "-c", "pass"])
        sizes = {name: float(instructions.count(command) - base) for name, command in commands.items()}
        row = instructions.row("imports-instructions", "instructions of importing", sizes, {"aiohttp": 1.2})
        rows.append(row._replace(notes={"bare ÷ aiohttp": sizes["bare"] / sizes["aiohttp"]}))
    return rows


def command_help(*, rounds: int) -> Row:
    """Measure what ``mintlify-async --help`` costs beside the imports that any asyncio command has."""
    commands = {
        OURS: ["-m", "mintlify_async", "--help"],
        "control": ["-m", "mintlify_async", "--help"],
        "argparse, asyncio": ["-c", "import argparse, asyncio"],
    }
    samples = turns(commands, rounds)
    costs = {name: figure([1e3 * cost for cost in each]) for name, each in samples.items()}
    return Row(
        "help", "CPU of mintlify-async --help, the process", "ms", costs, ratios(samples, OURS), {}, {}
    )


async def local_service(*, rounds: int) -> Row:
    """Measure how long :class:`mintlify_async.testing.LocalService` takes to be ready, the import aside."""
    from mintlify_async.testing import LocalService

    waits, cpu_times = [], []
    for _ in range(rounds + 1):
        start, used = time.perf_counter(), time.process_time()
        async with LocalService():
            waits.append(1e3 * (time.perf_counter() - start))
            cpu_times.append(1e3 * (time.process_time() - used))
    costs = {OURS: figure(waits[1:]), "CPU": figure(cpu_times[1:]), "the first": figure(waits[:1])}
    return Row("service", "start of testing.LocalService", "ms", costs, {}, {}, {})


async def local_service_streams(*, rounds: int, streams: int) -> Row:
    """Measure the CPU of *streams* answers at once from a LocalService, both ends in this process."""
    from mintlify_async.testing import LocalService

    deltas = [f"{n} " for n in range(100)]
    events = [
        {"type": "start"},
        {"type": "text-start", "id": "0"},
        *({"type": "text-delta", "id": "0", "delta": delta} for delta in deltas),
        {"type": "text-end", "id": "0"},
        {"type": "finish"},
    ]
    samples = []
    async with LocalService() as service, service.session() as session:
        service.script.ask(events=events, times=None)
        for _ in range(rounds):
            used = time.process_time()
            answers = await asyncio.gather(*(session.ask("x") for _ in range(streams)))
            samples.append(1e6 * (time.process_time() - used) / (streams * len(events)))
            assert all(answer.text == "".join(deltas) for answer in answers)
            service.requests.clear()
    costs = {"both ends": figure(samples)}
    return Row(
        "service-streams",
        f"{streams} streams at once from testing.LocalService",
        "µs an event",
        costs,
        {},
        {},
        {},
    )
