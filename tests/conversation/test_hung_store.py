"""A store that hangs: a cancelled turn waits for it for a bounded time, and takes nothing over afterwards."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mintlify_async.conversation import transcript
from mintlify_async.errors import StoreConflictError
from mintlify_async.storage import MemoryStore

LIMIT = 0.3  # seconds, in place of 5


class HungStore(MemoryStore):
    """The step named *hangs* does not heed its cancellation, as a thread that waits for a disk does not."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = ""
        self.hung = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.cancellations = 0

    async def _hang(self, step: str) -> None:
        while step == self.hangs and not self.goes_on.is_set():
            self.hung.set()
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.cancellations += 1

    async def read(self, keys):
        await self._hang("read")
        return await super().read(keys)

    async def write(self, changes, **options):
        await self._hang("write")
        return await super().write(changes, **options)


@pytest.fixture
async def store(monkeypatch):
    assert transcript.CANCELLED_STORE_SECONDS == 5.0
    monkeypatch.setattr(transcript, "CANCELLED_STORE_SECONDS", LIMIT)
    store = HungStore()
    yield store
    store.goes_on.set()
    for _ in range(20):  # what was left behind ends now
        await asyncio.sleep(0)


async def ask(chat):
    await chat.ask("And then?")


async def ask_in_block(chat):
    async with chat.ask("And then?") as reply:
        await reply


async def ask_in_loop(chat):
    async for _ in chat.ask("And then?"):
        pass


async def undo(chat):
    await chat.undo()


async def save(chat):
    await chat.save()


async def delete(chat):
    await chat.delete()


async def load(chat):
    await chat.load()


@pytest.mark.parametrize(
    ("work", "hangs"),
    [
        *((work, "read") for work in (ask, ask_in_block, ask_in_loop, undo, save, load)),
        *((work, "write") for work in (ask, ask_in_block, ask_in_loop, undo, save, delete)),
    ],
)
async def test_a_cancelled_turn_leaves_a_store_that_hangs(session, store, work, hangs):
    """It ends within the limit, however often it is cancelled; what the store does later is ignored."""
    chat = session.conversation(store=store, id="c", owner="ada")
    await chat.ask("How do I install it?")
    before, stored = chat.messages, chat.to_dict()
    store.hangs = hangs
    task = asyncio.create_task(work(chat))
    await store.hung.wait()
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
        assert loop.time() - began < 100 * LIMIT
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.cancellations
    del task
    gc.collect()  # a traceback may keep the reply
    assert not chat.busy
    assert (chat.messages, chat.to_dict()) == (before, stored)
    store.hangs = ""
    store.goes_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (chat.messages, chat.to_dict()) == (before, stored)
    if hangs == "read":
        await chat.ask("And now?")
    else:
        with pytest.raises(StoreConflictError):  # it was saved, or deleted, after all
            await chat.ask("And now?")
        await (await chat.load()).ask("And now?")


async def test_a_turn_that_times_out_leaves_a_store_that_hangs(session, store, clock):
    """The timeout of a question ends its wait for the store, too."""
    chat = session.conversation(store=store, id="c", owner="ada")
    store.hangs = "read"
    with pytest.raises(TimeoutError, match="the conversation's store"):
        await chat.ask("How do I install it?", timeout=5.0)
    assert not chat.busy
