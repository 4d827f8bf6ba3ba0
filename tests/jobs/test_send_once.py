"""At most once: a key's request is sent once, and a key is free again when nothing was started."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from functools import partial

import anyio
import pytest
from aioresponses import aioresponses
from attrs import evolve

from mintlify_async import (
    ConfigurationError,
    Ledger,
    MemoryStore,
    MintlifySession,
    OutcomeUnknownError,
    PollPolicy,
    Quota,
    RateLimitError,
    SQLiteStore,
    StateError,
)
from mintlify_async.errors import APIStatusError
from mintlify_async.jobs.key_watch import KeyWatch
from mintlify_async.jobs.ledger import OPEN, Claim, begin, claim_keys
from mintlify_async.jobs.send_once import OnceSender, Recordings
from mintlify_async.runtime import clock
from mintlify_async.storage.store import change
from mintlify_async.testing import JobLife, Reset
from tests.support.keyed_worker import opened


class Troubled(MemoryStore):
    """A store in memory whose steps can fail, hang, or lose their answer; it notes each state."""

    def __init__(self):
        super().__init__()
        self.trouble = None  # called with the folder and the state before each write
        self.set_back = 0.0  # by how many seconds its clock was set back
        self.lost = 0  # so many writes are made, and their answers are lost
        self.states = []

    async def read(self, keys):
        snapshot = await super().read(keys)
        return evolve(snapshot, now=snapshot.now - self.set_back)

    async def write(self, changes, **further):
        states = [json.loads(value)["state"] for value in changes.values() if value is not None]
        states = states or ["released"]
        if self.trouble is not None:
            await self.trouble(states[0])
        written = await super().write(changes, **further)
        if written:
            self.states.append(states[0])
        if self.lost:
            self.lost -= 1
            raise StateError("no answer")
        return written


def failing(state, seconds):
    """Let every write of *state* fail for so many seconds from now on."""
    end = asyncio.get_running_loop().time() + seconds

    async def trouble(given):
        if given == state and asyncio.get_running_loop().time() < end:
            raise StateError("the file is locked")

    return trouble


async def unless_closed(step):
    return await step


def claim(key="k", prompt="Fix it"):
    return Claim(key=key, operation="create_job", parts={"prompt": prompt}, token="", lease=0.0)


class Post:
    """A POST that is counted, by the bytes that it writes."""

    def __init__(self, outcome="job_1", *, connects=0.0, answers=0.0):
        self.outcome, self.connects, self.answers, self.count = outcome, connects, answers, 0

    async def __call__(self, sending):
        attempt = sending.begin()
        sending.ends_at = now() + 60
        try:
            await asyncio.sleep(self.connects)
            try:
                await sending.first_byte(attempt)
            except ConnectionAbortedError:
                raise sending.failure or StateError("sealed") from None
            self.count += 1
            await asyncio.sleep(self.answers)
        finally:
            sending.seal()
        sending.status = self.outcome.status if isinstance(self.outcome, APIStatusError) else 0
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


async def send(store, post, *, timeout=None, watch=None, **further):
    """Send as one call does. Each has a watch of its own, as a call of another process has."""
    until = math.inf if timeout is None else now() + timeout
    watch = watch or KeyWatch()
    sender = OnceSender(claim(**further), store, watch, Recordings(), unless_closed, until)
    try:
        return await sender.send(post, str)
    finally:
        await watch.close()


def now():
    return asyncio.get_running_loop().time()


# With every store ------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        yield SQLiteStore(tmp_path / "ledger.db")
    elif request.param == "postgres":
        async with opened(request.getfixturevalue("postgres_server").url) as store:
            yield store
    else:
        from mintlify_async.contrib.redis import RedisStore

        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisStore(client)


async def test_racers_make_one_post(store):
    """Of twenty calls at once one sends, and all get its result; so does every later call."""
    post = Post(answers=0.05)
    assert await asyncio.gather(*(send(store, post) for _ in range(20))) == ["job_1"] * 20
    assert await send(store, post) == "job_1"
    assert post.count == 1
    assert await Ledger(store).open_claims() == []
    assert (await Ledger(store).find("k")).result == "job_1"


async def test_what_had_no_effect_frees_the_key(store):
    """A refusal, a redirect, and what ends before the first byte; the next call sends."""
    for error in (
        APIStatusError("bad", status=400),
        APIStatusError("moved", status=307),
        RateLimitError("x", status=429),
    ):
        with pytest.raises(APIStatusError):
            await send(store, Post(error))
    never = Post(connects=60)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(store, never), 0.1)
    while await Ledger(store).find("k") is not None:  # the release may take longer than its caller waits
        await asyncio.sleep(0.01)
    post = Post()
    assert await send(store, post) == "job_1"
    assert (never.count, post.count) == (0, 1)


async def test_people_close_what_is_open(store):
    """Listed, resolved once, forgotten; and keys of any text."""
    ledger = Ledger(store)
    for key in ("a/b", "é {x}", "c"):
        with pytest.raises(OutcomeUnknownError):
            await send(store, Post(OutcomeUnknownError("?", operation="create_job")), key=key)
    listed = await ledger.open_claims()
    assert sorted(one.key for one in listed) == ["a/b", "c", "é {x}"]
    assert {one.state for one in listed} == {"unknown"}
    await ledger.resolve("a/b", "job_7")
    await ledger.resolve("a/b", "job_7")
    for key in ("a/b", "unknown"):
        with pytest.raises(ConfigurationError, match="no open claim"):
            await ledger.resolve(key, "job_8")
    with pytest.raises(ConfigurationError):
        await ledger.resolve("c", "")
    await ledger.forget("é {x}")
    assert [one.key for one in await ledger.open_claims()] == ["c"]
    post = Post()
    assert await send(store, post, key="a/b") == "job_7"
    assert await send(store, post, key="é {x}") == "job_1"
    assert post.count == 1


# In virtual time -------------------------------------------------------------------------------


@pytest.fixture
def troubled(virtual):
    return Troubled()


async def test_a_record_is_retried_for_a_minute(troubled):
    """D2: after 8 s without the file, 20 of 20 paid jobs are recorded; their callers wait 5 s."""
    troubled.trouble = failing("done", 8)
    began = now()
    sent = await asyncio.gather(*(send(troubled, Post(f"job_{n}"), key=f"k{n}") for n in range(20)))
    assert sent == [f"job_{n}" for n in range(20)]
    assert now() - began == pytest.approx(5, abs=0.1)
    await asyncio.sleep(5)
    assert [(await Ledger(troubled).find(f"k{n}")).result for n in range(20)] == sent


async def test_a_cancelled_caller_leaves_at_once_and_the_record_is_made(troubled, caplog):
    """The log has the job's id."""
    troubled.trouble = failing("done", 8)
    call = asyncio.create_task(send(troubled, Post()))
    await asyncio.sleep(1)
    call.cancel()
    began = now()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    assert now() == began
    (note,) = caught.value.__notes__
    assert note.startswith("create_job with dedupe_key 'k': job_1, sent at 20")
    assert "'k': job_1 is not recorded yet" in caplog.text
    await asyncio.sleep(10)
    assert (await Ledger(troubled).find("k")).result == "job_1"


async def test_a_record_that_cannot_be_made_is_given_up_after_a_minute(troubled, caplog):
    """The job is returned all the same; the key stays, and is never sent again."""
    troubled.trouble = failing("done", 1e9)
    assert await send(troubled, Post()) == "job_1"
    await asyncio.sleep(70)
    assert "job_1 was not recorded; resolve its key" in caplog.text
    with pytest.raises(OutcomeUnknownError):
        await send(troubled, Post())


async def test_a_release_is_retried_and_its_caller_does_not_wait(troubled):
    """A quarter of a second; the service's error is raised, not the store's."""
    troubled.trouble = failing("released", 20)
    began = now()
    with pytest.raises(APIStatusError):
        await send(troubled, Post(APIStatusError("bad", status=400)))
    assert now() - began == pytest.approx(0.25, abs=0.01)
    await asyncio.sleep(25)
    assert await Ledger(troubled).find("k") is None


async def test_what_people_see_of_open_claims(troubled):
    """A killed call's claim is unknown in the end; a record that claims nothing is not shown."""
    dead = asyncio.create_task(send(troubled, Post(answers=1e6), key="killed"))
    await asyncio.sleep(1)
    troubled.lost = 1
    with pytest.raises(StateError):
        await send(troubled, Post(), key="free")
    assert await troubled.keys("claims/open/f") == ["claims/open/free"]
    ledger = Ledger(troubled)
    [claim] = await ledger.open_claims()
    assert (claim.key, claim.state) == ("killed", "sending")
    assert claim.unknown_from - claim.since == pytest.approx(60 + 65, abs=1)
    await asyncio.sleep(125)
    assert [(claim.key, claim.state) for claim in await ledger.open_claims()] == [("killed", "unknown")]
    dead.cancel()
    await asyncio.wait([dead])


async def test_a_claim_whose_answer_was_lost_does_not_burn_the_key(troubled):
    """D4: nothing was sent, so the claim is deleted, and the next call sends at once."""
    troubled.lost = 1
    began = now()
    with pytest.raises(StateError):
        await send(troubled, Post())
    post = Post()
    assert await send(troubled, post) == "job_1"
    assert post.count == 1
    assert now() - began < 1


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_cancelled_while_the_claim_is_written(troubled, how):
    """Nothing was sent, and the key is free; by asyncio's cancellation and by anyio's."""

    async def hang(state):
        if state == "sending":
            await asyncio.sleep(3)

    troubled.trouble = hang
    post = Post()
    if how == "task":
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(troubled, post), 1)
    else:
        with anyio.move_on_after(1):
            await send(troubled, post)
    await asyncio.sleep(5)
    assert post.count == 0
    assert await Ledger(troubled).find("k") is None


async def test_a_claim_that_comes_late_burns_no_key_after_another_call(virtual):
    """The record that claims nothing holds it off for an hour, after another call with the key, too."""

    class Late(MemoryStore):
        seconds = 1.5

        async def write(self, changes, **further):
            seconds, self.seconds = self.seconds, 0.0

            async def arrive():
                await asyncio.sleep(seconds)
                return await MemoryStore.write(self, changes, **further)

            return await asyncio.shield(asyncio.create_task(arrive()))

    store = Late()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(store, Post()), 0.5)
    assert await store.keys(OPEN) == [f"{OPEN}k"]
    assert await Ledger(store).open_claims() == [], "this record is no claim"
    with pytest.raises(APIStatusError):
        await send(store, Post(APIStatusError("bad", status=400)))
    await asyncio.sleep(5)
    assert await Ledger(store).find("k") is None
    post = Post()
    assert await send(store, post) == "job_1"
    assert post.count == 1


async def test_an_error_of_anybody_ends_the_claim(troubled):
    """A middleware's, which may have a ``reason`` and a ``status`` of its own: no text of it is recorded."""
    error = LookupError("?")
    error.reason, error.status = object(), "gone"
    with pytest.raises(LookupError):
        await send(troubled, Post(error))
    claim = await Ledger(troubled).find("k")
    assert (claim.state, claim.reason, claim.status) == ("unknown", "cancelled", None)


async def test_a_state_that_cannot_be_written_sends_nothing(troubled):
    """The first byte waits for it; afterwards the key is free."""
    troubled.trouble = failing("sending", 5)
    post = Post()
    with pytest.raises(StateError, match="locked"):
        await send(troubled, post)
    assert post.count == 0
    assert await Ledger(troubled).find("k") is None


@pytest.mark.parametrize("set_back", [0.0, 86_400.0])
async def test_a_killed_sender_is_unknown_after_its_limit(troubled, caplog, set_back):
    """60 s, 5 s, and 60 s for the record; at once if the store's clock was set back further than that."""
    caplog.set_level(logging.INFO)
    dead = asyncio.create_task(send(troubled, Post(answers=1e6)))
    await asyncio.sleep(0.1)
    post, began = Post(), now()
    loser = asyncio.create_task(send(troubled, post))
    await asyncio.sleep(20)
    troubled.set_back = set_back
    with pytest.raises(OutcomeUnknownError, match="not_recorded") as caught:
        await loser
    assert now() - began == pytest.approx(22 if set_back else 125, abs=3)
    since = clock.as_text(caught.value.sent_at)
    text = f"dedupe_key 'k': another call has been sending it since {since}, or its process has died"
    (told, warned) = [one for one in caplog.records if text in one.getMessage()]
    assert (told.levelno, warned.levelno) == (logging.INFO, logging.WARNING)
    assert "up to 125 s" in told.getMessage()
    assert "up to 115 s" in warned.getMessage()
    assert (caught.value.reason, caught.value.operation) == ("not_recorded", "create_job")
    assert caught.value.dedupe_key == "k"
    assert caught.value.sent_at == pytest.approx(clock.now() - (now() - began), abs=3)
    assert post.count == 0
    dead.cancel()
    await asyncio.wait([dead])


async def test_a_loser_ends_in_its_own_time(troubled):
    """It says since when another call is sending, from when that is unknown, and that it has sent nothing."""
    winner = asyncio.create_task(send(troubled, Post(answers=50)))
    await asyncio.sleep(0.1)
    began, post = now(), Post()
    with pytest.raises(
        StateError, match=r"since 20..-.*Z; from 20..-.*Z its outcome counts as unknown; this"
    ):
        await send(troubled, post, timeout=5)
    assert now() - began == pytest.approx(5, abs=0.25)
    assert post.count == 0
    assert await winner == "job_1"


@pytest.mark.parametrize("how", ["error", "cancelled"])
async def test_an_unknown_outcome_is_told_at_once(troubled, how):
    """By the call that sent, with what it knew; every later call raises at once, as does one that waits."""
    outcome = OutcomeUnknownError("?", operation="create_job", reason="server_error", status=503)
    first = asyncio.create_task(send(troubled, Post(outcome if how == "error" else "job_1", answers=5)))
    await asyncio.sleep(1)
    waiting = asyncio.create_task(send(troubled, Post()))
    await asyncio.sleep(1)
    if how == "cancelled":
        first.cancel()
    with pytest.raises((OutcomeUnknownError, asyncio.CancelledError)):
        await first
    began = now()
    for call in (send(troubled, Post()), waiting):
        with pytest.raises(OutcomeUnknownError) as caught:
            await call
        known = (caught.value.reason, caught.value.status)
        assert known == (("server_error", 503) if how == "error" else ("cancelled", None))
        assert caught.value.sent_at == pytest.approx(
            clock.now() - (now() - began) - (5 if how == "error" else 2), abs=1
        )
    assert now() - began <= 1.1
    assert (await Ledger(troubled).find("k")).state == "unknown"


async def test_another_request_with_the_key_is_refused_at_once(troubled):
    """Not after the first one's end: neither in the same session nor in another one."""
    watch = KeyWatch()
    first = asyncio.create_task(send(troubled, Post(answers=30), watch=watch))
    await asyncio.sleep(1)
    began = now()
    for further in ({"watch": watch}, {}):
        with pytest.raises(ConfigurationError, match="another prompt"):
            await send(troubled, Post(), prompt="Fix that", **further)
    assert now() == began
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.parametrize("state", ["claimed", "sending", "done"])
async def test_a_record_of_version_0_3(troubled, state):
    """*claimed* is free, whatever its lease; the others are as they were."""
    fields = {"version": 1, "operation": "create_job", "parts": {"prompt": "Fix it"}, "token": "t"}
    result = "job_0" if state == "done" else None
    value = json.dumps(
        fields | {"lease": 65 if state == "sending" else 1e4, "state": state, "result": result}
    )
    folder = "done" if state == "done" else "open"
    await troubled.write({f"claims/{folder}/k": value.encode()}, expected={}, version="v")
    if state == "sending":
        with pytest.raises(StateError):
            await send(troubled, Post(), timeout=5)
        await asyncio.sleep(125)
        with pytest.raises(OutcomeUnknownError):
            await send(troubled, Post())
    else:
        assert await send(troubled, Post()) == ("job_0" if state == "done" else "job_1")


@pytest.mark.parametrize(
    "other",
    [
        {"version": 3},
        {"state": "paused"},
        {"state": ["sending"]},
        {"state": "done"},
        {"state": "unknown"},
        {"version": 2, "state": "unknown", "sent": "yesterday", "reason": "lost", "status": None},
        {"state": "done", "result": 7},
        {"lease": None},
        {"parts": None},
        {"operation": 7},
        {"paused": True},
    ],
)
async def test_a_record_that_cannot_be_read_is_refused_at_once(troubled, other):
    """Damaged, or of a later version, whose states nobody here can wait for. Nothing is sent."""
    fields = {"version": 1, "operation": "create_job", "parts": {"prompt": "Fix it"}, "token": "t"}
    fields |= {"lease": 65.0, "state": "sending", "result": None} | other
    await troubled.write({f"{OPEN}k": json.dumps(fields).encode()}, expected={}, version="v")
    began, post = now(), Post()
    for _ in range(2):
        with pytest.raises(StateError, match="'k' cannot be read; nothing was sent"):
            await send(troubled, post, timeout=5)
    assert now() == began
    assert post.count == 0


async def test_a_thousand_keys_that_wait_are_read_in_one_step(troubled):
    """About once a second, whatever their number."""
    watch, reads, read = KeyWatch(), [], troubled.read

    async def noted(keys):
        reads.append(len(keys))
        return await read(keys)

    for number in range(1000):
        held = evolve(claim(f"k{number}"), token="t", lease=600.0)
        await change(troubled, claim_keys(held.key), partial(begin, ours=held))
    troubled.read = noted
    calls = [
        asyncio.create_task(send(troubled, Post(), watch=watch, key=f"k{n}", timeout=60)) for n in range(1000)
    ]
    await asyncio.sleep(15)
    reads.clear()
    await asyncio.sleep(5)
    assert len(reads) <= 6
    assert max(reads) == 2000
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


@pytest.mark.parametrize("after", [1, 20])
async def test_a_ledger_that_is_away_for_good_ends_a_wait(troubled, after):
    """When the other call's outcome would have been final, and not before: no wait is without end."""
    winner = asyncio.create_task(send(troubled, Post(answers=1e6)))
    await asyncio.sleep(0.1)
    began, post, read = now(), Post(), troubled.read
    loser = asyncio.create_task(send(troubled, post))
    await asyncio.sleep(after)

    async def away(keys):
        raise StateError("the file is locked")

    troubled.read = away
    with pytest.raises(StateError, match="locked"):
        await asyncio.wait_for(loser, 1000)
    assert now() - began == pytest.approx(125, abs=12)
    troubled.read = read
    winner.cancel()
    await asyncio.wait([winner])
    assert post.count == 0


async def test_a_timeout_of_the_ledger_itself_is_told(troubled):
    """It is not the end of the call's time."""

    async def read(keys):
        raise TimeoutError("no connection is free")

    troubled.read = read
    with pytest.raises(TimeoutError, match="no connection is free"):
        await send(troubled, Post(), timeout=60)


async def test_a_task_factory_that_fails_ends_no_watch(troubled):
    """A caller that waits hears of the end all the same, by a later look."""
    loop, left = asyncio.get_running_loop(), 3

    def failing(loop, work, **options):
        nonlocal left
        if left and work.__qualname__ == "KeyWatch._read":
            left -= 1
            raise MemoryError
        return asyncio.Task(work, loop=loop, **options)

    winner = asyncio.create_task(send(troubled, Post(answers=50)))
    await asyncio.sleep(1)
    loser = asyncio.create_task(send(troubled, Post()))
    await asyncio.sleep(20)
    errors = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    loop.set_task_factory(failing)
    try:
        await asyncio.sleep(10)
    finally:
        loop.set_task_factory(None)
        loop.set_exception_handler(None)
    assert [type(error) for error in errors] == [MemoryError] * 3
    await winner
    began = now()
    assert await asyncio.wait_for(loser, 500) == "job_1"
    assert now() - began <= 1.1


async def test_a_loser_sends_when_the_winner_was_refused(troubled):
    """One of those that wait; the others get its job."""
    refused, post = Post(APIStatusError("bad", status=400), answers=5), Post(answers=5)
    winner = asyncio.create_task(send(troubled, refused))
    await asyncio.sleep(1)
    assert await asyncio.gather(*(send(troubled, post) for _ in range(5))) == ["job_1"] * 5
    with pytest.raises(APIStatusError):
        await winner
    assert (refused.count, post.count) == (1, 1)


# Through a session -----------------------------------------------------------------------------


async def test_a_key_is_free_while_a_refused_call_pauses(service, troubled):
    """Nothing is under way in the pause, so a kill in it burns no key."""
    service.script.create_job(status=429, headers={"Retry-After": "20"})
    async with service.session(ledger=troubled) as session:
        creating = asyncio.create_task(session.create_job("Fix it", dedupe_key="k"))
        await asyncio.sleep(5)
        assert await Ledger(troubled).find("k") is None
        await creating
    assert troubled.states == ["sending", "released", "sending", "done"]


async def test_an_unknown_outcome_names_the_key_only_if_the_key_has_a_claim(service, troubled):
    """The key is then safe to use again. A substitute for the HTTP session may leave the key free."""
    service.script.create_job(fault=Reset())
    async with service.session(ledger=troubled) as session:
        with pytest.raises(OutcomeUnknownError, match=r"call it again with dedupe_key 'k'"):
            await session.create_job("Fix it", dedupe_key="k")
    with aioresponses() as web:
        web.post(re.compile(".*"), status=502)
        async with MintlifySession(
            admin_key="mint_0123456789", project_id="p", ledger=MemoryStore()
        ) as session:
            with pytest.raises(OutcomeUnknownError, match="look at the dashboard"):
                await session.create_job("Fix it", dedupe_key="k")


@pytest.mark.parametrize(("locked", "posts"), [(1, 2), (30, 1)])
@pytest.mark.parametrize("headers", [{"Retry-After": "1"}, {"Retry-After": "5"}])
@pytest.mark.parametrize("quota", [None, Quota(create_job=9, mode="wait")], ids=["no quota", "quota"])
async def test_a_key_that_is_not_free_in_time_ends_the_retries(
    service, troubled, headers, locked, posts, quota
):
    """A ledger that is locked for a moment changes nothing; for longer, the refusal is raised with a note."""
    troubled.trouble = failing("released", locked)
    service.script.create_job(status=429, headers=headers)
    async with service.session(ledger=troubled, quota=quota) as session:
        if posts == 2:
            assert (await session.create_job("Fix it", dedupe_key="k")).id == "job_1"
        else:
            with pytest.raises(RateLimitError) as caught:
                await session.create_job("Fix it", dedupe_key="k")
            assert "the file is locked" in caught.value.__notes__[0]
            await asyncio.sleep(30)
            assert await Ledger(troubled).find("k") is None
    assert service.requests.count("create_job") == posts


@pytest.mark.parametrize(("seconds", "recorded"), [(3, True), (100, False)])
async def test_closing_a_session_waits_for_the_record(service, troubled, caplog, seconds, recorded):
    """At most 5 s; then it is given up, and the log says so. The handle is there for who has the call."""
    troubled.trouble = failing("done", seconds)
    async with service.session(ledger=troubled) as session:
        creating = asyncio.create_task(session.create_job("x", dedupe_key="k"))
        await service.until(lambda running: running.requests)
        await asyncio.sleep(0.5)
        began = now()
    assert now() - began == pytest.approx(min(5, seconds), abs=1.1)
    assert ((await Ledger(troubled).find("k")).result == "job_1") is recorded
    assert ("resolve its key: the session was closed" in caplog.text) is not recorded
    assert (await creating).id == "job_1"


async def test_a_follow_up_that_was_resolved_by_hand_is_guarded(service):
    """A person has given the job's id: the turn waits for a window from then on."""
    store = MemoryStore()
    async with service.session(ledger=store, poll=PollPolicy()) as session:
        job = await session.create_job("Fix it")
        service.script.send_message(fault=Reset(), life=JobLife(seconds=5))
        with pytest.raises(OutcomeUnknownError):
            await job.send("More", dedupe_key="k")
        await Ledger(store).resolve("k", job.id)
        turn = await job.send("More", dedupe_key="k")
        assert turn.ref.awaiting_turn
        assert len(service.requests.of("send_message")) == 1


async def test_a_key_needs_a_ledger(service):
    """Nothing is sent, and the error says what to pass; a store that is none is refused at once."""
    async with service.session() as session:
        with pytest.raises(ConfigurationError, match="SQLiteStore"):
            await session.create_job("Fix it", dedupe_key="k")
    with pytest.raises(ConfigurationError, match="ledger must be a store"):
        service.session(ledger="ledger.db")
    assert service.requests == []


async def test_a_cancelled_run_leaves_the_reference_in_the_log(service, caplog):
    """If ``wait_for`` cancels ``run_job``, the log has the reference, and ``on_created`` got the handle."""
    told = []
    async with service.session() as session:
        service.script.job(seconds=600)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run_job("Fix it", on_created=told.append), 10)
        (text,) = [one.args[0] for one in caplog.records if "run_job was cancelled" in one.getMessage()]
        assert session.job(text).id == told[0].id == "job_1"
        assert service.requests.count("create_job") == 1
        assert (await session.run_job("Fix it", timeout=900)).status == "completed"


async def test_a_key_is_free_again_when_the_store_no_longer_keeps_its_record(service):
    """``keep`` of the store counts from the record; without it a key is used for good."""
    for keep, jobs in ((60, 2), (None, 1)):
        async with service.session(ledger=MemoryStore(keep=keep)) as session:
            ids = {(await session.create_job("x", dedupe_key="once")).id}
            await asyncio.sleep(61)
            ids.add((await session.create_job("x", dedupe_key="once")).id)
        assert len(ids) == jobs
