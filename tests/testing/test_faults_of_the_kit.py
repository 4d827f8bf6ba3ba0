"""Every fault of the kit, seen by a bare aiohttp client as what it claims to be."""

from __future__ import annotations

import asyncio
import gzip
import re

import aiohttp
import pytest

from mintlify_async import ConfigurationError
from mintlify_async.testing import (
    BrokenChunking,
    BrokenGzip,
    Close,
    Cut,
    Drip,
    Endless,
    GzipBomb,
    HalfHead,
    LocalService,
    NoAnswer,
    Raw,
    Reset,
    Stall,
    TlsAlert,
    WrongLength,
)

JOBS = "/v2/agent/acme/job"
BODY = b"0123456789" * 10


@pytest.fixture
async def service(virtual):
    async with LocalService() as running:
        yield running


@pytest.fixture
async def client(service):
    timeout = aiohttp.ClientTimeout(total=3600)  # only against a broken test; nothing waits for it
    async with aiohttp.ClientSession(service.base_url, timeout=timeout) as session:
        yield session


def post(client, service, url=JOBS):
    key = {"Authorization": f"Bearer {service.admin_key}"}
    return client.post(url, json={"prompt": "Fix the typos"}, headers=key, allow_redirects=False)


async def test_a_closed_port_refuses(client, service):
    """Nothing listens inside the block; the same address answers again after it."""
    async with service.refusing():
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await post(client, service)
        assert isinstance(caught.value.os_error, ConnectionRefusedError)
    async with post(client, service) as response:
        assert response.status == 201
    assert len(service.requests) == 1


async def test_a_closed_port_drops_idle_connections(client, service):
    """A connection kept alive is gone, too, as with a service that went down."""
    async with post(client, service) as response:
        await response.read()
    async with service.refusing():
        assert service.connections == 0


async def test_reset_of_a_new_connection(client, service):
    """Nothing of a request is read: the reset comes first."""
    service.script.connect(Reset())
    with pytest.raises(aiohttp.ClientOSError) as caught:
        await post(client, service)
    # uvloop notices while the body is written, and aiohttp then gives no number.
    assert caught.value.errno == 104 or re.search("reset|can not write", str(caught.value), re.IGNORECASE)
    assert service.requests == []


@pytest.mark.parametrize("unread", [True, False])
async def test_reset_in_place_of_an_answer(client, service, unread):
    """The body is read or not; either way the client sees a reset, and the job exists only if it was read."""
    service.script.create_job(fault=Reset(unread=unread))
    with pytest.raises(aiohttp.ClientOSError) as caught:
        await post(client, service)
    assert isinstance(caught.value, ConnectionResetError | aiohttp.ClientOSError)
    assert service.requests == [("POST", JOBS)]
    assert service.requests[0].body == (b"" if unread else b'{"prompt": "Fix the typos"}')
    assert len(service.jobs) == (0 if unread else 1)


@pytest.mark.parametrize("unread", [True, False])
async def test_close_in_place_of_an_answer(client, service, unread):
    """The connection is closed in order, without a byte."""
    service.script.create_job(fault=Close(unread=unread))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await post(client, service)


async def test_no_answer(client, service, virtual):
    """The request is read, and then there is silence until the client gives up."""
    service.script.create_job(fault=NoAnswer())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await post(client, service)
    assert virtual.now() == 600
    await service.until(lambda service: service.requests[0].client_left)
    assert service.requests[0].client_left
    assert not service.requests[0].finished


async def test_no_answer_for_a_while(client, service, virtual):
    """After the silence, the connection is closed."""
    service.script.create_job(fault=NoAnswer(seconds=30))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await post(client, service)
    assert virtual.now() == 30


async def test_half_an_answer(client, service):
    """The head itself is cut."""
    service.script.create_job(fault=HalfHead(size=25))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await post(client, service)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("at", [0, 1, 55, 99])
async def test_cut_at_a_byte(client, service, how, at):
    """Exactly so many bytes arrive, then the connection ends before the promised length."""
    service.script.create_job(body=BODY, fault=Cut(at=at, how=how))
    async with post(client, service) as response:
        assert await response.content.readexactly(at) == BODY[:at]
        with pytest.raises(aiohttp.ClientPayloadError if how == "fin" else aiohttp.ClientError):
            await response.content.readany()


async def test_cut_counts_from_the_end(client, service):
    """A negative place counts from the end of the body."""
    service.script.create_job(body=BODY, fault=Cut(at=-10))
    async with post(client, service) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_cut_inside_a_chunked_stream(client, service):
    """A cut stream is chunked as a whole one is; the last chunk arrives short, the end of the body never."""
    service.script.create_job(chunks=[b"one", b"twothree"], fault=Cut(at=6))
    async with post(client, service) as response:
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert await response.content.readexactly(6) == b"onetwo"
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


async def test_a_clean_cut_looks_whole(client, service):
    """The framing ends in order: only the content can tell that something is missing."""
    service.script.create_job(chunks=[b"one", b"two"], fault=Cut(at=4, clean=True))
    async with post(client, service) as response:
        assert await response.read() == b"onet"


async def test_stall(client, service, virtual):
    """The body stops for a while and goes on."""
    service.script.create_job(body=BODY, fault=Stall(at=50, seconds=120))
    async with post(client, service) as response:
        assert await response.content.readexactly(50) == BODY[:50]
        assert virtual.now() == 0
        assert await response.content.read() == BODY[50:]
    assert virtual.now() == 120


async def test_cut_that_hangs(client, service, virtual):
    """A stall for ever."""
    service.script.create_job(body=BODY, fault=Cut(at=50, how="hang"))
    async with post(client, service) as response:
        await response.content.readexactly(50)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await response.content.read()


async def test_drip(client, service, virtual):
    """Head and body come byte by byte."""
    service.script.create_job(body=b"abc", fault=Drip(pause=1.0))
    async with post(client, service) as response:
        assert virtual.now() > 30  # the head alone is longer than that
        seen = [data async for data in response.content.iter_any()]
    assert seen == [b"a", b"b", b"c"]


async def test_more_promised_than_sent(client, service):
    """The length is too large."""
    service.script.create_job(body=BODY, fault=WrongLength(by=5))
    async with post(client, service) as response:
        with pytest.raises(aiohttp.ClientPayloadError, match=r"105|ContentLength"):
            await response.read()


async def test_less_promised_than_sent(client, service):
    """The length is too small: some bytes belong to no answer."""
    service.script.create_job(body=BODY, fault=WrongLength(by=-5))
    async with post(client, service) as response:
        assert await response.read() == BODY[:-5]


async def test_broken_chunking(client, service, virtual):
    """A chunk's size is no number: what came before it arrives, the end never does."""
    service.script.create_job(chunks=[b"one", b"two"], fault=BrokenChunking(at=3))
    async with post(client, service) as response:
        assert await response.content.readany() == b"one"
        with pytest.raises(
            (aiohttp.ClientError, RuntimeError, TimeoutError)
        ):  # aiohttp's C parser reports nothing
            async with asyncio.timeout(60):
                await response.content.read()


async def test_gzip_of_garbage(client, service):
    """The body says gzip and is none."""
    service.script.create_job(body=BODY, fault=BrokenGzip())
    async with post(client, service) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_gzip_cut_short_is_silent(client, service):
    """The framing is whole, the gzip is not: no error, and some of the body is missing."""
    body = bytes(range(256)) * 8
    assert len(gzip.compress(body)) < len(body)
    service.script.create_job(body=body, fault=BrokenGzip(cut=True))
    async with post(client, service) as response:
        seen = await response.read()
    assert len(seen) < len(body)


async def test_gzip_bomb(client, service):
    """Few bytes on the wire, many when unpacked."""
    service.script.create_job(fault=GzipBomb(size_bytes=5_000_000))
    async with post(client, service) as response:
        assert int(response.headers["Content-Length"]) < 10_000
        assert sum([len(data) async for data in response.content.iter_any()]) == 5_000_000


async def test_endless_comments(client, service, virtual):
    """The stream never ends, and never says anything."""
    service.script.create_job(body=BODY, fault=Endless(pause=10, at=20))
    async with post(client, service) as response:
        assert await response.content.readexactly(20) == BODY[:20]
        for _ in range(5):
            assert await response.content.readuntil(b"\n\n") == b": still here\n\n"
    assert virtual.now() == 50


async def test_redirect(client, service):
    """The answer names another place."""
    service.script.create_job(status=308, headers={"Location": "http://127.0.0.1:9/elsewhere"})
    async with post(client, service) as response:
        assert (response.status, response.headers["Location"]) == (308, "http://127.0.0.1:9/elsewhere")


@pytest.mark.shows_secrets("the bare client's own error shows the request's headers")
async def test_garbage(client, service):
    """What comes is no HTTP."""
    service.script.create_job(fault=Raw([b"this is not HTTP\r\n\r\n"]))
    with pytest.raises(aiohttp.ClientResponseError):
        await post(client, service)


async def test_exact_bytes(client, service, virtual):
    """Every byte from the status line on, with a pause inside."""
    head = b"HTTP/1.1 299 Fine\r\nContent-Length: 2\r\n\r\n"
    service.script.create_job(fault=Raw([head + b"a", 7.0, b"b"]))
    async with post(client, service) as response:
        assert (response.status, response.reason) == (299, "Fine")
        assert await response.read() == b"ab"
    assert virtual.now() == 7


@pytest.mark.parametrize("fault", [Close(), Reset()], ids=["fin", "rst"])
async def test_tls_handshake_cut(client, service, fault):
    """The connection ends inside the handshake."""
    service.script.connect(fault)
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, service, service.tls_url + JOBS)


async def test_tls_alert(client, service):
    """The server refuses the handshake."""
    service.script.connect(TlsAlert())
    with pytest.raises(aiohttp.ClientConnectorSSLError, match=r"(?i)handshake"):
        await post(client, service, service.tls_url + JOBS)


async def test_plain_http_on_a_tls_port(client, service):
    """Without a script, TLS meets a server that does not speak it."""
    with pytest.raises(aiohttp.ClientConnectorSSLError, match=r"(?i)wrong.version"):
        await post(client, service, service.tls_url + JOBS)


async def test_silence_in_the_handshake(client, service, virtual):
    """The server accepts and says nothing."""
    service.script.connect(NoAnswer())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await post(client, service, service.tls_url + JOBS)


async def test_untrusted_certificate(virtual):
    """A service of your own certificate: a client that does not know it refuses."""
    trustme = pytest.importorskip("trustme")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with LocalService(ssl=context) as service, aiohttp.ClientSession() as client:
        assert service.base_url.startswith("https://")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(client, service, service.base_url + JOBS)


async def test_the_connection_is_gone_after_each_fault(client, service):
    """A fault uses its connection up; the next request has a new one and is answered."""
    faults = [Reset(), Close(), Cut(at=3), WrongLength(), Raw([b"no HTTP"]), HalfHead(), Drip(size=50)]
    for fault in faults:
        service.script.create_job(fault=fault)
        try:
            async with post(client, service) as response:
                await response.read()
        except aiohttp.ClientError:
            pass
        async with post(client, service) as response:
            assert response.status == 201
    await asyncio.sleep(0)
    assert service.answering == 0


def test_a_fault_that_needs_a_request_is_refused_for_connections():
    """Said at once, with what to do instead."""
    with pytest.raises(ConfigurationError, match=re.escape("script.ask")):
        LocalService().script.connect(Cut(at=3))
