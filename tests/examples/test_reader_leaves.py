"""The page about FastAPI: a whole answer stops at the service when its reader leaves."""

import asyncio
import runpy
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from page_blocks import blocks_of

import mintlify_async
from tests.support.relay_kit import serving, until

pytestmark = pytest.mark.real
PAGE = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "fastapi.md"


async def test_a_reader_who_leaves_stops_the_answer(service, session, tmp_path):
    """The service sees its connection closed, though the answer would go on for an hour."""
    (block,) = [block for block in blocks_of(PAGE) if block.title == "reader.py"]
    (tmp_path / "reader.py").write_text(block.text, encoding="utf-8")
    while_connected = runpy.run_path(str(tmp_path / "reader.py"))["while_connected"]
    app = FastAPI()

    @app.get("/whole")
    async def whole(request: Request) -> str:
        return (await while_connected(request, session.ask("Hm").run())).text

    service.script.ask(events=[{"type": "start"}, 3600.0])
    async with serving(app) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: service.requests)
        writer.close()
        await writer.wait_closed()
        await until(lambda: service.requests[0].client_left)
