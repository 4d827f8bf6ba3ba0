"""pytest fixtures: a local service, a session that talks to it, their clock, and a network guard.

::

    async def test_a_job(mintlify_session, mintlify_service, mintlify_clock):
        done = await mintlify_session.run_job("Fix the typos", timeout=900)
        assert done.status == "completed"
        assert mintlify_service.requests.count("create_job") == 1

The fixtures work with pytest-asyncio and with anyio's plugin. pytest loads this file in every project of an
environment that has the package, so it imports only pytest until a test asks for a fixture.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..session import MintlifySession
    from .local_service import LocalService
    from .network_guard import NetworkGuard
    from .virtual_clock import VirtualClock


@pytest.fixture
def mintlify_clock() -> VirtualClock:
    """The clock of ``mintlify_service`` and ``mintlify_session``; it jumps ahead when everything waits."""
    from .virtual_clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def mintlify_guard() -> Generator[NetworkGuard]:
    """Refuses connections to other machines during the test; a test that tried one fails."""
    from .network_guard import NetworkGuard

    guard = NetworkGuard()
    guard.on()
    try:
        yield guard
    finally:
        guard.off()
    if guard.attempts:
        pytest.fail(f"the test tried to reach {', '.join(dict.fromkeys(guard.attempts))}", pytrace=False)


@pytest.fixture
def mintlify_service(request: pytest.FixtureRequest, mintlify_guard: NetworkGuard) -> LocalService:
    """A running ``LocalService``, with connections to other machines refused by ``mintlify_guard``."""
    service: LocalService = request.getfixturevalue(_name("service", request))
    return service


@pytest.fixture
def mintlify_session(request: pytest.FixtureRequest, mintlify_service: LocalService) -> MintlifySession:
    """A ``MintlifySession`` that talks to ``mintlify_service``."""
    session: MintlifySession = request.getfixturevalue(_name("session", request))
    return session


@pytest.fixture
async def _mintlify_anyio_service(mintlify_clock: VirtualClock) -> AsyncGenerator[LocalService]:
    """The service for tests run by anyio's plugin."""
    from .local_service import LocalService

    async with LocalService(clock=mintlify_clock) as service:
        yield service


@pytest.fixture
async def _mintlify_anyio_session(mintlify_service: LocalService) -> AsyncGenerator[MintlifySession]:
    """The session for tests run by anyio's plugin."""
    async with mintlify_service.session() as session:
        yield session


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixtures for pytest-asyncio if that plugin is used."""
    if _has_pytest_asyncio(config):
        from . import pytest_asyncio_fixtures

        config.pluginmanager.register(pytest_asyncio_fixtures, "mintlify_async_asyncio_fixtures")


def _has_pytest_asyncio(config: pytest.Config) -> bool:
    # The names are those of its entry point and of `-p pytest_asyncio.plugin`.
    return any(config.pluginmanager.hasplugin(name) for name in ("asyncio", "pytest_asyncio.plugin"))


def _name(what: str, request: pytest.FixtureRequest) -> str:
    """Return the name of the fixture that lives on the loop of the test."""
    if "anyio_backend" in request.fixturenames:
        return f"_mintlify_anyio_{what}"
    if not _has_pytest_asyncio(request.config):
        raise pytest.UsageError(
            f"mintlify_{what} needs pytest-asyncio, or a test marked with pytest.mark.anyio"
        )
    marker = request.node.get_closest_marker("asyncio")
    scope = marker.kwargs.get("loop_scope") if marker is not None else None
    return f"_mintlify_asyncio_{scope or _default_loop_scope(request.config)}_{what}"


def _default_loop_scope(config: pytest.Config) -> str:
    try:
        return str(config.getini("asyncio_default_test_loop_scope") or "function")
    except (KeyError, ValueError):  # pytest-asyncio before 0.26 has no such option
        return "function"


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show the difference between received and expected requests line by line."""
    log: Any = sys.modules.get("mintlify_async.testing.request_log")  # not loaded: there is no RequestLog
    if op != "==" or log is None:
        return None
    if isinstance(right, log.RequestLog):
        left, right = right, left
    if not isinstance(left, log.RequestLog) or not isinstance(right, list):
        return None
    return ["the requests are not the expected ones", *log.describe_difference(left, right).splitlines()]
