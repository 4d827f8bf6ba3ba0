"""The views of one answer, its limits, its end, and proxies on the way to it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import traceback
import warnings
import weakref

import anyio
import pytest
from attrs import evolve

from mintlify_async import (
    Answer,
    APIConnectionError,
    APIStatusError,
    AssistantError,
    Finish,
    MemoryStore,
    Message,
    Quota,
    StateError,
    StreamInterruptedError,
    Timeouts,
)
from mintlify_async.errors import StreamDecodeError
from mintlify_async.testing import Cut, NoAnswer, Reset
from tests.support.fault_catalogue import BODY, EVENTS, BrokenChunking
from tests.support.observer_watch import Watch

WITHOUT_DONE = BODY.removesuffix(b"data: [DONE]\n\n")


async def test_an_abort_is_a_normal_end(service, session):
    """The service stopped by itself; the text is kept."""
    service.script.ask(events=[*EVENTS[:3], {"type": "abort", "reason": "stopped"}])
    reply = await session.ask("x")
    assert (reply.aborted, reply.abort_reason, reply.text) == (True, "stopped", "Hello ")


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("an event", b"data: " + b"x" * 2000),
        ("an event", b"data: {}\ndata: " * 500),
        ("the answer", b": comment\n\n" * 1000),
    ],
)
async def test_an_answer_that_is_too_large(service, session, monkeypatch, what, body):
    """A typed error that names the limit, and bounded memory."""
    monkeypatch.setattr("mintlify_async.assistant.sse.MAX_EVENT_BYTES", 1000)
    monkeypatch.setattr("mintlify_async.assistant.event_stream.MAX_REPLY_BYTES", 5000)
    service.script.ask(body=body)
    with pytest.raises(StreamDecodeError, match=f"{what} is larger than"):
        await session.ask("x")


@pytest.mark.parametrize("proxy", ["given", "environment", None])
async def test_a_proxy_is_given_or_asked_for(service, monkeypatch, proxy):
    """A proxy of the environment would see the key of a plain-http address: it is used on request only."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9" if proxy == "given" else service.base_url)
    monkeypatch.delenv("no_proxy", raising=False)
    used = service.base_url if proxy == "given" else proxy
    async with service.session(base_url="http://localhost:9", proxy=used) as session:
        with pytest.raises(APIStatusError if proxy else APIConnectionError):
            await session.create_job("x")
    assert len(service.requests) == (1 if proxy else 0)


async def test_a_large_prompt_goes_out_whole(service, session):
    """In pieces, without aiohttp's warning about large bodies."""
    prompt = "ä" * 1_500_000
    await session.create_job(prompt)
    assert service.requests[0].json == {"prompt": prompt}


@pytest.mark.parametrize("fault", [BrokenChunking(), Cut(at=100), Reset()])
async def test_no_frame_of_an_error_holds_what_aiohttp_raised(virtual, service, session, fault):
    """Tools that print the locals of each frame show none of its objects."""
    expected = APIConnectionError if isinstance(fault, Reset) else StreamInterruptedError
    service.script.ask(events=EVENTS, fault=fault)
    with pytest.raises(expected) as caught:
        await session.ask("x")
    links: list[BaseException | None] = [caught.value]
    for link in links:
        if link is not None:
            links += [link.__cause__] if link.__cause__ not in links else []
            for frame, _ in traceback.walk_tb(link.__traceback__):
                held = [value for value in frame.f_locals.values() if isinstance(value, BaseException)]
                assert not [error for error in held if type(error).__module__.startswith("aiohttp")]


async def test_a_reply_that_is_kept_keeps_nothing_of_its_session(service):
    """A program may keep answers for long: its observer, and what has the keys, go with the session."""
    hook = Watch()
    async with service.session(observer=hook) as session:
        reply = await session.ask("How do I log in?", timeout=60.0)
        gone = [weakref.ref(session), weakref.ref(hook), weakref.ref(session._core)]
    del session, hook
    gc.collect()
    assert [one() for one in gone] == [None, None, None]
    assert reply.text


READS = {
    "the reply": lambda reply: reply,
    "text_stream": lambda reply: reply.text_stream,
    "edits": lambda reply: reply.edits(every=0.0),
}


def text_of(item) -> str:
    """Return the text that one item of a view adds to, or is."""
    return item if isinstance(item, str) else getattr(item, "text", getattr(item, "delta", ""))


STEPS = {"a task each": asyncio.create_task, "wait_for": lambda step: asyncio.wait_for(step, 5)}


@pytest.mark.parametrize("view", READS)
@pytest.mark.parametrize("how", STEPS)
async def test_each_step_may_run_in_a_task_of_its_own(virtual, service, session, view, how):
    """Also short waits, with a second of other work after each, read the whole answer."""
    words = ["Hello ", "there ", "my ", "friend"]
    deltas = [{"type": "text-delta", "id": "0", "delta": word} for word in words]
    paused = [step for delta in deltas for step in (12.0, delta)]
    service.script.ask(events=[*EVENTS[:2], *paused, *EVENTS[-2:]])
    items, seen = READS[view](session.ask("x")), []
    with contextlib.suppress(StopAsyncIteration):
        while True:
            try:
                seen.append(await STEPS[how](anext(items)))
            except TimeoutError:
                await asyncio.sleep(1)
    text = "".join(map(text_of, seen)) if view in ("the reply", "text_stream") else text_of(seen[-1])
    assert text == "".join(words)


AFTERWARDS = {
    "bad JSON": b"data: {nonsense\n\n",
    "a delta of no part": b'data: {"type":"text-delta","id":"9","delta":"x"}\n\n',
    "an event that is too large": b"data: " + b"x" * 5000 + b"\n\n",
    "more than the reply may hold": b'data: {"type":"data-x","data":1}\n\n' * 2000,
    "half a last event": b'data: {"type":"dat',
    "a last event of no part": b'data: {"type":"text-delta","id":"9","delta":"x"}',
    "an error": b'data: {"type":"error","errorText":"late"}\n\n',
}


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("what", AFTERWARDS)
async def test_nothing_after_the_end_harms_a_whole_answer(service, session, monkeypatch, what, done):
    """Whatever follows ``finish`` or ``[DONE]``: the answer has arrived."""
    service.script.ask(body=(BODY if done else WITHOUT_DONE) + AFTERWARDS[what])
    monkeypatch.setattr("mintlify_async.assistant.sse.MAX_EVENT_BYTES", 4000)
    monkeypatch.setattr("mintlify_async.assistant.event_stream.MAX_REPLY_BYTES", 20_000)
    reply = session.ask("x")
    events = [event async for event in reply]
    assert reply.text == "Hello world"
    last = {"an error": "error", "more than the reply may hold": "data-x"}
    assert events[-1].type == last.get(what, "finish")
    assert reply.complete


@pytest.mark.parametrize(("done", "seconds"), [(False, 5.0), (True, 1.0)])
@pytest.mark.parametrize("noise", ["events", "comments"])
async def test_an_answer_that_is_held_open_after_its_end_is_let_go(
    virtual, service, session, done, seconds, noise
):
    """After ``finish`` 1 s of silence or 5 s in all, after ``[DONE]`` 1 s in all."""
    more = b'data: {"type":"data-x","data":1}\n\n' if noise == "events" else b": still here\n\n"
    limit = seconds if noise == "events" else 1.0
    service.script.ask(body=[BODY if done else WITHOUT_DONE, *[0.2, more] * 100])
    started = virtual.now()
    assert (await session.ask("x")).text == "Hello world"
    assert limit - 0.3 <= virtual.now() - started <= limit + 0.3


# The answer as a value -------------------------------------------------------------------------


async def test_awaiting_gives_the_answer_as_a_value(service, session):
    """Everything that is known of it, by the names that the reply has for it."""
    suggested = "\n\n```suggestions\n(Log in)[/login]\n```"
    source = {"type": "source-url", "sourceId": "s", "url": "https://docs.acme.com/sso", "title": "SSO"}
    delta = {"type": "text-delta", "id": "0", "delta": suggested}
    events = [*EVENTS[:3], delta, EVENTS[4], source, EVENTS[5]]
    service.script.ask(events=events, headers={"X-Request-Id": "req_1"})
    reply = session.ask("x")
    answer = await reply
    assert isinstance(answer, Answer)
    assert (answer.text, answer.message.id) == ("Hello ", "m1")
    assert answer.message.text == f"Hello {suggested}"
    assert [page.url for page in answer.sources] == ["https://docs.acme.com/sso"]
    assert [page.path for page in answer.suggestions] == ["/login"]
    assert (answer.thread, answer.thread_id) == (reply.thread, "t1")
    assert (answer.finish_reason, answer.aborted, answer.abort_reason) == ("stop", False, None)
    assert (answer.response.status, answer.events_seen) == (200, 7)
    assert answer.request_id == reply.request_id == "req_1"
    assert await reply is answer is reply.answer is await reply.run()
    assert repr(reply) == "<Reply read, 7 events>"
    assert repr(answer) == "<Answer 7 events, finish_reason='stop'>"


async def test_an_answer_is_a_key_of_a_dict(service, session):
    """Equal answers have equal hashes, whatever their message holds."""
    output = {"type": "tool-output-available", "toolCallId": "c", "output": {"results": [1]}}
    call = {"type": "tool-input-available", "toolCallId": "c", "toolName": "search", "input": {}}
    service.script.ask(
        events=[*EVENTS[:-1], call, output, {**EVENTS[-1], "messageMetadata": {"n": 1}}], times=2
    )
    answer = await session.ask("x")
    again = evolve(answer, message=Message.from_wire(answer.message.to_wire()))
    assert again == answer
    assert {answer: 1}[again] == 1
    assert len({answer, evolve(answer, events_seen=1)}) == 2


async def test_a_reply_has_its_answer_when_it_has_ended(service, session):
    """Not before; not when it failed; but when it was closed after its ``finish``."""
    service.script.ask(events=EVENTS)
    async with session.ask("x") as reply:
        async for event in reply:
            with pytest.raises(StateError, match="not read to its end yet; `await` the reply"):
                _ = reply.answer
            if isinstance(event, Finish):
                break
    assert reply.answer.text == "Hello world"
    service.script.ask(events=[*EVENTS[:3], {"type": "error", "errorText": "overloaded"}])
    reply = session.ask("x")
    errors = [(await asyncio.gather(reply.run(), return_exceptions=True))[0] for _ in range(2)]
    assert isinstance(errors[0], AssistantError)
    assert errors[0] is errors[1]
    assert service.requests.count("ask") == 2
    for read_again in (lambda: reply.answer, lambda: aiter(reply), lambda: aiter(reply.text_stream)):
        with pytest.raises(StateError, match="without a complete answer") as caught:
            read_again()
        assert "await" not in str(caught.value)  # it would fail, too
        assert "reply.answer" not in str(caught.value)


@pytest.mark.parametrize("fact", ["text", "message", "sources", "thread_id", "finish_reason", "response"])
async def test_a_reply_that_was_not_started_says_how_to_read_it(service, session, fact):
    """An empty text would look like an answer."""
    reply = session.ask("x")
    for _ in range(2):
        with pytest.raises(StateError) as caught:
            getattr(reply, fact)
        for way in ("`await` it", "`async for event in reply`", "`async with reply:"):
            assert way in str(caught.value)
        await reply.close()
    assert len(service.requests) == 0


@pytest.mark.parametrize("view", READS)
@pytest.mark.parametrize("how", ["read", "awaited", "failed", "closed", "closed unread"])
async def test_a_reply_is_read_once(service, session, view, how):
    """A loop over an answer that is gone would do nothing, in silence."""
    broken = {"type": "error", "errorText": "overloaded"}
    service.script.ask(events=[*EVENTS[:3], broken] if how == "failed" else EVENTS)
    reply = session.ask("x")
    if how == "read":
        assert len([event async for event in reply]) == 6
    elif how == "awaited":
        await reply
    elif how == "failed":
        with pytest.raises(AssistantError):
            await reply
    elif how == "closed":
        await anext(reply)
    await reply.close()
    with pytest.raises(StateError, match="ended"):
        async for _ in READS[view](reply):
            pass


async def drop(reply, *, entered: bool) -> None:
    """Leave *reply* unread."""
    if entered:
        async with reply:
            pass


@pytest.mark.parametrize("entered", [False, True])
@pytest.mark.parametrize("of", ["session", "conversation"])
async def test_a_reply_that_is_never_read_warns_with_the_line_that_made_it(session, entered, of):
    """A forgotten ``await`` shows in every test suite."""
    asker = session if of == "session" else session.conversation()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = test_a_reply_that_is_never_read_warns_with_the_line_that_made_it.__code__.co_firstlineno
        await drop(asker.ask("x"), entered=entered)
        gc.collect()
    (warning,) = [each for each in caught if "reply" in str(each.message)]
    assert (warning.category, warning.filename) == (ResourceWarning, __file__)
    assert line < warning.lineno < line + 15
    assert ("entered, but never read" if entered else "never started, so nothing was sent") in str(
        warning.message
    )


async def test_what_was_tried_or_closed_does_not_warn(service, session):
    """Only what was forgotten."""
    service.script.ask(status=403)
    with pytest.raises(APIStatusError):
        await session.ask("x")
    await session.ask("x").close()
    with pytest.raises(ZeroDivisionError):
        async with session.ask("x"):
            raise ZeroDivisionError
    gc.collect()  # a warning is an error here


@pytest.mark.parametrize("view", ["text_stream", "edits"])
async def test_aclosing_a_view_closes_its_reply(service, session, view):
    """Leaving the block of a view frees the connection, as leaving the reply's block does."""
    service.script.ask(events=[*EVENTS[:3], 60.0])
    reply = session.ask("Hm?")
    made = getattr(reply, view)
    async with contextlib.aclosing(made if view == "text_stream" else made()) as reading:
        await anext(reading)
    assert reply.closed
    await service.until(lambda running: running.answering == 0)
    await reading.aclose()


# A step that was cancelled ------------------------------------------------------------------------


PAUSED = [*EVENTS[:3], 300.0, *EVENTS[3:]]


@pytest.mark.parametrize("entered", [False, True])
async def test_a_reply_is_closed_when_nobody_reads_on_after_a_cancelled_step(virtual, service, entered):
    """After 5 s, whatever keeps it alive; a step after that says so, with what had arrived."""
    service.script.ask(events=PAUSED)
    async with service.session(timeouts=Timeouts(idle=None)) as session, contextlib.AsyncExitStack() as block:
        reply = session.ask("x")
        if entered:
            await block.enter_async_context(reply)
        for _ in range(3):
            await anext(reply)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(reply), 1)
        await asyncio.sleep(4.9)
        assert service.answering == 1
        await asyncio.sleep(0.2)
        if entered:  # the end of its block closes it
            assert service.answering == 1
            assert (await anext(reply)).type == "text-delta"
            return
        assert reply.closed
        assert service.answering == 0
        for read_on in (lambda: anext(reply), lambda: reply, reply.run):
            with pytest.raises(StreamInterruptedError, match="nobody read on within 5 s") as caught:
                await read_on()
            assert (caught.value.text, caught.value.events_seen) == ("Hello ", 3)
        with pytest.raises(StreamInterruptedError):
            aiter(reply)


async def test_a_reply_that_is_dropped_after_a_cancelled_step_is_closed_at_once(virtual, service, session):
    """Nothing else keeps it alive for the five seconds."""
    service.script.ask(events=PAUSED)
    reply = session.ask("x")
    for _ in range(3):
        await anext(reply)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(anext(reply), 1)
    gone = weakref.ref(reply)
    del reply
    await asyncio.sleep(0)  # from Python 3.12 on, the loop keeps the cancelled step until then
    gc.collect()
    assert gone() is None
    await asyncio.sleep(0.5)
    assert service.answering == 0


# Closing a reply while it is opened -----------------------------------------------------------------


async def events_of(reply):
    """Return the events of *reply*."""
    return [event async for event in reply]


async def test_closing_a_reply_that_is_being_opened_frees_it_at_once(service):
    """Closing a reply before its answer began ends its reader and closes the connection."""
    service.script.ask(fault=NoAnswer())
    async with service.session() as session:
        reply = session.ask("x")

        reader = asyncio.create_task(events_of(reply))
        await service.until(lambda running: running.answering == 1)
        await reply.close()
        with anyio.fail_after(20):
            assert await reader == []
            await service.until(lambda running: not running.answering)
        with pytest.raises(StreamInterruptedError):
            await reply


async def test_a_reply_that_was_closed_ends_quietly_though_its_session_closes_too(service):
    """Closing a reply between two attempts, and then its session, raises nothing in the reader."""
    service.script.ask(status=429, headers={"Retry-After": "30"}, times=None)
    retried = asyncio.Event()
    watch = Watch()
    watch.event = lambda name, _: retried.set() if name == "retry" else None
    session = service.session(observer=watch)
    reply = session.ask("x")

    reader = asyncio.create_task(events_of(reply))
    with anyio.fail_after(20):
        await retried.wait()
    await reply.close()
    await session.close()
    with anyio.fail_after(20):
        assert await reader == []
    assert service.requests.count("ask") == 1


async def test_closing_a_reply_does_not_wait_for_a_slot_that_is_given_back(service):
    """Closing a reply does not wait for a slow quota store, and no retry is reported for it."""
    watch, giving_back = Watch(), asyncio.Event()

    class Slow(MemoryStore):
        async def refund(self, *args, **kwargs):
            giving_back.set()
            await asyncio.sleep(3600)

    quota = Quota(store=Slow())
    async with service.refusing(), service.session(quota=quota, observer=watch) as session:
        reply = session.ask("x")
        reader = asyncio.create_task(reply.__aenter__())
        await giving_back.wait()
        await reply.close()
        with anyio.fail_after(20):
            assert await reader is reply
    assert watch.count("retry") == 0


async def test_a_pickled_answer_has_no_key(session):
    """So it cannot go on with the thread; all else is there."""
    answer = await session.ask("How do I log in?")
    assert answer.thread.key
    pickled = pickle.dumps(answer)
    assert answer.thread.key.encode() not in pickled
    again = pickle.loads(pickled)
    assert (again.message, again.thread_id, again.thread.key) == (answer.message, answer.thread_id, None)


async def test_a_refused_reply_raises_the_same_again(service, session):
    """A reply is one question; awaiting it again sends nothing."""
    service.script.ask(status=400)
    reply = session.ask("x")
    errors = [(await asyncio.gather(reply.run(), return_exceptions=True))[0] for _ in range(2)]
    assert isinstance(errors[0], APIStatusError)
    assert errors[0] is errors[1]
    assert service.requests.count("ask") == 1
