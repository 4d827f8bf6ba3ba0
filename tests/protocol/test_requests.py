"""The four requests as they go out, and bad input, which never does."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest
from aioresponses import aioresponses
from hypothesis import given
from hypothesis import strategies as st
from secret_guard import Keys

from mintlify_async import (
    Assumptions,
    AuthenticationError,
    ConfigurationError,
    ContextItem,
    Message,
    MintlifySession,
    NotFoundError,
    SearchFilter,
    Thread,
    Timeouts,
)
from mintlify_async.messages import TextPart
from mintlify_async.protocol.argument_checks import check_base_url
from mintlify_async.protocol.requests import ask_request
from mintlify_async.protocol.responses import server_words
from mintlify_async.testing import LocalService

KEYS = Keys()
JOB = {"id": "job_1", "status": "active"}


@pytest.fixture
def web():
    """Answers in place of the network; a request that nobody expects fails."""
    with aioresponses() as mocked:
        yield mocked


@pytest.fixture
async def session():
    """A session with everything it needs, at the service's own address."""
    async with MintlifySession(
        project_id="acme", domain="acme-docs", admin_key=KEYS.admin, assistant_key=KEYS.assistant
    ) as session:
        yield session


def sent(web, index=0):
    """Return the arguments of the only request, or of the one at *index*."""
    calls = [call for calls in web.requests.values() for call in calls]
    return calls[index].kwargs


def body_of(web):
    return json.loads(bytes(sent(web)["data"]._value))


async def test_create_job_on_the_wire(web, session):
    """One POST with the prompt, the admin key, and our name; redirects are not followed."""
    web.post("https://api.mintlify.com/v2/agent/acme/job", payload=JOB, status=201)
    job = await session.create_job("Fix the typos")
    assert job.id == "job_1"
    assert body_of(web) == {"prompt": "Fix the typos"}
    request = sent(web)
    assert request["headers"]["Authorization"] == f"Bearer {KEYS.admin}"
    assert request["headers"]["Content-Type"] == "application/json"
    assert request["headers"]["User-Agent"].startswith("mintlify-async/")
    assert request["allow_redirects"] is False


async def test_send_message_and_get_job_on_the_wire(web, session):
    """A follow-up first looks at the job (its baseline), then sends one POST."""
    web.get("https://api.mintlify.com/v2/agent/acme/job/job_1", payload={**JOB, "status": "completed"})
    web.post("https://api.mintlify.com/v2/agent/acme/job/job_1/message", payload=JOB)
    await session.job("job_1").send("Mention the CLI")
    assert [(method, url.path) for method, url in web.requests] == [
        ("GET", "/v2/agent/acme/job/job_1"),
        ("POST", "/v2/agent/acme/job/job_1/message"),
    ]
    assert json.loads(bytes(sent(web, 1)["data"]._value)) == {"prompt": "Mention the CLI"}


STREAM = 'data: {"type":"start"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n'
ASK = "https://api.mintlify.com/discovery/v2/assistant/acme-docs/message"


async def test_a_plain_question_on_the_wire(web, session):
    """A string becomes one user message; unset fields are left out; the page size is always sent."""
    web.post(ASK, body=STREAM)
    await session.ask("How do I log in?")
    body = body_of(web)
    assert set(body) == {"fp", "messages", "retrievalPageSize"}
    assert body["fp"] == "anonymous"
    assert body["retrievalPageSize"] == 5
    [message] = body["messages"]
    assert message["role"] == "user"
    assert message["id"]
    assert message["parts"] == [{"type": "text", "text": "How do I log in?"}]
    assert sent(web)["headers"]["Authorization"] == f"Bearer {KEYS.assistant}"


@pytest.mark.shows_secrets("the thread's key belongs in the body that is examined")
async def test_every_field_of_a_question_on_the_wire(web, session):
    """Each argument has its wire name."""
    web.post(ASK, body=STREAM)
    await session.ask(
        [
            Message.user("Hi", id="m1"),
            {"id": "m2", "role": "user", "parts": [{"type": "text", "text": "More"}]},
        ],
        thread=Thread("t1", KEYS.thread),
        fp="user-42",
        retrieval_page_size=9,
        filter=SearchFilter(version="v2", language="en", groups=["admin"]),
        context=[
            ContextItem("code", "x = 1", path="a.py", element_id="e1"),
            {"type": "textSelection", "value": "text"},
        ],
        current_path="/quickstart",
        headers={"X-Trace": "1"},
        extra_body={"mode": "new"},
    )
    assert body_of(web) == {
        "fp": "user-42",
        "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
            {"id": "m2", "role": "user", "parts": [{"type": "text", "text": "More"}]},
        ],
        "threadId": "t1",
        "threadKey": KEYS.thread,
        "retrievalPageSize": 9,
        "filter": {"version": "v2", "language": "en", "groups": ["admin"]},
        "context": [
            {"type": "code", "value": "x = 1", "path": "a.py", "elementId": "e1"},
            {"type": "textSelection", "value": "text"},
        ],
        "currentPath": "/quickstart",
        "mode": "new",
    }
    assert sent(web)["headers"]["X-Trace"] == "1"


async def test_extra_body_is_merged_last(web):
    """For fields that this version does not know, or knows wrongly; the call's over the session's."""
    web.post(ASK, body=STREAM)
    async with MintlifySession(
        domain="acme-docs", assistant_key=KEYS.assistant, extra_body={"a": 1, "b": 1}, headers={"X-A": "1"}
    ) as session:
        await session.ask("Hi", extra_body={"b": 2, "fp": "other"}, headers={"X-B": "2"})
    body = body_of(web)
    assert (body["a"], body["b"], body["fp"]) == (1, 2, "other")
    assert {name: sent(web)["headers"][name] for name in ("X-A", "X-B")} == {"X-A": "1", "X-B": "2"}


async def test_assumptions_can_be_overridden(web):
    """The get-job path and every other assumption has a field."""
    web.get("https://docs.example/v9/jobs/acme/job_1", payload={**JOB, "status": "completed"})
    async with MintlifySession(
        project_id="acme",
        admin_key=KEYS.admin,
        base_url="https://docs.example/",
        assumptions=Assumptions(get_job_path="/v9/jobs/{project_id}/{job_id}"),
    ) as session:
        assert (await session.job("job_1").refresh()).status == "completed"


@pytest.mark.parametrize(
    ("job_id", "path"),
    [
        ("a/b", "a%2Fb"),
        ("a?x=1", "a%3Fx%3D1"),
        ("a#f", "a%23f"),
        ("a b", "a%20b"),
        ("..x", "..x"),
        ("é", "%C3%A9"),
        ("a%2Fb", "a%252Fb"),
    ],
)
async def test_identifiers_cannot_leave_their_segment(mintlify_service, job_id, path):
    """What would name another path is percent-encoded, as the server's own log shows."""
    async with mintlify_service.session(project_id=job_id) as session:
        with pytest.raises(Exception, match="404"):
            await session.create_job("x")
    assert [request.path for request in mintlify_service.requests] == [f"/v2/agent/{path}/job"]


BAD_QUESTIONS = [
    ({"question": ""}, "messages"),
    ({"question": []}, "messages"),
    ({"question": 7}, "messages"),
    ({"question": [7]}, "messages[0]"),
    ({"question": [{"role": "user"}]}, "messages[0]"),
    ({"current_path": "x" * 201}, "current_path"),
    ({"current_path": 7}, "current_path"),
    ({"context": [{"type": "image", "value": "x"}]}, "context[0]"),
    ({"context": [7]}, "context[0]"),
    ({"context": "code"}, "context"),
    ({"context": {"type": "code", "value": "x"}}, "context"),
    ({"filter": 7}, "filter"),
    ({"fp": ""}, "fp"),
    ({"fp": 7}, "fp"),
    ({"thread": ""}, "thread"),
    ({"thread": 7}, "thread"),
    ({"retrieval_page_size": "5"}, "retrieval_page_size"),
    ({"retrieval_page_size": True}, "retrieval_page_size"),
    ({"retrieval_page_size": math.nan}, "retrieval_page_size"),
    ({"headers": {"Authorization": "x"}}, "headers"),
    ({"headers": {"X": "a\r\nb"}}, "headers"),
    ({"headers": {"a b": "x"}}, "headers"),
    ({"headers": {"X": "é"}}, "headers"),
    ({"extra_body": [1]}, "extra_body"),
    ({"extra_body": {"a": object()}}, "messages, filter, context or extra_body"),
    ({"extra_body": {"a": math.inf}}, "messages, filter, context or extra_body"),
    ({"domain": ""}, "domain"),
    ({"domain": ".."}, "domain"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": -1}, "timeout"),
    ({"timeout": "5"}, "timeout"),
    ({"timeouts": 5}, "timeouts"),
]


@pytest.mark.parametrize(("arguments", "field"), BAD_QUESTIONS, ids=lambda value: str(value)[:40])
async def test_a_bad_question_is_refused_before_any_request(web, session, arguments, field):
    """The error names the field; the network is not touched."""
    arguments = {"question": "Hi", **arguments}
    with pytest.raises(ConfigurationError) as caught:
        await session.ask(arguments.pop("question"), **arguments)
    assert (caught.value.field or "").startswith(field)
    assert not web.requests


@pytest.mark.parametrize("prompt", ["", None, 7, b"x", ["x"]])
async def test_a_bad_prompt_is_refused_before_any_request(web, session, prompt):
    """At least one character, and a string (interface 2.2); for both operations."""
    with pytest.raises(ConfigurationError) as created:
        await session.create_job(prompt)
    with pytest.raises(ConfigurationError) as sent_on:
        await session.job("job_1").send(prompt)
    assert created.value.field == sent_on.value.field == "prompt"
    assert not web.requests


@pytest.mark.parametrize("identifier", ["", " ", ".", "..", "a\nb", "a\x00", 7])
async def test_identifiers_that_name_nothing_are_refused(web, session, identifier):
    """Empty, dots, controls: nothing is sent."""
    with pytest.raises(ConfigurationError) as caught:
        await session.create_job("x", project_id=identifier)
    assert caught.value.field == "project_id"
    with pytest.raises(ConfigurationError):
        session.job(identifier)
    assert not web.requests


async def test_a_prompt_of_one_character_and_a_path_of_200_are_allowed(web, session):
    """The bounds themselves are inside."""
    web.post("https://api.mintlify.com/v2/agent/acme/job", payload=JOB, status=201)
    web.post(ASK, body=STREAM)
    await session.create_job("x")
    await session.ask("x", current_path="p" * 200)
    assert len(web.requests) == 2


@pytest.fixture
def bare(monkeypatch):
    """An environment without any of our variables."""
    for name in ("ADMIN_API_KEY", "ASSISTANT_API_KEY", "PROJECT_ID", "DOMAIN", "BASE_URL"):
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
    ("admin", "assistant"),
    [
        (KEYS.assistant, KEYS.admin),
        (KEYS.other_product, KEYS.other_product),
    ],
)
async def test_the_wrong_kind_of_key_is_caught_before_sending(web, admin, assistant):
    """An admin key never reaches the assistant's address, nor the other way round."""
    async with MintlifySession(
        project_id="p", domain="d", admin_key=admin, assistant_key=assistant
    ) as session:
        with pytest.raises(ConfigurationError, match="admin key") as caught:
            await session.create_job("x")
        assert caught.value.field == "admin_key"
        with pytest.raises(ConfigurationError, match="assistant key") as caught:
            await session.ask("x")
        assert caught.value.field == "assistant_key"
    assert not web.requests


async def test_the_check_of_kinds_can_be_switched_off(web):
    """Should the prefixes ever change."""
    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB)
    async with MintlifySession(project_id="p", admin_key=KEYS.assistant, check_key_kind=False) as session:
        await session.create_job("x")


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX: 1", "a\n", "ключ", "é", "\x00", 7, b"x"])
@pytest.mark.parametrize("which", ["admin_key", "assistant_key"])
def test_a_key_that_no_header_may_hold_is_refused_at_once(which, key):
    """The message does not repeat it."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(**{which: key})
    assert caught.value.field == which
    assert not isinstance(key, str) or not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize("returned", [7, "", "a\nb", None])
async def test_a_key_from_a_function_is_checked_when_it_is_used(web, returned):
    """Rotation is no way around the checks."""
    async with MintlifySession(project_id="p", admin_key=lambda: returned) as session:
        with pytest.raises(ConfigurationError) as caught:
            await session.create_job("x")
    assert caught.value.field == "admin_key"
    assert not web.requests


async def test_a_key_may_come_from_a_function_plain_or_async(web):
    """It is asked for each request, so that a key can be rotated."""
    keys = iter([KEYS.admin, KEYS.admin + "2"])

    async def rotate():
        return next(keys)

    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB, repeat=True)
    async with MintlifySession(project_id="p", admin_key=rotate) as session:
        await session.create_job("x")
        await session.create_job("x")
    seen = [sent(web, index)["headers"]["Authorization"] for index in (0, 1)]
    assert seen == [f"Bearer {KEYS.admin}", f"Bearer {KEYS.admin}2"]


@pytest.mark.parametrize(
    "url",
    [
        "api.mintlify.com",
        "ftp://x",
        "https://",
        "https://user:pw@host",
        "https://host?x=1",
        "https://host#f",
        "https://ho st",
        "https://host\r\nX: 1",
        "https://hôst",
        "https://host:notaport",
        "http://example.com",
        "http://10.0.0.1",
        7,
    ],
)
def test_a_base_url_that_keys_should_not_go_to_is_refused(url):
    """Plain http outside this machine, credentials, queries and what is no URL."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(base_url=url)
    assert caught.value.field == "base_url"


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.1:8", "http://[::1]:8", "https://x.io/a/"]
)
def test_a_base_url_may_be_https_or_this_machine(url):
    """A path prefix is kept, a trailing slash is not."""
    assert check_base_url(url, allow_insecure_http=False) == url.rstrip("/")


def test_plain_http_can_be_allowed():
    """For those who know their network."""
    assert check_base_url("http://10.0.0.1", allow_insecure_http=True) == "http://10.0.0.1"


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
        ({"headers": {"Authorization": "x"}}, "headers"),
        ({"extra_body": 3}, "extra_body"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_at_construction(arguments, field):
    """Before anything could be lost over it."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(**arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("settings", [{"connect": 0}, {"idle": -1}, {"total": True}, {"request": math.nan}])
def test_timeouts_check_their_numbers(settings):
    """A limit of nothing would end every call."""
    with pytest.raises(ConfigurationError) as caught:
        Timeouts(**settings)
    assert caught.value.field == next(iter(settings))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": "no"}', "no"),
        ('{"message": "no"}', "no"),
        ('{"error": "bad", "details": [{"message": "fp is required"}]}', "bad; fp is required"),
        ('{"error": {"message": "no"}}', "no"),
        ("<html><body>Bad gateway</body></html>", ""),
        ("plain words", "plain words"),
        ("line\nbreak\x1b[31m", "line\\nbreak\\x1b[31m"),
        ("", ""),
        ("[1]", ""),
        ("[" * 100_000, "[" * 200 + "…"),
    ],
)
def test_what_an_error_body_says_is_one_printable_line(body, words):
    """Both shapes of the service, HTML that says nothing, and what would break a log."""
    assert server_words(body) == words


async def test_an_error_answer_is_a_typed_error_that_shows_no_key(web, session):
    """Even when the server repeats the key that it was sent."""
    web.post(
        "https://api.mintlify.com/v2/agent/acme/job",
        status=401,
        payload={"error": f"bad key {KEYS.admin}"},
        headers={"X-Request-Id": "req_1", "X-Echo": KEYS.admin},
    )
    with pytest.raises(AuthenticationError) as caught:
        await session.create_job("x")
    assert caught.value.request_id == "req_1"
    assert caught.value.body == '{"error": "bad key ****"}'
    assert caught.value.headers["x-echo"] == "****"


@pytest.mark.parametrize("text", ["Hi", 'quo"te', "line\nend", "\u2028", "\ud800", "ü€😀", "\x7f\x00"])
@pytest.mark.parametrize("fp", ["anonymous", 'a"\\'])
@pytest.mark.parametrize("size", [5, 0, -1, 10**30])
def test_a_plain_question_is_written_as_it_is(text: str, fp: str, size: int) -> None:
    """Any text, user and page size are in the body as they were given."""
    message = Message.user(text, "m\n1")
    body = ask_request(Assumptions(), "acme", [message], fp=fp, retrieval_page_size=size).body
    assert body is not None
    expected = {"fp": fp, "messages": [message.to_wire()], "retrievalPageSize": size}
    assert body == json.dumps(expected, separators=(",", ":")).encode("ascii")


@pytest.mark.parametrize("size", [5, 0, -1, 10**30, 2.5, 1e299])
@pytest.mark.parametrize("fp", ["anonymous", 'a"\\', "\ud83d", "Zoë\n"])
@given(text=st.text(min_size=1) | st.text(st.characters(categories=["Cs", "Cc"]), min_size=1))
def test_a_text_alone_is_written_as_json_would(fp: str, size: float, text: str) -> None:
    """The shortcut for a plain question gives the bytes of json.dumps."""
    body = ask_request(Assumptions(), "acme", text, fp=fp, retrieval_page_size=size).body
    assert body is not None
    (sent,) = json.loads(body)["messages"]
    message = {"id": sent["id"], "role": "user", "parts": [{"type": "text", "text": text}]}
    expected = {"fp": fp, "messages": [message], "retrievalPageSize": size}
    assert body == json.dumps(expected, separators=(",", ":")).encode("ascii")


def test_a_question_with_anything_more_is_written_whole() -> None:
    """A message's metadata, state or second part, a further field or another number are all in the body."""
    part = TextPart(text="x", state="done")
    for message in (
        Message(id="1", role="user", parts=(part,)),
        Message(id="1", role="user", parts=(TextPart(text="x"), TextPart(text="y"))),
        Message(id="1", role="user", parts=(TextPart(text="x"),), metadata={"a": 1}),
        Message(id="1", role="user", parts=(TextPart(text="x"),), extra={"more": 1}),
        Message(id="1", role="user", parts=()),
    ):
        body = ask_request(Assumptions(), "acme", [message]).body
        assert body is not None
        assert json.loads(body)["messages"] == [message.to_wire()]
    body = ask_request(
        Assumptions(),
        "acme",
        [Message.user("x", "1")],
        retrieval_page_size=2.5,
        thread=Thread("t", "k"),
        extra_body={"fp": "other"},
    ).body
    assert body is not None
    assert json.loads(body) == {
        "fp": "other",
        "messages": [Message.user("x", "1").to_wire()],
        "retrievalPageSize": 2.5,
        "threadId": "t",
        "threadKey": "k",
    }


@pytest.mark.parametrize(
    "size",
    [10**5000, -(10**5000), 1e301, math.inf, True, "5"],
    ids=["huge", "-huge", "1e301", "inf", "True", "text"],
)
def test_a_page_size_that_no_json_can_hold(size: object) -> None:
    """It is refused by name, before anything is written."""
    with pytest.raises(ConfigurationError) as caught:
        ask_request(Assumptions(), "acme", [Message.user("x", "1")], retrieval_page_size=size)  # type: ignore[arg-type]
    assert caught.value.field == "retrieval_page_size"


async def test_what_wraps_aiohttp_may_add_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that a tracer adds to one request is not in the next."""
    seen: list[str | None] = []
    request = aiohttp.ClientSession._request

    async def traced(*arguments: Any, **options: Any) -> aiohttp.ClientResponse:
        headers = options["headers"]
        seen.append(headers.get("x-trace"))
        headers["x-trace"] = "first"
        return await request(*arguments, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", traced)
    async with LocalService() as service, service.session() as session:
        for _ in range(2):
            with suppress(NotFoundError):
                await session.job("j").refresh()
    assert seen == [None, None]


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
async def test_a_header_goes_out_once_however_it_is_written(borrowed: bool) -> None:
    """A user's header takes the place of ours in any case of letters; the key's and the body's are ours."""
    given = {"user-agent": "mine/1", "ACCEPT": "x/y", "accept-encoding": "br", "content-type": "text/plain"}
    heads: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        body = json.dumps(JOB).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server, AsyncExitStack() as stack:
        options: dict[str, Any] = {}
        if borrowed:
            options["client_session"] = await stack.enter_async_context(aiohttp.ClientSession())
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with MintlifySession(project_id="p", admin_key=KEYS.admin, base_url=url, **options) as session:
            await session.create_job("x", headers=given)
    lines = [line.partition(": ") for line in heads[0].decode().split("\r\n")[1:] if line]
    sent = [(name.lower(), value) for name, _, value in lines]
    assert len(sent) == len(dict(sent))
    assert {name: dict(sent)[name] for name in (*map(str.lower, given), "authorization")} == {
        "user-agent": "mine/1",
        "accept": "x/y",
        "accept-encoding": "br",
        "content-type": "application/json",
        "authorization": f"Bearer {KEYS.admin}",
    }


@pytest.mark.parametrize("blank", ["", " ", "\t"])
@pytest.mark.parametrize("how", ["argument", "variable"])
def test_a_blank_base_url_is_refused(monkeypatch: pytest.MonkeyPatch, blank: str, how: str) -> None:
    """It would mean the service's own address, and keys meant for another one would go there."""
    if how == "variable":
        monkeypatch.setenv("MINTLIFY_BASE_URL", blank)
    with pytest.raises(ConfigurationError, match="blank") as caught:
        MintlifySession(base_url=blank if how == "argument" else None)
    assert caught.value.field == "base_url"
