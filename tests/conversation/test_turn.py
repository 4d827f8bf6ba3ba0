"""A turn: question, answer and thread are committed together, or nothing is."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mintlify_async import MemoryStore
from mintlify_async.errors import (
    AssistantError,
    RateLimitError,
    ServerError,
    StateError,
    StreamInterruptedError,
)
from mintlify_async.events import Finish, TextDelta
from mintlify_async.model.context_and_filter import ContextItem
from mintlify_async.model.thread import Thread
from mintlify_async.testing import Cut
from tests.support.conversation_kit import answer, body, roles


async def test_nothing_changes_before_the_reply_is_entered(service, session):
    """ask() makes a reply; it sends nothing and begins no turn."""
    chat = session.conversation()
    replies = [chat.ask("How do I install it?") for _ in range(3)]
    assert (chat.messages, chat.busy, len(service.requests)) == ((), False, 0)
    await replies[1]
    assert roles(chat) == ["user", "assistant"]
    for reply in replies:
        await reply.close()


async def test_the_turn_is_committed_before_finish_is_handed_out(service, session):
    """A reader that stops at ``finish`` has the turn, and may ask the next question."""
    chat = session.conversation()
    reply = chat.ask("How do I install it?")
    async for event in reply:
        if isinstance(event, Finish):
            assert roles(chat) == ["user", "assistant"]
            break
        assert chat.messages == ()
    await chat.ask("And then?")
    assert roles(chat) == ["user", "assistant"] * 2


@pytest.mark.parametrize("stored", [True, False])
async def test_what_comes_after_finish_still_counts(service, session, stored):
    """A thread and parts that arrive after ``finish`` are kept, in the store, too; it is one turn."""
    late = [{"type": "data-thread", "data": {}, "threadId": "late", "threadKey": "secret"}]
    service.script.ask(events=[*answer("Hello"), *late])
    options = {"store": MemoryStore() if stored else None, "id": "c", "owner": "ada"}
    chat = session.conversation(**options)
    await chat.ask("Hi")
    for seen in (chat, await session.conversation(**options).load() if stored else chat):
        assert seen.thread == Thread("late", "secret")
        assert [part.type for part in seen.messages[1].parts] == ["text", "data-thread"]
        assert len(seen.messages) == 2


async def test_done_without_finish_is_an_end(service, session):
    """``[DONE]`` without ``finish`` commits the turn."""
    service.script.ask(events=answer("Hello")[:-1])
    chat = session.conversation()
    await chat.ask("Hi")
    assert roles(chat) == ["user", "assistant"]


async def test_an_answer_without_an_id_gets_one(service, session):
    """An answer without an id, or with one that the history has, gets a new id."""
    chat = session.conversation()
    service.script.ask(events=answer("One")[1:])
    service.script.ask(events=answer("Two", id="same"))
    service.script.ask(events=answer("Three", id="same"))
    for _ in range(3):
        await chat.ask("Next")
    ids = [message.id for message in chat.messages]
    assert all(ids)
    assert len(set(ids)) == 6
    assert ids[3] == "same"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ({"body": answer("Half an answer")[:-2]}, StreamInterruptedError),
        ({"fault": Cut(at=-200, how="rst")}, StreamInterruptedError),
        ({"events": [*answer("Half")[:-2], {"type": "error", "errorText": "overloaded"}]}, AssistantError),
        ({"status": 429, "headers": {"Retry-After": "9999"}}, RateLimitError),
    ],
)
async def test_a_turn_that_fails_leaves_no_trace(service, session, script, error):
    """After a failed turn history and thread are as before, and the question keeps its id."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    before, thread = chat.messages, chat.thread
    service.script.ask(**script)
    with pytest.raises(error):
        await chat.ask("And then?")
    assert (chat.messages, chat.thread, chat.busy) == (before, thread, False)
    failed = chat.unanswered
    assert failed.text == "And then?"
    await chat.ask("And then?")
    assert chat.messages[2] == failed
    assert [body(service, index)["messages"][-1]["id"] for index in (-2, -1)] == [failed.id] * 2
    assert chat.unanswered is None


async def test_a_reply_that_is_closed_or_dropped_leaves_no_trace(service, session):
    """Its turn is rolled back."""
    chat = session.conversation()

    async def close() -> None:
        reply = chat.ask("Hi")
        await anext(reply)
        await reply.close()

    async def forget() -> None:
        async for _ in chat.ask("Hi"):
            break

    for way in (close, forget):
        await way()
        gc.collect()
        assert chat.messages == ()
        assert not chat.busy, way
        assert chat.unanswered.text == "Hi"
    await chat.retry()
    assert len(chat.messages) == 2


async def test_retry_asks_the_same_with_the_same(service, session):
    """retry() sends the same message, id and options; given options replace them."""
    chat = session.conversation()
    service.script.ask(status=500, times=2)
    with pytest.raises(ServerError):
        await chat.ask("Hi", current_path="/guide", context=[ContextItem("code", "x = 1")])
    with pytest.raises(ServerError):
        await chat.retry()
    assert body(service, -1) == body(service, -2)
    await chat.retry(current_path="/other")
    assert body(service)["currentPath"] == "/other"
    assert "context" not in body(service)
    with pytest.raises(StateError, match="no question to ask again"):
        chat.retry()


async def test_partial_by_choice(service, session):
    """With ``commit="partial"`` an answer that was broken off after some text is kept, with its thread."""
    chat = session.conversation(commit="partial")
    for nothing, error in (
        ({"status": 500}, ServerError),
        ({"body": [{"type": "start", "messageId": "m"}]}, StreamInterruptedError),
    ):
        service.script.ask(**nothing)
        with pytest.raises(error):
            await chat.ask("Hi")
        assert chat.messages == ()
    service.script.ask(body=answer("Half an")[:-2], headers={"X-Thread-Id": "t", "X-Thread-Key": "k"})
    with pytest.raises(StreamInterruptedError):
        await chat.ask("Hi")
    assert [message.text for message in chat.messages] == ["Hi", "Half an "]
    assert chat.thread == Thread("t", "k")
    chat.forget_thread()
    async with chat.ask("How do I install it?") as reply:
        async for text in reply.text_stream:
            assert text
            break
    assert len(chat.messages) == 4


async def test_partial_of_a_second_message_is_what_was_shown_of_it(service, session):
    """The text of a message that another one replaced does not count as the text of the new one."""
    one, two = answer("One text before.", id="m1"), answer("word " * 40, id="m2")
    events = [*one[:-1], *two]
    service.script.ask(events=events, pause=0.02)
    chat, shown = session.conversation(commit="partial"), ""
    async with chat.ask("Hi").edits(every=0) as edits:
        async for edit in edits:
            shown = edit.text
            if len(shown) > 60:
                break
    assert shown.startswith("One text before. \n\nword word ")
    assert chat.messages[-1].text.strip() == shown.removeprefix("One text before. \n\n")


async def test_partial_when_cancelled(service, session):
    """With ``commit="partial"`` a cancelled answer's text is kept, in the store, too."""
    store = MemoryStore()
    chat = session.conversation(commit="partial", fp="u", store=store, id="c")
    service.script.ask(events=[*answer("Half an")[:-2], 100.0])

    async def read() -> None:
        async with chat.ask("Hi") as reply:
            async for event in reply:
                if isinstance(event, TextDelta) and event.delta == "an ":
                    task.cancel()

    task = asyncio.create_task(read())
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await session.conversation(fp="u", store=store, id="c").load()
    assert [message.text for message in again.messages] == ["Hi", "Half an "]


async def test_a_block_begins_when_it_is_awaited(service, session):
    """A task that is cancelled before it entered the reply has not entered it: the conversation goes on."""
    chat = session.conversation()
    reply = chat.ask("How do I log in?")
    entering = asyncio.create_task(reply.__aenter__())
    entering.cancel()
    await asyncio.wait([entering])
    await asyncio.create_task(reply.run())
    await asyncio.create_task(chat.ask("And out?").run())
    assert service.requests.count("ask") == 2


@pytest.mark.parametrize("leave", ["break", "close"])
async def test_with_edits_what_was_shown_is_kept(service, session, leave):
    """The reply is read ahead of what the surface shows; of that, nothing is committed."""
    words = [f"word{number} " for number in range(60)]
    service.script.ask(events=[*answer("".join(words))[:-2], 100.0])
    chat = session.conversation(commit="partial")
    async with chat.ask("Hi") as reply:
        edits = reply.edits(every=1.0, limit=200)
        async for edit in edits:
            shown = edit.text
            if len(shown) > 50:
                break
        await asyncio.sleep(5)
        assert len(reply.text) > len(shown)
        if leave == "close":
            await edits.close()
        else:
            del edits
            gc.collect()
            await asyncio.sleep(0.1)
    assert len(chat.messages) == 2
    assert chat.messages[-1].text.rstrip() == shown


@pytest.mark.parametrize("way", ["leave", "cancel", "abort", "close"])
async def test_a_turn_that_breaks_off_leaves_no_trace(service, session, way):
    """And its question can be asked again. An answer that the session's end cuts says so."""
    chat = session.conversation()
    service.script.ask(events=[*answer("Half")[:-2], {"type": "abort"} if way == "abort" else 100.0])
    async with chat.ask("Hi") as reply:
        await anext(reply)
        if way == "cancel":
            reading = asyncio.create_task(reply.run())
            await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.wait([reading])
        elif way == "abort":
            assert (await reply).aborted
        elif way == "close":
            await session.close()
            with pytest.raises(StreamInterruptedError, match="session is closed") as caught:
                await reply
            assert isinstance(caught.value.__cause__, StateError)
    assert (chat.messages, chat.busy, chat.unanswered.text) == ((), False, "Hi")
    if way != "close":
        await chat.retry()
        assert len(chat.messages) == 2
