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
WINDOW = 15.0 if WHOLE else 6.0
"""Seconds."""

pytestmark = pytest.mark.sweep if WHOLE else pytest.mark.real

PROGRAM = """
import asyncio, sys
from mintlify_async import Limit, MintlifyError, MintlifySession, Quota
from tests.support.keyed_worker import opened

async def row(session, number):
    try:
        await session.create_job(f"row {number}", dedupe_key=f"row {number}")
    except MintlifyError as error:
        print(number, type(error).__name__, error, flush=True)

async def main():
    ledger, rows, amount, window = sys.argv[1], *map(float, sys.argv[2:])
    async with opened(ledger, timeout=10) as store:
        quota = Quota(create_job=Limit(int(amount), per=window), mode="wait", store=store)
        async with MintlifySession(ledger=store, quota=quota) as session, asyncio.TaskGroup() as group:
            for number in range(int(rows)):
                group.create_task(row(session, number))

asyncio.run(main())
"""


@pytest.mark.parametrize("fixture", ["postgres_server", "redis_server"])
async def test_four_processes_do_one_batch(fixture: str, request: pytest.FixtureRequest):
    """Each row is one POST. A kill leaves unknown at most the rows that were being sent."""
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
        for process in processes[:2]:
            await asyncio.sleep(WINDOW * 0.7)
            process.kill()
        outputs = [(await process.communicate())[0].decode() for process in processes[2:]]
        posts = service.requests.of("create_job")
        counts = Counter(request.json["prompt"] for request in posts)
        times = sorted(request.at for request in posts)
        async with opened(url, timeout=10) as store:
            unknown = {claim.key for claim in await Ledger(store).open_claims()}
    assert set(counts.values()) == {1}
    assert len(unknown) <= 2 * AMOUNT
    assert len(counts) >= ROWS - len(unknown)
    assert all(name in unknown for name in {f"row {number}" for number in range(ROWS)} - counts.keys())
    for output in outputs:
        assert {line.split()[1] for line in output.splitlines()} <= {"OutcomeUnknownError"}
        assert {f"row {line.split()[0]}" for line in output.splitlines()} <= unknown
    # The service sees a POST a moment after its slot, so two windows may look closer than they were.
    assert min(last - first for first, last in zip(times, times[AMOUNT:], strict=False)) >= WINDOW - 1.0
    # No slot stays unused while a row waits, so the last row falls into the fourth window. A kill wastes the
    # slots of calls that have not sent yet. Then as many rows fall into the fifth.
    assert times[-1] - times[0] < 5 * WINDOW
    assert sum(at - times[0] < 4 * WINDOW for at in times) >= ROWS - AMOUNT // 2
    print(f"{len(posts)} POSTs, {len(unknown)} unknown, the last after {times[-1] - times[0]:.1f} s")
