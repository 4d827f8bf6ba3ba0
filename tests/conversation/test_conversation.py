"""A conversation's settings, undo, fork, and its way through JSON."""

from __future__ import annotations

import json

import pytest

from mintlify_async.conversation.conversation import Conversation
from mintlify_async.errors import AssistantError, ConfigurationError, StateError
from mintlify_async.messages import Message, TextPart


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("", "messages"),
        ([], "messages"),
        ({"id": "x", "role": "user"}, "messages.parts"),
        ([{"id": "x", "role": "", "parts": []}], "messages[0].role"),
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
    [
        ("max_messages", 0),
        ("id", ""),
        ("owner", "x" * 300),
        ("system", Message.user("Hi")),
    ],
)
async def test_a_bad_setting_is_named(session, setting, value):
    """A bad setting is refused by its name when the conversation is made."""
    with pytest.raises(ConfigurationError) as caught:
        session.conversation(**{setting: value})
    assert caught.value.field == setting


@pytest.mark.parametrize(("field", "value"), [("messages", "Hi"), ("thread", 7)])
def test_a_bad_beginning_is_named(session, field, value):
    """Text alone is no history, and a number is no thread."""
    with pytest.raises(ConfigurationError) as caught:
        session.conversation().begin_with(**{field: value})
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
    await chat.undo(keep_thread=True)
    assert chat.thread.id == "thread_2"
    await chat.undo()
    with pytest.raises(StateError, match="no turn"):
        await chat.undo()


async def test_an_undone_question_can_be_asked_again(service, session):
    """An undone question can be asked again as the same message."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    question = await chat.undo()
    await chat.ask(question)
    assert chat.messages[0] == question[0]


async def test_forks_go_apart(service, session):
    """What is said in a fork is not in the original, neither here nor at the service."""
    chat = session.conversation(fp="ada", system="Be brief.", max_messages=9)
    await chat.ask("How do I install it?")
    other = chat.fork()
    await chat.ask("And on Windows?")
    reply = await other.ask("And on a Mac?")
    assert "Windows" not in reply.text
    assert (len(chat.messages), len(other.messages)) == (4, 4)
    assert chat.messages[:2] == other.messages[:2]
    assert chat.thread.id != other.thread.id
    assert (other.fp, other.system, other.owner) == (chat.fp, chat.system, chat.owner)
    assert other.id != chat.id
    assert chat.fork(keep_thread=True).thread == chat.thread


CUT = [
    {"type": "start"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hal"},
]


async def test_a_fork_has_the_same_settings(service, session):
    """Its bounds, what it keeps, and what is done with a turn that broke off, as its requests show."""
    chat = session.conversation(max_messages=3, commit="partial")
    for question in ("One?", "Two?"):
        await chat.ask(question)
    fork = chat.fork()
    await fork.ask("Three?")
    sent = service.requests[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"][-len(sent) :]
    assert len(sent) <= 3
    assert len(fork.messages) == 6
    service.script.ask(events=[*CUT, {"type": "error", "errorText": "no"}])
    with pytest.raises(AssistantError):
        await fork.ask("Four?")
    assert [message.text for message in fork.messages[-2:]] == ["Four?", "Hal"]


async def test_a_conversation_goes_through_json(service, session):
    """to_dict() and from_dict() keep everything, the thread's key included."""
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


@pytest.mark.parametrize("stored", [None, [], {}, {"version": 2, "messages": []}, {"version": 1}])
async def test_what_is_no_conversation_is_refused(session, stored):
    """from_dict() refuses other data and later versions."""
    with pytest.raises(ConfigurationError, match="to_dict"):
        Conversation.from_dict(session, stored)
