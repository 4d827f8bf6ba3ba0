"""The rows about one answer, one request and one import: what is compared, and on which bytes."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from .bodies import DELTA_KINDS, script
from .growing import GROWING
from .measuring import CONTROL, OURS, Effort, Row, between_marks, interleaved, mark, row_of
from .server import running
from .subjects import AIOHTTP, CLIENTS, QUESTION, checked, count_from_first

IMPORTS = {
    OURS: "from mintlify_async import MintlifySession, TextDelta, Finish",
    AIOHTTP: "import aiohttp",
    "httpx-sse": "import httpx, httpx_sse",
    "openai": "from openai import AsyncOpenAI",
}
NEEDS = {"httpx-sse": "httpx_sse", "openai": "openai"}
#: Each client whose package is installed, the control aside.
THERE = [n for n in IMPORTS if n not in NEEDS or importlib.util.find_spec(NEEDS[n])]
TIMES = 8  # how much larger the large answer of a growing shape is


async def cpu_per_event(readers: dict[str, tuple[str, str]], effort: Effort) -> dict[str, list[float]]:
    """Return the microseconds of CPU per event, by label; *readers* says which client reads which shape."""
    async with AsyncExitStack() as stack:
        server, works = stack.enter_context(running()), {}
        for label, (name, shape) in readers.items():
            works[label] = checked(await stack.enter_async_context(CLIENTS[name](server)), shape)
        samples = await interleaved(works, effort)
    events = {label: script(shape).events for label, (_, shape) in readers.items()}
    return {label: [1e6 * cost / events[label] for cost in each] for label, each in samples.items()}


def burst(effort: Effort) -> Iterator[Row]:
    """Measure a whole answer that is there at once."""
    readers = {name: (name, "burst") for name in (*THERE, CONTROL)}
    title = "CPU per event of a 55 KB answer, written at once"
    yield row_of("burst", title, "µs", asyncio.run(cpu_per_event(readers, effort)))


def shapes(effort: Effort) -> Iterator[Row]:
    """Measure this package on deltas of other shapes than the plain one."""
    readers = {kind: (OURS, f"{kind}~deltas") for kind in DELTA_KINDS}
    samples = asyncio.run(cpu_per_event({**readers, CONTROL: readers["plain"]}, effort))
    plain = samples.pop("plain")
    times = {kind: [a / b for a, b in zip(each, plain, strict=True)] for kind, each in samples.items()}
    yield row_of("shapes", "CPU of a delta of another shape ÷ a plain one", "times", times, None)


# By instructions -------------------------------------------------------------------------------------


def counted(name: str, title: str, costs: dict[str, float], effort: Effort) -> Row:
    """Return the row of *costs* that have no spread."""
    unit = "instructions" if effort.counts() else "ns of CPU"
    return row_of(name, title, unit, {subject: [cost] for subject, cost in costs.items()})


def between(work: Any, effort: Effort, **given: Any) -> dict[str, list[float]]:
    """Return what *work* costs between its marks, for each client, which asks a running server."""
    with running() as server:
        return {name: between_marks(work, effort, client=name, server=server, **given) for name in THERE}


async def marked(client: str, server: str, what: str, times: int) -> None:
    """Read the answer in the shape *what*, or make that call, *times* times between two marks."""
    async with CLIENTS[client](server) as opened:
        work = getattr(opened, what, None) or checked(opened, what)
        for number in range(-1 - times // 5, times):  # those below 0 warm up
            if number == 0:
                mark()
            assert await work() in (None, "active")
        mark()


async def first_marked(client: str, server: str, times: int) -> None:
    """Mark the request and the first event, *times* times."""
    async with CLIENTS[client](server) as opened:
        for _ in range(times):
            await asyncio.sleep(0.01)  # what the answer before has left to do
            mark()
            await opened.read("alone", count_from_first)


def live(effort: Effort) -> Iterator[Row]:
    """Count one event per packet, over a whole answer."""
    shape = "alone" if effort.small else "live"
    found = between(marked, effort, what=shape, times=1)
    costs = {name: each[0] / script(shape).events for name, each in found.items()}
    yield counted("live", "an event alone in its packet and its read", costs, effort)


def first(effort: Effort) -> Iterator[Row]:
    """Count the way to the first event, which comes alone, as a live one does: the least of 15 answers.

    The least, because the loop goes round once more for an event that comes a moment after its headers.
    """
    found = between(first_marked, effort, times=2 if effort.small else 15)
    costs = {name: min(each[::2]) for name, each in found.items()}
    yield counted("first", "from the question to the first event, alone in its packet", costs, effort)


def request(effort: Effort) -> Iterator[Row]:
    """Count a request that reads a job, and one that creates a job."""
    times = 2 if effort.small else 100
    for call, title in (("get", "a request that reads a job"), ("create", "a request that creates a job")):
        found = between(marked, effort, what=call, times=times)
        yield counted(
            f"request-{call}", title, {name: each[0] / times for name, each in found.items()}, effort
        )


def imports(effort: Effort) -> Iterator[Row]:
    """Count the import of the names one uses, and that of the package alone."""
    lines = {"bare": "import mintlify_async", **{name: IMPORTS[name] for name in THERE}}
    for line in lines.values():
        between_marks(line, Effort(small=True))  # writes the bytecode
    costs = {name: between_marks(line, effort)[0] for name, line in lines.items()}
    bare = {OURS: costs.pop("bare"), AIOHTTP: costs[AIOHTTP]}
    yield counted("import", "importing the names one uses", costs, effort)
    yield counted("import-bare", "import mintlify_async, beside import aiohttp", bare, effort)


async def grow_marked(server: str, names: list[str], small: bool) -> None:
    """Read nothing, a small and a large answer of each shape, with a mark before, between and after them."""
    from mintlify_async import extras_markdown

    gc.disable()  # it is linear, and the interpreter's share, but comes in jumps between two sizes
    async with CLIENTS[OURS](server) as ours:
        for name in names:
            size = max(16, GROWING[name].size // 100) if small else GROWING[name].size
            for warm_up, n in ((True, size), (False, 0), (False, size), (False, TIMES * size)):
                gc.collect()
                if not warm_up:
                    mark()
                reply = ours.session.ask(QUESTION, domain=f"{name}~{n}~growing")
                await reply
                assert reply.events_seen == script(f"{name}~{n}~growing").events, name
                assert reply.message is not None
                extras_markdown(reply)  # its sources and its suggestions
            mark()


def growth(effort: Effort) -> Iterator[Row]:
    """Count what a byte costs at eight times the size over what it costs, for each growing shape."""
    with running() as server:
        costs = between_marks(grow_marked, effort, server=server, names=list(GROWING), small=effort.small)
    times = {}
    for place, name in enumerate(GROWING):
        nothing, small, large = costs[4 * place : 4 * place + 3]  # the fourth lies between two shapes
        times[name] = [(large - nothing) / TIMES / (small - nothing)]
    title = f"cost per byte at {TIMES} times the size ÷ at the size"
    yield row_of("growth", title, "times", {"worst": max(times.values()), **times}, None)
