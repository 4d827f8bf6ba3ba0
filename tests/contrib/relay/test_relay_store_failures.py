"""Conversations in a store when not all goes well: two tabs, two workers, a store that is away."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, TURN, desk, page_of, x_user
from relay_kit import SECRET, events, until
from relay_store_kit import USER, again, form, say, shown
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mintlify_async.contrib.relay import Relay, RelayedAnswer, stored_chats
from mintlify_async.storage import MemoryConversationStore, SQLiteConversationStore
from mintlify_async.testing import LocalService, VirtualClock


async def test_one_answer_at_a_time(store, monkeypatch):
    """A second tab is refused in plain words, and nothing of its question is sent or stored."""
    monkeypatch.setattr(stored_chats, "BUSY_SECONDS", 0.1)
    async with desk(store=store) as here:
        here.page.user = USER
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request(form("one")) as response:
            await response.content.readuntil(b"Hello ")
            status, text, _ = await here.page.post(form("two", "u2"))
            assert (status, text) == (
                409,
                b"The assistant is still answering in this conversation. Please wait until it has finished.",
            )
            assert len(here.service.requests) == 1
            status, _, _ = await here.page.post(form("elsewhere", "u2", chat="chat-2"))
            assert status == 200
            assert (await here.other("bob").post(form("bob's")))[0] == 200
        await here.all_closed()
        await say(here, form("two", "u2"))
        assert [id for id, _ in await shown(here)][:3] == ["u1", "m1", "u2"]


async def test_the_next_question_may_come_at_once(store):
    """After the end, and after Stop, a page need not wait until the relay has noticed."""
    async with desk(store=store) as here:
        here.page.user = USER
        for number in range(5):
            here.service.script.ask(events=[*HEAD, 60.0])
            response = await here.page.request(form("stopped", f"s{number}"))
            await response.content.readuntil(b"Hello ")
            response.close()
            await say(here, form("at once", f"u{number}"))
        assert len(await shown(here)) == 20


async def test_the_history_waits_for_what_is_being_saved():
    """A page that is loaded again at once gets the part that was there, however slow the store is."""

    class Slow(MemoryConversationStore):
        async def save(self, *args: Any, **options: Any) -> Any:
            saving.set()
            await asyncio.sleep(0.2)
            return await super().save(*args, **options)

    saving = asyncio.Event()
    async with desk(store=Slow()) as here:
        here.page.user = USER
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request(form("one")) as response:
            await response.content.readuntil(b"Hello ")
        await saving.wait()
        assert [text for _, text in await shown(here)] == ["one", "Hello "]


async def test_an_answer_that_is_never_sent_frees_its_conversation():
    """A handler that opened an answer and dropped it does not block the chat."""
    store = MemoryConversationStore()
    async with LocalService() as service, service.session() as session:
        relay = Relay(session, secrets=[SECRET], user=x_user, store=store)

        async def forgetful(request: Request) -> Response:
            await relay.open(request)
            return Response("forgotten")

        app = Starlette(routes=[Route("/api/chat", forgetful, methods=["POST"])])
        async with page_of(app) as page:
            service.script.ask(events=[*HEAD, 60.0], times=2)
            for _ in range(2):
                assert (await page.post(form("one")))[1] == b"forgotten"
                gc.collect()
                await until(lambda: not relay.streaming and not service.answering)


async def test_two_workers_do_not_mix_their_answers(tmp_path):
    """The worker whose answer ends second tells its page that it was not saved; the store has the first."""
    told: list[RelayedAnswer] = []
    path = tmp_path / "chats.sqlite"
    async with (
        desk(store=SQLiteConversationStore(path), on_finish=told.append) as here,
        desk(store=SQLiteConversationStore(path)) as there,
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


class Away(MemoryConversationStore):
    """A store whose steps fail from a moment on."""

    how = ""

    async def _step(self, step: str) -> None:
        if self.how == f"{step} raises":
            raise ConnectionError("the database at db.internal is away")
        if self.how == f"{step} hangs":
            await asyncio.Event().wait()

    async def load(self, *args: Any, **options: Any) -> Any:
        await self._step("load")
        return await super().load(*args, **options)

    async def save(self, *args: Any, **options: Any) -> Any:
        await self._step("save")
        return await super().save(*args, **options)


@pytest.mark.parametrize("how", ["load raises", "load hangs"])
async def test_a_store_that_is_away_is_503(how, caplog):
    """Nothing is asked, the page is told in time, and so is who asks for the history."""
    store, clock = Away(), VirtualClock()
    async with desk(store=store, clock=clock) as here:
        await say(here, form("one"))
        store.how, began = how, clock.now()
        for status, text in (
            (await here.page.post(form("two", "u2")))[:2],
            await here.page.history(),
        ):
            text = text if isinstance(text, str) else text.decode()
            assert status == 503
            assert text == "This conversation cannot be opened at the moment. Please try again later."
        assert clock.now() - began == (10 if "hangs" in how else 0)
        assert len(here.service.requests) == 1
        assert "db.internal" in caplog.text or "hangs" in how
        store.how = ""
        await say(here, form("two", "u2"))
    assert "thread_key" not in caplog.text


@pytest.mark.parametrize("how", ["save raises", "save hangs"])
async def test_an_answer_that_cannot_be_saved_says_so(how, caplog):
    """The page keeps the answer and is told; the log and the hook, too. Asked again, it is stored."""
    told: list[RelayedAnswer] = []
    store, clock = Away(), VirtualClock()
    async with desk(store=store, clock=clock, on_finish=told.append) as here:
        here.page.user = USER
        store.how = how
        shown_events = events(await here.page.ask(**form("one")))
        assert [event["type"] for event in shown_events][-2:] == ["finish", "error"]
        text = "This answer could not be saved, so it will be gone after a reload. Please try again."
        assert shown_events[-1]["errorText"] == text
        assert (told[0].outcome, type(told[0].error).__name__) == ("finished", "StoreError")
        assert told[0].message is not None
        assert "an answer was not saved" in caplog.text
        assert await here.page.history() == (404, "This conversation is not there.")
        store.how = ""
        new = await say(here, again("one"))
        assert [id for id, _ in await shown(here)] == ["u1", new]
    assert "thread_key" not in caplog.text


@pytest.mark.parametrize("how", ["save raises", "save hangs"])
async def test_a_part_that_cannot_be_saved_is_logged(how, caplog):
    """After Stop there is no page to tell; the place and the conversation are free again."""
    told: list[RelayedAnswer] = []
    store, clock = Away(), VirtualClock()
    async with desk(store=store, clock=clock, on_unfinished=told.append) as here:
        here.page.user = USER
        store.how = how
        here.service.script.ask(events=[*HEAD, 3600.0])
        async with here.page.request(form("one")) as response:
            await response.content.readuntil(b"Hello ")
        await until(lambda: told)
        assert (told[0].outcome, type(told[0].error).__name__) == ("left", "StoreError")
        assert "an answer was not saved" in caplog.text
        store.how = ""
        await here.all_closed()
        await say(here, form("one"))
