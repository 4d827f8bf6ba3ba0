"""A session's options: checked when it is made, or read from the environment."""

from __future__ import annotations

import pytest
from secret_guard import Keys
from wire_kit import JOB

from mintlify_async import ConfigurationError, MintlifySession
from mintlify_async.testing import LocalService

KEYS = Keys()


@pytest.fixture
def bare(monkeypatch):
    """An environment without any of our variables."""
    for name in ("ADMIN_API_KEY", "ASSISTANT_API_KEY", "PROJECT_ID", "DOMAIN", "BASE_URL", "SITE"):
        monkeypatch.delenv(f"MINTLIFY_{name}", raising=False)
    return monkeypatch


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
        ({"proxy": "localhost:3128"}, "proxy"),
        ({"ssl": False}, "ssl"),
        ({"retry": 3}, "retry"),
        ({"poll": 3}, "poll"),
        ({"timeouts": 3}, "timeouts"),
        ({"max_event_bytes": 0}, "max_event_bytes"),
        ({"max_reply_bytes": "1"}, "max_reply_bytes"),
        ({"client_session": 3}, "client_session"),
        ({"project_id": ""}, "project_id"),
        ({"domain": ".."}, "domain"),
        ({"site": "docs.acme.com"}, "site"),
        ({"site": ""}, "site"),
        ({"headers": {"Authorization": "x"}}, "headers"),
        ({"extra_body": 3}, "extra_body"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_at_construction(arguments, field):
    """The session's constructor refuses a setting of a wrong type by name."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(**arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("proxy", ["http://", "https:///path", "http://[bad"])
def test_a_proxy_without_a_host_is_refused(proxy):
    """A proxy URL without a host is refused: aiohttp would ignore it silently."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(proxy=proxy)
    assert caught.value.field == "proxy"


SOURCE = {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"}


async def test_the_site_makes_paths_whole(bare):
    """From the environment, the session, ``with_options`` or the call, the nearest first."""
    bare.setenv("MINTLIFY_SITE", "https://env.example")
    async with LocalService() as service:
        service.script.ask(events=[SOURCE, {"type": "finish"}], times=None)
        async with service.session() as session, service.session(site="https://docs.acme.com/") as other:
            asked = [
                session.ask("x"),
                other.ask("x"),
                other.with_options(site="https://changed.example/docs").ask("x"),
                other.ask("x", site="https://call.example"),
                other.conversation().ask("x", site="https://turn.example"),
            ]
            answers = [await reply for reply in asked]
    assert [answer.sources[0].url for answer in answers] == [
        "https://env.example/login",
        "https://docs.acme.com/login",
        "https://changed.example/docs/login",
        "https://call.example/login",
        "https://turn.example/login",
    ]
    assert [answer.site for answer in answers] == [reply.site for reply in asked]


async def test_a_site_that_is_no_address_is_refused_before_anything_is_sent(web, bare):
    """Wherever it is given; the error names the field and an example."""
    bare.setenv("MINTLIFY_ASSISTANT_API_KEY", KEYS.assistant)
    async with MintlifySession(domain="acme") as session:
        for call in (
            lambda: session.ask("x", site="docs.acme.com"),
            lambda: session.with_options(site="//docs.acme.com"),
            lambda: session.conversation().ask("x", site=7),
        ):
            with pytest.raises(ConfigurationError, match=r"such as https://docs\.acme\.com") as caught:
                call()
            assert caught.value.field == "site"
    bare.setenv("MINTLIFY_SITE", "docs.acme.com")
    with pytest.raises(ConfigurationError, match="site must be"):
        MintlifySession()
    assert not web.requests
