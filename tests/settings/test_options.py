"""A session's options: checked when it is made, or read from the environment."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from mintlify_async import Assumptions, ConfigurationError, Message, MintlifySession, RetryPolicy, Thread
from mintlify_async.argument_checks import check_dedupe_key
from tests.support.secret_guard import Keys

KEYS = Keys()
JOB = {"id": "job_1", "status": "active"}


async def test_what_is_missing_is_reported_by_the_operation_that_needs_it(web, bare):
    """A session without keys can be made; each error names the argument and the variable."""
    async with MintlifySession() as session:
        for field, call in (
            ("project_id", session.create_job("x")),
            ("admin_key", session.create_job("x", project_id="p")),
            ("assistant_key", session.ask("x", domain="d").run()),
        ):
            with pytest.raises(ConfigurationError, match="MINTLIFY_") as caught:
                await call
            assert caught.value.field == field
        with pytest.raises(ConfigurationError, match="MINTLIFY_DOMAIN"):
            session.ask("x")
    assert not web.requests


async def test_the_environment_is_read_once_and_arguments_win(web, bare):
    """An empty variable counts as absent."""
    bare.setenv("MINTLIFY_ADMIN_API_KEY", KEYS.admin)
    bare.setenv("MINTLIFY_PROJECT_ID", "from-env")
    bare.setenv("MINTLIFY_BASE_URL", "https://env.example")
    bare.setenv("MINTLIFY_DOMAIN", "")
    web.post("https://env.example/v2/agent/from-env/job", payload=JOB)
    web.post("https://env.example/v2/agent/argument/job", payload=JOB)
    async with MintlifySession() as session, MintlifySession(project_id="argument") as other:
        bare.delenv("MINTLIFY_ADMIN_API_KEY")
        await session.create_job("x")
        await other.create_job("x")
        with pytest.raises(ConfigurationError, match="domain is missing"):
            session.ask("x")


@pytest.mark.parametrize(
    ("name", "value"),
    [("fp", None), ("fp", ""), ("clock", None), ("project_id", ""), ("retrieval_page_size", "5")],
)
async def test_with_options_refuses_by_name(name, value):
    """None is no value for an option that always has one; what it does not know is refused, too."""
    async with MintlifySession() as session:
        assert session.with_options(retry=None, poll=None, timeouts=None)  # for these, None changes nothing
        with pytest.raises(ConfigurationError) as caught:
            session.with_options(**{name: value})
        assert caught.value.field == name


async def test_further_headers_and_fields_are_copied(service):
    """What is changed in the mappings later is not sent; ``with_options`` with None takes them away."""
    headers, fields = {"X-Team": "docs"}, {"team": "docs"}
    async with service.session(headers=headers, extra_body=fields) as session:
        headers["X-Team"] = fields["team"] = "changed"
        await session.create_job("x")
        await session.with_options(headers=None, extra_body=None).create_job("x")
    first, second = service.requests
    assert (first.headers["x-team"], first.json) == ("docs", {"prompt": "x", "team": "docs"})
    assert ("x-team" in second.headers, second.json) == (False, {"prompt": "x"})


@pytest.mark.parametrize("place", ["argument", "environment", "with assumptions"])
def test_a_key_goes_to_another_machine_in_plain_http_only_if_allowed(bare, monkeypatch, place):
    """Without ``allow_insecure_http=True``, wherever the URL comes from."""
    url, settings = "http://10.0.0.1", {}
    if place == "environment":
        monkeypatch.setenv("MINTLIFY_BASE_URL", url)
    else:
        settings = {"base_url": url} if place == "argument" else {"assumptions": Assumptions(base_url=url)}
    with pytest.raises(ConfigurationError, match="allow_insecure_http"):
        MintlifySession(**settings)
    assert not MintlifySession(**settings, allow_insecure_http=True).closed


async def test_the_options_can_be_read():
    """Those of this session, with what ``with_options`` changed; a repr shows none of them."""
    async with MintlifySession(domain="acme", headers={"X-Token": "secret"}) as session:
        other = session.with_options(retry=RetryPolicy(attempts=1))
        assert (other.options.domain, other.options.retry.attempts) == ("acme", 1)
        assert session.options.retry == RetryPolicy()
        assert "secret" not in repr(session.options)


@pytest.mark.parametrize("variable", [None, "MINTLIFY_ADMIN_API_KEY", "MINTLIFY_API_KEY"])
def test_the_admin_key_is_refused_in_a_browser(bare, monkeypatch, variable):
    """Pyodide runs in the reader's page, who could read the key; the assistant's may be there."""
    monkeypatch.setattr("sys.platform", "emscripten")
    MintlifySession(assistant_key=KEYS.assistant)
    if variable is not None:
        monkeypatch.setenv(variable, KEYS.admin)
    with pytest.raises(ConfigurationError, match="admin_key must not be used in a browser") as caught:
        MintlifySession(admin_key=KEYS.admin if variable is None else None)
    assert caught.value.field == "admin_key"


def fetch():
    """A key that a function makes counts as there: making it may take time."""
    raise AssertionError("called")


PLACE = {"project_id": "p", "domain": "d"}
SWAPPED = {"admin_key": KEYS.assistant, "assistant_key": KEYS.admin, **PLACE}
ANY_KEY = {"assumptions": Assumptions(admin_key_prefix="", assistant_key_prefix="")}


@pytest.mark.parametrize(
    ("uses", "settings", "problems"),
    [
        ((), {}, ["admin_key", "project_id", "assistant_key", "domain"]),
        (("agent", "assistant"), {}, ["admin_key", "project_id", "assistant_key", "domain"]),
        (("assistant",), {"assistant_key": KEYS.assistant}, ["domain"]),
        (("agent",), {"admin_key": KEYS.admin, "project_id": "p"}, []),
        ((), SWAPPED, ["admin_key holds an assistant key", "assistant_key holds an admin key"]),
        ((), {**SWAPPED, **ANY_KEY}, []),
        ((), {"admin_key": fetch, "assistant_key": fetch, **PLACE}, []),
        *(((use,), {}, ["uses must be 'agent' or 'assistant'"]) for use in ("ask", ["agent"], None, "")),
    ],
)
def test_check_lists_everything_that_is_missing_at_once(bare, uses, settings, problems):
    """A line each, for both operations when none is named; it calls nothing and sends nothing."""
    session = MintlifySession(**settings)
    if not problems:
        session.check(*uses)
        return
    with pytest.raises(ConfigurationError) as caught:
        session.check(*uses)
    lines = [line.removeprefix("- ") for line in str(caught.value).splitlines()[len(problems) > 1 :]]
    assert all(line.startswith(problem) for line, problem in zip(lines, problems, strict=True))


SOURCE = {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"}


async def test_the_site_makes_paths_whole(service, bare):
    """From the environment, the session or ``with_options``, the nearest first."""
    bare.setenv("MINTLIFY_SITE", "https://env.example")
    service.script.ask(events=[SOURCE, {"type": "finish"}], times=None)
    async with service.session() as session, service.session(site="https://docs.acme.com/") as other:
        asked = {
            "https://env.example": session.ask("x"),
            "https://docs.acme.com": other.ask("x"),
            "https://changed.example/docs": other.with_options(site="https://changed.example/docs").ask("x"),
        }
        conversation = await other.conversation().ask("x")
        assert conversation.sources[0].url == "https://docs.acme.com/login"
        for site, reply in asked.items():
            answer = await reply
            assert answer.sources[0].url == f"{site}/login"
            assert answer.site == reply.site


REFUSED = {
    "a header": lambda: MintlifySession(headers={"X": "\n"}),
    "a key": lambda: MintlifySession(admin_key="a b"),
    "a thread": lambda: Thread(3),
    "a thread's key": lambda: Thread("t", 3),
    "a message": lambda: Message(id="m", role="user", parts=3),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_traceback_shows_an_object_whose_making_failed(what):
    """Error trackers, and unittest with ``--locals``, call the repr of every local variable."""
    with pytest.raises(Exception, match=r".") as caught:
        REFUSED[what]()
    seen = [one for frame, _ in traceback.walk_tb(caught.tb) for one in list(frame.f_locals.values())]
    assert all(isinstance(repr(one), str) for one in seen)


def test_names_are_strings():
    """A ticket's number must be made one."""
    with pytest.raises(ConfigurationError, match=r"dedupe_key must be a string; got int"):
        check_dedupe_key(7)


@pytest.mark.real
@pytest.mark.parametrize("ledger", [True, False])
def test_a_call_in_atexit_that_needs_a_thread_says_so(tmp_path, ledger):
    """The ledger's file, and a DNS lookup, need one. Python starts none any more."""
    store = f"SQLiteStore({str(tmp_path / 'l.sqlite')!r})" if ledger else "None"
    host = "127.0.0.1:9" if ledger else "no-such-host.invalid"
    program = (
        "import asyncio, atexit\n"
        "from mintlify_async import MintlifySession, SQLiteStore, StateError\n"
        "async def call():\n"
        f"    settings = dict(base_url='http://{host}', allow_insecure_http=True)\n"
        "    settings |= dict(admin_key='mint_0', project_id='p')\n"
        f"    async with MintlifySession(ledger={store}, **settings) as session:\n"
        f"        await session.create_job('x', dedupe_key='k' if {ledger} else None)\n"
        "def last():\n"
        "    try:\n"
        "        asyncio.run(call())\n"
        "    except StateError as error:\n"
        "        print(error)\n"
        "atexit.register(last)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "not in atexit" in done.stdout, done.stderr
