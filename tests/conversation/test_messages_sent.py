"""Which messages of the history each question carries."""

from __future__ import annotations

import pytest

from mintlify_async.errors import StateError
from mintlify_async.messages import FilePart, Message, TextPart
from tests.support.conversation_kit import answer, body, roles, sent


async def test_half_a_character_of_the_service_does_not_end_a_conversation(service, session):
    """It is kept and sent again as U+FFFD, because no request may hold half a character."""
    chat = session.conversation()
    service.script.ask(events=answer("a\ud83d", id="a"))
    await chat.ask("One")
    assert chat.messages[1].parts[0].text == "a\ufffd "
    await chat.ask("Two")
    assert [text for _, text in sent(service)] == ["One", "a\ufffd ", "Two"]


async def test_text_files_and_links_are_sent_again(service, session):
    """Tool results are not sent again, a user's file is. Each message keeps its id."""
    chat = session.conversation(fp="ada")
    picture = FilePart(media_type="image/png", url="data:image/png;base64,AA==")
    question = Message(id="q", role="user", parts=(TextPart(text="How do I install it?"), picture))
    await chat.ask(question)
    await chat.ask("And then?")
    asked, answered, _ = body(service)["messages"]
    assert asked == question.to_wire()
    assert {part["type"] for part in answered["parts"]} == {"source-url", "text"}
    assert set(answered) == {"id", "role", "parts"}
    assert [message["id"] for message in body(service)["messages"]] == [m.id for m in chat.messages[:3]]
    assert body(service)["fp"] == "ada"


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
    history = ["Hello", Message(id="a", role="assistant", parts=(TextPart(text="Hi!"),))]
    chat = session.conversation().begin_with(history, thread=None)
    with pytest.raises(StateError, match="begin_with"):
        chat.begin_with(["Something else"])
    await chat.ask({"id": "q", "role": "user", "parts": [{"type": "text", "text": "How do I install it?"}]})
    assert sent(service) == [("user", "Hello"), ("assistant", "Hi!"), ("user", "How do I install it?")]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (None, "u0 a0 u1 a1 u2 a2 now"),
        (7, "u0 a0 u1 a1 u2 a2 now"),
        (6, "u1 a1 u2 a2 now"),
        (3, "u2 a2 now"),
        (2, "now"),
        (1, "now"),
    ],
)
async def test_the_newest_messages_are_sent(service, session, most, expected):
    """The question always; never an answer whose question is left out."""
    history = [
        Message(id=f"{role[0]}{number}", role=role, parts=(TextPart(text="Hi"),))
        for number in range(3)
        for role in ("user", "assistant")
    ]
    chat = session.conversation(max_messages=most).begin_with(history)
    await chat.ask([Message.user("now", id="now")])
    assert [message["id"] for message in body(service)["messages"]] == expected.split()
