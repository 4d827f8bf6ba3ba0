"""Each assumption about the interface can be overridden."""

from __future__ import annotations

from mintlify_async import Assumptions, MintlifySession
from tests.support.secret_guard import Keys
from tests.support.wire_kit import JOB

KEYS = Keys()


async def test_assumptions_can_be_overridden(web):
    """The get-job path and every other assumption has a field."""
    web.get("https://docs.example/v9/jobs/acme/job_1", payload={**JOB, "status": "completed"})
    async with MintlifySession(
        project_id="acme",
        admin_key=KEYS.admin,
        base_url="https://docs.example/",
        assumptions=Assumptions(get_job_path="/v9/jobs/{project_id}/{job_id}"),
    ) as session:
        assert (await session.job("job_1").refresh()).status == "completed"
