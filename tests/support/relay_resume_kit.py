"""What the tests of answers that outlive their reader share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from relay_desk import HEAD, TURN, Desk, assert_nothing_shown, x_user
from relay_kit import SECRET, Page, serving, until
from starlette.applications import Starlette

from mintlify_async.contrib.relay import RelayedAnswer, relay_routes
from mintlify_async.runtime.clock import SystemClock

if TYPE_CHECKING:
    from mintlify_async.contrib.redis import RedisStreamStore

HELD = [*HEAD, 0.5, *TURN[3:]]


class Gate(SystemClock):
    """A service's clock whose pauses last until the gate is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.open.wait()


class Told:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.answers: list[RelayedAnswer] = []

    @property
    def hooks(self) -> dict[str, Any]:
        return {"on_finish": self.answers.append, "on_unfinished": self.answers.append}


async def ask_and_leave(here: Desk, seen: bytes = b"Hello ") -> None:
    async with here.page.request() as response:
        await response.content.readuntil(seen)
        response.close()


async def ask_in_vain(here: Desk) -> None:
    """Ask, and leave before the answer begins."""
    asking = asyncio.create_task(here.page.post())
    await until(lambda: here.service.answering)
    asking.cancel()
    await asyncio.wait([asking])


def store_of(client: Any, **settings: Any) -> RedisStreamStore:
    from mintlify_async.contrib.redis import RedisStreamStore

    return RedisStreamStore(client, **{"timeout": 20, **settings})


@asynccontextmanager
async def another_worker(here: Desk, client: Any, **settings: Any) -> AsyncIterator[Page]:
    """Serve the same chats by another relay with a store of its own; yield a page that is connected to it."""
    settings = {"secrets": [SECRET], "user": x_user, "streams": store_of(client), **settings}
    app = Starlette(routes=relay_routes(here.session, **settings))
    async with serving(app) as address, aiohttp.ClientSession() as http:
        page = Page(http, address)
        yield page
        assert_nothing_shown(here.service, page.seen)
