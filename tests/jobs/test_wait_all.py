"""Many jobs at once: wait_all and as_completed."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mintlify_async.errors import AuthenticationError, JobFailedError, JobTimeoutError, StateError
from mintlify_async.jobs.wait_all import as_completed, wait_all
from tests.support.job_fakes import FakeAgent, at_times, in_turn, refused, settle, tasks_left

pytestmark = pytest.mark.usefixtures("virtual")


def ending(at, status="completed"):
    return at_times((0, "active"), (at, status))


def four(agent):
    """Return handles of four jobs that end in the order 2, 0, 3, 1; job 3 fails."""
    for number, script in enumerate([ending(20), ending(80), ending(5), ending(40, "failed")]):
        agent.scripts[f"job_{number}"] = script
    return [agent.job(f"job_{number}") for number in range(4)]


async def test_wait_all_keeps_the_order():
    """The records have the order of the handles, not of the jobs' ends."""
    agent = FakeAgent()
    done = await wait_all(four(agent), check=False)
    assert [job.id for job in done] == ["job_0", "job_1", "job_2", "job_3"]
    assert [job.status for job in done] == ["completed", "completed", "completed", "failed"]


async def test_wait_all_raises_the_first_failure():
    """The other waits are left at once; their jobs go on."""
    agent = FakeAgent()
    with pytest.raises(JobFailedError) as caught:
        await wait_all(four(agent))
    assert caught.value.job.id == "job_3"
    assert agent.now() < 80
    assert len(agent.scheduler()) == 0
    assert tasks_left() == []


async def test_as_completed_yields_in_the_order_of_the_ends():
    """A failed job like any other, without raising."""
    agent = FakeAgent()
    ended = [job async for job in as_completed(four(agent))]
    assert [job.id for job in ended] == ["job_2", "job_0", "job_3", "job_1"]
    assert [job.status for job in ended] == ["completed", "completed", "failed", "completed"]
    assert all(job.done for job in ended)
    assert len(agent.scheduler()) == 0


async def test_as_completed_yields_what_can_be_waited_for_no_longer():
    """Not done, and awaiting it says why."""
    agent = FakeAgent()
    handles = four(agent)
    agent.scripts["job_1"] = in_turn(refused(401))
    ended = [job async for job in as_completed(handles)]
    assert ended[0].id == "job_1"
    assert not ended[0].done
    with pytest.raises(AuthenticationError):
        await ended[0]


async def test_as_completed_times_out():
    """What has ended comes first; then the error, then the end."""
    agent = FakeAgent()
    iterator = as_completed(four(agent), timeout=30)
    await asyncio.sleep(10)
    assert agent.looks == []
    ended = [(await anext(iterator)).id, (await anext(iterator)).id]
    with pytest.raises(JobTimeoutError):
        await anext(iterator)
    assert agent.now() == 30
    assert ended == ["job_2", "job_0"]
    assert len(agent.scheduler()) == 0
    assert [job async for job in iterator] == []


async def test_break_ends_the_polling():
    """Nothing is asked any more, and no task is left, with and without a block."""
    agent = FakeAgent()
    async for job in as_completed(four(agent)):
        assert job.id == "job_2"
        break
    gc.collect()
    await settle()
    assert len(agent.scheduler()) == 0
    async with as_completed(four(agent)) as ended:
        async for _ in ended:
            break
    assert len(agent.scheduler()) == 0
    looks = len(agent.looks)
    await asyncio.sleep(100)
    assert len(agent.looks) == looks
    assert tasks_left() == []


async def test_polling_goes_on_between_two_steps():
    """A slow consumer finds what has ended meanwhile."""
    agent = FakeAgent()
    iterator = as_completed(four(agent))
    first = await anext(iterator)
    await asyncio.sleep(200)
    assert first.id == "job_2"
    rest = [job.id async for job in iterator]
    assert rest == ["job_0", "job_3", "job_1"]
    assert agent.now() < 215


async def test_closing_the_session_ends_as_completed():
    """An error, rather than handles that look as if they had ended."""
    agent = FakeAgent()
    iterator = as_completed(four(agent))
    await anext(iterator)
    await agent.close()
    with pytest.raises(StateError):
        await anext(iterator)
    assert [job async for job in iterator] == []


async def test_as_completed_is_closed_from_elsewhere():
    """Twice is harmless, and a step that waits then ends."""
    agent = FakeAgent(in_turn("active"))
    iterator = as_completed([agent.job()])
    step = asyncio.create_task(anext(iterator, None))
    await settle()
    await iterator.aclose()
    await iterator.aclose()
    assert await step is None
    assert len(agent.scheduler()) == 0


@pytest.mark.parametrize("view", ["as_completed", "watch"])
async def test_a_step_that_is_cancelled_loses_nothing(view):
    """A timeout for each step may be shorter than a pause between polls; two steps at once are refused."""
    agent = FakeAgent()
    handles = four(agent)
    items = as_completed(handles) if view == "as_completed" else handles[0].watch()
    step = asyncio.create_task(anext(items))
    await asyncio.sleep(0)
    with pytest.raises(StateError):
        await anext(items)
    step.cancel()
    await asyncio.wait([step])
    seen = []
    while True:
        try:
            seen.append((await asyncio.wait_for(anext(items), 1.0)).id)
        except TimeoutError:
            continue
        except StopAsyncIteration:
            break
    assert seen == (["job_2", "job_0", "job_3", "job_1"] if view == "as_completed" else ["job_0", "job_0"])


def broken(now):
    raise LookupError("a vault of the user's")


async def test_as_completed_raises_an_error_that_is_not_ours():
    """A job whose wait failed for another reason than the service's was not seen to end."""
    agent = FakeAgent()
    handles = four(agent)
    agent.scripts["job_2"] = broken
    with pytest.raises(LookupError, match="a vault"):
        async for _ in as_completed(handles):
            pass
    assert tasks_left() == []


async def test_as_completed_ends_with_a_wait_that_other_code_has_cancelled():
    """The consumer was not cancelled, so it gets an error of ours. The iterator is closed."""
    agent = FakeAgent(in_turn("active"))
    ended = as_completed([agent.job()])
    step = asyncio.create_task(anext(ended))
    await settle()
    for task in tasks_left():
        if task is not step:
            task.cancel()
    with pytest.raises(StateError, match="other code has cancelled"):
        await step
    assert [job async for job in ended] == []
    assert tasks_left() == []


async def test_waits_are_left_when_one_of_them_cannot_be_started():
    """The task factory refuses the third one: the first two are cancelled."""
    agent = FakeAgent()
    handles, started = four(agent), 0

    def refuse(loop, coro, **options):
        nonlocal started
        started += 1
        if started == 3:
            raise RuntimeError("no task")
        return asyncio.Task(coro, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(refuse)
    with pytest.raises(RuntimeError, match="no task"):
        await wait_all(handles)
    started = 0
    with pytest.raises(RuntimeError, match="no task"):
        await anext(as_completed(handles))
    asyncio.get_running_loop().set_task_factory(None)
    assert tasks_left() == []


async def test_a_generator_of_the_program_that_is_closed_ends_its_waits():
    """When ``aclose`` of a generator with such a block inside returns, nothing is polled any more."""
    agent = FakeAgent()
    agent.latency = 5.0

    async def ended():
        async with as_completed(four(agent)) as done:
            async for job in done:
                yield job

    generator = ended()
    assert (await anext(generator)).id == "job_2"
    async with asyncio.timeout(60):
        while not agent.under_way:
            await asyncio.sleep(0.5)
    await generator.aclose()
    assert tasks_left() == []
    assert len(agent.scheduler()) == 0
