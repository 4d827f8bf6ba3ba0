"""Readers who leave: their answers are closed at the service, at once."""

from __future__ import annotations

import asyncio
import gc

import aiohttp
import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, TURN, desk, page_of, x_user
from relay_kit import SECRET, Page, events, serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from mintlify_async.contrib.relay import Relay, RelayLimits
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.testing import LocalService, faults


@pytest.mark.parametrize(
    "script",
    [
        {"events": [*HEAD, 60.0]},
        {"events": [60.0]},
        {"events": [*HEAD, *([{"type": "text-delta", "id": "0", "delta": "x" * 50_000}] * 2000)]},
    ],
    ids=["silent", "silent from the start", "flooding a reader who does not read"],
)
async def test_a_reader_who_leaves_closes_the_answer(script):
    """When the page disconnects, the answer is closed at the service at once."""
    async with desk() as here:
        here.service.script.ask(**script)
        async with here.page.request() as response:
            await until(lambda: here.relay.streaming)
            response.close()
        await here.all_closed()
        assert here.service.requests[-1].client_left


async def test_a_reader_who_leaves_before_the_answer():
    """A page that disconnects before the first event closes the answer, too."""
    async with desk() as here:
        here.service.script.ask(fault=faults.NoAnswer())
        asking = asyncio.create_task(here.page.post())
        await until(lambda: here.service.answering)
        asking.cancel()
        await asyncio.wait([asking])
        await here.all_closed()
        assert here.service.requests[-1].client_left


async def test_five_hundred_readers_and_a_third_leave():
    """With 500 pages, of which a third leave, every other answer is whole and nothing stays open."""
    count = 500
    everybody = asyncio.Event()

    class Waits(SystemClock):
        """Goes on with the answers when all are being read, however long the loop takes to open them."""

        async def sleep(self, seconds: float) -> None:
            await everybody.wait()
            await super().sleep(seconds)

    async def read(page: Page, number: int) -> str:
        async with page.request() as response:
            assert response.status == 200
            seen = await response.content.readuntil(b"Hello ")
            await everybody.wait()
            if number % 3 == 0:
                response.close()
                return "left"
            seen += await response.read()
        return "".join(event.get("delta", "") for event in events(seen))

    async with LocalService(clock=Waits()) as service, service.session() as session:
        limits = RelayLimits(uploads_per_address=count)  # all of them have the address of this test
        relay = Relay(session, secrets=[SECRET], user=x_user, max_concurrent_per_user=count, limits=limits)
        app = Starlette()
        app.add_route("/api/chat", relay.respond, methods=["POST"])
        service.script.ask(events=[*HEAD, 0.5, *TURN[3:]], times=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with serving(app) as address, aiohttp.ClientSession(connector=connector) as http:
            before = len(asyncio.all_tasks())
            page = Page(http, address)
            readers = [asyncio.create_task(read(page, number)) for number in range(count)]
            await until(lambda: relay.streaming == count or any(reader.done() for reader in readers))
            everybody.set()
            texts = await asyncio.gather(*readers)
            assert texts == ["left" if number % 3 == 0 else "Hello there" for number in range(count)]
            await until(lambda: not service.answering and not relay.streaming)
            await session.close()  # with the pooled connections, whose other ends are tasks here
            await connector.close()
            await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_an_answer_that_is_never_sent_gives_its_place_back():
    """An answer that a handler opened and dropped is closed when it is collected."""
    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)

        async def forgetful(request: Request) -> Response:
            await relay.open(request)
            return Response("forgotten")

        app = Starlette()
        app.add_route("/api/chat", forgetful, methods=["POST"])
        async with page_of(app) as page:
            service.script.ask(events=[*HEAD, 60.0])
            assert (await page.post())[1] == b"forgotten"
            gc.collect()
            await until(lambda: not relay.streaming and not service.answering)
