"""What a program sees of the package's log when it configures no logging."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from mintlify_async import NotFoundError, RetryPolicy
from mintlify_async.testing import LocalService

PROGRAM = """
import logging
import mintlify_async.session

log = logging.getLogger("mintlify_async")
log.info("an unimportant line")
log.warning("a paid job may be lost")
assert not log.handlers
"""


@pytest.mark.real
def test_a_warning_reaches_stderr_by_itself():
    """The package adds no handler, so that Python's own handler of last resort shows warnings."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stderr == "a paid job may be lost\n"


async def test_each_request_has_one_line_at_info(caplog):
    """With the job's id and status; its attempts are at DEBUG."""
    caplog.set_level(logging.INFO, logger="mintlify_async")
    async with LocalService() as service:
        service.script.ask(status=429, headers={"Retry-After": "0"})
        service.script.get_job(status=404)
        async with service.session(retry=RetryPolicy()) as session:
            job = await session.create_job("Fix the typos")
            await session.ask("a question")
            with pytest.raises(NotFoundError):
                await session.job("nothing").refresh()
        lines = [one.getMessage() for one in caplog.records if one.name == "mintlify_async"]
        created, again, answered, missing = lines
        assert created.startswith(f"create_job: job {job.id} is active (")
        assert again.startswith("ask failed, attempt 1; again in")
        assert answered.startswith("ask: the answer begins (")
        assert answered.endswith("attempts: 2)")
        assert missing.startswith("get_job: 404")
        assert len(service.requests) == 4
