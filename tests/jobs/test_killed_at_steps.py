"""A worker that is killed at an exact step: what was not sent is sent by the next call's first look."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from mintlify_async import Ledger, OutcomeUnknownError, StateError
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


RACER = """
import asyncio, sys
from mintlify_async import Limit, MintlifySession, Quota
from tests.support.keyed_worker import opened

ledger, mode = sys.argv[1:]


async def main():
    async with opened(ledger, timeout=20) as store:
        quota = None if mode == "none" else Quota(create_job=Limit(1, per=3600), mode=mode, store=store)
        async with MintlifySession(ledger=store, quota=quota) as session:
            jobs = await asyncio.gather(*(session.create_job("x", dedupe_key="k") for _ in range(5)))
    print(" ".join(job.id for job in jobs))


asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["none", "raise", "wait"])
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_twenty_callers_of_four_processes(tmp_path, request, kind, mode):
    """One POST and twenty results; with one slot for all, too."""
    ledger = str(tmp_path / "ledger.db") if kind == "sqlite" else request.getfixturevalue("redis_server").url
    async with LocalService() as service:
        service.script.create_job(delay=0.3, times=None)
        racers = (
            run_to_end(sys.executable, "-c", RACER, ledger, mode, env=child_environment(service))
            for _ in range(4)
        )
        said = await asyncio.gather(*racers)
    assert [line.split() for line in said] == [["job_1"] * 5] * 4
    assert service.requests.count("create_job") == 1


BATCH = """
import asyncio, sys
from mintlify_async import Limit, MintlifyError, MintlifySession, Quota, Timeouts
from mintlify_async.jobs import ledger as claims
from tests.support.keyed_worker import opened
from tests.support.quick_polls import QuickPolls

claims.SENDING_SECONDS = claims.LIMIT_MARGIN = 1.0  # in this process alone: a dead call counts for 7 s


async def main():
    async with opened(sys.argv[1], timeout=20) as store:
        quota = Quota(create_job=Limit(8, per=1.0), mode="wait", store=store)
        settings = {"poll": QuickPolls(), "timeouts": Timeouts(request=5)}
        async with MintlifySession(ledger=store, quota=quota, **settings) as session:

            async def one(row):
                try:
                    done = await session.run_job(f"row {row}", dedupe_key=f"row {row}", timeout=60)
                    print(row, done.status, flush=True)
                except MintlifyError as error:  # this row's; the others go on
                    print(row, type(error).__name__, flush=True)

            await asyncio.gather(*(one(row) for row in range(40)))


asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_killed_batch_is_started_again(tmp_path, request, kind):
    """Two processes with the same rows, one killed, a third comes: each row ends, none is sent twice."""
    ledger = str(tmp_path / "ledger.db") if kind == "sqlite" else request.getfixturevalue("redis_server").url
    async with LocalService() as service:
        service.script.create_job(delay=0.3, times=None)
        environment = child_environment(service)

        def batch():
            return asyncio.create_task(run_to_end(sys.executable, "-c", BATCH, ledger, env=environment))

        killed, other = batch(), batch()
        async with asyncio.timeout(60):
            while service.requests.count("create_job") < 12:
                await asyncio.sleep(0.01)
        killed.cancel()  # which kills its process
        await asyncio.wait([killed])
        said = await asyncio.gather(other, batch())
        prompts = [one.json["prompt"] for one in service.requests.of("create_job")]
    assert len(prompts) == len(set(prompts))
    ends = [dict(line.split() for line in output.splitlines()) for output in said]
    lost = {row for output in ends for row, end in output.items() if end == "OutcomeUnknownError"}
    print(f"{kind}: {len(prompts)} POSTs, {len(lost)} of unknown outcome")
    for output in ends:
        assert len(output) == 40
        assert {end for row, end in output.items() if row not in lost} == {"completed"}
    assert len(lost) <= 16, "only what the kill hit, at most two windows"
    unsent = {f"row {row}" for row in lost} - set(prompts)  # killed between the claim and the first byte
    assert len(prompts) == 40 - len(unsent)


async def test_a_claim_of_a_dead_process_is_unknown_in_the_end(tmp_path, virtual):
    """Its limit, 5 s, and 60 s after the write; and from then on at once."""
    async with LocalService() as service, opened(str(tmp_path / "ledger.db")) as store:
        service.script.create_job(delay=1e6)
        session = service.session(ledger=store)
        dead = asyncio.create_task(session.create_job("x", dedupe_key="k", timeout=8))
        await service.until(lambda running: running.requests)
        claim = await Ledger(store).find("k")
        assert claim.unknown_from - claim.since == pytest.approx(8 + 65, abs=1)
        dead.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dead
        with pytest.raises(OutcomeUnknownError, match="cancelled"):
            await session.create_job("x", dedupe_key="k")
        await session.close()
