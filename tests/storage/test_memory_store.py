"""MemoryStore: the shared cases, threads, and arguments."""

from __future__ import annotations

import pytest

from mintlify_async.argument_checks import check_store
from mintlify_async.errors import ConfigurationError
from mintlify_async.storage import MemoryStore, Store
from mintlify_async.testing.store_cases import A, put
from tests.support.own_time_cases import OwnTimeCases, count_in_threads


class TestMemoryStore(OwnTimeCases):
    """The cases of every store."""

    @pytest.fixture
    def store(self, own_time: None) -> Store:
        return MemoryStore()


async def test_loops_in_threads_share_it():
    """Threads may share it, because it has a lock."""
    await count_in_threads(MemoryStore(), times=500)


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


@pytest.mark.parametrize("store", ["jobs.sqlite", MemoryStore, 5])
def test_what_is_no_store(store: object):
    """People pass a path, or the class."""
    with pytest.raises(ConfigurationError, match=r"ledger must be a store such as SQLiteStore\("):
        check_store(store, "ledger")
