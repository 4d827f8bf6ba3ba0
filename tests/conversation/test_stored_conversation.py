"""Conversations that are kept in a store: owners, conflicts, failures."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sqlite3

import anyio
import pytest

from mintlify_async import Conversation, MemoryStore, SQLiteStore
from mintlify_async.conversation.records import ConversationKeys
from mintlify_async.errors import ConfigurationError, StateError, StoreConflictError
from mintlify_async.events import Finish
from mintlify_async.storage.store import new_version
from tests.support.conversation_kit import answer, questions, sent
from tests.support.job_fakes import machine


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
        self.writes = 0

    async def write(self, *args, **options) -> bool:
        self.writes += 1
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
async def test_a_cancelled_save_does_not_wait_for_a_stuck_store(service, session, clock, way):
    """The cancelled task leaves after 0.25 s. The save goes on, and the next turn waits for it."""
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
    began = clock.now()
    await asyncio.wait({task}, timeout=5)
    took = clock.now() - began
    del task  # its reply
    next_turn = asyncio.create_task(chat.ask("How do I install it?").run())
    await asyncio.sleep(1.0)
    assert took == pytest.approx(0.25)
    assert chat.messages == before
    assert len(service.requests) == 1
    store.go.set()
    await next_turn
    saved = [] if way == "undo" else ["Hi"]
    assert questions(chat) == [*saved, "How do I install it?"]
    again = await session.conversation(fp="u", store=store, id="help").load()
    assert again.messages == chat.messages


async def test_a_stored_conversation_has_an_owner(session):
    """With an id of one's own and no user, all users would share it."""
    with pytest.raises(ConfigurationError, match="all users would share it") as caught:
        session.conversation(store=MemoryStore(), id="support")
    assert caught.value.field == "owner"
    session.conversation(store=MemoryStore())
    session.conversation(store=MemoryStore(), id="support", owner="anonymous")


async def test_a_step_after_a_cancelled_one_waits_for_the_same_save(service, session):
    """However often a step is cancelled, there is one save."""
    store = Slow()
    chat = session.conversation(fp="u", store=store, id="help")
    reply, seen = chat.ask("Hi"), []
    for _ in range(3):
        task = asyncio.create_task(read(reply, seen))
        await store.saving.wait()
        task.cancel()
        await asyncio.wait({task})
    assert chat.messages == ()
    store.go.set()
    await read(reply, seen)
    assert isinstance(seen[-1], Finish)
    assert store.writes == 1
    assert len((await session.conversation(fp="u", store=store, id="help").load()).messages) == 2


class Delayed(MemoryStore):
    """A store whose saving takes *seconds*."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def write(self, *args, **options) -> bool:
        await asyncio.sleep(self.seconds)
        return await super().write(*args, **options)


async def test_a_pause_of_the_edits_does_not_cut_the_save(service, session):
    """A turn that was shown with the defaults of ``edits`` is stored, however slow the store is once."""
    store = Delayed(9.0)
    chat = session.conversation(fp="u", store=store, id="help")
    async with chat.ask("Hi") as reply:
        shown = [edit.text async for edit in reply.edits()]
    assert shown
    again = await session.conversation(fp="u", store=store, id="help").load()
    assert questions(again) == ["Hi"]


async def test_closing_the_session_gives_a_save_up_after_five_seconds(service, session, clock, caplog):
    """An error in the log names the conversation, and the next turn gets an error."""
    chat = session.conversation(fp="u", store=Delayed(60.0), id="help")
    task = asyncio.create_task(ask_in_a_block(chat))
    await asyncio.sleep(1.0)
    task.cancel()
    await asyncio.wait({task})
    began = clock.now()
    await session.close()
    await asyncio.sleep(0)
    assert clock.now() - began == pytest.approx(5.0)
    assert caplog.messages[-1].startswith("conversation 'help' was not saved")
    with pytest.raises(StateError, match="was not saved: its session"):
        await chat.save()


@pytest.mark.parametrize("step", ["close", "aclosing"])
async def test_a_clean_up_of_a_cancelled_task_does_not_wait_for_a_stuck_store(session, clock, step):
    """``close()`` in a ``finally`` leaves after 0.25 s as the end of a block does."""
    chat = session.conversation(fp="u", store=Delayed(4.0), id="help")

    async def ask() -> None:
        reply = chat.ask("Hi")
        if step == "aclosing":
            async with contextlib.aclosing(reply.text_stream) as texts:
                async for _ in texts:
                    pass
        try:
            async for _ in reply:
                pass
        finally:
            await reply.close()

    task = asyncio.create_task(ask())
    await asyncio.sleep(1.0)
    task.cancel()
    began = clock.now()
    await asyncio.wait({task})
    assert task.cancelled()
    assert clock.now() - began == pytest.approx(0.25)
    del task
    await chat.ask("And then?")
    assert questions(chat) == ["Hi", "And then?"]


@pytest.mark.parametrize("commit", ["finish", "partial"])
async def test_a_block_in_a_cancelled_scope_of_anyio_leaves_as_fast(service, session, clock, commit):
    """Such a scope, which web servers use, cancels every await again. The save goes on."""
    if commit == "partial":
        service.script.ask(events=[*answer("Half")[:-2], 100.0])
    chat = session.conversation(fp="u", store=Delayed(4.0), id="help", commit=commit)
    began = clock.now()
    with anyio.move_on_after(1.0) as scope:
        await ask_in_a_block(chat)
    assert scope.cancelled_caught
    assert clock.now() - began == pytest.approx(1.25)
    await chat.ask("And then?")
    assert questions(chat) == ["Hi", "And then?"]


@pytest.mark.parametrize("expired", ["a turn", "all", "all, and it began again"])
async def test_delete_reaches_what_has_expired_in_a_file(service, session, tmp_path, expired):
    """A SQLite file keeps expired records, which nobody can read. Who deletes a user's data deletes them."""
    path, days = tmp_path / "chats.sqlite", 86_400.0
    store = SQLiteStore(path, keep=10 * days)
    chats = [session.conversation(fp="u", store=store, id=id) for id in ("help", "help2")]
    for chat in chats:
        await chat.ask("My secret")
        await chat.ask("And then?")
    with machine(ahead=(6 if expired == "a turn" else 11) * days):
        chat = session.conversation(fp="u", store=store, id="help")
        if expired != "all":
            await chat.ask("Now?")
        with machine(ahead=5 * days if expired == "a turn" else 0.0):
            assert await chat.delete() is (expired != "all")
            with contextlib.closing(sqlite3.connect(path)) as db:
                keys = [key for (key,) in db.execute("SELECT key FROM records ORDER BY key")]
    others = ConversationKeys("u", "help2")
    assert keys == [others.head, others.turn(0), others.turn(1)]


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
