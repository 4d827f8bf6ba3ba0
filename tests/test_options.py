"""A session's options: checked when it is made, or read from the environment."""

from __future__ import annotations

import pytest

from mintlify_async import Assumptions, ConfigurationError, MintlifySession, RetryPolicy
from mintlify_async.testing import LocalService
from tests.support.secret_guard import Keys
from tests.support.wire_kit import JOB

KEYS = Keys()


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
    ("arguments", "field"),
    [
        *(({"proxy": url}, "proxy") for url in ("localhost:3128", "http://", "https:///path", "http://[bad")),
        ({"ssl": False}, "ssl"),
        ({"timeouts": 3}, "timeouts"),
        ({"project_id": ""}, "project_id"),
        ({"domain": ".."}, "domain"),
        *(({"site": site}, "site") for site in ("docs.acme.com", "//docs.acme.com", 7)),
        ({"site": ""}, "site"),
        ({"headers": {"Authorization": "x"}}, "headers"),
        ({"timeouts": 0}, "timeouts"),
        ({"retrieval_page_size": "5"}, "retrieval_page_size"),
        ({"allow_insecure_http": "false"}, "allow_insecure_http"),
        ({"extra_body": 3}, "extra_body"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_at_construction(arguments, field):
    """The session's constructor refuses a setting of a wrong type by name."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(**arguments)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


async def test_further_headers_and_fields_are_copied():
    """What is changed in the mappings later is not sent; ``with_options`` with None takes them away."""
    headers, fields = {"X-Team": "docs"}, {"team": "docs"}
    async with (
        LocalService() as service,
        service.session(headers=headers, extra_body=fields) as session,
    ):
        headers["X-Team"] = fields["team"] = "changed"
        await session.create_job("x")
        await session.with_options(headers=None, extra_body=None).create_job("x")
    first, second = service.requests
    assert (first.headers["x-team"], first.json) == ("docs", {"prompt": "x", "team": "docs"})
    assert ("x-team" in second.headers, second.json) == (False, {"prompt": "x"})


async def test_the_options_can_be_read():
    """Those of this session, with what ``with_options`` changed; a repr shows none of them."""
    async with MintlifySession(domain="acme", headers={"X-Token": "secret"}) as session:
        other = session.with_options(retry=RetryPolicy(attempts=1))
        assert (other.options.domain, other.options.retry.attempts) == ("acme", 1)
        assert session.options.retry == RetryPolicy()
        assert "secret" not in repr(session.options)


@pytest.mark.parametrize("name", ["fp", "retry", "poll", "timeouts"])
async def test_with_options_checks_the_same(name):
    """None is no value for an option that always has one; it used to fail in a later call."""
    async with MintlifySession() as session:
        if name in ("retry", "poll", "timeouts"):
            assert session.with_options(**{name: None})  # parameters of their own: None changes nothing
            return
        with pytest.raises(ConfigurationError, match=f"^{name} must be"):
            session.with_options(**{name: None})


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


# The check at the start of a program --------------------------------------------------------------


def missing(*uses, **settings):
    """Return what ``check`` says of a session with *settings*."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(**settings).check(*uses)
    return caught.value


@pytest.mark.parametrize("uses", [(), ("agent", "assistant"), ("assistant", "agent", "agent")])
def test_check_lists_everything_that_is_missing_at_once(bare, uses):
    """A line each, with the argument and the variable; for both operations when none is named."""
    error = missing(*uses)
    assert str(error).splitlines() == [
        "4 settings are missing or wrong:",
        "- admin_key is missing: agent jobs need the admin key; "
        "pass admin_key= or set MINTLIFY_ADMIN_API_KEY",
        "- project_id is missing: agent jobs belong to a project; "
        "pass project_id= or set MINTLIFY_PROJECT_ID",
        "- assistant_key is missing: the assistant needs the assistant key; "
        "pass assistant_key= or set MINTLIFY_ASSISTANT_API_KEY",
        "- domain is missing: the assistant answers about one site, named by the last segment of the "
        "dashboard's URL; pass domain= or set MINTLIFY_DOMAIN",
    ]
    assert error.field is None


def test_check_looks_only_at_what_is_used(bare):
    """A program without jobs needs no project; a single problem is told as the call would tell it."""
    error = missing("assistant", assistant_key=KEYS.assistant)
    assert (error.field, str(error).split(":")[0]) == ("domain", "domain is missing")
    MintlifySession(assistant_key=KEYS.assistant).with_options(domain="d").check("assistant")
    MintlifySession(admin_key=KEYS.admin, project_id="p").check("agent")


def test_check_finds_a_key_of_the_wrong_kind(bare):
    """The way out is in the message; an empty prefix turns it off."""
    swapped = {"admin_key": KEYS.assistant, "assistant_key": KEYS.admin, "project_id": "p", "domain": "d"}
    error = missing(**swapped)
    assert "admin_key holds an assistant key: agent jobs need the admin key" in str(error)
    assert "assistant_key holds an admin key" in str(error)
    assert "in assistant_key= or MINTLIFY_ASSISTANT_API_KEY" in str(error)
    any_key = Assumptions(admin_key_prefix="", assistant_key_prefix="")
    MintlifySession(**swapped, assumptions=any_key).check()


def test_check_calls_nothing_and_sends_nothing(bare):
    """A key that a function makes counts as there: making it may take time."""

    def fetch():
        raise AssertionError("called")

    MintlifySession(admin_key=fetch, assistant_key=fetch, project_id="p", domain="d").check()


@pytest.mark.parametrize("use", ["ask", "admin", ["agent"], None, ""])
def test_check_says_what_it_takes(bare, use):
    """Another word does not pass in silence."""
    error = missing(use)
    assert str(error).startswith('check takes "agent" and "assistant", not ')


SOURCE = {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"}


async def test_the_site_makes_paths_whole(bare):
    """From the environment, the session or ``with_options``, the nearest first."""
    bare.setenv("MINTLIFY_SITE", "https://env.example")
    async with LocalService() as service:
        service.script.ask(events=[SOURCE, {"type": "finish"}], times=None)
        async with service.session() as session, service.session(site="https://docs.acme.com/") as other:
            asked = [
                session.ask("x"),
                other.ask("x"),
                other.with_options(site="https://changed.example/docs").ask("x"),
                other.conversation().ask("x"),
            ]
            answers = [await reply for reply in asked]
    assert [answer.sources[0].url for answer in answers] == [
        "https://env.example/login",
        "https://docs.acme.com/login",
        "https://changed.example/docs/login",
        "https://docs.acme.com/login",
    ]
    assert [answer.site for answer in answers] == [reply.site for reply in asked]
