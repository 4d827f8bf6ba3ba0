"""The proxy that a session gets or finds in the environment: it is used, or refused by its name."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
from contextlib import AsyncExitStack

import aiohttp
import pytest

from mintlify_async import APIConnectionError, ConfigurationError, MintlifySession, RetryPolicy
from mintlify_async.testing import LocalService
from tests.support.proxy_server import Proxy
from tests.support.secret_guard import Keys
from tests.support.tls import tls_contexts

PASSWORD = Keys.admin
"""The guard of secrets looks for it in each error, log line and repr."""


@pytest.fixture(autouse=True)
def no_proxy_variables(monkeypatch):
    """The environment of a test names no proxy."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


FORMS = {
    "http": "http://{place}",
    "upper case": "HTTP://{place}",
    "https": "https://{tls_place}",
    "https, upper case": "HTTPS://{tls_place}",
    "blanks": " http://{place} \n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
async def test_the_proxy_of_the_environment_is_used(monkeypatch, variable, form):
    """Every request goes through the proxy, however the variable and its value are written."""
    served, trust = tls_contexts()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(LocalService(ssl=served))
        plain = await stack.enter_async_context(Proxy(service, None))
        tls = await stack.enter_async_context(Proxy(service, served))
        places = {"place": plain.url.partition("//")[2], "tls_place": tls.url.partition("//")[2]}
        monkeypatch.setenv(variable, FORMS[form].format(**places))
        session = service.session(base_url="https://service.test", proxy="environment", ssl=trust)
        async with session:
            await session.create_job("Fix the typos")
            assert (await session.ask("How do I log in?")).text
    used = tls if "https" in form else plain
    assert {line for line, _ in used.requests} == {"CONNECT service.test:443 HTTP/1.1"}
    assert len(plain.requests) + len(tls.requests) == len(used.requests) == 2


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_plain_base_url_has_a_proxy_of_its_own(monkeypatch, service, variable, secure):
    """HTTP_PROXY is for a base_url with http://, and HTTPS_PROXY is not."""
    served, trust = tls_contexts()
    async with Proxy(service, served if secure else None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv(variable, proxy.url)
        url = "http://service.test"
        session = service.session(base_url=url, allow_insecure_http=True, proxy="environment", ssl=trust)
        async with session:
            await session.create_job("Fix the typos")
    assert proxy.requests == [(f"POST {url}/v2/agent/{service.project_id}/job HTTP/1.1", "")]


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
@pytest.mark.parametrize("given", [False, True], ids=["environment", "argument"])
async def test_a_password_reaches_the_proxy_alone(monkeypatch, service, caplog, given, borrowed):
    """The proxy gets the user and the password of its URL, also with a ClientSession of the user's."""
    caplog.set_level("DEBUG")
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(service, None))
        url = proxy.url.replace("//", f"//user:{PASSWORD}@")
        monkeypatch.setenv("HTTP_PROXY", url)
        options = {"proxy": url if given else "environment", "base_url": "http://service.test"}
        if borrowed:
            options["client_session"] = await stack.enter_async_context(aiohttp.ClientSession())
        session = service.session(allow_insecure_http=True, **options)
        async with session:
            await session.create_job("Fix the typos")
            assert PASSWORD not in repr(session) + repr(vars(session)) + caplog.text
    [(_, authorization)] = proxy.requests
    assert authorization == "Basic " + base64.b64encode(f"user:{PASSWORD}".encode()).decode()


WRONG = [
    "socks5://127.0.0.1:1080",
    "socks5h://user:{PASSWORD}@127.0.0.1:1080",
    "ftp://127.0.0.1:21",
    "http://",
    "https://",
    "http://:3128",
    "http://127.0.0.1:port",
    "http://user:{PASSWORD}@127.0.0.1:99999",
    "user:{PASSWORD}/@127.0.0.1:3128",
    ":3128",
    "127.0.0.1:3128",
    "proxy.corp.example",
    " ",
]


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", None])
def test_a_proxy_that_cannot_be_used_is_refused_by_its_name(monkeypatch, variable, value):
    """No session exists, so nothing connects. The error names the variable, and shows no password."""
    value = value.replace("{PASSWORD}", PASSWORD)
    if variable is not None:
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"^{variable or 'proxy'} must be a URL") as caught:
        MintlifySession(proxy="environment" if variable else value)
    assert caught.value.field == "proxy"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NO_PROXY", "127.0.0.1"),
        ("no_proxy", "other.test, 127.0.0.1"),
        ("NO_PROXY", "*"),
        ("NO_PROXY", "127.0.0.1:{port}"),
        ("http_proxy", ""),  # an empty one in lower case takes back the other
    ],
)
async def test_no_proxy_is_a_direct_connection(monkeypatch, service, name, value):
    """A host that needs no proxy is reached without one, also when the proxy's URL is wrong."""
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv(name, value.format(port=service.port))
    async with service.session(proxy="environment") as session:
        await session.create_job("Fix the typos")


async def test_the_environment_is_read_when_the_session_is_made(monkeypatch, service):
    """A later change of the variables changes no session."""
    async with service.session(proxy="environment") as session:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        await session.create_job("Fix the typos")


REFUSALS = {
    "407 Proxy Authentication Required": 1,
    "403 Host not allowed": 1,
    "429 Too Many": 1,
    "400 Bad Request": 1,
    "302 Log in": 3,
    "500 Internal Server Error": 3,
}
"""What a proxy says, and how often it is asked in all."""


@pytest.mark.parametrize("words", REFUSALS)
async def test_a_refusal_of_a_proxy_is_told_and_a_4xx_is_final(words, caplog):
    """The error, its cause and the log have the status and text. A wrong password is not sent again."""
    caplog.set_level("INFO")
    asked: list[bytes] = []

    async def refuse(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {words}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        session = MintlifySession(
            base_url="https://service.test",
            proxy=proxy,
            admin_key=Keys.admin,
            project_id="p",
            retry=RetryPolicy(base=0),
        )
        async with session:
            with pytest.raises(APIConnectionError, match=f"the proxy refused: {words}$") as caught:
                await session.create_job("Fix the typos")
    error = caught.value
    assert (error.sent, error.reason, error.proxy_status) == ("no", "proxy", int(words[:3]))
    assert pickle.loads(pickle.dumps(error)).proxy_status == error.proxy_status
    assert words in str(error.__cause__)
    assert words in caplog.text
    assert len(asked) == REFUSALS[words]
