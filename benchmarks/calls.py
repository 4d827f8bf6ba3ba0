"""Requests in; rows out: the CPU time of one typed request, alone and with 200 at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from .rounds import Row, Work, figure, interleaved, ratios
from .server import ServerAddress, running
from .subjects import ADMIN_KEY, available, httpx_options, session_for

__all__ = ["CALLERS", "Caller", "requests"]

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}
PROMPT = {"prompt": "Fix the typos in the quickstart"}
JOB, JOBS = "/v2/agent/p/job/job_1", "/v2/agent/p/job"
Call = Callable[[], Awaitable[None]]


class Caller(NamedTuple):
    """A client that is compared: opened, it has two calls, ``get`` (a job) and ``create``."""

    name: str
    needs: tuple[str, ...]
    opened: Callable[[ServerAddress], AbstractAsyncContextManager[dict[str, Call]]]


@asynccontextmanager
async def ours(server: ServerAddress) -> AsyncIterator[dict[str, Call]]:
    """This package: a typed job."""
    async with session_for(server) as session:
        handle = session.job("job_1")

        async def get() -> None:
            assert (await handle.refresh()).status == "active"

        async def create() -> None:
            assert (await session.create_job(PROMPT["prompt"])).status == "active"

        yield {"get": get, "create": create}


@asynccontextmanager
async def bare_aiohttp(server: ServerAddress) -> AsyncIterator[dict[str, Call]]:
    """The floor: aiohttp and ``response.json()``; a job is created on a fresh connection, as ours is."""
    import aiohttp

    keep = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    fresh = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
    async with keep, fresh:

        async def get() -> None:
            async with keep.get(server.base_url + JOB, headers=HEADERS) as response:
                assert (await response.json())["status"] == "active"

        async def create() -> None:
            async with fresh.post(server.base_url + JOBS, headers=HEADERS, json=PROMPT) as response:
                assert (await response.json())["status"] == "active"

        yield {"get": get, "create": create}


@asynccontextmanager
async def httpx(server: ServerAddress) -> AsyncIterator[dict[str, Call]]:
    """httpx and ``response.json()``, on pooled connections."""
    import httpx as package

    async with package.AsyncClient(**httpx_options(server)) as client:

        async def get() -> None:
            response = await client.get(server.base_url + JOB, headers=HEADERS)
            assert response.json()["status"] == "active"

        async def create() -> None:
            response = await client.post(server.base_url + JOBS, headers=HEADERS, json=PROMPT)
            assert response.json()["status"] == "active"

        yield {"get": get, "create": create}


@asynccontextmanager
async def openai(server: ServerAddress) -> AsyncIterator[dict[str, Call]]:
    """openai's client, with a small model."""
    import openai as package

    client = package.AsyncOpenAI(api_key=ADMIN_KEY, base_url=server.base_url, max_retries=0)
    async with client:
        yield sdk_calls(package, client)


@asynccontextmanager
async def anthropic(server: ServerAddress) -> AsyncIterator[dict[str, Call]]:
    """anthropic's client, with a small model."""
    import anthropic as package

    client = package.AsyncAnthropic(api_key=ADMIN_KEY, base_url=server.base_url, max_retries=0)
    async with client:
        yield sdk_calls(package, client)


def sdk_calls(package: Any, client: Any) -> dict[str, Call]:
    """Return the calls of an SDK of that family."""

    class Job(package.BaseModel):  # type: ignore[misc]
        id: str
        status: str

    async def get() -> None:
        assert (await client.get(JOB, cast_to=Job)).status == "active"

    async def create() -> None:
        assert (await client.post(JOBS, body=PROMPT, cast_to=Job)).status == "active"

    return {"get": get, "create": create}


CALLERS = (
    Caller("mintlify-async", ("mintlify_async",), ours),
    Caller("control", ("mintlify_async",), ours),
    Caller("aiohttp", ("aiohttp",), bare_aiohttp),
    Caller("httpx", ("httpx",), httpx),
    Caller("openai", ("openai",), openai),
    Caller("anthropic", ("anthropic",), anthropic),
)


def together(call: Call, count: int) -> Work:
    """Return work that makes *count* calls at once."""

    async def work() -> None:
        await asyncio.gather(*(call() for _ in range(count)))

    return work


async def requests(call: str, at_once: int, *, rounds: int, quick: bool = False) -> Row:
    """Measure microseconds of CPU a request, with *at_once* of them in flight."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running())
        found = {
            one.name: (await stack.enter_async_context(one.opened(server)))[call]
            for one in available(CALLERS)
        }
        works = {name: together(made, at_once) for name, made in found.items()}
        repeat = 1 if quick else max(2, 200 // at_once)
        samples = await interleaved(works, rounds=rounds, repeat=repeat)
    costs = {name: figure([1e6 * cost / at_once for cost in each]) for name, each in samples.items()}
    title = f"CPU a request: {call} a job, {at_once} at once"
    return Row(f"{call}-{at_once}", title, "µs", costs, ratios(samples, "mintlify-async"), {}, {})
