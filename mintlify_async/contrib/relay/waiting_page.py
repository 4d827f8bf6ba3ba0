"""Keeps a page's connection open while the assistant has not begun its answer.

Proxies give up when the first byte does not come within some time, often 30 seconds. Once it is sent, the
status is 200: what goes wrong later can only be an ``error`` event.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from starlette.exceptions import HTTPException
from starlette.responses import Response

from .answer import FIRST_COMMENT, HEADERS, AnswerSettings
from .page_events import DONE, KEEP_ALIVE, frame
from .refusals import FAILED

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
        asked = anyio.Event()
        response: Response | None = None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            if self._settings.keep_alive is not None:
                tasks.start_soon(self._comment, sender, asked, self._settings.keep_alive)
            try:
                response = await self._answer(asked.set)
            except Exception as error:
                failure = error  # raised below: the task group would wrap it in an ExceptionGroup
            async with sender.sending:  # a comment is sent whole
                tasks.cancel_scope.cancel()
        if response is None:
            assert failure is not None
            return await self._failed(sender, failure)
        return response

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

    async def _comment(self, sender: _Sender, asked: anyio.Event, keep_alive: float) -> None:
        await asked.wait()
        seconds = min(FIRST_COMMENT, keep_alive)
        while True:
            await self._settings.clock.sleep(seconds)
            try:
                await sender.comment()
            except OSError:  # the reader has left; the code that reads its messages notices
                return
            seconds = keep_alive


class _Sender:
    """Sends the head of a response once: with the first comment, or with the response."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.started = False
        self.sending = anyio.Lock()

    async def comment(self) -> None:
        async with self.sending:
            if not self.started:
                self.started = True
                head = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                await self.send_whole({"type": "http.response.start", "status": 200, "headers": head})
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
