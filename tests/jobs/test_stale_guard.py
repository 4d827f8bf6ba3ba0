"""Follow-ups: a turn never ends with the answer of the turn before."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random

import anyio
import pytest
from job_fakes import FakeAgent, at_times, down, in_turn, lost, record, refused, tasks_left

from mintlify_async.errors import (
    APIConnectionError,
    AuthenticationError,
    ConfigurationError,
    JobFailedError,
    JobTimeoutError,
    OutcomeUnknownError,
    QuotaExceededError,
    ServerError,
    StateError,
    UnexpectedResponseError,
)
from mintlify_async.jobs.handle import Turn
from mintlify_async.jobs.polling import PollPolicy
from mintlify_async.jobs.stale_guard import JobState, StaleGuard
from mintlify_async.model.job_ref import JobRef

POLICY = PollPolicy()
TERMINAL = ["completed", "archived", "failed"]
PULL = "https://github.com/a/b/pull/"


# The guard by itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", TERMINAL)
def test_active_after_an_end_is_evidence(baseline):
    """A job that had ended and is at work again works at the follow-up."""
    guard = StaleGuard(baseline)
    guard.see(record(baseline), 0.0, POLICY)
    assert guard.settled_by is None
    guard.see(record("active"), 1.0, POLICY)
    assert guard.seen
    assert guard.settled_by is None
    guard.see(record(baseline), 59.9, POLICY)
    assert guard.settled_by is None
    guard.see(record(baseline), 60.0, POLICY)
    assert guard.settled_by == "evidence"


@pytest.mark.parametrize(("baseline", "seen"), list(itertools.permutations(TERMINAL, 2)))
def test_another_end_is_evidence(baseline, seen):
    """Another terminal status than the baseline's can only be newer."""
    guard = StaleGuard(baseline)
    guard.see(record(seen), 0.0, POLICY)
    assert guard.settled_by == "evidence"


@pytest.mark.parametrize("status", ["queued", "ACTIVE", "cancelled", "Completed"])
def test_an_unknown_word_is_no_evidence(status):
    """A status that this version does not know proves nothing, and begins the window anew."""
    guard = StaleGuard("completed")
    for at in (0.0, 20.0, 40.0):
        guard.see(record("completed"), at, POLICY)
    guard.see(record(status), 59.0, POLICY)
    assert guard.settled_by is None
    for at in (61.0, 80.0, 100.0):
        guard.see(record("completed"), at, POLICY)
    assert guard.settled_by is None
    guard.see(record("completed"), 121.0, POLICY)
    assert guard.settled_by == "grace"


@pytest.mark.parametrize("baseline", ["active", None])
@pytest.mark.parametrize("end", TERMINAL)
def test_without_a_terminal_baseline_nothing_is_evidence(baseline, end):
    """Of a job that was active, or not seen, the first end may be the turn before's: it must last."""
    guard = StaleGuard(baseline)
    guard.see(record("active"), 0.0, POLICY)
    for at in (10.0, 30.0, 50.0, 69.9):
        guard.see(record(end), at, POLICY)
        assert guard.settled_by is None
    guard.see(record(end), 70.0, POLICY)
    assert guard.settled_by == "grace"


def test_activity_begins_the_window_anew():
    """The first turn's end, then the second's work: only the second's end is believed."""
    guard = StaleGuard("active")
    for at in (0.0, 20.0, 40.0, 59.0):
        guard.see(record("completed"), at, POLICY)
    guard.see(record("active"), 60.0, POLICY)
    assert not guard.settling
    guard.see(record("completed"), 70.0, POLICY)
    assert guard.settled_by is None
    for at in (80.0, 100.0, 129.0):
        guard.see(record("completed"), at, POLICY)
    assert guard.settled_by is None
    guard.see(record("completed"), 130.0, POLICY)
    assert guard.settled_by == "grace"


def test_another_end_in_the_window_begins_it_anew():
    """Completed, then failed: neither has lasted yet."""
    guard = StaleGuard("active")
    for at in (0.0, 20.0, 40.0):
        guard.see(record("completed"), at, POLICY)
    guard.see(record("failed"), 60.0, POLICY)
    assert guard.settled_by is None
    for at in (80.0, 100.0, 120.0):
        guard.see(record("failed"), at, POLICY)
    assert guard.settled_by == "grace"


def test_the_window_needs_four_looks():
    """Sixty seconds with three looks are not enough."""
    guard = StaleGuard("completed")
    for at in (0.0, 200.0, 400.0):
        guard.see(record("completed"), at, POLICY)
        assert guard.settled_by is None
    guard.see(record("completed"), 600.0, POLICY)
    assert guard.settled_by == "grace"


def test_the_window_needs_sixty_seconds():
    """Forty looks in 59.9 seconds are not enough."""
    guard = StaleGuard("completed")
    for look in range(40):
        guard.see(record("completed"), look * 59.9 / 39, POLICY)
    assert guard.settled_by is None
    guard.see(record("completed"), 60.0, POLICY)
    assert guard.settled_by == "grace"


def test_time_without_sight_does_not_count():
    """Looks that failed are no looks, and the time until the next one is not part of the window."""
    guard = StaleGuard("completed")
    for at in (0.0, 5.0, 10.0, 15.0):
        guard.see(record("completed"), at, POLICY)
    guard.miss()
    guard.miss()
    guard.see(record("completed"), 70.0, POLICY)
    assert guard.settled_by is None
    guard.see(record("completed"), 114.9, POLICY)
    assert guard.settled_by is None
    guard.see(record("completed"), 115.0, POLICY)
    assert guard.settled_by == "grace"


def test_a_guard_that_ended_stays_ended():
    """What comes later is the turn's own course."""
    guard = StaleGuard("completed")
    guard.see(record("active"), 0.0, POLICY)
    for at in range(1, 100):
        guard.see(record("completed"), float(at), POLICY)
    assert guard.settled_by == "evidence"


def test_one_look_counts_once():
    """Several waits that share a look hand it on several times."""
    track = JobState(JobRef("docs", "job_1", awaiting_turn=True, baseline="completed"))
    for at in (0.0, 59.0, 60.0):
        job = record("completed")
        for _ in range(5):
            track.see(job, at, POLICY)
    assert not track.settled
    track.see(record("completed"), 60.0, POLICY)
    assert track.settled


# Through a handle ------------------------------------------------------------------------------


def first(**fields):
    return record("completed", pr_link=PULL + "1", **fields)


def second(status="completed"):
    return record(status, pr_link=PULL + "2")


SCHEDULES = [
    PollPolicy(),
    PollPolicy(first=0.5, jitter=0.0),
    PollPolicy(initial=1.0, factor=1.0),
    PollPolicy(initial=30.0, factor=1.0, jitter=0.9),
    PollPolicy(first=7.0, initial=13.0, factor=3.0, cap=120.0),
    PollPolicy(per_second=0.2),
    PollPolicy(floor=9.0, factor=1.1),
]


@pytest.mark.parametrize("stale", [0.0, 0.5, 3.0, 10.0, 20.0, 31.0, 44.0, 45.0])
@pytest.mark.parametrize("poll", SCHEDULES, ids=range(len(SCHEDULES)))
@pytest.mark.parametrize("baseline", ["completed", "failed", "active", "unseen"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_turn_never_ends_with_the_first_answer(stale, poll, baseline, elsewhere):
    """However long the first answer is still shown, and in each process: the turn ends with its own."""
    agent = FakeAgent(poll=poll, roll=0.99)
    before = {"active": "active", "failed": record("failed", pr_link=PULL + "1")}.get(baseline, first())
    stale_answer = before if baseline == "failed" else first()
    agent.scripts["job_1"] = in_turn(down() if baseline == "unseen" else before)
    job = agent.job()
    turn = await job.send("Mention the CLI too")
    agent.scripts["job_1"] = at_times((0.0, stale_answer), (stale, "active"), (stale + 80.0, second()))
    if elsewhere:
        turn = agent.elsewhere(JobRef.parse(str(turn.ref)))
    done = await turn
    assert done.pr_link == PULL + "2"
    assert agent.sent == [("job_1", "Mention the CLI too")]
    if baseline in ("active", "unseen"):
        assert turn.settled_by == "grace"
    else:
        assert turn.settled_by == "evidence"


@pytest.mark.parametrize("poll", SCHEDULES, ids=range(len(SCHEDULES)))
async def test_an_identical_record_settles_by_grace_and_says_so(poll):
    """The turn began and ended between two looks: nothing tells it apart, so it must last."""
    agent = FakeAgent(in_turn(first()), poll=poll)
    turn = await agent.job().send("Again")
    looks_before, began = len(agent.looks), agent.clock.now()
    assert await turn == first()
    assert turn.settled_by == "grace"
    assert turn.done
    looks = agent.looks[looks_before:]
    assert len(looks) >= 4
    assert looks[-1] - looks[0] >= 60.0
    assert agent.clock.now() - began >= 60.0
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert max(gaps) <= 10.0 + 1e-9 or poll.per_second < 1


async def test_a_pull_request_or_an_archival_date_is_no_evidence():
    """They may be the first turn's, late."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    agent.scripts["job_1"] = in_turn(
        "completed", first(), first(extra={"archivedAt": "2026-01-01T00:00:00Z"})
    )
    await turn
    assert turn.settled_by == "grace"


async def test_the_answer_to_the_follow_up_is_no_evidence():
    """The POST may answer active and the next look still show the end before."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    assert turn.status == "active"
    assert not turn.done
    assert turn.settled_by is None
    assert turn.ref == JobRef("docs", "job_1", awaiting_turn=True, baseline="completed")


async def test_a_follow_up_that_answers_completed_is_not_done():
    """The POST's own answer may be the first turn's end."""
    agent = FakeAgent(in_turn(first()))

    async def answer():
        return first()

    agent.on_send = answer
    turn = await agent.job().send("Again")
    assert turn.job == first()
    assert not turn.done


@pytest.mark.parametrize(("status", "error"), [("failed", True), ("archived", False)])
async def test_another_end_ends_the_turn_at_once(status, error):
    """Completed before, failed or archived now: that is news."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    agent.scripts["job_1"] = in_turn(status)
    if error:
        with pytest.raises(JobFailedError):
            await turn
    else:
        assert (await turn).status == status
    assert turn.settled_by == "evidence"
    assert agent.clock.now() < 1


async def test_a_failure_that_lasts_is_the_turns_own():
    """Failed before and failed after settles by grace, and is raised then."""
    agent = FakeAgent(in_turn("failed"))
    turn = await agent.job().send("Again")
    with pytest.raises(JobFailedError):
        await turn
    assert turn.settled_by == "grace"


async def test_the_window_waits_out_an_outage():
    """Looks that fail while the result settles count for nothing."""
    agent = FakeAgent(at_times((0, "completed"), (20, down()), (100, "completed")))
    turn = await agent.job().send("Again")
    await turn
    assert turn.settled_by == "grace"
    assert agent.clock.now() > 130


async def test_the_window_begins_anew_elsewhere():
    """What one process has seen of the window is not carried to another."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    with pytest.raises(JobTimeoutError) as caught:
        await turn.wait(timeout=50)
    elsewhere = agent.elsewhere(str(caught.value.ref))
    assert isinstance(elsewhere, Turn)
    began = agent.clock.now()
    await elsewhere
    assert elsewhere.settled_by == "grace"
    assert agent.clock.now() - began >= 60


async def test_evidence_disarms_the_reference_after_the_window():
    """Seen active within the window, a lagging poll may still show the end before; later, none may."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    assert turn.ref.awaiting_turn
    agent.scripts["job_1"] = in_turn("active")
    await turn.refresh()
    assert turn.ref.awaiting_turn
    assert turn.ref.turn_seen
    await agent.clock.sleep(60)
    await turn.refresh()
    assert turn.settled_by == "evidence"
    assert not turn.ref.awaiting_turn
    agent.scripts["job_1"] = in_turn("completed")
    began = agent.clock.now()
    await agent.elsewhere(turn.ref)
    assert agent.clock.now() == began


async def test_a_reference_from_before_awaits_no_turn():
    """Taken before the follow-up, it names the job and guards nothing."""
    agent = FakeAgent(in_turn("completed"))
    job = agent.job()
    before = job.ref
    await job.send("Again")
    assert not before.awaiting_turn
    assert job.ref.awaiting_turn


async def test_refresh_knows_of_the_guard():
    """A task that looks once and reschedules itself asks done, not the record."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    looked = await turn.refresh()
    assert looked.done
    assert not turn.done
    for _ in range(4):
        await agent.clock.sleep(20)
        await turn.refresh()
    assert turn.done
    assert turn.settled_by == "grace"


# Replicas that are behind ----------------------------------------------------------------------

WHOLE = os.environ.get("SWEEPS") == "whole"
"""``SWEEPS=whole python -m pytest tests/jobs/test_stale_guard.py -k grid`` runs the whole grid."""

LAGS = range(0, 51, 5) if WHOLE else (0, 5, 20, 50)
LENGTHS = (0.5, 3.0, 10.0, 30.0, 59.0, 61.0, 90.0, 200.0) if WHOLE else (3.0, 30.0, 90.0)
LINKS = (None, "1", "2")  # of the turn before; the follow-up's is 1
GRID_SCHEDULES = SCHEDULES[:5] if WHOLE else SCHEDULES[:2]


def behind(kind, lag):
    """Return a function that gives how far behind the replica is that answers the next poll."""
    if kind == "random":
        chance = random.Random(lag)
        return lambda: chance.uniform(0, lag)
    replicas = itertools.cycle({"constant": [lag], "two": [0, lag], "three": [lag / 2, 0, lag]}[kind])
    return lambda: next(replicas)


@pytest.mark.parametrize("waits", ["handle", "reference", "elsewhere", "elsewhere later"])
@pytest.mark.parametrize("kind", ["constant", "random", "two", "three"])
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("poll", GRID_SCHEDULES, ids=range(len(GRID_SCHEDULES)))
async def test_the_grid_of_replicas_shows_no_turn_before(poll, lag, kind, waits):
    """However polls are answered, as long as they are no more than 50 s behind."""
    for length, link in itertools.product(LENGTHS, LINKS):
        before = record("completed", pr_link=link and PULL + link, model="before")
        after = record("completed", pr_link=PULL + "1", model="after")
        agent = FakeAgent(in_turn(before), poll=poll)
        turn = await agent.job().send("Again")
        age = behind(kind, lag)

        def show(now, age=age, before=before, after=after, length=length):
            at = now - age()
            return before if at < 0 else "active" if at < length else after

        agent.scripts["job_1"] = show
        if waits == "reference":
            turn = agent.job(str(turn.ref))
        elif waits == "elsewhere":
            turn = agent.elsewhere(str(turn.ref))
        elif waits == "elsewhere later":
            with contextlib.suppress(JobTimeoutError):
                await turn.wait(timeout=lag + 1)
            turn = agent.elsewhere(str(turn.ref))
        assert (await turn).model == "after", (length, link)
        assert (await turn).model == "after", (length, link, "again")


async def test_a_short_turn_ends_with_the_window():
    """Seen active, with an equal record: believed 60 s after the follow-up, no later."""
    agent = FakeAgent(in_turn(first()))
    turn = await agent.job().send("Again")
    agent.scripts["job_1"] = at_times((0, "active"), (5, first()))
    await turn
    assert turn.settled_by == "evidence"
    assert agent.clock.now() == 60


@pytest.mark.parametrize(("end", "at_once"), [(second(), True), (record("archived"), True), (first(), False)])
async def test_what_the_turn_before_cannot_have_shown_ends_at_once(end, at_once):
    """Another status, or another pull request where there was one."""
    agent = FakeAgent(in_turn(first()))
    turn = await agent.job().send("Again")
    agent.scripts["job_1"] = at_times((0, "active"), (5, end))
    await turn
    assert (agent.clock.now() < 20) is at_once


async def test_a_result_that_was_believed_does_not_bring_the_one_before_back():
    """The next wait may be answered by a replica that is behind."""
    agent = FakeAgent(in_turn(first()))
    turn = await agent.job().send("Again")
    agent.scripts["job_1"] = in_turn("active", second(), first(), second())
    assert await turn == second()
    assert await turn == second()
    assert turn.ref.awaiting_turn


# Sending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delays", [(1, 2), (2, 1)], ids=["in order", "the last first"])
async def test_follow_ups_at_once_that_are_refused_change_nothing(delays):
    """Whichever refusal comes first: no guard is left that nothing would ever end."""
    agent = FakeAgent(in_turn("completed"))
    job = agent.job()
    left = list(delays)

    async def refuse():
        await agent.clock.sleep(left.pop(0))
        return refused(429)

    agent.on_send = refuse
    outcomes = await asyncio.gather(job.send("a"), job.send("b"), return_exceptions=True)
    assert [outcome.status for outcome in outcomes] == [429, 429]
    assert not job.ref.awaiting_turn
    assert (await job).status == "completed"
    assert agent.clock.now() == 2


async def test_a_baseline_from_before_another_follow_up_is_none():
    """A slow look, and meanwhile another turn begins: its work is no evidence of the one sent after it."""
    end, first, second = (record("completed", pr_link=f"https://x/pull/{n}") for n in range(3))
    agent = FakeAgent(at_times((0, end), (3, "active"), (40, first), (75, "active"), (100, second)))
    agent.exclusive = False
    job = agent.job()
    agent.latency = 20
    slow = asyncio.create_task(job.send("Second"))
    await asyncio.sleep(0)
    agent.latency = 0
    waiting = asyncio.create_task((await job.send("First")).wait())
    turn = await slow
    assert [prompt for _, prompt in agent.sent] == ["First", "Second"]
    assert await turn == await waiting == second


async def test_one_look_and_one_post():
    """The baseline is one poll without retries; then the follow-up is sent once."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Mention the CLI too")
    assert agent.asked == [("docs", "job_1", False)]
    assert agent.sent == [("job_1", "Mention the CLI too")]
    assert isinstance(turn, Turn)


async def test_a_wrong_key_raises_before_the_post():
    """The follow-up would be refused as well."""
    agent = FakeAgent(in_turn(refused(401)))
    with pytest.raises(AuthenticationError):
        await agent.job().send("Again")
    assert agent.sent == []


@pytest.mark.parametrize(
    "error",
    [lost(), down(), *map(refused, (400, 403, 404, 405, 409, 429)), UnexpectedResponseError("no job")],
)
async def test_other_failures_leave_the_baseline_unseen(error):
    """The follow-up is sent all the same, and its result must settle."""
    agent = FakeAgent(in_turn(error))
    turn = await agent.job().send("Again")
    assert len(agent.sent) == 1
    assert turn.ref == JobRef("docs", "job_1", awaiting_turn=True)
    agent.scripts["job_1"] = in_turn("active", "completed")
    await turn
    assert turn.settled_by == "grace"


@pytest.mark.parametrize("prompt", ["", None, 3, b"x", ["x"]])
async def test_a_prompt_is_checked_before_any_request(prompt):
    """Nothing is asked and nothing sent."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError) as caught:
        await agent.job().send(prompt)
    assert caught.value.field == "prompt"
    assert agent.looks == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("headers", "X-Team: docs"),
        ("headers", {"X Team": "docs"}),
        ("headers", {"Authorization": "mine"}),
        ("extra_body", "docs"),
        ("extra_body", {"team": {1, 2}}),
    ],
)
async def test_further_fields_are_checked_before_any_request(field, value):
    """Not after a look, nor after half an hour of waiting until the job has ended."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError) as caught:
        await agent.job().send("Again", on_active="wait", **{field: value})
    assert caught.value.field == ("extra_body.team" if isinstance(value, dict) and "team" in value else field)
    assert agent.looks == []


async def test_on_active_is_checked_before_any_request():
    """A word that it does not know is refused."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError) as caught:
        await agent.job().send("Again", on_active="queue")
    assert caught.value.field == "on_active"
    assert agent.looks == []


async def test_on_active_raise():
    """Of an active job, and of one whose turn before has not ended, nothing is sent."""
    agent = FakeAgent(in_turn("active"))
    job = agent.job()
    with pytest.raises(StateError, match="on_active"):
        await job.send("Again", on_active="raise")
    assert agent.sent == []
    agent.scripts["job_1"] = in_turn("completed")
    await job.send("Again", on_active="raise")
    with pytest.raises(StateError):
        await job.send("And again", on_active="raise")
    assert len(agent.sent) == 1


async def test_on_active_raise_wants_to_know():
    """When the status cannot be seen, the failure is raised rather than the risk taken."""
    agent = FakeAgent(in_turn(down()))
    with pytest.raises(ServerError):
        await agent.job().send("Again", on_active="raise")
    assert agent.sent == []


async def test_on_active_wait():
    """The follow-up is sent when the turn before has ended; that end is the baseline."""
    agent = FakeAgent(at_times((0, "active"), (100, "failed")))
    turn = await agent.job().send("Again", on_active="wait")
    assert agent.clock.now() >= 100
    assert len(agent.sent) == 1
    assert turn.ref == JobRef("docs", "job_1", awaiting_turn=True, baseline="failed")


async def test_an_unknown_status_counts_as_active():
    """A word added next year is not an end."""
    agent = FakeAgent(in_turn("queued"))
    job = agent.job()
    with pytest.raises(StateError):
        await job.send("Again", on_active="raise")
    turn = await job.send("Again")
    assert turn.ref.baseline == "active"


@pytest.mark.parametrize(
    "error",
    [
        APIConnectionError("no route", sent="no"),
        QuotaExceededError("used up"),
        ConfigurationError("no key"),
        refused(429),
        refused(404),
        refused(409),
    ],
)
async def test_a_follow_up_that_had_no_effect_leaves_no_guard(error):
    """What was not sent, or was refused, changes nothing."""
    agent = FakeAgent(in_turn("completed"))

    async def fail():
        return error

    agent.on_send = fail
    job = agent.job()
    with pytest.raises(type(error)):
        await job.send("Again")
    assert not job.ref.awaiting_turn
    assert job.done
    assert (await job).status == "completed"


@pytest.mark.parametrize(
    "error", [OutcomeUnknownError("?", operation="send_message"), lost(), down(), RuntimeError("odd")]
)
async def test_a_follow_up_of_unknown_outcome_is_guarded(error):
    """It may be active: a wait for the job does not take the old end for the new."""
    agent = FakeAgent(in_turn("completed"))

    async def fail():
        return error

    agent.on_send = fail
    job = agent.job()
    with pytest.raises(type(error)):
        await job.send("Again")
    assert job.ref == JobRef("docs", "job_1", awaiting_turn=True, baseline="completed")
    agent.scripts["job_1"] = at_times((0, "completed"), (30, "active"), (50, second()))
    assert await job == second()


async def test_a_cancelled_follow_up_is_guarded():
    """Cancelled on the way, it may have arrived."""
    agent = FakeAgent(in_turn("completed"))
    agent.on_send = asyncio.Event().wait
    job = agent.job()
    sending = asyncio.create_task(job.send("Again"))
    await agent.clock.settle()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert job.ref.awaiting_turn


# Several turns ---------------------------------------------------------------------------------


async def test_an_earlier_turn_waits_for_the_newest():
    """The handle, the first turn and the second all end with the second's result."""
    agent = FakeAgent(in_turn(first()))
    job = agent.job()
    one = await job.send("One")
    waiting = asyncio.gather(job.wait(), one.wait())
    await agent.clock.settle()
    two = await one.send("Two")
    now = agent.clock.now()
    agent.scripts["job_1"] = at_times((0, first()), (now + 30, "active"), (now + 60, second()))
    third = await two
    assert [third, *await waiting] == [second()] * 3


async def test_the_second_of_two_turns_in_a_row_does_not_end_with_the_first():
    """Sent before the first was seen at work: the activity that comes may be the first's."""
    agent = FakeAgent(in_turn(record("completed", pr_link=PULL + "0")))
    job = agent.job()
    one = await job.send("One")
    two = await job.send("Two")
    assert two.ref.baseline == "active"
    now = agent.clock.now()
    agent.scripts["job_1"] = at_times(
        (0, record("completed", pr_link=PULL + "0")),
        (now + 10, "active"),
        (now + 40, first()),
        (now + 85, "active"),
        (now + 120, second()),
    )
    assert (await two).pr_link == PULL + "2"
    assert one.settled_by == two.settled_by == "grace"


async def test_a_turn_after_a_settled_one_is_guarded_by_its_own_baseline():
    """The first was seen through to its end; that end is the second's baseline."""
    agent = FakeAgent(in_turn("completed", "active", first()))
    one = await agent.job().send("One")
    await one
    two = await one.send("Two")
    assert two.ref.baseline == "completed"
    agent.scripts["job_1"] = in_turn(first(), "active", second())
    assert await two == second()
    assert two.settled_by == "evidence"


async def test_a_turn_of_another_process():
    """Its reference is all that is needed to wait for it, also while its first answer is stale."""
    here, there = FakeAgent(in_turn(first())), FakeAgent(in_turn(first()))
    text = str((await there.job().send("From there")).ref)
    here.scripts["job_1"] = at_times((0, first()), (45, "active"), (60, second()))
    assert await here.job(text) == second()


async def test_a_look_from_before_says_nothing_of_the_turn():
    """A poll that began before the follow-up and ends after it is not believed."""
    agent = FakeAgent(in_turn("active"))
    agent.exclusive, agent.latency = False, 5.0
    job = agent.job()
    waiting = asyncio.create_task(job.wait())
    await agent.clock.sleep(0.1)
    assert agent.under_way
    agent.latency, agent.scripts["job_1"] = 0.0, in_turn("completed")
    turn = await job.send("Again")
    await agent.clock.sleep(8.0)
    assert turn.settled_by is None
    assert turn.status == "completed"
    await waiting
    assert turn.settled_by == "grace"


async def test_looks_while_the_follow_up_is_on_its_way_settle_nothing():
    """A POST of two minutes: the old end that is seen meanwhile is no grace, however long it lasts."""
    agent = FakeAgent(in_turn(first()))

    async def slowly():
        await agent.clock.sleep(120)
        return "active"

    agent.on_send = slowly
    job = agent.job()
    sending = asyncio.create_task(job.send("Again"))
    await agent.clock.sleep(0.1)
    waiting = asyncio.create_task(job.wait())
    await sending
    assert not waiting.done()
    now = agent.clock.now()
    agent.scripts["job_1"] = at_times((0, first()), (now + 40, "active"), (now + 60, second()))
    assert await waiting == second()


@pytest.mark.parametrize("refused_first", [True, False])
async def test_two_follow_ups_at_once(refused_first):
    """One refused, one sent: the guard of the one that was sent stands."""
    agent = FakeAgent(in_turn("completed"))
    delays = [1.0, 2.0]

    async def answer():
        delay = delays.pop(0)
        await agent.clock.sleep(delay)
        return refused(429) if (delay == 1.0) is refused_first else "active"

    agent.on_send = answer
    job = agent.job()
    results = await asyncio.gather(job.send("One"), job.send("Two"), return_exceptions=True)
    turn = results[1 if refused_first else 0]
    assert isinstance(turn, Turn)
    assert turn.ref.awaiting_turn
    assert not turn.done
    now = agent.clock.now()
    agent.scripts["job_1"] = at_times((0, "completed"), (now + 40, "active"), (now + 50, second()))
    assert await turn == second()


async def test_a_timeout_around_a_turn_leaves_nothing():
    """The scope ends the wait; the guard stands for the next."""
    agent = FakeAgent(in_turn("completed"))
    turn = await agent.job().send("Again")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await turn
    assert turn.ref.awaiting_turn
    assert len(agent.scheduler()) == 0
    assert tasks_left() == []
