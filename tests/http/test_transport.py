"""One transport for a session: what it sends, which loop it serves, how it closes."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest
from secret_guard import Keys
from wire_kit import JOB

from mintlify_async import MintlifySession, NotFoundError
from mintlify_async.testing import LocalService

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
    given = {"user-agent": "mine/1", "ACCEPT": "x/y", "accept-encoding": "br", "content-type": "text/plain"}
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
    assert {name: dict(sent)[name] for name in (*map(str.lower, given), "authorization")} == {
        "user-agent": "mine/1",
        "accept": "x/y",
        "accept-encoding": "br",
        "content-type": "application/json",
        "authorization": f"Bearer {KEYS.admin}",
    }
