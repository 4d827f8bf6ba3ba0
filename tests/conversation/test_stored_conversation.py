"""Conversations that are kept in a store: owners, conflicts, failures."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from mintlify_async import Conversation, MemoryStore
from mintlify_async.conversation.records import ConversationKeys
from mintlify_async.errors import ConfigurationError, StateError, StoreConflictError
from mintlify_async.events import Finish
from mintlify_async.storage.store import new_version
from tests.support.conversation_kit import questions, sent


async def read(reply, seen: list) -> None:
    """Append the events of *reply* to *seen*."""
    async for event in reply:
        seen.append(event)


async def test_owners_are_apart(service, session, store):
    """The same id under two owners is two conversations; one cannot load the other's."""
    ada = session.conversation(fp="ada", store=store, id="help")
    bob = session.conversation(fp="bob", store=store, id="help")
    await ada.ask("How do I install it?")
    assert (await bob.load()).messages == ()
    reply = await bob.ask("And then?")
    assert sent(service) == [("user", "And then?")]
    assert "How do I install it?" not in reply.text
    assert questions(ada) == ["How do I install it?"]
    assert ada.thread != bob.thread
    for owner in ("ada", "bob"):
        assert await Conversation.ids(store, owner=owner) == ["help"]
    shared = session.conversation(fp="ada-on-the-phone", owner="ada", store=store, id="help")
    assert (await shared.load()).messages == ada.messages


async def test_a_conflict_shows_when_the_block_is_left_at_finish(service, session):
    """A reader that stops at ``finish`` gets the conflict at the end of its block."""
    store = MemoryStore()
    chat = session.conversation(fp="u", store=store, id="help")

    async def stop_at_finish() -> None:
        async with chat.ask("Hi") as reply:
            await put(store, b"{}")
            async for event in reply:
                if isinstance(event, Finish):
                    break

    with pytest.raises(StoreConflictError):
        await stop_at_finish()
    assert chat.messages == ()
    assert not chat.busy


async def test_loading_while_another_object_has_its_turn(service, session, store):
    """load() is refused only during a turn of the same object."""
    one, two = (session.conversation(fp="u", store=store, id="help") for _ in range(2))
    await one.ask("How do I install it?")
    async with one.ask("And then?") as reply:
        await anext(reply)
        assert len((await two.load()).messages) == 2
        with pytest.raises(StateError, match="busy"):
            await one.load()


async def test_the_system_message_is_stored(service, session, store):
    """The system message of the code replaces the stored one; the same words keep their id."""
    first = session.conversation(fp="u", store=store, id="help", system="Be brief.")
    await first.ask("Hi")
    for system, expected in ((None, "Be brief."), ("Be brief.", "Be brief."), ("Be long.", "Be long.")):
        chat = await session.conversation(fp="u", store=store, id="help", system=system).load()
        assert chat.system.text == expected
        assert (chat.system.id == first.system.id) == (expected == "Be brief.")


async def test_without_a_store_there_is_nothing_to_load(session):
    """load(), save() and delete() say so; with a store, fork() needs what it has."""
    chat = session.conversation()
    for step in (chat.load, chat.save, chat.delete):
        with pytest.raises(StateError, match="no store"):
            await step()
    with pytest.raises(StateError, match="load"):
        session.conversation(fp="u", store=MemoryStore(), id="help").fork()


HELP = ConversationKeys("u", "help")


async def put(store, head: bytes, *turns: bytes) -> None:
    """Write what another process might have written."""
    record = (await store.read([HELP.head])).records.get(HELP.head)
    changes = {HELP.head: head, **{HELP.turn(number): turn for number, turn in enumerate(turns)}}
    assert await store.write(changes, expected={HELP.head: record and record.version}, version=new_version())


KEY = '"thread": {"threadId": "t", "threadKey": "thread_key_test_k1L2m3N4o5P6"}'
READABLE = '{"version": 1, "turns": 1, ' + KEY + "}"


@pytest.mark.parametrize(
    ("head", "turn", "problem"),
    [
        ('{"version": 99, ' + KEY + "}", None, "has format version 99, and .* reads 1"),
        ("{" + KEY + "}", None, "has no format version"),
        ("", None, "has no format version"),
        ("[]", None, "has no format version"),
        ("[" * 100_000, None, "has no format version"),
        ('{"version": 1, ' + KEY + "}", None, "cannot be read"),
        ('{"version": 1, "turns": 0, "system": 7, ' + KEY + "}", None, "cannot be read"),
        (READABLE, "", "cannot be read"),
        (READABLE, "{}", "cannot be read"),
        (READABLE, '[{"role": 7}]', "cannot be read"),
        (READABLE, "[" * 100_000, "cannot be read"),
    ],
)
async def test_what_is_no_conversation_in_the_store(service, session, head, turn, problem):
    """Unreadable stored data is an error that says what to do, before anything is sent; the turn is freed."""
    store = MemoryStore()
    await put(store, head.encode(), *([turn.encode()] if turn is not None else []))
    chat = session.conversation(fp="u", store=store, id="help")
    for _ in range(2):
        with pytest.raises(StateError, match=f"'help' in <MemoryStore.*{problem}") as caught:
            await chat.ask("Hi")
        assert "`await chat.delete()`" in str(caught.value)
    assert not service.requests
    assert not chat.busy
    assert await chat.delete()
    await chat.ask("Hi")


class Broken(MemoryStore):
    """A store that cannot save."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def write(self, *args, **options) -> bool:
        raise self.error


@pytest.mark.parametrize("error", [OSError("the disk is full"), StateError("the file is locked")])
async def test_the_error_of_a_store_has_the_answer(service, session, error):
    """With `await chat.ask()` there is no reply to read the answer from: the error has it."""
    chat = session.conversation(fp="u", store=Broken(error), id="help")
    reply = chat.ask("How do I install it?")
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            await reply
    answer = caught.value.answer
    assert answer.text == reply.text
    assert (chat.messages, chat.busy) == ((), False)
    assert "pip install" in answer.text
    assert answer.thread_id == "thread_1"
    if isinstance(error, StateError):
        assert pickle.loads(pickle.dumps(error)).answer.message == answer.message
    assert chat.unanswered is not None


class Slow(MemoryStore):
    """A store whose saving takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.saving = asyncio.Event()
        self.go = asyncio.Event()

    async def write(self, *args, **options) -> bool:
        self.saving.set()
        await self.go.wait()
        return await super().write(*args, **options)


async def test_cancelled_while_saving(service, session):
    """A save that is cancelled still finishes: store and conversation agree, and no event is lost."""
    store = Slow()
    chat = session.conversation(fp="u", store=store, id="help")
    reply = chat.ask("Hi")
    seen = []
    task = asyncio.create_task(read(reply, seen))
    await store.saving.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(chat.messages) == 2
    assert len((await session.conversation(fp="u", store=store, id="help").load()).messages) == 2
    await read(reply, seen)
    assert isinstance(seen[-1], Finish)
    assert not chat.busy


async def ask_in_a_block(chat):
    async with chat.ask("Hi") as reply:
        async for _ in reply:
            pass


WAYS = {
    "await": lambda chat: chat.ask("Hi").run(),
    "block": ask_in_a_block,
    "step": lambda chat: read(chat.ask("Hi"), []),
    "undo": lambda chat: chat.undo(),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_save_does_not_wait_for_a_stuck_store(service, session, way):
    """The save of a cancelled task is itself cancelled; the turn is rolled back, and the next one runs."""
    store = Slow()
    store.go.set()
    chat = session.conversation(fp="u", store=store, id="help")
    if way == "undo":
        await chat.ask("Before")
    store.go.clear()
    store.saving.clear()
    before = chat.messages
    task = asyncio.create_task(WAYS[way](chat))
    await store.saving.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    store.go.set()  # a task that still waits ends with the test
    assert task.cancelled()
    assert chat.messages == before
    del task
    await chat.ask("How do I install it?")
    assert len(chat.messages) == len(before) + 2


async def test_a_stored_conversation_has_an_owner(session):
    """With an id of one's own and no user, all users would share it."""
    with pytest.raises(ConfigurationError, match="all users would share it") as caught:
        session.conversation(store=MemoryStore(), id="support")
    assert caught.value.field == "owner"
    session.conversation(store=MemoryStore())
    session.conversation(store=MemoryStore(), id="support", owner="anonymous")


async def test_a_step_that_was_cancelled_saves_again_when_the_reply_goes_on(service, session):
    """The save that was given up is made again at the end of the reply."""
    store = Slow()
    chat = session.conversation(fp="u", store=store, id="help")
    reply, seen = chat.ask("Hi"), []
    task = asyncio.create_task(read(reply, seen))
    await store.saving.wait()
    task.cancel()
    await asyncio.wait({task})
    store.go.set()
    assert chat.messages == ()
    await read(reply, seen)
    assert isinstance(seen[-1], Finish)
    assert len((await session.conversation(fp="u", store=store, id="help").load()).messages) == 2


async def test_undo_forget_and_delete_reach_the_store(service, session, store):
    """The thread goes, because it has what was taken back; and nothing else is deleted."""
    options = {"fp": "u", "store": store, "id": "help"}
    chat = session.conversation(**options)
    await chat.ask("How do I install it?")
    await chat.ask("And then?")
    await chat.undo()
    again = await session.conversation(**options).load()
    assert (len(again.messages), again.thread) == (2, None)
    await chat.ask("And on a Mac?")
    chat.forget_thread()
    await chat.save()
    assert (await session.conversation(**options).load()).thread is None
    await chat.fork(id="other").ask("And on Linux?")
    assert await chat.delete()
    assert chat.messages == ()
    assert await Conversation.ids(store, owner="u") == ["other"]
