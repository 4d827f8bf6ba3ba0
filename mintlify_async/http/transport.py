"""The connections of one event loop, and sending a request over them with aiohttp."""

from __future__ import annotations

import asyncio
import logging
import platform
import ssl as ssl_module
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

import aiohttp
import yarl
from aiohttp import hdrs, payload
from aiohttp.abc import AbstractStreamWriter
from attrs import define, field
from multidict import CIMultiDict

from ..errors import APIConnectionError, CauseSummary, MintlifyError, StateError, UnexpectedResponseError
from ..protocol.requests import Request
from ..protocol.responses import WholeResponse, lower_headers
from ..protocol.secret import Secret
from ..runtime.cancellation import Deadline
from ..runtime.clock import Clock
from ..runtime.per_event_loop import session_closed
from ..version import __version__
from .failures import FOREIGN_ERRORS, closed_here, cut_short, log_known_flaw, summarize, timed_out, translate
from .response_body import LiveResponse
from .timeouts import AttemptLimit, Timeouts

__all__ = ["RequestRecorder", "Transport", "TransportSettings"]

ANSWER_MAX_BYTES = 4 * 1024 * 1024  # a job's record has a dozen short fields
ERROR_MAX_BYTES = 64 * 1024  # an error page says what matters at its beginning
ERROR_SECONDS = 2.0  # a stalled error page is not worth waiting longer
WRITE_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 3.9  # servers close an idle connection after 5 s or more: never write at that moment
LONGEST_CONNECT = 1e9  # seconds; aiohttp rounds its limits up and cannot round infinity

log = logging.getLogger("mintlify_async")

T = TypeVar("T")
USER_AGENT = f"mintlify-async/{__version__} Python/{platform.python_version()} aiohttp/{aiohttp.__version__}"
COMMON_HEADERS = {
    hdrs.ACCEPT_ENCODING: "identity",  # compressed answers arrive late and can be bombs
    hdrs.USER_AGENT: USER_AGENT,
}


class RequestTape(Protocol):
    """Records one request and its answer."""

    def answered(self, response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
        """Return what to read in place of *response*, whose headers have arrived."""
        ...

    def failed(self, error: BaseException) -> None:
        """Note that there is no answer."""
        ...


class RequestRecorder(Protocol):
    """Records requests and answers: ``Recorder`` of ``mintlify_async.testing``."""

    def begin(self, request: Request, headers: Mapping[str, str], clock: Clock) -> RequestTape:
        """Begin with a request that is about to be sent."""
        ...


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class TransportSettings:
    """How connections are made; the same for every loop.

    Args:
        base_url: Checked, without a trailing slash.
        client_session: A borrowed aiohttp session, or None for our own.
        proxy: A proxy's URL.
        ssl: A context for verification, or None for the default.
        trust_env: Whether proxies are taken from the environment.
        recorder: Takes every request with its answer, or None.
    """

    base_url: str
    client_session: aiohttp.ClientSession | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)
    ssl: ssl_module.SSLContext | None = None
    trust_env: bool = False
    recorder: RequestRecorder | None = None


class RequestBody(payload.Payload):
    """A request's body that knows whether any byte of it was handed to a live connection.

    Attributes:
        sent_at: When that was, by the wall clock; None before.
    """

    _default_content_type = "application/json"

    def __init__(self, value: bytes, clock: Clock, deadline: Deadline | None = None) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self._bytes = value
        self._clock = clock
        self._deadline = deadline
        self.sent_at: float | None = None
        self._transport: asyncio.WriteTransport | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._bytes.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        # aiohttp holds the request's headers back until the first byte of the body
        # is written, so before this point the server has seen nothing.
        if self._deadline is not None and self._deadline.over:
            self._deadline.end()
            # aiohttp runs this in a task of its own, which may begin after the limit.
            raise ConnectionAbortedError("the time limit passed before the first byte was written")
        transport = getattr(writer, "transport", None)
        self._transport = transport
        if transport is None or not transport.is_closing():
            self.sent_at = self._clock.wall()
        if self._size is not None and self._size <= WRITE_BYTES:
            await writer.write(self._bytes)
            return
        view = memoryview(self._bytes)
        try:
            for start in range(0, len(view), WRITE_BYTES):
                await writer.write(view[start : start + WRITE_BYTES])
        except asyncio.CancelledError:  # aiohttp's, when an answer ended or was closed before the body
            self.abort_unwritten()
            raise

    def abort_unwritten(self) -> None:
        """Drop the connection if it holds bytes that the server does not take: closing it waits for them."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()


class Transport:
    """The connections of one event loop.

    Agent POSTs are sent on connections of their own: the server may close a connection that is kept
    alive at the very moment it is used again, and then it is not known whether it took the request.
    """

    def __init__(self, settings: TransportSettings, clock: Clock) -> None:
        """Open nothing yet."""
        log_known_flaw(aiohttp.__version__)
        self._settings = settings
        self._clock = clock
        self._keep_alive: aiohttp.ClientSession | None = settings.client_session
        self._one_use: aiohttp.ClientSession | None = settings.client_session
        self._streams: set[LiveResponse] = set()
        self._closed = False
        self._waiting: set[Deadline] = set()
        # By operation: the key that was sent last, and the headers with it where a request has no others.
        self._ready_headers: dict[str, tuple[Secret, CIMultiDict[str]]] = {}

    async def unless_closed(self, step: Awaitable[T]) -> T:
        """Wait for *step*, which sends nothing.

        Raises:
            StateError: This was closed meanwhile; *step* was cancelled.
        """
        waiting = Deadline(among=self._waiting)
        try:
            with waiting:
                return await step
        except TimeoutError:
            if not waiting.ended:
                raise
        raise session_closed()

    async def send_whole(
        self, request: Request, key: Secret, limit: AttemptLimit, connect: float, *, fresh: bool = False
    ) -> WholeResponse:
        """Send *request* and return its whole answer.

        Args:
            request: What to send.
            key: The key to send with it.
            limit: When the answer must be there.
            connect: The limit on connecting, in seconds.
            fresh: Whether it needs a new connection.

        Raises:
            APIConnectionError: No answer, or not all of it; ``.sent`` says what went out.
            APITimeoutError: The same, because a limit passed.
            UnexpectedResponseError: The answer is too large.
            StateError: The session, the borrowed aiohttp session or the loop is closed.
        """
        response = await self._send(request, key, limit, connect, fresh=fresh)
        if 200 <= response.status < 300:
            content = response.content
            if content.is_eof() and content.exception() is None and content.total_bytes <= ANSWER_MAX_BYTES:
                # The body came with the headers, as a job's record does: 4 % of a request are saved.
                body = content.read_nowait()
                if response.connection is not None:  # else it was given back at the body's end
                    response.close()
                return WholeResponse(response.status, response.headers, body)
            return await self._success(request, response, limit)
        return await self._refusal(response, limit)

    async def open_stream(
        self, request: Request, key: Secret, limit: AttemptLimit, timeouts: Timeouts, total_at: float | None
    ) -> LiveResponse | WholeResponse:
        """Send *request* and return its body while it arrives, or the whole answer when it is a refusal.

        Args:
            request: What to send.
            key: The key to send with it.
            limit: When the answer must have begun.
            timeouts: The limits on the body.
            total_at: When the whole answer must have arrived, or None.

        Raises:
            APIConnectionError: No answer; ``.sent`` says what went out.
            APITimeoutError: The same, because a limit passed.
            StateError: The session, the borrowed aiohttp session or the loop is closed.
        """
        started = self._clock.now()
        response = await self._send(request, key, limit, timeouts.connect)
        if 200 <= response.status < 300:
            return LiveResponse(response, self._streams, self._clock, timeouts, started, total_at, key)
        return await self._refusal(response, limit)

    async def _send(
        self, request: Request, key: Secret, limit: AttemptLimit, connect: float, *, fresh: bool = False
    ) -> aiohttp.ClientResponse:
        """Send *request* and return the response when its headers have arrived."""
        session = self._session(request, fresh=fresh)
        deadline = Deadline(self._clock, limit.at, self._waiting)  # close() ends it
        body = RequestBody(request.body, self._clock, deadline) if request.body is not None else None
        headers = self._headers(request, key)
        try:
            with deadline:
                sending: Awaitable[aiohttp.ClientResponse] = session.request(
                    request.method,
                    _url(self._settings.base_url, request.path),
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    raise_for_status=False,
                    proxy=self._settings.proxy,
                    ssl=self._settings.ssl or True,
                    timeout=_connect_timeout(connect),
                )
                if self._settings.recorder is not None:
                    sending = _recorded(self._settings.recorder.begin(request, headers, self._clock), sending)
                return await sending
        except FOREIGN_ERRORS as error:
            failure = self._failure(error, request, body, limit, connect)
            cause = summarize(error)
        except asyncio.CancelledError:
            if body is not None:
                if request.is_agent_post and body.sent_at is not None:
                    log.warning(
                        "%s was cancelled after it was sent: it may have been done", request.operation
                    )
                body.abort_unwritten()
            raise
        if body is not None:
            body.abort_unwritten()
        raise failure from cause

    def _failure(
        self,
        error: BaseException,
        request: Request,
        body: RequestBody | None,
        limit: AttemptLimit,
        connect: float,
    ) -> MintlifyError:
        """Return this package's error for *error*, which ended a request before its headers had arrived."""
        written = body.sent_at is not None if body is not None else None
        if self._closed:  # by us: whatever was raised is no trouble of the network
            failure: MintlifyError = closed_here(request.operation, "maybe" if written else "no")
        else:
            failure = translate(error, request.operation, written=written, limit=limit, connect=connect)
        if isinstance(failure, APIConnectionError) and body is not None:
            failure.sent_at = body.sent_at
        return failure

    def _headers(self, request: Request, key: Secret) -> CIMultiDict[str]:
        """Return the request's headers, which aiohttp, and what wraps it, may change."""
        if request.headers:
            return self._make_headers(request, key)
        ready = self._ready_headers.get(request.operation)
        if ready is None or ready[0] is not key:
            ready = self._ready_headers[request.operation] = (key, self._make_headers(request, key))
        return ready[1].copy()

    def _make_headers(self, request: Request, key: Secret) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        if self._settings.client_session is not None:  # our own sessions have them for all requests
            headers.update(COMMON_HEADERS)
        headers[hdrs.ACCEPT] = "text/event-stream, */*" if request.is_question else "application/json"
        headers.update(request.headers)
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = "application/json"
        headers[hdrs.AUTHORIZATION] = Secret(f"Bearer {key}")
        return headers

    def _session(self, request: Request, *, fresh: bool = False) -> aiohttp.ClientSession:
        if self._closed:
            raise session_closed(request.operation)
        if self._settings.client_session is not None:
            _check_loop(self._settings.client_session, request)
        if request.is_agent_post or fresh:
            if self._one_use is None:
                self._one_use = self._new_session(force_close=True)
            return self._one_use
        if self._keep_alive is None:
            self._keep_alive = self._new_session(force_close=False)
        return self._keep_alive

    def _new_session(self, *, force_close: bool) -> aiohttp.ClientSession:
        # limit=0: with aiohttp's default the 101st stream would wait in silence.
        connector = aiohttp.TCPConnector(
            limit=0,
            force_close=force_close,
            keepalive_timeout=None if force_close else KEEP_ALIVE_SECONDS,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=COMMON_HEADERS,
            trust_env=self._settings.trust_env,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _success(
        self, request: Request, response: aiohttp.ClientResponse, limit: AttemptLimit
    ) -> WholeResponse:
        failure: MintlifyError
        cause: CauseSummary | None = None
        pieces: list[bytes] = []
        try:
            with Deadline(self._clock, limit.at, self._waiting):
                whole = await _read_up_to(response.content, ANSWER_MAX_BYTES, pieces)
            if whole:
                return WholeResponse(response.status, response.headers, b"".join(pieces))
            failure = UnexpectedResponseError(
                f"{request.operation}: the answer is larger than {ANSWER_MAX_BYTES} bytes",
                excerpt="",  # the beginning of so large an answer explains nothing
                status=response.status,
                headers=lower_headers(response.headers),
            )
        except TimeoutError as error:
            failure = timed_out(request.operation, limit.phase, limit.seconds, "maybe")
            cause = summarize(error)
        except FOREIGN_ERRORS as error:
            failure = cut_short(request.operation, response.status)
            cause = summarize(error)
        finally:
            response.close()
        if self._closed:
            failure = closed_here(request.operation, "maybe")
        raise failure from cause

    async def _refusal(self, response: aiohttp.ClientResponse, limit: AttemptLimit) -> WholeResponse:
        # Wait two seconds for the text of a refusal; without it, the status is still reported.
        pieces: list[bytes] = []
        until = self._clock.now() + ERROR_SECONDS
        until = until if limit.at is None else min(until, limit.at)
        try:
            with Deadline(self._clock, until, self._waiting):
                await _read_up_to(response.content, ERROR_MAX_BYTES, pieces)
        except FOREIGN_ERRORS as error:
            summarize(error)
        finally:
            response.close()
        body = b"".join(pieces)[:ERROR_MAX_BYTES]
        return WholeResponse(response.status, response.headers, body)

    async def close(self) -> None:
        """Wake every task that waits to send, close every open stream, then our own aiohttp sessions."""
        self._closed = True
        for waiting in self._waiting:
            waiting.end()
        for stream in list(self._streams):
            stream.close_with_session()
        for session in self._take_own_sessions():
            await session.close()

    def abandon(self) -> None:
        """Close the sockets from any thread, without waiting; for garbage collection and closed loops."""
        self._closed = True
        for stream in list(self._streams):
            stream.close_from_anywhere(report=False)
        for session in self._take_own_sessions():
            connector = session.connector
            session.detach()
            if connector is not None:
                _close_connector(connector)

    def _take_own_sessions(self) -> list[aiohttp.ClientSession]:
        borrowed = self._settings.client_session
        own = [s for s in (self._keep_alive, self._one_use) if s is not None and s is not borrowed]
        self._keep_alive = self._one_use = borrowed
        return own


async def _recorded(tape: RequestTape, sending: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
    try:
        return tape.answered(await sending)
    except BaseException as error:  # a cancellation, too: there is no answer
        tape.failed(error)
        raise


@lru_cache(maxsize=128)
def _url(base_url: str, path: str) -> yarl.URL:
    return yarl.URL(base_url + path, encoded=True)


@lru_cache(maxsize=8)
def _connect_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Return aiohttp's own limits: one on connecting; the others are measured here."""
    return aiohttp.ClientTimeout(total=None, connect=min(seconds, LONGEST_CONNECT))


async def _read_up_to(content: aiohttp.StreamReader, limit: int, pieces: list[bytes]) -> bool:
    """Read at most about *limit* decoded bytes into *pieces*; return whether that was the whole body."""
    size = 0
    while size <= limit:
        data = await content.readany()
        if not data:
            return True
        pieces.append(data)
        size += len(data)
    return False


def _check_loop(borrowed: aiohttp.ClientSession, request: Request) -> None:
    # On a pooled connection of another loop aiohttp writes the request, and only then fails.
    connector = borrowed.connector
    if connector is not None and connector._loop is not asyncio.get_running_loop():  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
        raise StateError(f"{request.operation}: the aiohttp session belongs to another event loop")


def _close_connector(connector: aiohttp.BaseConnector) -> None:
    loop = connector._loop  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
    if loop.is_closed():
        # The sockets were closed with the loop; only aiohttp's own warning must be silenced.
        connector._closed = True  # pyright: ignore[reportPrivateUsage] - close() needs a live loop
        return
    loop.call_soon_threadsafe(_begin_close, connector)


def _begin_close(connector: aiohttp.BaseConnector) -> None:
    """Close the sockets without waiting for the end of TLS."""
    closing = cast(object, connector.close())
    if isinstance(closing, Coroutine):
        closing = cast("Coroutine[Any, Any, None]", closing)
        with suppress(StopIteration):
            closing.send(None)
        closing.close()
