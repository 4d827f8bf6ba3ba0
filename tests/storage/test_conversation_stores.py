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
    StoredTurn,
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


def turn(number: int, data: str = "[]") -> StoredTurn:
    return StoredTurn(number=number, data=data)


async def put(
    store: ConversationStore,
    head: str,
    *turns: StoredTurn,
    id: str = "chat",
    owner: str = "ada",
    revision: int = 0,
    keep: range = range(0),
) -> int:
    return await store.save(id, head, turns, owner=owner, revision=revision, keep=keep)


async def test_what_is_saved_is_loaded(store):
    """The texts come back whole, with the revision that save gave."""
    text = '{"text": "\\ud83d caf\\u00e9", "long": "' + "x" * 300_000 + '"}'
    revision = await put(store, text, turn(0, text), turn(2))
    assert await store.load("chat", owner="ada") == StoredConversation(
        head=text, turns=(turn(0, text), turn(2)), complete=True, revision=revision
    )


async def test_nothing_there_is_none(store):
    """An id that was never saved is no error."""
    assert await store.load("chat", owner="ada") is None
    assert await store.ids(owner="ada") == []
    assert not await store.delete("chat", owner="ada")


async def test_turns_are_added_and_dropped(store):
    """A step replaces the head, adds turns at the end, and drops those at either end that are not kept."""

    async def held() -> tuple[str, list[int]]:
        found = await store.load("chat", owner="ada")
        assert [one.data for one in found.turns] == [f"[{one.number}]" for one in found.turns]
        return found.head, [one.number for one in found.turns]

    def some(*numbers: int) -> list[StoredTurn]:
        return [turn(number, f"[{number}]") for number in numbers]

    revision = await put(store, "new", *some(0, 2, 5))
    for head, new, keep, expected in [
        ("appended", some(9, 11), range(9), [0, 2, 5, 9, 11]),
        ("the same", [], range(12), [0, 2, 5, 9, 11]),
        ("replaced", some(11, 13), range(11), [0, 2, 5, 9, 11, 13]),
        ("taken back", [], range(13), [0, 2, 5, 9, 11]),
        ("bounded", some(13), range(4, 13), [5, 9, 11, 13]),
        ("one left", some(15), range(14, 15), [15]),
        ("whole", some(20, 100, 1000), range(0), [20, 100, 1000]),  # sorted as numbers
        ("emptied", [], range(3, 1), []),
    ]:
        revision = await put(store, head, *new, revision=revision, keep=keep)
        assert await held() == (head, expected)


async def test_the_newest_turns_are_loaded(store):
    """Only as many as are asked for, and whether there are more."""
    revision = await put(store, "head", *(turn(number) for number in range(0, 22, 2)))
    for last, expected in [(0, []), (1, [20]), (3, [16, 18, 20]), (11, [*range(0, 22, 2)]), (12, None)]:
        found = await store.load("chat", owner="ada", last=last)
        numbers = [one.number for one in found.turns]
        assert numbers == (expected if expected is not None else [*range(0, 22, 2)])
        assert found.complete == (len(numbers) == 11)
        assert (found.head, found.revision) == ("head", revision)
    await put(store, "head", revision=revision)
    found = await store.load("chat", owner="ada", last=0)
    assert found.complete
    assert found.turns == ()


async def test_a_deleted_one_leaves_no_turns(store):
    """Who begins anew begins with nothing."""
    await put(store, "head", turn(0), turn(2))
    await store.delete("chat", owner="ada")
    await put(store, "anew", keep=range(100))
    assert (await store.load("chat", owner="ada")).turns == ()


async def test_a_refused_step_changes_nothing(store):
    """Neither the head nor a turn."""
    revision = await put(store, "head", turn(0), turn(2))
    before = await store.load("chat", owner="ada")
    for wrong in (0, revision + 1):
        with pytest.raises(StoreConflictError):
            await put(store, "late", turn(4), revision=wrong, keep=range(2, 4))
    assert await store.load("chat", owner="ada") == before


async def test_each_save_makes_a_new_revision(store):
    """Only the newest revision can be written over."""
    first = await put(store, "1")
    second = await put(store, "2", revision=first)
    assert second != first
    with pytest.raises(StoreConflictError, match="'chat' was changed"):
        await put(store, "late", revision=first)
    loaded = await store.load("chat", owner="ada")
    assert loaded is not None
    assert (loaded.head, loaded.revision) == ("2", second)


async def test_a_new_one_does_not_write_over_another(store):
    """Two who begin the same conversation: the second is told."""
    await put(store, "first")
    with pytest.raises(StoreConflictError):
        await put(store, "second")


async def test_a_deleted_one_is_not_written_again(store):
    """Who still has it learns that it is gone, also when it was begun anew since."""
    revision = await put(store, "1")
    assert await store.delete("chat", owner="ada")
    with pytest.raises(StoreConflictError):
        await put(store, "2", revision=revision)
    await put(store, "anew")
    with pytest.raises(StoreConflictError):
        await put(store, "2", revision=revision)


async def test_owners_are_apart(store):
    """The same id under two owners is two conversations; neither sees the other's."""
    revision = await put(store, "ada's", turn(0, "ada's"))
    assert await store.load("chat", owner="bob") is None
    with pytest.raises(StoreConflictError):
        await put(store, "bob's", owner="bob", revision=revision)
    assert not await store.delete("chat", owner="bob")
    await put(store, "bob's", turn(0, "bob's"), owner="bob")
    loaded = await store.load("chat", owner="ada")
    assert loaded is not None
    assert (loaded.head, loaded.turns) == ("ada's", (turn(0, "ada's"),))


async def test_ids_are_listed_by_owner(store):
    """In order of their names, another owner's left out."""
    for owner, id in (("ada", "b"), ("ada", "a"), ("bob", "c"), ("ad", "d")):
        await put(store, "", id=id, owner=owner)
    assert await store.ids(owner="ada") == ["a", "b"]


async def test_odd_names_stay_apart(store):
    """No character of a name means anything to a store."""
    names = ["a/b", "a%2Fb", "a:b", "A/B", "'; DROP TABLE conversations; --", "é", "e\u0301", "a b", "*"]
    for name in names:
        await put(store, f"of {name}", id=name, owner=name)
    for name in names:
        loaded = await store.load(name, owner=name)
        assert loaded is not None
        assert loaded.head == f"of {name}"
        assert await store.ids(owner=name) == [name]


async def test_of_many_writers_one_wins_each_round(store):
    """Tasks that add a turn at once to the same revision: one goes through, the others are told."""
    revision = await put(store, "0")
    for round in range(5):
        results = await asyncio.gather(
            *(
                put(store, f"{round}.{n}", turn(round, str(n)), revision=revision, keep=range(round))
                for n in range(8)
            ),
            return_exceptions=True,
        )
        won = [n for n, result in enumerate(results) if isinstance(result, int)]
        assert len(won) == 1
        assert sum(isinstance(result, StoreConflictError) for result in results) == 7
        revision = results[won[0]]
        loaded = await store.load("chat", owner="ada")
        assert loaded is not None
        assert (loaded.head, len(loaded.turns)) == (f"{round}.{won[0]}", round + 1)
        assert loaded.turns[-1].data == str(won[0])


async def test_loops_in_other_threads_may_share_it(store):
    """A store belongs to no loop."""
    revision = await put(store, "0")
    won: list[int] = []

    def work() -> None:
        with contextlib.suppress(StoreConflictError):
            won.append(asyncio.run(put(store, "1", revision=revision)))

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
        await put(store, "", revision=revision)
    assert caught.value.field == "revision"


def test_the_repr_shows_no_text():
    """The head holds the thread's key, the turns what people said."""
    stored = StoredConversation(head="secret", turns=(turn(2, "secret"),), revision=7)
    assert "secret" not in repr(stored)
    assert "number=2" in repr(stored)


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
    store = SQLiteConversationStore(path)
    asyncio.run(store.save("chat", "1", [], owner="ada", revision=revision, keep=range(0)))
    print("won")
except StoreConflictError:
    print("conflict")
"""


async def test_of_two_processes_one_wins(tmp_path):
    """Processes that write at once from the same revision: one goes through."""
    path = str(tmp_path / "chats.sqlite")
    revision = await put(SQLiteConversationStore(path), "0")
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
    await put(SQLiteConversationStore(path), "")
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
    await put(store, "")
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
        await put(store, "1")
    await store.close()
    assert await store.ids(owner="ada") == ["chat"]
