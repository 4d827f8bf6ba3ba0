"""The only room that knows aiohttp: a ``Request`` goes out, an ``Answer`` or a live body comes back.

Every failure of aiohttp becomes one of our errors here, once, with what could be
known of it: whether anything was sent, which limit ran out. aiohttp's own errors
are never chained, because their ``repr`` shows the request's headers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import platform
import ssl as ssl_module
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from http.cookies import BaseCookie
from typing import Any, Literal, TypeVar, cast

import aiohttp
import yarl
from aiohttp import hdrs, payload
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from attrs import define, field
from multidict import CIMultiDict

from .aiohttp_version import log_known_flaw
from .clock import Clock, Timer
from .errors import (
    APIConnectionError,
    APITimeoutError,
    CauseSummary,
    ConfigurationError,
    MintlifyError,
    StateError,
    UnexpectedResponseError,
    printable,
)
from .protocol import Answer, Request, lower_headers
from .scopes import Scope
from .timeouts import Timeouts
from .version import __version__

__all__ = ["LiveResponse", "Transport", "TransportSettings"]

ANSWER_MAX_BYTES = 4 * 1024 * 1024  # a job's record has a dozen short fields
ERROR_MAX_BYTES = 64 * 1024  # the beginning of an error page says what it says
ERROR_SECONDS = 2.0  # a stalled error page is not waited for
WRITE_BYTES = 64 * 1024
WATCH_AT_ONCE = 100  # bodies looked at in one step of the loop: a fraction of a millisecond
WATCH_SECONDS = 0.5  # how soon a dead connection is noticed that aiohttp does not report

log = logging.getLogger("mintlify_async")

T = TypeVar("T")
USER_AGENT = f"mintlify-async/{__version__} Python/{platform.python_version()} aiohttp/{aiohttp.__version__}"

# aiohttp's own names: it makes one of each other string.
COMMON_HEADERS = {
    hdrs.ACCEPT_ENCODING: "identity",  # compressed answers arrive late and can be bombs
    hdrs.USER_AGENT: USER_AGENT,
}

# What aiohttp and asyncio raise when a request fails; anything else is a defect and passes.
# HttpProcessingError is what the parser in pure Python raises while a body is read.
FOREIGN_ERRORS = (
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    TimeoutError,
    RuntimeError,
    ValueError,
    EOFError,
)


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class TransportSettings:
    """How connections are made; the same for every loop.

    Args:
        base_url: Checked, without a trailing slash.
        client_session: A borrowed aiohttp session, or None for our own.
        proxy: A proxy's URL.
        ssl: A context for verification, or None for the default.
        trust_env: Whether proxies are taken from the environment.
    """

    base_url: str
    client_session: aiohttp.ClientSession | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)
    ssl: ssl_module.SSLContext | None = None
    trust_env: bool = False


class Secret(str):
    """A header's value that is not shown by ``repr``: containers and tracebacks print that."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show no character of it."""
        return "'****'"


class _Body(payload.Payload):
    """A request's body that knows whether any byte of it was handed to a live connection."""

    _default_content_type = "application/json"

    def __init__(
        self,
        value: bytes,
        clock: Clock | None = None,
        limit: Scope | None = None,
    ) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self._clock = clock
        self._limit = limit  # on connecting, which is over when this is written
        self.sent_at: float | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return cast(bytes, self._value).decode(encoding, errors)

    def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> Any:
        return self.write(writer)  # not in a coroutine of its own

    async def write(self, writer: AbstractStreamWriter) -> None:
        # aiohttp holds the request's headers back until the first byte of the body
        # is written, so before this point the server has seen nothing.
        if self._limit is not None:
            if self._limit.ended:  # this runs in a task of its own, a step after that one was cancelled
                raise ConnectionAbortedError("the limit came before the first byte")
            self._limit.begun = True
        transport = getattr(writer, "transport", None)
        if transport is None or not transport.is_closing():
            self.sent_at = self._clock.wall() if self._clock is not None else 0.0
        value = cast(bytes, self._value)
        if len(value) <= WRITE_BYTES:
            await writer.write(value)
        else:
            view = memoryview(value)
            for start in range(0, len(view), WRITE_BYTES):
                await writer.write(view[start : start + WRITE_BYTES])


class _NoCookies(aiohttp.DummyCookieJar):
    """No cookies, and the same none for each request: aiohttp's jar makes an object for them."""

    def filter_cookies(self, request_url: yarl.URL) -> BaseCookie[str]:
        return _NONE


_NONE: BaseCookie[str] = BaseCookie()


class Transport:
    """The connections of one event loop.

    Agent POSTs go out on a connection of their own, because a connection kept
    alive may be closed by the server at the very moment it is used again, and then
    nobody knows whether the request was taken.
    """

    __slots__ = (
        "_clock",
        "_closed",
        "_fresh",
        "_headers_made",
        "_keep",
        "_live",
        "_settings",
        "_waits",
        "_watch",
    )

    def __init__(self, settings: TransportSettings, clock: Clock) -> None:
        """Open nothing yet."""
        log_known_flaw(aiohttp.__version__)
        self._settings = settings
        self._clock = clock
        self._keep: aiohttp.ClientSession | None = settings.client_session
        self._fresh: aiohttp.ClientSession | None = settings.client_session
        self._live: set[LiveResponse] = set()
        self._watch = _Watch(clock, self._live)
        self._closed = False
        self._waits: set[Scope] = set()
        self._headers_made: dict[str, tuple[Secret, CIMultiDict[str]]] = {}

    async def unless_closed(self, step: Awaitable[T]) -> T:
        """Wait for *step*, which sends nothing.

        Raises:
            StateError: This was closed meanwhile; *step* was cancelled.
        """
        waiting = Scope()
        try:
            with waiting:
                self._waits.add(waiting)
                return await step
        except TimeoutError:
            if not waiting.ended:
                raise
        finally:
            self._waits.discard(waiting)
        raise StateError("this session was closed meanwhile; make a new one")

    async def send(
        self, request: Request, key: str, timeouts: Timeouts, deadline: float | None
    ) -> LiveResponse | Answer:
        """Send *request*; return the answer, live when it is a question's success.

        Raises:
            APIConnectionError: No answer, or not all of it; ``.sent`` says what went out.
            APITimeoutError: The same, because *deadline* or the limit on a question's first event passed,
                or connecting took too long.
            UnexpectedResponseError: The answer is too large.
            StateError: The borrowed aiohttp session or the loop is closed.
        """
        started = self._clock.now()
        by, limit, phase = _limit_on(request, timeouts, started, deadline)
        session = self._session(request)
        scope, connect = self._limits(request, by, started, timeouts)
        body: _Body | None = None
        if request.body is not None:
            body = _Body(request.body, self._clock, scope)
        try:
            with scope:
                response = await session.request(
                    request.method,
                    _url(self._settings.base_url + request.path),
                    data=body,
                    headers=self._headers(request, key),
                    allow_redirects=False,
                    raise_for_status=False,
                    proxy=self._settings.proxy,
                    ssl=self._settings.ssl or True,
                    timeout=connect,
                )
        except FOREIGN_ERRORS as error:
            if scope.ended_early and isinstance(error, TimeoutError):
                summarize(error)  # which lets it go; the name is taken again, so that no frame shows either
                error = aiohttp.ConnectionTimeoutError(
                    f"Connection timeout to host {self._settings.base_url}"
                )
            failure = _translate(error, request, body, timeouts, limit, phase)
            cause = summarize(error)
        except asyncio.CancelledError:
            if request.is_agent_post and body is not None and body.sent_at is not None:
                log.warning("%s was cancelled after it was sent: it may have been done", request.operation)
            raise
        else:
            if request.operation == "ask" and 200 <= response.status < 300:
                return self._live_response(response, key, timeouts, started, deadline)
            return _at_hand(response) or await self._whole(request, response, by, timeouts)
        if isinstance(failure, APIConnectionError) and body is not None:
            failure.sent_at = body.sent_at
        raise failure from cause

    def _limits(
        self, request: Request, by: float | None, started: float, timeouts: Timeouts
    ) -> tuple[Scope, aiohttp.ClientTimeout]:
        """Return what ends a request at *by*, and sooner while it is not connected; and aiohttp's own limits.

        A body tells when it is written, so that one timer does for both. A request without one leaves
        connecting to aiohttp, which sets a timer of the loop for it: a fiftieth of what opening a stream
        takes. So do those where something else goes before it: a borrowed session's middlewares, and
        the look for a proxy in the environment.
        """
        settings = self._settings
        if request.body is None or settings.client_session is not None or settings.trust_env:
            return Scope(self._clock, by), _connect_timeout(timeouts.connect)
        return Scope(self._clock, by, started + timeouts.connect), _connect_timeout(math.inf)

    def _live_response(
        self,
        response: aiohttp.ClientResponse,
        key: str,
        timeouts: Timeouts,
        started: float,
        deadline: float | None,
    ) -> LiveResponse:
        made = self._headers_made.get("ask")
        # One object for all streams that were asked for with this key.
        secret = made[0] if made is not None and made[0] == key else Secret(key)
        live = LiveResponse(response, self._watch, timeouts, started, deadline, secret)
        self._live.add(live)
        return live

    def _headers(self, request: Request, key: str) -> CIMultiDict[str]:
        """Return the request's headers; the last ones with this key, where nothing is added to them."""
        if request.headers:
            return self._make_headers(request, key)
        made = self._headers_made.get(request.operation)
        if made is None or made[0] != key:
            made = self._headers_made[request.operation] = (Secret(key), self._make_headers(request, key))
        return made[1].copy()  # what wraps the session may add to them

    def _make_headers(self, request: Request, key: str) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        if self._settings.client_session is not None:  # ours has them for all requests
            headers.update(COMMON_HEADERS)
        headers[hdrs.ACCEPT] = "text/event-stream, */*" if request.operation == "ask" else "application/json"
        headers.update(request.headers)
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = "application/json"
        headers[hdrs.AUTHORIZATION] = Secret(f"Bearer {key}")
        return headers

    def _session(self, request: Request) -> aiohttp.ClientSession:
        if self._closed:
            raise StateError(f"{request.operation}: this session is closed; make a new one")
        if self._settings.client_session is not None:
            _check_loop(self._settings.client_session, request)
        if request.is_agent_post:
            if self._fresh is None:
                self._fresh = self._new_session(force_close=True)
            return self._fresh
        if self._keep is None:
            self._keep = self._new_session(force_close=False)
        return self._keep

    def _new_session(self, *, force_close: bool) -> aiohttp.ClientSession:
        # limit=0: aiohttp's default lets the 101st stream wait in silence.
        connector = aiohttp.TCPConnector(limit=0, force_close=force_close)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=_NoCookies(),
            headers=COMMON_HEADERS,
            trust_env=self._settings.trust_env,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _whole(
        self, request: Request, response: aiohttp.ClientResponse, deadline: float | None, timeouts: Timeouts
    ) -> Answer:
        status = response.status
        if 200 <= status < 300:
            body = await self._success_body(request, response, deadline, timeouts)
        else:
            body = await self._error_body(response, deadline)
        return Answer(status=status, headers=response.headers, body=body)

    async def _success_body(
        self, request: Request, response: aiohttp.ClientResponse, deadline: float | None, timeouts: Timeouts
    ) -> bytes:
        failure: MintlifyError
        cause: CauseSummary | None = None
        try:
            with Scope(self._clock, deadline):
                body, whole = await _read_up_to(response.content, ANSWER_MAX_BYTES)
            if whole:
                return body
            failure = UnexpectedResponseError(
                f"{request.operation}: the answer is larger than {ANSWER_MAX_BYTES} bytes",
                excerpt="",  # so much of something else says nothing
                status=response.status,
                headers=lower_headers(response.headers),
            )
        except TimeoutError as error:
            failure = _timed_out(request, "request", timeouts.request, "maybe")
            cause = summarize(error)
        except FOREIGN_ERRORS as error:
            failure = APIConnectionError(
                f"{request.operation}: the answer ({response.status}) was cut short",
                sent="maybe",
                operation=request.operation,
            )
            cause = summarize(error)
        finally:
            response.close()
        raise failure from cause

    async def _error_body(self, response: aiohttp.ClientResponse, deadline: float | None) -> bytes:
        # What the server says of its refusal is worth two seconds; the status is worth more.
        piece: list[bytes] = []
        until = self._clock.now() + ERROR_SECONDS
        try:
            with Scope(self._clock, until if deadline is None else min(until, deadline)):
                await _read_up_to(response.content, ERROR_MAX_BYTES, piece)
        except FOREIGN_ERRORS as error:
            summarize(error)
        finally:
            response.close()
        return b"".join(piece)[:ERROR_MAX_BYTES]

    async def close(self) -> None:
        """Wake who waits to send, close every live body, then our own sessions; not a borrowed one."""
        self._closed = True
        self._headers_made.clear()  # they hold keys
        for waiting in self._waits:
            waiting.end()
        for live in list(self._live):
            live.close()
        self._watch.stop()
        for session in self._own_sessions():
            await session.close()

    def abandon(self) -> None:
        """Close the sockets from anywhere, without waiting; for garbage and for loops that are gone."""
        self._closed = True
        self._headers_made.clear()
        for live in list(self._live):
            live.close_from_anywhere(report=False)
        self._watch.stop()
        for session in self._own_sessions():
            connector = session.connector
            session.detach()
            if connector is not None:
                _close_connector(connector)

    def _own_sessions(self) -> list[aiohttp.ClientSession]:
        own = [
            s for s in (self._keep, self._fresh) if s is not None and s is not self._settings.client_session
        ]
        self._keep = self._fresh = self._settings.client_session
        return own


def _check_loop(borrowed: aiohttp.ClientSession, request: Request) -> None:
    # On a pooled connection of another loop aiohttp writes the request, and only then fails.
    connector = borrowed.connector
    if connector is not None and connector._loop is not asyncio.get_running_loop():  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
        raise StateError(f"{request.operation}: the aiohttp session belongs to another event loop")


def _close_connector(connector: aiohttp.BaseConnector) -> None:
    loop = connector._loop  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
    if loop.is_closed():
        # The sockets went with the loop; only aiohttp's own warning is left to be silenced.
        connector._closed = True  # pyright: ignore[reportPrivateUsage] - close() needs a live loop
        return
    loop.call_soon_threadsafe(_begin_close, connector)


def _begin_close(connector: aiohttp.BaseConnector) -> None:
    """Close the sockets; what remains, waiting for TLS to say goodbye, is left."""
    closing = cast(object, connector.close())
    if isinstance(closing, Coroutine):
        closing = cast("Coroutine[Any, Any, None]", closing)
        with suppress(StopIteration):
            closing.send(None)
        closing.close()


class LiveResponse:
    """The body of an assistant's answer, while it arrives.

    Attributes:
        status: The HTTP status, a success.
        headers: The answer's headers, asked for in lower case.
        pending: Whether somebody reads.
        waiting_first: Whether the limit on the first event applies, not the one on silence.
        still_quiet: Whether what arrived last does not end a silence.
        quiet_limit: The limit on silence after the announced end, or None.
        secret: The key that was sent, which the body may repeat; no error shows it.
        taken: How many bytes were read.
    """

    __slots__ = (
        "_closed",
        "_content",
        "_failure",
        "_loop",
        "_response",
        "_since",
        "_started",
        "_timeouts",
        "_total_at",
        "_watch",
        "headers",
        "pending",
        "quiet_limit",
        "secret",
        "status",
        "still_quiet",
        "taken",
        "waiting_first",
    )

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        watch: _Watch,
        timeouts: Timeouts,
        started: float,
        total_at: float | None,
        secret: Secret,
    ) -> None:
        """Take over *response*, whose headers have arrived."""
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.waiting_first = True
        self.still_quiet = False
        self.quiet_limit: float | None = None
        self.secret = secret
        self.taken = 0
        self._response = response
        self._content = response.content
        self._watch = watch
        self._timeouts = timeouts
        self._started = started
        self._total_at = total_at
        self._since = started
        self.pending = False
        self._failure: tuple[MintlifyError, CauseSummary | None] | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def reading(self) -> Awaitable[bytes]:
        """Begin a read and return what is awaited for at least one byte; ``b""`` is the body's clean end.

        What it gives then goes to :meth:`took`, an error to :meth:`broke`, and in any case ``pending`` is
        taken back: three steps, because one more coroutine costs a live event 3 %. Cancelling loses nothing.

        Raises:
            APITimeoutError: Silence for too long, or the whole took too long.
            APIConnectionError: The connection was lost, or the body's framing is broken.
        """
        if self._failure is not None:
            self._raise()
        now = self._watch.clock.now()
        if self._total_at is not None and now >= self._total_at:
            self._give_up("total", self._timeouts.total or 0.0)
            self._raise()
        if not self.still_quiet:
            self._since = now
        self.pending = True
        if self._watch.timer is None:
            self._watch.start(self.quiet_limit)
        return self._content.readany()

    def took(self, data: bytes) -> None:
        """Take note of what a read returned."""
        if not data:
            self._finish()
        self.taken += len(data)

    def broke(self, error: Exception) -> bytes:
        """Return what had arrived before a read failed with *error*; when nothing had, raise what it means.

        Raises:
            APITimeoutError: As :meth:`reading`.
            APIConnectionError: As :meth:`reading`.
            Exception: *error* itself, when it is none of aiohttp's or asyncio's.
        """
        if not isinstance(error, FOREIGN_ERRORS):
            raise error
        data = self._salvage(error)
        del error  # or a traceback's frame would show it
        if not data:
            self._raise()
        return data

    def grace(self, seconds: float, *, in_all: bool) -> None:
        """Wait no longer than *seconds*: for each further read, or for all of them."""
        self.quiet_limit = seconds
        end = self._watch.clock.now() + seconds
        if in_all and (self._total_at is None or end < self._total_at):
            self._total_at = end
        self._watch.hurry(seconds)

    def close(self) -> None:
        """Give the connection up at once and wake a reader that waits. Safe to repeat, from any task."""
        if not self._closed:
            self._finish()
            self._response.close()

    def close_from_anywhere(self, *, report: bool) -> None:
        """Close from a finalizer, which may run on any thread; *report* says so to a loop in debug mode."""
        if self._closed or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self.close)
        if report and self._loop.get_debug():
            self._loop.call_exception_handler(
                {"message": "a mintlify_async Reply was left before its end; use `async with session.ask(…)`"}
            )

    @property
    def closed(self) -> bool:
        """Whether the connection was given up or given back."""
        return self._closed

    def look(self, now: float) -> float | None:
        """Give up when the connection is dead or a limit has passed; return when to look again, or None."""
        if not self.pending:
            return None
        connection = self._response.connection
        if connection is not None and (connection.transport is None or connection.transport.is_closing()):
            # aiohttp's C parser never wakes the reader of a body whose chunks are malformed.
            self._give_up_lost()
            return None
        phase, limit, due = self._next_limit(self._since)
        if due is not None and now >= due:
            self._give_up(phase, limit)
            return None
        return due

    def _next_limit(self, since: float) -> tuple[str, float, float | None]:
        if self.quiet_limit is not None:
            phase, limit, due = "idle", self.quiet_limit, since + self.quiet_limit
        elif self.waiting_first:
            limit = self._timeouts.first_event
            phase, due = "first_event", self._started + limit
        elif self._timeouts.idle is not None:
            phase, limit, due = "idle", self._timeouts.idle, since + self._timeouts.idle
        else:
            phase, limit, due = "total", 0.0, None
        if self._total_at is not None and (due is None or self._total_at < due):
            return "total", self._timeouts.total or 0.0, self._total_at
        return phase, limit, due

    def _give_up(self, phase: str, limit: float) -> None:
        words = {"first_event": "no event", "idle": "silence", "total": "the answer was not complete"}
        error = APITimeoutError(
            f"ask: {words[phase]} for {limit:g} s ({phase} timeout)",
            phase=phase,
            seconds=limit,
            operation="ask",
        )
        self._fail(error, None)

    def _give_up_lost(self) -> None:
        self._fail(
            APIConnectionError("ask: the connection died in the middle of the answer", operation="ask"), None
        )

    def _fail(self, error: MintlifyError, cause: CauseSummary | None) -> None:
        if self._failure is None:
            self._failure = (error, cause)
        self.close()

    def _salvage(self, error: BaseException) -> bytes:
        """Return the bytes that aiohttp holds back once it has an error to raise."""
        cause = summarize(error)
        if self._failure is None:
            lost = APIConnectionError(
                "ask: the connection was lost in the middle of the answer", operation="ask"
            )
            self._failure = (lost, cause)
        # Not in its signature, but it is how the stored error is taken back; a test pins it.
        self._content.set_exception(cast(Any, None))
        try:
            return self._content.read_nowait()
        except FOREIGN_ERRORS:
            return b""

    def _raise(self) -> None:
        assert self._failure is not None
        error, cause = self._failure
        self._finish()
        self._response.close()
        raise error from cause

    def _finish(self) -> None:
        self._closed = True
        self._watch.forget(self)


class _Watch:
    """One coarse timer for all live bodies of a loop: a timer for each read would cost more than the read.

    The first read starts it. It looks twice a second, or sooner where a limit is due
    sooner, and stops when no body is live. Of thousands it looks at a slice each time, so that no
    event waits until it has looked at all.

    Attributes:
        timer: Its next look; None while it stands still.
    """

    __slots__ = ("_due", "_live", "_rest", "_soonest", "_spacing", "clock", "timer")

    def __init__(self, clock: Clock, live: set[LiveResponse]) -> None:
        self.clock = clock
        self._live = live
        self.timer: Timer | None = None
        self._due = 0.0
        self._rest: list[LiveResponse] = []  # what this round has not looked at yet
        self._spacing = self._soonest = WATCH_SECONDS

    def start(self, limit: float | None) -> None:
        """Begin to look, within a quarter of *limit* when there is one."""
        self._arm(WATCH_SECONDS if limit is None else min(WATCH_SECONDS, limit / 4))

    def hurry(self, seconds: float) -> None:
        """Look within a quarter of *seconds*, when it looks at all."""
        if self.timer is not None and self.clock.now() + seconds / 4 < self._due:
            self.stop()
            self._arm(seconds / 4)

    def stop(self) -> None:
        """Stand still."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def forget(self, live: LiveResponse) -> None:
        self._live.discard(live)
        if not self._live:
            self.stop()

    def _arm(self, seconds: float) -> None:
        self._due = self.clock.now() + seconds
        self.timer = self.clock.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self.timer = None
        now = self.clock.now()
        for live in self._next_slice():
            due = live.look(now)
            if due is not None:
                self._soonest = min(self._soonest, max(due - now, 0.001))
        if self.timer is None and self._live:
            self._arm(self._spacing if self._rest else min(self._soonest, self._spacing))

    def _next_slice(self) -> list[LiveResponse]:
        if not self._rest:
            self._rest = list(self._live)
            self._soonest = WATCH_SECONDS
            self._spacing = WATCH_SECONDS / max(1, -(-len(self._rest) // WATCH_AT_ONCE))
        step = self._rest[-WATCH_AT_ONCE:]
        del self._rest[-WATCH_AT_ONCE:]
        return [live for live in step if live in self._live]


def _limit_on(
    request: Request, timeouts: Timeouts, started: float, deadline: float | None
) -> tuple[float | None, float, str]:
    """Return when the headers must have arrived, and the timeout that says so: its seconds and its phase."""
    if request.operation != "ask":
        return deadline, timeouts.request, "request"
    first_by = started + timeouts.first_event
    if deadline is not None and deadline < first_by:
        return deadline, timeouts.total or timeouts.first_event, "total"
    return first_by, timeouts.first_event, "first_event"


def _at_hand(response: aiohttp.ClientResponse) -> Answer | None:
    """Return the whole answer when it came with the headers of a success: nothing is waited for."""
    content = response.content
    if not (
        200 <= response.status < 300
        and content.is_eof()
        and content.exception() is None
        and content.total_bytes <= ANSWER_MAX_BYTES
    ):
        return None
    body = content.read_nowait()
    response.close()
    return Answer(status=response.status, headers=response.headers, body=body)


async def _read_up_to(
    content: aiohttp.StreamReader, limit: int, into: list[bytes] | None = None
) -> tuple[bytes, bool]:
    """Read at most about *limit* decoded bytes; say whether that was the whole body."""
    pieces = into if into is not None else []
    size = 0
    while size <= limit:
        data = await content.readany()
        if not data:
            return b"".join(pieces), True
        pieces.append(data)
        size += len(data)
    return b"".join(pieces), False


@lru_cache(maxsize=1024)
def _url(text: str) -> yarl.URL:
    """Return an encoded URL; the same few are asked for again and again."""
    return yarl.URL(text, encoded=True)


@lru_cache(maxsize=8)
def _connect_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Return aiohttp's own limits: connecting alone; all else is timed here."""
    limit = seconds if seconds < math.inf else None  # aiohttp rounds its limits up; infinity it cannot
    return aiohttp.ClientTimeout(total=None, connect=limit, sock_connect=None)


def summarize(error: BaseException) -> CauseSummary:
    """Return a stand-in for *error* that cannot show a key or a header; *error* itself is let go.

    aiohttp raises one and the same object whenever a response was closed, and each raise
    adds the frames it passed to that object: kept, they would keep every reply alive.
    """
    error.__traceback__ = error.__context__ = None
    text = ""
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientResponseError):
        # Their texts hold whole header blocks.
        text = ""
    elif isinstance(error, OSError | aiohttp.ClientError | RuntimeError):
        text = printable(str(error))
    name = f"{type(error).__module__.partition('.')[0]}.{type(error).__name__}".removeprefix("builtins.")
    return CauseSummary(f"{name}: {text}" if text else name)


def _timed_out(request: Request, phase: str, seconds: float, sent: Literal["no", "maybe"]) -> APITimeoutError:
    words = {"connect": "could not connect", "first_event": "no event", "total": "not complete"}
    return APITimeoutError(
        f"{request.operation}: {words.get(phase, 'no answer')} within {seconds:g} s ({phase} timeout)",
        phase=phase,
        seconds=seconds,
        sent=sent,
        operation=request.operation,
    )


def _translate(
    error: BaseException, request: Request, body: _Body | None, timeouts: Timeouts, limit: float, phase: str
) -> MintlifyError:
    """Return our error for one that ended a request before its headers had arrived."""
    written = body is not None and body.sent_at is not None
    sent: Literal["no", "maybe"] = "maybe" if written or body is None else "no"
    if isinstance(error, aiohttp.ConnectionTimeoutError):  # never written; but that would cost a second job
        return _timed_out(request, "connect", timeouts.connect, "maybe" if written else "no")
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientConnectorError):
        return _timed_out(request, phase, limit, sent)
    is_built = isinstance(error, OSError) or written
    if isinstance(error, ValueError) and not is_built:  # a certificate's error is an OSError, too
        return ConfigurationError(
            "aiohttp cannot make this request: check base_url and proxy, "
            "and that neither a borrowed session's auth= nor ~/.netrc (trust_env) has a password for it",
            field="base_url",
        )
    if isinstance(error, RuntimeError):
        return _state_error(error, request, sent)
    words, never_sent, reason = _words_for(error)
    return APIConnectionError(
        f"{request.operation}: {words}",
        sent="no" if never_sent and body is None else sent,
        operation=request.operation,
        reason=reason,
    )


def _state_error(error: RuntimeError, request: Request, sent: Literal["no", "maybe"]) -> MintlifyError:
    if "Session is closed" in str(error) or "Connector is closed" in str(error):
        return StateError(f"{request.operation}: the aiohttp session is closed")
    return APIConnectionError(
        f"{request.operation}: the connection was lost", sent=sent, operation=request.operation
    )


def _words_for(error: BaseException) -> tuple[str, bool, str]:
    """Return what happened in words, whether it certainly came before sending, and its kind."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"could not resolve the host {printable(error.host, 80)}", True, "dns"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ServerFingerprintMismatch):
        return "the server's certificate is not trusted", True, "certificate"
    if isinstance(error, aiohttp.ClientSSLError | ssl_module.SSLError):
        return "the TLS handshake failed", True, "tls"
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return "the proxy could not be used", True, "proxy"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"could not connect to {printable(error.host, 80)}", True, "connect"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | OSError):
        return "the connection was lost before an answer came", False, "lost"
    if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        return "the answer is not readable HTTP", False, "protocol"
    return "the request failed", False, "lost"
