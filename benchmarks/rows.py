"""The rows about one answer, one request, one import, a conversation and a chat message."""

import asyncio
import gc
import importlib.util
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

from .bodies import DELTA_KINDS, MARKDOWN_KINDS, domain_of, script
from .growing import GROWING
from .measuring import CONTROL, OURS, Effort, Row, between_marks, in_processes, interleaved, mark, row_of
from .server import running
from .subjects import AIOHTTP, CLIENTS, QUESTION, count_from_first

IMPORTS = {
    OURS: "from mintlify_async import MintlifySession, TextDelta, Finish",
    AIOHTTP: "import aiohttp",
    "httpx-sse": "import httpx, httpx_sse",
    "openai": "from openai import AsyncOpenAI",
}
#: Each client whose package is installed, the control aside.
THERE = [n for n in IMPORTS if n in (OURS, AIOHTTP) or importlib.util.find_spec(n.replace("-", "_"))]
TIMES = 8  # how much larger the large answer of a growing shape is


async def read_at_once(effort: Effort) -> dict[str, list[float]]:
    async with AsyncExitStack() as stack:
        server, _ = stack.enter_context(running())
        clients = {name: await stack.enter_async_context(CLIENTS[name](server)) for name in (*THERE, CONTROL)}
        samples = await interleaved({n: partial(c.read, "burst") for n, c in clients.items()}, effort)
    return {name: [1e6 * cost / script("burst").events for cost in each] for name, each in samples.items()}


def burst(effort: Effort) -> Iterator[Row]:
    title = "CPU per event of a 55 KB answer, written at once"
    yield row_of("burst", title, "µs", asyncio.run(read_at_once(effort)))


def between(work: Any, effort: Effort, names: Sequence[str] = THERE, **given: Any) -> dict[str, list[float]]:
    """Return the cost of *work* between its marks, for each client, which asks a running server."""
    with running() as (server, _):
        return {name: between_marks(work, effort, client=name, server=server, **given) for name in names}


async def marked(client: str, server: str, what: list[str], times: int) -> None:
    """Read the answer in each shape of *what*, or make that call, *times* times between two marks."""
    async with CLIENTS[client](server) as opened:
        for work in [getattr(opened, each, None) or partial(opened.read, each) for each in what]:
            for number in range(-1 - times // 5, times):  # numbers below 0 warm up
                if number == 0:
                    mark()
                await work()
            mark()


def shapes(effort: Effort) -> Iterator[Row]:
    every = [f"{kind}~deltas" for kind in DELTA_KINDS]
    costs = between(marked, effort, [OURS], what=every, times=1 if effort.small else 4)[OURS][::2]
    times = {kind: [cost / costs[0]] for kind, cost in zip(DELTA_KINDS, costs, strict=True)}  # 600 each
    yield row_of("shapes", "a delta of another shape ÷ a plain one", "times", times, ratios=False)


async def first_marked(client: str, server: str, times: int) -> None:
    async with CLIENTS[client](server) as opened:
        for _ in range(times):
            await asyncio.sleep(0.01)  # remaining work of the answer before
            mark()
            await opened.read("alone", count_from_first)


def live(effort: Effort) -> Iterator[Row]:
    shape = "alone" if effort.small else "live"
    found = between(marked, effort, what=[shape], times=1)
    costs = {name: [each[0] / script(shape).events] for name, each in found.items()}
    yield row_of("live", "an event alone in its packet and its read", effort.counted(), costs)


def first(effort: Effort) -> Iterator[Row]:
    found = between(first_marked, effort, times=2 if effort.small else 15)
    # The least of them, because the loop runs once more for an event that comes a moment after its headers.
    costs = {name: [min(each[::2])] for name, each in found.items()}
    title = "from the question to the first event, alone in its packet"
    yield row_of("first", title, effort.counted(), costs)


def request(effort: Effort) -> Iterator[Row]:
    times = 2 if effort.small else 100
    for call, verb, names in (("get", "reads", THERE), ("create", "creates", (OURS, AIOHTTP))):
        found = between(marked, effort, names, what=[call], times=times)
        costs = {name: [each[0] / times] for name, each in found.items()}
        yield row_of(f"request-{call}", f"a request that {verb} a job", effort.counted(), costs)


def imports(effort: Effort) -> Iterator[Row]:
    lines = {"bare": "import mintlify_async", **{name: IMPORTS[name] for name in THERE}}
    for line in lines.values():
        between_marks(line, Effort(small=True))  # writes the bytecode
    costs = {name: between_marks(line, effort)[:1] for name, line in lines.items()}
    bare = {OURS: costs.pop("bare"), AIOHTTP: costs[AIOHTTP]}
    yield row_of("import", "importing the names one uses", effort.counted(), costs)
    yield row_of("import-bare", "import mintlify_async, beside import aiohttp", effort.counted(), bare)


async def grow_marked(server: str, names: list[str], small: bool) -> None:
    """Read nothing, a small and a large answer of each shape, with marks between them."""
    from mintlify_async import extras_markdown

    gc.disable()  # its cost is linear and the interpreter's, but jumps between two sizes
    async with CLIENTS[OURS](server) as ours:
        for name in names:
            size = max(16, GROWING[name].size // (100 if small else 1))
            for n in (size, 0, size, TIMES * size):  # the first warms up
                shape, expected = f"{name}~{n}~growing", script(f"{name}~{n}~growing").events
                mark()
                reply = ours.session.ask(QUESTION, domain=domain_of(shape))
                await reply
                assert reply.events_seen == expected, name
                extras_markdown(reply)  # its sources and its suggestions
                mark()


def growth(effort: Effort) -> Iterator[Row]:
    with running() as (server, _):
        costs = between_marks(grow_marked, effort, server=server, names=list(GROWING), small=effort.small)
    times = {}
    for place, name in enumerate(GROWING):
        nothing, small, large = costs[8 * place + 2 : 8 * place + 8 : 2]  # the first warms up
        times[name] = [(large - nothing) / TIMES / (small - nothing)]
    title = f"cost per byte at {TIMES} times the size ÷ at the size"
    yield row_of("growth", title, "times", {"worst": max(times.values()), **times}, ratios=False)


async def converse(server: str, kind: str, path: str, turns: int) -> list[float]:
    """Take turns, each with a new object. Return the last ones' CPU ÷ the fifth's, and the longest round."""
    from mintlify_async import MemoryStore, SQLiteStore
    from mintlify_async.contrib.redis import RedisStore

    redis = importlib.import_module("redis.asyncio").Redis(unix_socket_path=f"{path}/redis")
    stores = {"memory": MemoryStore(), "SQLite": SQLiteStore(f"{path}/chats")}
    store = {**stores, "Redis": RedisStore(redis), CONTROL: None}[kind]
    identity = {"store": store, "id": str(time.time_ns()), "owner": "a"} if store else {}  # not the control
    async with CLIENTS[OURS](server) as ours, redis:
        costs, rounds, session = [], [0.0], ours.session.with_options(domain="searched")
        for number in range(turns + 5):
            chat = session.conversation(max_messages=8, **identity)
            gc.collect()
            turn, start = asyncio.create_task(chat.ask(QUESTION).run()), time.process_time()
            while not turn.done():  # in the last five turns the loop goes round without a pause
                last = time.process_time()  # not the time of other processes
                await (asyncio.sleep(0) if number >= turns else asyncio.wait([turn]))
                rounds.append(1e3 * (time.process_time() - last) if number >= turns else 0.0)
            costs.append(time.process_time() - start)
            assert turn.result().message.text == script("searched").text
    return [statistics.median(costs[-10:-5]) / statistics.median(costs[2:7]), max(rounds)]


def conversation(effort: Effort) -> Iterator[Row]:
    kinds = ["memory", "SQLite", CONTROL, *(["Redis"] if (program := shutil.which("redis-server")) else [])]
    with running() as (server, _), tempfile.TemporaryDirectory() as path, ExitStack() as stack:
        if program:
            command = [program, "--port", "0", "--logfile", "/dev/null", "--unixsocket", f"{path}/redis"]
            stack.callback(stack.enter_context(subprocess.Popen(command, cwd=path)).terminate)
        given = {"server": server, "path": path, "turns": 8 if effort.small else 104}
        found = in_processes(converse, effort, "kind", kinds, **given)
    ratios, rounds = ({k: [each[n] for each in every] for k, every in found.items()} for n in (0, 1))
    yield row_of("conversation", "CPU of a turn after 100 turns ÷ the fifth", "times", ratios, ratios=False)
    yield row_of("conversation-stop", "the longest round of the loop in it, CPU", "ms", rounds, ratios=False)


async def edit(server: str, kind: str, size: int) -> float:
    """Show one growing answer as edits of a chat message. Return the p99 of a step's CPU, in ms."""
    shape, steps, text = f"{kind}~{size}~markdown", [], ""
    async with CLIENTS[OURS](server) as ours:
        reply, start = ours.session.ask(QUESTION, domain=domain_of(shape)), time.process_time()
        async for shown in reply.edits(every=0.0, limit=size + 4):
            steps.append(1e3 * (time.process_time() - start))
            start, text = time.process_time(), shown.text
    assert script(shape).text.strip() in text
    return sorted(steps[1:])[(len(steps) - 1) * 99 // 100]  # the first opens the connection


def message(effort: Effort) -> Iterator[Row]:
    for size in (4_096, 10_000):
        with running() as (server, _):
            length = size // (20 if effort.small else 1)
            samples = in_processes(edit, effort, "kind", MARKDOWN_KINDS, server=server, size=length)
        title = f"CPU of a step of a chat message that grows to {size:,} characters, p99"
        yield row_of(f"message-{size}", title, "ms", samples, ratios=False)
