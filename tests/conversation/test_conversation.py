"""A conversation's settings, undo, fork, and its way through JSON."""

from __future__ import annotations

import json

import pytest

from mintlify_async.conversation.conversation import Conversation
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.messages import Message, TextPart
from tests.support.conversation_kit import sent


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("", "messages"),
        (Message(id="a", role="assistant", parts=(TextPart(text="Hi"),)), "messages"),
        (["Hi", {"id": "old", "role": "user", "parts": []}], "messages[1].id"),
    ],
)
async def test_a_bad_question_is_named(service, session, question, field):
    """A bad question is refused by the field's name, before anything is sent."""
    chat = session.conversation().begin_with([Message.user("Hello", id="old")])
    with pytest.raises(ConfigurationError) as caught:
        chat.ask(question)
    assert caught.value.field == field
    with pytest.raises(ConfigurationError) as caught:
        chat.ask("Hi", current_path="x" * 201)
    assert caught.value.field == "current_path"
    assert not service.requests


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_messages", 0), ("id", ""), ("owner", "x" * 300), ("system", Message.user("Hi"))],
)
async def test_a_bad_setting_is_named(session, setting, value):
    """A bad setting is refused by its name when the conversation is made."""
    with pytest.raises(ConfigurationError) as caught:
        session.conversation(**{setting: value})
    assert caught.value.field == setting
    for field, wrong in {"messages": "Hi", "thread": 7}.items():
        with pytest.raises(ConfigurationError) as caught:
            session.conversation().begin_with(**{field: wrong})
        assert caught.value.field == field


async def test_undo_takes_the_last_turn_back(service, session):
    """undo() removes the last turn and starts a new thread with what is left."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    await chat.ask("And on Windows?")
    (question,) = await chat.undo()
    assert (question.text, len(chat.messages), chat.thread) == ("And on Windows?", 2, None)
    reply = await chat.ask("And on a Mac?")
    assert "And on Windows?" not in reply.text
    assert service.threads["thread_2"].questions == ["And on a Mac?"]
    again = await chat.undo(keep_thread=True)
    assert chat.thread.id == "thread_2"
    await chat.ask(again)
    assert chat.messages[2] == again[0]
    await chat.undo()
    await chat.undo()
    with pytest.raises(StateError, match="no turn"):
        await chat.undo()


async def test_forks_go_apart(service, session):
    """A fork has the same settings; what is said in it is in the original neither here nor at the service."""
    chat = session.conversation(fp="ada", system="Be brief.", max_messages=1)
    await chat.ask("How do I install it?")
    other = chat.fork()
    await chat.ask("And on Windows?")
    await other.ask("And on a Mac?")
    assert sent(service) == [("system", "Be brief."), ("user", "And on a Mac?")]
    assert service.threads[other.thread.id].questions == ["And on a Mac?"]
    assert (len(chat.messages), len(other.messages)) == (4, 4)
    assert chat.messages[:2] == other.messages[:2]
    assert chat.thread.id != other.thread.id
    assert (other.fp, other.system, other.owner) == (chat.fp, chat.system, chat.owner)
    assert other.id != chat.id
    assert chat.fork(keep_thread=True).thread == chat.thread


async def test_a_conversation_goes_through_json(service, session):
    """to_dict() and from_dict() keep everything, the thread's key included, which shows nowhere else."""
    chat = session.conversation(fp="ada", id="help", system="Be brief.")
    await chat.ask("How do I install it?")
    stored = json.loads(json.dumps(chat.to_dict()))
    again = Conversation.from_dict(session, stored, max_messages=10)
    assert again.to_dict() == chat.to_dict()
    assert (again.messages, again.thread, again.system) == (chat.messages, chat.thread, chat.system)
    assert (again.id, again.fp, again.owner) == ("help", "ada", "ada")
    await again.ask("And then?")
    assert service.threads["thread_1"].questions == ["How do I install it?", "And then?"]
    assert len(chat.messages) == 2
    key = stored.pop("thread")["threadKey"]
    assert key == chat.thread.key
    assert key not in f"{chat!r} {chat.messages!r} {stored}"


@pytest.mark.parametrize("stored", [None, [], {}, {"version": 2, "messages": []}, {"version": 1}])
async def test_what_is_no_conversation_is_refused(session, stored):
    """from_dict() refuses other data and later versions."""
    with pytest.raises(ConfigurationError, match="to_dict"):
        Conversation.from_dict(session, stored)
