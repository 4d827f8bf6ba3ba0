"""Long conversations: a turn reads and writes as much after a hundred turns as after five."""

from __future__ import annotations

import threading

import pytest

from mintlify_async import Conversation
from mintlify_async.conversation.records import ConversationKeys
from mintlify_async.errors import StateError, StoreConflictError
from mintlify_async.messages import Message, ToolPart
from tests.support.conversation_kit import answer, questions, sent

pytestmark = pytest.mark.parametrize("store", ["memory", "sqlite", "redis"], indirect=True)
RESULTS = {"results": [{"path": "/p", "content": "word " * 200}] * 20}  # 20 KB


@pytest.fixture(autouse=True)
def clock():
    """Real time: Redis is another process."""


class Counted:
    """A store that counts the turns and the characters that go in and out."""

    def __init__(self, store) -> None:
        self.store = store
        self.clear()

    def __getattr__(self, name):
        return getattr(self.store, name)

    def clear(self) -> None:
        self.loads, self.saves, self.characters = 0, [], 0

    async def read(self, keys):
        snapshot = await self.store.read(keys)
        self.loads += sum("/turns-" in key for key in snapshot.records)
        self.characters += sum(len(record.value) for record in snapshot.records.values())
        return snapshot

    async def write(self, changes, **options):
        self.saves.append(sum("/turns-" in key for key, value in changes.items() if value is not None))
        self.characters += sum(len(value or b"") for value in changes.values())
        return await self.store.write(changes, **options)


async def turn_numbers(store, id: str = "c") -> list[int]:
    """Return the numbers of the turns that the store has."""
    keys = {ConversationKeys("ada", id).turn(number): number for number in range(40)}
    return [keys[key] for key in sorted((await store.read(list(keys))).records)]


def searched(text: str, id: str) -> list[dict]:
    """Return the events of an answer with search results."""
    start, *rest = answer(text, id=id)
    call = {"toolCallId": "call_1", "toolName": "search"}
    found = [
        {"type": "tool-input-available", **call, "input": {"query": "word"}},
        {"type": "tool-output-available", "toolCallId": "call_1", "output": RESULTS},
    ]
    return [start, *found, *rest]


async def take_turns(service, chat, count: int, begin: int = 0) -> None:
    """Take *count* turns, the first of which has the number *begin*."""
    for number in range(begin, begin + count):
        service.script.ask(events=searched(f"Answer {number}", f"a{number}"))
        await chat.ask(f"Question {number}?")


@pytest.mark.parametrize("fresh", [True, False], ids=["a new object each turn", "one object"])
async def test_a_turn_costs_the_same_however_many_there_were(service, session, store, fresh):
    """It writes itself alone, and reads no more than it sends; counted in the store."""
    counted = Counted(store)
    options = {"store": counted, "id": "c", "owner": "ada", "max_messages": 8}
    kept = session.conversation(**options)
    costs = []
    for number in range(14):
        counted.clear()
        chat = session.conversation(**options) if fresh else kept
        await take_turns(service, chat, 1, number)
        costs.append(counted.characters)
        assert counted.saves == [1]
        assert counted.loads == (min(number, 4) if fresh else 0)
        assert len(sent(service)) == min(7, 2 * number + 1)
    assert costs[-1] <= 1.01 * costs[4]
    assert [message.id for message in (await chat.load()).messages[1::2]] == [f"a{n}" for n in range(14)]


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
    await take_turns(service, chat, 5)
    assert len(written) == 5
    again = session.conversation(store=store, id="c", owner="ada", max_messages=2)
    await take_turns(service, again, 2, 5)
    assert len(written) == 7
    assert len(read) == 2  # the newest turn, its question and its answer
    await again.load()
    assert len(read) == 2 + 2 * 7
    assert here not in {*written, *read}
    assert chat.messages == again.messages[:10]


async def test_undo_takes_the_last_turn_from_the_store(service, session, store):
    """Also of a conversation that is read in part, and again, until nothing is left."""
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 2}
    await take_turns(service, session.conversation(**options), 4)
    chat = session.conversation(**options)
    for left in (3, 2, 1, 0):
        (question,) = await chat.undo()
        assert question.text == f"Question {left}?"
        assert await turn_numbers(store) == [0, 1, 2, 3][:left]
    with pytest.raises(StateError, match="no turn"):
        await chat.undo()
    await take_turns(service, chat, 1, 9)
    again = await session.conversation(**options).load()
    assert [message.text for message in again.messages] == ["Question 9?", "Answer 9 "]


async def test_system_messages_are_sent_however_old(service, session, store):
    """Those of the history go before every question, when their turn is not read, or not kept any more."""
    seeds = [Message.system("Be brief.", id="s"), Message.user("Hi", id="u")]
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 2}
    chat = session.conversation(**options).begin_with(seeds)
    await take_turns(service, chat, 1)
    for number in range(1, 5):
        chat = session.conversation(**options)
        await take_turns(service, chat, 1, number)
        assert sent(service) == [("system", "Be brief."), ("user", f"Question {number}?")]
    await chat.load()
    copy = chat.fork()
    await copy.ask("And then?")
    assert sent(service)[0] == ("system", "Be brief.")


async def test_what_is_sent_is_read_first(service, session, store):
    """After undo() less is here than a question is sent with: the rest is read before."""
    options = {"store": store, "id": "c", "owner": "ada", "max_messages": 5}
    await take_turns(service, session.conversation(**options), 6)
    chat = session.conversation(**options)
    for _ in range(3):
        await chat.undo()
    await chat.ask("And now?")
    assert [text for role, text in sent(service) if role == "user"] == [
        "Question 1?",
        "Question 2?",
        "And now?",
    ]


async def test_a_fork_is_saved_whole(service, session, store):
    """With its first turn; saving again writes no turn."""
    counted = Counted(store)
    chat = session.conversation(store=counted, id="c", owner="ada")
    await take_turns(service, chat, 3)
    fork = chat.fork(id="fork")
    counted.clear()
    await take_turns(service, fork, 1, 3)
    assert counted.saves == [4]
    await fork.save()
    fork.forget_thread()
    await fork.save()
    assert counted.saves == [4, 0, 0]
    assert await Conversation.ids(store, owner="ada") == ["c", "fork"]
    assert await turn_numbers(store, "fork") == [0, 1, 2, 3]
    assert await turn_numbers(store) == [0, 1, 2]


async def test_a_conflict_is_told_before_older_turns_are_read(service, session, store):
    """Checking for another revision reads no turn; nothing is sent, and after load() it goes on."""
    counted = Counted(store)
    one, two = (session.conversation(store=counted, id="c", owner="ada") for _ in range(2))
    await take_turns(service, one, 3)
    await two.load()
    await take_turns(service, one, 1, 3)
    counted.clear()
    with pytest.raises(StoreConflictError):
        await two.ask("Late?")
    assert (counted.loads, counted.saves) == (0, [])
    assert service.requests.count("ask") == 4
    await two.load()
    await take_turns(service, two, 1, 4)
    assert questions(two) == [f"Question {number}?" for number in range(5)]
