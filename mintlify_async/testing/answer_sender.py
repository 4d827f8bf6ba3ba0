"""Sends responses with aiohttp's server. A fault writes to the connection instead."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiohttp import web

from .faults import Fault
from .http_answer import Answer, Pause, let_client_read
from .raw_connection import RawWire


async def send_answer(http: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """Send *answer* as a correct HTTP response."""
    if answer.whole:
        whole_response = web.Response(status=answer.status, headers=answer.headers, body=answer.content)
        await whole_response.prepare(http)
        await whole_response.write_eof()
        return whole_response
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    if answer.chunked:
        response.enable_chunked_encoding()
    else:
        response.content_length = len(answer.content)
    await response.prepare(http)
    for piece in answer.body:
        if isinstance(piece, Pause):
            await asyncio.sleep(piece.seconds)
            await let_client_read()
        else:
            await response.write(piece)
            if answer.separate:
                await let_client_read()
    await response.write_eof()
    return response


async def play_fault(http: web.BaseRequest, fault: Fault, answer: Answer) -> web.StreamResponse:
    """Let *fault* write to the connection."""
    transport = http.transport
    if transport is None:
        raise ConnectionResetError("the client disconnected")
    await fault.play(RawWire(transport), answer)
    return NoResponse()


class NoResponse(web.StreamResponse):
    """Takes the place of a response whose connection is used up."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Make the server close the connection."""
        raise ConnectionResetError("this connection is used up")


class FaultyConnection(asyncio.Protocol):
    """A connection that fails before any request. The client's bytes are ignored.

    The task that plays the fault is added to *tasks*, so that the service can cancel it.
    """

    def __init__(self, fault: Fault, tasks: set[asyncio.Task[Any]]) -> None:
        self._fault, self._tasks = fault, tasks
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the fault."""
        # uvloop's transports behave like one, but do not inherit from asyncio's class.
        self._task = asyncio.create_task(self._play(cast(asyncio.Transport, transport)))
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    async def _play(self, transport: asyncio.Transport) -> None:
        try:
            await self._fault.play(RawWire(transport), Answer(status=503))
        finally:
            if not transport.is_closing():
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the fault."""
        if self._task is not None:
            self._task.cancel()
