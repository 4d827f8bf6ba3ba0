"""What the tests of ledgers share: a POST that is counted, and a claim of it."""

from __future__ import annotations

from mintlify_async.jobs.create_once import create_once, fingerprint
from mintlify_async.model.job import Job

LEASE = 65.0


PRINT = fingerprint("docs", "Fix the typos")


JOB = Job(id="job_1", status="active")


class Post:
    """Counts the POSTs, and answers or fails."""

    def __init__(self, outcome=JOB, wait=None):
        self.outcome, self.wait, self.count = outcome, wait, 0

    async def __call__(self):
        self.count += 1
        if self.wait is not None:
            await self.wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def create(ledger, clock, post, key="k", print_=PRINT):
    return create_once(ledger, key, print_, LEASE, post, clock)
