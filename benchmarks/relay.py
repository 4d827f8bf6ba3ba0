"""The rows about the relay's CPU per event, compared with an aiohttp application that forwards the bytes."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from .bodies import script
from .measuring import CONTROL, OURS, Effort, Row, Samples, rounds, row_of
from .server import control, running, standing_by
from .subjects import ASSISTANT, ASSISTANT_KEY, BODY, MESSAGE

PASS_THROUGH, STORED = "pass-through", "with a memory store"
PAGE = {"id": "chat", "trigger": "submit-message", "messages": [MESSAGE]}  # in useChat's form
PER_READER = 25.0  # events per second
DELTA = b'"text-delta"'
Served = tuple[str, int]  # the URL and the process of a relay


async def pass_through(upstream: str, listener: socket.socket) -> None:
    """Serve an application that asks like the relay and forwards the bytes."""
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
    """Serve this package's relay under uvicorn. STORED answers outlive their clients."""
    import uvicorn
    from fastapi import FastAPI

    from mintlify_async import MintlifySession
    from mintlify_async.contrib.relay import MemoryStreamStore, Relay

    app = FastAPI(openapi_url=None)
    for shape in ("burst", "held"):
        session = MintlifySession(domain=shape, assistant_key=ASSISTANT_KEY, base_url=upstream)
        settings = {"secrets": ["s" * 32], "user": lambda page: page.headers["x-user"], "max_per_user": 1000}
        streams = MemoryStreamStore() if kind == STORED else None
        app.include_router(Relay(session, streams=streams, **settings).router(path=f"/{shape}"))
    config = uvicorn.Config(app, loop="asyncio", log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


def cpu(served: Served) -> float:
    return time.clock_gettime((~served[1] << 3) | 2)  # Linux's clock of a process


async def burst(session: Any, served: Served, upstream: str, small: bool) -> float:
    answers, sent, start = (1 if small else 20), script("burst"), 0.0
    for number in range(-1, answers):
        start = start if number else cpu(served)  # the answer before made the objects that are made once
        async with session.post(f"{served[0]}/burst", json=PAGE, headers={"x-user": "u"}) as response:
            assert (await response.read()).count(DELTA) == sent.body.count(DELTA)
    return 1e6 * (cpu(served) - start) / answers / sent.events


async def live(session: Any, served: Served, upstream: str, small: bool) -> float:
    readers, seconds = (5, 0.4) if small else (100, 5.0)
    events, heard = int(readers * seconds * PER_READER), [0]

    async def read(response: Any) -> None:
        async for data in response.content.iter_any():
            heard[0] += data.count(DELTA)  # a piece is whole events here

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as reading:
        for user in range(readers):
            page = session.post(f"{served[0]}/held", json=PAGE, headers={"x-user": f"u{user}"})
            reading.create_task(read(await stack.enter_async_context(page)))
        start = cpu(served)
        await control(upstream, f"emit/{events}/{readers * PER_READER}")
        while heard[0] < events:  # noqa: ASYNC110 - ten looks a second
            await asyncio.sleep(0.1)
        spent = cpu(served) - start
        await control(upstream, "end")
    return 1e6 * spent / events


async def measure(effort: Effort, work: Callable[..., Any]) -> Samples:
    """Run *work* with both kinds of relay, the pass-through and the control side by side."""
    found: Samples = {each: [] for each in (OURS, PASS_THROUGH, STORED, CONTROL)}
    async with AsyncExitStack() as stack:
        (upstream, _), net = stack.enter_context(running()), aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=net, raise_for_status=True))
        served = {each: stack.enter_context(running("benchmarks.relay", each, upstream)) for each in found}
        for label in rounds(found, effort):
            found[label].append(await work(session, served[label], upstream, effort.small))
    return found


def relays(effort: Effort) -> Iterator[Row]:
    title = "the relay's CPU per event of a 55 KB answer, written at once"
    yield row_of("relay-burst", title, "µs", asyncio.run(measure(effort, burst)))
    title = "the relay's CPU per event, 100 readers at 25 events a second"
    yield row_of("relay-live", title, "µs", asyncio.run(measure(effort, live)))


if __name__ == "__main__":
    kind, asking = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    standing_by(listening.getsockname()[1])
    asyncio.run(pass_through(asking, listening) if kind == PASS_THROUGH else relay(asking, listening, kind))
