"""What belongs to one event loop: closed loops and loops of other threads do no harm."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from tests.support.served import Served


@pytest.mark.leaves_open("a loop is closed with all that is on it")
def test_a_loop_that_was_closed_with_a_reader_inside_harms_no_other():
    """After a loop was closed while a reply was being read, the session works on another loop."""
    with Served() as served:
        session = served.service.session()
        served.service.script.ask(events=[{"type": "start"}, 600.0])
        loop = asyncio.SelectorEventLoop()  # uvloop's cannot be closed before its connections

        async def begin():
            reply = session.ask("x")
            await anext(reply)
            reader = asyncio.ensure_future(anext(reply))
            await asyncio.sleep(0.01)
            return reply, reader

        async def work():
            return (await session.create_job("x")).id

        reply, reader = loop.run_until_complete(begin())
        loop.close()
        assert asyncio.run(work()) == "job_1"
        asyncio.run(session.close())
        reader._log_destroy_pending = False
        reply._live._response._closed = True  # aiohttp's finalizer would speak to the closed loop
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of the sockets of that loop
            del reply, reader, loop, begin
            gc.collect()
