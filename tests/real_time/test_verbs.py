"""Every call of a session, in real time: what it returns, and how often something was sent."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mintlify_async import (
    JobFailedError,
    Limit,
    MemoryStore,
    Quota,
    QuotaExceededError,
    RateLimitError,
    SQLiteStore,
    StateError,
)
from mintlify_async.testing import Customer, JobLife, LocalService
from tests.support.quick_polls import QuickPolls

MANY = 20
ENDED = JobLife(looks=["completed"])
LONG = [
    {"type": "start"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Press "},
]
"""The beginning of an answer. A pause of a minute follows where it is used."""


def slowly(text="Press the button."):
    """Return the events of an answer whose words arrive one by one, as a script takes them."""
    words = [word + " " for word in text.split()]
    deltas = [{"type": "text-delta", "id": "0", "delta": word} for word in words]
    pauses = [piece for delta in deltas for piece in (0.01, delta)]
    return [
        {"type": "start"},
        {"type": "text-start", "id": "0"},
        *pauses,
        {"type": "text-end", "id": "0"},
        {"type": "finish"},
    ]


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "store.sqlite")


# Jobs --------------------------------------------------------------------------------------------


async def test_run_job_twenty_times_at_once(service, session):
    """Each call creates one job, and returns the record of that job."""
    created = []
    records = await asyncio.gather(
        *(session.run_job(f"Fix page {number}", on_created=created.append) for number in range(MANY))
    )
    assert [record.status for record in records] == ["completed"] * MANY
    assert {record.id for record in records} == {job.id for job in created}
    prompts = [request.json["prompt"] for request in service.requests.of("create_job")]
    assert sorted(prompts) == sorted(f"Fix page {number}" for number in range(MANY))
    for record in records:
        job = service.jobs[record.id]
        assert record.pr_link.endswith(f"/{job.number}")


async def test_a_failed_job(service, session):
    """It raises, unless ``check=False``. Other jobs that run meanwhile are not disturbed."""
    service.script.job("active", "failed", times=2)
    runs = [session.run_job("x"), session.run_job("x", check=False), session.run_job("x")]
    failed, unchecked, ended = await asyncio.gather(*runs, return_exceptions=True)
    assert (type(failed), unchecked.status, ended.status) == (JobFailedError, "failed", "completed")


async def test_refresh_and_watch(service, session):
    """A refresh is one poll; a watch yields each record that differs."""
    jobs = [await session.create_job("x") for _ in range(MANY)]
    polled = await asyncio.gather(*(job.refresh() for job in jobs))
    assert {record.status for record in polled} == {"active"}
    assert service.requests.count("get_job") == MANY
    watched = await asyncio.gather(*(collect(job.watch()) for job in jobs))
    assert [[record.status for record in records] for records in watched] == [["active", "completed"]] * MANY
    same = session.job(str(jobs[0].ref))
    assert (await same.refresh()).status == "completed"
    assert same.done


async def collect(items):
    return [item async for item in items]


@pytest.mark.parametrize("on_active", ["send", "wait", "raise"])
@pytest.mark.parametrize("active", [True, False])
async def test_a_follow_up(service, session, on_active, active):
    """Ten jobs at once. Each gets one follow-up, and its turn ends with the record of that job."""
    jobs = [await session.create_job("x") for _ in range(10)]
    if not active:
        await asyncio.gather(*jobs)
    service.script.send_message(life=ENDED, times=None)
    results = await asyncio.gather(
        *(job.send("more", on_active=on_active) for job in jobs), return_exceptions=True
    )
    if active and on_active == "raise":
        assert [type(error) for error in results] == [StateError] * 10
        assert service.requests.count("send_message") == 0
        return
    records = await asyncio.gather(*results)
    assert {record.status for record in records} == {"completed"}
    assert [record.id for record in records] == [job.id for job in jobs]
    assert [service.jobs[job.id].prompts for job in jobs] == [["x", "more"]] * 10


# Questions ---------------------------------------------------------------------------------------


async def awaited(reply):
    return (await reply).text


async def iterated(reply):
    async for _ in reply:
        pass
    return reply.text


async def streamed(reply):
    return "".join([text async for text in reply.text_stream])


async def edited(reply):
    edits = [edit async for edit in reply.edits(every=0.01)]
    assert edits[-1].final
    return edits[-1].text


async def in_a_block(reply):
    async with reply:
        pieces = [text async for text in reply.text_stream]
    assert reply.closed
    return "".join(pieces)


READINGS = {
    "awaited": awaited,
    "iterated": iterated,
    "text_stream": streamed,
    "edits": edited,
    "in a block": in_a_block,
}


@pytest.mark.parametrize("reading", READINGS)
async def test_ask_twenty_times_at_once(service, session, reading):
    """Each reply has the answer to its own question, and each question was sent once."""
    for number in range(MANY):
        service.script.ask(events=slowly(f"Press button {number}."))
    texts = await asyncio.gather(*(READINGS[reading](session.ask(f"{number}")) for number in range(MANY)))
    assert sorted(text.strip() for text in texts) == sorted(
        f"Press button {number}." for number in range(MANY)
    )
    assert service.requests.count("ask") == MANY


@pytest.mark.parametrize("block", [True, False])
async def test_a_break_stops_the_answer(service, session, block):
    """The service notices it, and the session answers the next question."""
    service.script.ask(events=[*LONG, 60.0], times=MANY)

    async def leave():
        if block:
            async with session.ask("x") as reply:
                async for _ in reply:
                    break
        else:
            async for _ in session.ask("x"):
                break

    await asyncio.gather(*(leave() for _ in range(MANY)))
    gc.collect()
    async with asyncio.timeout(20):
        await service.until(lambda service: not service.answering)
    assert all(request.client_left for request in service.requests.of("ask"))
    assert (await session.ask("x")).text


async def test_a_thread_is_continued(service, session):
    """The second question of each of twenty threads is sent with the thread of its own first one."""

    async def two():
        first = await session.ask("How do I log in?")
        second = await session.ask("And by SSO?", thread=first.thread)
        return first.thread_id, second.thread_id

    pairs = await asyncio.gather(*(two() for _ in range(MANY)))
    assert all(first == second for first, second in pairs)
    assert len({first for first, _ in pairs}) == MANY


# Conversations -----------------------------------------------------------------------------------


async def test_a_conversation_keeps_its_history(service, session, store):
    """Each question is sent with the turns before it, also after the conversation was loaded again."""
    chat = session.conversation(store=store, id="help", owner="ann")
    for question in ("one", "two"):
        assert (await chat.ask(question)).text
    again = session.conversation(store=store, id="help", owner="ann")
    async with again.ask("three") as reply:
        assert "".join([text async for text in reply.text_stream])
    assert [len(request.json["messages"]) for request in service.requests.of("ask")] == [1, 3, 5]
    assert len(again.messages) == 6


async def test_turns_stand_in_line(service, session, store):
    """With ``busy="queue"``, questions that are asked at once are asked one after the other."""
    chats = [session.conversation(store=store, id="help", owner="ann", busy="queue") for _ in range(2)]
    service.script.ask(events=slowly(), times=None)
    questions = [f"question {number}" for number in range(6)]
    answers = await asyncio.gather(*(chats[n % 2].ask(text).run() for n, text in enumerate(questions)))
    assert {answer.text.strip() for answer in answers} == {"Press the button."}
    sent = [request.json["messages"] for request in service.requests.of("ask")]
    assert [len(messages) for messages in sent] == [1, 3, 5, 7, 9, 11]
    assert [messages[-1]["parts"][0]["text"] for messages in sent] == questions


async def test_a_busy_conversation_raises(service, session):
    """Without a line, the second question is refused, and the first one is answered."""
    service.script.ask(events=slowly())
    chat = session.conversation()
    results = await asyncio.gather(chat.ask("one").run(), chat.ask("two").run(), return_exceptions=True)
    assert results[0].text.strip() == "Press the button."
    assert isinstance(results[1], StateError)
    assert service.requests.count("ask") == 1


# Quotas and options ------------------------------------------------------------------------------


async def test_a_quota_that_raises(service, store):
    """Of twenty calls at once, as many are sent as the quota allows."""
    async with service.session(quota=Quota(create_job=5, store=store), poll=QuickPolls()) as session:
        results = await asyncio.gather(*(session.run_job("x") for _ in range(MANY)), return_exceptions=True)
        (left,) = await session.quota_left("create_job")
    refused = [result for result in results if isinstance(result, QuotaExceededError)]
    assert (len(refused), left.left) == (MANY - 5, 0)
    assert [result.status for result in results if result not in refused] == ["completed"] * 5
    assert service.requests.count("create_job") == 5


async def test_a_quota_that_waits(service, store):
    """Twenty calls with five slots per 0.1 s take three windows, and every call is sent in the end."""
    quota = Quota(create_job=Limit(5, per=0.1), mode="wait", store=store)
    async with service.session(quota=quota) as session:
        jobs = await asyncio.gather(*(session.create_job("x") for _ in range(MANY)))
    assert len({job.id for job in jobs}) == MANY
    times = [request.at for request in service.requests.of("create_job")]
    assert times[-1] - times[0] >= 0.2  # the first ones may arrive late
    assert len(times) == MANY


async def test_unblock_ends_a_pause(service, store):
    """A 429 stops later calls. ``unblock`` lets them go."""
    async with service.session(quota=Quota(mode="wait", store=store)) as session:
        service.script.create_job(status=429, headers={"Retry-After": "3600"})
        with pytest.raises(RateLimitError):
            await session.create_job("x", timeout=50)
        calls = [asyncio.create_task(session.create_job("x", timeout=7200)) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert service.requests.count("create_job") == 1
        await session.unblock("create_job")
        async with asyncio.timeout(20):
            jobs = await asyncio.gather(*calls)
    assert len({job.id for job in jobs}) == 5
    assert service.requests.count("create_job") == 6


async def test_sessions_with_other_options():
    """Each of three customers is served with its own key and project, at once, on shared connections."""
    customers = [Customer("acme"), Customer("beta"), Customer("gamma")]
    async with (
        LocalService(customers=customers, life=ENDED) as service,
        service.session(poll=QuickPolls()) as session,
    ):
        sessions = [
            session.with_options(
                project_id=one.project_id,
                domain=one.domain,
                admin_key=one.admin_key,
                assistant_key=one.assistant_key,
            )
            for one in customers
        ]
        jobs = await asyncio.gather(*(one.run_job("x") for one in sessions for _ in range(5)))
        answers = await asyncio.gather(*(one.ask("x") for one in sessions for _ in range(5)))
    assert {job.status for job in jobs} == {"completed"}
    assert all(answer.text for answer in answers)
    for customer in customers:
        of_customer = [r for r in service.requests if r.params.get("project") == customer.project_id]
        assert len(of_customer) == 10
        assert {request.key for request in of_customer} == {customer.admin_key}
