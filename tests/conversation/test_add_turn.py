"""Adding a turn that was not asked here: in one step of the store, and only if nothing newer is there."""

from __future__ import annotations

import asyncio

import pytest
from conversation_kit import answer, body, roles, sent

from mintlify_async import ConfigurationError, Message, StateError, StoreConflictError, Thread
from mintlify_async.messages import ReasoningPart, TextPart
from mintlify_async.storage import MemoryConversationStore, SQLiteConversationStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryConversationStore()
    return SQLiteConversationStore(tmp_path / "chats.sqlite")


def ids(chat):
    return [message.id for message in chat.messages]


async def test_a_turn_is_added_and_saved(service, session, store):
    """Nothing is sent; the next question goes out with it, in the same thread."""
    chat = session.conversation(fp="ada", store=store, id="help")
    service.script.ask(events=answer("first", id="a1", threadId="thread_old"))
    await chat.ask("one")
    await chat.add_turn("How long?", "Two days.")
    assert len(service.requests) == 1
    assert roles(chat) == ["user", "assistant"] * 2
    assert len(set(ids(chat))) == 4
    assert chat.messages[3].text == "Two days."
    again = await session.conversation(fp="ada", store=store, id="help").load()
    assert (again.messages, again.thread, again.revision) == (chat.messages, chat.thread, chat.revision)
    service.script.ask(events=answer("on"))
    await again.ask("and on")
    assert sent(service)[2:] == [("user", "How long?"), ("assistant", "Two days."), ("user", "and on")]
    assert body(service)["threadId"] == "thread_old"
    assert len(await again.undo()) == 1
    assert [message.text for message in await again.undo()] == ["How long?"]


async def test_an_answer_of_the_session_is_added_as_it_is(service, session, store):
    """Its message keeps id and parts; its thread is the conversation's from now on."""
    service.script.ask(events=answer("hello", id="a7", threadId="thread_7"))
    given = await session.ask("one", fp="ada")
    chat = session.conversation(fp="ada", store=store, id="help")
    await chat.add_turn([Message.user("one", id="q1")], given.message, thread=given.thread)
    assert ids(chat) == ["q1", "a7"]
    assert chat.messages[1] == given.message
    assert chat.thread == given.thread == Thread("thread_7")


async def test_an_id_that_is_there_is_not_given_twice(session):
    """The answer gets a new one; a question with it is an error, as when it is asked."""
    chat = session.conversation(fp="ada")
    said = Message(id="a1", role="assistant", parts=(TextPart(text="yes"),))
    for number in (1, 2):
        await chat.add_turn(Message.user("really?", id=f"q{number}"), said)
    assert ids(chat)[:3] == ["q1", "a1", "q2"]
    assert len(set(ids(chat))) == 4
    with pytest.raises(ConfigurationError, match="already"):
        await chat.add_turn(Message.user("again", id="q2"), said)
    assert len(chat.messages) == 4


async def test_a_newer_turn_wins(session, store):
    """The store stays as it is, whatever is added on top of what was there before."""
    chat = await session.conversation(fp="ada", store=store, id="help").load()
    other = session.conversation(fp="ada", store=store, id="help")
    await other.add_turn("newer", "yes")
    before = await store.load("help", owner="ada")
    with pytest.raises(StoreConflictError):
        await chat.add_turn("older", "no")
    assert await store.load("help", owner="ada") == before
    assert chat.messages == ()
    await chat.load()
    await chat.add_turn("older", "no")
    assert [message.text for message in chat.messages] == ["newer", "yes", "older", "no"]


async def test_it_waits_for_its_turn_or_refuses(service, session, store):
    """As a question does."""
    service.script.ask(events=answer("hello"))
    chat, refusing, waiting = (
        session.conversation(fp="ada", store=store, id="help", busy=busy)
        for busy in ("raise", "raise", "queue")
    )
    async with chat.ask("one") as reply:
        with pytest.raises(StateError, match="busy"):
            await refusing.add_turn("two", "no")
        adding = asyncio.create_task(waiting.add_turn("two", "yes"))
        await reply
        assert not adding.done()
    await adding
    assert [message.text for message in waiting.messages] == ["one", "hello ", "two", "yes"]


async def test_a_failed_question_can_be_answered_otherwise(service, session):
    """Then it is no longer unanswered."""
    service.script.ask(status=500)
    chat = session.conversation(fp="ada")
    with pytest.raises(Exception, match="500"):
        await chat.ask("one")
    await chat.add_turn(chat.unanswered, "A person says: yes.")
    assert chat.unanswered is None
    assert roles(chat) == ["user", "assistant"]


@pytest.mark.parametrize(
    ("question", "said", "field"),
    [
        ("", "yes", "messages"),
        ([], "yes", "messages"),
        (None, "yes", "messages"),
        ({"role": "assistant", "content": "no question"}, "yes", "messages"),
        ("q", "", "answer"),
        ("q", None, "answer"),
        ("q", b"yes", "answer"),
        ("q", [], "answer"),
        ("q", ["yes", "no"], "answer"),
        ("q", Message.user("not mine"), "answer"),
        ("q", {"role": "user", "content": "not mine"}, "answer"),
    ],
)
async def test_wrong_arguments_are_named(session, question, said, field):
    """Before anything is changed."""
    chat = session.conversation(fp="ada")
    with pytest.raises(ConfigurationError) as caught:
        await chat.add_turn(question, said)
    assert (caught.value.field or "").startswith(field)
    assert chat.messages == ()
    with pytest.raises(ConfigurationError):
        await chat.add_turn("q", "yes", thread=7)


async def test_all_parts_are_kept(session, store):
    """Also those that are not sent again."""
    chat = session.conversation(fp="ada", store=store, id="help")
    parts = (ReasoningPart(text="hm", state="done"), TextPart(text="yes", state="streaming"))
    await chat.add_turn("q", {"id": "a", "role": "assistant", "parts": [part.to_wire() for part in parts]})
    assert (await session.conversation(fp="ada", store=store, id="help").load()).messages[1].parts == parts
