"""The scheduler: one for all waits, never twice at once, spread, capped, and nothing left."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sized

import pytest
from attrs import fields
from hypothesis import given, settings
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError, JobTimeoutError
from mintlify_async.jobs.wait_all import as_completed, wait_all
from mintlify_async.settings.poll_policy import PollPolicy
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.job_fakes import FakeAgent, answered_with, at_times, in_turn, tasks_left, timers_left

pytestmark = pytest.mark.usefixtures("virtual")


def names(count):
    return [f"job_{number}" for number in range(count)]


async def test_a_look_that_began_before_a_wait_is_not_fresh_for_it():
    """Its answer may be older than the wait; so it asks again."""
    agent = FakeAgent(in_turn("completed", "archived"))
    agent.latency = 5.0
    first = asyncio.create_task(agent.job().wait())
    await asyncio.sleep(1)
    second = asyncio.create_task(agent.job().wait())
    assert (await first).status == "completed"
    assert (await second).status == "archived"
    assert agent.looks == [0.0, 5.0]


@pytest.mark.parametrize("timeout", [600, 3])
async def test_a_poll_that_other_code_cancels_is_made_again(timeout):
    """A stranger's ``task.cancel()`` on everything does not stall who still waits. A timeout tells of it."""
    agent = FakeAgent(in_turn("completed"))
    agent.latency = 5.0
    wait = asyncio.create_task(agent.job().wait(timeout))
    for _ in range(3):
        await asyncio.sleep(1.1)
        for task in {*tasks_left()} - {wait}:
            task.cancel()
    if timeout == 3:
        with pytest.raises(JobTimeoutError, match=r"no poll has succeeded .* other code has cancelled"):
            await wait
    else:
        assert (await wait).status == "completed"
        assert len(agent.looks) == 3


async def test_no_job_starves_under_the_cap():
    """The job that is due first is polled first, so all jobs are polled equally often."""
    agent = FakeAgent(poll=PollPolicy(per_second=2))
    handles = agent.jobs(names(60), lambda: in_turn("active"))
    await asyncio.gather(*(job.wait(600) for job in handles), return_exceptions=True)
    counts = [sum(1 for _, job, _ in agent.asked if job == name) for name in names(60)]
    assert min(counts) >= max(counts) - 2
    assert 2 * 599 <= len(agent.asked) <= 2 * 602


async def test_pauses_that_are_over_are_dropped():
    """A session may live for weeks: the scheduler keeps one pause after twenty, not all of them."""
    agent, paused = FakeAgent(), answered_with("active", {"Retry-After": "10"})
    for job in agent.jobs(names(20), lambda: in_turn(paused, "completed")):
        await job.wait()
    kept = [thing for thing in vars(agent.scheduler()).values() if isinstance(thing, Sized)]
    assert sum(map(len, kept)) == 1


async def test_hung_polls_do_not_hold_the_places_of_others():
    """Two hundred that are never answered: a healthy job is seen within four seconds."""
    agent = FakeAgent(poll=PollPolicy(per_second=1000))
    agent.latency = 1000.0
    hung = [asyncio.create_task(job.wait()) for job in agent.jobs(names(200), lambda: in_turn("active"))]
    await asyncio.sleep(0.5)
    agent.latency = 0.0
    agent.scripts["healthy"] = in_turn("completed")
    assert (await agent.job("healthy").wait(timeout=4)).status == "completed"
    for wait in hung:
        wait.cancel()
    await asyncio.wait(hung)
    assert tasks_left() == []


@pytest.mark.parametrize("timeout", [60, 1800, None])
async def test_a_new_wait_does_not_starve_behind_a_bulk(timeout):
    """Its first look is among the next two, however many wait for theirs."""
    agent = FakeAgent()
    bulk = agent.jobs(names(1000), lambda: at_times((0, "active")))
    everything = asyncio.create_task(wait_all(bulk, timeout=None))
    await asyncio.sleep(1)
    agent.scripts["new"] = in_turn("completed")
    assert (await agent.job("new").wait(timeout)).status == "completed"
    assert agent.now() < 2
    everything.cancel()
    await asyncio.wait([everything])


async def test_a_last_look_goes_before_a_bulk():
    """At its deadline a wait looks once more, also while others are late."""
    agent = FakeAgent()
    bulk = agent.jobs(names(1000), lambda: at_times((0, "active")))
    agent.scripts["late"] = at_times((0, "active"), (29, "completed"))
    late = asyncio.create_task(agent.job("late").wait(timeout=30))
    await asyncio.sleep(0.5)
    everything = asyncio.create_task(wait_all(bulk, timeout=None))
    assert (await late).status == "completed"
    everything.cancel()
    await asyncio.wait([everything])


async def test_every_job_of_a_restart_gets_a_look():
    """A thousand waits of ten seconds: looks that the cap does not allow come after the deadline (D11)."""
    agent = FakeAgent()
    agent.exclusive, agent.latency = False, 0.05
    done = await wait_all(agent.jobs(names(1000), lambda: in_turn("completed")), timeout=10)
    assert {job.status for job in done} == {"completed"}
    assert len(agent.looks) == 1000
    assert agent.most_under_way <= 110
    assert agent.now() < 11.5


async def test_a_late_look_that_hangs_ends_its_wait():
    """First looks after the deadline have a second, a hundred at a time; then the wait is over."""
    agent = FakeAgent(poll=PollPolicy(per_second=0.1))
    agent.latency = 3600.0
    jobs = agent.jobs(names(250), lambda: in_turn("completed"))
    results = await asyncio.gather(*(job.wait(1) for job in jobs), return_exceptions=True)
    assert {type(result) for result in results} == {JobTimeoutError}
    assert len(agent.looks) == 250
    assert agent.now() <= 5


@settings(max_examples=60, deadline=None)
@given(
    ends=st.lists(st.floats(0, 200), min_size=1, max_size=6),
    waits=st.lists(
        st.tuples(
            st.integers(0, 5),  # which job
            st.floats(0, 150),  # when the wait begins
            st.none() | st.floats(0, 100),  # when it is cancelled
            st.none() | st.floats(0, 300),  # its timeout
        ),
        min_size=1,
        max_size=15,
    ),
    latency=st.sampled_from([0.0, 0.3, 4.0]),
    per_second=st.sampled_from([0.5, 5, 50]),
)
def test_any_waits_of_any_jobs(ends, waits, latency, per_second):
    """Waits begin, end and time out in any order: each ends correctly, and nothing is left."""

    async def run():
        with virtual_time():
            await check()

    async def check():
        agent = FakeAgent(poll=PollPolicy(per_second=per_second))
        agent.latency = latency
        for number, end in enumerate(ends):
            agent.scripts[f"job_{number}"] = at_times((0, "active"), (end, "completed"))

        async def wait(number, begin, cancel, timeout):
            await asyncio.sleep(begin)
            task = asyncio.create_task(agent.job(f"job_{number % len(ends)}").wait(timeout=timeout))
            if cancel is not None:
                asyncio.get_running_loop().call_later(cancel, task.cancel)
            (result,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result, JobTimeoutError):
                assert timeout - 1e-6 <= result.waited <= timeout + 2 + latency
            elif isinstance(result, asyncio.CancelledError):
                assert cancel is not None
            else:
                assert result.status == "completed"
                assert agent.now() >= ends[number % len(ends)]

        await asyncio.gather(*(wait(*one) for one in waits))
        await asyncio.sleep(0)
        scheduler = agent.scheduler()
        assert len(scheduler) == 0
        assert timers_left() == []
        assert tasks_left() == []
        # A first look at a deadline does not wait for the limit.
        assert any(timeout is not None for *_, timeout in waits) or all(
            after - before >= 1 / per_second - 1e-9 for before, after in itertools.pairwise(agent.looks)
        )

    asyncio.run(run())


@pytest.mark.skipif(
    not hasattr(asyncio, "eager_task_factory"), reason="asyncio starts tasks eagerly from 3.12 on"
)
@pytest.mark.parametrize("latency", [0.0, 1.0])
async def test_eager_tasks(latency):
    """A loop whose tasks run at once, up to their first wait, changes nothing."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    agent = FakeAgent(at_times((0, "active"), (20, "completed")))
    agent.latency = latency
    done = await asyncio.gather(agent.job(), agent.job(), agent.job().wait(timeout=5), return_exceptions=True)
    assert [type(one).__name__ for one in done] == ["Job", "Job", "JobTimeoutError"]
    assert (await agent.job()).status == "completed"
    await asyncio.sleep(0)
    assert tasks_left() == []
    assert len(agent.scheduler()) == 0
    asyncio.get_running_loop().set_task_factory(None)


FACTORIES = {
    "the loop and the coroutine": lambda loop, coro: asyncio.Task(coro, loop=loop),
    "a name, too": lambda loop, coro, *, name=None: asyncio.Task(coro, loop=loop, name=name),
    "any keyword": lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options),
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
async def test_task_factories_of_any_shape(factory):
    """A tracer's factory may know the loop and the coroutine only, as those of AWS X-Ray."""
    asyncio.get_running_loop().set_task_factory(factory)
    agent = FakeAgent(at_times((0, "active"), (20, "completed")))
    done = await asyncio.gather(agent.job(), agent.job().wait(timeout=5), return_exceptions=True)
    assert [type(one).__name__ for one in done] == ["Job", "JobTimeoutError"]
    assert [one.status for one in await wait_all([agent.job(), agent.job()])] == ["completed"] * 2
    assert [one.status async for one in as_completed([agent.job()])] == ["completed"]
    asyncio.get_running_loop().set_task_factory(None)


@pytest.mark.parametrize("timeout", [0, 3, None])
@pytest.mark.parametrize("error", [RuntimeError, KeyError, SystemError, BaseException])
async def test_a_poll_whose_task_cannot_be_made_ends_its_waits(error, timeout):
    """All its waits get the error of the task factory, and a later wait polls."""
    agent = FakeAgent(in_turn("completed"))
    left = [error("no task")]

    def refuse_once(loop, coro, **options):
        if left and "look" in coro.__qualname__:
            raise left.pop()
        return asyncio.Task(coro, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(refuse_once)
    waits = [asyncio.ensure_future(agent.job().wait(timeout=timeout)) for _ in range(2)]
    await asyncio.wait(waits)
    assert [type(wait.exception()) for wait in waits] == [error] * 2
    assert agent.now() == 0.0
    assert (await agent.job().wait(timeout=timeout)).status == "completed"
    asyncio.get_running_loop().set_task_factory(None)
    assert tasks_left() == []
    assert len(agent.scheduler()) == 0


@pytest.mark.parametrize("timeout", [0, 3, None])
async def test_a_poll_that_ends_with_any_error_ends_its_waits(timeout):
    """Also one that is no ``Exception``, such as that of a user's key function."""

    class Leave(BaseException):
        pass

    def leave(now):
        raise Leave

    agent = FakeAgent(leave)
    with pytest.raises(Leave):
        await agent.job().wait(timeout=timeout)
    agent.scripts["job_1"] = in_turn("completed")
    assert (await agent.job().wait(timeout=timeout)).status == "completed"
    assert len(agent.scheduler()) == 0


@pytest.mark.parametrize("field", [field.name for field in fields(PollPolicy)])
def test_a_policy_checks_its_figures(field):
    """Each is named."""
    for figure in ({"factor": 0.5, "timeout": 0, "per_second": 0}.get(field, -1), "30", float("inf")):
        with pytest.raises(ConfigurationError) as caught:
            PollPolicy(**{field: figure})
        assert caught.value.field == field


def test_the_policy_is_that_of_the_documentation():
    """2 s, half as much again each time, 30 s at most, a fifth to either side, never under 1 s."""
    policy = PollPolicy()
    assert [policy.delay(looks, 0.5) for looks in range(1, 10)] == pytest.approx(
        [2.0, 3.0, 4.5, 6.75, 10.125, 15.1875, 22.78125, 30.0, 30.0]
    )
    assert policy.delay(10**9, 0.999) == PollPolicy(factor=1e300).delay(10**9, 0.5) == 30.0
    assert (policy.delay(1, 0.0), policy.delay(1, 1.0)) == pytest.approx((1.6, 2.4))
    assert PollPolicy(initial=0.01, factor=1.0).delay(1, 0.5) == 1.0
    assert (policy.per_second, policy.outage, policy.timeout) == (50.0, 300.0, 10.0)
    assert policy.settle_seconds == 60.0
