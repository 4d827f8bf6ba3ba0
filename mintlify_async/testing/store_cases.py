"""The tests that every store must pass, for your own store.

A test class inherits them and has a fixture ``store``, whose store contains no records. The tests need
pytest, and pytest-asyncio with ``asyncio_mode = "auto"``::

    class TestMyStore(StoreCases):
        @pytest.fixture
        async def store(self):
            return MyStore(...)

:class:`WireCases` is for a store on a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import pytest

from mintlify_async.errors import StateError
from mintlify_async.storage.store import Snapshot, Store, Window, change, new_version

from .held_wire import HeldWire

A, B, C = "room/open/a", "room/open/b", "room/done/c"
BLOCK = "room/blocks/all"


async def put(store: Store, key: str, value: bytes = b"1", *, keep: float | None = None) -> str:
    """Write a record without a condition, and return its version."""
    version = new_version()
    assert await store.write({key: value}, expected={}, version=version, keep=keep)
    return version


async def values(store: Store, *keys: str) -> dict[str, bytes]:
    """Return the values of the existing records of *keys*."""
    return {key: record.value for key, record in (await store.read(keys)).records.items()}


def windows(**limits: tuple[int, float]) -> list[Window]:
    """Return a limit for each name, with its amount and its seconds."""
    return [Window(key=f"room/slots/{name}", amount=n, seconds=s) for name, (n, s) in limits.items()]


def count(snapshot: Snapshot) -> tuple[Mapping[str, bytes | None], None]:
    """Add one to a record."""
    number = int(snapshot.records[A].value) if A in snapshot.records else 0
    return {A: b"%d" % (number + 1)}, None


def add(letter: int, snapshot: Snapshot) -> tuple[Mapping[str, bytes | None], None]:
    """Add *letter* to a record that lacks it. A rule must accept its own result."""
    written = snapshot.records[A].value if A in snapshot.records else b""
    return ({} if letter in written else {A: written + bytes([letter])}), None


class StoreCases:
    """The promises of :class:`mintlify_async.storage.Store`."""

    async def test_a_record_is_read_as_it_was_written(self, store: Store) -> None:
        """Any bytes are kept. The version comes from the writer, and the time from the store."""
        value = bytes(range(256))
        early = (await store.read([A])).now
        assert await store.write({A: value}, expected={A: None}, version="v1")
        snapshot = await store.read([A, B])
        record = snapshot.records[A]
        assert list(snapshot.records) == [A]
        assert (record.value, record.version) == (value, "v1")
        assert early <= record.since <= snapshot.now

    async def test_a_repr_has_no_value(self, store: Store) -> None:
        """Values may be keys of threads."""
        await put(store, A, b"secret")
        assert "secret" not in repr(await store.read([A])) + repr(store)

    async def test_all_or_nothing(self, store: Store) -> None:
        """If one record has another version, no record is changed."""
        await store.write({A: b"1"}, expected={}, version="v1")
        assert not await store.write({A: None, B: b"2"}, expected={A: "v1", B: "v0"}, version="v2")
        assert await values(store, A, B) == {A: b"1"}
        assert await store.write({A: None, B: b"2"}, expected={A: "v1", B: None}, version="v2")
        assert await values(store, A, B) == {B: b"2"}

    async def test_expected_without_change(self, store: Store) -> None:
        """A write may depend on a record that it does not change."""
        await store.write({A: b"1"}, expected={}, version="v1")
        assert not await store.write({B: b"2"}, expected={A: "v0"}, version="v2")
        assert await store.write({B: b"2"}, expected={A: "v1", C: None}, version="v2")
        assert await values(store, A, B, C) == {A: b"1", B: b"2"}
        assert (await store.read([A])).records[A].version == "v1"

    async def test_a_repeated_write_is_true(self, store: Store) -> None:
        """If the response was lost, the writer writes again, and gets the result of its first write."""
        for _ in range(2):
            assert await store.write({A: b"1", B: b"2"}, expected={A: None, B: None}, version="v1")
        await store.write({B: b"3"}, expected={B: "v1"}, version="v2")
        assert not await store.write({A: b"1", B: b"2"}, expected={A: None, B: None}, version="v1")

    async def test_a_repeated_move_is_true(self, store: Store) -> None:
        """The deleted half of a move needs no version."""
        await store.write({A: b"1"}, expected={A: None}, version="v1")
        for _ in range(2):
            assert await store.write({A: None, C: b"1"}, expected={A: "v1", C: None}, version="v2")

    async def test_keys_of_a_folder(self, store: Store) -> None:
        """``keys(prefix)`` returns only keys that start with the prefix, sorted."""
        odd, capital = "room/open/ü/*[?]\\ {x}", "room/open/Z"
        for key in (B, A, C, "room/opened/d", "room/Open/z", "other/open/e", odd, capital):
            await put(store, key)
        assert await store.keys("room/open/") == sorted([A, B, odd, capital])
        assert await store.keys("room/open/a") == [A]
        assert await store.keys("room/none/") == []
        assert list(await values(store, odd)) == [odd]
        await store.write({A: None, C: None}, expected={}, version="v2")
        assert await store.keys("room/open/") == sorted([B, odd, capital])
        assert await store.keys("room/done/") == []

    async def test_a_record_with_keep_expires(self, store: Store) -> None:
        """An expired record is gone for reading, listing and writing. A record with a longer *keep* stays."""
        await put(store, A, keep=0.01)
        await put(store, B, keep=3600)
        await asyncio.sleep(0.05)
        assert await values(store, A, B) == {B: b"1"}
        assert await store.keys("room/open/") == [B]
        assert await store.write({A: b"2"}, expected={A: None}, version="v2")

    async def test_writing_again_ends_or_renews_the_life(self, store: Store) -> None:
        """The newest *keep* is used, and None means no limit."""
        for key in (A, B):
            await put(store, key, keep=0.05)
        await put(store, A, b"2")
        await put(store, B, b"2", keep=60)
        await asyncio.sleep(0.1)
        assert await store.keys("room/open/") == [A, B]

    async def test_expected_records_live_as_long(self, store: Store) -> None:
        """A conversation's earlier turns do not expire before its newest one."""
        for keep in (0.05, 1.0, 10.0):  # on a busy machine, the record may expire before the write
            version = await put(store, A, keep=keep)
            if await store.write({B: b"2"}, expected={A: version, C: None}, version="v2", keep=3600):
                break
        await asyncio.sleep(2 * keep)
        assert await values(store, A, B) == {A: b"1", B: b"2"}

    async def test_change_by_a_rule(self, store: Store) -> None:
        """Twenty tasks add a letter each. No letter is lost, and none is added twice."""
        letters = bytes(range(65, 85))
        await asyncio.gather(*(change(store, [A], partial(add, letter)) for letter in letters))
        assert bytes(sorted((await values(store, A))[A])) == letters

    async def test_slots_are_counted(self, store: Store) -> None:
        """With a limit of two, the third slot is refused, with the time of the next free slot."""
        hour = windows(a=(2, 3600))
        first = await store.take(hour, slot=new_version(), block=BLOCK)
        assert (first.taken, first.blocked, first.usage[0].used, first.usage[0].opens_in) == (True, 0, 1, 0)
        assert (await store.take(hour, slot=new_version(), block=BLOCK)).taken
        third = await store.take(hour, slot=new_version(), block=BLOCK)
        assert (third.taken, third.usage[0].used) == (False, 2)
        assert 3590 < third.usage[0].opens_in <= 3600

    async def test_a_slot_in_all_windows_or_in_none(self, store: Store) -> None:
        """If one limit refuses, the other limits do not change."""
        both = windows(a=(5, 60), b=(1, 3600))
        assert (await store.take(both, slot=new_version(), block=BLOCK)).taken
        assert not (await store.take(both, slot=new_version(), block=BLOCK)).taken
        look = await store.take(both, slot=None, block=BLOCK)
        assert [usage.used for usage in look.usage] == [1, 1]
        assert look.usage[0].opens_in == 0 < look.usage[1].opens_in

    async def test_a_slot_is_free_again_after_the_window(self, store: Store) -> None:
        """The slot is not free earlier, and not much later."""
        short = windows(a=(1, 0.2))
        assert (await store.take(short, slot=new_version(), block=BLOCK)).taken
        wait = (await store.take(short, slot=new_version(), block=BLOCK)).usage[0].opens_in
        assert 0 < wait < 0.2001
        await asyncio.sleep(wait + 0.01)
        assert (await store.take(short, slot=new_version(), block=BLOCK)).taken

    async def test_no_window_of_any_position_has_more(self, store: Store) -> None:
        """Ten tasks take as many slots as they can for a second. Then each sliding window is checked."""
        loop, takes = asyncio.get_running_loop(), list[tuple[float, float]]()
        limits = windows(a=(5, 0.3), b=(8, 0.6))
        end = loop.time() + 1.2

        async def run() -> None:
            while loop.time() < end or len(takes) < 10:  # on a busy machine, there are few calls in this time
                asked = loop.time()
                result = await store.take(limits, slot=new_version(), block=BLOCK)
                if result.taken:
                    takes.append((loop.time(), asked))
                await asyncio.sleep(0.05)

        await asyncio.gather(*(run() for _ in range(10)))
        takes.sort()
        for amount, seconds in ((5, 0.3), (8, 0.6)):
            for first, (last_answer, _) in enumerate(takes[amount:]):
                first_call = min(asked for _, asked in takes[first : first + amount + 1])
                assert last_answer - first_call > seconds - 0.005  # the clocks differ by milliseconds

    async def test_a_taken_slot_may_be_asked_for_again(self, store: Store) -> None:
        """If the response was lost, the caller repeats the step and takes no second slot."""
        one, slot = windows(a=(1, 60), b=(3, 60)), new_version()
        for _ in range(3):
            result = await store.take(one, slot=slot, block=BLOCK)
            assert (result.taken, [usage.used for usage in result.usage]) == (True, [1, 1])

    async def test_a_refund(self, store: Store) -> None:
        """A refund frees the slot in each window, once. An unknown slot changes nothing."""
        both, slot = windows(a=(1, 60), b=(2, 60)), new_version()
        await store.take(both, slot=slot, block=BLOCK)
        for _ in range(2):
            await store.refund(both, slot=slot)
            look = await store.take(both, slot=None, block=BLOCK)
            assert [usage.used for usage in look.usage] == [0, 0]
        await store.refund(windows(new=(1, 60)), slot="unknown")
        assert (await store.take(both, slot=slot, block=BLOCK)).taken

    async def test_a_block_refuses_all(self, store: Store) -> None:
        """The block lasts until it is deleted or expires. The result has the time left."""
        limits = windows(a=(5, 60))
        await put(store, BLOCK, b"", keep=3600)
        result = await store.take(limits, slot=new_version(), block=BLOCK)
        assert not result.taken
        assert 3000 < result.blocked <= 3600
        assert (await store.take(limits, slot=new_version(), block="room/blocks/other")).taken
        await store.write({BLOCK: None}, expected={}, version="v")
        assert (await store.take(limits, slot=new_version(), block=BLOCK)).taken
        await put(store, BLOCK, b"", keep=0.01)
        await asyncio.sleep(0.05)
        assert (await store.take(limits, slot=new_version(), block=BLOCK)).taken

    async def test_without_a_limit(self, store: Store) -> None:
        """Only a block stops an operation without limits."""
        assert (await store.take([], slot=new_version(), block=BLOCK)).taken
        await put(store, BLOCK, b"", keep=60)
        assert not (await store.take([], slot=new_version(), block=BLOCK)).taken

    async def test_a_smaller_limit_than_is_used(self, store: Store) -> None:
        """Another process, or the program's next version, may have a smaller limit."""
        for _ in range(3):
            await store.take(windows(a=(3, 60)), slot=new_version(), block=BLOCK)
        result = await store.take(windows(a=(1, 60)), slot=new_version(), block=BLOCK)
        assert (result.taken, result.usage[0].used) == (False, 3)
        assert 50 < result.usage[0].opens_in <= 60


HOLDS = (0.8, 5.0)
"""Seconds for which a message is held back."""

CANCEL_SECONDS = 0.3
"""Seconds after which a step is cancelled while its message is held back."""

MESSAGES = 4
"""Number of messages of a step that the test cases hold back. Each case holds back one message.

A step may have fewer messages.
"""


class WireCases:
    """The promises of a store on a server, while the network delays the messages of a step.

    A test class has two fixtures. ``address`` is the host and port of the server. ``reach`` is a function
    that takes the port of a proxy on loopback. The function returns an async context manager of a store that
    connects through this proxy.
    """

    @pytest.mark.parametrize("seconds", HOLDS)
    @pytest.mark.parametrize("message", range(MESSAGES))
    async def test_a_write_that_comes_late_changes_nothing(
        self,
        address: tuple[str, int],
        reach: Callable[[int], AbstractAsyncContextManager[Store]],
        message: int,
        seconds: float,
    ) -> None:
        """A step was cancelled, and its caller has written since then. The step's message arrives later.

        A claim is released in this way, repeatedly for a minute, because a cancelled call must not use up its
        key. A store may refuse the release while the message is on its way.
        """
        async with HeldWire(*address) as wire, reach(wire.port) as store:
            await put(store, B)  # opens a connection and loads scripts
            wire.hold(message, seconds)
            step = asyncio.create_task(store.write({A: b"late"}, expected={A: None}, version="late"))
            await asyncio.wait([step], timeout=CANCEL_SECONDS)
            if step.done() and not wire.is_holding:
                assert message, "nothing went through the proxy: `reach` must use the port that it gets"
                pytest.skip(f"a step has {message} messages only")
            start = asyncio.get_running_loop().time()
            step.cancel()
            await asyncio.wait([step])
            assert asyncio.get_running_loop().time() - start < 1.0
            await released(store)
            await wire.delivered()
            await asyncio.sleep(0.1)
            assert await values(store, A) == {A: b"free"}


async def released(store: Store) -> None:
    """Write *free*, in the same way as a claim is released."""
    while True:
        with suppress(StateError):
            return await change(store, [A], free)


def free(snapshot: Snapshot) -> tuple[Mapping[str, bytes | None], None]:
    """Write the record, whatever it contains. A rule that changes nothing would not wait for a late write."""
    is_free = A in snapshot.records and snapshot.records[A].value == b"free"
    return {} if is_free else {A: b"free"}, None
