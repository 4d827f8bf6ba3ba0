"""A conversation through trouble of every kind, and on in another process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys

import pytest

from mintlify_async.conversation.conversation import Conversation
from mintlify_async.errors import MintlifyError, StoreConflictError
from mintlify_async.storage import SQLiteStore
from mintlify_async.testing import Cut, LocalService, NoAnswer, Reset
from tests.support.conversation_kit import answer, questions, roles

TURNS = 20
CHILD = """
import asyncio
import json
import sys
import time

from mintlify_async import MintlifySession, SQLiteStore

async def main(path: str, question: str) -> None:
    async with MintlifySession() as session:
        chat = await session.conversation(fp="ada", store=SQLiteStore(path), id="help").load()
        print(json.dumps([message.to_wire() for message in chat.messages]), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await chat.ask(question)
        print(len(chat.messages), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
"""Prints the loaded turns, waits for a line, asks one question, and prints how many messages there are."""


async def fail_or_leave(service: LocalService, chat: Conversation, dice: random.Random, question: str) -> str:
    """Ask a question whose turn does not finish, in a way that *dice* chooses; return the way."""
    cut = Cut(at=dice.randrange(20, 1500), how=dice.choice(["fin", "rst"]))
    half = answer("Half")[:-2]
    failures = {
        "cut": {"fault": cut},
        "lost": {"fault": dice.choice([NoAnswer(), Reset()])},
        "refuse": {"status": dice.choice([400, 403, 500, 503])},
        "error": {"events": [*half, {"type": "error", "errorText": "overloaded"}]},
    }
    way = dice.choice([*failures, "cancel", "leave", "abort"])
    # For all answers until it is cleared: a cancelled question that arrives late must not use it up.
    if way in failures:
        service.script.ask(**failures[way], times=None)
        with pytest.raises(MintlifyError):
            await chat.ask(question)
    elif way == "cancel":
        service.script.ask(fault=Cut(at=cut.at, how="hang"), times=None)
        task = asyncio.create_task(chat.ask(question).run())
        for _ in range(dice.randrange(1, 60)):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    elif way == "leave":
        async with chat.ask(question) as reply:
            for _ in range(dice.randrange(1, 8)):
                await anext(reply)
    else:
        service.script.ask(events=[*half, {"type": "abort"}], times=None)
        assert (await chat.ask(question)).aborted
    service.script.clear()
    return way


@pytest.mark.real
@pytest.mark.shows_secrets("the environment of a child holds the local service's keys")
@pytest.mark.parametrize("seed", range(10 if os.environ.get("SWEEPS") == "whole" else 2))
async def test_twenty_turns_in_trouble_and_on_in_another_process(service, session, tmp_path, seed):
    """Only the finished turns remain, with their ids and the thread; another process goes on knowing them."""
    path, dice = str(tmp_path / "chats.sqlite"), random.Random(seed)
    chat = session.conversation(fp="ada", store=SQLiteStore(path), id="help")
    finished = ["What is the first question?"]
    await chat.ask(finished[0])
    thread = chat.thread
    assert thread.key
    for number in range(TURNS):
        committed, way = chat.messages, "finish"
        if dice.random() < 0.2:
            finished.append(f"Question {number}?")
            await chat.ask(finished[-1])
        else:
            way = await fail_or_leave(service, chat, dice, f"Question {number}: how do I install it?")
        assert chat.messages[: len(committed)] == committed, way
        assert questions(chat) == finished, way
        assert roles(chat) == ["user", "assistant"] * len(finished), way
        assert len({message.id for message in chat.messages}) == len(chat.messages)
        assert not chat.busy, way
    assert chat.thread == thread

    kept = {name: value for name, value in os.environ.items() if not name.startswith("MINTLIFY_")}
    pipe, environment = asyncio.subprocess.PIPE, {**kept, **service.environment}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, path, "And why?", stdin=pipe, stdout=pipe, env=environment
    )
    loaded = json.loads(await child.stdout.readline())
    assert loaded == [message.to_wire() for message in chat.messages]
    (count,) = (await child.communicate(b"go\n"))[0].split()
    assert int(count) == len(chat.messages) + 2
    request = service.requests[-1].json
    assert (request["threadId"], request["threadKey"]) == (thread.id, thread.key)
    assert [message["id"] for message in request["messages"]][:-1] == [m.id for m in chat.messages]

    with pytest.raises(StoreConflictError):
        await chat.ask("Is it still me?")
    await chat.load()
    await chat.ask("Is it still me?")
    assert len(chat.messages) == int(count) + 2
