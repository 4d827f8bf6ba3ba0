"""The clients that are compared. Each does what its users get from it by default, and no more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

from .bodies import script
from .measuring import CONTROL, OURS, mark

AIOHTTP = "aiohttp"
QUESTION, PROMPT = "How do I sign in?", {"prompt": "Fix the typos in the quickstart"}
MESSAGE = {"id": "1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}
BODY = {"fp": "anonymous", "messages": [MESSAGE], "retrievalPageSize": 5}
ADMIN_KEY, ASSISTANT_KEY = "mint_benchmark", "mint_dsc_benchmark"
ADMIN, ASSISTANT = ({"Authorization": f"Bearer {key}"} for key in (ADMIN_KEY, ASSISTANT_KEY))
JOBS, JOB = "/v2/agent/p/job", "/v2/agent/p/job/job_1"
Parse = Callable[[Any], int] | None
Step = Callable[[AsyncIterator[Any], Parse], Awaitable[int]]


async def count(events: AsyncIterator[Any], parse: Parse) -> int:
    """Step through *events* with the smallest loop there is; return how many, or the sum of *parse*."""
    total = 0
    if parse is None:
        async for _ in events:
            total += 1
    else:
        async for event in events:
            total += parse(event)
    return total


async def count_from_first(events: AsyncIterator[Any], parse: Parse) -> int:
    """Do as :func:`count`, with a mark when the first event is there."""
    async for event in events:
        total = 1 if parse is None else parse(event)
        mark()
        return total + await count(events, parse)
    raise AssertionError("no event came")


class Client:
    """A client that stays open, so that its connections are warm.

    It has ``open``, ``read`` (an answer: returns how many events, or bytes where it parses nothing),
    ``get`` and ``create`` (a job: return its status) and, where it can, ``hold`` (a stream that stays open).
    """

    reads_bytes = False

    def __init__(self, server: str) -> None:
        self.server, self.stack = server, AsyncExitStack()

    async def __aenter__(self) -> Any:
        await self.open()  # type: ignore[attr-defined]  # each subclass has one
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stack.aclose()

    def url(self, shape: str) -> str:
        return f"{self.server}/discovery/v2/assistant/{quote(shape)}/message"


class Ours(Client):
    """This package: typed events, folded into a message; typed jobs."""

    async def open(self) -> None:
        from mintlify_async import MintlifySession

        keys = {"admin_key": ADMIN_KEY, "assistant_key": ASSISTANT_KEY}
        made = MintlifySession(project_id="p", domain="burst", base_url=self.server, **keys)
        self.session = await self.stack.enter_async_context(made)
        self.job = self.session.job("job_1")

    async def read(self, shape: str, step: Step = count) -> int:
        reply = self.session.ask(QUESTION, domain=shape)
        found = await step(reply, None)
        assert reply.message.text == script(shape).text
        return found

    async def get(self) -> str:
        return (await self.job.refresh()).status

    async def create(self) -> str:
        return (await self.session.create_job(PROMPT["prompt"])).status

    async def hold(self, stream: Any) -> None:
        async with self.session.ask(QUESTION, domain="held") as reply:
            stream.opened()
            async for delta in reply.text_stream:
                stream.heard(delta)


class Aiohttp(Client):
    """The floor: ``iter_any``, which parses nothing, and ``response.json()``."""

    reads_bytes = True

    async def open(self) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None)
        connectors = [aiohttp.TCPConnector(limit=0), aiohttp.TCPConnector(limit=0, force_close=True)]
        # A job is created on a fresh connection, as this package does.
        self.session, self.fresh = [
            await self.stack.enter_async_context(aiohttp.ClientSession(connector=each, timeout=timeout))
            for each in connectors
        ]

    async def read(self, shape: str, step: Step = count) -> int:
        async with self.session.post(self.url(shape), json=BODY, headers=ASSISTANT) as response:
            return await step(response.content.iter_any(), len)

    async def get(self) -> str:
        async with self.session.get(self.server + JOB, headers=ADMIN) as response:
            return (await response.json())["status"]

    async def create(self) -> str:
        async with self.fresh.post(self.server + JOBS, headers=ADMIN, json=PROMPT) as response:
            return (await response.json())["status"]

    async def hold(self, stream: Any) -> None:
        async with self.session.post(self.url("held"), json=BODY, headers=ASSISTANT) as response:
            stream.opened()
            async for data in response.content.iter_any():
                for piece in data.split(b'"delta":"')[1:]:  # a read is whole events here
                    stream.heard(piece.partition(b'"')[0].decode())


class HttpxSse(Client):
    """httpx with httpx-sse and ``json.loads``; for jobs, httpx and ``response.json()``."""

    async def open(self) -> None:
        import httpx
        from httpx_sse import aconnect_sse

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        made = httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)
        self.client, self.connect = await self.stack.enter_async_context(made), aconnect_sse

    async def read(self, shape: str, step: Step = count) -> int:
        def parse(event: Any) -> int:
            return event.data != "[DONE]" and isinstance(json.loads(event.data), dict)

        asked = {"json": BODY, "headers": ASSISTANT}
        async with self.connect(self.client, "POST", self.url(shape), **asked) as source:
            return await step(source.aiter_sse(), parse)

    async def get(self) -> str:
        return (await self.client.get(self.server + JOB, headers=ADMIN)).json()["status"]

    async def create(self) -> str:
        return (await self.client.post(self.server + JOBS, headers=ADMIN, json=PROMPT)).json()["status"]


class OpenAI(Client):
    """openai's client and its ``AsyncStream``, with small models; it does not fold."""

    async def open(self) -> None:
        import openai

        class Event(openai.BaseModel):
            type: str
            id: str | None = None
            delta: str | None = None

        class Job(openai.BaseModel):
            id: str
            status: str

        made = openai.AsyncOpenAI(api_key=ADMIN_KEY, base_url=self.server, max_retries=0)
        self.client, self.job = await self.stack.enter_async_context(made), Job
        self.stream = {"stream": True, "cast_to": Event, "stream_cls": openai.AsyncStream[Event]}

    async def read(self, shape: str, step: Step = count) -> int:
        return await step(await self.client.post(self.url(shape), body=BODY, **self.stream), None)

    async def get(self) -> str:
        return (await self.client.get(JOB, cast_to=self.job)).status

    async def create(self) -> str:
        return (await self.client.post(JOBS, body=PROMPT, cast_to=self.job)).status


#: In the order of the tables. The control is this package again: what its ratio is off 1 is noise.
CLIENTS: dict[str, type[Any]] = {
    OURS: Ours,
    CONTROL: Ours,
    AIOHTTP: Aiohttp,
    "httpx-sse": HttpxSse,
    "openai": OpenAI,
}


def checked(client: Any, shape: str) -> Callable[[], Awaitable[None]]:
    """Return work that reads the answer in *shape* and asserts that it was read whole, each time."""
    plan = script(shape)
    expected = len(plan.body) if client.reads_bytes else plan.events

    async def work() -> None:
        assert await client.read(shape) == expected

    return work
