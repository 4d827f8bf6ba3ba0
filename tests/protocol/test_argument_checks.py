"""Bad arguments are refused by the name of the field, before anything is sent."""

from __future__ import annotations

import json
import math
from datetime import date

import pytest

from mintlify_async import (
    Answer,
    ConfigurationError,
    ContextItem,
    Message,
    MintlifySession,
    SearchFilter,
    Thread,
)
from mintlify_async.protocol.argument_checks import check_base_url
from tests.support.secret_guard import Keys
from tests.support.wire_kit import ASK, JOB, STREAM, sent

KEYS = Keys()


BAD_QUESTIONS = [
    *(({"question": question}, "messages") for question in (7, None, b"Hm?", bytearray(b"Hm?"))),
    ({"question": [7]}, "messages[0]"),
    ({"question": [{"role": "user"}]}, "messages[0].parts"),
    ({"question": [{"role": "user", "parts": [], "x": b"x"}]}, "messages[0].x"),
    ({"context": [{"type": "code", "value": ""}, {"type": "code"}]}, "context[1].value"),
    ({"context": [{"type": "code", "value": "x", "lines": {"a": b"x"}}]}, "context[0].lines.a"),
    ({"context": [ContextItem("code", "x", extra={"lines": math.nan})]}, "context[0].lines"),
    ({"context": [7]}, "context[0]"),
    ({"filter": {"since": date(2026, 1, 2)}}, "filter.since"),
    ({"filter": {"since": [1, math.inf]}}, "filter.since[1]"),
    ({"filter": {"a": {1: 2}}}, "filter.a"),
    *(
        ({"retrieval_page_size": size}, "retrieval_page_size")
        for size in (True, -(10**5000), 1e301, math.nan)
    ),
    ({"extra_body": [1]}, "extra_body"),
    ({"extra_body": {"a": object()}}, "extra_body.a"),
    ({"extra_body": {"a": math.inf}}, "extra_body.a"),
    ({"extra_body": {1: 2}}, "extra_body"),
    (
        {"question": [{"role": "user", "parts": [{"type": "data-x", "data": b"x"}]}]},
        "messages[0].parts[0].data",
    ),
    ({"domain": ".."}, "domain"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": -1}, "timeout"),
    *(({"timeout": seconds}, "timeout") for seconds in ("5", 10**400, math.nan, -math.inf)),
]


@pytest.mark.parametrize(("arguments", "field"), BAD_QUESTIONS, ids=[field for _, field in BAD_QUESTIONS])
async def test_a_bad_question_is_refused_before_any_request(web, session, arguments, field):
    """The error names the field; the network is not touched."""
    arguments = {"question": "Hi", **arguments}
    with pytest.raises(ConfigurationError) as caught:
        await session.ask(arguments.pop("question"), **arguments)
    assert caught.value.field == field
    assert not web.requests


HALF = "a\ud83d"
HALVES = [
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
    ({"context": [{"type": "code", "value": "x", "path": HALF}]}, "context[0].path"),
    ({"extra_body": {"a": [{"b": HALF}]}}, "extra_body.a[0].b"),
    ({"extra_body": {HALF: 1}}, "extra_body"),
    ({"domain": HALF}, "domain"),
]


@pytest.mark.parametrize(("arguments", "field"), HALVES, ids=[field for _, field in HALVES])
async def test_half_a_character_is_refused_with_its_place(web, session, arguments, field):
    """UTF-8 cannot express half of a surrogate pair: servers answer such a body with a 400 or a guess."""
    arguments = {"question": "Hi", **arguments}
    with pytest.raises(ConfigurationError, match="half of a surrogate pair") as caught:
        await session.ask(arguments.pop("question"), **arguments)
    assert caught.value.field == field
    assert not web.requests


async def test_both_halves_of_a_character_are_sent_as_one(web, session):
    """Text in which JSON left a pair apart is what JavaScript sends, too."""
    web.post(ASK, body=STREAM)
    await session.ask(["\ud83d\ude00 \U0001f600"], current_path="\U0001f600" * 200)
    body = json.loads(bytes(sent(web)["data"]._value))
    assert body["messages"][0]["parts"] == [{"type": "text", "text": "\U0001f600 \U0001f600"}]


@pytest.mark.parametrize("prompt", ["", None, 7, HALF])
async def test_a_bad_prompt_is_refused_before_any_request(web, session, prompt):
    """A string of at least one character (interface 2.2), without half a pair; for both operations."""
    for call in (session.create_job(prompt), session.job("job_1").send(prompt)):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.field == "prompt"
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
    """The shortest prompt and the longest path are accepted."""
    web.post("https://api.mintlify.com/v2/agent/acme/job", payload=JOB, status=201)
    web.post(ASK, body=STREAM)
    await session.create_job("x")
    await session.ask("x", current_path="p" * 200)
    assert len(web.requests) == 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        *((url, "must begin with https://") for url in ("api.mintlify.com", "ftp://x", "https://")),
        ("https://user:pw@host", "must not carry a user name"),
        *((f"https://host{end}", "must be visible ASCII") for end in ("?x=1", "#f", " st", "\r\nX: 1", "ô")),
        ("https://host:notaport", "is not a URL"),
        *((url, "is plain http") for url in ("http://example.com", "http://10.0.0.1")),
        ("https://x.io ", "begins or ends with a blank or a line break; remove it"),
        *((blank, "is blank") for blank in ("", " ")),
        ('"https://x.io"', "has quotation marks around it; leave them out"),
        ("https://api.mintlify.com/v2/", "ends with /v2, which the path of each operation has already"),
    ],
)
def test_a_base_url_that_keys_should_not_go_to_is_refused(monkeypatch, url, says):
    """The message says what is wrong, and names the variable if the URL is from there."""
    with pytest.raises(ConfigurationError, match=f"^base_url {says}"):
        MintlifySession(base_url=url)
    monkeypatch.setenv("MINTLIFY_BASE_URL", url)
    with pytest.raises(ConfigurationError, match=f"^MINTLIFY_BASE_URL: base_url {says}") as caught:
        MintlifySession()
    assert caught.value.field == "base_url"


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.1:8", "http://[::1]:8", "https://x.io/a/"]
)
def test_a_base_url_may_be_https_or_this_machine(url):
    """A path prefix is kept, a trailing slash is not."""
    assert check_base_url(url, allow_insecure_http=False) == url.rstrip("/")
    assert check_base_url("http://10.0.0.1", allow_insecure_http=True) == "http://10.0.0.1"


BAD_HEADERS = {
    "a b": "x",
    "Host": "x",
    "Expect": "100-continue",
    "Authorization": "x",
    "content-encoding": "gzip",
}


@pytest.mark.parametrize("headers", [*BAD_HEADERS.items(), ("X", "a\r\nb"), ("X", "é")], ids=repr)
async def test_headers_that_cannot_be_sent_are_refused_before_any_post(service, headers):
    """By each operation and by the session. ``Expect`` would send the headers first, before the body."""
    headers = dict([headers])
    async with service.session() as session:
        job = await session.create_job("x")
        for call in (
            lambda: session.create_job("x", headers=headers),
            lambda: job.send("x", headers=headers),
            lambda: session.ask("x", headers=headers).run(),
        ):
            with pytest.raises(ConfigurationError) as caught:
                await call()
            assert caught.value.field == "headers"
    assert [request.method for request in service.requests].count("POST") == 1
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(headers=headers)
    assert caught.value.field == "headers"


URL = "is a URL or a path; write"
SLIPS = [
    ("https://docs.acme.com/", URL),
    (" acme", "begins or ends with a blank or a line break; remove it"),
    ("acme\n", "begins or ends with a blank or a line break; remove it"),
    ("\ufeffacme", "has a character that cannot be seen; remove it"),
    ("\u00a0acme", "begins or ends with a blank or a line break; remove it"),
    ('"acme"', "has quotation marks around it; leave them out"),
    ("'acme", "has quotation marks around it; leave them out"),
    ("\u201cacme\u201d", "has quotation marks around it; leave them out"),
]


@pytest.mark.parametrize(("value", "says"), SLIPS, ids=repr)
@pytest.mark.parametrize("name", ["domain", "project_id"])
async def test_a_value_that_was_copied_badly_is_refused(web, session, monkeypatch, name, value, says):
    """In every place that takes it, before anything is sent; a variable is named."""
    places = [
        lambda: MintlifySession(**{name: value}),
        lambda: session.with_options(**{name: value}),
    ]
    if name == "domain":
        places += [lambda: session.ask("x", domain=value)]
    else:
        places += [lambda: session.job("job_1", project_id=value)]
    for place in places:
        with pytest.raises(ConfigurationError) as caught:
            place()
        assert str(caught.value).startswith(f"{name} {says}")
        assert caught.value.field == name
    variable = f"MINTLIFY_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"^{variable}: {name} {says}") as caught:
        MintlifySession()
    assert caught.value.field == name
    assert not web.requests


@pytest.mark.parametrize("domain", ["acme", "docs.acme.com", "é", "a b", "o'hara"])
async def test_a_domain_is_not_checked_against_a_pattern(web, session, domain):
    """A custom host name and names of any script are accepted."""
    assert session.with_options(domain=domain)


ID_AND_KEY = {"threadId": "thread_1", "threadKey": "k"}


@pytest.mark.parametrize(
    ("thread", "says"),
    [
        (ID_AND_KEY, "got dict"),
        (json.dumps(ID_AND_KEY), "Thread.from_json"),
        (7, "got int"),
        (" ", "got str"),
    ],
    ids=["dict", "json", "int", "blank"],
)
async def test_a_thread_in_another_form_is_refused(web, session, thread, says):
    """The JSON of a thread would be sent as its id, and shown: it holds the key."""
    for place in (session.ask, lambda _, thread: session.conversation().begin_with(thread=thread)):
        with pytest.raises(ConfigurationError, match=says) as caught:
            place("x", thread=thread)
        assert caught.value.field == "thread"


async def test_an_answer_in_place_of_its_thread_is_refused(service):
    """The message names the attribute."""
    async with service.session() as session:
        answer = await session.ask("How do I log in?")
        with pytest.raises(ConfigurationError, match=r"got Answer\. Pass answer\.thread"):
            session.ask("And by SSO?", thread=answer)


async def test_a_message_with_content_is_a_message(web, session):
    """The form of other SDKs; it is sent with one part of text."""
    web.post(ASK, body=STREAM)
    web.post(ASK, body=STREAM)
    await session.ask([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "hi"}])
    await session.ask({"id": "m1", "role": "user", "content": "hi", "parts": []})
    messages = json.loads(bytes(sent(web)["data"]._value))["messages"]
    assert [(m["role"], m["parts"]) for m in messages] == [
        ("system", [{"type": "text", "text": "Be brief"}]),
        ("user", [{"type": "text", "text": "hi"}]),
    ]
    assert json.loads(bytes(sent(web, 1)["data"]._value))["messages"] == [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    ]


ANSWER = Answer(
    message=Message(id="m", role="assistant"),
    thread=None,
    finish_reason=None,
    aborted=False,
    abort_reason=None,
    response=None,
    events_seen=0,
)


@pytest.mark.parametrize(
    ("message", "field", "says"),
    [
        ({"role": "user", "content": ""}, "messages[0].content", "must not be empty"),
        ({"role": "user", "content": None}, "messages[0].content", "must be text, not NoneType"),
        (
            {"role": "user", "content": [{"type": "text"}]},
            "messages[0].content",
            "give a list of parts as messages[0].parts",
        ),
        (5, "messages[0]", "must be text, a Message or its dict, not int"),
        (ANSWER, "messages[0]", "not Answer; pass its .message"),
        ({"role": "user"}, "messages[0].parts", 'must be a list, such as [{"type": "text", "text": "Hi"}]'),
    ],
    ids=str,
)
async def test_a_message_that_cannot_be_sent_says_how_to_write_it(web, session, message, field, says):
    """The field is named, and so is the form."""
    with pytest.raises(ConfigurationError) as caught:
        session.ask([message])
    assert caught.value.field == field
    assert says in str(caught.value)
