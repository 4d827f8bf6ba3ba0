"""Which messages of the history each question carries."""

from __future__ import annotations

from conversation_kit import answer, body, roles, sent

from mintlify_async.messages import FilePart, Message, TextPart
from mintlify_async.storage.conversations import MemoryConversationStore


async def test_bounds_on_the_messages_sent(service, session):
    """The newest messages that fit are sent, never beginning with an answer; the history keeps all."""
    chat = session.conversation(max_messages=4, system="Be brief.")
    for n in range(4):
        service.script.ask(events=answer(f"Answer {n}", id=f"a{n}"))
        await chat.ask(f"Question {n}")
    assert [text.strip() for _, text in sent(service)] == [
        "Be brief.",
        "Question 2",
        "Answer 2",
        "Question 3",
    ]
    assert len(chat.messages) == 8


async def test_bounds_on_the_characters_sent(service, session):
    """The question itself is always sent whole."""
    chat = session.conversation(max_characters=60)
    for n in range(3):
        service.script.ask(events=answer("x" * 19, id=f"a{n}"))
        await chat.ask("y" * 15)
    assert [len(text) for _, text in sent(service)] == [15, 20, 15]
    await chat.ask("z" * 500)
    assert [len(text) for _, text in sent(service)] == [500]


async def test_half_a_character_of_the_service_does_not_end_a_conversation(service, session):
    """It is kept as it came and sent again as U+FFFD, because no request may hold half a character."""
    chat = session.conversation()
    service.script.ask(events=answer("a\ud83d", id="a"))
    await chat.ask("One")
    assert chat.messages[1].parts[0].text == "a\ud83d "
    await chat.ask("Two")
    assert [text for _, text in sent(service)] == ["One", "a\ufffd ", "Two"]


async def test_only_words_are_sent_again(service, session):
    """Tool results are not sent again, a user's file is; ``history_parts=None`` sends all parts."""
    for parts, expected in (
        (None, {"step-start", "tool-search", "source-url", "text"}),
        (..., {"source-url", "text"}),
    ):
        chat = session.conversation(**({} if parts is ... else {"history_parts": parts}))
        picture = FilePart(media_type="image/png", url="data:image/png;base64,AA==")
        question = Message(id="q", role="user", parts=(TextPart(text="How do I install it?"), picture))
        await chat.ask(question)
        await chat.ask("And then?")
        asked, answered, _ = body(service)["messages"]
        assert asked == question.to_wire()
        assert {part["type"] for part in answered["parts"]} == expected
        assert set(answered) == {"id", "role", "parts"}


async def test_a_conversation_without_an_end_may_forget(service, session):
    """Beyond ``keep_messages`` the oldest whole turns are dropped, in the store, too; the thread stays."""
    store = MemoryConversationStore()
    chat = session.conversation(store=store, id="help", keep_messages=5)
    for n in range(5):
        await chat.ask(f"Question {n}?")
        assert len(chat.messages) <= 5
    assert [message.text for message in chat.messages if message.role == "user"] == [
        "Question 3?",
        "Question 4?",
    ]
    again = await session.conversation(store=store, id="help").load()
    assert (again.messages, again.thread) == (chat.messages, chat.thread)
    assert len(service.threads) == 1


async def test_system_messages_go_first(service, session):
    """The system message is sent first and keeps its id."""
    chat = session.conversation(system="Answer in French.")
    await chat.ask("How do I install it?")
    await chat.ask("And then?")
    assert sent(service)[0] == ("system", "Answer in French.")
    assert body(service, 0)["messages"][0] == body(service, 1)["messages"][0]
    assert roles(chat) == ["user", "assistant"] * 2


async def test_a_conversation_may_begin_with_a_history(service, session):
    """A history may be given in any form that messages have."""
    chat = session.conversation(
        messages=["Hello", Message(id="a", role="assistant", parts=(TextPart(text="Hi!"),))], thread=None
    )
    await chat.ask({"id": "q", "role": "user", "parts": [{"type": "text", "text": "How do I install it?"}]})
    assert sent(service) == [("user", "Hello"), ("assistant", "Hi!"), ("user", "How do I install it?")]
