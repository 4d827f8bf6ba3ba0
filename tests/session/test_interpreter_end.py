"""The end of the interpreter, with a call that is still under way: nothing of this package is printed."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.support.child_process import child_environment

CALLS = {
    "wait": "await session.job('job_1').wait()",
    "wait_all": "await wait_all([session.job('job_1'), session.job('job_2')])",
    "as_completed": "await anext(as_completed([session.job('job_1')]))",
    "watch": "await anext(session.job('job_1').watch())",
    "create_job": "await session.create_job('x', dedupe_key='k')",
    "send": "await session.job('job_1').send('x', dedupe_key='k')",
    "ask": "await session.ask('x')",
    "a reply's block": "async with session.ask('x') as reply: await anext(reply)",
    "a conversation": "await session.conversation(store=MemoryStore(), id='i', fp='f').ask('x')",
    "a session's block": "async with session: await session.job('job_1').wait()",
}
PROGRAM = """
import asyncio
from mintlify_async import MemoryStore, MintlifySession, as_completed, wait_all

accepted = []

async def silent(reader, writer):
    accepted.append(writer)
    await asyncio.sleep(60)

async def call(session):
    {call}

async def main():
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    session = MintlifySession(
        base_url="http://127.0.0.1:%d" % server.sockets[0].getsockname()[1],
        admin_key="mint_for_tests", assistant_key="mint_dsc_for_tests",
        project_id="p", domain="d", ledger=MemoryStore(),
    )
    task = asyncio.ensure_future(call(session))
    while not accepted:
        await asyncio.sleep(0.01)
    return server, session, task

loop = asyncio.new_event_loop()
kept = loop.run_until_complete(main())
"""


@pytest.mark.real
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_that_is_alive_prints_nothing(call):
    """Python says by itself which tasks were destroyed. No clean-up of ours fails on the way."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(call=call)),
        stderr=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONWARNINGS=None),
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert "Traceback" not in errors.decode()
    assert "Exception ignored" not in errors.decode()
