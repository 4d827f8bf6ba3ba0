"""The suite's own guards fail what they must."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LEAKY = """
import asyncio, logging, socket
import aiohttp, pytest
from mintlify_async.errors import ConfigurationError

KEY = "mint_" + "test_a1B2c3D4"

async def test_bad_task():
    asyncio.get_running_loop().keep = asyncio.create_task(asyncio.sleep(60))

def test_bad_socket():
    pytest.kept = socket.socket()

async def test_bad_session():
    pytest.session = aiohttp.ClientSession()

def test_bad_log():
    logging.getLogger("mintlify_async").debug("sent", extra={"headers": {"Authorization": KEY}})

def test_bad_error():
    with pytest.raises(ConfigurationError):
        try:
            raise ValueError(KEY)
        except ValueError:
            raise ConfigurationError("fine") from None

def test_bad_print(capsys):
    print(KEY)
    capsys.readouterr()

async def test_good(caplog):
    async with aiohttp.ClientSession():
        await asyncio.create_task(asyncio.sleep(0))
    with pytest.raises(ConfigurationError):
        raise ConfigurationError("fine")

@pytest.mark.leaves_open("on purpose")
async def test_good_left_open():
    asyncio.get_running_loop().keep = asyncio.create_task(asyncio.sleep(60))

@pytest.mark.shows_secrets("on purpose")
def test_good_shown():
    print(KEY)

def test_bad_process():
    import subprocess
    subprocess.run(["true"], check=True)

def test_real():
    pytest.skip("redis-server is not installed")
"""


@pytest.mark.real
def test_guards_fail_exactly_the_bad_tests(tmp_path):
    """Each leak, shown key, process and missing real part fails its test, and no other test fails."""
    (tmp_path / "test_sample.py").write_text(LEAKY)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    path = f"{TESTS.parent}:{TESTS.parent / '.ci' / 'docs'}"
    env = {**os.environ, "PYTHONPATH": path, "MINTLIFY_ASYNC_REQUIRE_REAL": "1"}
    command = [sys.executable, "-m", "pytest", "-rA", "--tb=no", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", done.stdout, re.MULTILINE))
    assert failed == {"test_real", *re.findall(r"def (test_bad\w*)", LEAKY)}, done.stdout + done.stderr


@pytest.mark.real
def test_the_default_environment_collects_every_file(tmp_path):
    """Without the packages that only `tox -e real` installs, no file of tests fails to be imported."""

    def plain(name: str) -> str:
        return re.sub("[-_.]+", "-", re.split("[<>=;]", name)[0]).lower()

    groups = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    absent = {plain(name) for name in groups["neighbours"]}
    owners = packages_distributions().items()
    modules = [name for name, packages in owners if absent.issuperset(map(plain, packages))]
    assert {"httpx", "yaml", "playwright"} <= set(modules)
    (tmp_path / "without.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({modules}))\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "without"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, cwd=TESTS.parent, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]
