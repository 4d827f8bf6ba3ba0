"""The hooks that an app gets a finished or unfinished answer by."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, TURN, desk
from relay_kit import events, until, user_message
from starlette.requests import Request

from mintlify_async import Thread
from mintlify_async.contrib.relay import RelayedAnswer


class Told:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.finished: list[RelayedAnswer] = []
        self.unfinished: list[RelayedAnswer] = []

    async def on_finish(self, answer: RelayedAnswer) -> None:
        await asyncio.sleep(0)
        self.finished.append(answer)

    def on_unfinished(self, answer: RelayedAnswer) -> None:
        self.unfinished.append(answer)

    @property
    def hooks(self) -> dict[str, Any]:
        return {"on_finish": self.on_finish, "on_unfinished": self.on_unfinished}


async def test_a_finished_answer_is_told():
    """on_finish gets the whole answer with question, user and thread."""
    told = Told()
    async with desk(**told.hooks) as here:
        here.service.script.ask(events=TURN)
        await here.page.ask(user_message("q"))
        (answer,) = told.finished
        assert answer.outcome == "finished"
        assert (answer.user, answer.chat_id, answer.finish_reason) == ("ada", "chat-1", "stop")
        assert answer.question == [user_message("q")]
        assert answer.message is not None
        assert answer.message.text == "Hello there"
        assert answer.thread == Thread("thread_77")
        assert told.unfinished == []


async def test_an_unfinished_answer_is_told_apart():
    """on_unfinished gets answers that broke off or were left by the reader."""
    told = Told()
    async with desk(**told.hooks) as here:
        here.service.script.ask(events=HEAD, done=False)
        await here.page.ask(user_message("q"))
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
        await until(lambda: len(told.unfinished) == 2)
        assert [answer.outcome for answer in told.unfinished] == ["failed", "left"]
        assert [answer.message.text for answer in told.unfinished] == ["Hello ", "Hello "]
        assert told.finished == []


async def test_an_answer_that_the_service_aborts_is_unfinished():
    """It ends without an error, but it is not whole."""
    told = Told()
    async with desk(**told.hooks) as here:
        here.service.script.ask(events=[*HEAD, {"type": "abort", "reason": "too long"}])
        await here.page.ask(user_message("q"))
        await until(lambda: told.unfinished)
        assert [(answer.outcome, answer.error) for answer in told.unfinished] == [("failed", None)]
        assert told.finished == []


async def test_a_hook_that_raises_harms_no_page(caplog):
    """An error of a hook is logged, and the page gets the whole answer."""

    def broken(answer: RelayedAnswer) -> None:
        raise ValueError("the store is full")

    async with desk(on_finish=broken) as here:
        assert events(await here.page.ask(user_message("q")))[-1]["type"] == "finish"
    assert "the store is full" in caplog.text


async def test_a_plain_function_of_the_app_does_not_stop_the_loop():
    """A database query in it would stop every answer; an async one runs on the loop."""
    request_id = contextvars.ContextVar[str]("request_id", default="")
    ran: dict[str, tuple[bool, str]] = {}

    def note(name: str) -> None:
        ran[name] = (threading.current_thread() is threading.main_thread(), request_id.get())

    def user(request: Request) -> str:
        request_id.set("lost")
        note("user")
        return "ada"

    async def rate(user: str, request: Request) -> None:
        note("rate")
        request_id.set("seven")

    def lazily(request: Request, fields: Any) -> Awaitable[dict[str, Any]]:
        async def options() -> dict[str, Any]:
            note("ask")
            return {}

        return options()

    settings: dict[str, Any] = {"user": user, "rate": rate, "ask": lazily}
    async with desk(on_finish=lambda answer: note("finish"), **settings) as here:
        assert (await here.page.post())[0] == 200
    assert ran == {
        "user": (False, "lost"),
        "rate": (True, ""),
        "ask": (True, "seven"),
        "finish": (False, "seven"),
    }
