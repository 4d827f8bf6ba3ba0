"""The pytest plugin in projects of others: pytest-asyncio in both modes, anyio, and no plugin at all.

Each case is a run of pytest in a process of its own, with all files that need the same plugins.
"""

from __future__ import annotations

import os

import pytest

from mintlify_async import MintlifySession
from mintlify_async.testing import LocalService
from tests.support.child_process import PACKAGE

pytest_plugins = ["pytester"]  # a case that uses it is marked as real

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

AN_APP_OF_ITS_OWN = """
from mintlify_async import MintlifySession

async def work():
    async with MintlifySession() as session:  # as the app makes it
        answer = await session.ask("How do I wait for a job?")
        return answer.text, (await session.run_job("Fix the typos")).status

async def test_the_app(mintlify_env, mintlify_time):
    text, status = await work()
    assert "job" in text
    assert status == "completed"
    assert mintlify_time.now() >= 3
    assert mintlify_env.requests.count("create_job") == 1

def test_afterwards():
    import os
    assert not [name for name in os.environ if name.startswith("MINTLIFY_") and "ASYNC" not in name]
"""

NO_LOOP_OF_A_PLUGIN = """
import asyncio, unittest, pytest
from mintlify_async import MintlifySession

async def app():  # on an event loop of its own, as in a TestClient, so the service runs in a thread
    async with MintlifySession() as session:
        job = await session.run_job("How?")
        return (await session.ask("How?")).text, job.status

def test_an_app(mintlify_env):
    mintlify_env.script.ask("Press the button.")
    assert asyncio.run(app()) == ("Press the button.", "completed")
    operations = [request.operation for request in mintlify_env.requests]
    assert operations == ["create_job", "get_job", "ask"]

def test_a_session(mintlify_session):
    async def ask():
        return (await mintlify_session.ask("How?")).text
    assert asyncio.run(ask())

def test_the_time_is_virtual(mintlify_service, mintlify_time):
    pass

@pytest.mark.usefixtures("mintlify_env")
class TestIt(unittest.IsolatedAsyncioTestCase):
    async def test_it(self):
        assert (await app())[1] == "completed"
"""
NOT_VIRTUAL = "*UsageError: mintlify_time needs an async test*"

NOTHING_RUNS = "".join(
    f"async def test_{name}(mintlify_{name}):\n    pass\n" for name in ("service", "session", "env", "time")
)
WHAT_TO_ADD = (
    'nothing runs this async test: {}set asyncio_mode = "auto" in pytest\'s configuration, '
    "or mark the test with pytest.mark.asyncio or pytest.mark.anyio"
)

ANYIO_BACKEND = """
import pytest
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""

ASYNCIO = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")
AUTO = (*ASYNCIO, "-o", "asyncio_mode=auto")
STRICT = (*ASYNCIO, "-o", "asyncio_mode=strict")
ANYIO = ("-p", "anyio.pytest_plugin")


def run(pytester, *options, **files):
    """Run *files* as a project of its own, with only the plugins named, warnings as errors."""
    pytester.makepyfile(**files)
    pytester.plugins = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setenv("PYTHONPATH", str(PACKAGE.parent))  # not another checkout that is installed
        ours = ("-p", "mintlify_async.testing.pytest_plugin")
        return pytester.runpytest_subprocess("-q", "-W", "error", "-p", "no:cacheprovider", *ours, *options)


def marked(scope: str) -> str:
    return f"import pytest\npytestmark = pytest.mark.asyncio(loop_scope={scope!r})\n"


def test_pytest_asyncio_auto(pytester):
    """No decorator is needed, and an app makes its own session."""
    result = run(
        pytester,
        *AUTO,
        test_plain=A_JOB + AN_ANSWER,
        test_app=AN_APP_OF_ITS_OWN,
        test_no_loop=NO_LOOP_OF_A_PLUGIN,
    )
    result.assert_outcomes(passed=7, errors=1)
    result.stdout.fnmatch_lines([NOT_VIRTUAL])


def test_pytest_asyncio_strict(pytester):
    """Marked tests, whose service lives on the loop of the mark; an unmarked one fails with what to add."""
    scopes = {
        f"test_{scope}": marked(scope) + A_JOB + AN_ANSWER for scope in ("function", "module", "session")
    }
    result = run(pytester, *STRICT, test_unmarked=NOTHING_RUNS, **scopes)
    result.assert_outcomes(passed=6, errors=4)
    assert result.outlines.count(WHAT_TO_ADD.format("")) == 4


def test_a_wider_loop_by_default(pytester):
    """The configuration's scope is seen, too."""
    result = run(pytester, *AUTO, "-o", "asyncio_default_test_loop_scope=session", test_job=A_JOB)
    result.assert_outcomes(passed=1)


A_FIXTURE_ON_ANOTHER_LOOP = """
import pytest_asyncio
from mintlify_async import MintlifySession

@pytest_asyncio.fixture(loop_scope="session")
async def job_of_the_app(mintlify_env):
    async with MintlifySession() as session:
        return await session.create_job("Fix the typos")

async def test_the_app(job_of_the_app):
    pass

async def test_another_service(mintlify_env):
    async with MintlifySession(base_url="http://127.0.0.1:9") as session:
        pass
"""


def test_a_fixture_on_another_loop_than_its_test(pytester):
    """Its request would wait for a loop that does not run. Also a session of the app says so immediately."""
    result = run(pytester, *AUTO, test_loops=A_FIXTURE_ON_ANOTHER_LOOP)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*StateError: the service is on another event loop*loop_scope*"])


def test_without_a_plugin(pytester):
    """An async test fails with what to install, whichever fixture it uses; one that is not async runs."""
    result = run(pytester, test_nothing_runs=NOTHING_RUNS, test_no_loop=NO_LOOP_OF_A_PLUGIN)
    result.assert_outcomes(passed=3, errors=5)
    assert result.outlines.count(WHAT_TO_ADD.format("install pytest-asyncio and ")) == 4
    result.stdout.fnmatch_lines([NOT_VIRTUAL])


@pytest.mark.parametrize("options", [STRICT, ()], ids=["both", "alone"])
def test_anyio(pytester, options):
    """Anyio's own plugin runs the tests and the fixtures."""
    files = {"test_plain": A_JOB + AN_ANSWER, "test_app": AN_APP_OF_ITS_OWN}
    files = {name: ANYIO_BACKEND + source for name, source in files.items()}
    run(pytester, *ANYIO, *options, **files).assert_outcomes(passed=4)


def test_an_async_test_that_two_plugins_run(pytester):
    """Anyio's marker in auto mode is refused with what to change."""
    result = run(pytester, *ANYIO, *AUTO, test_both=ANYIO_BACKEND + AN_ANSWER)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*UsageError: pytest-asyncio and anyio's plugin would both run this test: remove "
            "pytest.mark.anyio, or set asyncio_mode to strict and do not use pytest.mark.asyncio"
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


@pytest.mark.parametrize(
    ("name", "answer"),
    [("mintlify_clock", "write mintlify_time instead"), ("mintlify_guard", "pytest-socket does it")],
)
def test_a_fixture_of_an_earlier_version(request, name, answer):
    """A test that asks for it fails with what to write, and not with a list of all fixtures."""
    with pytest.raises(pytest.fail.Exception, match=f"no fixture '{name}': .*{answer}"):
        request.getfixturevalue(name)


@pytest.fixture
def exported_site(monkeypatch):
    """The variable that the tutorial's second terminal has, as ``serve`` printed it."""
    monkeypatch.setenv("MINTLIFY_SITE", "https://docs.example")


async def test_a_site_of_the_shell_changes_no_link(
    exported_site, mintlify_session: MintlifySession, mintlify_service: LocalService
):
    """A test gives the same result in every shell."""
    mintlify_service.script.ask(text="Press the button.", sources=["/login"])
    answer = await mintlify_session.ask("How do I log in?")
    assert [source.url for source in answer.sources] == ["/login"]


def test_a_site_of_the_shell_is_removed_for_an_app(exported_site, mintlify_env: LocalService):
    """The app's own session would read it."""
    assert "MINTLIFY_SITE" not in os.environ
    assert os.environ["MINTLIFY_DOMAIN"] == mintlify_env.domain
