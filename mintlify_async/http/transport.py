"""The connections of one event loop, and sending a request over them with aiohttp."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import aiohttp
import yarl
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

from ..argument_checks import EXITING, is_exiting
from ..errors import APIConnectionError, MintlifyError, StateError, UnexpectedResponseError
from ..model.response_info import Headers
from ..model.secret import Secret
from ..protocol.byte_limits import ANSWER_MAX_BYTES, ERROR_MAX_BYTES, HEADER_MAX_BYTES
from ..protocol.requests import Call
from ..protocol.responses import WholeResponse
from ..runtime import clock
from ..runtime.logs import log_fields
from ..runtime.per_event_loop import session_closed
from ..runtime.time_limits import PASSES, TimeLimit, TimeLimits
from ..settings.proxy_and_tls import TransportSettings, unused_proxy
from .connection_errors import (
    FOREIGN_ERRORS,
    AttemptLimit,
    closed_here,
    log_known_flaw,
    summarize,
    timed_out,
    translate,
)
from .live_response import LiveResponse
from .request_headers import request_headers
from .send_progress import Sending

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ["RequestRecorder", "Transport", "reset_connection"]

ERROR_SECONDS = 2.0  # a longer wait for a stalled error page is not worth it
WRITE_BYTES = 64 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: unsent bytes are dropped
KEEP_ALIVE_SECONDS = 3.9  # servers close idle connections after 5 s or more
RECEIVE_BYTES = 128 * 1024  # the kernel's buffer, because uvloop can read megabytes in one cycle
LONGEST_CONNECT = 1e9  # seconds, because aiohttp rounds its limits up and cannot round infinity

log = logging.getLogger("mintlify_async")

T = TypeVar("T")


RequestRecorder: TypeAlias = Callable[
    [Call, Mapping[str, str], Awaitable[aiohttp.ClientResponse]], Awaitable[aiohttp.ClientResponse]
]
"""Takes a call, its headers and the pending response. Returns the response to read."""


class RequestBody(payload.Payload):
    """A request's body. It records in *sending* when its first byte is passed to a live connection.

    After the time of *limit*, it writes nothing.
    """

    _autoclose = True  # there is nothing to close, and aiohttp would warn if a middleware drops the body

    def __init__(self, value: bytes, sending: Sending, limit: TimeLimit | None = None) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self._bytes = value
        self._sending = sending
        self._attempt = sending.begin()
        self._limit = limit
        self._transport: asyncio.WriteTransport | None = None

    def __deepcopy__(self, _: object) -> RequestBody:
        return self  # substitutes for aiohttp's session copy arguments, and a limit refers to the loop

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._bytes.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        # aiohttp holds the request's headers back until the first byte of the body is written, so the server
        # has received nothing before this point.
        if self._limit is not None and self._limit.over:
            self._limit.end()
            # aiohttp runs this in a separate task, which may start after the limit.
            raise ConnectionAbortedError("the time limit passed before the first byte was written")
        await self._sending.first_byte(self._attempt)
        self._transport = transport = getattr(writer, "transport", None)
        lost = hasattr(writer, "transport") if transport is None else transport.is_closing()
        if lost:
            self._sending.sent_at = None  # the connection has ended, so the server gets nothing
        if len(self._bytes) <= WRITE_BYTES:
            await writer.write(self._bytes)
            return
        view = memoryview(self._bytes)
        try:
            for start in range(0, len(view), WRITE_BYTES):
                await writer.write(view[start : start + WRITE_BYTES])
        except asyncio.CancelledError:  # from aiohttp, if a response ended or was closed before the body
            self.abort()
            raise

    async def follow(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Run as the innermost middleware of a borrowed session, because others may replace the body.

        A body of another middleware does not call ``first_byte`` before it writes. So this method calls it,
        and the request counts as sent before the connection is open.
        """
        if request.body is not self:
            await self._sending.first_byte(self._attempt)
        return await handler(request)

    def abort(self) -> None:
        """If connection or kernel may contain bytes that the server has not taken, drop the connection."""
        transport = self._transport
        if transport is None or not (len(self._bytes) > WRITE_BYTES or transport.get_write_buffer_size()):
            return
        reset_connection(transport)


def reset_connection(transport: asyncio.WriteTransport) -> None:
    """Reset a connection, so that both ends drop all unread bytes. It may already be closed."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError, ValueError):  # already closed, and then uvloop's socket has no number
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    transport.abort()


class Transport:
    """The connections of one event loop.

    Each agent POST gets a new connection. A server may close a kept connection at the very moment of the next
    request, and then it is unknown whether the server took the request.
    """

    def __init__(self, settings: TransportSettings) -> None:
        """Store the settings. Nothing is opened yet."""
        log_known_flaw(aiohttp.__version__)
        self._settings = settings
        self._own_sessions: dict[bool, aiohttp.ClientSession] = {}  # by whether each connection is used once
        self._streams: TimeLimits[LiveResponse] = TimeLimits()
        self._limits: TimeLimits[TimeLimit] = TimeLimits()  # the limits of waiting calls
        self._closed = False

    async def unless_closed(self, step: Awaitable[T]) -> T:
        """Wait for *step*, which sends nothing.

        Raises:
            StateError: The transport is closed, or was closed during the wait. *step* was cancelled.
        """
        limit = TimeLimit(among=self._limits)
        try:
            with limit:
                return await step
        except TimeoutError:
            if not limit.ended:
                raise
        raise session_closed()

    async def send(
        self, call: Call, key: Secret, limit: AttemptLimit, sending: Sending, *, fresh: bool, total_at: float
    ) -> LiveResponse | WholeResponse:
        """Send *call*. Return the live answer to a question, and any other response when it is complete.

        Args:
            call: The request.
            key: The key to send with it.
            limit: When the response must be complete, or, for a question, must have started.
            sending: Gets the date of the first byte.
            fresh: Whether the request needs a new connection.
            total_at: When the complete answer to a question must have arrived.

        Raises:
            APIConnectionError: No response, or an incomplete one. ``.sent`` says whether the body was sent.
            APITimeoutError: The same, because a limit passed.
            UnexpectedResponseError: The response is too large.
            StateError: The session, the borrowed aiohttp session or the loop is closed.
        """
        started = asyncio.get_running_loop().time()
        response = await self._send(call, key, limit, sending, fresh=fresh)
        success = 200 <= response.status < 300  # 101 is no success
        sending.status = response.status
        if success and call.operation.streams:
            live = LiveResponse(response, self._streams, call, started, total_at, key)
            if self._closed:  # closed just after the headers arrived
                live.end()
            return live
        return await self._whole(call, response, limit, success=success)

    async def _send(
        self, call: Call, key: Secret, limit: AttemptLimit, sending: Sending, *, fresh: bool
    ) -> aiohttp.ClientResponse:
        """Send *call*, and return the response when its headers have arrived."""
        session = self._session(call, fresh=fresh)
        block = TimeLimit(limit.at, self._limits)
        body = RequestBody(call.body, sending, block) if call.body is not None else None
        headers = request_headers(call, key)
        options: dict[str, Any] = {}
        if body is not None and (middlewares := getattr(session, "_middlewares", ())):  # not public
            options["middlewares"] = (*middlewares, body.follow)
        try:
            with block:
                exchange: Awaitable[aiohttp.ClientResponse] = session.request(
                    call.operation.method,
                    _url(self._settings.base_url, call.path),
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    raise_for_status=False,
                    proxy=self._settings.proxy,
                    ssl=self._settings.ssl or True,
                    timeout=_connect_timeout(call.timeouts.connect),
                    **options,
                )
                if self._settings.recorder is not None:
                    exchange = self._settings.recorder(call, headers, exchange)
                response = await exchange
        except FOREIGN_ERRORS as error:
            failure = self._failure(error, call, limit, sending)
            cause = None if failure in (sending.failure, error) else summarize(error)
        except asyncio.CancelledError:
            if call.operation.costs and not sending.had_no_effect:
                log.warning(
                    "%s was cancelled after it was sent; the service may have accepted it: %s",
                    call.operation.name,
                    sending.next_step,
                    extra=log_fields(call.operation.name, job_id=call.job_id),
                )
            if body is not None:
                body.abort()
            raise
        else:
            if body is not None and not sending.body_read:
                await _one_turn(response)
            if not sending.body_read:  # a GET, or a substitute for aiohttp's session
                sending.sent_at = clock.now()
            elif sending.sent_at is None and not _is_refusal(response.status):
                response.close()
                raise _not_its_own(call, response.status)
            return response
        finally:
            sending.seal()
        if body is not None:
            body.abort()
        raise failure from cause

    def _failure(self, error: BaseException, call: Call, limit: AttemptLimit, sending: Sending) -> Exception:
        """Return this package's error for *error*, which ended a request before its headers arrived."""
        if sending.failure is not None:
            return sending.failure
        if isinstance(error, MintlifyError):  # an error of the recorder
            return error
        written = sending.sent_at is not None if call.body is not None else None
        if self._closed:  # any error is then a result of closing
            failure: MintlifyError = closed_here(call.operation.name, "maybe" if written else "no")
        elif is_exiting(error):
            failure = StateError(f"{call.operation}: {EXITING}")
        else:
            failure = translate(error, call, written=written, limit=limit)
        if sending.body_read_again and isinstance(failure, APIConnectionError):
            text = f"{call.operation}: a middleware of the aiohttp session sent the request again"
            failure = APIConnectionError(
                f"{text}, which was refused", operation=call.operation.name, reason=failure.reason
            )
        if isinstance(failure, APIConnectionError):
            failure.sent_at = sending.sent_at
            self._name_unused_proxy(failure)
        return failure

    def _name_unused_proxy(self, failure: APIConnectionError) -> None:
        """If nothing could connect, and the environment names an unused proxy, add this to the error."""
        direct = self._settings.proxy is None and self._settings.client_session is None
        unconnected = failure.reason in ("dns", "connect") or getattr(failure, "phase", "") == "connect"
        if direct and unconnected and (hint := unused_proxy(self._settings.base_url)):
            failure.args = (f"{failure}; {hint}",)

    def _session(self, call: Call, *, fresh: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise session_closed(call.operation.name)
        if self._settings.client_session is not None:
            _check_loop(self._settings.client_session, call)
            return self._settings.client_session
        once = fresh or bool(call.operation.costs)
        session = self._own_sessions.get(once)
        if session is None:
            session = self._own_sessions[once] = self._new_session(force_close=once)
        return session

    def _new_session(self, *, force_close: bool) -> aiohttp.ClientSession:
        # limit=0, because with aiohttp's default the 101st stream would wait without an error.
        connector = _Connector(
            limit=0,
            force_close=force_close,
            keepalive_timeout=None if force_close else KEEP_ALIVE_SECONDS,
            socket_factory=_new_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            max_field_size=HEADER_MAX_BYTES,
            max_line_size=HEADER_MAX_BYTES,  # the pure Python parser needs both
        )

    async def _whole(
        self, call: Call, response: aiohttp.ClientResponse, limit: AttemptLimit, *, success: bool
    ) -> WholeResponse:
        """Return the complete response. Reading the text of a refusal takes at most two seconds."""
        at, most = limit.at, ANSWER_MAX_BYTES
        if not success:
            at, most = min(at, asyncio.get_running_loop().time() + ERROR_SECONDS), ERROR_MAX_BYTES
        body = bytearray()
        failure: MintlifyError | None = None
        try:
            if response.content.is_eof():  # the complete body has arrived
                body += response.content.read_nowait()
            else:
                with TimeLimit(at, self._limits):
                    while len(body) <= most and (data := await response.content.readany()):
                        body += data
            if len(body) > most:
                failure = UnexpectedResponseError(
                    f"{call.operation}: the answer is larger than {most} bytes",
                    excerpt="",  # the start of such a response explains nothing
                    status=response.status,
                    headers=dict(Headers(response.headers)),
                )
        except FOREIGN_ERRORS as error:
            if self._closed:
                failure = closed_here(call.operation.name, "maybe")
            elif isinstance(error, TimeoutError):
                failure = timed_out(call.operation.name, limit.phase, limit.seconds, "maybe")
            else:
                text = f"{call.operation}: the answer ({response.status}) was cut short"
                failure = APIConnectionError(text, operation=call.operation.name)
            failure.__cause__ = summarize(error)
        finally:
            if not response.closed:  # aiohttp closes a response whose body is complete
                response.close()
        if failure is not None and success:
            raise failure from failure.__cause__
        return WholeResponse(response.status, response.headers, bytes(body[:most]))

    async def close(self) -> None:
        """Wake every task that waits to send. Close every open stream, then this object's sessions."""
        self._closed = True
        self._limits.end()
        self._streams.end()
        for _ in range(PASSES if self._limits else 0):  # so that each ended upload drops its connection
            await asyncio.sleep(0)
        for once, session in list(self._own_sessions.items()):
            await session.close()
            self._own_sessions.pop(once, None)  # afterwards, so that a cancelled close can be repeated

    def abandon(self) -> None:
        """Close the sockets from any thread, without waiting. For garbage collection and closed loops."""
        self._closed = True
        for stream in list(self._streams):
            stream.close_from_anywhere(report=False)
        own_sessions, self._own_sessions = self._own_sessions, {}
        for session in own_sessions.values():
            connector = session.connector
            session.detach()
            if connector is not None:
                _close_connector(connector)


class _Connector(aiohttp.TCPConnector):
    """A pool that does not use a connection again if bytes arrived while it was idle.

    Otherwise the next request would read those bytes as its response. aiohttp does not check this when it
    takes a connection from its pool, and a check before the request's body would be too late.
    """

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None and _has_stray_bytes(connection):
            connection.close()
        return connection


async def _one_turn(response: aiohttp.ClientResponse) -> None:
    """Wait one cycle of the loop, because aiohttp may read a response before its task writes the body."""
    try:
        await asyncio.sleep(0)
    except BaseException:
        response.close()
        raise


def _is_refusal(status: int) -> bool:
    """Return whether *status* says that the service did nothing.

    Such a response counts even if it arrives before the request was sent.
    """
    return not 200 <= status < 300 and status < 500 and status != 408


def _not_its_own(call: Call, status: int) -> APIConnectionError:
    """Return the error for a response to another request, because no byte of this request was written."""
    text = f"{call.operation}: an answer (status {status}) came before the request was sent"
    return APIConnectionError(text, sent="no", operation=call.operation.name)


def _has_stray_bytes(connection: Connection) -> bool:
    """Return whether bytes, or the end of the connection, arrived while it was idle."""
    if connection.protocol is None or connection.protocol.should_close:
        return True
    transport = connection.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None:
        return False
    poll = select.poll()  # the kernel has bytes that the loop has not read yet
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _new_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for *address* with a small buffer, so that no server can flood the loop."""
    family, kind, protocol, *_ = address
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return connection


@lru_cache(maxsize=128)
def _url(base_url: str, path: str) -> yarl.URL:
    return yarl.URL(base_url + path, encoded=True)


@lru_cache(maxsize=8)
def _connect_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Return aiohttp's limits. aiohttp limits only connecting, and this package measures the rest."""
    return aiohttp.ClientTimeout(total=None, connect=min(seconds, LONGEST_CONNECT))


def _check_loop(borrowed: aiohttp.ClientSession, call: Call) -> None:
    # On a pooled connection of another loop, aiohttp writes the request and fails only afterwards.
    connector = borrowed.connector
    if connector is not None and connector._loop is not asyncio.get_running_loop():  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
        raise StateError(f"{call.operation}: the aiohttp session belongs to another event loop")


def _close_connector(connector: aiohttp.BaseConnector) -> None:
    loop = connector._loop  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
    try:
        loop.call_soon_threadsafe(_begin_close, connector)
    except RuntimeError:
        # The sockets were closed with the loop. This only prevents aiohttp's warning.
        connector._closed = True  # pyright: ignore[reportPrivateUsage] - close() needs a live loop


def _begin_close(connector: aiohttp.BaseConnector) -> None:
    """Close the sockets without waiting for the end of TLS."""
    closing = cast(object, connector.close())
    if isinstance(closing, Coroutine):
        closing = cast("Coroutine[Any, Any, None]", closing)
        with suppress(StopIteration):
            closing.send(None)
        closing.close()
