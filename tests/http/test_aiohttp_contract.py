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
from mintlify_async.testing import Close, Reset
from tests.support.fault_catalogue import BrokenChunking


@pytest.mark.parametrize("fault", [Close(), Reset(), Close(unread=True)], ids=lambda fault: repr(fault))
async def test_aiohttp_never_sends_a_post_twice(service, fault):
    """It sends a GET a second time by itself; should it ever do so with a POST, this fails."""
    service.script.create_job(fault=fault, times=None)
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await client.post(
                f"{service.base_url}/v2/agent/acme/job", data=RequestBody(b'{"prompt": "x"}', Sending())
            )
    assert len(service.requests) == 1


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


async def test_a_body_knows_that_it_was_not_written():
    """No server listens, so nothing was handed to a connection."""
    sending = Sending()
    body = RequestBody(b"{}", sending)
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.post("http://127.0.0.1:1/", data=body)
    assert sending.sent_at is None


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


async def test_bytes_behind_an_error_can_be_taken_back(service):
    """``set_exception(None)`` is outside the annotated type; the salvage of received text rests on it."""
    service.script.ask(body=[b"data: 1\n\n", 0.02, b"data: 2\n\n"], fault=None)
    service.script.ask(body=b"data: 1\n\ndata: 2\n\n", fault=BrokenChunking(9, "fin"))
    async with aiohttp.ClientSession() as client:
        url = f"{service.base_url}/discovery/v2/assistant/acme-docs/message"
        await (await client.post(url, json={})).read()
        response = await client.post(url, json={})
        await asyncio.sleep(0.05)
        content = response.content
        if content.exception() is None:  # the pure-Python parser may not have noticed yet
            response.close()
        with pytest.raises((aiohttp.ClientError, RuntimeError)):
            await content.readany()
        content.set_exception(None)
        assert content.read_nowait() == b"data: 1\n\n"
        response.close()


async def test_closing_a_response_wakes_its_reader(service):
    """``session.close()`` does not, which is why every live answer is closed first."""
    service.script.ask(events=[{"type": "start"}, 60.0])
    async with aiohttp.ClientSession() as client:
        response = await client.post(f"{service.base_url}/discovery/v2/assistant/acme-docs/message", json={})
        await response.content.readany()
        reader = asyncio.create_task(response.content.readany())
        await asyncio.sleep(0)
        response.close()
        with pytest.raises(aiohttp.ClientConnectionError):
            await reader


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
