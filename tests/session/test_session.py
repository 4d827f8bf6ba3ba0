"""Lifetimes: one session over several loops and threads, borrowed, closed, left, forked; its hooks."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import threading
import warnings
import weakref

import aiohttp
import pytest

from mintlify_async import (
    ConfigurationError,
    MemoryStore,
    MintlifyError,
    MintlifySession,
    NotFoundError,
    OutcomeUnknownError,
    RetryPolicy,
    StateError,
    StreamInterruptedError,
    Timeouts,
)
from tests.support.secret_guard import Keys

KEYS = Keys()
EVENTS = [
    {"type": "start"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello"},
    {"type": "text-end", "id": "0"},
    {"type": "finish"},
]


def test_one_session_serves_several_threads_at_once(mintlify_service):
    """Four threads with two runs of asyncio one after the other; each has connections of its own."""
    session = mintlify_service.session()
    texts = []

    async def work():
        assert (await session.create_job("x")).id
        for _ in range(5):
            texts.append((await session.ask("How do I log in?")).text)

    def run_twice():
        asyncio.run(work())
        asyncio.run(work())

    threads = [threading.Thread(target=run_twice) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(session.close())
    assert len(texts) == 40
    assert len(set(texts)) == 1


def test_closing_from_another_loop_closes_the_first_ones_connections(mintlify_service):
    """close() reaches every loop that still runs."""
    session = mintlify_service.session()
    began, ended = threading.Event(), []

    async def read():
        mintlify_service.script.ask(events=[{"type": "start"}, 60.0])
        async with session.ask("x") as reply:
            await anext(reply)
            began.set()
            try:
                await anext(reply)
            except StreamInterruptedError as error:
                ended.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(read()))
    thread.start()
    began.wait()
    asyncio.run(session.close())
    thread.join()
    assert len(ended) == 1


@pytest.mark.leaves_open("a loop is closed with all that is on it")
def test_a_loop_that_was_closed_with_a_reader_inside_harms_no_other(mintlify_service):
    """After a loop was closed while a reply was being read, the session works on another loop."""
    session = mintlify_service.session()
    mintlify_service.script.ask(events=[{"type": "start"}, 600.0])
    loop = asyncio.SelectorEventLoop()  # uvloop's cannot be closed before its connections

    async def begin():
        reply = session.ask("x")
        await anext(reply)
        reader = asyncio.ensure_future(anext(reply))
        await asyncio.sleep(0.01)
        return reply, reader

    async def work():
        return (await session.create_job("x")).id

    reply, reader = loop.run_until_complete(begin())
    loop.close()
    assert asyncio.run(work()) == "job_1"
    asyncio.run(session.close())
    reader._log_destroy_pending = False
    reply._live._response._closed = True  # aiohttp's finalizer would speak to the closed loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of the sockets of that loop
        del reply, reader, loop, begin
        gc.collect()


async def test_a_borrowed_session_is_used_and_never_closed(virtual, service):
    """A borrowed aiohttp session is closed by the code that opened it."""
    async with aiohttp.ClientSession() as ours:
        async with service.session(client_session=ours) as session:
            job = await session.create_job("x")
            assert (await job.wait()).done
            assert (await session.ask("How do I log in?")).text
        assert not ours.closed


async def test_a_closed_borrowed_session_is_a_clear_error(service):
    """Not a RuntimeError of aiohttp's."""
    ours = aiohttp.ClientSession()
    await ours.close()
    async with service.session(client_session=ours) as session:
        with pytest.raises(StateError, match="closed"):
            await session.create_job("x")
        with pytest.raises(StateError, match="closed"):
            await session.ask("x")


async def test_use_after_close_is_a_clear_error(service):
    """At once, and nothing is sent; closing twice is harmless."""
    session = service.session()
    job = await session.create_job("x")
    reply = session.ask("y")
    await session.close()
    await session.close()
    for call in (session.create_job("x"), reply.run(), job.wait(), job.refresh(), job.send("x")):
        with pytest.raises(StateError, match="closed"):
            await call
    for verb in (lambda: session.ask("x"), lambda: session.job("job_1"), session.with_options):
        with pytest.raises(StateError, match="closed"):
            verb()
    with pytest.raises(StateError, match="closed"):
        async with session:
            pass
    assert len(service.requests) == 1
    assert session.closed


READINGS = {
    "await": lambda session: session.ask("How do I log in?").run(),
    "a block": lambda session: all_of(session.ask("How do I log in?")),
    "text_stream": lambda session: texts_of(session.ask("How do I log in?").text_stream),
    "edits": lambda session: texts_of(session.ask("How do I log in?").edits(every=0)),
    "with_options": lambda session: session.with_options(fp="v").ask("How do I log in?").run(),
    "conversation": lambda session: session.conversation().ask("How do I log in?").run(),
}


async def all_of(reply):
    async with reply:
        return [event async for event in reply]


async def texts_of(pieces):
    return [piece async for piece in pieces]


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS)
async def test_a_session_that_nobody_keeps_answers(service, read):
    """A reply keeps the connections open until it has ended. Then they are closed, with a warning."""
    service.script.ask(events=[*EVENTS[:2], 0.05, *EVENTS[2:]])
    with pytest.warns(ResourceWarning, match="was never closed"):
        assert await read(service.session())
    async with asyncio.timeout(10):
        while service.connections:
            await asyncio.sleep(0.001)


async def test_an_open_reply_keeps_the_connections_and_no_key(service):
    """The session and its function for the key are collected while the answer arrives."""

    def key():
        return service.assistant_key

    service.script.ask(events=[*EVENTS[:2], 60.0, *EVENTS[2:]])
    session = service.session(assistant_key=key)
    reply = session.ask("How do I log in?")
    await anext(reply)
    gone = [weakref.ref(key), weakref.ref(session)]
    del key, session
    gc.collect()
    assert [one() for one in gone] == [None, None]
    with pytest.warns(ResourceWarning, match="was never closed"):
        await reply.close()


def test_leaving_without_closing_warns_once_with_the_place(mintlify_service):
    """The warning names this file; aiohttp's own stay silent."""

    async def forget():
        session = mintlify_service.session()
        await session.create_job("x")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(forget())
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert "was never closed" in str(caught[0].message)
    assert "close()" in str(caught[0].message)


@pytest.mark.real
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_refuses_its_parents_connections(mintlify_service):
    """On the parent's loop the child would speak on the parent's sockets."""
    session = mintlify_service.session()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(session.create_job("x"))
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking is what is tested
        pid = os.fork()
    if pid == 0:
        try:
            loop.run_until_complete(session.create_job("y"))
        except BaseException as error:
            os.write(sending, f"{type(error).__name__}: {error}".encode())
            loop.run_until_complete(session.close())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(sending)
    with os.fdopen(receiving) as told:
        assert "StateError: this session was used before the process forked" in told.read()
    loop.run_until_complete(session.close())
    loop.close()
    assert len(mintlify_service.requests) == 1


def test_a_session_shows_and_keeps_no_key():
    """Not in its repr, not in vars(), and it refuses to be pickled or copied."""
    session = MintlifySession(
        project_id="p", domain="d", admin_key=KEYS.admin, assistant_key=lambda: KEYS.assistant
    )
    assert "p" in repr(session)
    for text in (repr(session), str(session), repr(vars(session)), str(vars(session))):
        assert KEYS.admin not in text
        assert KEYS.assistant not in text
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be"):
            act(session)


async def test_with_options_shares_connections_and_changes_defaults(service):
    """The copy may be closed or dropped; the original closes for both."""
    async with service.session() as session:
        other = session.with_options(fp="user-1", timeouts=Timeouts(total=5), retrieval_page_size=2)
        await session.ask("How do I log in?")
        await other.ask("How do I log in?")
        first, second = service.requests
        assert (first.json["fp"], second.json["fp"]) == ("anonymous", "user-1")
        assert second.json["retrievalPageSize"] == 2
        assert first.port == second.port
        await other.close()
        with pytest.raises(StateError):
            other.ask("x")
        await session.ask("How do I log in?")
        last = session.with_options(retry=RetryPolicy(attempts=1))
    with pytest.raises(StateError):
        await last.create_job("x")


async def test_agent_posts_have_a_connection_of_their_own(service, session):
    """A keep-alive race would leave the outcome of a POST unknown; reading may share."""
    await session.create_job("x")
    await session.create_job("x")
    await session.job("job_1").refresh()
    await session.job("job_1").refresh()
    posts, gets = service.requests[:2], service.requests[2:]
    assert len({request.port for request in posts}) == 2
    assert all(request.headers["connection"] == "close" for request in posts)
    assert len({request.port for request in gets}) == 1


async def test_an_answer_gives_its_connection_back(service, session):
    """After ``[DONE]`` and the body's end the next question uses the same one."""
    for _ in range(5):
        await session.ask("How do I log in?")
    assert len({request.port for request in service.requests}) == 1


async def test_a_cancelled_creation_that_was_sent_is_logged(service, session, caplog):
    """CancelledError passes as always; the log says that the job may exist."""
    service.script.create_job(delay=60)
    task = asyncio.create_task(session.create_job("x"))
    await service.until(lambda running: len(running.requests) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "create_job was cancelled after it was sent" in caplog.text
    assert "look at the dashboard or the repository before you send it again" in caplog.text
    assert len(service.requests) == 1


async def test_the_line_about_a_cancelled_creation_names_its_key(service, caplog):
    """Its advice holds: a call with the same key sends nothing, and says how to find the job."""
    service.script.create_job(delay=60)
    async with service.session(ledger=MemoryStore()) as session:
        task = asyncio.create_task(session.create_job("x", dedupe_key="ticket-7"))
        await service.until(lambda running: len(running.requests) == 1)
        task.cancel()
        await asyncio.wait([task])
        assert "call it again with dedupe_key 'ticket-7', which sends nothing" in caplog.text
        with pytest.raises(OutcomeUnknownError, match="Look at the dashboard"):
            await session.create_job("x", dedupe_key="ticket-7")
    assert len(service.requests) == 1


async def test_a_job_is_named_by_its_handle_or_its_record(service):
    """Whatever one has of a job; a handle's follow-up stays awaited, and a record needs the project."""
    async with service.session() as session, service.session() as elsewhere:
        handle = await session.create_job("Fix the typos")
        job = await handle.refresh()
        again = elsewhere.job(handle)
        assert (again.id, again.project_id) == (job.id, service.project_id)
        assert elsewhere.job(job).ref.project_id == service.project_id
        assert elsewhere.job(job, project_id="other").project_id == "other"
        turn = await handle.send("More")
        assert elsewhere.job(turn).ref.awaiting_turn
        for named in (job, job.id):
            with pytest.raises(ConfigurationError) as caught:
                elsewhere.with_options(project_id=None).job(named)
            assert caught.value.field == "project_id"
    assert [request.method for request in service.requests] == ["POST", "GET", "POST"]


async def test_each_customer_is_polled_with_its_own_key(service, session):
    """Connections are shared, keys and projects are not: also the polls of a wait use the customer's own."""
    keys = [service.admin_key, "mint_the_key_of_another_customer"]
    customers = [session, session.with_options(admin_key=keys[1], project_id="other")]
    for customer, key in zip(customers, keys, strict=True):
        before = len(service.requests)
        with pytest.raises(MintlifyError):
            await customer.job("job_1").wait(timeout=0)
        with pytest.raises(MintlifyError):
            await customer.job("job_1").refresh()
        sent = [request.headers["authorization"] for request in service.requests[before:]]
        assert len(sent) >= 2
        assert {header[-8:] for header in sent} == {key[-8:]}


async def test_a_hook_that_fails_after_a_creation_does_not_lose_the_job(session, caplog):
    """Its error is the caller's; the log has the reference of the paid job."""

    def fail(handle):
        raise OSError("mine")

    with pytest.raises(OSError, match="mine"):
        await session.run_job("x", on_created=fail)
    assert "the job was created and keeps running: mintlify-job:" in caplog.text


async def test_a_poll_that_finds_nothing_says_that_its_path_is_assumed(session):
    """Interface 4.4 does not show the path: the error says how to change it."""
    with pytest.raises(NotFoundError, match=r"Assumptions\(get_job_path=…\)"):
        await session.job("nope").refresh()
