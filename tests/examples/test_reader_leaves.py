"""The page about FastAPI: an answer stops at the service when its reader leaves."""

import asyncio
import runpy
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from page_blocks import blocks_of

import mintlify_async
from mintlify_async import MintlifySession, Reply
from mintlify_async.testing import LocalService
from tests.support.relay_kit import serving

pytestmark = pytest.mark.real
PAGE = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "fastapi.mdx"
WORDS = [{"type": "text-delta", "id": "t", "delta": "word "}]
BEGIN = [{"type": "start"}, {"type": "text-start", "id": "t"}]
AN_HOUR = 3600.0


def recipe(folder: Path) -> Any:
    """Import the function as the page prints it."""
    (block,) = [block for block in blocks_of(PAGE) if block.title == "reader.py"]
    (folder / "reader.py").write_text(block.text, encoding="utf-8")
    return runpy.run_path(str(folder / "reader.py"))["while_connected"]


def app_of(session: MintlifySession, while_connected: Any) -> FastAPI:
    app = FastAPI()

    async def opened(q: str):
        async with session.ask(q) as reply:
            yield reply

    @app.get("/stream")
    async def stream(reply: Annotated[Reply, Depends(opened)]) -> StreamingResponse:
        return StreamingResponse(reply.text_stream)

    @app.get("/whole")
    async def whole(q: str, request: Request) -> str:
        return (await while_connected(request, session.ask(q).run())).text

    return app


@pytest.mark.parametrize(
    ("path", "events", "shown"),
    [
        ("/stream", [*BEGIN, AN_HOUR], b""),
        ("/stream", [*BEGIN, *WORDS, AN_HOUR], b"word"),
        ("/whole", [*BEGIN, *WORDS, AN_HOUR], b""),
    ],
    ids=["before the first word", "in the middle", "while the whole answer is awaited"],
)
async def test_a_reader_who_leaves_stops_the_answer(path, events, shown, tmp_path):
    """The service sees its connection closed, though the answer would go on for an hour."""
    async with LocalService() as service, service.session() as session:
        service.script.ask(events=events)
        async with serving(app_of(session, recipe(tmp_path))) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(f"GET {path}?q=Hm HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if shown:
                await reader.readuntil(shown)
            await service.until(lambda service: len(service.requests) == 1)
            writer.close()
            await writer.wait_closed()
            await service.until(lambda service: service.requests[0].client_left)
