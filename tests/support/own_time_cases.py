"""Cases of a store that takes its time from this process, and one that counts in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from mintlify_async.runtime import clock
from mintlify_async.storage.store import Store, change
from mintlify_async.testing.store_cases import A, StoreCases, count, put, values
from mintlify_async.testing.virtual_clock import virtual_time


async def count_in_threads(*stores: Store, times: int = 20) -> None:
    """Let four loops in threads count with each of *stores*, which are one place."""

    async def run(store: Store) -> None:
        for _ in range(times):
            await change(store, [A], count)

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, run(store)) for store in 4 * stores))
    assert await values(stores[0], A) == {A: b"%d" % (4 * len(stores) * times)}


class OwnTimeCases(StoreCases):
    """The cases of every store, in virtual time."""

    @pytest.fixture
    async def own_time(self) -> AsyncIterator[None]:
        """Virtual time. uvloop has none."""
        if os.environ.get("MINTLIFY_ASYNC_LOOP") == "uvloop":
            yield
            return
        with virtual_time():
            yield

    async def test_a_clock_that_was_ahead_forgets_nothing(self, store: Store):
        """After 300 writes two days ahead, the clock is corrected. A key of a minute ago is still found."""
        await put(store, A, keep=86_400)
        ahead = clock.now() + 2 * 86_400
        with clock.read_from(lambda: ahead):
            for number in range(300):
                await store.write({f"room/done/{number}": b""}, expected={}, version="v", keep=86_400)
        assert await values(store, A) == {A: b"1"}
