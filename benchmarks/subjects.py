"""The clients that are compared. Each does what its users get from it by default, and no more."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from .bodies import domain_of, script
from .measuring import CONTROL, OURS, mark

AIOHTTP = "aiohttp"
QUESTION, PROMPT = "How do I sign in?", {"prompt": "Fix the typos in the quickstart"}
MESSAGE = {"id": "1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}
BODY = {"fp": "anonymous", "messages": [MESSAGE], "retrievalPageSize": 5}
ADMIN_KEY, ASSISTANT_KEY = "mint_benchmark", "mint_dsc_benchmark"
ADMIN, ASSISTANT = ({"Authorization": f"Bearer {key}"} for key in (ADMIN_KEY, ASSISTANT_KEY))
PATH, ASKED = "/discovery/v2/assistant/{}/message", {"json": BODY, "headers": ASSISTANT}
JOBS, JOB = "/v2/agent/p/job", "/v2/agent/p/job/job_1"
Parse = Callable[[Any], int] | None
Step = Callable[[AsyncIterator[Any], Parse], Awaitable[int]]


async def count(events: AsyncIterator[Any], parse: Parse) -> int:
    """Step through *events* with the smallest possible loop. Return their number, or the sum of *parse*."""
    total = 0
    async for event in events:
        total += 1 if parse is None else parse(event)
    return total


async def count_from_first(events: AsyncIterator[Any], parse: Parse) -> int:
    event = await anext(aiter(events))
    mark()
    return (1 if parse is None else parse(event)) + await count(events, parse)


@asynccontextmanager
async def ours(server: str) -> AsyncIterator[Any]:
    """This package: typed events, folded into a message; typed jobs."""
    from mintlify_async import MintlifySession

    keys = {"admin_key": ADMIN_KEY, "assistant_key": ASSISTANT_KEY}
    async with MintlifySession(project_id="p", domain="burst", base_url=server, **keys) as session:
        handle = session.job("job_1")

        async def read(shape: str, step: Step = count) -> None:
            reply = session.ask(QUESTION, domain=domain_of(shape))
            assert await step(reply, None) == script(shape).events
            assert reply.message.text == script(shape).text

        async def get() -> None:
            assert (await handle.refresh()).status == "active"

        async def create() -> None:
            assert (await session.create_job(PROMPT["prompt"])).status == "active"

        async def hold(stream: Any) -> None:
            async with session.ask(QUESTION, domain="held") as reply:
                stream.opened()
                async for delta in reply.text_stream:
                    stream.heard(delta)

        yield SimpleNamespace(read=read, get=get, create=create, hold=hold, session=session)


@asynccontextmanager
async def bare_aiohttp(server: str) -> AsyncIterator[Any]:
    """The floor: ``iter_any``, which parses nothing, and ``response.json()``."""
    import aiohttp

    def made(**options: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, **options)
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))

    # A job is created on a fresh connection, as this package does.
    async with made() as session, made(force_close=True) as fresh:

        async def read(shape: str, step: Step = count) -> None:
            async with session.post(server + PATH.format(quote(shape)), **ASKED) as response:
                assert await step(response.content.iter_any(), len) == len(script(shape).body)

        async def get() -> None:
            async with session.get(server + JOB, headers=ADMIN) as response:
                assert (await response.json())["status"] == "active"

        async def create() -> None:
            async with fresh.post(server + JOBS, headers=ADMIN, json=PROMPT) as response:
                assert (await response.json())["status"] == "active"

        async def hold(stream: Any) -> None:
            async with session.post(server + PATH.format("held"), **ASKED) as response:
                stream.opened()
                async for data in response.content.iter_any():
                    for piece in data.split(b'"delta":"')[1:]:  # a read is whole events here
                        stream.heard(piece.partition(b'"')[0].decode())

        yield SimpleNamespace(read=read, get=get, create=create, hold=hold)


@asynccontextmanager
async def httpx_sse(server: str) -> AsyncIterator[Any]:
    """httpx with httpx-sse and ``json.loads``; for jobs, httpx and ``response.json()``."""
    import httpx
    from httpx_sse import aconnect_sse

    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:

        def parse(event: Any) -> int:
            return event.data != "[DONE]" and isinstance(json.loads(event.data), dict)

        async def read(shape: str, step: Step = count) -> None:
            url = server + PATH.format(quote(shape))
            async with aconnect_sse(client, "POST", url, **ASKED) as source:
                assert await step(source.aiter_sse(), parse) == script(shape).events

        async def get() -> None:
            assert (await client.get(server + JOB, headers=ADMIN)).json()["status"] == "active"

        yield SimpleNamespace(read=read, get=get)


@asynccontextmanager
async def openai(server: str) -> AsyncIterator[Any]:
    """openai's client and its ``AsyncStream``, with small models. It does not fold."""
    import openai as package
    from pydantic import create_model

    base, optional = {"__base__": package.BaseModel}, (str | None, None)
    event = create_model("Event", **base, type=(str, ...), id=optional, delta=optional)
    job = create_model("Job", **base, id=(str, ...), status=(str, ...))
    kinds = {"cast_to": event, "stream": True, "stream_cls": package.AsyncStream[event]}
    async with package.AsyncOpenAI(api_key=ADMIN_KEY, base_url=server, max_retries=0) as client:

        async def read(shape: str, step: Step = count) -> None:
            stream = await client.post(PATH.format(quote(shape)), body=BODY, **kinds)
            assert await step(stream, None) == script(shape).events

        async def get() -> None:
            assert (await client.get(JOB, cast_to=job)).status == "active"

        yield SimpleNamespace(read=read, get=get)


#: How each client is opened. It stays open, so that its connections are warm. The control is ours again.
CLIENTS = {OURS: ours, CONTROL: ours, AIOHTTP: bare_aiohttp, "httpx-sse": httpx_sse, "openai": openai}
