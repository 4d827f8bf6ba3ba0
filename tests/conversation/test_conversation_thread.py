"""A conversation's thread goes on in each turn."""

from __future__ import annotations

import pytest

from mintlify_async import MemoryStore
from mintlify_async.errors import NotFoundError
from mintlify_async.model.thread import Thread
from mintlify_async.testing import AnswerStyle, LocalService, ThreadStyle
from tests.support.conversation_kit import body, sent


@pytest.mark.parametrize(
    ("id_in", "key_in"),
    [
        ({"header"}, {"header"}),
        ({"data"}, {"data"}),
        ({"finish"}, {"header"}),
        ({"header", "finish", "metadata", "data"}, {"metadata"}),
    ],
)
async def test_the_thread_goes_on_wherever_its_key_was(clock, id_in, key_in):
    """The key is in the first answer only; the following turns send it in their bodies."""
    threads = ThreadStyle(id_in=id_in, key_in=key_in)
    async with LocalService(answers=AnswerStyle(thread=threads)) as service, service.session() as session:
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


async def test_a_thread_stays_when_the_second_question_fails_too(service, session):
    """A wrong domain is a 404 as well: nothing is lost by it."""
    chat = session.conversation(fp="ada")
    await chat.ask("How do I install it?")
    thread = chat.thread
    for _ in range(2):
        service.script.ask(status=404)
    with pytest.raises(NotFoundError):
        await chat.ask("And then?")
    assert len(service.requests) == 3
    assert (chat.thread, len(chat.messages)) == (thread, 2)
    await chat.ask("And then?")
    assert body(service)["threadId"] == thread.id


async def test_a_404_without_a_thread_is_not_repeated(service, session):
    """There is nothing to leave out."""
    service.script.ask(status=404)
    with pytest.raises(NotFoundError):
        await session.conversation().ask("Hi")
    assert len(service.requests) == 1
