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

from .bodies import script
from .measuring import CONTROL, OURS, Effort, Row, Samples, row_of, shuffled
from .server import control, running
from .subjects import ASSISTANT, ASSISTANT_KEY, BODY, MESSAGE

PASS_THROUGH = "pass-through"
PAGE = {"id": "chat", "trigger": "submit-message", "messages": [MESSAGE]}  # as useChat posts it
PER_READER = 25.0  # events per second
Served = tuple[str, int]  # a relay: its address and its process


async def pass_through(upstream: str, listener: socket.socket) -> None:
    """Serve an application that asks as the relay does and passes the bytes on."""
    import aiohttp
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


async def relay(upstream: str, listener: socket.socket) -> None:
    """Serve this package's relay under uvicorn."""
    import uvicorn
    from fastapi import FastAPI

    from mintlify_async import MintlifySession
    from mintlify_async.contrib.relay import relay_router

    app = FastAPI(openapi_url=None)
    async with AsyncExitStack() as stack:
        for shape in ("burst", "held"):
            session = MintlifySession(domain=shape, assistant_key=ASSISTANT_KEY, base_url=upstream)
            await stack.enter_async_context(session)
            settings = {"secrets": ["s" * 32], "user": lambda page: page.headers["x-user"]}
            app.include_router(relay_router(session, path=f"/{shape}", **settings))
        config = uvicorn.Config(app, loop="asyncio", log_level="warning", access_log=False)
        await uvicorn.Server(config).serve(sockets=[listener])


async def read(session: Any, url: str, user: int = 0) -> int:
    """Read an answer as a page does; return how many text deltas it has."""
    async with session.post(url, json=PAGE, headers={"x-user": f"u{user}"}) as response:
        assert response.status == 200, await response.text()
        return (await response.read()).count(b'"text-delta"')


def cpu(served: Served) -> float:
    return time.clock_gettime((~served[1] << 3) | 2)  # Linux's clock of a process


async def burst(session: Any, served: Served, upstream: str, small: bool) -> float:
    """Return the microseconds of CPU per event of answers that are there at once."""
    answers, sent = (1 if small else 20), script("burst")
    await read(session, f"{served[0]}/burst")  # what is made once
    start = cpu(served)
    for _ in range(answers):
        assert await read(session, f"{served[0]}/burst") == sent.body.count(b'"text-delta"')
    return 1e6 * (cpu(served) - start) / answers / sent.events


async def live(session: Any, served: Served, upstream: str, small: bool) -> float:
    """Return the microseconds of CPU per event of readers who each get 25 events a second."""
    readers, seconds = (5, 0.4) if small else (100, 5.0)
    events, rate = int(readers * seconds * PER_READER), readers * PER_READER
    reading = [asyncio.create_task(read(session, f"{served[0]}/held", user)) for user in range(readers)]
    await asyncio.sleep(0.5)  # all are open
    start = cpu(served)
    await control(upstream, f"emit/{events}/{rate}")
    await asyncio.sleep(seconds + 0.2)
    spent = cpu(served) - start
    await control(upstream, "end")
    assert sum(await asyncio.gather(*reading)) == events
    return 1e6 * spent / events


async def measure(effort: Effort) -> list[Samples]:
    """Run both kinds of relay, and the control, side by side; return the samples of both rows."""
    import aiohttp

    labels = (OURS, PASS_THROUGH, CONTROL)
    found: list[Samples] = [{label: [] for label in labels} for _ in range(2)]
    async with AsyncExitStack() as stack:
        (upstream, _), connector = stack.enter_context(running()), aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        served = {each: stack.enter_context(running("benchmarks.relay", each, upstream)) for each in labels}
        for number in range(effort.rounds):
            for samples, measured in zip(found, (burst, live), strict=True):
                for label in shuffled(labels, number):
                    samples[label].append(await measured(session, served[label], upstream, effort.small))
    return found


def relays(effort: Effort) -> Iterator[Row]:
    """Measure the relay's CPU per event, in a burst and live."""
    at_once, paced = asyncio.run(measure(effort))
    yield row_of("relay-burst", "the relay's CPU per event of a 55 KB answer, written at once", "µs", at_once)
    yield row_of("relay-live", "the relay's CPU per event, 100 readers at 25 events a second", "µs", paced)


if __name__ == "__main__":
    kind, asked = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=lambda: os._exit(bool(sys.stdin.read())), daemon=True).start()
    asyncio.run((pass_through if kind == PASS_THROUGH else relay)(asked, listening))
