"""A conversation through trouble of every kind, and on in another process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mintlify_async.conversation.conversation import Conversation
from mintlify_async.errors import (
    APIConnectionError,
    AssistantError,
    MintlifyError,
    ServerError,
    StoreConflictError,
    StreamError,
)
from mintlify_async.storage import SQLiteStore
from mintlify_async.testing import LocalService
from mintlify_async.testing.faults import Cut, NoAnswer, Reset

TURNS = 20
CHILD = """
import asyncio
import json
import sys

from mintlify_async import MintlifySession, SQLiteStore, StoreConflictError

async def main(path: str, id: str, owner: str, question: str) -> None:
    async with MintlifySession() as session:
        chat = session.conversation(fp=owner, store=SQLiteStore(path), id=id)
        await chat.load()
        loaded = chat.to_dict()
        print(json.dumps({"messages": loaded["messages"], "thread": loaded["thread"]}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            reply = await chat.ask(question)
        except StoreConflictError:
            print(json.dumps({"conflict": True}), flush=True)
            await chat.load()
            reply = await chat.ask(question)
        print(json.dumps({"text": reply.text, "messages": len(chat.messages)}), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
"""Prints the loaded turns, waits for a line, asks one question, and prints the answer."""


class Trouble:
    """Goes through a conversation with turns that end in every way, chosen by *seed*."""

    def __init__(self, service: LocalService, chat: Conversation, seed: int) -> None:
        self.service, self.chat = service, chat
        self.dice = random.Random(seed)
        self.finished: list[str] = []
        self.committed: list[Any] = []
        self.ways: dict[str, Callable[[str], Awaitable[None]]] = {
            "finish": self.finish,
            "cut": self.cut,
            "lost": self.lost,
            "cancel": self.cancel,
            "leave": self.leave,
            "refuse": self.refuse,
            "error": self.error,
            "abort": self.abort,
        }

    async def go(self) -> None:
        for number in range(TURNS):
            way = self.dice.choice(["finish", *self.ways])
            await self.ways[way](f"Question {number} of {way}: how do I install it?")
            self.service.script.clear()
            self.check(way)

    def check(self, way: str) -> None:
        """History holds exactly the finished turns, and what it held never changes."""
        chat = self.chat
        assert chat.messages[: len(self.committed)] == tuple(self.committed), way
        assert [m.text for m in chat.messages if m.role == "user"] == self.finished, way
        assert [m.role for m in chat.messages] == ["user", "assistant"] * len(self.finished), way
        assert len({m.id for m in chat.messages}) == len(chat.messages)
        assert not chat.busy, way
        self.committed = list(chat.messages)

    def script(self, **answer: Any) -> None:
        """Say how this turn's question is answered; a cancelled one that arrives late must not use it up."""
        self.service.script.ask(**answer, times=None)

    async def finish(self, question: str) -> None:
        reply = await self.chat.ask(question)
        assert reply.text
        self.finished.append(question)

    async def cut(self, question: str) -> None:
        at = self.dice.randrange(20, 1500)
        self.script(fault=Cut(at=at, how=self.dice.choice(["fin", "rst"])))
        with pytest.raises(StreamError):
            await self.chat.ask(question)

    async def lost(self, question: str) -> None:
        self.script(fault=self.dice.choice([NoAnswer(), Reset()]))
        with pytest.raises(APIConnectionError):
            await self.chat.ask(question)

    async def cancel(self, question: str) -> None:
        self.script(fault=Cut(at=self.dice.randrange(20, 1500), how="hang"))
        task = asyncio.create_task(self.chat.ask(question).run())
        for _ in range(self.dice.randrange(1, 60)):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def leave(self, question: str) -> None:
        async with self.chat.ask(question) as reply:
            for _ in range(self.dice.randrange(1, 8)):
                await anext(reply)

    async def refuse(self, question: str) -> None:
        self.script(status=self.dice.choice([400, 403, 500, 503]))
        with pytest.raises(MintlifyError):
            await self.chat.ask(question)

    async def error(self, question: str) -> None:
        start = [{"type": "start", "messageId": "m"}, {"type": "text-start", "id": "0"}]
        failure = {"type": "error", "errorText": "overloaded"}
        self.script(events=[*start, {"type": "text-delta", "id": "0", "delta": "Half"}, failure])
        with pytest.raises(AssistantError):
            await self.chat.ask(question)

    async def abort(self, question: str) -> None:
        self.script(events=[{"type": "start", "messageId": "m"}, {"type": "abort"}])
        reply = await self.chat.ask(question)
        assert reply.aborted


@pytest.mark.real
@pytest.mark.shows_secrets("the environment of a child holds the local service's keys")
@pytest.mark.parametrize("seed", range(10 if os.environ.get("SWEEPS") == "whole" else 2))
async def test_twenty_turns_in_trouble_and_on_in_another_process(tmp_path, seed):
    """Only the finished turns remain, with their ids and the thread; another process goes on knowing them."""
    path = str(tmp_path / "chats.sqlite")
    async with LocalService() as service, service.session() as session:
        chat = session.conversation(fp="ada", store=SQLiteStore(path), id="help")
        await chat.ask("What is the first question?")
        trouble = Trouble(service, chat, seed)
        trouble.finished.append("What is the first question?")
        trouble.check("first")
        thread = chat.thread
        await trouble.go()
        assert chat.thread == thread
        assert thread.key

        child = await start_child(service, path, "And why?")
        loaded = json.loads(await child.stdout.readline())
        assert loaded["messages"] == [message.to_wire() for message in chat.messages]
        assert loaded["thread"] == thread.to_dict()
        answered = json.loads((await child.communicate(b"go\n"))[0])
        assert answered["messages"] == len(chat.messages) + 2
        assert "Earlier in this thread you asked" in answered["text"]
        request = json.loads(service.requests[-1].body)
        assert (request["threadId"], request["threadKey"]) == (thread.id, thread.key)
        assert [m["id"] for m in request["messages"]][:-1] == [m.id for m in chat.messages]

        with pytest.raises(StoreConflictError):
            await chat.ask("Is it still me?")
        await chat.load()
        await chat.ask("Is it still me?")
        assert len(chat.messages) == answered["messages"] + 2


async def start_child(service: LocalService, path: str, question: str) -> asyncio.subprocess.Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MINTLIFY_")}
    environment = {
        **kept,
        "MINTLIFY_BASE_URL": service.base_url,
        "MINTLIFY_DOMAIN": service.domain,
        "MINTLIFY_ASSISTANT_API_KEY": service.assistant_key,
    }
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, path, "help", "ada", question, stdin=pipe, stdout=pipe, env=environment
    )


@pytest.mark.real
@pytest.mark.shows_secrets("the environment of a child holds the local service's keys")
async def test_two_processes_with_one_conversation(tmp_path):
    """Both loaded the same: one wins; the other is told, loads, and asks again."""
    path = str(tmp_path / "chats.sqlite")
    async with LocalService() as service, service.session() as session:
        chat = session.conversation(fp="ada", store=SQLiteStore(path), id="help")
        await chat.ask("How do I install it?")
        children = [await start_child(service, path, f"Question {n}?") for n in range(2)]
        for child in children:
            assert await child.stdout.readline()
        outputs = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        said = [[json.loads(line) for line in out.splitlines()] for out, _ in outputs]
        assert sorted(len(lines) for lines in said) == [1, 2]
        assert sum({"conflict": True} in lines for lines in said) == 1
        assert sorted(lines[-1]["messages"] for lines in said) == [4, 6]
        await chat.load()
        asked = {message.text for message in chat.messages if message.role == "user"}
        assert asked == {"How do I install it?", "Question 0?", "Question 1?"}


async def test_many_users_at_once_never_mix():
    """Fifty conversations in one process, interleaved; each hears only itself."""
    async with LocalService() as service, service.session() as session:

        async def talk(user: int) -> Conversation:
            chat = session.conversation(fp=f"user-{user}", busy="queue")
            for turn in range(3):
                if (user + turn) % 5 == 0:
                    service.script.ask(status=503)
                try:
                    await chat.ask(f"I am user {user}, turn {turn}")
                except ServerError:
                    continue
            return chat

        chats = await asyncio.gather(*(talk(user) for user in range(50)))
        threads = [chat.thread for chat in chats if chat.thread is not None]
        assert len(set(threads)) == len(threads)
        for user, chat in enumerate(chats):
            asked = [message.text for message in chat.messages if message.role == "user"]
            assert all(text.startswith(f"I am user {user},") for text in asked)
            if chat.thread is not None:
                assert service.threads[chat.thread.id].questions == asked
