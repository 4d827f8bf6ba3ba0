"""Opening and closing a reply, and how its end is noticed."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from mintlify_async import MemoryStore, Quota, StreamInterruptedError
from mintlify_async.testing.faults import NoAnswer
from tests.support.observer_watch import Watch
from tests.support.secret_guard import Keys

KEYS = Keys()


async def read(reply):
    """Return the events of *reply*."""
    return [event async for event in reply]


async def test_closing_a_reply_that_is_being_opened_frees_it_at_once(service):
    """Closing a reply before its answer began ends its reader and closes the connection."""
    service.script.ask(fault=NoAnswer())
    async with service.session() as session:
        reply = session.ask("x")

        reader = asyncio.create_task(read(reply))
        while not service.requests.count("ask"):
            await asyncio.sleep(0.001)
        await reply.close()
        with anyio.fail_after(20):
            assert await reader == []
            while service.connections:
                await asyncio.sleep(0.001)
        with pytest.raises(StreamInterruptedError):
            await reply


async def test_a_reply_that_was_closed_ends_quietly_though_its_session_closes_too(service):
    """Closing a reply between two attempts, and then its session, raises nothing in the reader."""
    service.script.ask(status=429, headers={"Retry-After": "30"}, times=None)
    retried = asyncio.Event()
    watch = Watch()
    watch.event = lambda name, _: retried.set() if name == "retry" else None
    session = service.session(observer=watch)
    reply = session.ask("x")

    reader = asyncio.create_task(read(reply))
    with anyio.fail_after(20):
        await retried.wait()
    await reply.close()
    await session.close()
    with anyio.fail_after(20):
        assert await reader == []
    assert service.requests.count("ask") == 1


async def test_closing_a_reply_does_not_wait_for_a_slot_that_is_given_back(service):
    """Closing a reply does not wait for a slow quota store, and no retry is reported for it."""
    watch, giving_back = Watch(), asyncio.Event()

    class Slow(MemoryStore):
        async def refund(self, *args, **kwargs):
            giving_back.set()
            await asyncio.sleep(3600)

    quota = Quota(store=Slow())
    async with service.refusing(), service.session(quota=quota, observer=watch) as session:
        reply = session.ask("x")
        reader = asyncio.create_task(reply.__aenter__())
        await giving_back.wait()
        await reply.close()
        with anyio.fail_after(20):
            assert await reader is reply
    assert watch.count("retry") == 0
