"""Asking again in place of an earlier question: together with the new answer's commit, or not at all."""

from __future__ import annotations

import pytest

from mintlify_async import ConfigurationError, Message
from mintlify_async.errors import ServerError, StoreConflictError, StreamInterruptedError
from mintlify_async.storage import MemoryStore
from tests.support.conversation_kit import answer, body, sent


async def three_turns(service, session, store):
    """Return a conversation with the questions q1, q2, q3 and the answers a1, a2, a3."""
    chat = session.conversation(fp="ada", store=store, id="help")
    for number in (1, 2, 3):
        service.script.ask(events=answer(f"answer {number}", id=f"a{number}", threadId="thread_old"))
        await chat.ask([Message.user(f"question {number}", id=f"q{number}")])
    return chat


def ids(chat) -> list[str]:
    return [message.id for message in chat.messages]


@pytest.mark.parametrize("target", ["q2", "a2"])
async def test_a_turn_takes_the_place_of_another(service, session, store, target):
    """The turn of the named message and what follows make room; a new thread begins with what is left."""
    await three_turns(service, session, store)
    chat = session.conversation(fp="ada", store=store, id="help")  # the store is read when the turn begins
    service.script.ask(events=answer("better", id="b2", threadId="thread_new"))
    await chat.ask([Message.user("edited", id="q2")], replacing=target)
    assert sent(service) == [("user", "question 1"), ("assistant", "answer 1 "), ("user", "edited")]
    assert "threadId" not in body(service)
    assert ids(chat) == ["q1", "a1", "q2", "b2"]
    assert chat.thread is not None
    assert chat.thread.id == "thread_new"
    again = await session.conversation(fp="ada", store=store, id="help").load()
    assert (again.messages, again.thread) == (chat.messages, chat.thread)
    service.script.ask(events=answer("on", id="b3"))
    await again.ask("and on")
    assert ids(again)[:4] == ["q1", "a1", "q2", "b2"]
    assert body(service)["threadId"] == "thread_new"


@pytest.mark.parametrize("commit", ["finish", "partial"])
@pytest.mark.parametrize("script", [{"status": 500}, {"body": answer("cut off")[:-1]}])
async def test_a_failed_turn_leaves_the_one_it_would_replace(service, session, store, script, commit):
    """Refused or cut, it changes nothing, with the thread; retry() asks in the same place."""
    before = await three_turns(service, session, store)
    chat = session.conversation(fp="ada", store=store, id="help", commit=commit)
    service.script.ask(**script, times=None)
    with pytest.raises((ServerError, StreamInterruptedError)):
        await chat.ask([Message.user("edited", id="q2")], replacing="q2")
    assert chat.messages == before.messages
    assert chat.thread == before.thread
    service.script.clear()
    service.script.ask(events=answer("better", id="b2"))
    await chat.retry()
    assert ids(chat) == ["q1", "a1", "q2", "b2"]


async def test_the_same_text_elsewhere_is_a_new_question(service, session):
    """A failed edit whose text is asked again at the end keeps the edited message as it was."""
    chat = await three_turns(service, session, None)
    service.script.ask(body=answer("cut off")[:-1])
    with pytest.raises(StreamInterruptedError):
        await chat.ask([Message.user("edited", id="q2")], replacing="q2")
    service.script.ask(events=answer("on", id="a4"))
    await chat.ask("edited")
    assert ids(chat)[:6] == ["q1", "a1", "q2", "a2", "q3", "a3"]
    assert len(ids(chat)) == 8


@pytest.mark.parametrize("loaded", [True, False])
async def test_what_is_not_there_is_not_replaced(service, session, store, loaded):
    """An unknown id is an error, and so is an id that an earlier message has; nothing is sent."""
    await three_turns(service, session, store)
    chat = session.conversation(fp="ada", store=store, id="help")
    if loaded:
        await chat.load()
    count = len(service.requests)
    for id, replacing, field in (("q9", "q7", "replacing"), ("q1", "q2", r"messages\[0\].id")):
        with pytest.raises(ConfigurationError, match=field):
            await chat.ask([Message.user("no", id=id)], replacing=replacing)
    empty = session.conversation(fp="ada", store=store, id="other")
    with pytest.raises(ConfigurationError, match="replacing"):
        await empty.ask("no", replacing="q2")
    assert len(service.requests) == count
    assert not chat.busy


async def test_a_long_conversation_is_searched_for_the_message_to_replace(service, session):
    """Also when a turn reads only the newest turns."""
    store = MemoryStore()
    chat = session.conversation(fp="ada", store=store, id="help")
    for number in range(30):
        await chat.ask([Message.user(f"question {number}", id=f"q{number}")])
    chat = session.conversation(fp="ada", store=store, id="help", max_messages=4)
    await chat.ask([Message.user("edited", id="q24")], replacing="q24")
    assert [text for role, text in sent(service) if role == "user"] == ["question 23", "edited"]
    assert ids(await chat.load())[::2] == [f"q{number}" for number in range(25)]


async def test_a_replacement_meets_a_newer_turn(service, session, store):
    """If another object has saved meanwhile, nothing is sent or replaced."""
    await three_turns(service, session, store)
    chat = await session.conversation(fp="ada", store=store, id="help").load()
    other = session.conversation(fp="ada", store=store, id="help")
    service.script.ask(events=answer("answer 4", id="a4"))
    await other.ask([Message.user("question 4", id="q4")])
    asked = len(service.requests)
    with pytest.raises(StoreConflictError):
        await chat.ask([Message.user("edited", id="q2")], replacing="q2")
    assert len(service.requests) == asked
    assert ids(await chat.load())[-2:] == ["q4", "a4"]
