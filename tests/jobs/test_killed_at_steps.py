"""A worker that is killed at an exact step: what was not sent is sent by the next call's first look."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from mintlify_async import Ledger, StateError
from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment, run_to_end
from tests.support.keyed_worker import opened

pytestmark = pytest.mark.real

WORKER = """
import asyncio, os, signal, sys
from mintlify_async import Limit, MintlifySession, Quota
from tests.support.keyed_worker import opened

ledger, step, loop = sys.argv[1:]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


async def main():
    import aiohttp

    async with opened(ledger, timeout=20) as store:
        write = store.write

        async def killing(changes, **options):
            text = b" ".join(value for value in changes.values() if value) or b"released"
            names = {"sending": b'"sending"', "record": b'"done"', "release": b"released"}
            is_it = names.get(step.removesuffix(" after"), b"no such step") in text
            if is_it and not step.endswith("after"):
                die()
            written = await write(changes, **options)
            if is_it:
                die()
            return written

        type(store).write = lambda self, *args, **options: killing(*args, **options)
        quota = None
        if step == "line":
            quota = Quota(create_job=Limit(1, per=3600), mode="wait")
        if step == "connecting":
            aiohttp.TCPConnector._create_connection = lambda *args: die()
        async with MintlifySession(ledger=store, quota=quota) as session:
            if step == "line":
                await session.create_job("the one slot")
                asyncio.get_running_loop().call_later(0.5, die)
            if step == "answer":
                asyncio.get_running_loop().call_later(1.0, die)
            await session.create_job("x", dedupe_key="k")


factory = asyncio.new_event_loop
if loop == "uvloop":
    from uvloop import new_event_loop as factory
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""

FREE = ["line", "connecting", "sending", "release after"]
"""Nothing was sent or it was refused, and the key is free."""
SENT = ["answer", "record"]
"""The request was sent, and nobody knows how it ended."""
BURNT = ["sending after", "release"]
"""The two moments in which a kill leaves a claim although nothing was started."""


KINDS = [("sqlite", "asyncio"), ("redis", "asyncio"), ("postgres_server", "asyncio"), ("pgbouncer", "uvloop")]
"""The ledger's fixture, and the worker's loop."""
ON_POSTGRES = ["sending", "sending after", "record", "release"]
"""The steps in which the ledger writes. In the others, a ledger is as good as another."""
CASES = [
    (kind, loop, step)
    for kind, loop in KINDS
    for step in (FREE + SENT + BURNT if (kind, loop) in KINDS[:2] else ON_POSTGRES)
]


@pytest.mark.parametrize(("kind", "loop", "step"), CASES)
async def test_a_worker_killed_at_a_step(tmp_path, request, kind, loop, step):
    """Never twice. The next call sends at once where nothing was sent; else it says what it waits for."""
    ledger = str(tmp_path / "ledger.db")
    if kind != "sqlite":
        ledger = request.getfixturevalue("redis_server" if kind == "redis" else kind).url
    async with LocalService() as service:
        if step == "answer":
            service.script.create_job(delay=20)
        if step.startswith("release"):
            service.script.create_job(status=400)
        with pytest.raises(AssertionError, match="status -9"):
            await run_to_end(
                *(sys.executable, "-c", WORKER, ledger, step, loop), env=child_environment(service)
            )
        await asyncio.sleep(0.1)
        before = service.requests.count("create_job")
        assert before == (0 if step in ("connecting", "sending", "sending after") else 1)
        async with opened(ledger, timeout=20) as store, service.session(ledger=store) as session:
            began = time.monotonic()
            if step in FREE:
                assert (await session.create_job("x", dedupe_key="k")).id
                assert time.monotonic() - began < 5
                assert service.requests.count("create_job") == before + 1
                return
            (claim,) = await Ledger(store).open_claims()
            assert claim.state == "sending"
            with pytest.raises(StateError, match="this call has sent nothing"):
                await session.create_job("x", dedupe_key="k", timeout=1)
            assert time.monotonic() - began < 5
            await Ledger(store).resolve("k", "job_9")
            assert (await session.create_job("x", dedupe_key="k")).id == "job_9"
        assert service.requests.count("create_job") == before
