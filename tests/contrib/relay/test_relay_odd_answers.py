"""Whatever the service sends, a page can ask on: with a store and without, also a page of the newest ai."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from mintlify_async.assistant.message_builder import MessageBuilder
from tests.support.odd_answers import OddAnswers, encode
from tests.support.parsed_events import parse_event
from tests.support.relay_browser import NEWEST, page_program
from tests.support.relay_desk import TURN, USER, Desk, desk, form, say
from tests.support.relay_kit import events, user_message

CHATS = 100 if os.environ.get("SWEEPS") == "whole" else 10
TURNS = 4


class OwnPage:
    """A page that keeps its history, and folds what it gets with halves of characters, as JavaScript does."""

    def __init__(self, here: Desk) -> None:
        self.here = here
        self.messages: list[dict[str, Any]] = []

    async def ask(self, text: str) -> None:
        number = len(self.messages)
        self.messages.append(user_message(text, f"u{number}"))
        builder = MessageBuilder()
        for event in events(await self.here.page.ask(*self.messages)):
            builder.apply(parse_event(json.dumps(event)))
        answer = builder.message.to_wire()
        self.messages.append({**answer, "id": answer["id"] or f"own{number}"})


async def test_no_answer_ends_a_chat_without_a_store(here):
    """Each question is sent on, complete."""
    for seed in range(CHATS):
        odd, page = OddAnswers(seed), OwnPage(here)
        for turn in range(TURNS):
            here.service.script.ask(events=odd.events())
            await page.ask(f"Question {turn}")
            assert len(here.asked["messages"]) == 2 * turn + 1
            encode(here.asked)


async def test_no_answer_ends_a_stored_chat(store):
    """The request to the service and the history can be encoded; the page's id is that of the store."""
    async with desk(store=store) as here:
        for seed in range(CHATS):
            odd, chat = OddAnswers(seed), f"chat-{seed}"
            for turn in range(TURNS):
                here.service.script.ask(events=odd.events())
                id = await say(here, form(f"Question {turn}", f"u{turn}", chat=chat))
                encode(here.asked)
                assert len(here.asked["messages"]) == 2 * turn + 1
            _, messages = await here.page.history(chat)
            encode(messages)
            assert messages[-1]["id"] == id


ODD_IDS = ["", "x" * 201, "a\nb", "a\ud83d", "\x7f", "m1", "u0", "mint_dsc_0123456789abcdef", "thread_77"]


@pytest.mark.parametrize("id", ODD_IDS)
async def test_an_id_that_a_page_cannot_give_back_is_not_passed_on(here, id):
    """It is empty, long, not printable, in the history already, or hidden. The page then keeps its own."""
    page = OwnPage(here)
    for turn, given in enumerate(["first", id, id, id]):
        here.service.script.ask(events=[{**TURN[0], "messageId": given}, *TURN[1:]])
        await page.ask(f"Question {turn}")
    ids = [message["id"] for message in here.asked["messages"]]
    assert len(ids) == len(set(ids)) == 7


async def test_a_new_id_is_passed_on(here):
    """The page and the service then name the answer alike."""
    page = OwnPage(here)
    here.service.script.ask(events=[{**TURN[0], "messageId": "m\u00e9 1"}, *TURN[1:]])
    await page.ask("Question")
    assert page.messages[-1]["id"] == "m\u00e9 1"


@pytest.mark.real
@pytest.mark.parametrize("stored", [False, True], ids=["page", "store"])
async def test_the_newest_release_of_ai_can_ask_on(stored, tmp_path):
    """Its chat class asks four questions in each chat. None fails, and each answer is shown to its end."""
    from mintlify_async.storage import MemoryStore

    settings = {"store": MemoryStore()} if stored else {}
    program = page_program(NEWEST, "asking_pages.mjs")
    async with desk(**settings) as here:
        here.page.user = USER
        for seed in range(CHATS):
            odd = OddAnswers(seed)
            for _ in range(TURNS):
                here.service.script.ask(events=odd.events())
        page = {"address": here.page.address, "user": USER}
        story = {**page, "chats": CHATS, "turns": TURNS, "stored": stored}
        process = await asyncio.create_subprocess_exec(
            "node", program, json.dumps(story), stdout=asyncio.subprocess.PIPE, limit=2**24
        )
        output, _ = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == 0
        for chat in json.loads(output):
            assert [turn["error"] for turn in chat] == [None] * TURNS
            for number, turn in enumerate(chat, 1):
                assert turn["text"].endswith(f"Answer {number} \U0001f600 ends with \ud83d")
        assert len(here.service.requests) == CHATS * TURNS
        for request in here.service.requests:
            encode(request.json)
