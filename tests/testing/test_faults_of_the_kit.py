"""Every fault of the kit, as a bare aiohttp client sees it."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest

from mintlify_async.testing import Close, Cut, LocalService, NoAnswer, Raw, Reset

JOBS = "/v2/agent/acme/job"
BODY = b"0123456789" * 10
CHUNKS = {"body": [b"one", b"twothree"]}


@pytest.fixture
async def service(virtual):
    async with LocalService() as running:
        yield running


@pytest.fixture
async def client(service):
    timeout = aiohttp.ClientTimeout(total=3600)  # only against a broken test, which would not end
    async with aiohttp.ClientSession(service.base_url, timeout=timeout) as session:
        yield session


def post(client, service, url=JOBS):
    key = {"Authorization": f"Bearer {service.admin_key}"}
    return client.post(url, json={"prompt": "Fix the typos"}, headers=key)


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
    async with post(client, service) as response:
        await response.read()
    async with service.refusing():
        assert service.connections == 0
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await post(client, service)
        assert isinstance(caught.value.os_error, ConnectionRefusedError)
    async with post(client, service) as response:
        assert response.status == 201
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
            await post(client, service)
    assert virtual.now() == seconds
    request = service.requests[0]
    assert request.body == (b"" if fault.unread else b'{"prompt": "Fix the typos"}')
    assert (len(service.jobs), request.finished) == (0 if fault.unread else 1, False)
    await service.until(lambda service: not service.answering)
    assert request.client_left == (error is TimeoutError)
    async with post(client, service) as response:
        assert response.status == 201


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
        (
            {},
            Raw([b"HTTP/1.1 299 Fine\r\nConnection: close\r\nContent-Length: 2\r\n\r\na", 7.0, b"b"]),
            b"ab",
            None,
            7,
        ),
    ],
    ids=str,
)
async def test_a_fault_inside_the_body(client, service, virtual, answer, fault, data, error, seconds):
    """Exactly these bytes arrive, then this error, after this time. The connection is used up."""
    service.script.create_job(**(answer or {"body": BODY}), fault=fault)
    async with post(client, service) as response:
        assert await received(response) == (data, error)
    assert virtual.now() == seconds
    async with post(client, service) as response:
        assert response.status == 201


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
    """The connection ends in the handshake, is refused, or is silent."""
    if fault is not None:
        service.script.connect(fault)
    with pytest.raises(error):
        async with asyncio.timeout(60):
            await post(client, service, service.base_url.replace("http:", "https:") + JOBS)


async def test_a_reset_of_a_new_connection(client, service):
    """No request is read."""
    service.script.connect(Reset())
    with pytest.raises(aiohttp.ClientOSError):
        await post(client, service)
    assert service.requests == []


async def test_untrusted_certificate(virtual):
    """A client that does not know the certificate of the service refuses it."""
    trustme = pytest.importorskip("trustme")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with LocalService(ssl=context) as service, aiohttp.ClientSession() as client:
        assert service.base_url.startswith("https://")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(client, service, service.base_url + JOBS)
