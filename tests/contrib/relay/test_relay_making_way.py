"""Questions of one chat on two workers, with a shared store that is slow and swallows cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("fastapi")


from mintlify_async.contrib.relay import running_answer
from mintlify_async.storage import MemoryStore
from tests.support.relay_desk import ENDLESS, TURN, Desk, desk, other_worker
from tests.support.relay_kit import Page, events, until, user_message


class SlowStreams:
    """What the workers share. A step waits for its gate, and swallows its cancellation.

    redis-py does so on Python 3.11; the command arrives all the same.
    """

    grace = keep = 60.0

    def __init__(self) -> None:
        self.begins = self.cancelled = 0
        self.beginning, self.telling = asyncio.Event(), asyncio.Event()
        self.beginning.set()
        self.telling.set()
        self._order: list[str] = []
        self._living: set[str] = set()

    async def begin(self, chat: str, answer: str) -> str | None:
        self.begins += 1
        try:
            await self.beginning.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
        self._living.add(answer)
        self._order.append(answer)
        return self._order[-2] if len(self._order) > 1 else None

    async def describe(self, chat: str, answer: str, about: str) -> None:
        """Keep nothing: no page resumes here."""

    async def write(
        self, chat: str, answer: str, frames: bytes, *, at: int, ended: bool
    ) -> tuple[bool, bool]:
        if ended:
            self._living.discard(answer)
        return self.telling.is_set() and answer != self._order[-1], False

    async def runs(self, chat: str, answer: str) -> bool:
        return answer in self._living

    async def stop(self, chat: str) -> None:
        """Do nothing: the answers here are stopped on their own worker."""


@asynccontextmanager
async def two_workers(streams: SlowStreams) -> AsyncIterator[tuple[Desk, Page]]:
    settings = {"streams": streams, "store": MemoryStore()}
    async with desk(**settings) as here, other_worker(here, **settings) as far:
        yield here, far


def asked(page: Page, id: str) -> asyncio.Task[bytes]:
    return asyncio.create_task(page.ask(user_message("Hello?", id)))


async def test_a_stop_while_an_answer_begins_is_heeded():
    """The command is not cut; then the answer ends, and nothing is asked."""
    streams = SlowStreams()
    async with two_workers(streams) as (here, _):
        streams.beginning.clear()
        first = asked(here.page, "u1")
        await until(lambda: streams.begins)
        assert await here.page.stop() == 204
        streams.beginning.set()
        assert events(await first) == [{"type": "abort"}]
        assert (streams.cancelled, here.service.requests) == (0, [])


async def test_a_worker_begins_the_answers_of_a_chat_one_after_the_other():
    """Else the last one could find an earlier one in its place, and end."""
    streams = SlowStreams()
    async with two_workers(streams) as (here, _):
        here.service.script.ask(events=TURN)
        streams.beginning.clear()
        first = asked(here.page, "u1")
        await until(lambda: streams.begins)
        second = asked(here.page, "u2")
        await until(lambda: here.relay.streaming == 2)
        assert streams.begins == 1
        streams.beginning.set()
        assert events(await first) == [{"type": "abort"}]
        assert events(await second)[-1]["type"] == "finish"
        assert (streams.begins, streams.cancelled) == (2, 0)


async def test_an_answer_waits_for_all_before_it(monkeypatch):
    """The one before it was stopped while it waited itself, for one on another worker that still runs."""
    monkeypatch.setattr(running_answer, "MAKE_WAY", 60)
    streams = SlowStreams()
    async with two_workers(streams) as (here, far):
        here.service.script.ask(events=ENDLESS)
        here.service.script.ask(events=TURN)
        streams.telling.clear()
        first = asked(far, "u1")
        await until(lambda: here.service.answering)
        second = asked(here.page, "u2")
        await until(lambda: streams.begins == 2)
        third = asked(here.page, "u3")
        await until(lambda: here.relay.streaming == 2)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert streams.begins == 2
            assert [second.done(), third.done()] == [False, False]
        streams.telling.set()
        assert [events(body)[-1]["type"] for body in await asyncio.gather(first, second)] == ["abort"] * 2
        assert events(await third)[-1]["type"] == "finish"
