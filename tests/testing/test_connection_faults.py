"""Every fault of the kit, as a bare aiohttp client sees it."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest

from mintlify_async.testing import Close, Cut, NoAnswer, Raw, Reset

JOBS = "/v2/agent/acme/job"
BODY = b"0123456789" * 10
CHUNKS = {"body": [b"one", b"twothree"]}
SLOW = Raw([b"HTTP/1.1 299 Fine\r\nConnection: close\r\nContent-Length: 2\r\n\r\na", 7.0, b"b"])


async def received(response):
    """Return the bytes that arrive within an hour of virtual time, and the class of the error after them."""
    data = b""
    try:
        async with asyncio.timeout(3000):
            while piece := await response.content.readany():
                data += piece
    except (aiohttp.ClientError, RuntimeError, TimeoutError) as error:
        return data, type(error)
    return data, None


async def test_a_closed_port_refuses(client, service):
    """Idle connections are closed, and new ones are refused. The service answers again after the block."""
    await client.create()
    async with service.refusing():
        assert service.connections == 0
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await client.create()
        assert isinstance(caught.value.os_error, ConnectionRefusedError)
    assert (await client.create())[0] == 201
    assert len(service.requests) == 2


@pytest.mark.shows_secrets("the bare client's own error shows the request's headers")
@pytest.mark.parametrize(
    ("fault", "error", "seconds"),
    [
        (Reset(), aiohttp.ClientOSError, 0),
        (Reset(unread=True), aiohttp.ClientOSError, 0),
        (Close(), aiohttp.ServerDisconnectedError, 0),
        (Close(unread=True), aiohttp.ServerDisconnectedError, 0),
        (NoAnswer(), TimeoutError, 600),
        (NoAnswer(seconds=30), aiohttp.ServerDisconnectedError, 30),
        (Raw([b"HTTP/1.1 200 OK\r\nCont"]), aiohttp.ServerDisconnectedError, 0),
        (Raw([b"this is not HTTP\r\n\r\n"]), aiohttp.ClientResponseError, 0),
    ],
    ids=str,
)
async def test_a_fault_in_place_of_the_response(client, service, virtual, fault, error, seconds):
    """The job exists if the request was read. The next request has a new connection and is answered."""
    service.script.create_job(fault=fault)
    with pytest.raises(error):
        async with asyncio.timeout(600):
            await client.create()
    assert virtual.now() == seconds
    request = service.requests[0]
    assert request.body == (b"" if fault.unread else b'{"prompt": "Fix the typos"}')
    assert (len(service.jobs), request.finished) == (0 if fault.unread else 1, False)
    await service.until(lambda service: not service.answering)
    assert request.client_left == (error is TimeoutError)
    assert (await client.create())[0] == 201


@pytest.mark.parametrize(
    ("answer", "fault", "data", "error", "seconds"),
    [
        ({}, Cut(at=0), b"", aiohttp.ClientPayloadError, 0),
        ({}, Cut(at=55), BODY[:55], aiohttp.ClientPayloadError, 0),
        ({}, Cut(at=-10), BODY[:90], aiohttp.ClientPayloadError, 0),
        ({}, Cut(at=55, how="rst"), BODY[:55], aiohttp.ClientPayloadError, 0),
        ({}, Cut(at=55, how="hang"), BODY[:55], TimeoutError, 3000),
        (CHUNKS, Cut(at=6), b"onetwo", aiohttp.ClientPayloadError, 0),
        (CHUNKS, Cut(at=4, clean=True), b"onet", None, 0),
        ({}, SLOW, b"ab", None, 7),
    ],
    ids=str,
)
async def test_a_fault_inside_the_body(client, service, virtual, answer, fault, data, error, seconds):
    """Exactly these bytes arrive, then this error, after this time. The connection is used up."""
    service.script.create_job(**(answer or {"body": BODY}), fault=fault)
    async with client.request("POST", JOBS) as response:
        assert await received(response) == (data, error)
    assert virtual.now() == seconds
    assert (await client.create())[0] == 201


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Close(), aiohttp.ClientConnectorError),
        (Reset(), aiohttp.ClientConnectorError),
        (Raw([b"\x15\x03\x03\x00\x02\x02\x28"]), aiohttp.ClientConnectorSSLError),  # a TLS alert
        (None, aiohttp.ClientConnectorSSLError),  # the service does not speak TLS
        (NoAnswer(), TimeoutError),
    ],
    ids=str,
)
async def test_a_tls_handshake_fails(client, service, fault, error):
    """The connection ends in the handshake, is refused, or is silent. No request is read."""
    if fault is not None:
        service.script.connect(fault)
    with pytest.raises(error):
        async with asyncio.timeout(60):
            await client.http.post(service.base_url.replace("http:", "https:"))
    assert service.requests == []


async def test_untrusted_certificate(make):
    """A client that does not know the certificate of the service refuses it."""
    trustme = pytest.importorskip("trustme")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    client = await make(ssl=context)
    assert client.service.base_url.startswith("https://")
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await client.create()
