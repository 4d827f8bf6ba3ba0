"""MemoryStore: the shared cases, threads, and arguments."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

from mintlify_async.errors import ConfigurationError
from mintlify_async.storage import MemoryStore, Snapshot, Store
from mintlify_async.storage.store import change, check_store
from tests.storage.store_cases import A, StoreCases, put, values


class TestMemoryStore(StoreCases):
    """The cases of every store."""

    @pytest.fixture
    def store(self, own_time: None) -> Store:
        return MemoryStore()


def test_loops_in_threads_share_it():
    """Four loops add a hundred each."""
    store = MemoryStore()

    def more(snapshot: Snapshot) -> tuple[Mapping[str, bytes | None], None]:
        number = int(snapshot.records[A].value) if A in snapshot.records else 0
        return {A: b"%d" % (number + 1)}, None

    async def run() -> None:
        for _ in range(100):
            await change(store, [A], more)

    threads = [threading.Thread(target=asyncio.run, args=[run()]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(values(store, A)) == {A: b"400"}


async def test_expired_records_leave_the_memory():
    """A year of claims does not stay."""
    store = MemoryStore(keep=1)
    for number in range(1_000):
        await store.write({f"room/done/{number}": b""}, expected={}, version="v", keep=1e-9)
    await put(store, A)
    assert repr(store) == "<MemoryStore, 1 records>"


@pytest.mark.parametrize("keep", [-1, float("inf"), float("nan"), True, "1"])
def test_keep_is_a_number_of_seconds(keep: float):
    """None keeps for good; a month as text does not."""
    with pytest.raises(ConfigurationError, match="keep"):
        MemoryStore(keep=keep)


@pytest.mark.parametrize("store", ["jobs.sqlite", MemoryStore, None, 5])
def test_what_is_no_store(store: object):
    """People pass a path, or the class."""
    with pytest.raises(ConfigurationError, match=r"ledger must be a store such as SQLiteStore\("):
        check_store(store, "ledger")
