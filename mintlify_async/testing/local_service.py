"""Requests on loopback in; answers, faults, and a record of everything out."""

from __future__ import annotations

import asyncio
import socket
import ssl as ssl_module
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, StateError
from .assistant_answers import AnswerStyle
from .docs_search import DocsIndex
from .faults import Fault, RawWire
from .http_answer import Answer, Pause, give_way
from .inspection import PREFIX, Control
from .local_jobs import JobBoard, JobLife
from .local_threads import ThreadBook, ThreadStyle
from .operations import Desk, Keys, route
from .rate_limits import LimitCounter, Limits
from .request_log import Expected, RecordedRequest, RequestLog, describe_difference
from .script import Rule, Script, with_fields

if TYPE_CHECKING:
    from ..session import MintlifySession

__all__ = ["LocalService"]

BACKLOG = 4096
"""Connections that may wait to be accepted: tests open thousands at once."""

PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "*, Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}


@lru_cache(maxsize=8)
def _shared_index(folder: Path | None) -> DocsIndex:
    """Read a folder once a process; an index is never written to."""
    return DocsIndex.load(folder)


class LocalService:
    """The documentation service, on this machine, for tests and demonstrations.

    It speaks the whole interface: four operations, both kinds of keys, jobs
    that live and propose an edit, answers streamed from a folder of Markdown
    pages, threads that remember. What it received is in :attr:`requests`; what
    it says next can be set with :attr:`script`.

    ::

        async with LocalService() as service, service.session() as session:
            job = await session.create_job("Fix the typos")
            assert service.requests == [("POST", "/v2/agent/acme/job")]

    Args:
        docs: The folder with the pages; the default ships with the package.
        clock: The time; give a ``VirtualClock`` to make every wait instant.
        project_id: The project; None accepts every project.
        domain: The domain; None accepts every domain.
        keys: The keys.
        life: How jobs live.
        limits: The limits to enforce, such as ``Limits()``, which has the interface's; None: no limit.
        answers: What answers are made of.
        threads: Where answers name their thread.
        cors: The origin whose pages may call, such as ``http://localhost:5173``; True for all.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        ssl: Serve TLS with this context.
        observer: Is called with each request when its answer has ended.
        control: Whether tests in other languages may look inside, see :mod:`mintlify_async.testing.inspection`.

    Raises:
        ConfigurationError: *docs* has no page, or *port* is not a port.
    """

    def __init__(
        self,
        *,
        docs: Path | str | None = None,
        clock: Clock | None = None,
        project_id: str | None = "acme",
        domain: str | None = "acme-docs",
        keys: Keys | None = None,
        life: JobLife | None = None,
        limits: Limits | None = None,
        answers: AnswerStyle | None = None,
        threads: ThreadStyle | None = None,
        cors: str | bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl: ssl_module.SSLContext | None = None,
        observer: Callable[[RecordedRequest], object] | None = None,
        control: bool = False,
    ) -> None:
        """Prepare everything; nothing listens before ``async with`` or :meth:`start`."""
        if not 0 <= port <= 65535:
            raise ConfigurationError("port is between 0 and 65535; 0 takes a free one", field="port")
        self.clock: Clock = clock or SystemClock()
        index = _shared_index(None if docs is None else Path(docs).resolve())
        self._desk = Desk(
            docs=index,
            clock=self.clock,
            keys=keys or Keys(),
            project_id=project_id,
            domain=domain,
            life=life or JobLife(),
            limits=limits,
            style=answers or AnswerStyle(),
            thread_style=threads or ThreadStyle(),
            jobs=JobBoard(index, self.clock),
            threads=ThreadBook(),
            counter=LimitCounter(),
        )
        self.requests = RequestLog()
        self.script = Script()
        self._cors, self._host, self._port, self._ssl = cors, host, port, ssl
        self._received = 0
        self._observer = observer
        self._control = (
            Control(requests=self.requests, script=self.script, jobs=self._desk.jobs) if control else None
        )
        self._listener: asyncio.Server | None = None
        self._web: web.Server | None = None
        self._at_work: set[asyncio.Task[Any]] = set()
        self._busy: set[web.RequestHandler] = set()
        self._stopping = False
        self._changed: asyncio.Future[None] | None = None

    # What a client needs to know

    @property
    def port(self) -> int:
        """The port."""
        return self._port

    @property
    def base_url(self) -> str:
        """The address for ``MintlifySession(base_url=…)``."""
        return f"{'https' if self._ssl else 'http'}://{self._authority}"

    @property
    def tls_url(self) -> str:
        """The same address with https: without *ssl*, the handshake fails."""
        return f"https://{self._authority}"

    @property
    def _authority(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def admin_key(self) -> str:
        """A key that opens the agent operations."""
        return self._desk.keys.admin

    @property
    def assistant_key(self) -> str:
        """A key that opens the assistant."""
        return self._desk.keys.assistant

    @property
    def read_only_key(self) -> str:
        """An admin key that may only look at jobs: everything else is 403."""
        return self._desk.keys.read_only

    @property
    def expired_key(self) -> str:
        """A key that was right once: everything is 401."""
        return self._desk.keys.expired

    @property
    def project_id(self) -> str:
        """The project."""
        return self._desk.project_id or "acme"

    @property
    def domain(self) -> str:
        """The domain."""
        return self._desk.domain or "acme-docs"

    def session(self, **settings: Any) -> MintlifySession:
        """Return a session for this service, on the same clock; *settings* are the session's own."""
        from .. import MintlifySession

        known: dict[str, Any] = {
            "base_url": self.base_url,
            "project_id": self.project_id,
            "domain": self.domain,
            "admin_key": self.admin_key,
            "assistant_key": self.assistant_key,
            "clock": self.clock,
        }
        return MintlifySession(**(known | settings))

    # What the service knows

    @property
    def docs(self) -> DocsIndex:
        """The pages."""
        return self._desk.docs

    @property
    def jobs(self) -> JobBoard:
        """The jobs, by id."""
        return self._desk.jobs

    @property
    def threads(self) -> ThreadBook:
        """The threads, by id."""
        return self._desk.threads

    @property
    def life(self) -> JobLife:
        """How jobs live from now on; may be set."""
        return self._desk.life

    @life.setter
    def life(self, life: JobLife) -> None:
        self._desk.life = life

    @property
    def limits(self) -> Limits | None:
        """The limits; may be set."""
        return self._desk.limits

    @limits.setter
    def limits(self, limits: Limits | None) -> None:
        self._desk.limits = limits

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._web.connections) if self._web is not None else 0

    @property
    def answering(self) -> int:
        """How many requests are being answered."""
        return len(self._at_work)

    def assert_requests(self, *expected: Expected) -> None:
        """Check what was received; each of *expected* is ``(method, path)`` or ``(method, path, json)``.

        Raises:
            AssertionError: Something else was received; the message shows the difference.
        """
        if self.requests != list(expected):
            raise AssertionError(describe_difference(self.requests, expected))

    async def until(self, condition: Callable[[LocalService], bool]) -> None:
        """Return when *condition* holds; it is looked at when a request arrives and when an answer ends.

        ::

            await service.until(lambda service: not service.answering)
        """
        while not condition(self):
            self._changed = self._changed or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)  # others wait for the same change

    def _tell_waiters(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    # Listening

    async def __aenter__(self) -> LocalService:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Listen.

        Raises:
            StateError: It listens already.
        """
        if self._web is not None:
            raise StateError("the service is started already")
        self._stopping = False
        self._web = web.Server(
            self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600.0
        )
        await self._listen(self._bind())

    async def stop(self) -> None:
        """Close the port, break off every answer, close every connection."""
        self._stopping = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for task in list(self._at_work):
            task.cancel()
        if self._at_work:
            await asyncio.wait(self._at_work)
        server, self._web = self._web, None
        if server is not None:
            await server.shutdown(0.1)
            await asyncio.sleep(0)  # a turn for the transports to close

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """Close the port inside the block: connections are refused, those that idle are dropped."""
        if self._listener is None or self._web is None:
            raise StateError("the service is not started")
        self._listener.close()
        for connection in self._web.connections:
            if connection not in self._busy:
                connection.force_close()
        placeholder = self._bind()  # bound but not listening: the port stays ours and refuses
        for _ in range(3):  # turns for both sides to see that connections are gone
            await asyncio.sleep(0)
        try:
            yield
        finally:
            await self._listen(placeholder)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, self._port))
        except BaseException:
            sock.close()
            raise
        self._port = sock.getsockname()[1]
        return sock

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, sock=sock, backlog=BACKLOG, ssl=self._ssl)

    def _accept(self) -> asyncio.BaseProtocol:
        """Return what serves the next connection: a scripted fault, or HTTP."""
        rule = self.script.take("connect")
        if rule is not None and rule.fault is not None:
            return _FaultyConnection(rule.fault, self.clock, self._at_work)
        assert self._web is not None  # a connection comes from a listener that start() made
        return self._web()

    # Answering

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        if self._control is not None and http.path.startswith(PREFIX):
            return await self._send(http, self._control.answer(http.method, http.path, await http.read()))
        task = asyncio.current_task()
        assert task is not None
        self._at_work.add(task)
        self._busy.add(http.protocol)
        request = self._record(http)
        try:
            return await self._respond(http, request)
        except asyncio.CancelledError:
            request.client_left = not self._stopping
            raise
        except ConnectionError:
            request.client_left = True
            raise
        finally:
            self._at_work.discard(task)
            self._busy.discard(http.protocol)
            request.seconds = self.clock.now() - request.at
            self._tell_waiters()
            if self._observer is not None:
                self._observer(request)

    async def _respond(self, http: web.BaseRequest, request: RecordedRequest) -> web.StreamResponse:
        if http.method == "OPTIONS" and self._cors:
            request.status, request.finished = 204, True
            return web.Response(status=204, headers=PREFLIGHT_HEADERS | self._cors_headers())
        rule = self.script.take(request.operation) or Rule(operation=request.operation)
        if rule.fault is not None and rule.fault.unread:
            return await self._play(http, rule.fault, Answer(status=503))
        request.body = await http.content.read()
        answer = self._answer(request, rule)
        if rule.delay:
            await self.clock.sleep(rule.delay)
        if rule.fault is not None:
            return await self._play(http, rule.fault, answer)
        response = await self._send(http, answer)
        request.status, request.finished = answer.status, True
        return response

    def _record(self, http: web.BaseRequest) -> RecordedRequest:
        self._received += 1
        operation, params = route(http.method, http.raw_path)
        request = RecordedRequest(
            number=self._received,
            operation=operation,
            method=http.method,
            path=http.raw_path,
            headers={name.lower(): value for name, value in http.headers.items()},
            at=self.clock.now(),
            wall=self.clock.wall(),
            params=params,
            address=http.remote or "",
            port=_port_of(http),
        )
        self.requests.add(request)
        self._tell_waiters()
        return request

    def _answer(self, request: RecordedRequest, rule: Rule) -> Answer:
        """Return what is said: the rule's own answer, or the service's with what the rule changes."""
        if rule.respond is not None:
            answer = rule.respond(request)
        elif rule.answer is not None:
            answer = rule.answer
        else:
            answer = self._desk.answer(request, rule.life).with_headers(rule.headers)
            answer = with_fields(answer, rule.fields)
        if self._cors:
            answer = answer.with_headers(self._cors_headers())
        if not any(name.lower() == "date" for name in answer.headers):  # clients measure dates against it
            answer = answer.with_headers({"Date": formatdate(self.clock.wall(), usegmt=True)})
        return answer

    def _cors_headers(self) -> dict[str, str]:
        """Return what lets a page of another origin read an answer."""
        origin = self._cors if isinstance(self._cors, str) else "*"
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": "X-Thread-Id, X-Thread-Key",
        }

    async def _send(self, http: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        """Send *answer* by the rules of HTTP."""
        if answer.whole:
            response: web.StreamResponse = web.Response(
                status=answer.status, headers=answer.headers, body=answer.content
            )
            await response.prepare(http)
            await response.write_eof()
            return response
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if answer.chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = len(answer.content)
        await response.prepare(http)
        for piece in answer.body:
            if isinstance(piece, Pause):
                await self.clock.sleep(piece.seconds)
            else:
                await response.write(piece)
                if answer.separate:
                    await give_way()
        await response.write_eof()
        return response

    async def _play(self, http: web.BaseRequest, fault: Fault, answer: Answer) -> web.StreamResponse:
        """Let *fault* have the connection."""
        transport = http.transport
        if transport is None:
            raise ConnectionResetError("the client left")
        await fault.play(RawWire(transport, self.clock), answer)
        return _Played()


def _port_of(http: web.BaseRequest) -> int:
    """Return the client's port, by which its connections can be told apart."""
    peer = http.transport.get_extra_info("peername") if http.transport is not None else None
    return peer[1] if isinstance(peer, tuple) else 0  # pyright: ignore[reportUnknownVariableType] - a socket's address


class _Played(web.StreamResponse):
    """Stands for an answer that a fault has written past the server."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Tell the server that the connection is used up."""
        raise ConnectionResetError("a fault was played on this connection")


class _FaultyConnection(asyncio.Protocol):
    """A connection that fails before any request; what the client sends is read and dropped."""

    def __init__(self, fault: Fault, clock: Clock, at_work: set[asyncio.Task[Any]]) -> None:
        self._fault, self._clock, self._tasks = fault, clock, at_work
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._task = asyncio.create_task(self._play(transport))
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    async def _play(self, transport: asyncio.Transport) -> None:
        try:
            await self._fault.play(RawWire(transport, self._clock), Answer(status=503))
        finally:
            if not transport.is_closing():
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
