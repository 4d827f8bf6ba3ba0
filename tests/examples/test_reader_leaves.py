"""The page about FastAPI: an answer stops at the service when its reader leaves."""

import asyncio
import runpy
import socket
from pathlib import Path
from typing import Annotated, Any

import pytest
from aiohttp import web
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


@pytest.mark.parametrize("path", ["/stream", "/whole"])
async def test_aiohttp_web_cancels_the_handler_if_it_is_told_to(path):
    """With the option that the page names, the service sees its connection closed."""
    async with LocalService() as service, service.session() as session:
        service.script.ask(events=[*BEGIN, *WORDS, AN_HOUR])

        async def stream(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            async with session.ask("Hm") as reply:
                await response.prepare(request)
                async for text in reply.text_stream:
                    await response.write(text.encode())
            return response

        async def whole(request: web.Request) -> web.Response:
            return web.Response(text=(await session.ask("Hm")).text)

        app = web.Application()
        app.add_routes([web.get("/stream", stream), web.get("/whole", whole)])
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await web.SockSite(runner, listener).start()
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await service.until(lambda service: service.answering)
            writer.close()
            await writer.wait_closed()
            await service.until(lambda service: service.requests[0].client_left)
            await runner.cleanup()
