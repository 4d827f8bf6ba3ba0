"""The body of an assistant's answer while it arrives, with the limits on waiting for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, cast

import aiohttp

from ..errors import APIConnectionError, APITimeoutError, CauseSummary, MintlifyError, StateError
from ..protocol.secret import Secret
from ..runtime.cancellation import LATE, ONE_TURN
from ..runtime.clock import Clock, Timer
from ..runtime.per_event_loop import process_forked, session_closed
from .failures import FOREIGN_ERRORS, summarize
from .timeouts import Timeouts

LONGEST_LOOK = 120.0  # seconds until a dead connection is noticed that aiohttp does not report


class LiveResponse:
    """The body of an assistant's answer, while it arrives.

    A timer is set for the moment when the present limit is due. Data that arrives only moves that limit:
    the timer looks at it when it goes off, and is set again. A timer per read would cost more than the read.

    Attributes:
        status: The HTTP status, a success.
        headers: The answer's headers, looked up in lower case.
        pending: Whether a task is reading.
        waiting_first: Whether the limit on the first event applies, instead of the one on silence.
        still_quiet: Whether what arrived last does not end a silence.
        quiet_limit: The limit on silence after the announced end, in seconds, or None.
        secret: The key that was sent, which the body may repeat; no error shows it.
        taken: How many bytes were read.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        streams: set[LiveResponse],
        clock: Clock,
        timeouts: Timeouts,
        started: float,
        total_at: float | None,
        secret: Secret,
    ) -> None:
        """Take over *response*: asked at *started*, and all must be there at *total_at* (None: never).

        Until it is closed, it is one of *streams*.
        """
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.waiting_first = True
        self.still_quiet = False
        self.quiet_limit: float | None = None
        self.secret = secret
        self.taken = 0
        self.pending = False
        self._response = response
        self._content = response.content
        self._streams = streams
        self._clock = clock
        self._timeouts = timeouts
        self._started = started
        self._total_at = total_at
        self._since = started  # when the present silence began
        self._failure: tuple[MintlifyError, CauseSummary | None] | None = None
        self._closing: StateError | None = None
        self._closed = False
        self._timer: Timer | None = None
        self._due = 0.0  # when the timer goes off
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        streams.add(self)

    def check_process(self) -> None:
        """Raise StateError in a process that was forked from the one that opened the connection."""
        if self._pid != os.getpid():
            raise process_forked()

    async def read(self) -> bytes:
        """Return what has arrived, waiting for at least one byte; ``b""`` is the body's clean end.

        Cancelling it loses nothing.

        Raises:
            APITimeoutError: Silence for too long, or the whole took too long.
            APIConnectionError: The connection was lost, or the body's framing is broken.
        """
        if self._failure is not None:
            self._raise_failure()
        now = self._clock.now()
        if self._total_at is not None and now >= self._total_at:
            self._give_up("total", self._timeouts.total or 0.0)
            self._raise_failure()
        if not self.still_quiet:
            self._since = now
        if self._timer is None:
            self._set_timer(now, self._next_limit()[2])
        self.pending = True
        try:
            data = await self._content.readany()
        except FOREIGN_ERRORS as error:
            data = self._salvage(error)
        finally:
            self.pending = False
        if not data:
            if self._failure is not None:
                self._raise_failure()
            self._finish()
        self.taken += len(data)
        return data

    def grace(self, quiet: float, total: float) -> None:
        """Wait at most *quiet* seconds for each further event, and *total* from the first call for all."""
        self.quiet_limit = quiet
        end = self._clock.now() + total
        if self._total_at is None or end < self._total_at:
            self._total_at = end
        self._cancel_timer()  # the next read sets a nearer one

    def close(self) -> None:
        """Close the connection at once and wake a reader that waits. Safe to repeat, from any task."""
        if not self._closed:
            self._finish()
            if self._pid == os.getpid():  # in a forked child, the connection is the parent's
                self._response.close()

    def close_with_session(self) -> None:
        """Close the connection; what had arrived can be read, and then the error says who closed it."""
        self._closing = session_closed("ask")
        self.close()

    def close_from_anywhere(self, *, report: bool) -> None:
        """Close from a finalizer, which may run on any thread; *report* tells a loop in debug mode."""
        if self._closed or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self.close)
        if report and self._loop.get_debug():
            self._loop.call_exception_handler(
                {"message": "a mintlify_async Reply was left before its end; use `async with session.ask(…)`"}
            )

    @property
    def closed(self) -> bool:
        """Whether the connection was closed or given back."""
        return self._closed

    def _set_timer(self, now: float, due: float | None) -> None:
        # The limit on silence begins with the next data, whatever limit applies now.
        look = now + max(ONE_TURN, min(LONGEST_LOOK, self._timeouts.idle or LONGEST_LOOK))
        self._due = look if due is None or look < due else due
        self._timer = self._clock.call_at(self._due, self._time_came)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_came(self) -> None:
        now = self._clock.now()
        if now - self._due > LATE:
            # The loop was blocked: data that has arrived is read before any limit is checked.
            self._timer = self._clock.call_at(now + ONE_TURN, self._check_limits)
        else:
            self._check_limits()

    def _check_limits(self) -> None:
        """Give up when a limit has passed or the connection is dead; else set the timer again."""
        self._timer = None
        if not self.pending:  # the next read sets it
            return
        now = self._clock.now()
        phase, limit, due = self._next_limit()
        connection = self._response.connection
        if connection is not None and (connection.transport is None or connection.transport.is_closing()):
            # aiohttp's C parser never wakes the reader of a body whose chunks are malformed.
            lost = APIConnectionError("ask: the connection died in the middle of the answer", operation="ask")
            self._fail(lost)
        elif due is not None and now >= due:
            self._give_up(phase, limit)
        else:
            self._set_timer(now, due)

    def _next_limit(self) -> tuple[str, float, float | None]:
        """Return the limit that is due next: its phase, its seconds and when it is due."""
        due: float | None
        if self.quiet_limit is not None:
            phase, limit, due = "idle", self.quiet_limit, self._since + self.quiet_limit
        elif self.waiting_first:
            limit = self._timeouts.first_event
            phase, due = "first_event", self._started + limit
        elif self._timeouts.idle is not None:
            phase, limit, due = "idle", self._timeouts.idle, self._since + self._timeouts.idle
        else:
            phase, limit, due = "total", 0.0, None
        if self._total_at is not None and (due is None or self._total_at < due):
            return "total", self._timeouts.total or 0.0, self._total_at
        return phase, limit, due

    def _give_up(self, phase: str, limit: float) -> None:
        words = {"first_event": "no event within", "idle": "no data for", "total": "not complete within"}
        error = APITimeoutError(
            f"ask: {words[phase]} {limit:g} s ({phase} timeout)",
            phase=phase,
            seconds=limit,
            operation="ask",
        )
        self._fail(error)

    def _fail(self, error: MintlifyError) -> None:
        if self._failure is None:
            self._failure = (error, None)
        self.close()

    def _salvage(self, error: BaseException) -> bytes:
        """Return the bytes that aiohttp holds back once it has an error to raise."""
        cause = summarize(error)
        if self._failure is None:
            lost = APIConnectionError(
                "ask: the connection was lost in the middle of the answer", operation="ask"
            )
            self._failure = (lost, cause) if self._closing is None else (self._closing, None)
        # None is not in its signature, but clears the stored error; a test pins that.
        self._content.set_exception(cast(Any, None))
        try:
            return self._content.read_nowait()
        except FOREIGN_ERRORS:
            return b""

    def _raise_failure(self) -> None:
        assert self._failure is not None
        error, cause = self._failure
        self._finish()
        self._response.close()
        raise error from cause

    def _finish(self) -> None:
        self._closed = True
        self._streams.discard(self)
        self._cancel_timer()
