"""The pytest plugin in projects of others: pytest-asyncio in both modes, anyio, and no plugin at all."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from mintlify_async import testing

pytest_plugins = ["pytester"]

real = pytest.mark.real  # each of these cases starts a pytest in a process of its own

A_JOB = """
async def test_a_job(mintlify_session, mintlify_service, mintlify_time):
    done = await mintlify_session.run_job("Fix the typos", timeout=900)
    assert done.status == "completed"
    assert mintlify_service.requests.count("create_job") == 1
    assert mintlify_time.now() >= 3
"""


AN_ANSWER = """
async def test_an_answer(mintlify_session):
    reply = await mintlify_session.ask("How do I wait for a job?")
    assert "job" in reply.text
"""


ASYNCIO = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")


STRICT = (*ASYNCIO, "-o", "asyncio_mode=strict")


ANYIO = ("-p", "anyio.pytest_plugin")


def run(pytester, source, *options):
    """Run *source* as a project of its own, with only the plugins named, warnings as errors."""
    pytester.makepyfile(source)
    pytester.plugins = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        ours = ("-p", "mintlify_async.testing.pytest_plugin")
        return pytester.runpytest_subprocess("-q", "-W", "error", "-p", "no:cacheprovider", *ours, *options)


@real
def test_with_pytest_asyncio_auto(pytester):
    """No decorator needed: service, session and time, and no real waiting."""
    run(pytester, A_JOB + AN_ANSWER, *ASYNCIO, "-o", "asyncio_mode=auto").assert_outcomes(passed=2)


@real
def test_with_pytest_asyncio_strict(pytester):
    """A marked test; the fixtures need no mark."""
    source = "import pytest\npytestmark = pytest.mark.asyncio\n" + A_JOB
    run(pytester, source, *ASYNCIO, "-o", "asyncio_mode=strict").assert_outcomes(passed=1)


@real
@pytest.mark.parametrize("scope", ["module", "session"])
def test_with_a_wider_loop(pytester, scope):
    """The service lives on the loop that runs the test."""
    source = f"import pytest\npytestmark = pytest.mark.asyncio(loop_scope={scope!r})\n" + A_JOB + AN_ANSWER
    run(pytester, source, *ASYNCIO, "-o", "asyncio_mode=strict").assert_outcomes(passed=2)


@real
def test_with_a_wider_loop_by_default(pytester):
    """The configuration's scope is seen, too."""
    wide = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session")
    result = run(pytester, A_JOB, *ASYNCIO, *wide)
    result.assert_outcomes(passed=1)


@real
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


@real
@pytest.mark.parametrize("fixture", ["service", "session", "env", "time"])
def test_an_async_test_that_nothing_runs(pytester, fixture):
    """It fails with what to add, whichever fixture it uses."""
    source = f"async def test_it(mintlify_{fixture}):\n    pass\n"
    says = (
        'nothing runs this async test: {}set asyncio_mode = "auto" in pytest\'s configuration, '
        "or mark the test with pytest.mark.asyncio or pytest.mark.anyio"
    )
    for options, install in (((), "install pytest-asyncio and "), (STRICT, "")):
        result = run(pytester, source, *options)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([says.format(install)])


@real
def test_an_async_test_that_two_plugins_run(pytester):
    """Anyio's marker in auto mode is refused with what to change."""
    result = run(pytester, ANYIO_BACKEND + AN_ANSWER, *ANYIO, *ASYNCIO, "-o", "asyncio_mode=auto")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*UsageError: pytest-asyncio and anyio's plugin would both run this test: remove "
            "pytest.mark.anyio, or set asyncio_mode to strict and do not use pytest.mark.asyncio"
        ]
    )


AN_APP_OF_ITS_OWN = """
from mintlify_async import MintlifySession

async def work():
    async with MintlifySession() as session:  # as the app makes it
        answer = await session.ask("How do I wait for a job?")
        job = await session.create_job("Fix the typos")
        done = await job.wait()
        turn = await job.send("Mention the CLI, too")
        return answer.text, done.status, (await turn).status
"""


@real
@pytest.mark.parametrize("options", [(*ASYNCIO, "-o", "asyncio_mode=auto"), ANYIO], ids=["asyncio", "anyio"])
def test_an_app_that_makes_its_own_session(pytester, options):
    """The variables lead it to the service, and its waiting takes no time; afterwards they are as before."""
    source = """
        async def test_the_app(mintlify_env, mintlify_time):
            text, first, second = await work()
            assert "job" in text
            assert (first, second) == ("completed", "completed")
            assert mintlify_time.now() > 60
            assert mintlify_env.requests.count("create_job") == 1

        def test_afterwards():
            import os
            assert not [name for name in os.environ if name.startswith("MINTLIFY_") and "ASYNC" not in name]
    """
    source = (ANYIO_BACKEND if options is ANYIO else "") + AN_APP_OF_ITS_OWN + textwrap.dedent(source)
    run(pytester, source, *options).assert_outcomes(passed=2)


@real
def test_a_test_that_is_not_async(pytester):
    """With FastAPI's TestClient, which has an event loop of its own, the service runs in a thread."""
    source = """
        import asyncio
        from contextlib import asynccontextmanager
        from fastapi import FastAPI, Request
        from fastapi.testclient import TestClient
        from mintlify_async import MintlifySession

        @asynccontextmanager
        async def lifespan(app):
            async with MintlifySession() as app.state.session:
                yield

        app = FastAPI(lifespan=lifespan)

        @app.get("/help")
        async def help_page(q: str, request: Request):
            job = await request.app.state.session.run_job(q)
            return {"text": (await request.app.state.session.ask(q)).text, "status": job.status}

        def test_an_app(mintlify_env):
            mintlify_env.script.ask("Press the button.")
            with TestClient(app) as client:
                seen = client.get("/help", params={"q": "How?"}).json()
            assert seen == {"text": "Press the button.", "status": "completed"}
            operations = [request.operation for request in mintlify_env.requests]
            assert operations == ["create_job", "get_job", "ask"]

        def test_a_session(mintlify_session):
            async def ask():
                return (await mintlify_session.ask("How?")).text
            assert asyncio.run(ask())

        def test_the_time_is_virtual(mintlify_service, mintlify_time):
            pass
    """
    for options in ((*ASYNCIO, "-o", "asyncio_mode=auto"), ()):
        # A warning of Starlette about what its test client is made of.
        result = run(pytester, source, *options, "-W", "ignore:Using `httpx`")
        result.assert_outcomes(passed=2, errors=1)
        result.stdout.fnmatch_lines(["*UsageError: mintlify_time needs an async test*"])


@real
def test_a_unittest_of_its_own_loop(pytester):
    """``IsolatedAsyncioTestCase`` runs its tests itself."""
    source = AN_APP_OF_ITS_OWN + textwrap.dedent("""
        import unittest, pytest

        @pytest.mark.usefixtures("mintlify_env")
        class TestIt(unittest.IsolatedAsyncioTestCase):
            async def test_it(self):
                async with MintlifySession() as session:
                    assert (await session.ask("How?")).text
    """)
    run(pytester, source, *ASYNCIO, "-o", "asyncio_mode=auto").assert_outcomes(passed=1)


@real
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


@real
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
