"""The documentation service on this machine: an HTTP server that responds, plays faults, and records.

:mod:`mintlify_async.testing.local_responses` makes the responses. This file listens and sends.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as ssl_module
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import ClientResponse, web
from attrs import evolve

from ..errors import ConfigurationError, StateError
from ..runtime.clock import now as date_now
from ..wrong_names import helpful
from .assistant_answers import AnswerStyle
from .customers import Customer
from .docs_index import DocsIndex
from .http_response import Answer, let_client_read, merge_headers
from .local_jobs import JobLife, LocalJobs
from .local_responses import Operations, find_operation
from .rate_limits import Limits
from .replay import Played, replay_rules
from .request_log import RecordedRequest, RequestLog
from .response_sender import FaultyConnection, Sent, send_answer
from .scripted_responses import Rule, Script
from .virtual_clock import is_virtual, other_end_closes

if TYPE_CHECKING:
    from ..protocol.requests import Call
    from ..session import MintlifySession

BACKLOG = 4096
"""Number of connections that may wait to be accepted, because tests open thousands at the same time."""

PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "*, Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}


_OF_A_CUSTOMER = ("project_id", "domain", "admin_key", "assistant_key")


@lru_cache(maxsize=8)  # each folder is read once per process, because an index never changes
def _shared_index(folder: Path | None) -> DocsIndex:
    return DocsIndex.load(folder)


def check_loops(session: MintlifySession, service: LocalService) -> None:
    """Make *session* refuse requests that would wait forever, because the loop of *service* does not run."""
    from ..session import record_requests

    record_requests(session, service._check_loop)  # pyright: ignore[reportPrivateUsage] - defined in this file


@helpful
class LocalService:
    """The documentation service on this machine, for tests and demonstrations.

    It implements the complete API: four operations, both kinds of keys, jobs that run, answers streamed
    from a folder of Markdown pages, threads. :attr:`requests` records the received requests.
    :attr:`script` sets the next responses.

    ::

        async with LocalService() as service, service.session() as session:
            service.script.create_job(status=429, headers={"Retry-After": "2"})
            job = await session.create_job("Fix the typos")
            assert service.requests == [("POST", "/v2/agent/acme/job")] * 2

    Args:
        customers: The customers. The default is one, ``Customer("acme")``.
        docs: A folder of Markdown pages to answer from. The default is the package's own documentation.
        life: The course of jobs. By default they complete after 3 seconds.
        limits: The rate limits to enforce. ``Limits()`` has the limits of the API. None means no limit.
        answers: The contents of answers.
        cors: The origin whose web pages may call, such as ``http://localhost:5173``. True allows all.
        host: The IP address to listen on.
        port: The port to listen on. 0 takes a free one.
        ssl: The TLS context. With it, the service uses https.

    Raises:
        ConfigurationError: *docs* has no page, or *port* is not a port.

    Attributes:
        requests: All received requests, as a :class:`RequestLog`.
        script: The scripted responses, as a :class:`Script`.
        customers: The customers. You can add more.
        life: The course of new jobs. Can be set.
        limits: The rate limits. Can be set.
        observer: A function that is called with each request when its response has ended. Can be set.
        docs: The documentation pages, as a :class:`DocsIndex`.
        jobs: The jobs, by id.
        threads: The threads, by id.
        port: The port that the service listens on.
        project_id: The project of the first customer. The domain and the keys are also the first customer's.
        domain: The domain for a client.
        admin_key: A key for jobs.
        assistant_key: A key for the assistant.
        read_only_key: An admin key that can only read jobs. Every other operation gets a 403.
        expired_key: An expired key. Every operation gets a 401.
    """

    def __init__(
        self,
        *,
        customers: Iterable[Customer] = (),
        docs: Path | str | None = None,
        life: JobLife | None = None,
        limits: Limits | None = None,
        answers: AnswerStyle | None = None,
        cors: str | bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl: ssl_module.SSLContext | None = None,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ConfigurationError("port must be between 0 and 65535; 0 takes a free one", field="port")
        self.customers = list(customers) or [Customer()]
        self.docs = _shared_index(None if docs is None else Path(docs).resolve())
        self._operations = Operations(
            docs=self.docs,
            now=self.now,
            customers=self.customers,
            style=answers or AnswerStyle(),
            jobs=LocalJobs(self.now),
        )
        self.jobs, self.threads = self._operations.jobs, self._operations.threads
        self.life, self.limits = life or JobLife(), limits
        self.requests, self.script = RequestLog(), Script()
        first = self.customers[0]
        self.project_id, self.domain = first.project_id, first.domain
        self.admin_key, self.assistant_key = first.admin_key, first.assistant_key
        self.read_only_key, self.expired_key = first.read_only_key, first.expired_key
        self.port = port
        self._cors, self._host, self._ssl = cors, host, ssl
        self.observer: Callable[[RecordedRequest], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = 0.0  # the loop's time at the start
        self._listener: asyncio.Server | None = None
        self._web: web.Server | None = None
        self._at_work: set[asyncio.Task[Any]] = set()
        self._busy: set[web.RequestHandler] = set()
        self._stopping = False
        self._changed = asyncio.Event()  # set at the next request or response

    @property
    def base_url(self) -> str:
        """The URL for ``MintlifySession(base_url=…)``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._ssl else 'http'}://{host}:{self.port}"

    def session(self, customer: Customer | None = None, **settings: Any) -> MintlifySession:
        """Return a session for this service, with the keys of *customer* or of the first one.

        The session's ``settle_seconds`` suits the jobs of :attr:`life`. In real time it is short, so that
        a follow-up does not take a minute. ``poll=PollPolicy()`` sets the usual 60 s.

        ::

            async with service.session(poll=PollPolicy(initial=1.0)) as session:
                ...

        *settings* are additional arguments of ``MintlifySession``.
        """
        from .. import MintlifySession, PollPolicy

        known: dict[str, Any] = {"base_url": self.base_url}
        known |= {name: getattr(customer or self.customers[0], name) for name in _OF_A_CUSTOMER}
        settle, usual = self.settle_seconds, PollPolicy()
        # In virtual time, a wait costs nothing, so the usual 60 s are the minimum, also for scripted jobs.
        if is_virtual(self._loop):
            settle = max(settle, usual.settle_seconds)
        known["poll"] = evolve(usual, settle_seconds=settle)
        session = MintlifySession(**(known | settings))
        check_loops(session, self)
        return session

    async def _check_loop(
        self, call: Call, headers: Mapping[str, str], response: Awaitable[ClientResponse]
    ) -> ClientResponse:
        """Refuse a request that would wait forever, because the event loop of the service does not run."""
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and not loop.is_running():
            getattr(response, "close", lambda: None)()  # otherwise Python warns that it was never awaited
            raise StateError(
                "the service is on another event loop, which does not run now: with pytest-asyncio, give the "
                'fixture and its test the same loop, as with @pytest_asyncio.fixture(loop_scope="function")'
            )
        return await response

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that connect a ``MintlifySession()`` to this service."""
        return {
            "MINTLIFY_BASE_URL": self.base_url,
            "MINTLIFY_PROJECT_ID": self.project_id,
            "MINTLIFY_DOMAIN": self.domain,
            "MINTLIFY_ADMIN_API_KEY": self.admin_key,
            "MINTLIFY_ASSISTANT_API_KEY": self.assistant_key,
        }

    @property
    def settle_seconds(self) -> float:
        """The smallest ``PollPolicy.settle_seconds`` for jobs like :attr:`life`.

        With this value, a wait after a follow-up never returns an earlier result.
        """
        return self.life.seconds + max(self.life.stale) + 1.0

    def replay(self, path: str | PathLike[str]) -> None:
        """Queue the responses of a recording. Each is for the next request of its operation.

        The responses have the recorded bytes and pauses. Keys and bodies of the requests are not compared.

        Raises:
            ConfigurationError: The file is not a recording.
            OSError: The file cannot be read.
        """
        self.script.extend(replay_rules(path))

    def now(self) -> float:
        """Return the seconds since the first start, by the event loop's time."""
        return 0.0 if self._loop is None else self._loop.time() - self._began

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._web.connections) if self._web is not None else 0

    @property
    def answering(self) -> int:
        """The number of requests being answered."""
        return len(self._at_work)

    async def until(self, condition: Callable[[LocalService], bool]) -> None:
        """Wait until *condition* is true. It is checked when a request arrives and when a response ends.

        ::

            await service.until(lambda service: not service.answering)
        """
        while not condition(self):
            await self._changed.wait()

    def _tell_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Listening

    async def __aenter__(self) -> LocalService:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start listening.

        Raises:
            StateError: The service is already started.
        """
        if self._web is not None:
            raise StateError("the service is already started")
        self._stopping = False
        loop = asyncio.get_running_loop()
        self._began, self._loop = loop.time() - self.now(), loop
        self._web = web.Server(
            self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600.0
        )
        await self._listen(self._bind())

    async def stop(self) -> None:
        """Close the port, cancel every response, and close every connection."""
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
            await asyncio.sleep(0)  # lets the transports close

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """Refuse connections inside the block, like a service that is down. Idle connections are closed.

        ::

            async with service.refusing():
                with pytest.raises(APIConnectionError):
                    await session.create_job("Fix the typos")

        Raises:
            StateError: The service is not started.
        """
        if self._listener is None or self._web is None:
            raise StateError("the service is not started")
        self._listener.close()
        for connection in self._web.connections:
            if connection not in self._busy:
                connection.force_close()
        bound_socket = self._bind()  # bound but not listening, so it keeps the port and refuses
        await let_client_read()  # both sides must detect that connections are gone
        try:
            yield
        finally:
            await self._listen(bound_socket)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, self.port))
        except BaseException:
            sock.close()
            raise
        self.port = sock.getsockname()[1]
        return sock

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, sock=sock, backlog=BACKLOG, ssl=self._ssl)

    def _accept(self) -> asyncio.BaseProtocol:
        """Return the protocol for the next connection, which is a scripted fault or HTTP."""
        rule = self.script.take("connect")
        if rule is not None and rule.fault is not None:
            return FaultyConnection(rule.fault, self._at_work)
        assert self._web is not None  # start() sets it before it listens
        return self._web()

    # Answering

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._at_work.add(task)
        self._busy.add(http.protocol)
        request = self._record(http)
        try:
            return await self._respond(http, request)
        except asyncio.CancelledError:
            request.left = not self._stopping
            raise
        except ConnectionError:
            request.left = True
            return Sent(keep_alive=False)
        finally:
            request.left, request.is_client_gone = bool(request.left), None
            self._at_work.discard(task)
            self._busy.discard(http.protocol)
            request.seconds = self.now() - request.at
            self._tell_waiters()
            if self.observer is not None:
                self.observer(request)

    async def _respond(self, http: web.BaseRequest, request: RecordedRequest) -> web.StreamResponse:
        if http.method == "OPTIONS" and self._cors:
            answer = Answer(status=204, headers=PREFLIGHT_HEADERS | self._cors_headers())
            rule = Rule(operation="other")
        else:
            rule = self.script.take(request.operation) or Rule(operation=request.operation)
            if rule.fault is not None and rule.fault.unread:
                return await send_answer(http, Answer(status=503), rule.fault)
            request.body = await http.content.read()
            answer = self._answer(request, rule)
        if rule.delay:
            await asyncio.sleep(rule.delay)
        response = await send_answer(http, answer, rule.fault)
        if rule.fault is None:
            request.status, request.finished = answer.status, True
        return response

    def _record(self, http: web.BaseRequest) -> RecordedRequest:
        operation, params = find_operation(http.method, http.raw_path)
        request = RecordedRequest(
            operation=operation,
            method=http.method,
            path=http.raw_path,
            headers={name.lower(): value for name, value in http.headers.items()},
            at=self.now(),
            wall=date_now(),
            params=params,
            address=http.remote or "",
            is_client_gone=partial(other_end_closes, http.transport),
            port=(http.get_extra_info("peername") or ("", 0))[1],
        )
        self.requests.append(request)
        self._tell_waiters()
        return request

    def _answer(self, request: RecordedRequest, rule: Rule) -> Answer:
        """Return the rule's response, or the service's own with the changes of the rule."""
        answer = rule.answer(
            request, lambda: self._operations.answer(request, rule, rule.life or self.life, self.limits)
        )
        if self._cors:
            answer = answer.with_headers(self._cors_headers())
        own = {"Date": formatdate(date_now(), usegmt=True)}  # clients compare dates with this one
        named = any(name.lower().endswith(("request-id", "requestid")) for name in answer.headers)
        if not (named or isinstance(rule.fault, Played)):  # a recording has its own request id
            own["X-Request-Id"] = f"req_{len(self.requests)}"
        return evolve(answer, headers=merge_headers(own, answer.headers))

    def _cors_headers(self) -> dict[str, str]:
        origin = self._cors if isinstance(self._cors, str) else "*"
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": "X-Request-Id, X-Thread-Id, X-Thread-Key",
        }
