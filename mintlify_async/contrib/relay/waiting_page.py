"""Keeps a page's connection open while the assistant has not begun its answer.

Proxies give up when the first byte does not come within some time, often 30 seconds. Once it is sent, the
status is 200: what goes wrong later can only be an ``error`` event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

from .answer import FIRST_COMMENT, HEADERS, AnswerSettings
from .page_events import DONE, KEEP_ALIVE, frame
from .refusals import FAILED
from .side_tasks import SideTasks

if TYPE_CHECKING:
    from starlette.types import Message as ASGIMessage
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("mintlify_async.relay")

LINGER = 1.0  # seconds in which the rest of an upload that was refused is thrown away


class WaitingResponse(Response):
    """Sends the response that *answer* makes, and comments until then.

    Args:
        answer: Makes the response. It calls its argument when the question is sent: from then, time counts.
        settings: ``keep_alive`` None means no comments.
    """

    def __init__(
        self, answer: Callable[[Callable[[], object]], Awaitable[Response]], settings: AnswerSettings
    ) -> None:
        super().__init__()
        self.raw_headers: list[tuple[bytes, bytes]] = []  # those that the app adds, for instance a cookie
        self._answer = answer
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the answer, commenting after a while, and send it."""
        sender = _Sender(send, self.raw_headers)
        response = await self._wait(sender)
        if response.headers.get("connection") == "close" and not sender.started:
            await response(scope, receive, partial(self._linger, receive, sender.send_whole))
        elif not sender.started:
            await response(scope, receive, sender.send_whole if self.raw_headers else send)
        elif response.status_code == 200:
            await response(scope, receive, sender.send_rest)
        else:
            await sender.fail(bytes(response.body).decode())
        if self.background is not None:
            await self.background()

    async def _wait(self, sender: _Sender) -> Response:
        clock, keep_alive = self._settings.clock, self._settings.keep_alive
        beside, loop = SideTasks(), asyncio.get_running_loop()

        def asked() -> None:
            if keep_alive is not None:
                comment = partial(self._comment, sender, keep_alive)
                # In the next turn of the loop: the question is still made in this one, which takes its time.
                loop.call_soon(beside.start_after, clock, min(FIRST_COMMENT, keep_alive), comment)

        try:
            async with beside:
                try:
                    return await self._answer(asked)
                finally:
                    async with sender.sending:  # a comment is sent whole
                        pass
        except Exception as error:
            return await self._failed(sender, error)

    async def _linger(self, receive: Receive, send: Send, message: ASGIMessage) -> None:
        """Send *message*; before the end, read on: a close in mid-upload would take the refusal with it."""
        if message["type"] == "http.response.body":
            await send({**message, "more_body": True})
            clock = self._settings.clock
            with suppress(TimeoutError):
                async with clock.deadline(clock.now() + LINGER):
                    while (await receive()).get("more_body"):
                        pass
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    async def _failed(self, sender: _Sender, failure: Exception) -> Response:
        """Return the response for an error in the app's own code; raise it for the app, if it can."""
        if not sender.started:
            raise failure
        if isinstance(failure, HTTPException):
            return Response(failure.detail, failure.status_code)
        await sender.fail(FAILED)
        raise failure  # for the server's log

    async def _comment(self, sender: _Sender, keep_alive: float) -> None:
        with suppress(OSError):  # the reader has left; the code that reads its messages notices
            while True:
                await sender.comment()
                await self._settings.clock.sleep(keep_alive)


class _Sender:
    """Sends the head of a response once: with the first comment, or with the response."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.started = False
        self.sending = asyncio.Lock()

    async def comment(self) -> None:
        async with self.sending:
            if not self.started:
                self.started = True
                await self.send_whole({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def send_whole(self, message: ASGIMessage) -> None:
        if self._headers and message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *self._headers]}
        await self._send(message)

    async def send_rest(self, message: ASGIMessage) -> None:
        if message["type"] != "http.response.start":
            await self._send(message)

    async def fail(self, text: str) -> None:
        """End the stream with an error event: its status can no longer say that something went wrong."""
        ending = frame({"type": "error", "errorText": text}) + DONE
        await self._send({"type": "http.response.body", "body": ending, "more_body": False})
