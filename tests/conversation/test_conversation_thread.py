"""A conversation's thread goes on in each turn."""

from __future__ import annotations

import pytest

from mintlify_async import MemoryStore
from mintlify_async.errors import NotFoundError
from mintlify_async.model.thread import Thread
from tests.support.conversation_kit import body, sent


async def test_the_thread_goes_on(service, session):
    """The key is in the first answer only; the following turns send it in their bodies."""
    chat = session.conversation(fp="ada")
    questions = ["How do I install it?", "And then?", "And on Windows?", "Why?"]
    for question in questions:
        await chat.ask(question)
    (thread,) = service.threads.values()
    assert thread.questions == questions
    assert chat.thread == Thread(thread.id, thread.key)
    assert "threadId" not in body(service, 0)
    sent_threads = [(body(service, n)["threadId"], body(service, n)["threadKey"]) for n in (1, 2, 3)]
    assert sent_threads == [(thread.id, thread.key)] * 3


async def test_a_thread_without_its_key_is_explained(service, session):
    """The service answers 404; the error says what is missing, and nothing is committed."""
    first = await session.ask("How do I install it?")
    chat = session.conversation().begin_with(thread=first.thread_id)
    with pytest.raises(NotFoundError, match="without its key"):
        await chat.ask("And then?")
    assert chat.messages == ()
    assert chat.thread == Thread(first.thread_id)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_thread_that_the_service_has_lost_is_replaced(service, session, stored, caplog):
    """The question is asked once more without it, with the history, and a log line says so."""
    store = MemoryStore() if stored else None
    chat = session.conversation(fp="ada", store=store, id="help", owner="ada")
    await chat.ask("How do I install it?")
    lost = chat.thread
    service.threads.clear()
    answer = await chat.ask("And then?")
    assert chat.thread == answer.thread != lost
    assert [text for role, text in sent(service) if role == "user"] == ["How do I install it?", "And then?"]
    assert "threadId" not in body(service)
    assert len(service.requests) == 3
    assert len(chat.messages) == 4
    assert "has lost a conversation's thread" in caplog.text
    if stored:
        again = await session.conversation(fp="ada", store=store, id="help").load()
        assert (again.thread, again.messages) == (chat.thread, chat.messages)
    await chat.ask("And on a Mac?")
    assert body(service)["threadId"] == chat.thread.id
    chat.forget_thread()
    await chat.ask("And on Linux?")
    assert "threadId" not in body(service)


async def test_a_thread_stays_when_the_second_question_fails_too(service, session):
    """A wrong domain is a 404 as well: nothing is lost by it, and without a thread nothing is repeated."""
    chat = session.conversation(fp="ada")
    service.script.ask(status=404)
    with pytest.raises(NotFoundError):
        await chat.ask("Hi")
    assert len(service.requests) == 1
    await chat.ask("How do I install it?")
    thread = chat.thread
    service.script.ask(status=404, times=2)
    with pytest.raises(NotFoundError):
        await chat.ask("And then?")
    assert len(service.requests) == 4
    assert (chat.thread, len(chat.messages)) == (thread, 2)
    await chat.ask("And then?")
    assert body(service)["threadId"] == thread.id
