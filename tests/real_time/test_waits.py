"""Waits that begin in the same turn of the loop, in every way that asyncio and this package offer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import anyio
import pytest

from mintlify_async import (
    APIConnectionError,
    APITimeoutError,
    JobTimeoutError,
    Limit,
    PollPolicy,
    Quota,
    ServerError,
    as_completed,
    wait_all,
)
from mintlify_async.quota import line
from mintlify_async.testing import Close, JobLife

JOBS = 20
POLLS = 3
"""How many polls show the end of a job; see ``service``."""


async def by_task_group(jobs):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job.wait()) for job in jobs]
    return [task.result() for task in tasks]


async def by_our_as_completed(jobs):
    ended = [handle async for handle in as_completed(jobs)]
    assert all(handle.done for handle in ended)
    return [handle.job for handle in ended]


async def by_asyncios_as_completed(jobs):
    return [await ended for ended in asyncio.as_completed([job.wait() for job in jobs])]


async def by_five_waits_of_each(jobs):
    five = await asyncio.gather(*(asyncio.gather(*(job.wait() for _ in range(5))) for job in jobs))
    assert all(record == records[0] for records in five for record in records)
    return [records[0] for records in five]


async def awaited(job):
    return await job


async def within_timeout(job):
    async with asyncio.timeout(20):
        return await job


async def within_fail_after(job):
    with anyio.fail_after(20):
        return await job.wait()


async def watched(job):
    return [record async for record in job.watch()][-1]


def together(wait):
    """Return the way that runs *wait* for all jobs in tasks of their own."""
    return lambda jobs: asyncio.gather(*(asyncio.create_task(wait(job)) for job in jobs))


WAYS = {
    "await": together(awaited),
    "wait": together(lambda job: job.wait()),
    "wait without a limit": together(lambda job: job.wait(timeout=None)),
    "watch": together(watched),
    "wait_all": wait_all,
    "as_completed": by_our_as_completed,
    "gather": lambda jobs: asyncio.gather(*jobs),
    "TaskGroup": by_task_group,
    "asyncio.wait_for": together(lambda job: asyncio.wait_for(job.wait(), 20)),
    "asyncio.timeout": together(within_timeout),
    "anyio.fail_after": together(within_fail_after),
    "asyncio.as_completed": by_asyncios_as_completed,
    "five waits of each job": by_five_waits_of_each,
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_wait_ends_with_the_record_of_its_own_job(service, session, way):
    """Twenty jobs at once: each record is final, and no job is polled more often than it needs."""
    jobs = await asyncio.gather(*(session.create_job(f"Fix page {number}") for number in range(JOBS)))
    records = await WAYS[way](jobs)
    assert sorted(record.id for record in records) == sorted(job.id for job in jobs)
    assert {record.status for record in records} == {"completed"}
    assert service.requests.count("create_job") == JOBS
    assert service.requests.count("get_job") == POLLS * JOBS


@pytest.mark.parametrize("way", ["wait_all", "as_completed", "gather"])
async def test_handles_of_other_sessions_are_waited_for_together(service, way):
    """Handles of several sessions may be in one wait."""
    service.script.job("completed", times=None)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(service.session()) for _ in range(3)]
        jobs = [await session.create_job("x") for session in sessions for _ in range(2)]
        records = await WAYS[way](jobs)
    assert [record.status for record in records] == ["completed"] * 6


async def test_every_way_at_once(service):
    """The package's own interval, which is a second. All ways wait for the same jobs, and share the polls."""
    service.script.job("active", "completed", times=None)
    async with service.session(poll=PollPolicy(initial=1.0)) as session:
        jobs = await asyncio.gather(*(session.create_job("x") for _ in range(JOBS)))
        results = await asyncio.gather(*(way(jobs) for way in WAYS.values()))
    for records in results:
        assert sorted(record.id for record in records) == sorted(job.id for job in jobs)
        assert {record.status for record in records} == {"completed"}
    assert service.requests.count("get_job") <= 4 * JOBS  # a wait that begins during a poll needs another


async def test_one_after_the_other(service, session):
    """A wait that begins when another has just ended polls its own job."""
    jobs = [await session.create_job("x") for _ in range(3)]
    assert [(await job).status for job in jobs] == ["completed"] * 3
    assert service.requests.count("get_job") == POLLS * 3


async def test_waits_that_begin_at_any_moment(service, session):
    """A wait that begins while another one's poll is under way, or planned, ends as well."""
    service.script.job(*["active"] * 9, "completed")
    job = await session.create_job("x")

    async def late(seconds):
        await asyncio.sleep(seconds)
        return await job.wait()

    records = await asyncio.gather(*(late(0.007 * number) for number in range(JOBS)))
    assert {record.status for record in records} == {"completed"}
    assert service.requests.count("get_job") <= 10 + JOBS


@pytest.mark.parametrize("rule", [{"fault": Close()}, {"status": 503}, {"delay": 30.0}], ids=str)
async def test_waits_whose_polls_fail_say_so(service, session, rule):
    """Each timeout has the error of its polls, also where they hang, and short waits end after an outage."""
    patient = session.with_options(poll=PollPolicy(outage=0.5))
    jobs = [await patient.create_job("x") for _ in range(3)]
    service.script.get_job(**rule, times=None)
    async with asyncio.timeout(20):
        for error in await asyncio.gather(*(job.wait(timeout=0.1) for job in jobs), return_exceptions=True):
            assert type(error) is JobTimeoutError
            assert error.__cause__ is error.error is not None
            assert "keeps running" not in str(error)
        await asyncio.sleep(0.5)
        errors = await asyncio.gather(*(job.wait(timeout=0.1) for job in jobs), return_exceptions=True)
    assert {type(error) for error in errors} <= {APIConnectionError, APITimeoutError, ServerError}


async def test_waits_that_time_out_together(service, session):
    """Each raises at its own time, and the job can be waited for afterwards."""
    rule = service.script.job("active", times=None)
    jobs = [await session.create_job("x") for _ in range(JOBS)]
    rule.stop()
    async with asyncio.timeout(20):
        errors = await asyncio.gather(*(job.wait(timeout=0.1) for job in jobs), return_exceptions=True)
    assert [type(error) for error in errors] == [JobTimeoutError] * JOBS
    assert all(error.waited >= 0.09 for error in errors)
    polls = service.requests.count("get_job")
    service.script.get_job(fields={"status": "completed"}, times=None)
    assert {record.status for record in await wait_all(jobs)} == {"completed"}
    assert service.requests.count("get_job") == polls + JOBS


async def test_waits_without_any_time_poll_once(service, session):
    """``timeout=0`` is one poll, for each of twenty waits that begin together."""
    service.script.job("completed", times=None)
    jobs = [await session.create_job("x") for _ in range(JOBS)]
    records = await asyncio.gather(*(job.wait(timeout=0) for job in jobs))
    assert {record.status for record in records} == {"completed"}
    assert service.requests.count("get_job") == JOBS


async def test_a_wait_that_is_cancelled_disturbs_no_other(service, session):
    """Half of the waits of one job are cancelled; the others get the record, and share its polls."""
    service.script.job(*["active"] * 4, "completed")
    job = await session.create_job("x")
    waits = [asyncio.create_task(job.wait()) for _ in range(JOBS)]
    await service.until(lambda service: service.requests.count("get_job") == 2)
    for wait in waits[::2]:
        wait.cancel()
    async with asyncio.timeout(20):
        results = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(result) for result in results[::2]] == [asyncio.CancelledError] * (JOBS // 2)
    assert {result.status for result in results[1::2]} == {"completed"}
    assert service.requests.count("get_job") == 5


async def test_after_the_last_wait_was_cancelled_nothing_is_polled(service, session):
    """No poll is left, and a new wait starts as if there had been none."""
    service.life = JobLife(seconds=60)
    jobs = [await session.create_job("x") for _ in range(JOBS)]
    waits = [asyncio.create_task(job.wait()) for job in jobs]
    await service.until(lambda service: service.requests.count("get_job") >= JOBS)
    for wait in waits:
        wait.cancel()
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}
    polls = service.requests.count("get_job")
    await asyncio.sleep(0.1)
    assert service.requests.count("get_job") == polls
    service.script.get_job(fields={"status": "completed"}, times=None)
    assert {record.status for record in await wait_all(jobs)} == {"completed"}


async def test_polls_that_fail_are_tolerated(service, session):
    """Twenty waits while the service answers 503, and while it loses connections: all end well."""
    jobs = [await session.create_job("x") for _ in range(JOBS)]
    service.script.get_job(status=503, times=JOBS)
    assert {record.status for record in await wait_all(jobs)} == {"completed"}
    assert service.requests.count("get_job") == (POLLS + 1) * JOBS


async def test_a_line_for_slots_warns_until_nobody_waits(service, monkeypatch, caplog):
    """A warning says why calls wait, and none follows when the last of them has its slot or is cancelled."""
    monkeypatch.setattr(line, "WARN_SECONDS", 0.05)
    monkeypatch.setattr(line, "WARN_AGAIN_SECONDS", 0.05)
    caplog.set_level(logging.WARNING, logger="mintlify_async")
    quota = Quota(mode="wait", create_job=Limit(2, per=0.5))
    async with service.session(quota=quota) as session:
        await asyncio.gather(*(session.create_job(f"page {number}") for number in range(4)))
        first, *_ = [record.getMessage() for record in caplog.records]
        assert first.startswith("quota create_job: every slot is used; calls that wait: 2; the next slot")
        caplog.clear()
        cancelled = asyncio.create_task(session.create_job("page 4"))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await asyncio.sleep(0.2)
        assert not caplog.records
