"""One turn at a time: a second one is refused, or waits in line."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from mintlify_async import APITimeoutError, Conversation, MemoryStore
from mintlify_async.errors import StateError, StoreConflictError, StreamInterruptedError
from tests.support.conversation_kit import answer, questions, sent


async def test_a_second_turn_is_refused(service, session):
    """By default nothing waits, and the first turn goes on unharmed."""
    chat = session.conversation(fp="u", store=MemoryStore(), id="c")
    async with chat.ask("How do I install it?") as reply:
        assert chat.busy
        for step in (lambda: chat.ask("And then?").run(), chat.undo, chat.save, chat.delete):
            with pytest.raises(StateError, match="busy with another turn"):
                await asyncio.create_task(step())
        with pytest.raises(StateError, match="busy"):
            chat.forget_thread()
        await reply
    assert len(chat.messages) == 2
    assert len(service.requests) == 1


@pytest.mark.parametrize("closed", ["reply", "session"])
async def test_closed_while_it_waits_in_line(service, session, closed):
    """A question whose reply or session is closed before its turn is not asked; the conversation is free."""
    chat = session.conversation(busy="queue")
    async with chat.ask("First") as first:
        second = chat.ask("Second")
        task = asyncio.create_task(second.run())
        for _ in range(3):
            await asyncio.sleep(0)
        await first
        await (second if closed == "reply" else session).close()
    with pytest.raises(StreamInterruptedError if closed == "reply" else StateError, match="closed"):
        await task
    assert len(service.requests) == 1
    assert not chat.busy
    assert questions(chat) == ["First"]
    if closed == "session":
        assert chat.unanswered.text == "Second"


@pytest.mark.parametrize("stored", [True, False])
async def test_a_turn_that_another_loop_outran_is_not_lost_silently(service, session, stored):
    """Two event loops may ask at once: the second to finish gets its answer on the error."""
    chat = session.conversation(store=MemoryStore() if stored else None, fp="ada", id="c")

    async def ask_elsewhere() -> None:
        await chat.ask("Two")

    async with chat.ask("One") as reply:
        await asyncio.to_thread(asyncio.run, ask_elsewhere())
        with pytest.raises(StoreConflictError, match="another writer") as caught:
            await reply
    assert caught.value.answer is not None
    assert questions(chat) == ["Two"]


async def test_a_turn_lasts_as_long_as_its_block(service, session):
    """The next turn waits until the block is left; the block's own task may ask again."""
    chat = session.conversation(busy="queue")
    async with chat.ask("How do I install it?") as reply:
        await reply
        other = asyncio.create_task(chat.ask("And then?").run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(service.requests) == 1
    await other
    assert len(chat.messages) == 4
    async with chat.ask("One") as reply:
        await reply
        await chat.ask("Two")
    assert len(chat.messages) == 8


async def test_the_next_question_leaves_the_end_of_an_answer_to_its_reader(service, session, clock):
    """The service may close the connection a moment after ``finish``."""
    chat = session.conversation(busy="queue")
    service.script.ask(events=[*answer("All of it"), 0.1])
    first = asyncio.create_task(chat.ask("One").run())
    await asyncio.sleep(0.05)
    await chat.ask("Two")
    assert (await first).text == "All of it "
    assert questions(chat) == ["One", "Two"]


async def test_a_turn_lasts_until_its_edits_were_shown(service, session, clock):
    """Without a block the turn lasts until its last edit was shown."""
    chat = session.conversation(busy="queue")
    shown = []

    async def show(question: str) -> None:
        async for edit in chat.ask(question).edits(every=5.0, limit=200):
            shown.append((question, edit.index))

    await asyncio.gather(show("How do I install it?"), show("How do I ask?"))
    assert {index for question, index in shown if question == "How do I ask?"} == {0, 1, 2, 3}
    assert shown == sorted(shown, key=lambda one: one[0] == "How do I ask?")
    assert not chat.busy


async def test_a_reply_that_the_next_question_closed_says_so(service, session):
    """Stepped in tasks of their own, a reply has no task that would be reading it."""
    chat = session.conversation()
    service.script.ask(events=[*answer("Half of it")[:-2], 1000.0])
    reply = chat.ask("Hi")
    await asyncio.create_task(anext(reply))
    await chat.ask("How do I install it?")
    with pytest.raises(StateError, match="another question started"):
        await anext(reply)


async def test_a_nested_question_is_told(service, session):
    """In its own turn's block, a task that asks, or changes the conversation, would wait for itself."""
    store = MemoryStore()
    chat = session.conversation(busy="queue", fp="u", store=store, id="c")
    for step in (lambda: chat.ask("Nested").run(), chat.undo, chat.save, chat.delete):
        async with chat.ask("How do I install it?") as reply:
            await anext(reply)
            with pytest.raises(StateError, match="would wait for itself"):
                await step()
            await reply
    assert len(chat.messages) == 8
    reply = chat.ask("Without a block")
    await anext(reply)
    with pytest.raises(StateError, match="would wait for itself"):
        await chat.ask("Nested")
    await reply
    assert "Nested" not in [text for n in range(5) for _, text in sent(service, n)]


async def test_the_timeout_limits_the_wait_in_line(service, session, clock):
    """What is left of it is the limit on the answer; a turn that was not sent leaves no trace."""
    chat = session.conversation(busy="queue")
    async with chat.ask("First") as first:
        await anext(first)
        second = chat.ask("Second", timeout=5.0)
        began = clock.now()
        with pytest.raises(APITimeoutError, match="not sent within 5 s") as caught:
            await asyncio.create_task(second.run())
        assert clock.now() - began == pytest.approx(5.0)
        assert (caught.value.phase, caught.value.seconds, caught.value.sent) == ("total", 5.0, "no")
    assert service.requests.count("ask") == 1
    service.script.ask(events=[*answer("Half")[:-2], 1000.0])
    began = clock.now()
    async with chat.ask("Third") as third:
        await anext(third)
        late = asyncio.create_task(chat.ask("Fourth", timeout=5.0).run())
        await asyncio.sleep(3.0)
    service.script.ask(events=[*answer("Half")[:-2], 1000.0])
    with pytest.raises(StreamInterruptedError):
        await late
    assert clock.now() - began == pytest.approx(5.0, abs=0.1)
    await second
    assert not chat.busy


async def test_changes_wait_in_line(service, session):
    """undo, save and delete begin when the turns before them are over, also those of other objects."""
    store = MemoryStore()
    chats = [session.conversation(busy="queue", store=store, id="c", owner="ada") for _ in range(2)]
    for step in ("save", "undo", "delete"):
        async with chats[0].ask("First") as first:
            same, other = (asyncio.create_task(getattr(chat, step)()) for chat in chats)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not same.done()
            assert not other.done()
            await first
        results = await asyncio.gather(same, other, return_exceptions=True)
        if step == "save":  # the other object has never read what is there
            assert results == [None, None]
        elif step == "undo":
            assert [message.text for message in results[0]] == ["First"]
            assert isinstance(results[1], list | StateError)
        else:
            assert results == [True, False]
            assert [chat.messages for chat in chats] == [(), ()]
    assert await Conversation.ids(store, owner="ada") == []


class Hung(MemoryStore):
    """A store that does not answer."""

    async def read(self, keys):
        await asyncio.Event().wait()


async def test_the_timeout_limits_the_wait_for_the_store(session):
    """A question that was not sent leaves the conversation free."""
    chat = session.conversation(store=Hung(), id="c", owner="ada")
    with pytest.raises(APITimeoutError, match="the conversation's store"):
        await chat.ask("How do I install it?", timeout=5.0)
    assert not chat.busy


async def test_a_turn_in_line_begins_when_nobody_takes_the_next_step(service, session, clock):
    """A task that took one step says nothing about the reader; after five seconds nobody reads on."""
    chat = session.conversation(busy="queue")
    service.script.ask(events=[*answer("Half of it")[:-2], 1000.0])
    reply = chat.ask("One")
    await asyncio.create_task(reply.__anext__())
    second = asyncio.create_task(chat.ask("Two").run())
    await asyncio.sleep(0)
    began = clock.now()
    await second
    assert clock.now() - began == pytest.approx(0.0, abs=0.1)  # the step had ended before it came
    service.script.ask(events=[*answer("Half of it")[:-2], 1000.0])
    reply = chat.ask("Three")
    step = asyncio.create_task(reply.__anext__())
    await asyncio.sleep(0)
    last = asyncio.create_task(chat.ask("Four").run())
    await step
    began = clock.now()
    await last
    assert clock.now() - began == pytest.approx(5.0, abs=0.1)
    assert questions(chat) == ["Two", "Four"]


async def events_of(reply):
    async for event in reply:
        yield event


async def next_event(events):
    return await anext(events)


STEPS = {
    "wait_for": lambda events: asyncio.wait_for(events.__anext__(), 60.0),
    "a default": lambda events: asyncio.wait_for(anext(events, None), 60.0),
    "a helper": lambda events: asyncio.create_task(next_event(events)),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", [events_of, lambda reply: reply], ids=["generator", "reply"])
@pytest.mark.parametrize("moment", [0.3, 1.5, 2.5])
async def test_a_turn_in_line_does_not_end_a_turn_that_is_read_in_single_steps(
    service, session, step, source, moment
):
    """Each step runs in a task of its own, and the question comes in the middle of a step."""
    chat = session.conversation(busy="queue")
    events = [event for event in answer("one two three four") for event in (event, 1.0)]
    service.script.ask(events=events)
    reply = chat.ask("One")
    source_events = source(reply)
    read = asyncio.create_task(read_in_steps(source_events, STEPS[step]))
    await asyncio.sleep(moment)
    await chat.ask("Two")
    assert [event.type for event in await read][-1] == "finish"
    assert questions(chat) == ["One", "Two"]


async def read_in_steps(events, step):
    read = []
    with contextlib.suppress(StopAsyncIteration):
        while (event := await step(events)) is not None:
            read.append(event)
    return read
