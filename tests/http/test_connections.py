"""Faults of connections: keys in frames, a process that stood still, half-open and idle connections."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from mintlify_async import (
    MintlifyError,
    MintlifySession,
    OutcomeUnknownError,
    RetryPolicy,
    UnexpectedResponseError,
)
from tests.support.fault_catalogue import ALL, POSTS, call

HERE = "127.0.0.1"
TABLE = Path("/proc/net/tcp")
needs_table = pytest.mark.skipif(not TABLE.exists(), reason="reads Linux's table of connections")


async def test_connections_are_kept_for_less_than_four_seconds(service):
    """A server closes an idle connection after five seconds or more: a question must not meet that moment."""
    async with service.session() as session:
        await session.ask("How do I log in?")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aiohttp.connector.monotonic", lambda: time.monotonic() + 4)
            await session.ask("How do I log in?")
    ports = {request.port for request in service.requests if request.operation == "ask"}
    assert len(ports) == 2


def connections_to(port):
    """For each connection to *port*, return its unsent bytes in the kernel, and whether it has a socket."""
    rows = [line.split() for line in TABLE.read_text().splitlines()[1:]]
    return [(int(row[4].split(":")[0], 16), row[9] != "0") for row in rows if row[2].endswith(f":{port:04X}")]


@needs_table
@pytest.mark.parametrize("status", [200, 413])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", ["create_job", "ask"])
async def test_an_early_answer_to_a_prompt_that_is_never_read_leaves_no_socket(
    mintlify_service, name, whole, status
):
    """What is not written when the answer ends, or the session closes, is given up as well."""
    prompt, taken = "x" * 6_000_000, asyncio.get_running_loop().create_future()
    kind = "text/event-stream" if name == "ask" else "application/json"
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {2 if whole else 9}\r\n\r\n{{}}"

    async def hasty(reader, writer):
        writer.transport.pause_reading()
        await asyncio.sleep(0.02)  # the prompt fills what the kernel takes
        writer.write(head.encode())
        taken.set_result(writer)

    async with await asyncio.start_server(hasty, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        session = mintlify_service.session(base_url=f"http://127.0.0.1:{port}", retry=RetryPolicy(attempts=1))
        calling = asyncio.create_task(asyncio.wait_for(getattr(session, name)(prompt), None))
        writer = await taken
        await (asyncio.wait([calling]) if whole else asyncio.sleep(0.02))
        if not whole:
            await session.close()
        with pytest.raises(MintlifyError):
            await calling
        for _ in range(50):
            await asyncio.sleep(0)
        left = [owned for _, owned in connections_to(port) if owned]
        writer.transport.abort()
        await session.close()
    assert left == []


UPGRADES = {
    "101": "101 Switching Protocols",
    "200": "200 OK",  # aiohttp's parser in pure Python upgrades the connection of any status
}


@pytest.mark.parametrize("status", UPGRADES)
@pytest.mark.parametrize("operation", ALL)
async def test_an_answer_that_changes_the_protocol_is_none_and_closes_its_connection(
    mintlify_service, operation, status
):
    """A question, a look and an agent POST that get one fail, and the session keeps no connection of them."""
    head = f"HTTP/1.1 {UPGRADES[status]}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    closed: list[asyncio.Event] = []

    async def switch(reader, writer):
        closed.append(ended := asyncio.Event())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{head}{'' if status == '101' else 'Content-Length: 0'}\r\n\r\n".encode())
        while await reader.read(65_536):
            pass
        writer.close()
        ended.set()

    expected = OutcomeUnknownError if operation in POSTS else UnexpectedResponseError
    async with await asyncio.start_server(switch, HERE, 0) as server:
        url = f"http://{HERE}:{server.sockets[0].getsockname()[1]}"
        retry = RetryPolicy(attempts=1)
        async with mintlify_service.session(base_url=url, retry=retry) as session:
            with pytest.raises(expected if status == "101" else MintlifyError) as caught:
                await call(session, operation)
            if status == "101":
                assert "status 101 is not an answer" in str(caught.value)
                await asyncio.wait_for(asyncio.gather(*(one.wait() for one in closed)), 5)
    assert len(closed) == 1


@needs_table
@pytest.mark.parametrize("size", [300_000, 8_000_000])
@pytest.mark.parametrize("how", ["limit", "cancelled", "closed"])
async def test_an_upload_to_a_server_that_never_reads_leaves_nothing_in_the_kernel(size, how):
    """Closing the socket leaves what was not sent with the kernel, which tries for minutes to send it."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind((HERE, 0))
    listener.listen()
    port = listener.getsockname()[1]
    session = MintlifySession(
        base_url=f"http://{HERE}:{port}", admin_key="mint_test_admin_key", project_id="docs"
    )
    with listener:
        async with session:
            timeout = 2.0 if how == "limit" else None
            task = asyncio.ensure_future(session.create_job("x" * size, timeout=timeout))
            if how != "limit":
                while not any(unsent for unsent, _ in connections_to(port)):
                    await asyncio.sleep(0.01)
                task.cancel() if how == "cancelled" else await session.close()
            with pytest.raises((OutcomeUnknownError, asyncio.CancelledError)):
                await task
        await asyncio.sleep(0.05)
        assert not any(unsent for unsent, _ in connections_to(port))
