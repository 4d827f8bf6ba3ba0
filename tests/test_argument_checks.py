"""Bad arguments are refused by the name of the field, where they are passed and before anything is sent."""

from __future__ import annotations

import math
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from mintlify_async import (
    ConfigurationError,
    ContextItem,
    Ledger,
    MemoryStore,
    Message,
    MintlifySession,
    Quota,
    SearchFilter,
    Thread,
)
from mintlify_async.argument_checks import check_base_url


@contextmanager
def refused(field, match=None):
    """The block raises the error that names *field*, and shows no password."""
    with pytest.raises(ConfigurationError, match=match) as caught:
        yield
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


HALF = "a\ud83d"  # UTF-8 cannot express half of a surrogate pair: servers answer with a 400 or a guess
BAD_QUESTIONS = [
    *(({"question": question}, "messages") for question in (7, b"Hm?", bytearray(b"Hm?"))),
    ({"question": [7]}, "messages[0]"),
    ({"question": [{"role": "user", "parts": [], "x": b"x"}]}, "messages[0].x"),
    *(({"question": [{"role": "user", "content": bad}]}, "messages[0].content") for bad in ("", None, [])),
    ({"context": [{"type": "code", "value": ""}, {"type": "code", "value": 5}]}, "context[1].value"),
    ({"context": [{"type": "code", "value": "x", "lines": {"a": b"x"}}]}, "context[0].lines.a"),
    ({"context": [ContextItem("code", "x", extra={"lines": math.nan})]}, "context[0].lines"),
    ({"context": [7]}, "context[0]"),
    ({"filter": {"since": date(2026, 1, 2)}}, "filter.since"),
    ({"filter": {"since": [1, math.inf]}}, "filter.since[1]"),
    ({"filter": {"a": {1: 2}}}, "filter.a"),
    *(({"retrieval_page_size": n}, "retrieval_page_size") for n in (True, -(10**5000), 1e301, math.nan)),
    ({"extra_body": [1]}, "extra_body"),
    ({"extra_body": {"a": object()}}, "extra_body.a"),
    ({"extra_body": {1: 2}}, "extra_body"),
    *(({"timeout": seconds}, "timeout") for seconds in (0, -1, "5", 10**400, math.nan, -math.inf)),
    ({"question": HALF}, "messages[0].parts[0].text"),
    ({"question": ["a", HALF]}, "messages[1].parts[0].text"),
    ({"question": Message.user("a", id=HALF)}, "messages[0].id"),
    ({"question": Message(id="1", role=HALF)}, "messages[0].role"),
    ({"fp": HALF}, "fp"),
    ({"current_path": HALF}, "current_path"),
    ({"thread": HALF}, "thread.id"),
    ({"thread": Thread("t", HALF)}, "thread.key"),
    ({"filter": SearchFilter(version=HALF)}, "filter.version"),
    ({"filter": {"groups": ("a", HALF)}}, "filter.groups[1]"),
    ({"context": [ContextItem("code", HALF)]}, "context[0].value"),
    ({"extra_body": {"a": [{"b": HALF}]}}, "extra_body.a[0].b"),
    ({"extra_body": {HALF: 1}}, "extra_body"),
    ({"domain": HALF}, "domain"),
]


@pytest.mark.parametrize(("arguments", "field"), BAD_QUESTIONS, ids=[field for _, field in BAD_QUESTIONS])
async def test_a_bad_question_is_refused_before_any_request(service, session, arguments, field):
    """The error names the field; the network is not touched."""
    arguments = {"question": "Hi", **arguments}
    with refused(field):
        await session.ask(arguments.pop("question"), **arguments)
    assert not service.requests


async def test_both_halves_of_a_character_are_sent_as_one(service, session):
    """Text in which JSON left a pair apart is what JavaScript sends, too."""
    await session.ask(["\ud83d\ude00 \U0001f600"])
    (message,) = service.requests[0].json["messages"]
    assert message["parts"] == [{"type": "text", "text": "\U0001f600 \U0001f600"}]


@pytest.mark.parametrize("prompt", ["", None, 7, HALF])
async def test_a_bad_prompt_is_refused_before_any_request(service, session, prompt):
    """A string of at least one character (interface 2.2), without half a pair; for both operations."""
    for call in (session.create_job(prompt), session.job("job_1").send(prompt)):
        with refused("prompt"):
            await call
    assert not service.requests


BAD_URLS = ["api.mintlify.com", "ftp://x", "https://", "https://user:pw@host", "https://host:notaport", ""]
BAD_URLS += [f"https://host{end}" for end in ("?x=1", "#f", " st", "\r\nX: 1", "ô", " ", "/v2/")]
BAD_URLS += ["http://example.com", "http://10.0.0.1", '"https://x.io"']


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_base_url_that_keys_should_not_go_to_is_refused(monkeypatch, url):
    """The message names the variable if the URL is from there."""
    with refused("base_url", r"^base_url "):
        MintlifySession(base_url=url)
    monkeypatch.setenv("MINTLIFY_BASE_URL", url)
    with refused("base_url", r"^MINTLIFY_BASE_URL: base_url "):
        MintlifySession()


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.1:8", "http://[::1]:8", "https://x.io/a/"]
)
def test_a_base_url_may_be_https_or_this_machine(url):
    """A path prefix is kept, a trailing slash is not."""
    assert check_base_url(url, allow_insecure_http=False) == url.rstrip("/")
    assert check_base_url("http://10.0.0.1", allow_insecure_http=True) == "http://10.0.0.1"


BAD_HEADERS = [("a b", "x"), ("Host", "x"), ("Expect", "100-continue"), ("Authorization", "x")]
BAD_HEADERS += [("content-encoding", "gzip"), ("X", "a\r\nb"), ("X", "é")]


@pytest.mark.parametrize("headers", BAD_HEADERS, ids=repr)
async def test_headers_that_cannot_be_sent_are_refused_before_any_post(service, session, headers):
    """By each operation and by the session. ``Expect`` would send the headers first, before the body."""
    headers = dict([headers])
    for call in (
        lambda: session.create_job("x", headers=headers),
        lambda: session.job("job_1").send("x", headers=headers),
        lambda: session.ask("x", headers=headers).run(),
        lambda: MintlifySession(headers=headers),
    ):
        with refused("headers"):
            await call()
    assert "POST" not in [request.method for request in service.requests]


SLIPS = ["https://docs.acme.com/", " acme", "acme\n", "\ufeffacme", "\u00a0acme", '"acme"', "'acme"]
SLIPS += ["\u201cacme\u201d", "", " ", ".", "..", "a\nb", "a\x00", 7]
SLIPS += ["p # prod", "${{ vars.X }}", "$PROJECT", "<project>", "a b", "p#1"]  # not filled in


@pytest.mark.parametrize("value", SLIPS, ids=repr)
@pytest.mark.parametrize("name", ["domain", "project_id"])
async def test_what_names_no_site_or_project_is_refused(service, session, monkeypatch, name, value):
    """In every place that takes it, before anything is sent; a variable is named."""
    calls = [session.ask] if name == "domain" else [session.create_job, session.job]
    for place in (MintlifySession, session.with_options, *(partial(call, "x") for call in calls)):
        with refused(name, f"^{name} "):
            await place(**{name: value})
    assert not service.requests
    if isinstance(value, str) and value and "\x00" not in value:
        variable = f"MINTLIFY_{name.upper()}"
        monkeypatch.setenv(variable, value)
        with refused(name, f"^{variable}: {name} "):
            MintlifySession()


@pytest.mark.parametrize("domain", ["acme", "docs.acme.com", "é", "a_b", "o'hara"])
async def test_a_domain_is_not_checked_against_a_pattern(session, domain):
    """A custom host name and names of any script are accepted."""
    assert session.with_options(domain=domain)


STORED = Thread("thread_1", "k")
NO_THREADS = [STORED.to_dict(), STORED.to_json(), str(STORED), 7, " ", "thread_1\n", Thread(" thread_1", "k")]


@pytest.mark.parametrize("thread", NO_THREADS, ids=["dict", "json", "str", "int", "blank", "line", "space"])
async def test_a_thread_in_another_form_is_refused(session, thread):
    """The JSON of a thread would be sent as its id, and shown: it holds the key."""
    for place in (session.ask, lambda _, thread: session.conversation().begin_with(thread=thread)):
        with refused("thread"):
            place("x", thread=thread)


async def test_a_message_with_content_is_a_message(service, session):
    """The form of other SDKs; it is sent with one part of text."""
    await session.ask([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hi"}])
    await session.ask({"id": "m1", "role": "user", "content": "hi", "parts": []})
    messages = [message for request in service.requests for message in request.json["messages"]]
    assert [(message["role"], message["parts"]) for message in messages] == [
        ("system", [{"type": "text", "text": "Be brief"}]),
        ("user", [{"type": "text", "text": "hi"}]),
        ("user", [{"type": "text", "text": "hi"}]),
    ]
    assert messages[2].keys() == {"id", "role", "parts"}


async def later(*arguments):
    """A hook that would never run: its coroutine is not awaited."""


WRONG_OBJECTS = [
    {"ledger": "redis://:secret@host/0"},
    {"ledger": MemoryStore},
    {"timeouts": aiohttp.ClientTimeout(total=5)},
    {"timeouts": 3},
    {"timeouts": 0},
    {"ssl": False},
    *({"proxy": url} for url in ("localhost:3128", "http://", "https:///path", "http://[bad")),
    *({"site": site} for site in ("docs.acme.com", 7)),
    {"retrieval_page_size": "5"},
    {"allow_insecure_http": "false"},
    {"extra_body": 3},
]


@pytest.mark.parametrize("arguments", WRONG_OBJECTS, ids=repr)
def test_a_session_refuses_a_wrong_object(arguments):
    """At once, not with an AttributeError at the first request."""
    [field] = arguments
    with refused(field, f"^{field}"):
        MintlifySession(**arguments)


async def test_a_verb_refuses_a_wrong_object(service, session):
    """Before a turn is paid for that no store can keep, or a job whose hook cannot be called."""
    for store in ("x.sqlite", MemoryStore):
        with refused("store", "^store"):
            session.conversation(store=store)
    for wrong in (later, "x"):
        with refused("on_created"):
            await session.run_job("x", on_created=wrong)
    reply = session.ask("x")
    with refused("tail", "^tail"):
        reply.edits(tail=later)
    await reply.close()
    assert not service.requests


def test_redis_stores_refuse_what_is_no_client():
    """An address, or a client that does not await."""
    redis = pytest.importorskip("redis")
    from mintlify_async.contrib.redis import RedisStore, RedisStreamStore

    for wrong in ("redis://:secret@host/0", redis.Redis(), redis.asyncio.Redis, None, 3, MemoryStore()):
        for store in (RedisStore, RedisStreamStore):
            with refused("client", "^client"):
                store(wrong)


def test_a_ledger_and_a_quota_refuse_what_is_no_store_and_no_address():
    """A path, a class or None as the store is refused at once, and not by the first step."""
    for wrong in ("jobs.sqlite", Path("jobs.sqlite"), 3, None, MemoryStore):
        with refused("store", "^store must be a store such as"):
            Ledger(wrong)
    for wrong in (3, None, ["203.0.113.7"], b"203.0.113.7"):
        with refused("address", "^address must be a string"):
            Quota(address=wrong)
