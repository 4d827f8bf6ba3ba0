"""User code that blocks the loop past a limit: an answer that lies in the socket counts more than it.

``SWEEPS=whole`` plays 100 rounds for each way to the service, on asyncio's loop and on uvloop.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import pytest
import trustme

from mintlify_async import MintlifySession, Timeouts
from mintlify_async.testing import Customer

with suppress(ImportError):  # not on every system
    import uvloop

    uvloop.new_event_loop().close()  # the first in a process opens a pipe for signals that stays open

WHOLE = os.environ.get("SWEEPS") == "whole"
ROUNDS = 100 if WHOLE else 1
pytestmark = [pytest.mark.sweep] if WHOLE else []
LIMIT = 0.2
JOB = json.dumps({"id": "job_1", "status": "active"}).encode()
STREAM = b"".join(
    b"data: " + json.dumps(event).encode() + b"\n\n"
    for event in (
        {"type": "start", "messageId": "m"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "hello"},
        {"type": "text-end", "id": "t"},
        {"type": "finish"},
    )
)
ANSWERS = {
    "job": (b"201 Created", b"application/json", JOB),
    "ask": (b"200 OK", b"text/event-stream", STREAM),
}


class Service:
    """A service, and its proxy, in a thread: it answers as soon as the client's loop is blocked."""

    def __init__(self, way: str, operation: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received, self.blocked = threading.Event(), threading.Event()
        self._operation, self._tls, self._proxy = operation, way != "plain", way == "proxy"
        authority = trustme.CA()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "service.test").configure_cert(self._context)
        self.trust = ssl.create_default_context()
        authority.configure_trust(self.trust)

    def settings(self) -> dict[str, object]:
        address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        if self._proxy:
            return {"base_url": "https://service.test", "proxy": f"http://{address}", "ssl": self.trust}
        return (
            {"base_url": f"https://{address}", "ssl": self.trust}
            if self._tls
            else {"base_url": f"http://{address}"}
        )

    def serve(self) -> None:
        """Answer one request on each connection, until the listener is closed."""
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        if self._proxy:
            self._read(connection)
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if self._tls:
            connection = self._context.wrap_socket(connection, server_side=True)
        with connection:
            self._read(connection)
            self.received.set()
            self.blocked.wait(10)
            status, kind, body = ANSWERS[self._operation]
            head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (
                status,
                kind,
                len(body),
            )
            connection.sendall(head + body)
            self.received.clear()
            self.blocked.clear()

    def _read(self, connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)


@contextmanager
def serving(way: str, operation: str) -> Generator[Service]:
    service = Service(way, operation)
    thread = threading.Thread(target=service.serve)
    thread.start()
    try:
        yield service
    finally:
        service.listener.shutdown(socket.SHUT_RDWR)
        service.listener.close()
        thread.join()


async def one_call(service: Service, operation: str) -> bool:
    """Make a call, and block the loop past its limit as soon as the request has left.

    Return False if that took too long on a busy machine: then the limit may be right.
    """
    start = time.monotonic()
    customer = Customer()
    async with MintlifySession(
        project_id="p",
        domain="d",
        admin_key=customer.admin_key,
        assistant_key=customer.assistant_key,
        timeouts=Timeouts(request=LIMIT, first_event=LIMIT),
        retry=None,
        **service.settings(),
    ) as session:
        call = session.create_job("Fix the typos") if operation == "job" else session.ask("hello?").run()
        task = asyncio.ensure_future(call)
        while not service.received.is_set() and not task.done():
            await asyncio.sleep(0)
        in_time = time.monotonic() - start < LIMIT / 2
        service.blocked.set()
        time.sleep(LIMIT + 0.02)  # noqa: ASYNC251 - the point of the test
        with suppress(BaseException if not in_time else ()):
            await task
        return in_time


@pytest.mark.parametrize("operation", ["job", "ask"])
@pytest.mark.parametrize("way", ["plain", "tls", "proxy"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_answer_that_lies_in_the_socket_wins(loop: str, way: str, operation: str) -> None:
    """No call fails with a time-out, although the loop could look at nothing before the limit."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    failures: list[BaseException] = []
    counted = 0
    with serving(way, operation) as service, asyncio.Runner(loop_factory=factory) as runner:
        while counted < ROUNDS:
            try:
                counted += runner.run(one_call(service, operation))
            except Exception as error:
                counted += 1
                failures.append(error)
    assert failures == []
