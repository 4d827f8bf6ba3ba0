"""Virtual time on a busy machine: a sequence of mixed calls, again and again, without one false limit.

``SWEEPS=whole`` plays it 200 times, at low priority and with every core busy. (Before it looked at the
kernel's own queues, one run in five ended with "no data for 120 s" on such a machine.)
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mintlify_async.testing import LocalService, NoAnswer
from mintlify_async.testing.virtual_clock import virtual_time

WHOLE = os.environ.get("SWEEPS") == "whole"
pytestmark = [pytest.mark.sweep] if WHOLE else []


async def mixed_calls() -> None:
    """Questions, cancelled ones, jobs and a conversation on one service, then one more question."""
    async with LocalService() as service, service.session() as session:
        await session.ask("How do I wait for a job?")
        await asyncio.gather(session.ask("How do I log in?"), session.ask("What is a quota?"))
        await asyncio.wait_for(session.ask("How do I stream?"), 60)
        service.script.ask(fault=NoAnswer())
        other = service.session()
        unanswered = asyncio.ensure_future(asyncio.wait_for(other.ask("Is anybody there?"), 3600))
        await asyncio.sleep(0.05)
        await other.close()
        await asyncio.gather(unanswered, return_exceptions=True)
        await asyncio.to_thread(Path(__file__).read_bytes)
        await asyncio.gather(*(session.create_job(f"Fix the typos of page {number}") for number in range(2)))
        service.script.job(seconds=10, files=False)
        await session.run_job("Fix the links", check=False)
        chat = session.conversation(fp="user-42")
        await chat.ask("How do I log in?")
        await chat.ask("And then?")
        await chat.undo()
        answer = await session.ask("How do I wait for a job?")
        assert answer.text


async def rounds(count: int) -> None:
    for _ in range(count):
        with virtual_time():
            await mixed_calls()


@pytest.mark.skipif(
    os.environ.get("MINTLIFY_ASYNC_LOOP") == "uvloop", reason="uvloop's time cannot be made virtual"
)
def test_mixed_calls_meet_no_false_limit() -> None:
    """No limit of a minute or more is reached by calls that take milliseconds."""
    if not WHOLE:
        asyncio.run(rounds(3))
        return
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(["nice", "-n", "19", sys.executable, __file__, "200"], check=True, env=environment)
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    asyncio.run(rounds(int(sys.argv[1])))
