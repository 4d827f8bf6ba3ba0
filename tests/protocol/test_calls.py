"""The four requests as they are sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async import ContextItem, Message, MintlifySession, SearchFilter, Thread
from mintlify_async.protocol.calls import CallDefaults, ask_call
from tests.support.secret_guard import Keys
from tests.support.wire_kit import ASK, JOB, STREAM, sent

KEYS = Keys()
ACME = CallDefaults(domain="acme")


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
    """extra_body replaces fields of ours; the call's replaces the session's."""
    web.post(ASK, body=STREAM)
    async with MintlifySession(
        domain="acme-docs", assistant_key=KEYS.assistant, extra_body={"a": 1, "b": 1}, headers={"X-A": "1"}
    ) as session:
        await session.ask("Hi", extra_body={"b": 2, "fp": "other"}, headers={"X-B": "2"})
    body = body_of(web)
    assert (body["a"], body["b"], body["fp"]) == (1, 2, "other")
    assert {name: sent(web)["headers"][name] for name in ("X-A", "X-B")} == {"X-A": "1", "X-B": "2"}


@pytest.mark.parametrize("where", ["session", "call", "with_options"])
async def test_a_page_size_of_none_is_not_sent(service, where):
    """None leaves the field out, so that the service's own default counts."""
    given = {"retrieval_page_size": None}
    async with service.session(**(given if where == "session" else {})) as session:
        asked = session.with_options(**given) if where == "with_options" else session
        await asked.ask("x", **(given if where == "call" else {}))
        await asked.conversation().ask("y", **(given if where == "call" else {}))
        await asked.ask("z", retrieval_page_size=7)
    sizes = [request.json.get("retrievalPageSize", "absent") for request in service.requests]
    assert sizes == ["absent", "absent", 7]


async def test_extra_body_replaces_the_messages(service):
    """What replaces our messages is sent as it was given."""
    messages = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "theirs"}]}]
    async with service.session() as session:
        await session.ask("ours", extra_body={"messages": messages})
        await session.ask("ours", extra_body={"retrievalPageSize": 9, "fp": "f"})
    assert service.requests[0].json["messages"] == messages
    body = service.requests[1].json
    assert (body["retrievalPageSize"], body["fp"], body["messages"][0]["parts"][0]["text"]) == (
        9,
        "f",
        "ours",
    )


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


@given(
    fp=st.sampled_from(["anonymous", 'a"\\', "\U0001f600", "Zoë\n"]),
    size=st.sampled_from([5, 0, -1, 10**30, 2.5, 1e299]),
    text=st.text(min_size=1) | st.text(st.characters(categories=["Cc"]), min_size=1),
)
def test_a_text_alone_is_written_as_json_would(fp: str, size: float, text: str) -> None:
    """Any text, user and page size give the bytes of json.dumps."""
    body = ask_call(ACME, text, {"fp": fp, "retrieval_page_size": size}).body
    assert body is not None
    (sent,) = json.loads(body)["messages"]
    message = {"id": sent["id"], "role": "user", "parts": [{"type": "text", "text": text}]}
    expected = {"fp": fp, "messages": [message], "retrievalPageSize": size}
    assert body == json.dumps(expected, separators=(",", ":")).encode("ascii")


async def test_a_header_is_the_same_whatever_its_case(service):
    """Header names compare without case: the call's replace the session's; the content type is ours."""
    async with service.session(headers={"X-A": "session", "user-agent": "mine"}) as session:
        await session.create_job("x", headers={"x-a": "call", "ACCEPT": "*/*"})
    sent = service.requests[0].headers
    expected = {"x-a": "call", "user-agent": "mine", "content-type": "application/json", "accept": "*/*"}
    assert {name: sent[name] for name in expected} == expected
