"""Promises of the core that were not kept once: deadlines, closing, loops, hostile answers, arguments."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from contextlib import closing

import aiohttp
import anyio
import pytest
from secret_guard import Keys
from served import Served

from mintlify_async import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ConfigurationError,
    MintlifySession,
    OutcomeUnknownError,
    Quota,
    RetryPolicy,
    StateError,
    StreamInterruptedError,
    Timeouts,
)
from mintlify_async.errors import ServerError, UnexpectedResponseError
from mintlify_async.quota import MemoryQuotaStore
from mintlify_async.runtime.per_event_loop import LoopLocal
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut, NoAnswer, Raw, Redirect

KEYS = Keys()


@pytest.fixture
async def service():
    async with LocalService() as service:
        yield service


# Deadlines ------------------------------------------------------------------------------------


async def test_a_stalled_error_page_does_not_outlast_the_deadline():
    """What a refusal says is worth two seconds, but not more than the call has left."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.any(status=403, body=b'{"error": "no"} and more', fault=Cut(5, "hang"), times=None)
        async with service.session(timeouts=Timeouts(request=1, first_event=1)) as session:
            for call in (session.create_job("x"), session.job("job_1").refresh(), session.ask("x").run()):
                before = clock.now()
                with pytest.raises(APIStatusError):
                    await call
                assert clock.now() - before <= 1


@pytest.mark.parametrize("operation", ["create_job", "get_job"])
async def test_a_key_function_that_hangs_ends_with_the_deadline(operation):
    """The deadline bounds everything; nothing was sent."""
    clock = VirtualClock()

    async def hang():
        await asyncio.Event().wait()

    async with LocalService(clock=clock) as service:
        async with service.session(admin_key=hang, timeouts=Timeouts(request=5)) as session:
            call = session.create_job("x") if operation == "create_job" else session.job("j").refresh()
            with anyio.fail_after(5), pytest.raises(APITimeoutError) as caught:
                await call
        assert caught.value.sent == "no"
        assert len(service.requests) == 0


async def test_after_done_there_is_one_second_in_all(service):
    """Also when ``finish`` and ``[DONE]`` came apart, and comments go on for ever."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.ask(
            chunks=[
                b'data: {"type":"start"}\n\ndata: {"type":"finish"}\n\n',
                0.1,
                b"data: [DONE]\n\n",
                *([0.5, b": alive\n\n"] * 40),
            ]
        )
        async with service.session() as session:
            before = clock.now()
            await session.ask("x")
            assert clock.now() - before < 2.5


async def test_after_finish_comments_do_not_hold_the_answer_open():
    """A second without an event ends it."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.ask(
            chunks=[
                b'data: {"type":"start"}\n\ndata: {"type":"finish"}\n\n',
                *([0.5, b": alive\n\n"] * 40),
            ]
        )
        async with service.session() as session:
            before = clock.now()
            await session.ask("x")
            assert clock.now() - before < 2.5


async def test_infinite_limits_work(service):
    """Infinity is no limit; aiohttp itself cannot round it."""
    inf = float("inf")
    async with service.session(timeouts=Timeouts(connect=inf, request=inf, first_event=inf)) as session:
        assert (await session.create_job("x")).id
        assert (await session.ask("x")).text


# Closing --------------------------------------------------------------------------------------


async def closed_between_attempts(service):
    """Begin a job, close the session while it waits to be sent again, and return the task."""
    session = service.session()
    task = asyncio.create_task(session.create_job("x"))
    while not service.requests:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    await session.close()
    return task


async def test_closing_wakes_who_waits_to_send_again(service):
    """A call between two attempts ends at once, and no connection is opened after the closing."""
    service.script.create_job(status=429, headers={"Retry-After": "30"}, times=None)
    task = await closed_between_attempts(service)
    with anyio.fail_after(2), pytest.raises(StateError, match="closed"):
        await task
    assert len(service.requests) == 1


async def test_a_retry_after_closing_opens_nothing():
    """The pause is short here: the second attempt finds the session closed."""
    async with LocalService() as service:
        service.script.create_job(status=429, headers={"Retry-After": "1"})
        task = await closed_between_attempts(service)
        with pytest.raises(StateError, match="closed"):
            await task
        assert len(service.requests) == 1


async def test_closing_wakes_who_waits_for_the_quota(service):
    """An hour is not slept through."""
    quota = Quota.interface(create_job=1, mode="wait")
    session = service.session(quota=quota, timeouts=Timeouts(request=7200))
    await session.create_job("x")
    task = asyncio.create_task(session.create_job("y"))
    await asyncio.sleep(0.05)
    await session.close()
    with anyio.fail_after(2), pytest.raises(StateError, match="closed"):
        await task


async def test_closing_a_reply_that_is_being_opened_frees_it_at_once(service):
    """The reader does not wait for an answer that nobody wants."""
    service.script.ask(fault=NoAnswer())
    async with service.session() as session:
        reply = session.ask("x")

        async def read():
            return [event async for event in reply]

        reader = asyncio.create_task(read())
        while not service.requests.count("ask"):
            await asyncio.sleep(0.001)
        await reply.close()
        with anyio.fail_after(2):
            assert await reader == []
            while service.connections:
                await asyncio.sleep(0.001)
        with pytest.raises(StreamInterruptedError):
            await reply


async def test_a_reply_that_was_closed_ends_quietly_though_its_session_closes_too(service):
    """Between two attempts, as a program that shuts down does it."""
    service.script.ask(status=429, headers={"Retry-After": "30"}, times=None)
    retried = asyncio.Event()
    session = service.session(on_retry=lambda event: retried.set())
    reply = session.ask("x")

    async def read():
        return [event async for event in reply]

    reader = asyncio.create_task(read())
    with anyio.fail_after(10):
        await retried.wait()
    await reply.close()
    await session.close()
    with anyio.fail_after(2):
        assert await reader == []
    assert service.requests.count("ask") == 1


async def test_closing_a_reply_does_not_wait_for_a_slot_that_is_given_back(service):
    """A quota's store may be slow; nothing is told of an attempt that nobody waits for any more."""
    told, giving_back = [], asyncio.Event()

    class Slow(MemoryQuotaStore):
        async def refund(self, *args, **kwargs):
            giving_back.set()
            await asyncio.sleep(3600)

    quota = Quota.interface(store=Slow())
    async with service.refusing(), service.session(quota=quota, on_retry=told.append) as session:
        reply = session.ask("x")
        reader = asyncio.create_task(reply.__aenter__())
        await giving_back.wait()
        await reply.close()
        with anyio.fail_after(2):
            assert await reader is reply
    assert told == []


async def test_hooks_are_called_outside_of_any_error():
    """What a hook raises has no error of ours for its context."""
    contexts = []
    async with MintlifySession(
        domain="acme",
        assistant_key=KEYS.assistant,
        base_url="http://127.0.0.1:9",
        retry=RetryPolicy(attempts=1),
        on_response=lambda event: contexts.append(sys.exc_info()),
    ) as session:
        with pytest.raises(APIConnectionError):
            await session.ask("x")
    assert contexts == [(None, None, None)]


async def test_a_block_begins_when_it_is_awaited(service):
    """A task that is cancelled before it entered the reply has not entered it: the conversation goes on."""
    async with service.session() as session:
        chat = session.conversation()
        reply = chat.ask("How do I log in?")
        entering = asyncio.create_task(reply.__aenter__())
        entering.cancel()
        await asyncio.wait([entering])
        await asyncio.create_task(reply.run())
        await asyncio.create_task(chat.ask("And out?").run())
    assert service.requests.count("ask") == 2


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_close_still_closes_everything(service, turns):
    """Both kinds of connections, at whatever turn it is cancelled; the fixtures look for what is left."""
    session = service.session()
    await session.create_job("x")
    await session.job("job_1").refresh()
    task = asyncio.create_task(session.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await session.close()
    gc.collect()


async def test_a_session_may_be_closed_by_several_at_once(service):
    """The first one closes it."""
    session = service.session()
    await session.create_job("x")
    await asyncio.gather(session.close(), session.close(), session.close())


class SlowStore(MemoryQuotaStore):
    """A store that suspends where a real one does."""

    async def block(self, gate, seconds, *, clock):
        await asyncio.sleep(0)

    async def learn(self, gate, remaining, reset, *, clock):
        self.learning = True
        await asyncio.Event().wait()


async def test_a_question_cancelled_while_its_quota_learns_leaves_no_connection(service):
    """The answer has begun and nobody has it yet."""
    store = SlowStore()
    service.script.ask(
        events=[{"type": "start"}, 60.0],
        headers={"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "60", "X-RateLimit-Limit": "100"},
    )
    async with service.session(quota=Quota.interface(store=store)) as session:
        task = asyncio.create_task(session.ask("x").run())
        with anyio.fail_after(5):
            while not getattr(store, "learning", False):
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with anyio.fail_after(2):
            while service.connections:
                await asyncio.sleep(0.001)


# Loops and threads ------------------------------------------------------------------------------


@pytest.mark.leaves_open("a loop is closed with all that is on it")
def test_a_loop_that_was_closed_with_a_reader_inside_harms_no_other():
    """The session goes on elsewhere."""
    with Served() as served:
        session = served.service.session()
        served.service.script.ask(events=[{"type": "start"}, 600.0])
        loop = asyncio.new_event_loop()

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


async def test_a_session_with_other_options_keeps_the_first_one_alive(service):
    """Whose end would close the connections that both use."""
    session = service.session()
    other = session.with_options(fp="v")
    async with other.ask("x") as reply:
        await anext(reply)
        session = weakref.ref(session)
        gc.collect()
        assert [event async for event in reply]
        assert reply.complete
    await session().close()


def test_loops_that_come_in_other_threads_disturb_nobody():
    """While one thread looks for loops that were closed, another adds its own."""

    class Thing:
        async def close(self):
            pass

        def abandon(self):
            pass

    class Loop(asyncio.SelectorEventLoop):
        def is_closed(self):
            others = local._entries  # what another thread would do at this moment
            others.setdefault(second, next(iter(others.values())))
            return super().is_closed()

    async def get():
        return local.get()

    local = LoopLocal(Thing)
    with closing(Loop()) as loop, closing(asyncio.new_event_loop()) as second:
        loop.run_until_complete(get())
        local._entries.pop(second, None)
        with closing(asyncio.new_event_loop()) as third:
            third.run_until_complete(get())
            for one in (loop, third):
                one.run_until_complete(one.shutdown_asyncgens())


async def test_a_borrowed_session_of_another_loop_sends_nothing(service):
    """Though it has a connection in hand that it would write to before it fails."""
    ready, done = threading.Event(), threading.Event()
    made = []

    async def owner():
        async with aiohttp.ClientSession() as ours, service.session(client_session=ours) as session:
            await session.create_job("first")
            made.append(session)
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: asyncio.run(owner()))
    thread.start()
    while not ready.is_set():
        await asyncio.sleep(0.001)
    try:
        for call in (made[0].create_job("second"), made[0].ask("x").run()):
            with pytest.raises(StateError, match="another event loop"):
                await call
        await asyncio.sleep(0.05)  # it was the other loop that sent it
    finally:
        done.set()
        while thread.is_alive():
            await asyncio.sleep(0.001)
    assert len(service.requests) == 1


# Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["http://[bad", "//[", "http://a]b/", "\\\\x", "http://[::1%25lo]x/"])
async def test_a_redirect_to_what_is_no_address_is_reported_like_any(service, location):
    """Not with an error of the standard library's."""
    service.script.any(fault=Redirect(location, 302), times=None)
    async with service.session() as session:
        for call in (session.create_job("x"), session.job("j").refresh(), session.ask("x").run()):
            with pytest.raises(APIStatusError, match="redirect"):
                await call


@pytest.mark.parametrize("depth", [300, 900, 940, 960, 980, 3000, 9000])
async def test_an_error_page_may_be_nested_to_any_depth(service, depth):
    """Its status is what counts."""
    body = b'{"error":' * depth + b'"x"' + b"}" * depth
    service.script.any(status=404, body=body, times=None)
    async with service.session() as session:
        for call in (session.create_job("x"), session.job("j").refresh(), session.ask("x").run()):
            with pytest.raises(APIStatusError):
                await call


@pytest.mark.parametrize("depth", [100, 300, 700, 3000])
async def test_a_job_is_read_only_when_it_can_be_printed_and_copied(service, depth):
    """What the parser takes may be nested deeper than anything else can bear."""
    body = b'{"id":"j","status":"completed","x":' + b"[" * depth + b"]" * depth + b"}"
    service.script.create_job(status=201, body=body)
    async with service.session() as session:
        try:
            job = (await session.create_job("x")).job
        except OutcomeUnknownError:
            assert depth > 200
        else:
            repr(job)
            copy.deepcopy(job)
            pickle.loads(pickle.dumps(job))
            job.to_wire()


ECHO = {
    "html": lambda key: f"<html>Authorization: Bearer {key}</html>".encode(),
    "json": lambda key: f'{{"headers": "Bearer {key}"}}'.encode(),
}


@pytest.mark.parametrize("name", ECHO)
async def test_a_success_that_repeats_the_key_shows_it_nowhere(service, name):
    """A proxy's page about the request, say; the fixture looks for the key."""
    service.script.create_job(status=200, body=ECHO[name](KEYS.admin), headers={"X-Echo": KEYS.admin})
    service.script.get_job(
        status=200, body=ECHO[name](KEYS.admin), headers={"X-Echo": KEYS.admin}, times=None
    )
    service.script.ask(status=200, body=ECHO[name](KEYS.assistant), headers={"X-Echo": KEYS.assistant})
    async with service.session(admin_key=KEYS.admin, assistant_key=KEYS.assistant) as session:
        for call, kind in (
            (session.create_job("x"), OutcomeUnknownError),
            (session.job("j").refresh(), UnexpectedResponseError),
            (session.ask("x").run(), UnexpectedResponseError),
        ):
            with pytest.raises(kind):
                await call


async def test_a_job_that_came_with_the_key_shows_it_nowhere(service):
    """Neither in its headers nor in its further fields."""
    service.script.create_job(
        status=201,
        json={"id": "j", "status": "active", "debug": f"Bearer {KEYS.admin}"},
        headers={"X-Echo": KEYS.admin},
    )
    async with service.session(admin_key=KEYS.admin) as session:
        job = await session.create_job("x")
        assert KEYS.admin not in repr(job.raw) + repr(job.job) + repr(job.raw.headers)


async def test_a_refusal_that_names_a_new_threads_key_masks_it(service):
    """In the body, too."""
    service.script.ask(
        status=500,
        json={"error": "late", "threadId": "t", "threadKey": KEYS.thread},
        headers={"X-Thread-Key": KEYS.thread},
    )
    async with service.session() as session:
        with pytest.raises(ServerError) as caught:
            await session.ask("x")
    assert KEYS.thread not in caught.value.body


async def test_an_error_event_that_repeats_the_key_shows_it_nowhere(service):
    """The service's words without it."""
    service.script.ask(
        events=[{"type": "start"}, {"type": "error", "errorText": f"bad key {KEYS.assistant}"}]
    )
    async with service.session(assistant_key=KEYS.assistant) as session:
        with pytest.raises(Exception, match="bad key"):
            await session.ask("x")


async def test_a_5xx_with_the_rate_limit_headers_of_every_answer_is_retried(service):
    """They say when a window ends; only a 429 asks to wait for that."""
    service.script.get_job(status=503, headers={"X-RateLimit-Reset": "3000"}, times=2)
    service.script.get_job(status=200, json={"id": "j", "status": "completed"})
    async with service.session(retry=RetryPolicy(base=0)) as session:
        assert (await session.job("j").refresh()).id == "j"


async def test_endless_interim_answers_end_with_the_deadline():
    """Something comes all the time, but never an answer."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.any(fault=Raw([b"HTTP/1.1 100 Continue\r\n\r\n", 1.0] * 500), times=None)
        async with service.session() as session:
            for call in (session.create_job("x"), session.job("job_1").refresh(), session.ask("x").run()):
                before = clock.now()
                with pytest.raises((OutcomeUnknownError, APIConnectionError)):
                    await call
                assert clock.now() - before < 61


# Arguments ------------------------------------------------------------------------------------


async def test_a_header_is_the_same_whatever_its_case(service):
    """The call's over the session's, the user's over ours, the body's type always ours."""
    async with service.session(headers={"X-A": "session", "user-agent": "mine"}) as session:
        await session.create_job("x", headers={"x-a": "call", "content-type": "text/plain", "ACCEPT": "*/*"})
    sent = service.requests[0].headers
    expected = {"x-a": "call", "user-agent": "mine", "content-type": "application/json", "accept": "*/*"}
    assert {name: sent[name] for name in expected} == expected


@pytest.mark.parametrize("headers", ["abc", 5, [("a", "b")], {1: "x"}, {"X": None}, {"X": b"y"}], ids=repr)
async def test_headers_of_a_wrong_type_are_refused_before_any_post(service, headers):
    """For each operation and for the session."""
    async with service.session() as session:
        job = await session.create_job("x")
        for call in (
            lambda: session.create_job("x", headers=headers),
            lambda: job.send("x", headers=headers),
            lambda: session.ask("x", headers=headers).run(),
        ):
            with pytest.raises(ConfigurationError) as caught:
                await call()
            assert caught.value.field == "headers"
    assert [request.method for request in service.requests].count("POST") == 1
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(headers=headers)
    assert caught.value.field == "headers"


async def test_an_observer_that_fails_does_not_lock_the_reply(service):
    """Its error is raised each time, not one about another reader."""

    class Observer:
        def start(self, operation, facts):
            raise ValueError("mine")

    async with service.session(observer=Observer()) as session:
        reply = session.ask("x")
        for _ in range(2):
            with pytest.raises(ValueError, match="mine"):
                await anext(reply)


PURE_PYTHON = """
import asyncio, aiohttp.http_parser
from mintlify_async.testing import LocalService
from mintlify_async.testing.faults import BrokenChunking

async def main():
    assert aiohttp.http_parser.HttpResponseParser is aiohttp.http_parser.HttpResponseParserPy
    async with LocalService() as service, service.session() as session:
        for how in ("hang", "fin"):
            service.script.any(fault=BrokenChunking(20, how), times=None)
            for call in (session.create_job("x"), session.ask("x").run()):
                try:
                    await call
                except Exception as error:
                    print(type(error).__module__, type(error).__name__)
            service.script.clear()

asyncio.run(main())
"""


def test_what_the_parser_in_pure_python_raises_becomes_ours():
    """Where aiohttp has no compiled parser, a broken chunk is an error of a family of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PURE_PYTHON],
        env={**os.environ, "AIOHTTP_NO_EXTENSIONS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    kinds = ["OutcomeUnknownError", "StreamInterruptedError"] * 2
    assert done.stdout.split("\n")[:-1] == [f"mintlify_async.errors {kind}" for kind in kinds]


async def test_a_header_that_would_part_the_request_is_refused(service):
    """With ``Expect`` the headers leave before the body, and nobody could say what was sent."""
    async with service.session() as session:
        with pytest.raises(ConfigurationError) as caught:
            await session.create_job("x", headers={"Expect": "100-continue"})
    assert caught.value.field == "headers"
    assert len(service.requests) == 0


@pytest.mark.parametrize("seconds", [10**400, float("nan"), -float("inf")])
async def test_a_limit_that_is_no_time_is_refused(service, seconds):
    """Nothing of the standard library's arithmetic reaches the caller."""
    async with service.session() as session:
        with pytest.raises(ConfigurationError) as caught:
            await session.create_job("x", timeout=seconds)
    assert caught.value.field == "timeout"


async def test_a_request_that_aiohttp_cannot_make_is_a_mistake_and_not_tried_again(service):
    """A host that is none: the settings are to blame, not the network."""
    tried = []
    async with service.session(base_url="https://a..b", on_request=tried.append) as session:
        for call in (session.create_job("x"), session.job("j").refresh(), session.ask("x").run()):
            with pytest.raises(ConfigurationError, match="base_url"):
                await call
    assert len(tried) == 3


@pytest.mark.parametrize("proxy", ["http://", "https:///path", "http://[bad"])
def test_a_proxy_without_a_host_is_refused(proxy):
    """Or aiohttp would go past it without a word."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(proxy=proxy)
    assert caught.value.field == "proxy"


async def test_a_key_function_that_hangs_says_which_limit_ended_it():
    """The whole answer's, where that is shorter."""

    async def hang():
        await asyncio.Event().wait()

    clock = VirtualClock()
    async with LocalService(clock=clock) as service, service.session(assistant_key=hang) as session:
        for timeout, phase, seconds in ((5, "total", 5), (None, "first_event", 60)):
            with pytest.raises(APITimeoutError) as caught:
                await session.ask("x", timeout=timeout)
            assert (caught.value.phase, caught.value.seconds) == (phase, seconds)


async def test_a_password_in_netrc_is_named_as_what_is_in_the_way(service, monkeypatch, tmp_path):
    """With trust_env aiohttp would send it in place of the key; it is not tried again."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with service.session(trust_env=True) as session:
        with pytest.raises(ConfigurationError, match="netrc"):
            await session.create_job("x")
    assert len(service.requests) == 0
