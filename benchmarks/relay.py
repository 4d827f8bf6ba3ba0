"""The rows about the relay: its CPU per event, beside an aiohttp application that passes the bytes on."""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from .bodies import script
from .measuring import CONTROL, OURS, Effort, Row, Samples, row_of, shuffled
from .server import control, running
from .subjects import ASSISTANT, ASSISTANT_KEY, BODY, MESSAGE

PASS_THROUGH, STORED = "pass-through", "with a memory store"
PAGE = {"id": "chat", "trigger": "submit-message", "messages": [MESSAGE]}  # as useChat posts it
PER_READER = 25.0  # events per second
DELTA = b'"text-delta"'
Served = tuple[str, int]  # a relay: its address and its process


async def pass_through(upstream: str, listener: socket.socket) -> None:
    """Serve an application that asks as the relay does and passes the bytes on."""
    from aiohttp import web

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def answer(request: web.Request) -> web.StreamResponse:
            await request.json()
            url = f"{upstream}/discovery/v2/assistant/{request.match_info['shape']}/message"
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            async with session.post(url, json=BODY, headers=ASSISTANT) as asked:
                await response.prepare(request)
                async for data in asked.content.iter_any():
                    await response.write(data)
            return response

        application = web.Application()
        application.router.add_post("/{shape}", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        await asyncio.Event().wait()


async def relay(upstream: str, listener: socket.socket, kind: str) -> None:
    """Serve this package's relay under uvicorn; STORED answers outlive their readers."""
    import uvicorn
    from fastapi import FastAPI

    from mintlify_async import MintlifySession
    from mintlify_async.contrib.relay import MemoryStreamStore, relay_router

    app = FastAPI(openapi_url=None)
    for shape in ("burst", "held"):
        session = MintlifySession(domain=shape, assistant_key=ASSISTANT_KEY, base_url=upstream)
        settings = {"secrets": ["s" * 32], "user": lambda page: page.headers["x-user"]}
        streams = MemoryStreamStore() if kind == STORED else None
        app.include_router(relay_router(session, path=f"/{shape}", streams=streams, **settings))
    config = uvicorn.Config(app, loop="asyncio", log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


def asked(session: Any, url: str, user: int = 0) -> Any:
    return session.post(url, json=PAGE, headers={"x-user": f"u{user}"}, raise_for_status=True)


def cpu(served: Served) -> float:
    return time.clock_gettime((~served[1] << 3) | 2)  # Linux's clock of a process


async def burst(session: Any, served: Served, upstream: str, small: bool) -> float:
    """Return the microseconds of CPU per event of answers that are there at once."""
    answers, sent, start = (1 if small else 20), script("burst"), 0.0
    for number in range(-1, answers):
        start = start if number else cpu(served)  # the answer before made what is made once
        async with asked(session, f"{served[0]}/burst") as response:
            assert (await response.read()).count(DELTA) == sent.body.count(DELTA)
    return 1e6 * (cpu(served) - start) / answers / sent.events


async def live(session: Any, served: Served, upstream: str, small: bool) -> float:
    """Return the microseconds of CPU per event of readers who each get 25 events a second."""
    readers, seconds = (5, 0.4) if small else (100, 5.0)
    events, heard = int(readers * seconds * PER_READER), [0]

    async def read(response: Any) -> None:
        async for data in response.content.iter_any():
            heard[0] += data.count(DELTA)  # a piece is whole events here

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as reading:
        pages = [asked(session, f"{served[0]}/held", user) for user in range(readers)]
        [reading.create_task(read(await stack.enter_async_context(page))) for page in pages]
        start = cpu(served)
        await control(upstream, f"emit/{events}/{readers * PER_READER}")
        while heard[0] < events:  # noqa: ASYNC110 - ten looks a second
            await asyncio.sleep(0.1)
        spent = cpu(served) - start
        await control(upstream, "end")
    return 1e6 * spent / events


async def measure(effort: Effort) -> list[Samples]:
    """Run both kinds of relay, and the control, side by side; return the samples of both rows."""
    found: list[Samples] = [{each: [] for each in (OURS, PASS_THROUGH, STORED, CONTROL)} for _ in range(2)]
    async with AsyncExitStack() as stack:
        (upstream, _), connector = stack.enter_context(running()), aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        served = {each: stack.enter_context(running("benchmarks.relay", each, upstream)) for each in found[0]}
        for number in range(effort.rounds):
            for samples, measured in zip(found, (burst, live), strict=True):
                for label in shuffled(samples, number):
                    samples[label].append(await measured(session, served[label], upstream, effort.small))
    return found


def relays(effort: Effort) -> Iterator[Row]:
    """Measure the relay's CPU per event, in a burst and live."""
    at_once, paced = asyncio.run(measure(effort))
    yield row_of("relay-burst", "the relay's CPU per event of a 55 KB answer, written at once", "µs", at_once)
    yield row_of("relay-live", "the relay's CPU per event, 100 readers at 25 events a second", "µs", paced)


if __name__ == "__main__":
    kind, asking = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=lambda: os._exit(bool(sys.stdin.read())), daemon=True).start()
    asyncio.run(pass_through(asking, listening) if kind == PASS_THROUGH else relay(asking, listening, kind))
