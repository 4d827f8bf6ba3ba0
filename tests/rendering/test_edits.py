"""The edits of a chat surface: bounded in rate and length, and everything shown whatever happens."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import itertools
import random

import pytest

from mintlify_async.assistant.text_stream import TextStream
from mintlify_async.errors import (
    AssistantError,
    ConfigurationError,
    PermissionDeniedError,
    StateError,
    StreamInterruptedError,
)
from mintlify_async.rendering.answer_as_markdown import extras_markdown
from mintlify_async.rendering.growing_messages import Edit
from mintlify_async.rendering.readable_text import ReadableText
from mintlify_async.runtime.time_limits import TimeLimit
from mintlify_async.testing import Cut

pytestmark = pytest.mark.usefixtures("virtual")


def answer(*texts: str, end: bool = True) -> list[dict]:
    """Return the events of an answer of one text in these pieces."""
    deltas = [{"type": "text-delta", "id": "0", "delta": text} for text in texts]
    last = [{"type": "text-end", "id": "0"}, {"type": "finish", "finishReason": "stop"}] if end else []
    return [{"type": "start", "messageId": "m1"}, {"type": "text-start", "id": "0"}, *deltas, *last]


HALF = answer("Half ", "an answ", end=False)


async def collect(edits, seen: list[Edit]) -> None:
    """Add each edit to *seen*, so that what came before an error is there."""
    async for edit in edits:
        seen.append(edit)


async def show(edits, *, takes: float = 0.0) -> tuple[list[Edit], list[tuple[float, float]]]:
    """Consume like a chat surface whose every edit *takes* some time; return the edits and when each ran."""
    loop, seen, times = asyncio.get_running_loop(), [], []
    start = loop.time()
    async for edit in edits:
        begun = loop.time() - start
        await asyncio.sleep(takes)
        seen.append(edit)
        times.append((begun, loop.time() - start))
    return seen, times


async def test_an_answer_grows_at_a_bounded_rate(service, session, virtual):
    """No edit begins sooner than ``every`` after the last was done; the text arrives whole."""
    words = [f"word{n} " for n in range(400)]
    service.script.ask(events=answer(*words), pause=0.05)
    edits, times = await show(session.ask("Hi").edits(every=1.2, limit=4000), takes=0.3)
    assert edits[-1] == Edit(index=0, text="".join(words).strip(), delta=edits[-1].delta, final=True)
    gaps = [begun - done for (_, done), (begun, _) in itertools.pairwise(times)]
    assert min(gaps) >= 1.2 - 1e-9
    assert virtual.now() == pytest.approx(times[-1][1])  # the end is known with the last edit
    assert 12 <= len(edits) <= 16  # 20 s of answer at one edit in 1.5 s: read on, not waited for
    assert all(not edit.final for edit in edits[:-1])
    assert all(later.text.startswith(edit.text) for edit, later in itertools.pairwise(edits))


async def test_the_first_words_come_at_once(service, session, virtual):
    """A person who waits sees something as soon as there are three words: the last two are held back."""
    service.script.ask(events=[*answer("Hello there to ", end=False), 5.0, *answer("you")[2:]])
    async with session.ask("Hi") as reply:
        edits = reply.edits(every=1.2, limit=2000)
        first = await anext(edits)
        assert (first.text, first.final, virtual.now()) == ("Hello", False, 0.0)
        assert [edit.text async for edit in edits][-1] == "Hello there to you"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ({"events": [*HALF, {"type": "error", "errorText": "overloaded"}]}, AssistantError),
        ({"body": HALF, "fault": Cut(at=-1, how="rst")}, StreamInterruptedError),
    ],
)
async def test_a_failure_comes_after_the_last_text(service, session, script, error):
    """What had come is shown whole before the error, without a tail. A conversation keeps what was shown."""
    service.script.ask(**script)
    chat, seen = session.conversation(commit="partial"), []
    with pytest.raises(error):
        await collect(chat.ask("Hi").edits(every=1.2, tail=lambda reply: "below"), seen)
    assert (seen[-1].text, seen[-1].final) == ("Half an answ", True)
    assert chat.messages[-1].text == "Half an answ"
    assert not chat.busy


async def test_a_refusal_is_raised_at_once(service, session):
    """No text, no edit: the refusal itself. An answer without text gives no edit, either."""
    service.script.ask(events=[{"type": "start", "messageId": "m"}, {"type": "finish"}])
    assert [edit async for edit in session.ask("Hi").edits()] == []
    service.script.ask(status=403)
    seen = []
    with pytest.raises(PermissionDeniedError):
        await collect(session.ask("Hi").edits(), seen)
    assert not seen


async def test_break_and_the_block_leave_nothing_behind(service, session):
    """The service sees the client leave."""
    service.script.ask(events=answer(*["word "] * 1000), pause=0.1, times=2)
    async for _ in session.ask("Hi").edits(every=1.2):
        break
    gc.collect()
    await asyncio.sleep(0.1)
    assert service.requests[-1].client_left
    async with session.ask("Hi").edits(every=1.2) as edits:
        await anext(edits)
    await asyncio.sleep(0.1)
    assert service.requests[-1].client_left
    assert [edit async for edit in edits] == []


@pytest.mark.parametrize("takes", [0.0, 50.0])
@pytest.mark.parametrize("entered", [False, True])
async def test_a_cancelled_consumer_leaves_nothing_behind(service, session, takes, entered):
    """Cancelled in a step or between two, in a block or while its traceback still holds the iterator."""
    service.script.ask(events=answer(*["word "] * 1000), pause=0.1)
    chat = session.conversation()

    async def consume() -> None:
        async with contextlib.AsyncExitStack() as block:
            reply = chat.ask("Hi")
            if entered:
                await block.enter_async_context(reply)
            await show(reply.edits(every=1.2), takes=takes)

    task = asyncio.create_task(consume())
    await asyncio.sleep(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as held:
        await task
    await asyncio.sleep(0.1)
    assert service.requests[-1].client_left
    assert not chat.busy
    assert held.value is not None


async def test_many_replies_in_one_task_leave_nothing_with_it(service, session):
    """A bot's loop may show thousands of answers from one task."""
    for _ in range(3):
        await show(session.ask("Hi").edits(every=0.0))
        async for _edit in session.ask("Hi").edits(every=0.0):
            break
    await asyncio.sleep(0.1)
    assert len(asyncio.current_task()._callbacks or ()) <= 1


async def test_closing_the_reply_elsewhere_ends_quietly(service, session):
    """What had come is shown, then it is over; a tail belongs to whole answers alone."""
    service.script.ask(events=[*answer("some ", "more ", "words", end=False), 100.0])
    reply = session.ask("Hi")
    edits = reply.edits(every=0.5, tail=lambda reply: "Sources: none")
    assert (await anext(edits)).text == "some"
    await reply.close()
    assert [edit.text async for edit in edits] == ["some more words"]


async def test_one_reader_at_a_time(service, session):
    """A second step meanwhile is a mistake."""
    service.script.ask(events=[5.0, *answer("Hello")])
    edits = session.ask("Hi").edits()
    task = asyncio.create_task(anext(edits))
    await asyncio.sleep(0)
    with pytest.raises(StateError, match="another task"):
        await anext(edits)
    assert (await task).text == "Hello"
    await edits.close()


async def test_a_tail_comes_below_and_the_suggestions_go(service, session):
    """With a tail the suggestions block is no part of the text, at any moment."""
    text = "See the guide.\n\n```suggestions\n(Quick start)[/quickstart]\n```\n"
    source = {"type": "source-url", "sourceId": "s", "url": "https://docs.acme.com/guide", "title": "Guide"}
    service.script.ask(events=[source, *answer(*text)[1:]], pause=0.05)
    edits = session.ask("Hi").edits(
        every=0.1, tail=lambda reply: extras_markdown(reply, site="https://docs.acme.com")
    )
    texts = [edit.text async for edit in edits]
    assert texts[-1] == (
        "See the guide.\n\n**Sources**\n\n- [Guide](https://docs.acme.com/guide)\n\n"
        "**See also**\n\n- [Quick start](https://docs.acme.com/quickstart)"
    )
    assert not any("sugg" in text or "`" in text for text in texts)


async def test_a_reply_that_was_begun_is_shown_from_its_beginning(service, session):
    """Some events may have been read before."""
    service.script.ask(events=answer("one ", "two ", "three"))
    async with session.ask("Hi") as reply:
        while reply.text != "one two ":
            await anext(reply)
        assert [edit.text async for edit in reply.edits()][-1] == "one two three"


@pytest.mark.parametrize(
    ("argument", "value"),
    [("every", -1), ("every", float("nan")), ("every", float("inf")), ("every", "1"), ("limit", 10)],
)
async def test_bad_arguments_are_named(session, argument, value):
    """Before anything is sent."""
    reply = session.ask("Hi")
    with pytest.raises(ConfigurationError) as caught:
        reply.edits(**{argument: value})
    assert caught.value.field == argument
    await reply.close()


async def test_a_consumers_task_that_ends_stops_the_reading_and_says_so(service, session):
    """Its loop may have failed; the text is not passed off as complete."""
    service.script.ask(events=answer("one ", "two ", "three ", "four"), pause=1.0)
    edits = session.ask("Hi").edits(every=0.1)

    async def first() -> str:
        async for edit in edits:
            return edit.text
        return ""

    assert await asyncio.create_task(first()) == "one"
    await asyncio.sleep(0)
    with pytest.raises(StateError, match="the task that read these edits has ended"):
        await collect(edits, [])


async def test_a_wait_for_text_is_not_cancelled_for_each_piece(service, session, monkeypatch):
    """A step cancels at most one read, however many pieces of text it waits for."""
    cancelled, step = 0, TextStream.__anext__

    async def counting(stream: TextStream) -> str:
        nonlocal cancelled
        try:
            return await step(stream)
        except asyncio.CancelledError:
            cancelled += 1
            raise

    monkeypatch.setattr(TextStream, "__anext__", counting)
    service.script.ask(events=answer(*["x"] * 20, " and", " more"), pause=0.05)
    edits, _ = await show(session.ask("Hi").edits(every=0.0))
    assert len(edits) < 10
    assert cancelled <= len(edits) + 1


@pytest.mark.parametrize("every", [0.0, 0.5, 1.2, 3.0])
async def test_a_pause_shows_what_is_held_back(service, session, every):
    """As soon as nothing has come for ``every`` seconds, and a quarter of a second at least."""
    service.script.ask(events=[*answer("Hel", "lo", end=False), 60.0, *answer(" there")[2:]])
    edits, times = await show(session.ask("Hi").edits(every=every))
    assert [edit.text for edit in edits] == ["Hello", "Hello there"]
    assert [begun for begun, _ in times] == pytest.approx([max(every, 0.25), 60.0], abs=0.01)


async def test_a_piece_of_text_is_rendered_once_and_sets_no_timer(service, session, monkeypatch):
    """A step waits for many pieces with the same limit in time."""
    counts = collections.Counter()

    def count(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def counting(*args: object) -> object:
            counts[name] += 1
            return function(*args)

        monkeypatch.setattr(owner, name, counting)

    for owner, name in ((ReadableText, "feed"), (TimeLimit, "__enter__"), (asyncio, "timeout_at")):
        count(owner, name)
    service.script.ask(events=answer("one", *[" "] * 200, "two"), pause=0.01)
    edits, _ = await show(session.ask("Hi").edits(every=0.0))
    assert len(edits) < 10
    assert counts["feed"] < 210
    assert counts["__enter__"] + counts["timeout_at"] < 30


async def test_a_slow_surface_is_no_pause(service, session):
    """Text that has arrived while the consumer sent an edit is read before a pause is assumed."""
    events = [*answer("one two thr", end=False), 0.1, *answer("ee four fi", "ve")[2:]]
    service.script.ask(events=events)
    edits, _ = await show(session.ask("Hi").edits(every=0.0), takes=1.0)
    assert [edit.text for edit in edits] == ["one", "one two three four five"]


async def test_other_tasks_run_between_complete_messages(service, session):
    """Many messages may be ready, and a consumer that never waits asks for the next at once."""
    service.script.ask(events=[*answer("word " * 2000, end=False), 5.0, *answer()[2:]])
    loop, ran, seen = asyncio.get_running_loop(), [], []
    async for edit in session.ask("Hi").edits(every=0.0, limit=200):
        if edit.final:
            seen.append(len(ran))
            loop.call_soon(ran.append, None)
    assert len(seen) > 40
    assert seen == [*range(len(seen))]


@pytest.mark.parametrize("below", ["", "Below."])
async def test_what_a_pause_has_shown_is_not_shown_again(service, session, below):
    """A pause before the end: there is nothing to add but the text below."""
    service.script.ask(events=[*answer("Hello there.", end=False), 5.0, *answer()[2:]])
    edits, _ = await show(session.ask("Hi").edits(every=1.0, tail=lambda reply: below))
    last = [(f"Hello there.\n\n{below}", True)] if below else []
    assert [(edit.text, edit.final) for edit in edits] == [("Hello there.", False), *last]


@pytest.mark.parametrize("every", [0.1, 0.7, 2.5])
async def test_the_rate_is_bounded_whatever_the_pauses(service, session, every):
    """Neither a pause nor a slow surface makes two edits come sooner after one another."""
    pick = random.Random(every)
    events = [item for n in range(60) for item in (*answer(f"word{n} ")[2:3], pick.choice([0.0, 0.05, 1, 4]))]
    service.script.ask(events=[*answer(end=False), *events, *answer()[2:]])
    edits, times = await show(session.ask("Hi").edits(every=every, limit=200), takes=0.2)
    assert min(begun - done for (_, done), (begun, _) in itertools.pairwise(times)) >= every - 1e-6
    assert all(len(edit.text) <= 200 for edit in edits)
    words = " ".join({edit.index: edit.text for edit in edits}.values()).split()
    assert words == [f"word{n}" for n in range(60)]
