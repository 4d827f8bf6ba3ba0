"""The suite's own helpers: the guards fail what they must, and aioresponses works with this aiohttp."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aioresponses import aioresponses

from tests.support import secret_guard

TESTS = Path(__file__).parents[1]

LEAKY = """
import asyncio, logging, os, socket, warnings
import aiohttp, pytest
from mintlify_async.errors import ConfigurationError, CauseSummary

KEY = "mint_" + "test_a1B2c3D4"

async def test_bad_task():
    asyncio.get_running_loop().keep = asyncio.create_task(asyncio.sleep(60))

def test_bad_socket():
    pytest.kept = socket.socket()

def test_bad_pipe():
    os.pipe()

async def test_bad_session():
    pytest.session = aiohttp.ClientSession()

def test_bad_log():
    logging.getLogger("mintlify_async").debug("sent %s", KEY)

def test_bad_log_extra():
    logging.getLogger("mintlify_async").debug("sent", extra={"headers": {"Authorization": KEY}})

def test_bad_error_swallowed():
    try:
        raise ConfigurationError(KEY)
    except ConfigurationError:
        pass

def test_bad_error_attribute():
    with pytest.raises(ConfigurationError) as caught:
        error = ConfigurationError("fine")
        error.extra = KEY
        raise error

def test_bad_context():
    with pytest.raises(ConfigurationError):
        try:
            raise ValueError(KEY)
        except ValueError:
            raise ConfigurationError("fine") from None

def test_bad_print():
    print(KEY)

def test_bad_print_captured(capsys):
    print(KEY)
    capsys.readouterr()

def test_bad_warning():
    with pytest.warns(UserWarning):
        warnings.warn(KEY)

@pytest.fixture(scope="module")
def shared():
    with socket.socket() as kept:
        yield kept

def test_good_shared(shared):
    pass

async def test_good(caplog):
    async with aiohttp.ClientSession():
        await asyncio.create_task(asyncio.sleep(0))
    with pytest.raises(ConfigurationError):
        raise ConfigurationError("fine")

@pytest.mark.leaves_open("on purpose")
async def test_good_on_purpose():
    asyncio.get_running_loop().keep = asyncio.create_task(asyncio.sleep(60))

@pytest.mark.shows_secrets("on purpose")
def test_good_shown():
    print(KEY)

def test_real():
    pytest.skip("redis-server is not installed")

def test_other():
    pytest.skip("no interpreter for 3.99")
"""


def run_guarded(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the sample under this folder's own conftest, in a process of its own."""
    (tmp_path / "test_sample.py").write_text(LEAKY)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-rA", "--tb=no", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS.parent / '.ci' / 'docs'}", **environment}
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)


def failed(output: str) -> set[str]:
    """Return the names of the tests that failed or broke in their teardown."""
    return set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", output, re.MULTILINE))


@pytest.mark.real
def test_guards_fail_exactly_the_bad_tests(tmp_path):
    """Each leak, each shown key and each missing real part fails its test, and no other does."""
    done = run_guarded(tmp_path, MINTLIFY_ASYNC_REQUIRE_REAL="1")
    bad = {"test_real", *re.findall(r"def (test_bad\w*)", LEAKY)}
    assert failed(done.stdout) == bad, done.stdout + done.stderr


async def test_bridge_answers_of_any_size():
    """An answer over aiohttp's buffer limit is read whole through aioresponses."""
    with aioresponses() as mocked:
        mocked.post("http://service.test/x", body=b"x" * 1_000_000, headers={"X-Thread-Id": "t1"})
        async with ClientSession() as session, session.post("http://service.test/x", json={"a": 1}) as answer:
            pieces = [piece async for piece in answer.content.iter_any()]
    assert answer.headers["x-thread-id"] == "t1"
    assert sum(map(len, pieces)) == 1_000_000


def test_the_keys_of_tests_are_known_to_the_guard(keys):
    """A key that the guard cannot find would make it blind."""
    for key in vars(keys).values():
        assert secret_guard._SECRET.search(f"Bearer {key}\n")
