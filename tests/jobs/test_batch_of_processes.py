"""One batch in four processes, with one ledger and one quota on a server. Two processes are killed.

It has 80 rows, and 400 with ``SWEEPS=whole``. The quota allows a quarter of them in a window of some seconds.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter

import pytest

from mintlify_async import Ledger
from mintlify_async.testing import JobLife, LocalService
from tests.support.child_process import child_environment
from tests.support.keyed_worker import opened

WHOLE = os.environ.get("SWEEPS") == "whole"
ROWS = 400 if WHOLE else 80
AMOUNT = ROWS // 4
WINDOW = 15.0 if WHOLE else 3.0
"""Seconds."""
IN_FLIGHT = 2
"""Slots that the two kills may have hit between their taking and the line that says so."""

pytestmark = pytest.mark.sweep if WHOLE else pytest.mark.real

PROGRAM = """
import asyncio, sys
from mintlify_async import Limit, MintlifyError, MintlifySession, Quota, Timeouts
from mintlify_async.jobs import ledger as claims
from tests.support.keyed_worker import opened

claims.SENDING_SECONDS = claims.LIMIT_MARGIN = 1.0  # in this process alone: a dead call counts for 7 s

async def row(session, number):
    try:
        await session.create_job(f"row {number}", dedupe_key=f"row {number}")
    except MintlifyError as error:
        print(number, type(error).__name__, error, flush=True)

def note_slots(store):
    take, refund = store.take, store.refund

    async def noted_take(windows, *, slot, block):
        result = await take(windows, slot=slot, block=block)
        if slot is not None and result.taken:
            print(f"take {slot}", flush=True)
        return result

    async def noted_refund(windows, *, slot):
        await refund(windows, slot=slot)
        print(f"refund {slot}", flush=True)

    store.take, store.refund = noted_take, noted_refund

async def main():
    ledger, rows, amount, window = sys.argv[1], *map(float, sys.argv[2:])
    async with opened(ledger, timeout=10) as store:
        note_slots(store)
        quota = Quota(create_job=Limit(int(amount), per=window), mode="wait", store=store)
        async with MintlifySession(ledger=store, quota=quota, timeouts=Timeouts(request=5)) as session:
            await asyncio.gather(*(row(session, number) for number in range(int(rows))))

asyncio.run(main())
"""


@pytest.mark.parametrize("fixture", ["postgres_server", "redis_server"])
async def test_four_processes_do_one_batch(fixture: str, request: pytest.FixtureRequest):
    """Each row is one POST. A kill leaves unknown at most the rows that were being sent.

    No slot stays unused while a row waits, so all rows have a slot in the first four windows, but for as many
    as the kills took slots of calls that had not sent yet.
    """
    url = request.getfixturevalue(fixture).url
    async with LocalService(life=JobLife(looks=["completed"]), limits=None) as service:
        arguments = (url, str(ROWS), str(AMOUNT), str(WINDOW))
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, *arguments),
                env=child_environment(service),
                stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(4)
        ]
        readings = [asyncio.create_task(process.communicate()) for process in processes]
        for number, process in enumerate(processes[:2]):  # in the middle of the first and the second window
            kill_at = number * AMOUNT + AMOUNT // 2
            await service.until(lambda now, kill_at=kill_at: now.requests.count("create_job") >= kill_at)
            process.kill()
        outputs = [(await reading)[0].decode() for reading in readings]
        posts = service.requests.of("create_job")
        counts = Counter(request.json["prompt"] for request in posts)
        times = sorted(request.at for request in posts)
        async with opened(url, timeout=10) as store:
            unknown = {claim.key for claim in await Ledger(store).open_claims()}
    assert set(counts.values()) == {1}
    assert len(unknown) <= 2 * AMOUNT
    assert len(counts) >= ROWS - len(unknown)
    assert all(name in unknown for name in {f"row {number}" for number in range(ROWS)} - counts.keys())
    lines = [line.split() for output in outputs for line in output.splitlines()]
    ends = [line for line in lines if line[0] not in ("take", "refund")]
    assert {line[1] for line in ends} <= {"OutcomeUnknownError"}
    assert {f"row {line[0]}" for line in ends} <= unknown
    # The service sees a POST a moment after its slot, so two windows may look closer than they were.
    assert min(last - first for first, last in zip(times, times[AMOUNT:], strict=False)) >= WINDOW - 1.0
    slots = {line[1] for line in lines if line[0] == "take"}
    slots -= {line[1] for line in lines if line[0] == "refund"}
    wasted = max(0, len(slots) - len(posts))
    late = sum(at - times[0] >= 4 * WINDOW for at in times)
    print(f"{len(posts)} POSTs, {len(unknown)} unknown, {wasted} slots wasted, {late} POSTs late, ", end="")
    print(f"the last after {times[-1] - times[0]:.1f} s")
    assert late <= wasted + IN_FLIGHT
    assert times[-1] - times[0] < 5 * WINDOW
