"""Jobs over the wire: a session against the local service, in virtual time."""

from __future__ import annotations

import asyncio
import gc
import itertools

import pytest

from mintlify_async import (
    APITimeoutError,
    ConfigurationError,
    FollowUp,
    JobTimeoutError,
    MemoryStore,
    NotFoundError,
    OutcomeUnknownError,
    PermissionDeniedError,
    PollPolicy,
    ServerError,
    StateError,
    Timeouts,
    wait_all,
)
from mintlify_async.errors import UnexpectedResponseError
from mintlify_async.jobs.ledger import Ledger
from mintlify_async.runtime import clock
from mintlify_async.testing import JobLife, Reset
from mintlify_async.testing.virtual_clock import EPOCH

CREATE = ("POST", "/v2/agent/acme/job")
LOOK = ("GET", "/v2/agent/acme/job/job_1")
pytestmark = pytest.mark.usefixtures("virtual")


@pytest.fixture
async def session(service):
    async with service.session(poll=PollPolicy()) as opened:
        yield opened


def now():
    """Return the virtual time since the test began."""
    return clock.now() - EPOCH


# One job ---------------------------------------------------------------------------------------


async def test_create_and_wait_on_the_wire(service, session):
    """One POST, then one GET a look, and the record of the last."""
    service.script.job("active", "active", "completed")
    job = await session.create_job("Fix the typos")
    done = await job.wait(timeout=900)
    assert done.status == "completed"
    assert done.pr_link == job.pr_link == "https://github.com/acme/docs/pull/1"
    assert service.requests == [CREATE, LOOK, LOOK, LOOK]
    assert job.raw.status == 200


async def test_refresh_says_how_long_ago_the_job_was_created(service, session):
    """It is one look; the caller looks again. Another error does not say it."""
    service.script.create_job(life=JobLife(seconds=60, not_found=20))
    job = await session.create_job("Fix the typos")
    await asyncio.sleep(7)
    with pytest.raises(NotFoundError, match="created 7 s ago"):
        await job.refresh()
    service.script.get_job(status=403)
    with pytest.raises(PermissionDeniedError, match=r"^(?!.*created)"):
        await job.refresh()
    await asyncio.sleep(20)
    assert (await job.refresh()).status == "active"


async def test_polls_are_outside_the_retry_policy(service, session):
    """A failed poll is one request; the next comes when it is due."""
    service.script.get_job(status=503, times=3)
    job = await session.create_job("Fix the typos")
    await job
    looks = [request.at for request in service.requests.of("get_job")]
    assert all(after - before >= 1.0 for before, after in itertools.pairwise(looks))
    assert [request.status for request in service.requests.of("get_job")][:3] == [503] * 3


def looks(service):
    """Return the times of all polls."""
    return [request.at for request in service.requests.of("get_job")]


@pytest.mark.parametrize("changed", [False, True])
async def test_a_wait_polls_by_the_policy_of_its_own_session(service, changed):
    """Whether the policy is that of the first session, or that of ``with_options``."""
    service.script.job("active")
    policy = PollPolicy(initial=20.0, factor=1.0, outage=15.0)
    async with service.session(poll=PollPolicy() if changed else policy) as session:
        waiting = session.with_options(poll=policy) if changed else session
        job = await waiting.create_job("Fix the typos")
        with pytest.raises(JobTimeoutError):
            await job.wait(timeout=70)
        assert looks(service) == [0.0, 20.0, 40.0, 60.0, 70.0]
        service.script.get_job(status=503, times=None)
        with pytest.raises(ServerError):
            await job.wait()
    assert looks(service)[5:] == pytest.approx([70.0, 90.0], abs=0.1)  # spread by per_second


async def test_waits_with_other_policies_share_the_polls_of_a_job(service, session):
    """The earlier due time counts, and each wait judges an outage by its own policy."""
    job = await session.create_job("Fix the typos")
    service.script.get_job(status=503, times=None)
    patient = session.with_options(poll=PollPolicy(initial=6.0, factor=1.0, outage=60.0))
    hasty = session.with_options(poll=PollPolicy(initial=4.0, factor=1.0, outage=7.0))
    waits = [asyncio.create_task(one.job(job).wait()) for one in (patient, hasty)]
    with pytest.raises(ServerError):
        await waits[1]
    assert looks(service) == [0.0, 4.0, 8.0]
    with pytest.raises(ServerError):
        await waits[0]
    assert now() == 62.0


async def test_the_pace_and_the_limit_of_polls_are_those_of_the_first_session(service, session):
    """``per_second`` and ``timeout`` of another session's policy have no effect."""
    service.script.get_job(delay=60, times=None)
    other = session.with_options(poll=PollPolicy(per_second=1, timeout=1, outage=0))
    waits = [asyncio.create_task(other.job(f"job_{number}").wait()) for number in range(9)]
    await asyncio.wait(waits)
    assert looks(service) == pytest.approx([number / 50 for number in range(9)])
    assert [type(wait.exception()) for wait in waits] == [APITimeoutError] * 9
    assert 10.0 <= now() < 11.0


async def test_each_session_polls_with_its_own_headers_and_limits(service, session):
    """Sessions share a poll only if it is the same request: a customer's header goes with its polls alone."""
    service.script.job("completed")
    job = await session.create_job("Fix the typos")
    service.script.get_job(delay=5, times=None)
    others = [
        session.with_options(headers={"X-Tenant": "a"}),
        session.with_options(timeouts=Timeouts(request=1)),
    ]
    waits = [asyncio.create_task(one.job(job).wait(timeout=8)) for one in (*others, session)]
    await asyncio.wait(waits)
    assert {wait.result().status for wait in waits} == {"completed"}
    assert 5 < now() < 9  # polls with the limit of 1 s failed, but another session's look was accepted
    tenants = [request.headers.get("x-tenant") for request in service.requests.of("get_job")]
    assert tenants.count("a") == 1
    assert tenants.count(None) > 2


# Turns -----------------------------------------------------------------------------------------


async def test_a_follow_up_that_is_lost_is_not_sent_again(service, session):
    """Unknown: one POST, an error that says so, and a guard that stands."""
    job = await session.create_job("Fix the typos")
    await job
    service.script.send_message(fault=Reset(), life=JobLife(seconds=20, stale=30))
    with pytest.raises(OutcomeUnknownError):
        await job.send("Again")
    assert service.requests.count("send_message") == 1
    del job
    gc.collect()
    assert session.job("job_1").ref.awaiting_turn
    assert session.with_options(fp="x").job("job_1").ref.awaiting_turn
    began = now()
    await session.job("job_1")
    assert now() - began >= 40


async def test_a_follow_up_has_a_timeout(service, session):
    """It limits the whole call."""
    job = await session.create_job("Fix the typos")
    service.script.send_message(delay=60)
    began = now()
    with pytest.raises(OutcomeUnknownError) as caught:
        await job.send("Again", timeout=15)
    assert now() - began == pytest.approx(15, abs=0.1)
    assert caught.value.reason == "timeout"


async def test_a_follow_up_is_sent_once_per_key(service):
    """Two processes with one ledger: one POST, and both wait for the same turn."""
    ledger = MemoryStore()
    async with service.session(ledger=ledger) as one, service.session(ledger=ledger) as two:
        job = await one.create_job("Fix the typos")
        await job
        service.script.send_message(delay=5)
        turns = await asyncio.gather(
            job.send("Again", dedupe_key="k"), two.job("job_1").send("Again", dedupe_key="k")
        )
        looks = service.requests.count("get_job")
        again = await two.job("job_1").send("Again", dedupe_key="k", on_active="raise")
        assert service.requests.count("get_job") == looks  # on_active polls only before a new follow-up
        assert service.requests.count("send_message") == 1
        for turn in (*turns, again):
            assert isinstance(turn, FollowUp)
            assert turn.ref == turns[0].ref
            assert turn.ref.was_final
            assert turn.ref.sent is not None
        with pytest.raises(ConfigurationError, match="another prompt"):
            await job.send("Another", dedupe_key="k")
        with pytest.raises(ConfigurationError, match="belongs to a follow-up"):
            await one.create_job("Again", dedupe_key="k")


# What a session knows of a job -----------------------------------------------------------------


async def test_another_job_than_the_one_asked_for(service, session):
    """A record of another job is not believed; a wait tolerates it like an outage."""
    job = await session.create_job("Fix the typos")
    service.script.get_job(fields={"id": "job_2"}, times=2)
    with pytest.raises(UnexpectedResponseError, match="job_2"):
        await job.refresh()
    assert (await job).id == "job_1"


async def test_an_answer_without_a_record(service, session):
    """No status, or another job's: what was sent counts, and the handle has no record of it yet."""
    service.script.create_job(fields={"status": None}, headers={"x-request-id": "r1"})
    job = await session.create_job("Fix the typos")
    assert (job.id, job.status, job.job) == ("job_1", None, None)
    assert job.raw.status == 201
    assert job.raw.request_id == "r1"
    assert (await job).status == "completed"
    service.script.send_message(fields={"status": None})
    turn = await job.send("Again")
    assert turn.status == "completed"
    service.script.send_message(fields={"id": "job_2"})
    turn = await job.send("Once more")
    assert (turn.id, turn.job.id, turn.ref.awaiting_turn) == ("job_1", "job_1", True)
    assert (await turn).status == "completed"
    assert service.requests.of("create_job") == [CREATE]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 500}, "server_error"),
        ({"status": 200, "body": b"<html>"}, "unreadable_answer"),
        ({"status": 201, "body": {"id": ""}}, "unreadable_answer"),
        ({"fault": Reset()}, "connection_lost"),
        ({"delay": 1000.0}, "timeout"),
    ],
)
async def test_why_an_outcome_is_unknown(service, session, answer, reason):
    """Each reason can be told apart."""
    service.script.create_job(**answer)
    with pytest.raises(OutcomeUnknownError) as caught:
        await session.create_job("Fix the typos")
    assert caught.value.reason == reason


async def test_a_429_slows_all_polls_of_the_project(service, session):
    """The limit is the project's, not the job's."""
    service.script.create_job(life=JobLife(seconds=300), times=3)
    jobs = [await session.create_job(f"Job {number}") for number in range(3)]
    service.script.get_job(status=429, headers={"Retry-After": "100"})
    await wait_all(jobs)
    looks = [request.at for request in service.requests.of("get_job")]
    assert looks[3] - looks[0] >= 100


# Many ------------------------------------------------------------------------------------------


def test_one_session_over_several_loops(mintlify_service):
    """Each loop has a scheduler of its own; a handle from one works on the other."""
    mintlify_service.script.job("completed")
    session = mintlify_service.session()
    job = asyncio.run(session.create_job("Fix the typos"))
    for _ in range(2):
        assert asyncio.run(job.wait()).status == "completed"
    asyncio.run(session.close())


# Never twice -----------------------------------------------------------------------------------


async def test_the_loser_of_a_race_bears_404_too(service):
    """The job was created just now, by this call or another."""
    service.script.create_job(life=JobLife(seconds=30, not_found=20))
    async with service.session(ledger=MemoryStore()) as session:
        jobs = await asyncio.gather(*(session.create_job("Fix it", dedupe_key="issue-7") for _ in range(2)))
        assert {(done.id, done.status) for done in await wait_all(jobs)} == {("job_1", "completed")}
        assert service.requests.count("create_job") == 1


async def test_a_closed_session_claims_nothing(service):
    """The error comes before the ledger is asked."""
    ledger = MemoryStore()
    session = service.session(ledger=ledger)
    await session.close()
    with pytest.raises(StateError):
        await session.create_job("Fix it", dedupe_key="issue-7")
    assert await Ledger(ledger).open_claims() == []
