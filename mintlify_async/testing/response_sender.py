"""Sends responses on the connections of aiohttp's server. It writes all bytes, so faults are exact."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiohttp import web

from .connection_faults import Fault
from .http_response import Answer, Pause
from .raw_connection import end, framed, head, send


class Sent(web.StreamResponse):
    """Replaces a response that was already written to the connection.

    Args:
        keep_alive: Whether the connection can take another request.
    """

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing."""


async def send_answer(http: web.BaseRequest, answer: Answer, fault: Fault | None = None) -> Sent:
    """Send *answer*, or the pieces that *fault* makes from it.

    Raises:
        ConnectionResetError: The client has disconnected.
    """
    transport = http.transport
    if transport is None:
        raise ConnectionResetError("the client disconnected")
    if fault is not None:
        await send(transport, fault.pieces(answer), separately=True)
        await end(transport, fault.how)
        return Sent(keep_alive=False)
    first = head(answer, closes=not http.keep_alive)
    if answer.chunked or any(isinstance(piece, Pause) for piece in answer.body):
        await send(transport, [first, *framed(answer.body, chunked=answer.chunked, ended=True)])
    else:
        await send(transport, [first + answer.content])
    return Sent(keep_alive=http.keep_alive)


class FaultyConnection(asyncio.Protocol):
    """A connection that fails before any request. It ignores the client's bytes.

    The task of the fault is added to *tasks*, so that the service can cancel it.
    """

    def __init__(self, fault: Fault, tasks: set[asyncio.Task[Any]]) -> None:
        self._fault, self._tasks = fault, tasks
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the fault."""
        # uvloop's transports have the same methods, but do not inherit from asyncio's class.
        self._task = asyncio.create_task(self._play(cast(asyncio.Transport, transport)))
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    async def _play(self, transport: asyncio.Transport) -> None:
        try:
            await send(transport, self._fault.pieces(Answer(status=503)), separately=True)
            await end(transport, self._fault.how)
        finally:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the fault."""
        if self._task is not None:
            self._task.cancel()
