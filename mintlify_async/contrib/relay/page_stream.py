"""The relay's response. It sends a growing log to a web page until the log ends or the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import anyio
from attrs import frozen
from starlette.responses import Response

from .page_events import KEEP_ALIVE
from .refusals import RelayRefusal

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .answer_logs import Log

FIRST_COMMENT = 5.0  # seconds without a first event (most refusals have come by then)
SILENCE = 15.0  # seconds between two comments in a silent answer, because proxies close silent connections
STALL = 60.0  # seconds that a page may take to accept a piece of the answer

BODY = {"type": "http.response.body", "body": b"", "more_body": True}
EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-vercel-ai-ui-message-stream", b"v1"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@frozen
class PageSource:
    """The log that a response sends.

    Attributes:
        log: The bytes.
        begun: Done when the first data is there. It may raise a refusal. None: start immediately.
        headers: The headers of the response.
    """

    log: Log
    begun: asyncio.Future[None] | None = None
    headers: Sequence[tuple[bytes, bytes]] = EVENT_STREAM


class PageStream(Response):
    """Sends a log to a page, or the refusal with which opening it ended.

    If nothing can be sent for 5 seconds, the status is 200 from then on, and a comment is sent, so that a
    proxy does not give up. The log then has the error.

    Args:
        opened: A block that gives the log, or raises a refusal. It is left when the response has ended.
    """

    def __init__(self, opened: AbstractAsyncContextManager[PageSource]) -> None:
        super().__init__()
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the log, and stop when the page leaves."""
        try:
            await first_of(lambda: self._send_log(send), lambda: gone(receive))
        except RelayRefusal as refusal:
            await refusal.response(scope["method"])(scope, receive, send)
        except OSError:
            pass  # the page has left, which other servers report in this way
        if self.background is not None:
            await self.background()

    async def _send_log(self, send: Send) -> None:
        current = asyncio.current_task()
        assert current is not None
        async with self._opened as source:
            comment = b""
            if source.begun is not None:
                begun, _ = await asyncio.wait([source.begun], timeout=FIRST_COMMENT)
                if begun:
                    source.begun.result()
                else:
                    comment = KEEP_ALIVE
            await send({"type": "http.response.start", "status": 200, "headers": source.headers})
            watch = Watch(source.log.wake, current.cancel)
            try:
                if comment:
                    await watch.during(send({**BODY, "body": comment}))
                place = 0
                while True:
                    frames, place = await source.log.read(place)
                    if frames is None:
                        break
                    if frames or watch.is_silent:
                        await watch.during(send({**BODY, "body": frames or KEEP_ALIVE}))
                await watch.during(send({**BODY, "body": b"", "more_body": False}))
            finally:
                watch.close()


class Watch:
    """Watches one response for silence, and for a client that accepts no data. An event moves no timer.

    Args:
        wake: Called when nothing was sent for :attr:`silence` seconds.
        end: Called when a piece was not accepted for a minute.
    """

    def __init__(self, wake: Callable[[], object], end: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self.silence = FIRST_COMMENT
        self._wake, self._end = wake, end
        self._now, self._call_at = loop.time, loop.call_at
        self._since = self._now()  # the last piece was started, or accepted
        self._sending = False
        self._timer = self._call_at(self._since + self.silence, self._look)

    @property
    def is_silent(self) -> bool:
        """Whether nothing was sent for :attr:`silence` seconds."""
        return self._now() - self._since >= self.silence

    async def during(self, sending: Awaitable[None]) -> None:
        """Await *sending*."""
        self._since, self._sending = self._now(), True
        await sending
        self._since, self._sending, self.silence = self._now(), False, SILENCE

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._now()
        due = self._since + (STALL if self._sending else self.silence)
        if now >= due:
            (self._end if self._sending else self._wake)()
            due = now + SILENCE
        self._timer = self._call_at(min(due, now + SILENCE), self._look)


async def gone(receive: Receive) -> None:
    """Return when the page has left. Servers of ASGI 2.4 report it only to a pending ``receive``."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(*steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run *steps* at the same time, each in a task, until the first has ended. Raise its error.

    An event wakes a separate task, so the frames of server and framework are not resumed.
    """
    tasks = [asyncio.create_task(step()) for step in steps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
