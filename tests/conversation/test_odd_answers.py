"""Whatever the service sends, the next turn can be sent, and everything can be written."""

from __future__ import annotations

import json
import os

import pytest

from mintlify_async import Message, StreamInterruptedError
from mintlify_async.messages import TextPart
from tests.support.conversation_kit import answer, body
from tests.support.odd_answers import OddAnswers, check_answer, check_event, check_message, encode

CHATS = 200 if os.environ.get("SWEEPS") == "whole" else 15
TURNS = 4


@pytest.fixture(autouse=True)
def clock():
    """Real time: Redis is another process."""


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis"], indirect=True)
async def test_no_answer_ends_a_stored_conversation(service, session, store):
    """Each turn reads the store anew. The request, the answer and the conversation can be encoded."""
    for seed in range(CHATS):
        odd = OddAnswers(seed)
        for turn in range(TURNS):
            service.script.ask(events=odd.events())
            chat = session.conversation(store=store, id=f"chat-{seed}", owner="ada")
            check_answer(await chat.ask(f"Question {turn}"))
            assert len(body(service)["messages"]) == 2 * turn + 1
            encode(body(service))
            encode(chat.to_dict())
            check_message(chat.messages[-1])


async def test_no_answer_ends_a_conversation_without_a_store(service, session):
    """The history is in memory only; the events can be encoded, and the copy in a dict continues it."""
    for seed in range(CHATS):
        odd, chat = OddAnswers(-seed), session.conversation()
        for turn in range(TURNS):
            service.script.ask(events=odd.events())
            async with chat.ask(f"Question {turn}") as reply:
                async for event in reply:
                    check_event(event)
            check_answer(reply.answer)
            encode(body(service))
            chat = type(chat).from_dict(session, json.loads(json.dumps(chat.to_dict())))


async def test_an_interrupted_answer_ends_no_conversation(service, session):
    """Also if it is kept, and ends between the halves of a character."""
    chat = session.conversation(commit="partial")
    start = [*answer("a")[:2], {"type": "text-delta", "id": "0", "delta": "a\ud83d"}]
    service.script.ask(body=[b"data: %b\n\n" % json.dumps(event).encode() for event in start])
    with pytest.raises(StreamInterruptedError) as caught:
        await chat.ask("One")
    check_message(caught.value.partial)
    caught.value.text.encode()
    encode(chat.to_dict())
    await chat.ask("Two")
    assert body(service)["messages"][1]["parts"][0]["text"] == "a\ufffd"


async def test_old_records_with_halves_are_read(service, session, store):
    """0.3.0 stored answers as they came: with half of a character in a title, an id or a thread."""
    chat = session.conversation(store=store, id="old", owner="ada")
    await chat.ask("One")
    kept = chat.to_dict()
    half = json.loads(
        json.dumps(kept).replace('"/', '"\\ud83d/').replace(kept["thread"]["threadId"], "\\ud83d")
    )
    again = type(chat).from_dict(session, half)
    for message in again.messages[1::2]:
        check_message(message)
    await again.ask("Two")
    encode(body(service))


@pytest.mark.parametrize(
    "message",
    [
        {"id": "a\ud83d", "role": "assistant", "parts": [{"type": "text", "text": "cut \ud83d"}]},
        Message(id="a\ud83d", role="assistant", parts=(TextPart(text="cut \ud83d"),)),
    ],
    ids=["dict", "Message"],
)
async def test_an_answer_in_the_history_may_have_halves(service, session, message):
    """A page gives back what the service has sent; a half in a question is still the caller's to remove."""
    await session.ask(["One", message, "Two"])
    assert body(service)["messages"][1]["id"] == "a\ufffd"
    assert body(service)["messages"][1]["parts"][0]["text"] == "cut \ufffd"


DEEP = '{"a":[' * 98 + '"\\ud83d\\ude00"' + "]}" * 98  # in an event, which may be nested 200 deep
ODD_EVENTS = [
    f'{{"type":"source-url","sourceId":"1","url":"/a","providerMetadata":{{"p":{{"x":{DEEP}}}}}}}',
    f'{{"type":"data-x","data":[[{DEEP}]]}}',
    f'{{"type":"message-metadata","messageMetadata":[{DEEP}]}}',
    f'{{"type":"data-x","data":1{"0" * 4000}}}',
    *(
        json.dumps({"type": "thread", "threadId": id, "threadKey": "k"})
        for id in (" t", "t\n", '"t"', "\u00abt\u00bb", "\0")
    ),
]


@pytest.mark.parametrize(
    "event", ODD_EVENTS, ids=[f"{event[:40]}-{at}" for at, event in enumerate(ODD_EVENTS)]
)
async def test_a_legal_event_ends_no_conversation(service, session, store, event):
    """The deepest and the longest values, and a thread that no question may name."""
    events = [*map(json.dumps, answer("a")[:-1]), event, '{"type":"finish"}', "[DONE]"]
    service.script.ask(body=[f"data: {data}\n\n".encode() for data in events])
    for question in ("One", "Two", "Three"):
        chat = session.conversation(store=store, id="chat", owner="ada")
        await chat.ask(question)
    assert len(chat.messages) == 6
