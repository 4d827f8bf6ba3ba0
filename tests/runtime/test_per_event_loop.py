"""What belongs to one event loop: closed loops and loops of other threads do no harm."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from contextlib import closing

import pytest

from mintlify_async.runtime.per_event_loop import LoopLocal
from tests.support.child_process import child_environment
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


FORKED = """
import asyncio, os, sys
from mintlify_async import MintlifySession, StateError

async def said(step):
    try:
        await step
    except StateError:
        return "StateError"
    except BaseException as error:
        return repr(error)
    return "nothing"

async def child(session, reply):
    async def enter():
        async with session.ask("x") as other:
            await anext(other)

    for step in (session.create_job("x"), enter(), session.close()):
        print(await asyncio.wait_for(said(step), 5), flush=True)

connections, received = [], []

async def serve(reader, writer):
    connections.append(writer)
    while data := await reader.read(65536):
        received.append(data)
        writer.write(b"HTTP/1.1 200 X\\r\\nContent-Type: text/event-stream\\r\\n")
        writer.write(b"Connection: close\\r\\n\\r\\n")
        writer.write(b'data: {"type":"start"}\\n\\n')
    received.append(b"")

async def begin():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    session = MintlifySession(
        admin_key="mint_x", assistant_key="mint_dsc_x", project_id="p", domain="d", base_url=address
    )
    reply = session.ask("x")
    await anext(reply)
    return server, session, reply

async def go_on(reply):
    await asyncio.sleep(0.05)
    print("parent saw", len(received), len(connections), flush=True)
    connections[0].write(b'data: {"type":"text-start","id":"1"}\\n\\n')
    print((await asyncio.wait_for(anext(reply), 5)).type, flush=True)

loop = asyncio.new_event_loop()
server, session, reply = loop.run_until_complete(begin())
pid = os.fork()
if pid == 0:
    try:
        loop.run_until_complete(child(session, reply))
    finally:
        os._exit(0)
os.waitpid(pid, 0)
loop.run_until_complete(go_on(reply))
os._exit(0)
"""


@pytest.mark.real
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_on_the_same_loop_touches_nothing_of_its_parent():
    """Each new call is a StateError there, closing does nothing, and the parent's reply goes on."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED],
        env=child_environment(PYTHONWARNINGS="ignore"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    refused = ["StateError"] * 2
    assert ran.stdout.splitlines() == [*refused, "nothing", "parent saw 1 1", "text-start"], ran.stderr
