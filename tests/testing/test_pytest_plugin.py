"""The pytest plugin in projects of others: pytest-asyncio in both modes, anyio, and no plugin at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mintlify_async import testing

pytest_plugins = ["pytester"]

A_JOB = """
async def test_a_job(mintlify_session, mintlify_service, mintlify_clock):
    done = await mintlify_session.run_job("Fix the typos", timeout=900)
    assert done.status == "completed"
    assert mintlify_service.requests.count("create_job") == 1
    assert mintlify_clock.now() >= 3
"""


AN_ANSWER = """
async def test_an_answer(mintlify_session):
    reply = await mintlify_session.ask("How do I wait for a job?")
    assert "job" in reply.text
"""


ASYNCIO = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")


ANYIO = ("-p", "anyio.pytest_plugin")


def run(pytester, source, *options):
    """Run *source* as a project of its own, with only the plugins named, warnings as errors."""
    pytester.makepyfile(source)
    pytester.plugins = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        ours = ("-p", "mintlify_async.testing.pytest_plugin")
        return pytester.runpytest_subprocess("-q", "-W", "error", "-p", "no:cacheprovider", *ours, *options)


def test_with_pytest_asyncio_auto(pytester):
    """No decorator needed: service, session and clock, and no real waiting."""
    run(pytester, A_JOB + AN_ANSWER, *ASYNCIO, "-o", "asyncio_mode=auto").assert_outcomes(passed=2)


def test_with_pytest_asyncio_strict(pytester):
    """A marked test; the fixtures need no mark."""
    source = "import pytest\npytestmark = pytest.mark.asyncio\n" + A_JOB
    run(pytester, source, *ASYNCIO, "-o", "asyncio_mode=strict").assert_outcomes(passed=1)


@pytest.mark.parametrize("scope", ["module", "session"])
def test_with_a_wider_loop(pytester, scope):
    """The service lives on the loop that runs the test."""
    source = f"import pytest\npytestmark = pytest.mark.asyncio(loop_scope={scope!r})\n" + A_JOB + AN_ANSWER
    run(pytester, source, *ASYNCIO, "-o", "asyncio_mode=strict").assert_outcomes(passed=2)


def test_with_a_wider_loop_by_default(pytester):
    """The configuration's scope is seen, too."""
    wide = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session")
    result = run(pytester, A_JOB, *ASYNCIO, *wide)
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("options", [(*ASYNCIO, "-o", "asyncio_mode=strict"), ()], ids=["both", "alone"])
def test_with_anyio(pytester, options):
    """Anyio's own plugin runs the test and the fixtures."""
    run(pytester, ANYIO_BACKEND + A_JOB + AN_ANSWER, *ANYIO, *options).assert_outcomes(passed=2)


ANYIO_BACKEND = """
import pytest
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def test_without_either(pytester):
    """What is missing is said."""
    source = "def test_it(mintlify_service):\n    pass\n"
    result = run(pytester, source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*mintlify_service needs pytest-asyncio, or a test marked with*"])


def test_a_call_to_another_host_fails_the_test(pytester):
    """Though the code under test swallows the error."""
    source = """
        import contextlib, socket

        def test_it(mintlify_guard):
            with contextlib.suppress(Exception):
                socket.create_connection(("192.0.2.1", 80), timeout=1)
            with contextlib.suppress(Exception):
                socket.getaddrinfo("docs.example.com", 443)
    """
    result = run(pytester, source)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*tried to reach 192.0.2.1, docs.example.com*"])


def test_a_difference_is_shown_line_by_line(pytester):
    """What was expected and what came."""
    source = """
        async def test_it(mintlify_session, mintlify_service):
            await mintlify_session.create_job("Fix the typos")
            assert mintlify_service.requests == [("POST", "/v2/agent/acme/jobs")]
    """
    result = run(pytester, source, *ASYNCIO, "-o", "asyncio_mode=auto")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the requests are not the expected ones*",
            "*-POST /v2/agent/acme/jobs",
            "*+POST /v2/agent/acme/job",
        ]
    )


def test_it_costs_nothing_where_it_is_not_used(pytester):
    """A project that has the package installed does not load its client for that."""
    source = """
        import sys

        def test_it():
            assert "mintlify_async.testing.pytest_plugin" in sys.modules
            assert not {"aiohttp", "cattrs"} & set(sys.modules)
            assert "mintlify_async.testing.local_service" not in sys.modules
    """
    pytester.makepyfile(source)  # loaded by its entry point, as in any project
    quiet = ("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:aiohttp", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess("-q", *quiet).assert_outcomes(passed=1)


def test_checkers_and_programs_see_the_same_names():
    """Each name of the stub is public and loads; nothing else is."""
    stub = ast.parse(Path(testing.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    named = [alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(named) == dir(testing) == sorted(testing.__all__)
    assert all(getattr(testing, name) is not None for name in named)
