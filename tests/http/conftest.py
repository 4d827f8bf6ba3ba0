"""A server that never says a word, for the tests of connecting."""

from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
async def silent_url():
    """The https URL of a server that takes connections: a TLS handshake with it never ends."""

    async def listen(reader, writer):
        try:
            await reader.read(-1)
        finally:
            writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
