"""The body of an assistant's answer while it arrives, with the time limits for reading it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple, cast

import aiohttp

from ..errors import APIConnectionError, APITimeoutError, MintlifyError
from ..model.secret import Secret
from ..protocol.requests import Call
from ..runtime.per_event_loop import session_closed
from ..runtime.time_limits import TimeLimits
from .connection_errors import FOREIGN_ERRORS, summarize

_WORDS = {"first_event": "no event within", "idle": "no data for", "total": "not complete within"}


class Grace(NamedTuple):
    """Time to read after the announced end of an answer, in seconds."""

    quiet: float
    """Maximum time without another event."""
    total: float
    """Maximum total time, from the first read after the announced end."""


class LiveResponse:
    """The body of an assistant's answer while it arrives.

    Arriving data only moves the current limit, because a timer for each read would cost more than the read.

    Attributes:
        at: When the current limit passes, by the loop's time.
        status: The HTTP status, a success.
        headers: The headers of the response, with names in lower case.
        secret: The key that was sent. No error shows it, even if the body contains it.
        attempts: Number of times that the question was sent, up to this response.
        pending: Whether a task is reading.
        closed: Whether the connection was closed or returned to the pool.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        streams: TimeLimits[LiveResponse],
        call: Call,
        started: float,
        total_at: float,
        secret: Secret,
    ) -> None:
        """Read the body of *response*. The object stays in *streams* until it is closed.

        Args:
            response: The response, after its headers have arrived.
            streams: The open bodies of the session.
            call: The question.
            started: When the question was sent, by the loop's time.
            total_at: When the complete answer must have arrived, by the loop's time.
            secret: The key that was sent.
        """
        self.at = inf
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.secret = secret
        self.attempts = 1
        self.pending = False
        self.closed = False
        self._response = response
        self._streams = streams
        self._timeouts = call.timeouts
        self._seconds = call.seconds
        self._since = started  # when the current silence started
        self._events = 0
        self._silence = "first_event", call.timeouts.first_event  # the name and the length of this limit
        self._total_at = total_at
        self._failure: MintlifyError | None = None
        self._loop = asyncio.get_running_loop()
        self._connection_end = self._watch_connection()
        streams.add(self)

    async def read(self, events: int, grace: Grace | None = None) -> bytes:
        """Return the bytes that have arrived. Wait for at least one. ``b""`` is the proper end of the body.

        Cancelling the call loses no bytes.

        Args:
            events: The number of events read up to now. Another event ends a silence, but a comment may not.
            grace: The limits after the announced end of the answer.

        Raises:
            APITimeoutError: No event arrived for too long, or the answer took too long.
            APIConnectionError: The connection was lost, or the body's framing is invalid.
            StateError: The session was closed.
        """
        if self._failure is None:
            self._start_wait(events, grace)
            self.pending = True
            try:
                data = await self._response.content.readany()
            except FOREIGN_ERRORS as error:
                cause = summarize(error)
                if self._failure is None:
                    self._failure = _lost("the connection was lost in the middle of the answer")
                    self._failure.__cause__ = cause
            else:
                if not data:
                    self.close()  # aiohttp never returns an upgraded connection to the pool
                return data
            finally:
                self.pending = False
        data = self._salvage()
        if data:
            return data
        self.close()
        assert self._failure is not None
        raise self._failure from self._failure.__cause__

    def _start_wait(self, events: int, grace: Grace | None) -> None:
        """Move the limit for the next read."""
        now = self._loop.time()
        if grace is not None:
            self._silence = "idle", grace.quiet
            self._total_at = min(self._total_at, now + grace.total)
        elif events and not self._events:
            self._silence = "idle", self._timeouts.idle or inf
        if events != self._events or (events and grace is None and self._timeouts.comments_are_activity):
            self._since = now
        self._events = events
        at, total_at = self._since + self._silence[1], self._total_at
        self.at = at if at < total_at else total_at  # min() takes 800 of 165,000 instructions of an event
        if self.at < self._streams.due:
            self._streams.watch(self)

    def expire(self) -> None:
        """End the answer with a timeout error, because its limit has passed."""
        phase, seconds = self._silence
        if self._total_at <= self._loop.time():
            phase, seconds = "total", self._seconds
        if self.pending or phase == "total":
            text = f"ask: {_WORDS[phase]} {seconds:g} s ({phase} timeout)"
            self._fail(APITimeoutError(text, phase=phase, seconds=seconds, operation="ask"))

    def _watch_connection(self) -> asyncio.Future[None] | None:
        """When the connection ends, wake a waiting task that aiohttp does not wake.

        If the chunks of a body are malformed, aiohttp closes the connection without an error for the body.
        """
        connection = self._response.connection
        end = None if connection is None else getattr(connection.protocol, "closed", None)
        if end is not None:
            end.remove_done_callback(_look_at)
            end.add_done_callback(_look_at)  # one callback stays if the connection serves other requests
            end.add_done_callback(self._connection_ended)
        return end

    def _connection_ended(self, _: object) -> None:
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            self._fail(_lost("the connection ended in the middle of the answer"))

    def _salvage(self) -> bytes:
        """Return the bytes that aiohttp does not return after it has stored an error."""
        content = self._response.content
        # The signature does not allow None, but None clears the stored error. A test checks this.
        content.set_exception(cast(Any, None))
        try:
            return content.read_nowait()
        except FOREIGN_ERRORS:
            return b""

    def _fail(self, error: MintlifyError) -> None:
        self._failure = self._failure or error
        self.close()

    def close(self) -> None:
        """Close the connection immediately and wake the task that waits for data.

        Any task may call this method repeatedly.
        """
        self.closed = True
        self._streams.discard(self)
        if self._connection_end is not None:
            self._connection_end.remove_done_callback(self._connection_ended)
        self._response.close()

    def end(self) -> None:
        """Close the connection. Received bytes can still be read.

        After these bytes, reading raises an error that says who closed the connection.
        """
        self._fail(session_closed("ask"))

    def close_from_anywhere(self, *, report: bool) -> None:
        """Close from a finalizer, on any thread. With *report*, a loop in debug mode logs the response."""
        if self.closed or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self.close)
        if report and self._loop.get_debug():
            self._loop.call_exception_handler(
                {"message": "a mintlify_async Reply was left before its end; use `async with session.ask(…)`"}
            )


def _look_at(end: asyncio.Future[None]) -> None:
    if not end.cancelled():
        end.exception()  # mark as retrieved, otherwise asyncio logs it


def _lost(what: str) -> APIConnectionError:
    return APIConnectionError(f"ask: {what}", operation="ask")
