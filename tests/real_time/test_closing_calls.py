"""A session is closed at any moment of a call that waits: the call ends, and close() returns."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

import aiohttp
import pytest

from mintlify_async import MemoryStore, MintlifyError, MintlifySession, Quota
from mintlify_async.testing import NoAnswer
from tests.support.raw_server import RawServer

MOMENTS = 100 if os.environ.get("SWEEPS") == "whole" else 20
"""How many moments of a call; a hundredth of a second lies between two of the whole."""

STEP = 0.02
"""A step of the store takes so many seconds, as on a network."""

TOGETHER = 20
"""So many sessions are closed in one go."""


class SlowStore(MemoryStore):
    async def read(self, *args, **options):
        await asyncio.sleep(STEP)
        return await super().read(*args, **options)

    async def write(self, *args, **options):
        await asyncio.sleep(STEP)
        return await super().write(*args, **options)

    async def take(self, *args, **options):
        await asyncio.sleep(STEP)
        return await super().take(*args, **options)

    async def refund(self, *args, **options):
        await asyncio.sleep(STEP)
        await super().refund(*args, **options)


def session_for(server, **settings):
    keys = {"admin_key": "mint_" + "a" * 24, "assistant_key": "mint_dsc_" + "b" * 24}
    return MintlifySession(
        base_url=server.url, project_id="p", domain="acme", ledger=MemoryStore(), **keys, **settings
    )


def refuse(service):
    """Let the service ask every call for a pause of 20 s."""
    service.script.any(status=429, headers={"Retry-After": "20"}, times=None)


async def create(session):
    await session.create_job("x", dedupe_key="a")


async def send(session):
    await session.job("job_1").send("x", dedupe_key="a")


async def ask(session):
    await session.ask("x").run()


async def close_at(moment, session, call):
    """Close *session* so many seconds after *call* has started. Both end within a second."""
    async with session:
        task = asyncio.create_task(call(session))
        await asyncio.sleep(moment)
        start = time.monotonic()
        await session.close()
        assert time.monotonic() - start < 1, f"close() at {moment}"
        await asyncio.wait([task], timeout=1 - (time.monotonic() - start))
        assert task.done(), f"the call, closed at {moment}"
        with pytest.raises(MintlifyError):
            await task


async def close_at_any_moment(new_session, call):
    moments = [n * 20 * STEP / MOMENTS for n in range(MOMENTS)]
    for start in range(0, MOMENTS, TOGETHER):
        await asyncio.gather(
            *(close_at(moment, new_session(), call) for moment in moments[start : start + TOGETHER])
        )


@pytest.mark.parametrize("slots", [1, 100])
@pytest.mark.parametrize("call", [create, send, ask])
async def test_a_call_between_a_refusal_and_its_next_attempt(service, call, slots):
    """Also one that then waits for a slot of the quota, which is free in 31 days."""
    refuse(service)

    def new_session():
        quota = Quota(store=SlowStore(), mode="wait", create_job=slots, send_message=slots, ask_per_key=slots)
        return service.session(quota=quota, ledger=SlowStore())

    await close_at_any_moment(new_session, call)


async def test_a_call_that_waits_for_another_calls_key(service):
    """The other call has hung for long."""
    service.script.create_job(fault=NoAnswer(), times=None)
    store = SlowStore()
    async with service.session(ledger=store) as other:
        holder = asyncio.create_task(create(other))
        await service.until(lambda service: service.requests)
        await close_at_any_moment(lambda: service.session(ledger=store), create)
        holder.cancel()
        await asyncio.wait([holder])


@pytest.mark.parametrize("call", [create, ask])
async def test_a_response_whose_headers_arrive_while_the_session_is_closed(monkeypatch, call):
    """Its body is not waited for, although your own aiohttp session stays open."""
    original, arrived = aiohttp.ClientSession._request, asyncio.Event()

    async def absorbing(*args, **options):
        response = await original(*args, **options)
        arrived.set()
        with suppress(asyncio.CancelledError):  # some libraries swallow one
            await asyncio.sleep(0.2)
        return response

    async def play(connection, line):
        await connection.body()
        kind = b"text/event-stream" if "assistant" in line else b"application/json"
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 99\r\n\r\n" % kind)
        await asyncio.sleep(20)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", absorbing)
    async with RawServer(play) as server, aiohttp.ClientSession() as borrowed:
        session = session_for(server, client_session=borrowed)
        task = asyncio.create_task(call(session))
        await arrived.wait()
        await session.close()
        with pytest.raises(MintlifyError, match="closed"):
            await asyncio.wait_for(task, 2)
