"""Fixtures and checks for every test: nothing is left open, no key is shown, aioresponses works."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from aioresponses import aioresponses
from hypothesis import HealthCheck, settings

from mintlify_async.testing import LocalService, docs_index
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support import (
    aioresponses_bridge,
    event_loops,
    leak_guard,
    page_runner,
    postgres_server,
    redis_server,
    secret_guard,
    suite_parts,
)

# No example is timed, because a busy machine must not fail one. The default suite tries the same examples
# each time; `tox -e sweep` tries others, and more.
UNTIMED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "database": None,
}
settings.register_profile("default", **UNTIMED, max_examples=50, derandomize=True)
settings.register_profile("whole", **UNTIMED, max_examples=300)
settings.load_profile("whole" if os.environ.get("SWEEPS") == "whole" else "default")

# Tests look at what the local service answers, so they must not depend on the site's text. What is
# tested about the site itself names its folder, or runs a process of its own.
docs_index.DEFAULT_DOCS = Path(__file__).parent / "support" / "pages"

# The files of tests are kept in memory where there is room, because SQLite waits for the disk at each commit.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

REQUIRE_REAL = "MINTLIFY_ASYNC_REQUIRE_REAL"
"""Set to 1 by ``tox -e real``: a test whose real part is missing then fails instead of being skipped."""

REAL_PARTS = re.compile("redis|postgres|pgbouncer|chromium|playwright|node|npm|hypercorn", re.IGNORECASE)
"""Found in the reason of a skip when one of these parts is missing."""

PLUGINS = (
    aioresponses_bridge,
    event_loops,
    leak_guard,
    page_runner,
    postgres_server,
    redis_server,
    secret_guard,
    suite_parts,
)


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts a command behind "&" with SIGINT ignored, and every process of a test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for plugin in PLUGINS:
        if not config.pluginmanager.is_registered(plugin):
            config.pluginmanager.register(plugin)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A real part that is missing is a failure in ``tox -e real``."""
    report = yield
    if report.skipped and os.environ.get(REQUIRE_REAL) == "1" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if REAL_PARTS.search(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped, though {REQUIRE_REAL}=1: {reason}"
    return report


@pytest.fixture
def web():
    """Answers in place of the network; a request that is not expected fails."""
    with aioresponses() as mocked:
        yield mocked


@pytest.fixture
def bare(monkeypatch):
    """An environment without any of our variables."""
    for name in ("ADMIN_API_KEY", "ASSISTANT_API_KEY", "API_KEY", "PROJECT_ID", "DOMAIN", "BASE_URL", "SITE"):
        monkeypatch.delenv(f"MINTLIFY_{name}", raising=False)
    return monkeypatch


@pytest.fixture
async def service():
    """A local service; a file whose tests need virtual time has a fixture of its own with this name."""
    async with LocalService() as service:
        yield service


@pytest.fixture
async def session(service):
    """A session with the settings of the local service."""
    async with service.session() as session:
        yield session


@pytest.fixture
async def virtual():
    """Virtual time on the test's loop: ``asyncio.sleep`` lets it pass, ``virtual.now()`` reads it."""
    with virtual_time() as time:
        yield time
