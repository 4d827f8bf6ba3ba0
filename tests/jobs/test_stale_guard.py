"""Follow-ups: a turn never ends with the result of the turn before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import math
import os
import random

import pytest
from attrs import evolve

from mintlify_async.errors import (
    APIConnectionError,
    APITimeoutError,
    ConfigurationError,
    JobTimeoutError,
    NotFoundError,
    OutcomeUnknownError,
    QuotaExceededError,
    ServerError,
    StateError,
)
from mintlify_async.jobs.handle import FollowUp, handle_for
from mintlify_async.jobs.stale_guard import AwaitedFollowUp, JobState, JobStates, Look, Moment, elapsed
from mintlify_async.model.job_ref import JobRef, Stamp
from mintlify_async.settings.api_keys import Key
from mintlify_async.settings.paths_and_headers import Assumptions
from mintlify_async.settings.poll_policy import PollPolicy
from tests.support.job_fakes import FakeAgent, at_times, down, in_turn, lost, machine, record, refused


class Loop:
    """In place of an event loop, for moments: they only compare it."""


HERE, THERE = Loop(), Loop()


def moment(time, *, loop=HERE, date=None, at=None):
    """Return a moment whose clocks all show *time*, unless they are given."""
    return Moment(Stamp(time if at is None else at, date), loop, time)


def look(time, status="completed", *, took=0.0, **clocks):
    return Look(moment(time, **clocks), time + took, record(status))


def age_at(look):
    return lambda since: elapsed(since, look, 0)


# The comparison of two times -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "here", "seconds"),
    [
        (look(50, date=1060.0, at=10), 0, 59),
        (look(50, date=1000.0, at=10), 0, 0),
        (look(50, date=1003.0, at=10), 3, 3),
        (look(50, date=1061.0, took=10, at=10), 0, 50),  # it hung, and is dated at its end
        *((look(20, date=date, at=3599), 20, 20) for date in (None, 1000.0, 990.0)),
        *((look(20, date=date, at=3600), 20, 3600) for date in (None, 1000.0, 990.0)),
    ],
)
def test_elsewhere_the_service_counts_less_one_second(seen, here, seconds):
    """The loop's time since the reading counts in full, and the machines' clocks after an hour."""
    assert elapsed(moment(0, loop=None, date=1000.0), seen, seen.began.time - here) == seconds


def test_an_end_of_an_active_job_must_last():
    """Another status begins the window anew; an hour after the follow-up nothing is waited for."""
    follow_up = AwaitedFollowUp(moment(0), was_final=False)
    for time, status, left in [
        (10, "completed", 60),
        (50, "completed", 20),
        (60, "failed", 60),
        (70, "active", 60),
        (80, "completed", 60),
        (139, "completed", 1),
        (140, "completed", 0),
    ]:
        seen = look(time, status)
        follow_up = follow_up.after(seen, age_at(seen), 60)
        assert 60 - follow_up.window_start(seen, age_at(seen), 60)[1] == left
    late, soon, then = look(3600), look(59.999), look(60)
    assert AwaitedFollowUp(moment(0), was_final=False).window_start(late, age_at(late), 60)[1] >= 60
    seen_before = AwaitedFollowUp(moment(0), was_final=True)
    assert seen_before.window_start(soon, age_at(soon), 60)[1] < 60
    assert seen_before.window_start(then, age_at(then), 60)[1] >= 60


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_end_soon_after_two_follow_ups_in_a_row_does_not_count(elsewhere):
    """It may be the one before both, and the first one's end may follow it: no poll saw one active."""
    state = JobState(JobRef("docs", "job_1"), 60)
    state.see(look(-9))
    for time in (-1, 0):
        state.end_sending(state.begin_sending(60), moment(time, date=1000 + time))
    if elsewhere:
        state = JobState(JobRef.parse(str(state.ref)), 60)
    for time in (0, 13, 52, 59, 62, 119, 121.9):
        state.see(look(time, date=1000 + time))
        assert not state.accepted, time
    assert state.counts_in(121.9) == pytest.approx(0.1)
    state.see(look(122, date=1122))
    assert state.accepted


@pytest.mark.parametrize("loop", [HERE, THERE])
def test_an_older_look_says_nothing_new(loop):
    """It hung while a newer one was answered, on this loop or on another one; what it read is older."""
    state = JobState(JobRef("docs", "job_1"), 60)
    state.end_sending(state.begin_sending(60), moment(0))
    old = look(1, "completed", took=9)
    state.see(look(5, "active", loop=loop))
    state.see(old)
    assert state.job.status == "active"
    state.see(look(20, "completed"))
    assert state.job.status == "completed"
    assert state.follow_up.ending[1].time == 20


def test_what_another_loop_has_seen_counts_by_date_only():
    """Its own time is not this one's; without a ``Date`` the window begins where it was learnt."""
    state = JobState(JobRef("docs", "job_1", sent=Stamp(0.0, 1000.0)), 60)
    state.see(look(10, loop=HERE, date=1010.0, at=0))
    state.see(look(60, loop=THERE, at=0))
    assert not state.accepted
    state.see(look(119, loop=THERE, at=0))
    assert not state.accepted
    state.see(look(121, loop=THERE, at=0))
    assert state.accepted


@pytest.mark.parametrize("was_final", [True, False])
def test_each_loop_has_its_own_beginning_of_a_window(was_final):
    """Two loops wait for one reference without a ``Date``: each for one window from its first look."""
    state = JobState(JobRef("docs", "job_1", sent=Stamp(0.0), was_final=was_final), 60)
    for time in range(0, 60, 5):
        state.see(look(time, loop=HERE, at=0))
        assert not state.accepted, time
        state.see(look(1000 + time, loop=THERE, at=0))
        assert not state.accepted, time
    state.see(look(60, loop=HERE, at=0))
    assert state.accepted
    state.see(look(1060, loop=THERE, at=0))
    assert state.accepted


def test_an_end_that_another_loop_has_seen_lasts_from_this_ones_first_look():
    """This loop has known the follow-up for long, but not the end."""
    state = JobState(JobRef("docs", "job_1", sent=Stamp(0.0)), 60)
    state.see(look(0, "active", loop=HERE, at=0))
    state.see(look(550, loop=THERE, at=0))
    state.see(look(61, loop=HERE, at=0))
    assert state.counts_in(61) == 60


# Through a handle ------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("virtual")


FIRST = record("completed", pr_link="https://github.com/a/b/pull/1")
SECOND = record("completed", pr_link="https://github.com/a/b/pull/2")


async def ended(agent):
    """Return a handle of a job that was seen to have ended."""
    job = agent.job()
    await job.refresh()
    return job


SCHEDULES = [
    PollPolicy(),
    PollPolicy(initial=1.0, factor=1.0),
    PollPolicy(initial=30.0, factor=1.0),
    PollPolicy(initial=13.0, factor=3.0, cap=120.0),
]


@pytest.mark.parametrize("refreshed", [False, True])
async def test_a_look_counts_and_a_record_of_a_post_does_not(refreshed):
    """Of a job that was created just now the POST may say anything."""
    agent = FakeAgent(in_turn("completed"))
    job = agent.created()
    if refreshed:
        await job.refresh()
    turn = await job.send("Again")
    assert turn.ref.was_final is refreshed
    assert agent.job(job.ref).ref.was_final is refreshed


@pytest.mark.parametrize("status", ["completed", "failed", "archived"])
async def test_a_wait_ends_with_the_window(status):
    """If the job had ended before the follow-up, the wait ends 60 s after it, with a poll that starts then.

    Another final status is no proof, because it may be a late one of the earlier turn.
    """
    agent = FakeAgent(in_turn("completed"))
    turn = await (await ended(agent)).send("Again")
    agent.scripts["job_1"] = in_turn(status)
    for _ in range(2):
        assert (await turn.wait(check=False)).status == status
        assert agent.now() == pytest.approx(60, abs=0.1)


async def test_refresh_knows_of_the_guard():
    """A task that looks once and reschedules itself asks done, not the record."""
    agent = FakeAgent(in_turn("completed"))
    turn = await (await ended(agent)).send("Again")
    assert (await turn.refresh()).done
    assert not turn.done
    await asyncio.sleep(60)
    await turn.refresh()
    assert turn.done
    assert not turn.ref.awaiting_turn


# In another process ----------------------------------------------------------------------------


def loop_time():
    return asyncio.get_running_loop().time()


def dated(agent, *, ahead=0.0, frozen=False):
    """Let the agent send ``Date``; *frozen*: always that of now."""
    time = asyncio.get_running_loop().time
    began = time()
    agent.now()
    agent.date = lambda: 1_700_000_000 + ahead + (began if frozen else time())


async def short_waits(agent, text, ahead):
    """Wait 25 s in ever new processes, whose clocks are ahead; each has the reference of the one before."""
    while True:
        with machine(ahead):
            try:
                return await agent.elsewhere(text).wait(timeout=25)
            except JobTimeoutError as error:
                text = str(error.ref)


async def test_a_timeout_says_in_how_many_seconds_the_result_is_certain():
    """And while the job is active, that it is."""
    agent = FakeAgent(at_times((0, FIRST), (30, "active")))
    turn = await (await ended(agent)).send("Again")
    with pytest.raises(JobTimeoutError, match=r"completed after 20\.0 s.* certain in 40 s") as caught:
        await turn.wait(timeout=20)
    assert caught.value.certain_in == pytest.approx(40, abs=0.1)
    with pytest.raises(JobTimeoutError, match=r"active after 20\.0 s; it keeps running") as caught:
        await turn.wait(timeout=20)
    assert caught.value.certain_in is None


@pytest.mark.parametrize("kind", ["ended before", "active before", "in a row"])
@pytest.mark.parametrize("latency", [0.0, 0.05, 0.98])
@pytest.mark.parametrize("sender_waits", [False, True])
async def test_who_sleeps_until_the_result_is_certain_gets_it(kind, latency, sender_waits):
    """Also in a new process, which has dates of whole seconds. Follow-ups in a row need two looks."""
    for offset in (0.0, 0.02, 0.3, 0.7, 0.96, 0.99):
        agent = FakeAgent(in_turn("completed"))
        await asyncio.sleep(math.ceil(loop_time()) + offset - loop_time())
        dated(agent)
        job = agent.job() if kind == "active before" else await ended(agent)
        for _ in range(2 if kind == "in a row" else 1):
            turn = await job.send("Again")
        agent.latency = latency
        told, text, here = [], str(turn.ref), sender_waits
        while True:
            try:
                await (turn if here else agent.elsewhere(text)).wait(timeout=0)
                break
            except JobTimeoutError as error:
                text, here = str(error.ref), False
                told.append(error.certain_in)
            await asyncio.sleep(told[-1])
        assert len(told) <= (2 if kind == "in a row" else 1), (offset, told)
        assert max(told) <= 60 + 4


async def test_a_wait_looks_when_the_first_window_of_two_follow_ups_ends():
    """So it needs two windows and not one pause of its polls more."""
    agent = FakeAgent(in_turn("completed"))
    job = await ended(agent)
    await job.send("Again")
    turn = await job.send("And again")
    with pytest.raises(JobTimeoutError) as caught:
        await turn.wait(timeout=0)
    assert caught.value.certain_in == pytest.approx(60, abs=0.1)
    await turn
    assert agent.now() == pytest.approx(120, abs=0.1)


@pytest.mark.parametrize("timeout", [0, 5, 25])
@pytest.mark.parametrize("was_final", [True, False])
async def test_a_date_that_stands_still_counts_as_missing(timeout, was_final):
    """A cache or a recording answers. Short waits in ever new processes end when an hour has passed."""
    agent = FakeAgent(in_turn("completed"))
    dated(agent, frozen=True)
    turn = await (await ended(agent) if was_final else agent.job()).send("Again")
    text = str(turn.ref)
    for _ in range(80):
        try:
            await agent.elsewhere(text).wait(timeout=timeout)
            break
        except JobTimeoutError as error:
            text = str(error.ref)
            await asyncio.sleep(60)
    assert 3600 <= agent.now() <= 3600 + 2 * 90


@pytest.mark.parametrize("ahead", [None, -7200, 0, 7200])
async def test_a_new_job_may_be_missing_whatever_the_machine_says(ahead):
    """A 404 is tolerated for 30 s after the creation; elsewhere, by the service's clock."""
    for since, is_found in [(25, True), (10_000, False)]:
        agent = FakeAgent(at_times((0, refused(404)), (since, "completed")))
        dated(agent)
        job = agent.created()
        with machine(ahead or 0), contextlib.nullcontext() if is_found else pytest.raises(NotFoundError):
            assert (await (job if ahead is None else agent.elsewhere(str(job.ref)))).status == "completed"
        assert is_found or 30 < agent.now() <= 60


# Replicas that are behind ----------------------------------------------------------------------

WHOLE = os.environ.get("SWEEPS") == "whole"
"""``SWEEPS=whole python -m pytest tests/jobs/test_stale_guard.py -k grid`` runs the whole grid."""

LAGS = range(0, 51, 5) if WHOLE else (0, 20, 50)
LENGTHS = (0.5, 3.0, 10.0, 30.0, 59.0, 61.0, 90.0, 200.0) if WHOLE else (3.0, 90.0)
EARLIER = (None, 0.0, 40.0, 300.0, 900.0, "in a row") if WHOLE else (None, 40.0, "in a row")
"""For how many seconds an earlier turn is still at work at the follow-up; None: it was seen to have ended;
in a row: it was sent just before the follow-up, and takes 40 s."""
GRID_SCHEDULES = SCHEDULES[:4] if WHOLE else SCHEDULES[:1]
CLOCKS = {
    "right": (0.0, "right"),
    "machine 2 h ahead": (7200.0, "right"),
    "machine 2 h behind": (-7200.0, "right"),
    "no Date": (0.0, None),
    "a Date that stands still": (0.0, "frozen"),
    "a Date an hour back": (0.0, "back"),
}


def behind(kind, lag):
    """Return a function that gives how far behind the replica is that answers the next poll."""
    if kind == "random":
        chance = random.Random(lag)
        return lambda: chance.uniform(0, lag)
    replicas = itertools.cycle({"constant": [lag], "two": [0, lag], "three": [lag / 2, 0, lag]}[kind])
    return lambda: next(replicas)


def turns(earlier, length, age, leaving=5.0):
    """Return what a poll shows: the first turn's end, the follow-up's work after it, and its end.

    The service takes *leaving* seconds to leave the first turn's final status.
    """
    old_end = record("completed", model="before")
    before = "active" if earlier and earlier != "in a row" else old_end
    seconds = 40.0 if earlier == "in a row" else earlier or 0.0
    begins = seconds + leaving
    steps = [(begins, "active"), (begins + length, record("completed", model="after"))]
    if seconds:
        steps = [(0.0, "active"), (seconds, old_end), *steps]

    def show(now):
        at = now - age()
        return next((shown for since, shown in reversed(steps) if at >= since), before)

    return show, begins + length


WAITS = ("handle", "reference", "elsewhere", "short waits")
HOUR = ("no Date", "a Date that stands still")
"""With these clocks, short waits go on for an hour. By default, the grid has one lag and two replicas."""
GRID = [
    pytest.param(*case, marks=[pytest.mark.sweep] if WHOLE else [])
    for case in itertools.product(CLOCKS, GRID_SCHEDULES, LAGS, ("constant", "random", "two", "three"), WAITS)
    if WHOLE or case[2:4] == (20, "two") or case[0] not in HOUR or case[4] != "short waits"
]


@pytest.mark.parametrize(("clocks", "poll", "lag", "kind", "waits"), GRID)
async def test_the_grid_of_replicas_shows_no_turn_before(clocks, poll, lag, kind, waits):
    """However polls are answered, while lag and leaving are below the window: never the result before."""
    ahead, date = CLOCKS[clocks]
    for length, earlier in itertools.product(LENGTHS, EARLIER):
        agent = FakeAgent(in_turn(turns(earlier, 0, lambda: 1.0)[0](0)), poll=poll)
        if date is not None:
            dated(agent, ahead=-3600.0 if date == "back" else 0.0, frozen=date == "frozen")
        job = await ended(agent) if earlier in (None, "in a row") else agent.job()
        if earlier == "in a row":
            await job.send("Before")
        agent._began = None
        assert agent.now() == 0
        turn = await job.send("Again")
        agent.scripts["job_1"], end = turns(earlier, length, behind(kind, lag))
        if waits == "short waits":
            done = await short_waits(agent, str(turn.ref), ahead)
        else:
            with machine(0.0 if waits in ("handle", "reference") else ahead):
                if waits == "reference":
                    turn = agent.job(str(turn.ref))
                elif waits == "elsewhere":
                    turn = agent.elsewhere(str(turn.ref))
                done = await turn
                assert (await turn).model == "after", (length, earlier, "again")
        assert done.model == "after", (length, earlier)
        # In time: a window after the end was shown for good, and a poll; an hour where no Date can be used.
        late = 3600 if waits == "short waits" and date in (None, "frozen") else 0
        assert agent.now() <= max(end + lag + 60, 120, late) + 60 + 2 * poll.cap + 25, (length, earlier)


# A second look of the job next to the wait -----------------------------------------------------


def with_key(agent, turn, key):
    """Return a handle of the same turn whose polls have another key."""
    options = evolve(agent.core.options, admin_key=Key("admin", key, Assumptions()))
    return handle_for(evolve(agent.core, options=options), turn)


def hanging(agent, script, hangs):
    """Let the agent's polls show *script*, each after the seconds that *hangs* gives for its start."""

    def show(now):
        agent.latency = hangs(now)
        return script(now)

    agent.exclusive = False
    agent.scripts["job_1"] = show


@pytest.mark.parametrize("old", ["completed", "failed"])
@pytest.mark.parametrize("beside", ["refresh", "wait", "wait until the deadline"])
async def test_a_wait_whose_poll_hangs_returns_the_newer_record(beside, old):
    """The poll has the end of the turn before. Meanwhile another look of the job was accepted."""
    agent = FakeAgent(in_turn(record(old, model="before")))
    turn = await (await ended(agent)).send("Again")
    agent.looks.clear()
    agent.now()
    ends = at_times((0, record(old, model="before")), (59.5, record("completed", model="after")))
    hanging(agent, ends, lambda now: 9.8 if now < 59.9 else 0.0)
    other = with_key(agent, turn, "mint_of_another_session")
    await asyncio.sleep(51)
    timeout = 8.5 if beside == "wait until the deadline" else None
    wait = asyncio.create_task(turn.wait(timeout=timeout))
    await asyncio.sleep(9.2)
    seen = await (other.refresh() if beside == "refresh" else other.wait())
    assert seen.model == "after"
    assert turn.done
    assert not wait.done()
    assert (await wait).model == "after"


@pytest.mark.parametrize("beside", ["refresh", "wait"])
@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=[pytest.mark.sweep] if WHOLE else []) for n in range(20)]
)
async def test_a_second_look_never_makes_a_wait_return_an_old_result(beside, part):
    """Replicas lag, polls hang, and another task looks at the same job at random times."""
    for seed in range(part, 2000 if WHOLE else 200, 20):
        chance = random.Random(seed)
        agent = FakeAgent(in_turn(record("completed", model="before")), poll=PollPolicy(initial=5, factor=1))
        turn = await (await ended(agent)).send("Again")
        length = chance.choice([1.0, 20.0, 50.0])
        shown, _ = turns(None, length, lambda c=chance: c.choice([0.0, c.uniform(45, 54)]))
        hanging(agent, shown, lambda now, c=chance: c.choice([0.05, c.uniform(5, 9.5)]))
        other = with_key(agent, turn, "mint_of_another_session")

        async def look(other=other, c=chance):
            for _ in range(40):
                await asyncio.sleep(c.uniform(0.1, 6))
                with contextlib.suppress(APIConnectionError):
                    await other.refresh()

        second = asyncio.create_task(look() if beside == "refresh" else other.wait())
        assert (await turn.wait()).model == "after", seed
        second.cancel()
        await asyncio.wait([second])
        await agent.close()


# Sending ---------------------------------------------------------------------------------------


async def test_a_follow_up_is_sent_at_once_whatever_a_look_would_say():
    """A 404 of a new job delayed it by 28 s, and a look that hung took all of its time."""
    agent = FakeAgent(in_turn(refused(404)))
    assert isinstance(await agent.created().send("Again", timeout=6), FollowUp)
    assert (agent.looks, agent.sent, agent.now()) == ([], [("job_1", "Again")], 0)


@pytest.mark.parametrize(("field", "value"), [("prompt", ""), ("on_active", "queue")])
async def test_arguments_are_checked_before_any_request(field, value):
    """Not after a look, nor after half an hour of waiting until the job has ended."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError) as caught:
        await agent.job().send(**{"prompt": "Again", "on_active": "wait", field: value})
    assert caught.value.field == field
    assert agent.looks == []


async def test_on_active_raise():
    """Of an active job, of an unknown status, and while the turn before has not ended, nothing is sent."""
    agent = FakeAgent(in_turn("active", "queued", "completed"))
    job = agent.job()
    for _ in range(2):
        with pytest.raises(StateError, match="on_active"):
            await job.send("Again", on_active="raise")
    assert agent.sent == []
    await job.send("Again", on_active="raise")
    with pytest.raises(StateError):
        await job.send("And again", on_active="raise")
    assert len(agent.sent) == 1
    assert agent.asked == [("docs", "job_1", False)] * 4


@pytest.mark.parametrize("hangs", [True, False])
async def test_on_active_raise_wants_to_know(hangs):
    """When the status cannot be seen, the failure is raised; a look may take half of the time."""
    agent = FakeAgent(in_turn(down()))
    agent.latency = 3600.0 if hangs else 0.0
    with pytest.raises(APIConnectionError if hangs else ServerError):
        await agent.job().send("Again", on_active="raise", timeout=6)
    assert agent.sent == []
    assert agent.now() == (3 if hangs else 0)


async def test_on_active_wait():
    """The follow-up is sent when the turn before was seen to have ended."""
    agent = FakeAgent(at_times((0, "active"), (100, "failed")))
    turn = await agent.job().send("Again", on_active="wait")
    assert agent.now() >= 100
    assert len(agent.sent) == 1
    assert turn.ref.was_final


@pytest.mark.parametrize(
    ("timeout", "ends", "error"),
    [(5, 9, JobTimeoutError), (5, 5, APITimeoutError), (0.25, 9, JobTimeoutError)],
)
async def test_on_active_wait_ends_with_the_timeout(timeout, ends, error):
    """The whole call is limited: nothing is sent to an active job, nor when all of the time was needed."""
    agent = FakeAgent(at_times((0, "active"), (ends, "completed")))
    with pytest.raises(error) as caught:
        await agent.job().send("Again", on_active="wait", timeout=timeout)
    assert getattr(caught.value, "sent", "no") == "no"
    assert agent.sent == []
    assert agent.now() == timeout


@pytest.mark.parametrize(
    ("error", "guarded"),
    [
        (APIConnectionError("no route", sent="no"), False),
        (QuotaExceededError("used up"), False),
        (refused(429), False),
        (refused(404), False),
        (OutcomeUnknownError("?", operation="send_message"), True),
        (lost(), True),
        (RuntimeError("odd"), True),
        (asyncio.CancelledError(), True),
    ],
)
async def test_what_a_follow_up_leaves_that_failed(error, guarded):
    """Without effect, a follow-up changes nothing. After any other one, the old end does not count."""
    agent = FakeAgent(in_turn("completed"))

    async def fail():
        return error

    agent.on_send = fail
    job = await ended(agent)
    with pytest.raises(OutcomeUnknownError if error.args == lost().args else type(error)):
        await job.send("Again")
    assert (job.ref.awaiting_turn, job.done) == (guarded, not guarded)
    assert job.ref.was_final
    agent.scripts["job_1"] = at_times((0, "completed"), (30, "active"), (50, SECOND))
    assert await job == (SECOND if guarded else record("completed"))


# Several turns ---------------------------------------------------------------------------------


def test_a_session_remembers_the_newest_thousand_follow_ups():
    """A worker that runs for months does not keep each of its jobs; a newer follow-up counts anew."""
    states = JobStates()
    for number in [*range(1000), 0, 1000]:
        states.remember(states.of(JobRef("docs", f"job_{number}", sent=Stamp(number, None)), 60))
    remembered = [states.of(JobRef("docs", f"job_{number}"), 60).follow_up for number in (0, 1, 2, 1000)]
    assert [follow_up is not None for follow_up in remembered] == [True, False, True, True]


@pytest.mark.parametrize("delays", [(1.0, 2.0), (2.0, 1.0)])
@pytest.mark.parametrize("refusals", [0, 1, 2])
async def test_two_follow_ups_at_once(delays, refusals):
    """The guard of the one that was sent last stands; of two that were refused, none is left."""
    agent = FakeAgent(in_turn("completed"))
    left = [(delays[0], refusals > 0), (delays[1], refusals > 1)]

    async def answer():
        delay, refuses = left.pop(0)
        await asyncio.sleep(delay)
        return refused(429) if refuses else "active"

    agent.on_send = answer
    job = await ended(agent)
    results = await asyncio.gather(job.send("One"), job.send("Two"), return_exceptions=True)
    assert sum(isinstance(result, FollowUp) for result in results) == 2 - refusals
    assert job.done is (refusals == 2)
    if refusals == 2:
        assert not job.ref.awaiting_turn
        return
    assert not job.ref.was_final  # the other one's turn might have ended first
    agent.scripts["job_1"] = at_times((0, "completed"), (42, "active"), (52, SECOND))
    assert await job == SECOND


async def test_a_newer_reference_from_elsewhere_counts():
    """Of two follow-ups, the newer one by the service's clock, though its machine is behind."""
    agent = FakeAgent(in_turn("completed"))
    dated(agent)
    text = str((await agent.job().send("One")).ref)
    await asyncio.sleep(10)
    with machine(-7200):
        newer = (await agent.elsewhere().send("Two")).ref
    handle = agent.elsewhere(text)
    assert handle.ref.sent != newer.sent
    assert agent.job(str(newer)).ref.sent == newer.sent
    assert agent.job(text).ref.sent == newer.sent
    assert agent.job(evolve(newer, was_final=True)).ref.sent == newer.sent


async def test_looks_while_the_follow_up_is_on_its_way_settle_nothing():
    """A POST of two minutes: the old end that is seen meanwhile is not accepted."""
    agent = FakeAgent(in_turn(FIRST))

    async def slowly():
        await asyncio.sleep(120)
        return "active"

    agent.on_send = slowly
    job = await ended(agent)
    sending = asyncio.create_task(job.send("Again"))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(job.wait())
    await sending
    assert not waiting.done()
    agent.scripts["job_1"] = at_times((0, FIRST), (160, "active"), (180, SECOND))
    assert await waiting == SECOND


# Looks by handles that are gone ---------------------------------------------------------------------


async def test_a_look_by_a_dropped_handle_counts():
    """A session has seen the end of the job, whatever became of the handle; so one window is enough."""
    agent = FakeAgent(in_turn("completed"))
    await agent.job().refresh()
    gc.collect()
    turn = await agent.job().send("Again")
    assert turn.ref.was_final
    began = agent.now()
    agent.scripts["job_1"] = at_times(
        (0, "completed"), (began + 5, "active"), (began + 30, record("completed"))
    )
    await turn
    assert agent.now() - began <= 70


@pytest.mark.parametrize("later", ["a look", "a follow-up"])
async def test_a_look_by_a_dropped_handle_counts_until_the_job_runs_again(later):
    """A later look that shows the job active, or a follow-up, is newer than the end that was seen."""
    agent = FakeAgent(in_turn("completed"))
    await agent.job().refresh()
    if later == "a look":
        agent.scripts["job_1"] = in_turn("active")
        await agent.job().refresh()
    else:
        await agent.job().send("Again")
        for number in range(2, 1200):  # so many that the follow-up is forgotten
            await agent.job(f"job_{number}").send("Again")
    gc.collect()
    assert not agent.job().ref.was_final


async def test_only_the_newest_ends_are_remembered():
    """A session that looks at jobs for months does not grow."""
    agent = FakeAgent()
    for number in range(1200):
        agent.scripts[f"job_{number}"] = in_turn("completed")
        await agent.job(f"job_{number}").refresh()
    gc.collect()
    seen = [number for number in range(1200) if agent.job(f"job_{number}").ref.was_final]
    assert seen == list(range(200, 1200))
