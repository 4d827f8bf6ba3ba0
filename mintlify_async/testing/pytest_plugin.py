"""pytest fixtures for a local service, a session for it, and virtual time.

::

    async def test_a_job(mintlify_session, mintlify_service, mintlify_time):
        done = await mintlify_session.run_job("Fix the typos", timeout=900)
        assert mintlify_service.requests.count("create_job") == 1
        assert mintlify_time.now() >= 3

The fixtures work with pytest-asyncio and with anyio's plugin. In a test that is not async, the service runs
in a thread, in real time. pytest loads this file in every project of an environment that has the package, so
it imports only pytest until a test asks for a fixture.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from ..session import MintlifySession
    from .local_service import LocalService
    from .virtual_clock import VirtualTime


@pytest.fixture
def mintlify_time(request: pytest.FixtureRequest) -> VirtualTime:
    """The virtual time of the test's event loop, made by ``virtual_time()``."""
    if _runner(request) == "thread":
        raise pytest.UsageError("mintlify_time needs an async test: without async, the time is real")
    virtual: VirtualTime | None = request.getfixturevalue(_name("time", request))
    if virtual is None:
        raise pytest.UsageError("mintlify_time needs asyncio's own event loop; the time of this one is real")
    return virtual


@pytest.fixture
def mintlify_service(request: pytest.FixtureRequest) -> LocalService:
    """A running ``LocalService``. In an async test, the time of the event loop is virtual."""
    if _runner(request) != "thread":
        request.getfixturevalue(_name("time", request))
    service: LocalService = request.getfixturevalue(_name("service", request))
    return service


@pytest.fixture
def mintlify_session(
    request: pytest.FixtureRequest, mintlify_service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> MintlifySession:
    """A ``MintlifySession`` for ``mintlify_service``. It does not read ``MINTLIFY_SITE``."""
    monkeypatch.delenv("MINTLIFY_SITE", raising=False)  # so that links do not depend on the shell
    session: MintlifySession = request.getfixturevalue(_name("session", request))
    return session


@pytest.fixture
def mintlify_env(mintlify_service: LocalService, monkeypatch: pytest.MonkeyPatch) -> LocalService:
    """The ``mintlify_service``, for an app that makes its own ``MintlifySession()``.

    The fixture sets the environment variables (URL, keys, project, domain), and removes ``MINTLIFY_SITE`` and
    ``MINTLIFY_PROXY``. It does not change a session that already exists, such as one made at the import of a
    module.
    """
    for name in ("MINTLIFY_SITE", "MINTLIFY_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in mintlify_service.environment.items():
        monkeypatch.setenv(name, value)
    _check_loops_of_new_sessions(mintlify_service, monkeypatch)
    return mintlify_service


def _check_loops_of_new_sessions(service: LocalService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the app's new sessions raise an error if the service is on a loop that does not run."""
    from ..session import MintlifySession
    from .local_service import check_loops

    original = MintlifySession.__init__

    @functools.wraps(original)
    def init(self: MintlifySession, *args: Any, **settings: Any) -> None:
        original(self, *args, **settings)
        if settings.get("base_url") in (None, service.base_url):
            check_loops(self, service)

    monkeypatch.setattr(MintlifySession, "__init__", init)


def _generators() -> dict[str, Callable[..., Any]]:
    """Return new functions for the fixtures of async tests. A plugin changes the functions it gets."""

    async def time() -> AsyncGenerator[VirtualTime | None]:
        from .virtual_clock import virtual_time_if_possible

        with virtual_time_if_possible() as virtual:
            yield virtual

    async def service() -> AsyncGenerator[LocalService]:
        from .local_service import LocalService

        async with LocalService() as running:
            yield running

    async def session(mintlify_service: LocalService) -> AsyncGenerator[MintlifySession]:
        async with mintlify_service.session() as session:
            yield session

    return {"time": time, "service": service, "session": session}


for _kind, _function in _generators().items():
    globals()[f"_mintlify_anyio_{_kind}"] = pytest.fixture(_function, name=f"_mintlify_anyio_{_kind}")


def _gone(name: str) -> Callable[[], None]:
    def fail() -> None:
        """Fail the test, and name the replacement of this fixture of 0.2."""
        from ..wrong_names import replacement

        answer = replacement("mintlify_async.testing", name)
        pytest.fail(f"mintlify-async has no fixture {name!r}: {answer}", pytrace=False)

    return fail


for _old_name in ("mintlify_clock", "mintlify_guard"):
    globals()[f"_gone_{_old_name}"] = pytest.fixture(_gone(_old_name), name=_old_name)


@pytest.fixture
def _mintlify_thread_service(request: pytest.FixtureRequest) -> Generator[LocalService]:
    """The service for tests that are not async, such as tests with ``TestClient``. Its jobs take no time.

    ``service`` in ``_generators`` is its counterpart for async tests.
    """
    from anyio.from_thread import start_blocking_portal

    from .local_jobs import JobLife
    from .local_service import LocalService

    service = LocalService(life=JobLife(seconds=0.0))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(service):
        yield service


@pytest.fixture
def _mintlify_thread_session(mintlify_service: LocalService) -> Generator[MintlifySession]:
    """The session for tests that are not async, for an app that runs its own event loop."""
    import asyncio

    session = mintlify_service.session()
    yield session
    asyncio.run(session.close())


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixtures for pytest-asyncio if that plugin is used, one set per loop scope.

    A service must live on the loop of its test, and pytest-asyncio chooses the loop of a fixture when the
    fixture is defined.
    """
    if not _has_pytest_asyncio(config):
        return
    import pytest_asyncio

    fixtures = ModuleType("mintlify_async_asyncio_fixtures")
    for scope in ("function", "class", "module", "package", "session"):
        for kind, function in _generators().items():
            name = f"_mintlify_asyncio_{scope}_{kind}"
            setattr(fixtures, name, pytest_asyncio.fixture(function, loop_scope=scope, name=name))
    config.pluginmanager.register(fixtures, fixtures.__name__)


def _has_pytest_asyncio(config: pytest.Config) -> bool:
    # pytest-asyncio has one of two names: its entry point's, or the one from `-p pytest_asyncio.plugin`.
    return any(config.pluginmanager.hasplugin(name) for name in ("asyncio", "pytest_asyncio.plugin"))


def _runner(request: pytest.FixtureRequest) -> Literal["asyncio", "anyio", "thread"]:
    """Return the plugin that runs the test, or ``thread`` if the test is not async."""
    function = getattr(request.node, "obj", None)
    function = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    # unittest runs the async tests of its own classes, on its own loop.
    if not inspect.iscoroutinefunction(function) or hasattr(request.instance, "asyncSetUp"):
        return "thread"
    by_anyio = "anyio_backend" in request.fixturenames
    by_asyncio = request.node.get_closest_marker("asyncio") and _has_pytest_asyncio(request.config)
    if by_anyio and by_asyncio:
        raise pytest.UsageError(
            "pytest-asyncio and anyio's plugin would both run this test: remove pytest.mark.anyio, "
            "or set asyncio_mode to strict and do not use pytest.mark.asyncio"
        )
    if by_anyio:
        return "anyio"
    if by_asyncio:
        return "asyncio"
    install = "" if _has_pytest_asyncio(request.config) else "install pytest-asyncio and "
    pytest.fail(
        f'nothing runs this async test: {install}set asyncio_mode = "auto" in pytest\'s configuration, '
        "or mark the test with pytest.mark.asyncio or pytest.mark.anyio",
        pytrace=False,
    )


def _name(what: str, request: pytest.FixtureRequest) -> str:
    """Return the name of the fixture that lives on the loop of the test."""
    runner = _runner(request)
    if runner != "asyncio":
        return f"_mintlify_{runner}_{what}"
    marker = request.node.get_closest_marker("asyncio")
    scope = marker.kwargs.get("loop_scope") if marker is not None else None
    return f"_mintlify_asyncio_{scope or _default_loop_scope(request.config)}_{what}"


def _default_loop_scope(config: pytest.Config) -> str:
    try:
        return str(config.getini("asyncio_default_test_loop_scope") or "function")
    except (KeyError, ValueError):  # pytest-asyncio before 0.26 does not have this option
        return "function"
