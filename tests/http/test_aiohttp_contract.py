"""What this package relies on in aiohttp, tested on the installed version.

``tox`` installs the version in ``constraints.txt``, ``tox -e lowest`` the oldest that is allowed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from types import SimpleNamespace

import aiohttp
import pytest

from mintlify_async.http.connection_errors import AttemptLimit, known_flaw, log_known_flaw, translate
from mintlify_async.http.send_progress import Sending
from mintlify_async.http.transport import RequestBody
from mintlify_async.protocol.requests import create_job_call
from mintlify_async.settings.options import Options


async def test_nothing_is_on_the_wire_before_the_body():
    """This is why older versions than 3.12 are not allowed: they send the headers ahead of the body.

    "Nothing was sent" rests on it. The server of this test sees raw bytes.
    """
    received = bytearray()

    async def serve(reader, writer):
        while data := await reader.read(65_536):
            received.extend(data)
            if received.endswith(b'{"prompt": "x"}'):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    class Late(RequestBody):
        async def write(self, writer):
            await asyncio.sleep(0.1)
            before.append(bytes(received))
            await super().write(writer)

    before: list[bytes] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, aiohttp.ClientSession() as client:
        response = await client.post(f"http://127.0.0.1:{port}/", data=Late(b'{"prompt": "x"}', Sending()))
        assert response.status == 200
    assert before == [b""]
    assert received.startswith(b"POST / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("version", "warnings"),
    [("3.12.15", 1), ("3.13.5", 1), ("3.14.2", 1), ("3.14.3", 0), ("3.15.0", 0), ("4.0.0a1", 0)],
)
async def test_the_flaw_is_logged_once_per_process(service, monkeypatch, caplog, version, warnings):
    """Two sessions that send requests make one line; a session that sends none makes no line."""
    monkeypatch.setattr(aiohttp, "__version__", version)
    log_known_flaw.cache_clear()
    caplog.set_level(logging.WARNING, "mintlify_async")
    async with service.session():
        assert not caplog.records
    for _ in range(2):
        async with service.session() as session:
            await session.create_job("Fix the typos")
    assert [record.getMessage() for record in caplog.records] == [known_flaw(version)] * warnings
    assert warnings == 0 or f"aiohttp {version} has a flaw" in caplog.text
    assert caplog.text.count("GHSA-cq5v-8q36-5273") == caplog.text.count("'aiohttp>=3.14.3,<4'") == warnings


@pytest.mark.parametrize("closing", [True, False])
async def test_a_body_for_a_connection_that_is_closing_was_not_sent(closing):
    """Aiohttp still gives the writer its transport then. The request may be sent again."""

    class Writer:
        transport = SimpleNamespace(is_closing=lambda: closing)

        async def write(self, data):
            assert data == b"{}"

    sending = Sending()
    await RequestBody(b"{}", sending).write(Writer())
    assert sending.outcome == ("not_sent" if closing else "unknown")


def test_foreign_errors_are_translated_to_the_most_specific():
    """Failures that no server on loopback can play."""
    create = create_job_call(Options(project_id="p"), "x")
    limit = AttemptLimit(math.inf, 60.0, "request")
    key = aiohttp.client_reqrep.ConnectionKey("host", 443, True, True, None, None, None)
    cases = [
        (aiohttp.ClientConnectorDNSError(key, OSError(-2, "no name")), "dns", "no"),
        (aiohttp.ClientConnectorCertificateError(key, ValueError("expired")), "certificate", "no"),
        (aiohttp.ServerFingerprintMismatch(b"a", b"b", "h", 1), "certificate", "no"),
        (aiohttp.ClientProxyConnectionError(key, OSError(111, "refused")), "proxy", "no"),
        (aiohttp.ConnectionTimeoutError("x"), "timeout", "no"),
        (aiohttp.ServerDisconnectedError(), "lost", "maybe"),
        (aiohttp.ClientOSError(104, "reset"), "lost", "maybe"),
        (TimeoutError(), "timeout", "maybe"),
    ]
    for foreign, reason, sent in cases:
        ours = translate(foreign, create, written=sent == "maybe", limit=limit)
        assert (ours.reason, ours.sent) == (reason, sent), foreign
