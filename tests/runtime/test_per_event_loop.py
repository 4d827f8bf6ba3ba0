"""What belongs to one event loop: closed loops and loops of other threads do no harm."""

from __future__ import annotations

import asyncio
import gc
import warnings
from contextlib import closing

import pytest
from served import Served

from mintlify_async.runtime.per_event_loop import LoopLocal


@pytest.mark.leaves_open("a loop is closed with all that is on it")
def test_a_loop_that_was_closed_with_a_reader_inside_harms_no_other():
    """After a loop was closed while a reply was being read, the session works on another loop."""
    with Served() as served:
        session = served.service.session()
        served.service.script.ask(events=[{"type": "start"}, 600.0])
        loop = asyncio.new_event_loop()

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


def test_loops_of_other_threads_can_be_added_meanwhile():
    """A thread may add its loop while another looks for closed ones."""

    class Thing:
        async def close(self):
            pass

        def abandon(self):
            pass

    class Loop(asyncio.SelectorEventLoop):
        def is_closed(self):
            others = local._entries  # what another thread would do at this moment
            others.setdefault(second, next(iter(others.values())))
            return super().is_closed()

    async def get():
        return local.get()

    local = LoopLocal(Thing)
    with closing(Loop()) as loop, closing(asyncio.new_event_loop()) as second:
        loop.run_until_complete(get())
        local._entries.pop(second, None)
        with closing(asyncio.new_event_loop()) as third:
            third.run_until_complete(get())
            for one in (loop, third):
                one.run_until_complete(one.shutdown_asyncgens())
