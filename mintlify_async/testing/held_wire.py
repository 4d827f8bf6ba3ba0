"""A proxy that holds back one message to a server. It delivers the message even after the client has gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class HeldWire:
    """A TCP proxy on loopback.

    Args:
        host: The server's host.
        port: The server's port.

    Attributes:
        port: The proxy's port, while it is open.
        is_holding: Whether a message was held back since the last :meth:`hold`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._tasks = set[asyncio.Task[None]]()
        self._skip = -1  # the number of messages before the one to hold back
        self._seconds = 0.0
        self._delivered = asyncio.Event()
        self.port = 0
        self.is_holding = False

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hold(self, skip: int, seconds: float) -> None:
        """Let *skip* messages pass, on any connection, and hold back the next message for *seconds*."""
        self._skip, self._seconds, self.is_holding = skip, seconds, False
        self._delivered.clear()

    async def delivered(self) -> None:
        """Wait until the held message was sent to the server."""
        if self.is_holding:
            await self._delivered.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._server)
        for copy in (self._copy(reader, there_writer, may_hold=True), self._copy(there_reader, writer)):
            task = asyncio.create_task(copy)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_hold: bool = False
    ) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(65536):
                    if may_hold and self._is_next():
                        await asyncio.sleep(self._seconds)
                        writer.write(data)
                        self._delivered.set()
                    else:
                        writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    def _is_next(self) -> bool:
        self._skip -= 1
        if self._skip == -1:
            self.is_holding = True
        return self._skip == -1
