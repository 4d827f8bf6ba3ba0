"""The ledger as the list of jobs that the service does not have."""

from __future__ import annotations

import pytest

from mintlify_async import ConfigurationError, Ledger, MemoryStore, OutcomeUnknownError, SQLiteStore
from mintlify_async.jobs import ledger as ledger_module
from mintlify_async.testing import LocalService, Reset


@pytest.fixture
async def service():
    """In real time, because a server in another process cannot stop virtual time."""
    async with LocalService() as service:
        yield service


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
        service.script.create_job(fault=Reset())
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


@pytest.mark.parametrize("text", ["", " ", " job_1", "a\nb", '{"id": "job_1"}', None, 7])
async def test_only_an_id_or_a_reference_is_recorded(text):
    """A text that is neither is refused with its name, before the store is asked."""
    with pytest.raises(ConfigurationError) as caught:
        await Ledger(MemoryStore()).resolve("k", text)
    assert caught.value.field == "job_id"


@pytest.mark.parametrize("key", ["", " ", None, 7, "a\0b", "\ud800", "x" * 100_000])
async def test_a_key_that_no_call_can_have_is_refused(key):
    """Each step on one key says so, before the store is asked."""
    ledger = Ledger(MemoryStore())
    for step in (ledger.find, ledger.forget, lambda key: ledger.resolve(key, "job_1")):
        with pytest.raises(ConfigurationError) as caught:
            await step(key)
        assert caught.value.field == "dedupe_key"


async def test_a_pasted_reference_records_its_job(service):
    """A reference is what handles and the command print. One that cannot be read leaves the claim open."""
    store = MemoryStore()
    async with service.session(ledger=store) as session:
        ref = (await session.create_job("Fix it")).ref
        service.script.create_job(fault=Reset())
        with pytest.raises(OutcomeUnknownError):
            await session.create_job("x", dedupe_key="k")
        for text in ("mintlify-job:1:acme:job_1", str(ref)[:-1]):
            with pytest.raises(ConfigurationError, match="not a job reference"):
                await Ledger(store).resolve("k", text)
        await Ledger(store).resolve("k", f" {ref}\n")
        assert (await session.create_job("x", dedupe_key="k")).ref.id == ref.id
