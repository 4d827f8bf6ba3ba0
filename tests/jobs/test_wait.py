"""The wait for one job: when it polls, what it tolerates, how it ends."""

from __future__ import annotations

import asyncio
import contextvars
import itertools

import anyio
import pytest

from mintlify_async.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConfigurationError,
    JobFailedError,
    JobTimeoutError,
    NotFoundError,
    StateError,
    UnexpectedResponseError,
)
from mintlify_async.jobs.handle import JobHandle
from mintlify_async.model.job_ref import JobRef
from tests.support.job_fakes import (
    FakeAgent,
    answered_with,
    at_times,
    down,
    in_turn,
    lost,
    machine,
    record,
    refused,
    tasks_left,
)

pytestmark = pytest.mark.usefixtures("virtual")


def gaps(agent):
    return [after - before for before, after in itertools.pairwise(agent.looks)]


# When it looks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (refused(429, retry_after=40.0), 40.0),
        (answered_with("active", {"Retry-After": "50"}), 50.0),
        (answered_with("active", {"retry-after-ms": "20000"}), 20.0),
        (answered_with("active", {"X-RateLimit-Reset": "3600"}), 2.0),  # the end of a window is no pause
        (answered_with("active", {"Retry-After": "86400"}), 300.0),
        *((answered_with("active", {"Retry-After": odd}), 2.0) for odd in ("-5", "soon", "", "9" * 400)),
    ],
)
async def test_retry_after_is_read_on_every_answer(answer, pause):
    """On refusals and on successes; five minutes at most, and what cannot be read counts for nothing."""
    agent = FakeAgent(in_turn(answer, "completed"))
    await agent.job()
    assert gaps(agent) == [pytest.approx(pause)]


async def test_a_pause_holds_for_who_comes_later():
    """A second wait for the same job does not break the pause that the service asked for."""
    agent = FakeAgent(in_turn(refused(429, retry_after=60.0), "completed"))
    first = asyncio.create_task(agent.job().wait())
    await asyncio.sleep(10)
    await agent.job()
    await first
    assert agent.looks == [0.0, 60.0]


# What it tolerates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [lost(), down(), refused(429), refused(408), refused(404), UnexpectedResponseError("html")]
)
async def test_an_outage_is_borne_for_five_minutes(error):
    """Lost connections, 5xx, 429, unreadable bodies, and a 404 of a job that was seen; then raised.

    The five minutes begin anew with each success.
    """
    agent = FakeAgent(at_times((0, "active"), (10, error), (250, "active"), (285, error), (560, "completed")))
    assert (await agent.job()).status == "completed"
    agent = FakeAgent(at_times((0, "active"), (10, error)))
    with pytest.raises(type(error)) as caught:
        await agent.job()
    assert str(caught.value) == str(error)
    first_failure = next(at for at in agent.looks if at >= 10)
    assert 300 <= agent.now() - first_failure <= 330


REFUSALS = [refused(status) for status in (400, 401, 403, 404, 405, 409, 410, 422, 302)]


@pytest.mark.parametrize("error", [*REFUSALS, ZeroDivisionError("a bug")], ids=repr)
async def test_a_refusal_is_raised_at_once(error):
    """Waiting does not help a refused request. A 404 is final if the job was not created here."""
    agent = FakeAgent(in_turn(error))
    with pytest.raises(type(error)) as caught:
        await agent.job()
    assert vars(caught.value) == vars(error)
    assert len(agent.looks) == 1


# How it ends -----------------------------------------------------------------------------------


async def test_failed_raises_unless_asked_not_to():
    """``check=False`` returns the record; awaiting again raises anew."""
    agent = FakeAgent(in_turn("failed"))
    job = agent.job()
    for _ in range(2):
        with pytest.raises(JobFailedError) as caught:
            await job
        assert caught.value.job == record("failed")
    assert (await job.wait(check=False)).status == "failed"
    assert len(agent.looks) == 3


async def test_a_timeout_bounds_the_whole_wait():
    """The error carries the reference and the last record, and says that the job goes on."""
    agent = FakeAgent(in_turn("active"))
    with pytest.raises(JobTimeoutError) as caught:
        await agent.job()
    assert caught.value.waited == pytest.approx(1800)  # the default
    agent = FakeAgent(in_turn("active"))
    with pytest.raises(JobTimeoutError, match="keeps running at the service") as caught:
        await agent.job().wait(timeout=100)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.ref, error.job, error.certain_in) == (JobRef("docs", "job_1"), record("active"), None)
    assert error.waited == pytest.approx(100)
    assert agent.now() == 100.0


async def test_a_timeout_of_nothing_still_looks():
    """``timeout=0`` is one look."""
    agent = FakeAgent(in_turn("active"))
    with pytest.raises(JobTimeoutError):
        await agent.job().wait(timeout=0)
    assert len(agent.looks) == 1
    agent = FakeAgent(in_turn("completed"))
    assert (await agent.job().wait(timeout=0)).status == "completed"


async def test_a_hanging_poll_does_not_outlast_the_deadline():
    """A server that says nothing is left a second after the deadline, its poll called off."""
    agent = FakeAgent(in_turn("active"))
    agent.latency = 3600.0
    with pytest.raises(JobTimeoutError) as caught:
        await agent.job().wait(timeout=30)
    assert caught.value.waited == pytest.approx(31)
    assert caught.value.job is None
    assert agent.under_way == {}
    assert tasks_left() == []


async def test_a_pause_past_the_deadline_ends_the_wait_there():
    """The service asked not to be asked before; the deadline stands."""
    agent = FakeAgent(in_turn(refused(429, retry_after=120.0)))
    with pytest.raises(JobTimeoutError):
        await agent.job().wait(timeout=60)
    assert agent.now() == 60.0
    assert agent.looks == [0.0]


@pytest.mark.parametrize("timeout", [-1, "60"])
async def test_a_timeout_is_checked(timeout):
    """No number of seconds, no wait."""
    agent = FakeAgent()
    for begin in (agent.job().watch, lambda timeout: asyncio.ensure_future(agent.job().wait(timeout))):
        with pytest.raises(ConfigurationError) as caught:
            await begin(timeout)
        assert caught.value.field == "timeout"
    assert agent.looks == []


TOLERATED = [lost(), down(), refused(429), refused(408), UnexpectedResponseError("html")]


@pytest.mark.parametrize("error", TOLERATED, ids=repr)
@pytest.mark.parametrize("seen", [False, True])
async def test_a_timeout_tells_of_the_polls_that_failed(error, seen):
    """It has the last error, says for how long no poll has succeeded, and not that the job keeps running."""
    agent = FakeAgent(at_times((0, "active" if seen else error), (1, error)))
    job = agent.created()
    with pytest.raises(
        JobTimeoutError, match=rf"no poll has succeeded for .* \(last seen active\): {error}"
    ) as caught:
        await job.wait(timeout=20)
    assert "keeps running" not in str(caught.value)
    assert type(caught.value.error) is type(error)
    assert caught.value.__cause__ is caught.value.error
    assert caught.value.failing_for == pytest.approx(20)
    assert caught.value.ref.failing is not None
    assert JobRef.parse(str(caught.value.ref)).failing == caught.value.ref.failing


async def test_a_timeout_of_a_new_job_that_is_not_visible_yet_says_so():
    """A 404 is tolerated at first. The record of the POST shows nothing about what the job does now."""
    agent = FakeAgent(in_turn(refused(404)))
    with pytest.raises(JobTimeoutError, match="no poll has succeeded for 10") as caught:
        await agent.created().wait(timeout=10)
    assert isinstance(caught.value.error, NotFoundError)


async def test_a_timeout_with_a_hanging_poll_says_so():
    """The record of the POST is no poll, so nothing shows that the job keeps running."""
    agent = FakeAgent(in_turn("active"))
    agent.latency = 3600.0
    with pytest.raises(
        JobTimeoutError, match=r"no poll has succeeded for 5\.0 s .*has not answered"
    ) as caught:
        await agent.created().wait(timeout=4)
    assert isinstance(caught.value.error, APITimeoutError)


async def test_a_timeout_after_a_success_has_no_error():
    """A failure before the last success is over."""
    agent = FakeAgent(at_times((0, lost()), (3, "active")))
    with pytest.raises(JobTimeoutError, match=r"active after .*keeps running") as caught:
        await agent.job().wait(timeout=60)
    assert (caught.value.error, caught.value.failing_for, caught.value.ref.failing) == (None, None, None)
    assert caught.value.__cause__ is None


async def test_a_status_that_is_not_known_is_not_said_to_keep_running():
    """It may be the service's new name for an end."""
    with pytest.raises(JobTimeoutError, match=r"cancelled after .* does not know") as caught:
        await FakeAgent(in_turn("cancelled")).job().wait(timeout=10)
    assert "keeps running" not in str(caught.value)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("error", [*TOLERATED, "hangs"], ids=repr)
@pytest.mark.parametrize("ahead", [0.0, 7200.0])
async def test_short_waits_end_after_an_outage(error, elsewhere, ahead):
    """In one process, and in ever new ones that have the reference of the wait before, like a single wait.

    The first process has a clock that is *ahead*.
    """
    agent = FakeAgent(in_turn("active" if error == "hangs" else error))
    agent.latency = 3600.0 if error == "hangs" else 0.0
    job = agent.created()
    waits = 0
    while True:
        with machine(ahead if waits == 0 else 0.0):
            try:
                await job.wait(timeout=25)
            except JobTimeoutError as timeout:
                assert agent.now() < 400
                job = agent.elsewhere(str(timeout.ref)) if elsewhere else job
            except (APIConnectionError, APIStatusError, UnexpectedResponseError):
                break
        waits += 1
        await asyncio.sleep(20)
    assert 300 <= agent.now() <= 400


async def test_one_failed_poll_long_after_an_outage_ends_no_wait():
    """A wait that starts after one that ended in an outage tolerates a failure as any wait does."""
    agent = FakeAgent(at_times((0, lost()), (3605, "active"), (3700, "completed")))
    job = agent.job()
    with pytest.raises(JobTimeoutError):
        await job.wait(timeout=10)
    await asyncio.sleep(3590)
    assert (await job.wait()).status == "completed"


# Seeing it change ------------------------------------------------------------------------------


async def test_polls_run_in_an_empty_context():
    """No variable of one caller is seen in a poll that serves other callers."""
    name = contextvars.ContextVar("name", default="nobody")
    agent = FakeAgent(lambda now: record(name.get() if now < 10 else "completed"))
    name.set("alice")
    assert [job.status async for job in agent.job().watch()] == ["nobody", "completed"]


async def test_watch_yields_on_change_only():
    """The first record, then each that differs; it ends after the last."""
    agent = FakeAgent(in_turn("active", "active", record("active", model="m"), lost(), "completed"))
    seen = [job async for job in agent.job().watch()]
    assert seen == [record("active"), record("active", model="m"), record("completed")]
    assert gaps(agent) == pytest.approx([2.0, 3.0, 4.5, 6.75])


async def test_watch_of_a_turn_does_not_yield_the_turn_before():
    """It ends with the turn's own end."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    agent.scripts["job_1"] = in_turn("completed", "active", "failed")
    assert [job.status async for job in turn.watch()] == ["active", "failed"]


async def test_a_watch_asks_nothing_between_two_steps_and_times_out():
    """It needs no closing. Its time begins with its first step; then it is over."""
    agent = FakeAgent(in_turn("active"))
    watch = agent.job().watch(timeout=60)
    assert agent.now() == 0
    await asyncio.sleep(500)
    assert (await anext(watch)).status == "active"
    assert len(agent.scheduler()) == 0
    await asyncio.sleep(50)
    assert agent.looks == [500.0]
    with pytest.raises(JobTimeoutError):
        await anext(watch)
    assert agent.now() == 560
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


# What a handle shows ---------------------------------------------------------------------------


async def test_refresh_is_one_look():
    """It may be retried, it updates what the handle shows (before, nothing), and it raises what it meets."""
    agent = FakeAgent(in_turn("active", answered_with("completed", {"x-request-id": "r1"}), refused(404)))
    job = agent.job()
    assert (job.job, job.raw, job.status, job.pr_link, job.done) == (None, None, None, None, False)
    assert (job.id, job.project_id, repr(job)) == ("job_1", "docs", "<JobHandle job_1 not seen yet>")
    assert (await job.refresh()).status == "active"
    assert not job.done
    assert await job.refresh() == record("completed")
    assert job.done
    assert job.raw.headers["x-request-id"] == "r1"
    with pytest.raises(NotFoundError):
        await job.refresh()
    assert job.done
    assert agent.asked == [("docs", "job_1", False)] * 3


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 10.0), (3.0, 3.0), (90.0, 90.0)])
@pytest.mark.parametrize(
    "rule", [{"delay": 600.0}, {"status": 429, "headers": {"Retry-After": "9"}}], ids=str
)
async def test_refresh_has_a_limit(service, timeout, seconds, rule):
    """A poll's limit by default; retries count. A web page that shows a job must not hang."""
    async with service.session() as session:
        job = await session.create_job("x")
        service.script.get_job(**rule, times=None)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises((APITimeoutError, APIStatusError)):
            await job.refresh(timeout=timeout)
        assert loop.time() - began <= seconds + 0.01
        assert "delay" not in rule or loop.time() - began == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("timeout", [0, -1, "5", True, float("nan")])
async def test_the_limit_of_a_refresh_is_checked(timeout):
    """The error names the argument, and nothing is sent."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError) as caught:
        await agent.job().refresh(timeout=timeout)
    assert caught.value.field == "timeout"
    assert agent.looks == []


# Cancelling ------------------------------------------------------------------------------------


async def in_a_scope_of_anyio(call, seconds):
    with anyio.fail_after(seconds):
        await call


@pytest.mark.parametrize("within", [asyncio.wait_for, in_a_scope_of_anyio])
@pytest.mark.parametrize(
    "call",
    [
        JobHandle.wait,
        JobHandle.refresh,
        lambda job: anext(job.watch()),
        lambda job: job.send("Again", on_active="raise"),
    ],
)
async def test_scopes_around_every_awaitable(within, call):
    """Each scope ends the hanging call. No task and no poll is left, and the scheduler works."""
    agent = FakeAgent(in_turn("active"))
    agent.latency = 1.0
    with pytest.raises(TimeoutError):
        await within(call(agent.job()), 0.05)
    assert agent.under_way == {}
    assert tasks_left() == []
    assert len(agent.scheduler()) == 0
    agent.latency = 0.0
    agent.scripts["job_1"] = in_turn("completed")
    assert (await agent.job()).status == "completed"


async def test_closing_the_session_ends_every_wait():
    """A clear error at once, for waits that have begun and for new ones."""
    agent = FakeAgent(in_turn("active"))
    job = agent.job()
    waits = [asyncio.create_task(job.wait()), asyncio.create_task(agent.job().wait(timeout=None))]
    await asyncio.sleep(10)
    closed_at, polls = agent.now(), len(agent.looks)
    await agent.close()
    for task in waits:
        with pytest.raises(StateError, match="closed"):
            await task
    assert (agent.now(), len(agent.looks)) == (closed_at, polls)
    with pytest.raises(StateError):
        await job
    assert tasks_left() == []


async def test_waits_of_one_job_do_not_share_an_exception():
    """A traceback belongs to one task."""
    agent = FakeAgent(in_turn(refused(401)))
    results = await asyncio.gather(agent.job(), agent.job(), return_exceptions=True)
    assert [type(error) for error in results] == [AuthenticationError] * 2
    assert results[0] is not results[1]


async def test_an_unlisted_status_keeps_polling():
    """A status that the service adds neither ends nor breaks a wait or a watch; it is shown unchanged."""
    statuses = ["queued", "?", "COMPLETED", "completed"]
    assert [job.status async for job in FakeAgent(in_turn(*statuses)).job().watch()] == statuses
    assert (await FakeAgent(in_turn("queued", "completed")).job()).status == "completed"
