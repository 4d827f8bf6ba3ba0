"""The cases of a store notice a store that breaks its promises."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager

import pytest
from attrs import evolve

from mintlify_async.storage import MemoryStore
from mintlify_async.testing.store_cases import StoreCases, WireCases


class ForgetsConditions(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        await asyncio.sleep(0)
        return await super().write(changes, expected={}, version=version, keep=keep)


class ForgetsUnchanged(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        expected = {key: of for key, of in expected.items() if key in changes}
        return await super().write(changes, expected=expected, version=version, keep=keep)


class RefusesRepeats(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        now = await super().read(expected)
        if any(now.records[key].version != of if key in now.records else of for key, of in expected.items()):
            return False
        return await super().write(changes, expected=expected, version=version, keep=keep)


class AcceptsRepeats(MemoryStore):
    seen = ()

    async def write(self, changes, *, expected, version, keep=None):
        if version in self.seen:
            return True
        self.seen += (version,)
        return await super().write(changes, expected=expected, version=version, keep=keep)


class KeepsForever(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        return await super().write(changes, expected=expected, version=version)


class KeepsAtLeastAMinute(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        keep = None if keep is None else keep + 60
        return await super().write(changes, expected=expected, version=version, keep=keep)


class KeepsTheFirstLife(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        lives = self.__dict__.setdefault("lives", {})
        keep = min((lives.setdefault(key, keep) or 3600 for key in changes), default=keep)
        return await super().write(changes, expected=expected, version=version, keep=keep)


class LetsExpectedExpire(MemoryStore):
    async def write(self, changes, *, expected, version, keep=None):
        same = {key: of for key, of in expected.items() if key in changes or of is None}
        return await super().write(changes, expected=same, version=version, keep=keep)


class ListsInReverse(MemoryStore):
    async def keys(self, prefix):
        return (await super().keys(prefix))[::-1]


class ListsWithoutCase(MemoryStore):
    async def keys(self, prefix):
        found = [key for key in await super().keys("") if key.casefold().startswith(prefix.casefold())]
        return sorted(found)


class ListsWithoutSlash(MemoryStore):
    async def keys(self, prefix):
        return await super().keys(prefix.rstrip("/"))


class HasAnotherClock(MemoryStore):
    async def read(self, keys):
        return evolve(await super().read(keys), now=0.0)


class ShowsValues(MemoryStore):
    def __repr__(self):
        return "<b'secret'>"


class CountsEachWindowAlone(MemoryStore):
    async def take(self, windows, *, slot, block):
        for window in windows:
            result = await super().take([window], slot=slot, block=block)
            if not result.taken:
                break
        look = await super().take(windows, slot=None, block=block)
        return evolve(look, taken=result.taken)


class CountsRepeatsTwice(MemoryStore):
    numbers = itertools.count()

    async def take(self, windows, *, slot, block):
        slot = slot and f"{slot}{next(self.numbers)}"
        return await super().take(windows, slot=slot, block=block)


class RefusesRepeatsWhenFull(MemoryStore):
    async def take(self, windows, *, slot, block):
        look = await super().take(windows, slot=None, block=block)
        if any(usage.used >= window.amount for usage, window in zip(look.usage, windows, strict=True)):
            return evolve(look, taken=False)
        return await super().take(windows, slot=slot, block=block)


class AllowsOneMore(MemoryStore):
    async def take(self, windows, *, slot, block):
        more = [evolve(window, amount=window.amount + 1) for window in windows]
        return await super().take(more, slot=slot, block=block)


class CountsToTheLimit(MemoryStore):
    async def take(self, windows, *, slot, block):
        result = await super().take(windows, slot=slot, block=block)
        few = [evolve(u, used=min(u.used, w.amount)) for u, w in zip(result.usage, windows, strict=True)]
        return evolve(result, usage=tuple(few))


class AllowsTooSoon(MemoryStore):
    async def take(self, windows, *, slot, block):
        soon = [evolve(window, seconds=window.seconds * 0.8) for window in windows]
        return await super().take(soon, slot=slot, block=block)


class AllowsTooLate(MemoryStore):
    async def take(self, windows, *, slot, block):
        late = [evolve(window, seconds=window.seconds * 1.2) for window in windows]
        return await super().take(late, slot=slot, block=block)


class ForgetsBlocks(MemoryStore):
    async def take(self, windows, *, slot, block):
        return await super().take(windows, slot=slot, block=f"{block}-of-another")


class BlocksOnlyWithALimit(MemoryStore):
    async def take(self, windows, *, slot, block):
        return await super().take(windows, slot=slot, block=block if windows else f"{block}-of-another")


class ForgetsRefunds(MemoryStore):
    async def refund(self, windows, *, slot):
        pass


class RefundsOnlyTheFirstWindow(MemoryStore):
    async def refund(self, windows, *, slot):
        await super().refund(windows[:1], slot=slot)


@pytest.mark.parametrize(
    ("store", "case"),
    [
        (HasAnotherClock, "test_a_record_is_read_as_it_was_written"),
        (ShowsValues, "test_a_repr_has_no_value"),
        (ForgetsConditions, "test_all_or_nothing"),
        (ForgetsConditions, "test_expected_without_change"),
        (ForgetsConditions, "test_change_by_a_rule"),
        (ForgetsUnchanged, "test_expected_without_change"),
        (RefusesRepeats, "test_a_repeated_write_is_true"),
        (RefusesRepeats, "test_a_repeated_move_is_true"),
        (AcceptsRepeats, "test_a_repeated_write_is_true"),
        (ListsInReverse, "test_keys_of_a_folder"),
        (ListsWithoutCase, "test_keys_of_a_folder"),
        (ListsWithoutSlash, "test_keys_of_a_folder"),
        (KeepsForever, "test_a_record_with_keep_expires"),
        (KeepsAtLeastAMinute, "test_a_record_with_keep_expires"),
        (KeepsTheFirstLife, "test_writing_again_ends_or_renews_the_life"),
        (LetsExpectedExpire, "test_expected_records_live_as_long"),
        (AllowsOneMore, "test_slots_are_counted"),
        (CountsEachWindowAlone, "test_a_slot_in_all_windows_or_in_none"),
        (AllowsTooLate, "test_a_slot_is_free_again_after_the_window"),
        (AllowsTooSoon, "test_no_window_of_any_position_has_more"),
        (CountsRepeatsTwice, "test_a_taken_slot_may_be_asked_for_again"),
        (RefusesRepeatsWhenFull, "test_a_taken_slot_may_be_asked_for_again"),
        (ForgetsRefunds, "test_a_refund"),
        (RefundsOnlyTheFirstWindow, "test_a_refund"),
        (ForgetsBlocks, "test_a_block_refuses_all"),
        (BlocksOnlyWithALimit, "test_without_a_limit"),
        (CountsToTheLimit, "test_a_smaller_limit_than_is_used"),
    ],
)
async def test_a_store_that_breaks_a_promise_fails_its_case(store, case):
    """The case passes with a store that keeps the promise, and fails with one that does not."""
    await getattr(StoreCases(), case)(MemoryStore())
    with pytest.raises(AssertionError):
        await getattr(StoreCases(), case)(store())


class Distant(MemoryStore):
    """A store whose writes go over a connection."""

    def __init__(self, there, port):
        super().__init__()
        self.there, self.port = there, port
        self.read = there.read

    async def write(self, changes, *, expected, version, keep=None):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        texts = {key: value.decode() for key, value in changes.items()}
        writer.write(json.dumps([texts, expected, version]).encode() + b"\n")
        try:
            return await reader.readline() == b"true\n"
        finally:
            writer.close()


@asynccontextmanager
async def server_of(store):
    async def answer(reader, writer):
        changes, expected, version = json.loads(await reader.readline())
        changes = {key: value.encode() for key, value in changes.items()}
        done = await store.write(changes, expected=expected, version=version)
        writer.write(json.dumps(done).encode() + b"\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()


async def wire_case(there, *, message=0, around_the_proxy=False):
    async with server_of(there) as address:

        @asynccontextmanager
        async def reach(port):
            yield Distant(there, address[1] if around_the_proxy else port)

        await WireCases().test_a_write_that_comes_late_changes_nothing(address, reach, message, 0.8)


async def test_a_late_write_is_noticed():
    """A server that applies a late message without its condition fails the case, another one passes it."""
    await wire_case(MemoryStore())
    with pytest.raises(AssertionError) as noticed:
        await wire_case(ForgetsConditions())
    assert "proxy" not in str(noticed.value)


async def test_a_step_with_fewer_messages_is_skipped():
    """The second message of a step that has one is no case."""
    with pytest.raises(pytest.skip.Exception, match="1 messages only"):
        await wire_case(MemoryStore(), message=1)


async def test_a_store_that_goes_around_the_proxy_passes_no_case():
    """A *reach* that forgets its port would skip every case, and nobody would see that nothing was tried."""
    with pytest.raises(AssertionError, match="through the proxy"):
        await wire_case(MemoryStore(), around_the_proxy=True)
