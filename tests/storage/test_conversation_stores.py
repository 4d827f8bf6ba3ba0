"""Every conversation store keeps the same promises; the set runs on each of them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
import sys
import threading
from collections.abc import AsyncIterator

import pytest

from mintlify_async.contrib.redis import RedisConversationStore
from mintlify_async.errors import ConfigurationError, StateError, StoreConflictError
from mintlify_async.storage import (
    ConversationStore,
    MemoryConversationStore,
    SQLiteConversationStore,
    StoredConversation,
    check_name,
)


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path) -> AsyncIterator[ConversationStore]:
    if request.param == "memory":
        yield MemoryConversationStore()
    elif request.param == "sqlite":
        yield SQLiteConversationStore(tmp_path / "chats.sqlite")
    else:
        async with request.getfixturevalue("redis_server").client() as client:
            yield RedisConversationStore(client, timeout=10)


async def test_what_is_saved_is_loaded(store):
    """A text comes back whole, with the revision that save gave."""
    text = '{"text": "\\ud83d caf\\u00e9", "long": "' + "x" * 300_000 + '"}'
    revision = await store.save("chat", text, owner="ada", revision=0)
    assert await store.load("chat", owner="ada") == StoredConversation(data=text, revision=revision)


async def test_nothing_there_is_none(store):
    """An id that was never saved is no error."""
    assert await store.load("chat", owner="ada") is None
    assert await store.ids(owner="ada") == []
    assert not await store.delete("chat", owner="ada")


async def test_each_save_makes_a_new_revision(store):
    """Only the newest revision can be written over."""
    first = await store.save("chat", "1", owner="ada", revision=0)
    second = await store.save("chat", "2", owner="ada", revision=first)
    assert second != first
    with pytest.raises(StoreConflictError, match="'chat' was changed"):
        await store.save("chat", "late", owner="ada", revision=first)
    loaded = await store.load("chat", owner="ada")
    assert loaded is not None
    assert (loaded.data, loaded.revision) == ("2", second)


async def test_a_new_one_does_not_write_over_another(store):
    """Two who begin the same conversation: the second is told."""
    await store.save("chat", "first", owner="ada", revision=0)
    with pytest.raises(StoreConflictError):
        await store.save("chat", "second", owner="ada", revision=0)


async def test_a_deleted_one_is_not_written_again(store):
    """Who still has it learns that it is gone, also when it was begun anew since."""
    revision = await store.save("chat", "1", owner="ada", revision=0)
    assert await store.delete("chat", owner="ada")
    with pytest.raises(StoreConflictError):
        await store.save("chat", "2", owner="ada", revision=revision)
    await store.save("chat", "anew", owner="ada", revision=0)
    with pytest.raises(StoreConflictError):
        await store.save("chat", "2", owner="ada", revision=revision)


async def test_owners_are_apart(store):
    """The same id under two owners is two conversations; neither sees the other's."""
    revision = await store.save("chat", "ada's", owner="ada", revision=0)
    assert await store.load("chat", owner="bob") is None
    with pytest.raises(StoreConflictError):
        await store.save("chat", "bob's", owner="bob", revision=revision)
    assert not await store.delete("chat", owner="bob")
    await store.save("chat", "bob's", owner="bob", revision=0)
    loaded = await store.load("chat", owner="ada")
    assert loaded is not None
    assert loaded.data == "ada's"


async def test_ids_are_listed_by_owner(store):
    """In order of their names, another owner's left out."""
    for owner, id in (("ada", "b"), ("ada", "a"), ("bob", "c"), ("ad", "d")):
        await store.save(id, "", owner=owner, revision=0)
    assert await store.ids(owner="ada") == ["a", "b"]


async def test_odd_names_stay_apart(store):
    """No character of a name means anything to a store."""
    names = ["a/b", "a%2Fb", "a:b", "A/B", "'; DROP TABLE conversations; --", "é", "e\u0301", "a b", "*"]
    for name in names:
        await store.save(name, f"of {name}", owner=name, revision=0)
    for name in names:
        loaded = await store.load(name, owner=name)
        assert loaded is not None
        assert loaded.data == f"of {name}"
        assert await store.ids(owner=name) == [name]


async def test_of_many_writers_one_wins_each_round(store):
    """Tasks that write at once from the same revision: one goes through, the others are told."""
    revision = await store.save("chat", "0", owner="ada", revision=0)
    for turn in range(5):
        results = await asyncio.gather(
            *(store.save("chat", f"{turn}.{n}", owner="ada", revision=revision) for n in range(8)),
            return_exceptions=True,
        )
        won = [result for result in results if isinstance(result, int)]
        assert len(won) == 1
        assert sum(isinstance(result, StoreConflictError) for result in results) == 7
        revision = won[0]


async def test_loops_in_other_threads_may_share_it(store):
    """A store belongs to no loop."""
    revision = await store.save("chat", "0", owner="ada", revision=0)
    won: list[int] = []

    def work() -> None:
        with contextlib.suppress(StoreConflictError):
            won.append(asyncio.run(store.save("chat", "1", owner="ada", revision=revision)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(won) == 1


@pytest.mark.parametrize("revision", [-1, True, "1", None])
async def test_a_revision_is_a_number(store, revision):
    """What is no revision is refused before anything is written."""
    with pytest.raises(ConfigurationError, match="revision") as caught:
        await store.save("chat", "", owner="ada", revision=revision)
    assert caught.value.field == "revision"


def test_the_repr_shows_no_text():
    """The text holds the thread's key."""
    assert "secret" not in repr(StoredConversation(data="secret", revision=7))


@pytest.mark.parametrize("name", ["", "  ", None, 7, "a\0b", "\ud800", "x" * 201])
def test_bad_names_are_refused(name):
    """An id that some store would not keep is refused for all."""
    with pytest.raises(ConfigurationError) as caught:
        check_name(name, "id")
    assert caught.value.field == "id"


# SQLite alone ---------------------------------------------------------------------------------


SAVE_ONCE_TOLD = """
import asyncio, sys
from mintlify_async.errors import StoreConflictError
from mintlify_async.storage import SQLiteConversationStore
path, revision = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    asyncio.run(SQLiteConversationStore(path).save("chat", "1", owner="ada", revision=revision))
    print("won")
except StoreConflictError:
    print("conflict")
"""


async def test_of_two_processes_one_wins(tmp_path):
    """Processes that write at once from the same revision: one goes through."""
    path = str(tmp_path / "chats.sqlite")
    revision = await SQLiteConversationStore(path).save("chat", "0", owner="ada", revision=0)
    pipe = asyncio.subprocess.PIPE
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", SAVE_ONCE_TOLD, path, str(revision), stdin=pipe, stdout=pipe
        )
        for _ in range(2)
    ]
    for child in children:
        assert await child.stdout.readline() == b"ready\n"
    outcomes = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
    assert sorted(out for out, _ in outcomes) == [b"conflict\n", b"won\n"]


async def test_the_file_is_private(tmp_path):
    """It holds keys: no other user may read a file that the store has made."""
    path = tmp_path / "chats.sqlite"
    await SQLiteConversationStore(path).save("chat", "", owner="ada", revision=0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_that_cannot_be_used_is_told(tmp_path):
    """A folder that is not there, and a file that is no database."""
    with pytest.raises(StateError, match="cannot be used"):
        await SQLiteConversationStore(tmp_path / "none" / "chats.sqlite").load("chat", owner="ada")
    (tmp_path / "text").write_text("not a database, though it is long enough to be one" * 50)
    with pytest.raises(StateError, match="not a database"):
        await SQLiteConversationStore(tmp_path / "text").load("chat", owner="ada")


async def test_a_locked_file_ends_in_an_error(tmp_path, monkeypatch):
    """A process that never lets go does not hang the others."""
    monkeypatch.setattr("mintlify_async.storage.sqlite.BUSY_SECONDS", 0.05)
    path = tmp_path / "chats.sqlite"
    store = SQLiteConversationStore(path)
    await store.save("chat", "", owner="ada", revision=0)
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateError, match="locked"):
            await store.load("chat", owner="ada")
    finally:
        other.close()


@pytest.mark.parametrize("path", ["", ":memory:", None, 7])
def test_a_path_names_a_file(path):
    """In memory there is another store."""
    with pytest.raises(ConfigurationError, match="MemoryConversationStore"):
        SQLiteConversationStore(path)


async def test_a_store_can_be_closed(store):
    """By both names, as often as one likes; what was saved stays."""
    async with contextlib.aclosing(store):
        await store.save("chat", "1", owner="ada", revision=0)
    await store.close()
    assert await store.ids(owner="ada") == ["chat"]
