"""Conversations in a store when not all goes well: two tabs, two workers, a store that is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastapi")

from mintlify_async.contrib.relay import RelayedAnswer
from mintlify_async.contrib.relay.refusal_texts import UNSAVED_TEXT
from mintlify_async.storage import MemoryStore, SQLiteStore
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.relay_desk import HEAD, TURN, USER, again, desk, form, say, shown
from tests.support.relay_kit import events, until


async def test_the_history_waits_for_what_is_being_saved():
    """A page that is loaded again at once gets the part that was there, however slow the store is."""

    class Slow(MemoryStore):
        async def write(self, *args: Any, **options: Any) -> Any:
            saving.set()
            await asyncio.sleep(0.2)
            return await super().write(*args, **options)

    saving = asyncio.Event()
    async with desk(store=Slow()) as here:
        here.page.user = USER
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request(form("one")) as response:
            await response.content.readuntil(b"Hello ")
        await saving.wait()
        assert [text for _, text in await shown(here)] == ["one", "Hello "]


async def test_two_workers_do_not_mix_their_answers(tmp_path):
    """The worker whose answer ends second tells its page that it was not saved; the store has the first."""
    told: list[RelayedAnswer] = []
    path = tmp_path / "chats.sqlite"
    async with (
        desk(store=SQLiteStore(path), on_end=told.append) as here,
        desk(store=SQLiteStore(path)) as there,
    ):
        await say(there, form("zero", "u0"))
        here.page.user = USER
        here.service.script.ask(events=[*HEAD, 0.5, *TURN[3:]])
        async with here.page.request(form("one")) as response:
            seen = await response.content.readuntil(b"Hello ")
            quick = await say(there, form("two", "u2"))
            seen += await response.read()
        ended = events(seen)
        assert [event["type"] for event in ended][-2:] == ["finish", "error"]
        assert ended[-1]["errorText"].startswith("This answer could not be saved")
        assert [id for id, _ in await shown(here)][2:] == ["u2", quick]
        assert (told[0].outcome, type(told[0].error).__name__) == ("finished", "StoreConflictError")
        await say(here, again("one"))
        assert [id for id, _ in await shown(here)][-2] == "u1"


class Away(MemoryStore):
    """A store whose steps fail from a moment on."""

    how = ""

    async def _step(self, step: str) -> None:
        if self.how == f"{step} raises":
            raise ConnectionError("the database at db.internal is away")
        if self.how == f"{step} hangs":
            await asyncio.Event().wait()

    async def read(self, *args: Any, **options: Any) -> Any:
        await self._step("load")
        return await super().read(*args, **options)

    async def write(self, *args: Any, **options: Any) -> Any:
        await self._step("save")
        return await super().write(*args, **options)


@pytest.mark.parametrize("how", ["load raises", "load hangs"])
async def test_a_store_that_is_away_is_503(how, caplog):
    """Nothing is asked, the page is told in time, and so is who asks for the history."""
    store = Away()
    with virtual_time():
        async with desk(store=store) as here:
            await say(here, form("one"))
            store.how, began = how, asyncio.get_running_loop().time()
            for status, text in (
                (await here.page.post(form("two", "u2")))[:2],
                await here.page.history(),
            ):
                text = text if isinstance(text, str) else text.decode()
                assert status == 503
                assert text == "This conversation cannot be opened at the moment. Please try again later."
            assert ("hangs" in how) == (asyncio.get_running_loop().time() - began >= 8)
            assert len(here.service.requests) == 1
            assert "db.internal" in caplog.text or "hangs" in how
            store.how = ""
            await say(here, form("two", "u2"))
    assert "thread_key" not in caplog.text


@pytest.mark.parametrize("how", ["save raises", "save hangs"])
@pytest.mark.parametrize("left", [False, True])
async def test_an_answer_that_cannot_be_saved(how, left, caplog):
    """A page that is there is told; so are the log and the hook. Asked again, it is stored."""
    told: list[RelayedAnswer] = []
    store = Away()
    with virtual_time():
        async with desk(store=store, on_end=told.append) as here:
            here.page.user = USER
            store.how = how
            if left:
                here.service.script.ask(events=[*HEAD, 3600.0])
                async with here.page.request(form("one")) as response:
                    await response.content.readuntil(b"Hello ")
            else:
                finish, error = events((await here.page.post(form("one")))[1])[-2:]
                assert finish["type"] == "finish"
                assert error == {"type": "error", "errorText": UNSAVED_TEXT}
            await until(lambda: told)
            outcome = "left" if left else "finished"
            assert (told[0].outcome, type(told[0].error).__name__) == (outcome, "StateError")
            assert told[0].message is not None
            assert [r.levelname for r in caplog.records if "was not saved" in r.message] == ["ERROR"]
            await here.all_closed()
            assert (await here.page.history())[0] == 404
            store.how = ""
            new = await say(here, again("one"))
            assert [id for id, _ in await shown(here)] == ["u1", new]
    assert "thread_key" not in caplog.text
