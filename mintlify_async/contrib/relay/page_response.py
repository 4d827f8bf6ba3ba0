"""The relay's response. It sends a growing log to a web page until the log ends or the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response

from mintlify_async.runtime.time_limits import TimeLimit

from .page_events import KEEP_ALIVE
from .refusal_texts import RelayRefusal, log_refusal

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .answer_log import Log

FIRST_COMMENT = 5.0  # seconds without a first event (most refusals come earlier)
SILENCE = 15.0  # seconds between two comments in a silent answer, because proxies close silent connections
STALL = 60.0  # maximum seconds for a page to accept a piece of the answer

EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-vercel-ai-ui-message-stream", b"v1"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class PageResponse(Response):
    """Sends a log to a page. If opening the log ended with a refusal, sends the refusal.

    The status is sent with the first data. Without data for 5 seconds, the status is 200, and a comment is
    sent, so that a proxy keeps the connection. A later error is then in the log.

    Args:
        opened: A block whose value is the log, or which raises a refusal. It ends after the response.
        headers: The headers of the response.
    """

    def __init__(
        self,
        opened: AbstractAsyncContextManager[Log],
        headers: Sequence[tuple[bytes, bytes]] = EVENT_STREAM,
    ) -> None:
        super().__init__()
        self._opened = opened
        self._start = {"type": "http.response.start", "status": 200, "headers": headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the log, and stop if the client disconnects."""
        async with anyio.create_task_group() as group:

            async def send_all() -> None:
                try:
                    await self._send_log(send)
                except RelayRefusal as refusal:
                    await refusal.response(scope["method"])(scope, receive, send)
                except OSError:
                    pass  # the page accepts no data, or has disconnected (on some servers)
                group.cancel_scope.cancel()

            async def gone() -> None:  # with ASGI 2.4, only a pending receive() reports a disconnect
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            # Each runs in a separate task, so that an event does not wake the frames of server and framework.
            group.start_soon(send_all)
            group.start_soon(gone)
        if self.background is not None:
            await self.background()

    async def _send_log(self, send: Send) -> None:
        time = asyncio.get_running_loop().time
        place, started, reading = 0, False, False
        frames: bytes | None = b""
        async with self._opened as log:
            while frames is not None:
                now = time()
                try:
                    with TimeLimit(now + STALL) as limit:  # each step only moves the limit
                        while frames is not None:
                            if reading:  # the time of the last read is over
                                frames, reading = KEEP_ALIVE, False
                            else:
                                reading = True
                                limit.move(time() + (SILENCE if started else FIRST_COMMENT))
                                frames, place = await log.read(place)
                                reading = False
                                now = time()
                                limit.at = now + STALL  # this only extends the limit, so its timer stays
                            if not started:
                                if log.refusal is not None:
                                    raise log.refusal
                                await send(self._start)
                                started = True
                            more = frames is not None
                            await send(
                                {"type": "http.response.body", "body": frames or b"", "more_body": more}
                            )
                except TimeoutError:
                    if not reading:
                        raise
            if log.refusal is not None:
                log_refusal(log.refusal)  # after the first comment, the page gets it as an event
