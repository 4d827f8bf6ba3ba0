"""User code that blocks the loop past a limit: an answer that lies in the socket counts more than it.

``SWEEPS=whole`` plays 100 rounds for each way to the service, on asyncio's loop and on uvloop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from contextlib import suppress

import pytest

from mintlify_async import MintlifySession, Timeouts
from mintlify_async.testing import Customer
from tests.support.event_loops import LOOP_FACTORIES
from tests.support.fault_catalogue import BODY
from tests.support.tls import tls_contexts

WHOLE = os.environ.get("SWEEPS") == "whole"
ROUNDS = 100 if WHOLE else 1
pytestmark = [pytest.mark.sweep] if WHOLE else []
LIMIT = 0.2  # seconds; longer on a computer that is too busy for it
JOB = b'{"id": "job_1", "status": "active"}'


def head(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()


HEAD = head("text/event-stream", BODY)
CUT = BODY.index(b"data: ", 1)
CALLS = {
    "job": ("request", [], [head("application/json", JOB), JOB]),
    "ask": ("first_event", [], [HEAD, BODY]),
    "ask, after the headers": ("first_event", [HEAD], [BODY]),
    "ask, after an event": ("idle", [HEAD, BODY[:CUT]], [BODY[CUT:]]),
    "ask, in all": ("total", [HEAD, BODY[:CUT]], [BODY[CUT:]]),
}
"""By name: the limit, what the service sends before the client's loop is blocked, and what meanwhile."""


class Service:
    """A service, and its proxy, in a thread: it answers one request while the client's loop is blocked."""

    def __init__(self, way: str, early: list[bytes], late: list[bytes]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received, self.blocked, self.answered = (threading.Event() for _ in range(3))
        self._way, self._early, self._late = way, b"".join(early), b"".join(late)
        self._context, self._trust = tls_contexts()

    def settings(self) -> dict[str, object]:
        address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        if self._way == "plain":
            return {"base_url": f"http://{address}"}
        if self._way == "tls":
            return {"base_url": f"https://{address}", "ssl": self._trust}
        return {"base_url": "https://service.test", "proxy": f"http://{address}", "ssl": self._trust}

    def __enter__(self) -> Service:
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join()

    def _serve(self) -> None:
        """Answer one request, unless the client leaves before."""
        with suppress(OSError):
            connection, _ = self.listener.accept()
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        if self._way == "proxy":
            self._read_until(connection, b"\r\n\r\n")
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if self._way != "plain":  # the handshake is in the block, because the client may leave meanwhile
            connection = self._context.wrap_socket(connection, True, do_handshake_on_connect=False)
        with connection:
            self._read_until(connection, b"}")  # both bodies are JSON
            connection.sendall(self._early)
            self.received.set()
            self.blocked.wait(10)
            connection.sendall(self._late)
            self.answered.set()

    def _read_until(self, connection: socket.socket, end: bytes) -> None:
        data = b""
        while not data.endswith(end):
            more = connection.recv(65536)
            if not more:
                raise ConnectionAbortedError("the client has left")
            data += more


async def one_call(service: Service, operation: str, phase: str, limit: float) -> bool:
    """Make a call, and block the loop past its limit as soon as the request has left.

    Return False if that took too long on a busy computer: then the call may rightly reach its limit.
    """
    customer = Customer()
    async with MintlifySession(
        project_id="p",
        domain="d",
        admin_key=customer.admin_key,
        assistant_key=customer.assistant_key,
        timeouts=Timeouts(**{phase: limit}),
        retry=None,
        **service.settings(),
    ) as session:
        start = time.monotonic()
        call = session.create_job("Fix the typos") if operation == "job" else session.ask("hello?").run()
        task = asyncio.ensure_future(call)
        while not service.received.is_set() and not task.done():
            await asyncio.sleep(0.001)
        await asyncio.sleep(limit / 10)  # what was sent early is read
        service.blocked.set()
        if time.monotonic() - start > limit / 2:
            task.cancel()
            await asyncio.wait([task])
            return False
        time.sleep(limit + 0.02)  # noqa: ASYNC251 - the point of the test
        service.answered.wait(10)
        await task
        return True


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("way", ["plain", "tls", "proxy"])
@pytest.mark.parametrize("loop", LOOP_FACTORIES)
def test_an_answer_that_lies_in_the_socket_wins(loop: str, way: str, operation: str) -> None:
    """No call fails with a time-out, although the loop could look at nothing before the limit."""
    phase, early, late = CALLS[operation]
    counted, limit = 0, LIMIT
    with asyncio.Runner(loop_factory=LOOP_FACTORIES[loop]) as runner:
        while counted < ROUNDS:
            with Service(way, early, late) as service:
                in_time = runner.run(one_call(service, operation, phase, limit))
            counted, limit = (counted + 1, LIMIT) if in_time else (counted, limit * 2)
