"""A server in front of the local service that changes requests or responses in one thing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from attrs import define, evolve

from mintlify_async.testing import LocalService

HOP = {"connection", "content-length", "transfer-encoding", "host", "date", "server"}


@define
class Wire:
    """A request, or a response, on its way."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "GET"
    status: int = 200

    def evolve(self, **changes: Any) -> Wire:
        return evolve(self, **changes)


ChangeRequest = Callable[[Wire], Wire]
"""Returns the request to pass on; one with a status other than 200 is the answer itself."""
ChangeAnswer = Callable[[Wire, Wire], Wire]
"""Returns the answer to give, from the request and the answer."""


@asynccontextmanager
async def changed(
    service: LocalService,
    request: ChangeRequest = lambda request: request,
    answer: ChangeAnswer = lambda request, answer: answer,
) -> AsyncIterator[str]:
    """Yield the URL of a service that answers like *service*, except for the changes."""

    async def handle(http: web.BaseRequest) -> web.Response:
        headers = {name.lower(): value for name, value in http.headers.items() if name.lower() not in HOP}
        asked = Wire(http.path, headers, await http.read(), http.method)
        passed = request(asked)
        given = passed
        if passed.status == 200:
            async with client.request(
                passed.method, service.base_url + passed.path, data=passed.body, headers=passed.headers
            ) as response:
                kept = {n.lower(): v for n, v in response.headers.items() if n.lower() not in HOP}
                given = Wire(passed.path, kept, await response.read(), status=response.status)
            given = answer(asked, given)
        return web.Response(status=given.status, headers=given.headers, body=given.body)

    async with aiohttp.ClientSession() as client:
        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            assert runner.addresses
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
