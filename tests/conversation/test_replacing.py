"""Asking again in place of an earlier question: together with the new answer's commit, or not at all."""

from __future__ import annotations

import pytest
from attrs import evolve
from conversation_kit import answer, body, sent

from mintlify_async import ConfigurationError, Message, StoreConflictError
from mintlify_async.errors import ServerError, StreamInterruptedError
from mintlify_async.storage import MemoryConversationStore, SQLiteConversationStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryConversationStore()
    return SQLiteConversationStore(tmp_path / "chats.sqlite")


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
@pytest.mark.parametrize("script", [{"status": 500}, {"events": answer("cut off")[:-1], "done": False}])
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
    service.script.ask(events=answer("cut off")[:-1], done=False)
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


async def test_a_replacement_meets_a_newer_turn(service, session, store):
    """If another object saved meanwhile, both of its turns stay, and the commit says so."""
    await three_turns(service, session, store)
    chat = await session.conversation(fp="ada", store=store, id="help").load()
    other = session.conversation(fp="ada", store=store, id="help")
    service.script.ask(events=answer("answer 4", id="a4"))
    await other.ask([Message.user("question 4", id="q4")])
    with pytest.raises(StoreConflictError):
        await chat.ask([Message.user("edited", id="q2")], replacing="q2")
    assert ids(await chat.load())[-2] == "q4"


async def test_only_what_is_sent_is_read(service, session):
    """Replacing in a long conversation reads up to the named message, and what goes before it."""
    reads: list[int | None] = []

    class Counting(MemoryConversationStore):
        async def load(self, id, *, owner, last=None):
            reads.append(last)
            return await super().load(id, owner=owner, last=last)

    store = Counting()
    chat = session.conversation(fp="ada", store=store, id="help")
    for number in range(30):
        await chat.ask([Message.user(f"question {number}", id=f"q{number}")])
    reads.clear()
    chat = session.conversation(fp="ada", store=store, id="help", max_messages=4)
    await chat.ask([Message.user("edited", id="q24")], replacing="q24")
    assert reads == [2, 4, 8]
    assert [text for role, text in sent(service) if role == "user"] == ["question 23", "edited"]
    assert ids(await chat.load())[::2] == [f"q{number}" for number in range(25)]


async def test_the_answer_is_committed_as_the_caller_wants_it(service, session, store):
    """kept= gives the answer another id and other parts, in the history and in the store."""
    chat = session.conversation(fp="ada", store=store, id="help")
    service.script.ask(events=answer("one", id="m"))
    reply = chat.ask("q", kept=lambda message: evolve(message, id="mine", parts=message.parts[:1]))
    answered = await reply
    assert answered.message.id == "m"
    assert ids(chat)[-1] == "mine"
    assert ids(await session.conversation(fp="ada", store=store, id="help").load())[-1] == "mine"
