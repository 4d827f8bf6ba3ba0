"""The views of one answer, its limits, its thread, and TLS and proxies on the way to it."""

from __future__ import annotations

import asyncio
import gc
import ssl
import traceback
import weakref
from collections.abc import Callable

import aiohttp
import pytest
import trustme
from secret_guard import Keys

from mintlify_async import (
    APIConnectionError,
    APIStatusError,
    AssistantError,
    ErrorEvent,
    Finish,
    Message,
    NotFoundError,
    OutcomeUnknownError,
    StateError,
    StreamInterruptedError,
    TextDelta,
    Thread,
)
from mintlify_async.errors import StreamDecodeError, UnexpectedResponseError
from mintlify_async.http.failures import version_numbers
from mintlify_async.runtime.clock import SystemClock, Timer
from mintlify_async.testing import LocalService
from mintlify_async.testing.faults import BrokenChunking, Cut, Endless, GzipBomb, Reset

KEYS = Keys()
ANSWER = [
    {"type": "start", "messageId": "m1"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello "},
    {"type": "text-delta", "id": "0", "delta": "w\ud83d"},
    {"type": "text-delta", "id": "0", "delta": "\ude00"},
    {"type": "text-end", "id": "0"},
    {"type": "finish", "finishReason": "stop"},
]
TEXT = "Hello w\U0001f600"


@pytest.fixture
async def service():
    async with LocalService() as service:
        yield service


@pytest.fixture
async def session(service):
    async with service.session() as session:
        yield session


async def test_iterating_gives_typed_events_and_the_text_so_far(service, session):
    """At each event the reply shows exactly what was handed out."""
    service.script.ask(events=ANSWER)
    so_far = ""
    async for event in (reply := session.ask("x")):
        match event:
            case TextDelta(delta=delta):
                so_far += delta
            case Finish(finish_reason=reason):
                assert reason == "stop"
        assert len(reply.text) <= len(so_far)
    assert reply.text == TEXT
    assert reply.message.id == "m1"
    assert reply.response.status == 200


async def test_text_stream_never_hands_out_half_a_character(service, session):
    """A surrogate pair that came in two deltas comes out as one character."""
    service.script.ask(events=ANSWER)
    async with session.ask("x") as reply:
        pieces = [piece async for piece in reply.text_stream]
    assert pieces == ["Hello ", "w", "\U0001f600"]


async def test_a_lone_half_at_the_end_is_replaced(service, session):
    """It could not be printed."""
    service.script.ask(events=[*ANSWER[:4], *ANSWER[5:]])
    async with session.ask("x") as reply:
        pieces = [piece async for piece in reply.text_stream]
    assert pieces == ["Hello ", "w", "\ufffd"]
    assert reply.text == "Hello w\ufffd"


async def test_snapshots_are_the_message_after_each_change(service, session):
    """As many as there are writes; the last is the final message."""
    service.script.ask(events=ANSWER)
    reply = session.ask("x")
    snapshots = [message async for message in reply.snapshots()]
    assert [message.text for message in snapshots] == ["", "", "Hello ", "Hello w", TEXT, TEXT]
    assert snapshots[-1] == await reply.final() == reply.message


async def test_awaiting_in_a_task_and_in_a_group(service, session):
    """``run()`` is a coroutine, for what takes no awaitable."""
    service.script.ask(events=ANSWER, times=3)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(session.ask("x").run())
    first, second = await asyncio.gather(session.ask("x"), asyncio.wait_for(session.ask("x"), 5))
    assert task.result().text == first.text == second.text == TEXT


async def test_awaiting_after_some_steps_reads_the_rest(service, session):
    """One stream, whoever reads it."""
    service.script.ask(events=ANSWER)
    reply = session.ask("x")
    assert (await anext(reply)).type == "start"
    assert (await reply).text == TEXT


async def test_an_error_event_is_yielded_then_raised(service, session):
    """What came before it is kept; what comes after it is never seen."""
    service.script.ask(events=[*ANSWER[:3], {"type": "error", "errorText": "overloaded"}, *ANSWER[3:]])
    seen = []

    async def read():
        async for event in session.ask("x"):
            seen.append(event)

    with pytest.raises(AssistantError, match="overloaded") as caught:
        await read()
    assert isinstance(seen[-1], ErrorEvent)
    assert caught.value.error_text == "overloaded"
    assert caught.value.text == "Hello "


async def test_an_abort_is_a_normal_end(service, session):
    """The service stopped by itself; the text is kept."""
    service.script.ask(events=[*ANSWER[:3], {"type": "abort", "reason": "stopped"}])
    reply = await session.ask("x")
    assert (reply.aborted, reply.abort_reason, reply.text) == (True, "stopped", "Hello ")


async def test_an_assistant_message_at_the_end_is_continued(service, session):
    """As the page's client does: the parts are appended, the id is kept."""
    service.script.ask(events=[ANSWER[1], *ANSWER[2:3], ANSWER[-1]])
    begun = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "Well. "}]}
    reply = await session.ask([Message.user("x", id="u1"), begun])
    assert reply.message.id == "a1"
    assert [part.text for part in reply.message.parts] == ["Well. ", "Hello "]


@pytest.mark.parametrize(
    ("settings", "body"),
    [
        ({"max_event_bytes": 1000}, b"data: " + b"x" * 2000),
        ({"max_event_bytes": 1000}, b"data: {}\ndata: " * 500),
        ({"max_reply_bytes": 5000}, b": comment\n\n" * 1000),
    ],
)
async def test_an_answer_that_is_too_large(service, settings, body):
    """A typed error that names the setting, and bounded memory."""
    service.script.ask(body=body)
    async with service.session(**settings) as session:
        with pytest.raises(StreamDecodeError, match=next(iter(settings))):
            await session.ask("x")


async def test_a_decompression_bomb_is_bounded(service):
    """100 MB of nothing are counted as they are unpacked."""
    service.script.ask(body=b"x", fault=GzipBomb(100_000_000))
    async with service.session(max_reply_bytes=2_000_000, max_event_bytes=1_000_000) as session:
        # From 3.13.3 until 3.14, aiohttp itself refuses to unpack so much, before our limit is reached.
        by_aiohttp = (3, 13, 3) <= version_numbers(aiohttp.__version__) < (3, 14)
        expected = StreamInterruptedError if by_aiohttp else (StreamDecodeError, UnexpectedResponseError)
        with pytest.raises(expected):
            await session.ask("x")


async def test_a_flood_of_comments_ends_at_the_limit(service):
    """Nothing but keep-alives, for ever, as fast as they go."""
    service.script.ask(events=ANSWER, fault=Endless(b": x\n\n" * 10_000, pause=0.0))
    async with service.session(max_reply_bytes=5_000_000) as session:
        with pytest.raises(StreamDecodeError, match="max_reply_bytes"):
            await session.ask("x")


async def test_the_thread_goes_on_with_the_key_that_came_once(service, session):
    """Three turns; the service remembers the first."""
    first = await session.ask("How do I log in?")
    assert first.thread is not None
    assert first.thread.key
    thread = first.thread
    for question in ("And by SSO?", "What did I ask first?"):
        reply = await session.ask(question, thread=thread)
        assert reply.thread == thread
        thread = reply.thread
    assert [r.json.get("threadId") for r in service.requests] == [None, thread.id, thread.id]
    assert "X-Thread-Key" not in repr(first.response)
    assert thread.key not in repr(first.response)


async def test_a_thread_without_its_key_is_explained(service, session):
    """404 means something else here, and the message says so."""
    first = await session.ask("How do I log in?")
    with pytest.raises(NotFoundError, match="without its key") as caught:
        await session.ask("And by SSO?", thread=first.thread_id)
    assert "keep reply.thread" in str(caught.value)
    with pytest.raises(NotFoundError) as other:
        await session.ask("x", domain="no-such-site")
    assert "without its key" not in str(other.value)


async def test_the_reply_shows_nothing_in_its_repr(service, session):
    """Answers do not belong in logs."""
    service.script.ask(events=ANSWER)
    reply = await session.ask("a secret question")
    assert repr(reply) == "<Reply closed, 7 events>"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def tls_service(authority):
    """The service behind a certificate of *authority*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with LocalService(ssl=context) as service:
        yield service


async def test_tls_with_a_context_that_trusts_the_authority(tls_service, authority):
    """Both kinds of connection."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with tls_service.session(ssl=context) as session:
        assert (await session.create_job("x")).id
        assert (await session.ask("How do I log in?")).text


async def test_a_certificate_that_is_not_trusted_was_not_sent_and_is_not_retried(tls_service):
    """Asking again cannot help."""
    retries = []
    async with tls_service.session(on_retry=retries.append) as session:
        for call in (session.create_job("x"), session.ask("x").run(), session.job("j").refresh()):
            with pytest.raises(APIConnectionError, match="certificate") as caught:
                await call
            assert (caught.value.sent, caught.value.reason) == ("no", "certificate")
    assert retries == []
    assert tls_service.requests == []


async def test_a_proxy_gets_the_request(service):
    """Given, or from the environment when that is asked for."""
    async with service.session(base_url="http://localhost:9", proxy=service.base_url) as session:
        with pytest.raises(APIStatusError):
            await session.create_job("x")
    assert service.requests[0].path.endswith("/v2/agent/acme/job")
    assert len(service.requests) == 1


@pytest.mark.parametrize("trust_env", [True, False])
async def test_the_environment_is_trusted_only_on_request(service, monkeypatch, trust_env):
    """A proxy of the environment would see the key of a plain-http address."""
    monkeypatch.setenv("http_proxy", service.base_url)
    monkeypatch.delenv("no_proxy", raising=False)
    async with service.session(base_url="http://localhost:9", trust_env=trust_env) as session:
        with pytest.raises((APIStatusError, APIConnectionError)):
            await session.create_job("x")
    assert len(service.requests) == (1 if trust_env else 0)


async def test_a_proxy_that_is_not_there_was_not_sent(service):
    """The error says that it is the proxy."""
    async with service.session(proxy="http://127.0.0.1:9") as session:
        with pytest.raises(APIConnectionError, match="proxy") as caught:
            await session.create_job("x")
    assert caught.value.sent == "no"


async def test_a_large_prompt_goes_out_whole(service, session):
    """In pieces, without aiohttp's warning about large bodies."""
    prompt = "ä" * 1_500_000
    await session.create_job(prompt)
    assert service.requests[0].json == {"prompt": prompt}


async def test_a_key_that_is_echoed_in_the_stream_stays_out_of_errors(service, session):
    """A thread's key in an event that cannot be read is masked in the excerpt."""
    service.script.ask(body=f'data: {{"type": "finish", "threadKey": "{KEYS.thread}", broken\n\n')
    with pytest.raises(StreamDecodeError) as caught:
        await session.ask("x", thread=Thread("t1", KEYS.thread))
    assert KEYS.thread not in caught.value.excerpt


async def test_a_reply_of_a_closed_session_says_so(service):
    """Made before, stepped after."""
    session = service.session()
    reply = session.ask("x")
    await session.close()
    with pytest.raises(StateError, match="closed"):
        await anext(reply)


def test_replies_and_errors_are_of_our_tree():
    """Whoever catches the two families catches what a question can raise."""
    assert issubclass(StreamInterruptedError, Exception)
    assert not issubclass(OutcomeUnknownError, APIConnectionError)


class BreakingClock(SystemClock):
    """The system's clock until it breaks."""

    broken = False

    def call_at(self, at: float, callback: Callable[[], object]) -> Timer:
        """Refuse every timer once it is broken."""
        if self.broken:
            raise RuntimeError("my clock is broken")
        return super().call_at(at, callback)


async def test_a_defect_is_not_taken_for_a_lost_connection(service):
    """What a user's own clock raises goes through; only what aiohttp raises is the connection's."""
    clock = BreakingClock()
    async with service.session(clock=clock) as session, session.ask("x") as reply:
        clock.broken = True
        with pytest.raises(RuntimeError, match="my clock is broken"):
            await anext(reply)
        clock.broken = False
        assert (await reply).complete


@pytest.mark.parametrize("fault", [BrokenChunking(), Cut(at=100), Reset()])
async def test_no_frame_of_an_error_holds_what_aiohttp_raised(service, session, fault):
    """Tools that print the locals of each frame show none of its objects."""
    service.script.ask(events=ANSWER, fault=fault)
    with pytest.raises(APIConnectionError if isinstance(fault, Reset) else StreamInterruptedError) as caught:
        await session.ask("x")
    links: list[BaseException | None] = [caught.value]
    for link in links:
        if link is not None:
            links += [link.__cause__] if link.__cause__ not in links else []
            for frame, _ in traceback.walk_tb(link.__traceback__):
                held = [value for value in frame.f_locals.values() if isinstance(value, BaseException)]
                assert not [error for error in held if type(error).__module__.startswith("aiohttp")]


@pytest.mark.parametrize("limits", [{}, {"timeout": 60.0}])
async def test_a_reply_that_is_kept_keeps_nothing_of_its_session(service, limits):
    """A program may keep answers for long: its hooks, and what has the keys, go with the session."""

    class Hook:
        def __call__(self, sent):
            """Listen."""

    hook = Hook()
    async with service.session(on_request=hook) as session:
        reply = await session.ask("How do I log in?", **limits)
        gone = [weakref.ref(session), weakref.ref(hook), weakref.ref(session._agent)]
    del session, hook
    gc.collect()
    assert [one() for one in gone] == [None, None, None]
    assert reply.text
