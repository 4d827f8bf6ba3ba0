"""One transport for a session: what it sends, which loop it serves, how it closes."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest

from mintlify_async import MintlifySession, NotFoundError, StateError
from mintlify_async.testing import LocalService
from tests.support.secret_guard import Keys
from tests.support.wire_kit import JOB

KEYS = Keys()


async def test_what_wraps_aiohttp_may_add_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that a tracer adds to one request is not in the next."""
    seen: list[str | None] = []
    request = aiohttp.ClientSession._request

    async def traced(*arguments: Any, **options: Any) -> aiohttp.ClientResponse:
        headers = options["headers"]
        seen.append(headers.get("x-trace"))
        headers["x-trace"] = "first"
        return await request(*arguments, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", traced)
    async with LocalService() as service, service.session() as session:
        for _ in range(2):
            with suppress(NotFoundError):
                await session.job("j").refresh()
    assert seen == [None, None]


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
async def test_a_header_goes_out_once_however_it_is_written(borrowed: bool) -> None:
    """A user's header takes the place of ours in any case of letters; the key's and the body's are ours."""
    given = {"user-agent": "mine/1", "ACCEPT": "x/y", "accept-encoding": "br"}
    heads: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        body = json.dumps(JOB).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server, AsyncExitStack() as stack:
        options: dict[str, Any] = {}
        if borrowed:
            options["client_session"] = await stack.enter_async_context(aiohttp.ClientSession())
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with MintlifySession(project_id="p", admin_key=KEYS.admin, base_url=url, **options) as session:
            await session.create_job("x", headers=given)
    lines = [line.partition(": ") for line in heads[0].decode().split("\r\n")[1:] if line]
    sent = [(name.lower(), value) for name, _, value in lines]
    assert len(sent) == len(dict(sent))
    assert {name: dict(sent)[name] for name in (*map(str.lower, given), "content-type", "authorization")} == {
        "user-agent": "mine/1",
        "accept": "x/y",
        "accept-encoding": "br",
        "content-type": "application/json",
        "authorization": f"Bearer {KEYS.admin}",
    }


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_close_still_closes_everything(service, turns):
    """close() that is cancelled at any step can be called again and leaves nothing open."""
    session = service.session()
    await session.create_job("x")
    await session.job("job_1").refresh()
    task = asyncio.create_task(session.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await session.close()
    gc.collect()


async def test_a_session_with_other_options_keeps_the_first_one_alive(service):
    """A session made by with_options() keeps the first one alive: both share connections."""
    session = service.session()
    other = session.with_options(fp="v")
    async with other.ask("x") as reply:
        await anext(reply)
        session = weakref.ref(session)
        gc.collect()
        assert [event async for event in reply]
        assert reply.complete
    await session().close()


async def test_a_borrowed_session_of_another_loop_sends_nothing(service):
    """A borrowed client session of another event loop is refused before anything is written."""
    ready, done = threading.Event(), threading.Event()
    made = []

    async def owner():
        async with aiohttp.ClientSession() as ours, service.session(client_session=ours) as session:
            await session.create_job("first")
            made.append(session)
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: asyncio.run(owner()))
    thread.start()
    while not ready.is_set():
        await asyncio.sleep(0.001)
    try:
        for call in (made[0].create_job("second"), made[0].ask("x").run()):
            with pytest.raises(StateError, match="another event loop"):
                await call
        await asyncio.sleep(0.05)  # it was the other loop that sent it
    finally:
        done.set()
        while thread.is_alive():
            await asyncio.sleep(0.001)
    assert len(service.requests) == 1
