"""The ledger as the list of jobs that the service does not have."""

from __future__ import annotations

import pytest

from mintlify_async import Ledger, MemoryStore, OutcomeUnknownError, SQLiteStore
from mintlify_async.jobs import ledger as ledger_module
from mintlify_async.testing import faults


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        yield SQLiteStore(tmp_path / "ledger.db")
    else:
        from mintlify_async.contrib.redis import RedisStore

        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisStore(client, timeout=20)


@pytest.mark.parametrize("at_once", [500, 2, 1])
async def test_recorded_jobs_are_listed(service, store, monkeypatch, at_once):
    """What is done, the oldest first; a follow-up has the id of its job. It takes several steps."""
    monkeypatch.setattr(ledger_module, "AT_ONCE", at_once)
    ledger = Ledger(store)
    assert await ledger.jobs() == []
    async with service.session(ledger=store) as session:
        job = await session.create_job("Fix it", dedupe_key="é {x}/1")
        for number in range(3):
            await job.send("More", dedupe_key=f"turn-{number}")
        service.script.create_job(fault=faults.Reset())
        with pytest.raises(OutcomeUnknownError):
            await session.create_job("x", dedupe_key="open")
    jobs = await ledger.jobs()
    follow_ups = {f"turn-{number}": "send_message" for number in range(3)}
    assert {job.key: job.operation for job in jobs} == {"é {x}/1": "create_job"} | follow_ups
    assert {job.job_id for job in jobs} == {job.id}
    assert [job.since for job in jobs] == sorted(job.since for job in jobs)
    await ledger.resolve("open", "job 9/é")
    assert {job.key: job.job_id for job in await ledger.jobs()}["open"] == "job 9/é"
    await ledger.forget("open")
    assert len(await ledger.jobs()) == 4
