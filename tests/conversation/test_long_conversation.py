"""Long conversations: a turn reads and writes as much after a hundred turns as after five."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from conversation_kit import answer, sent

from mintlify_async.contrib.redis import RedisConversationStore
from mintlify_async.errors import ConfigurationError, StateError, StoreConflictError
from mintlify_async.messages import Message, ToolPart
from mintlify_async.storage import MemoryConversationStore, SQLiteConversationStore, StoredTurn
from mintlify_async.testing import VirtualClock

RESULTS = {"results": [{"path": "/p", "content": "word " * 200}] * 20}  # 20 KB


@pytest.fixture
async def clock():
    return VirtualClock(grace=0.005)  # Redis and SQLite work elsewhere


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryConversationStore()
    elif request.param == "sqlite":
        yield SQLiteConversationStore(tmp_path / "chats.sqlite")
    else:
        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisConversationStore(client, timeout=10)


class Counted:
    """A store that counts the turns and the characters that go in and out."""

    def __init__(self, store) -> None:
        self.store = store
        self.ids, self.delete = store.ids, store.delete
        self.clear()

    def clear(self) -> None:
        self.loads, self.saves, self.characters = [], [], 0

    def __repr__(self) -> str:
        return "Counted()"

    async def load(self, id, *, owner, last=None):
        found = await self.store.load(id, owner=owner, last=last)
        if found is not None:
            self.loads.append(len(found.turns))
            self.characters += len(found.head) + sum(len(turn.data) for turn in found.turns)
        return found

    async def save(self, id, head, turns, **options):
        self.saves.append(len(turns))
        self.characters += len(head) + sum(len(turn.data) for turn in turns)
        return await self.store.save(id, head, turns, **options)


def searched(text: str, *, id: str = "m", results: object = RESULTS) -> list[dict]:
    """Return the events of an answer with search results."""
    start, *rest = answer(text, id=id)
    call = {"toolCallId": "call_1", "toolName": "search"}
    found = [
        {"type": "tool-input-available", **call, "input": {"query": "word"}},
        {"type": "tool-output-available", "toolCallId": "call_1", "output": results},
    ]
    return [start, *found, *rest]


async def take_turns(service, chats: Sequence, count: int, begin: int = 0) -> None:
    """Take *count* turns, with one of *chats* after the other."""
    for number in range(begin, begin + count):
        service.script.ask(events=searched(f"Answer {number}", id=f"a{number}"))
        await chats[number % len(chats)].ask(f"Question {number}?")


@pytest.mark.parametrize("fresh", [True, False], ids=["a new object each turn", "one object"])
async def test_a_turn_costs_the_same_however_many_there_were(service, session, store, fresh):
    """It writes itself alone, and reads no more than it sends; counted in the store."""
    counted = Counted(store)
    options = {"store": counted, "id": "c", "owner": "ada", "max_messages": 8}
    kept = session.conversation(**options)
    costs = []
    for number in range(30):
        counted.clear()
        chat = session.conversation(**options) if fresh else kept
        await take_turns(service, [chat], 1, number)
        costs.append(counted.characters)
        assert counted.saves == [1]
        assert counted.loads == ([] if number == 0 else [min(number, 4)] if fresh else [0])
        assert len(sent(service)) == min(7, 2 * number + 1)
    assert costs[-1] <= 1.01 * costs[4]
    assert not fresh or not chat.complete
    assert [message.id for message in (await chat.load()).messages if message.role == "assistant"] == [
        f"a{number}" for number in range(30)
    ]


async def test_large_parts_are_written_once_and_off_the_loop(service, session, store, monkeypatch):
    """Search results become JSON once, and are read from it once, both in a worker thread."""
    here = threading.get_ident()
    written, read = [], []
    to_wire, from_wire = ToolPart.to_wire, Message.from_wire.__func__

    def noted_to_wire(part):
        written.append(threading.get_ident())
        return to_wire(part)

    def noted_from_wire(cls, wire, where="message"):
        read.append(threading.get_ident())
        return from_wire(cls, wire, where)

    monkeypatch.setattr(ToolPart, "to_wire", noted_to_wire)
    monkeypatch.setattr(Message, "from_wire", classmethod(noted_from_wire))
    chat = session.conversation(store=store, id="c", owner="ada")
    await take_turns(service, [chat], 5)
    assert len(written) == 5
    again = session.conversation(store=store, id="c", owner="ada", max_messages=2)
    await take_turns(service, [again], 2, 5)
    assert len(written) == 7
    assert len(read) == 2  # the newest turn, its question and its answer
    await again.load()
    assert len(read) == 2 + 2 * 7 - 2 * 3  # what it had read or written itself is not read again
    assert here not in {*written, *read}
    assert chat.messages == again.messages[:10]


async def test_older_turns_are_read_when_they_are_asked_for(service, session, store):
    """load(last=…) reads that many messages or a few more; what needs the whole history says so."""
    options = {"store": store, "id": "c", "owner": "ada"}
    chat = session.conversation(**options)
    await take_turns(service, [chat], 6)
    for last, expected in [(1, 2), (2, 2), (3, 4), (12, 12), (13, 12), (None, 12)]:
        shown = await session.conversation(**options).load(last=last)
        assert shown.messages == chat.messages[12 - expected :]
        assert shown.complete == (expected == 12)
    part = await session.conversation(**options).load(last=4)
    for step in (part.fork, part.to_dict):
        with pytest.raises(StateError, match=r"`await chat.load\(\)` first"):
            step()
    assert part.thread == chat.thread
    await part.load()
    assert part.fork(id="other").messages == chat.messages
    assert part.to_dict() == chat.to_dict()
    for wrong in (0, -1, True, "2"):
        with pytest.raises(ConfigurationError) as caught:
            await part.load(last=wrong)
        assert caught.value.field == "last"


async def test_turns_that_send_little_are_read_until_enough(service, session):
    """Bounds by characters, and answers without text: more is read until what is sent is the same."""
    store = Counted(MemoryConversationStore())
    whole = session.conversation(store=store, id="c", owner="ada")
    for number in range(40):
        events = [{"type": "start", "messageId": f"a{number}"}, {"type": "finish"}]
        service.script.ask(events=events)
        await whole.ask(f"Question {number:02}?")  # 12 characters; the answer has none
    for bounds, loads in [
        ({"max_messages": 11}, [6, 12]),
        ({"max_characters": 12 * 21}, [8, 16, 32]),
        ({"max_characters": 12 * 90}, [8, 16, 32, 40]),
    ]:
        store.clear()
        chat = session.conversation(store=store, id="c", owner="ada", **bounds)
        count = bounds.get("max_messages") or min(bounds["max_characters"] // 12, 41)
        async with chat.ask("Question 40?") as reply:
            await anext(reply)
        assert store.loads == loads
        assert [text for _, text in sent(service)] == [f"Question {n:02}?" for n in range(41 - count, 41)]


async def test_undo_takes_the_last_turn_from_the_store(service, session, store):
    """Also of a conversation that is read in part, and again, until nothing is left."""
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 2}
    await take_turns(service, [session.conversation(**options)], 4)
    chat = session.conversation(**options)
    for left in (3, 2, 1, 0):
        (question,) = await chat.undo()
        assert question.text == f"Question {left}?"
        stored = await store.load("c", owner="ada")
        assert [turn.number for turn in stored.turns] == [0, 2, 4, 6][:left]
    with pytest.raises(StateError, match="no turn"):
        await chat.undo()
    await take_turns(service, [chat], 1, 9)
    again = await session.conversation(**options).load()
    assert [message.text for message in again.messages] == ["Question 9?", "Answer 9 "]


async def test_undo_past_what_has_no_question(session):
    """What was said before the first question is no turn; a turn behind it is read to be taken back."""
    store = MemoryConversationStore()
    first = session.conversation(
        store=store, id="c", owner="ada", messages=[Message.user("Hi"), Message.system("Be brief.")]
    )
    await first.save()
    stored = await store.load("c", owner="ada")
    greeting = StoredTurn(number=2, data='[{"role": "assistant", "id": "g", "parts": []}]')
    options = {"owner": "ada", "revision": stored.revision, "keep": range(2)}
    await store.save("c", stored.head, [greeting], **options)
    chat = session.conversation(store=store, id="c", owner="ada", max_messages=1)
    assert [message.text for message in await chat.undo()] == ["Hi"]
    assert chat.messages == ()
    assert (await store.load("c", owner="ada")).turns == ()


async def test_kept_messages_bound_the_store(service, session, store):
    """keep_messages drops the oldest turns from the store, without reading them."""
    counted = Counted(store)
    options = {"store": counted, "id": "c", "owner": "ada", "max_messages": 2, "keep_messages": 7}
    for number in range(10):
        counted.clear()
        await take_turns(service, [session.conversation(**options)], 1, number)
        assert counted.loads == ([1] if number else [])
        stored = await store.load("c", owner="ada")
        assert [turn.number for turn in stored.turns] == [*range(0, 2 * number + 1, 2)][-3:]
    chat = await session.conversation(**options).load()
    assert [message.id for message in chat.messages if message.role == "assistant"] == ["a7", "a8", "a9"]


async def test_system_messages_are_sent_however_old(service, session, store):
    """Those of the history go before every question, when their turn is not read, or not kept any more."""
    seeds = [Message.system("Be brief.", id="s"), Message.user("Hi", id="u")]
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 2, "keep_messages": 4}
    chat = session.conversation(**options, messages=seeds)
    await take_turns(service, [chat], 1)
    for number in range(1, 5):
        chat = session.conversation(**options)
        await take_turns(service, [chat], 1, number)
        assert sent(service) == [("system", "Be brief."), ("user", f"Question {number}?")]
    await chat.load()
    assert [message.role for message in chat.messages] == ["user", "assistant"] * 2
    copy = chat.fork()
    await copy.ask("And then?")
    assert sent(service)[0] == ("system", "Be brief.")
    assert [message["id"] for message in copy.to_dict()["messages"]][:2] == ["s", chat.messages[2].id]


async def test_what_comes_after_finish_replaces_the_turn_in_the_store(service, session, store):
    """A turn that was saved at ``finish`` is saved again as it is at the end; it is one turn."""
    late = [{"type": "data-thread", "data": {}, "threadId": "late"}]
    service.script.ask(events=[*searched("Hello"), *late])
    chat = session.conversation(store=store, id="c", owner="ada")
    await chat.ask("Hi")
    (turn,) = (await store.load("c", owner="ada")).turns
    assert [part["type"] for part in json.loads(turn.data)[1]["parts"]][-1] == "data-thread"
    assert (await session.conversation(store=store, id="c", owner="ada").load()).messages == chat.messages


async def test_what_is_sent_is_read_first(service, session, store):
    """After undo() or load(last=…) less is here than a question is sent with: the rest is read before."""
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 5}
    await take_turns(service, [session.conversation(**options)], 6)
    chat = session.conversation(**options)
    for _ in range(3):
        await chat.undo()
    await chat.ask("And now?")
    asked = [text for role, text in sent(service) if role == "user"]
    assert asked == ["Question 1?", "Question 2?", "And now?"]
    await chat.load(last=1)
    await chat.ask("And then?")
    assert [text for role, text in sent(service) if role == "user"] == [*asked[1:], "And then?"]


async def test_a_fork_is_saved_whole(service, session, store):
    """With its first turn; saving again writes no turn."""
    counted = Counted(store)
    chat = session.conversation(store=counted, id="c", owner="ada")
    await take_turns(service, [chat], 3)
    fork = chat.fork(id="fork")
    counted.clear()
    await take_turns(service, [fork], 1, 3)
    assert counted.saves == [4]
    await fork.save()
    fork.forget_thread()
    await fork.save()
    assert counted.saves == [4, 0, 0]
    assert len((await store.load("fork", owner="ada")).turns) == 4
    assert len((await store.load("c", owner="ada")).turns) == 3


async def test_in_line_two_objects_share_a_long_conversation(service, session, store):
    """Each reads what the other has added, and neither loses a turn."""
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 4, "busy": "queue"}
    chats = [session.conversation(**options) for _ in range(2)]
    await take_turns(service, chats, 8)
    whole = await session.conversation(**options).load()
    assert [message.text for message in whole.messages if message.role == "user"] == [
        f"Question {number}?" for number in range(8)
    ]
    assert [text for _, text in sent(service)] == ["Question 6?", "Answer 6 ", "Question 7?"]


async def test_a_conflict_is_told_before_older_turns_are_read(service, session, store):
    """Checking for another revision reads no turn."""
    counted = Counted(store)
    one, two = (session.conversation(store=counted, id="c", owner="ada") for _ in range(2))
    await take_turns(service, [one], 3)
    await two.load()
    await take_turns(service, [one], 1, 3)
    counted.clear()
    with pytest.raises(StoreConflictError):
        await two.ask("Late?")
    assert (counted.loads, counted.saves) == ([0], [])


SAVE_FOREVER = """
import asyncio, sys
from mintlify_async.storage import SQLiteConversationStore, StoredTurn

async def main():
    store = SQLiteConversationStore(sys.argv[1])
    found = await store.load("c", owner="ada")
    revision, count = (found.revision, len(found.turns)) if found else (0, 0)
    while True:
        turn = StoredTurn(number=count, data=str(count) + " " * 60_000)
        keep = range(count)
        revision = await store.save("c", str(count + 1), [turn], owner="ada", revision=revision, keep=keep)
        count += 1
        print(count, flush=True)

asyncio.run(main())
"""


async def test_a_killed_process_loses_no_turn(tmp_path: Path):
    """Killed at any moment: head and turns are of one step, and what was saved is there."""
    path = tmp_path / "chats.sqlite"
    store = SQLiteConversationStore(path)
    for seconds in (0.0, 0.003, 0.007, 0.011):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SAVE_FOREVER, str(path), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3):
            await child.stdout.readline()
        await asyncio.sleep(seconds)
        child.kill()
        told = (await child.communicate())[0].split()
        found = await store.load("c", owner="ada")
        assert [turn.data.strip() for turn in found.turns] == [str(n) for n in range(int(found.head))]
        assert int(found.head) >= int(told[-1] if told else 0)
