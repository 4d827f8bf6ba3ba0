"""A conversation's thread goes on in each turn, and its key shows nowhere."""

from __future__ import annotations

import json

import pytest
from conversation_kit import body

from mintlify_async.errors import NotFoundError
from mintlify_async.model.thread import Thread
from mintlify_async.testing import LocalService, ThreadStyle


@pytest.mark.parametrize(
    ("id_in", "key_in"),
    [
        ({"header"}, {"header"}),
        ({"finish"}, {"finish"}),
        ({"metadata"}, {"metadata"}),
        ({"data"}, {"data"}),
        ({"header", "finish"}, {"header"}),
        ({"finish"}, {"header"}),
        ({"metadata"}, {"header"}),
        ({"header", "finish", "metadata", "data"}, {"metadata"}),
    ],
)
async def test_the_thread_goes_on_wherever_its_key_was(clock, id_in, key_in):
    """The key is in the first answer only; the following turns send it in their bodies."""
    threads = ThreadStyle(id_in=id_in, key_in=key_in)
    async with LocalService(clock=clock, threads=threads) as service, service.session() as session:
        chat = session.conversation(fp="ada")
        questions = ["How do I install it?", "And then?", "And on Windows?", "Why?"]
        for question in questions:
            await chat.ask(question)
        (thread,) = service.threads.values()
        assert thread.questions == questions
        assert chat.thread == Thread(thread.id, thread.key)
        assert "threadId" not in body(service, 0)
        for index in (1, 2, 3):
            assert body(service, index)["threadId"] == thread.id
            assert body(service, index)["threadKey"] == thread.key


async def test_a_thread_without_its_key_is_explained(service, session):
    """The service answers 404; the error says what is missing, and nothing is committed."""
    first = await session.ask("How do I install it?")
    chat = session.conversation(thread=first.thread_id)
    with pytest.raises(NotFoundError, match="without its key"):
        await chat.ask("And then?")
    assert chat.messages == ()
    assert chat.thread == Thread(first.thread_id)


async def test_a_thread_that_is_gone_can_be_forgotten(service, session):
    """forget_thread() carries the history into a new thread."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    service.threads.clear()
    with pytest.raises(NotFoundError):
        await chat.ask("And then?")
    chat.forget_thread()
    reply = await chat.retry()
    assert "How do I install it?" in reply.text
    assert chat.thread == Thread("thread_1", service.threads["thread_1"].key)
    assert len(chat.messages) == 4


async def test_the_key_shows_nowhere(service, session):
    """The key is in the stored thread only, not in the repr and not in the messages."""
    chat = session.conversation(fp="ada")
    await chat.ask("How do I install it?")
    key = chat.thread.key
    assert key not in repr(chat)
    assert key not in repr(chat.messages)
    assert chat.to_dict()["thread"] == {"threadId": "thread_1", "threadKey": key}
    assert key not in json.dumps(chat.to_dict()["messages"])
