"""What aiohttp and the standard library raise becomes an error of ours, and shows no key."""

from __future__ import annotations

import os
import subprocess
import sys

import aiohttp
import pytest

from mintlify_async import (
    APIConnectionError,
    APIStatusError,
    AuthenticationError,
    ConfigurationError,
    MintlifySession,
    RetryPolicy,
    Thread,
)
from mintlify_async.errors import ServerError
from mintlify_async.http.connection_errors import version_numbers
from tests.support.fault_catalogue import ALL, call, script
from tests.support.secret_guard import Keys

KEYS = Keys()


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("location", ["http://[bad", "//[", "http://a]b/", "\\\\x", "http://[::1%25lo]x/"])
async def test_a_redirect_to_what_is_no_address_is_reported_like_any(service, session, operation, location):
    """A redirect with an invalid Location is an APIStatusError, not an error of the standard library."""
    script(service, operation, status=302, headers={"Location": location})
    with pytest.raises(APIStatusError, match="redirect"):
        await call(session, operation)


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1:9"), ("[::1]", r"\[::1\]:9")])
async def test_an_address_has_its_port(host, address):
    """A service that does not answer is often another port's: the error names both."""
    async with MintlifySession(
        base_url=f"http://{host}:9", project_id="p", admin_key=KEYS.admin, retry=RetryPolicy(attempts=1)
    ) as session:
        with pytest.raises(APIConnectionError, match=f"could not connect to {address}"):
            await session.create_job("x")


async def test_a_job_that_came_with_the_key_shows_it_nowhere(service, session):
    """A key in a job's headers or extra fields is masked."""
    key = service.admin_key
    body = {"id": "j", "status": "active", "debug": f"Bearer {key}"}
    service.script.create_job(status=201, body=body, headers={"X-Echo": key})
    job = await session.create_job("x")
    assert key not in repr(job.raw) + repr(job.job) + repr(job.raw.headers)


async def test_a_refusal_that_names_a_new_threads_key_masks_it(service, session):
    """A new thread's key is masked in the error's body."""
    body = {"error": "late", "threadId": "t", "threadKey": KEYS.thread}
    service.script.ask(status=500, body=body, headers={"X-Thread-Key": KEYS.thread})
    with pytest.raises(ServerError) as caught:
        await session.ask("x")
    assert KEYS.thread not in caught.value.body


async def test_a_refusal_that_repeats_the_threads_key_masks_it(service, session):
    """The key that the question sent, in a text and in a header of the service."""
    service.script.ask(status=400, body={"error": f"bad {KEYS.thread}"}, headers={"X-Echo": KEYS.thread})
    with pytest.raises(APIStatusError) as caught:
        await session.ask("x", thread=Thread("t", KEYS.thread))
    assert KEYS.thread not in f"{caught.value}{caught.value.body}{caught.value.headers}"


PURE_PYTHON = """
import sys, aiohttp.http_parser, pytest
assert aiohttp.http_parser.HttpResponseParser is aiohttp.http_parser.HttpResponseParserPy
files = ["tests/http/test_faults.py", "tests/http/test_transport.py", "tests/http/test_connections.py"]
cases = "(chunk and none) or long_header or changes_the_protocol"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *files, "-k", cases]))
"""


@pytest.mark.real
def test_what_the_parser_in_pure_python_raises_becomes_ours():
    """Errors of aiohttp's parser in pure Python become errors of ours, too, and it has the same limits."""
    env = {**os.environ, "AIOHTTP_NO_EXTENSIONS": "1"}
    done = subprocess.run([sys.executable, "-c", PURE_PYTHON], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("operation", ALL)
async def test_a_request_that_aiohttp_cannot_make_is_a_mistake_and_not_tried_again(
    service, operation, caplog
):
    """A base_url whose host is invalid is a ConfigurationError and is not retried."""
    caplog.set_level("INFO")
    async with service.session(base_url="https://a..b") as session:
        with pytest.raises(ConfigurationError, match="base_url"):
            await call(session, operation)
    assert "again in" not in caplog.text


@pytest.fixture
def netrc(monkeypatch, tmp_path):
    """A file with a password for the service's host."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


async def test_a_password_in_netrc_never_replaces_the_key(service, netrc):
    """The session does not read the file, also when it takes the proxy from the environment."""
    async with service.session(proxy="environment") as session:
        assert (await session.create_job("x")).ref.id


async def test_a_password_in_netrc_is_named_as_what_is_in_the_way(service, netrc):
    """A ClientSession of the user's may read the file: the error names it; nothing is sent.

    Before 3.13.1, aiohttp puts the password in the key's place without a word, and the service refuses it.
    """
    refused_here = version_numbers(aiohttp.__version__) >= (3, 13, 1)
    async with (
        aiohttp.ClientSession(trust_env=True) as ours,
        service.session(client_session=ours) as session,
    ):
        with pytest.raises(ConfigurationError if refused_here else AuthenticationError) as caught:
            await session.create_job("x")
    assert len(service.requests) == (0 if refused_here else 1)
    assert "netrc" in str(caught.value) or not refused_here


@pytest.mark.parametrize("status", [300, 304, 308])
async def test_a_3xx_without_a_location_is_no_redirect(service, session, status):
    """The error does not advise to check base_url for a redirect that is none."""
    script(service, "ask", status=status)
    with pytest.raises(APIStatusError, match=f"ask: {status}") as caught:
        await session.ask("x")
    assert "redirect" not in str(caught.value)
