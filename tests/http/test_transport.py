"""One transport for a session: what it sends, which loop it serves, how it closes."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest

from mintlify_async import MintlifySession, NotFoundError, StateError
from mintlify_async.testing import Raw
from tests.support.fault_catalogue import ALL, call, script
from tests.support.secret_guard import Keys

KEYS = Keys()


async def test_what_wraps_aiohttp_may_add_headers(service, session, monkeypatch):
    """A header that a tracer adds to one request is not in the next."""
    seen = []
    request = aiohttp.ClientSession._request

    async def traced(*arguments, **options):
        headers = options["headers"]
        seen.append(headers.get("x-trace"))
        headers["x-trace"] = "first"
        return await request(*arguments, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", traced)
    for _ in range(2):
        with suppress(NotFoundError):
            await session.job("j").refresh()
    assert seen == [None, None]


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
async def test_a_header_goes_out_once_however_it_is_written(borrowed: bool) -> None:
    """A call's header replaces ours and the session's, in any spelling, but not the key's or body's."""
    headers = {"user-agent": "mine/1", "Accept": "x/y", "accept-encoding": "br", "x-a": "call"}
    heads: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        body = b'{"id": "job_1", "status": "active"}'
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server, AsyncExitStack() as stack:
        options: dict[str, Any] = {"headers": {"User-Agent": "session", "X-A": "session", "x-b": "1"}}
        if borrowed:
            options["client_session"] = await stack.enter_async_context(aiohttp.ClientSession())
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with MintlifySession(project_id="p", admin_key=KEYS.admin, base_url=url, **options) as session:
            await session.create_job("x", headers=headers)
    lines = [line.partition(": ") for line in heads[0].decode().split("\r\n")[1:] if line]
    sent = [(name.lower(), value) for name, _, value in lines]
    assert len(sent) == len(dict(sent))
    names = (*map(str.lower, headers), "x-b", "content-type", "authorization")
    assert {name: dict(sent)[name] for name in names} == {
        "user-agent": "mine/1",
        "accept": "x/y",
        "accept-encoding": "br",
        "x-a": "call",
        "x-b": "1",
        "content-type": "application/json",
        "authorization": f"Bearer {KEYS.admin}",
    }


@pytest.mark.parametrize("size", [9_000, 60_000])
@pytest.mark.parametrize("operation", ALL)
async def test_a_long_header_is_read(service, session, operation, size):
    """A gateway's policy of many kilobytes makes no paid job's outcome unknown, and no answer unreadable."""
    await session.create_job("first")
    headers = {"Content-Security-Policy": "x" * size}
    script(service, operation, headers=headers)
    result = await call(session, operation)
    response = result.response if operation == "ask" else result.raw
    assert response.headers["content-security-policy"] == headers["Content-Security-Policy"]


async def test_a_long_header_may_arrive_in_pieces(service, session):
    """Each packet of a long line is read, also when the line's end is not yet there."""
    body = b'{"id": "job_1", "status": "active"}'
    head = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\nContent-Security-Policy: " % len(body)
    pieces = [piece for _ in range(6) for piece in (b"x" * 10_000, 0.005)]
    service.script.create_job(fault=Raw([head, *pieces, b"\r\n\r\n", body]))
    assert (await session.create_job("x")).ref.id == "job_1"


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


async def test_a_session_with_other_options_keeps_the_connections_open(service):
    """A session made by with_options() shares the connections of the first one, which nobody may keep."""
    sessions = [service.session().with_options(fp="v")]
    async with sessions[0].ask("x") as reply:
        await anext(reply)
        gc.collect()
        assert [event async for event in reply]
        assert reply.complete
    with pytest.warns(ResourceWarning, match="never closed"):
        sessions.clear()


def test_a_borrowed_session_of_another_loop_sends_nothing(mintlify_service):
    """A borrowed client session of another event loop is refused before anything is written."""

    async def borrow(service):
        ours = aiohttp.ClientSession()
        session = service.session(client_session=ours)
        await session.create_job("first")
        return ours, session

    async def use_here(session):
        for step in (session.create_job("second"), session.ask("x").run()):
            with pytest.raises(StateError, match="another event loop"):
                await step

    with asyncio.Runner() as owner:
        ours, session = owner.run(borrow(mintlify_service))
        asyncio.run(use_here(session))
        owner.run(asyncio.sleep(0.05))  # a request that was queued by mistake would be sent now
        owner.run(session.close())
        owner.run(ours.close())
        assert len(mintlify_service.requests) == 1
