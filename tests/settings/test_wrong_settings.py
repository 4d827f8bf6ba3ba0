"""Settings of a wrong type are refused when they are given, with the field and what to write."""

from __future__ import annotations

import aiohttp
import pydantic
import pytest
import yarl

from mintlify_async import (
    APIConnectionError,
    Assumptions,
    ConfigurationError,
    Limit,
    MemoryStore,
    MintlifySession,
    Observer,
    PollPolicy,
    Quota,
    RetryPolicy,
    ServerError,
    Timeouts,
    answer_markdown,
    sources_of,
)
from tests.support.secret_guard import Keys


class OtherSession:
    """A session of another library."""


KEYS = Keys()


class Observed:
    """An observer; the class itself is none."""

    def start(self, operation, facts):
        raise AssertionError("not called")


WRONG = [
    ("retry", 3, r"RetryPolicy\(attempts=3\)"),
    ("retry", False, r"1 turns retrying off"),
    ("retry", RetryPolicy, "the class RetryPolicy"),
    ("poll", 5, r"PollPolicy\(initial=5\)"),
    ("poll", RetryPolicy(), "PollPolicy"),
    ("quota", 100, r"Quota\(create_job=100\)"),
    ("quota", Limit(100, per=3600), r"Quota\("),
    ("quota", Quota, "the class Quota"),
    ("quota", MemoryStore(), r"Quota\("),
    ("observer", print, "start"),
    ("observer", Observed, "the class Observed"),
    ("headers", {"X": 1}, "must be strings"),
    ("headers", [("X", "y")], "must be a mapping"),
    ("headers", [], "must be a mapping"),
    ("assumptions", {}, r"Assumptions\(…\)"),
    ("assumptions", Assumptions, "the class Assumptions"),
    *(
        ("client_session", value, "an aiohttp.ClientSession")
        for value in (OtherSession, aiohttp.ClientSession, "s")
    ),
    ("extra_body", [], "must be a mapping"),
    ("extra_body", 0, "must be a mapping"),
    ("timeouts", aiohttp.ClientTimeout(), r"Timeouts\(…\)"),
    ("ledger", "jobs.db", "SQLiteStore"),
    ("base_url", 5, "must be a URL"),
    ("base_url", b"https://x", "must be a URL"),
    ("base_url", yarl.URL("/path"), "https://"),
    ("base_url", yarl.URL("ftp://host"), "https://"),
    ("base_url", yarl.URL("https://user:secret@host"), "user name"),
    ("site", yarl.URL("/path"), "complete URL"),
    ("site", 5, "complete URL"),
    ("assistant_key", "mint_widget_0123456789", "web widget"),
    ("admin_key", "mint_widget_0123456789", "web widget"),
]


@pytest.mark.parametrize(("field", "value", "fix"), WRONG, ids=repr)
def test_a_wrong_setting_is_refused_when_it_is_given(bare, field, value, fix):
    """Not after a paid POST. A key, which may come from a function, is refused by ``check`` at the latest."""
    with pytest.raises(ConfigurationError, match=fix) as caught:
        MintlifySession(**{"project_id": "p", "domain": "d", field: value}).check(
            "assistant" if field == "assistant_key" else "agent"
        )
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["retry", "poll", "quota", "observer", "headers", "site", "ledger"])
def test_with_options_has_the_same_checks(bare, field):
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession().with_options(**{field: 7})
    assert caught.value.field == field


class AnyURL:
    """An object that has nothing but the text of a URL."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


@pytest.mark.parametrize("make", [str, pydantic.HttpUrl, yarl.URL, AnyURL])
async def test_a_url_of_another_library_is_a_url(service, bare, make):
    """The text of the object counts, in every place that takes a URL."""
    site = make("https://docs.acme.com/guide")
    async with service.session(base_url=make(service.base_url), site=site) as session:
        assert session.base_url == service.base_url
        assert session.options.site == "https://docs.acme.com/guide"
        assert session.with_options(site=site).options.site == "https://docs.acme.com/guide"
        service.script.ask(events=[{"type": "source-url", "sourceId": "s", "url": "/a"}, {"type": "finish"}])
        answer = await session.ask("x")
    assert sources_of(answer.message, site=site)[0].url == "https://docs.acme.com/guide/a"
    assert "https://docs.acme.com/guide/a" in answer_markdown(answer, site=site)


def test_what_is_documented_works(bare):
    """Each policy, an observer by its methods alone, and None where it is the default."""
    observer: Observer = Observed()
    session = MintlifySession(
        retry=RetryPolicy(attempts=1),
        poll=PollPolicy(initial=5),
        timeouts=Timeouts(request=5),
        quota=Quota(create_job=100),
        ledger=MemoryStore(),
        observer=observer,
        assumptions=Assumptions(),
        headers={"X-Team": "docs"},
        extra_body={},
    )
    session.with_options(quota=None, ledger=None, observer=None, site=None, headers=None, extra_body=None)
    MintlifySession(
        retry=None, poll=None, quota=None, observer=None, assumptions=None, base_url=None, site=None
    )


@pytest.mark.parametrize("make", [RetryPolicy, Timeouts])
def test_a_switch_is_true_or_false(make):
    """The text "false" would be true, and a question that is sent again costs."""
    name = "resend_questions" if make is RetryPolicy else "comments_are_activity"
    with pytest.raises(ConfigurationError, match=f"{name} must be True or False"):
        make(**{name: "false"})


@pytest.mark.parametrize(
    ("field", "value"),
    [("fp", 42), ("commit", "part"), ("busy", "wait"), ("busy", ["raise"]), ("id", 5), ("owner", 5)],
)
async def test_a_conversation_refuses_a_wrong_setting(session, field, value):
    """A ticket's number must be made a string, and a word that is not listed would count as another."""
    settings = {"store": MemoryStore(), "fp": "ann", "id": "chat", field: value}
    with pytest.raises(ConfigurationError, match="must be") as caught:
        session.conversation(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["fp", "thread", "domain"])
@pytest.mark.parametrize("verb", ["ask", "retry"])
async def test_a_conversation_says_where_its_own_options_are_set(service, session, name, verb):
    """A group's question by another person needs a conversation of that person."""
    chat = session.conversation(fp="ann")
    service.script.ask(status=500, times=None)
    with pytest.raises(ServerError):
        await chat.ask("x")
    sent = len(service.requests)
    with pytest.raises(ConfigurationError, match=f"has no {name}=: ") as caught:
        chat.ask("x", **{name: "bob"}) if verb == "ask" else chat.retry(**{name: "bob"})
    assert caught.value.field == name
    options = "it takes context, current_path, extra_body, filter"
    with pytest.raises(TypeError, match=f"has no option 'colour'; {options}") as refused:
        chat.ask("x", colour=1)
    assert "fp" not in str(refused.value)
    assert len(service.requests) == sent


class Vault:
    """Makes keys, and fails as often as it is told to."""

    def __init__(self, failures, error, key=KEYS.admin):
        self.failures, self.error, self.calls = failures, error, 0
        self.key = key

    async def __call__(self):
        secret = self.key
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"the vault refuses {secret}")
        return secret


@pytest.mark.parametrize("error", [RuntimeError, TimeoutError, OSError, KeyError])
async def test_a_key_function_that_fails_is_asked_again(service, error):
    """As for a connection that failed: nothing was sent, so also a paid request may be tried again."""
    vault = Vault(1, error, service.admin_key)
    async with service.session(admin_key=vault, retry=RetryPolicy(base=0.001)) as session:
        job = await session.create_job("x")
        await job.refresh()
    assert (vault.calls, [request.method for request in service.requests]) == (3, ["POST", "GET"])


async def test_quota_left_tells_it_too(service):
    async with service.session(assistant_key=Vault(9, OSError), quota=Quota()) as session:
        with pytest.raises(APIConnectionError, match="the assistant key failed with OSError"):
            await session.quota_left("ask")
