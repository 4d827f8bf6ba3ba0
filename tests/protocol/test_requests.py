"""The four requests as they are sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async import Assumptions, ContextItem, Message, SearchFilter
from mintlify_async.protocol.requests import ask_call
from mintlify_async.settings.options import Options


async def test_assumptions_can_be_overridden(service):
    """The get-job path and every other assumption has a field."""
    assumptions = Assumptions(ask_path="/v9/ask/{domain}", get_job_path="/v9/jobs/{project_id}/{job_id}")
    async with service.session(assumptions=assumptions, project_id="acme", domain="docs") as session:
        for call in (session.ask("x").run(), session.job("job_1").refresh()):
            with pytest.raises(Exception, match="404"):
                await call
    assert [request.path for request in service.requests] == ["/v9/ask/docs", "/v9/jobs/acme/job_1"]


async def test_a_request_says_who_sends_it(service, session):
    """Our name is in the user agent."""
    await session.create_job("Fix the typos")
    assert service.requests[0].headers["user-agent"].startswith("mintlify-async/")


async def test_objects_of_ours_have_their_wire_names(service, session):
    """Messages, filters and context items; the other fields are in the cases of the interface."""
    await session.ask(
        [Message.user("Hi", id="m1")],
        filter=SearchFilter(version="v2", language="en", groups=["admin"]),
        context=[ContextItem("code", "x = 1", path="a.py", element_id="e1")],
        headers={"X-Trace": "1"},
    )
    (request,) = service.requests
    assert request.json == {
        "fp": "anonymous",
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}],
        "retrievalPageSize": 5,
        "filter": {"version": "v2", "language": "en", "groups": ["admin"]},
        "context": [{"type": "code", "value": "x = 1", "path": "a.py", "elementId": "e1"}],
    }
    assert request.headers["x-trace"] == "1"


async def test_extra_body_is_merged_last(service):
    """It replaces fields of ours, the messages included; the call's replaces the session's."""
    messages = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "theirs"}]}]
    ours = {"a": 1, "b": 1, "retrievalPageSize": 9}
    async with service.session(extra_body=ours) as session:
        await session.ask("ours", extra_body={"b": 2, "fp": "other", "messages": messages})
    expected = {"a": 1, "b": 2, "fp": "other", "retrievalPageSize": 9, "messages": messages}
    assert service.requests[0].json == expected


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


PATHS = {"a/b": "a%2Fb", "a?x=1": "a%3Fx%3D1", "a;f": "a%3Bf", "a&b": "a%26b", "..x": "..x", "é": "%C3%A9"}


@pytest.mark.parametrize(("project", "path"), [*PATHS.items(), ("a%2Fb", "a%252Fb")])
async def test_identifiers_cannot_leave_their_segment(service, session, project, path):
    """What would name another path is percent-encoded, as the server's own log shows."""
    with pytest.raises(Exception, match="404"):
        await session.create_job("x", project_id=project)
    assert [request.path for request in service.requests] == [f"/v2/agent/{path}/job"]


@given(
    fp=st.sampled_from(["anonymous", 'a"\\', "\U0001f600", "Zoë\n"]),
    size=st.sampled_from([5, 0, -1, 10**30, 2.5, 1e299]),
    text=st.text(min_size=1) | st.text(st.characters(categories=["Cc"]), min_size=1),
)
def test_a_text_alone_is_written_as_json_would(fp: str, size: float, text: str) -> None:
    """Any text, user and page size give the bytes of json.dumps."""
    body = ask_call(Options(domain="acme"), text, {"fp": fp, "retrieval_page_size": size}).body
    assert body is not None
    (sent,) = json.loads(body)["messages"]
    message = {"id": sent["id"], "role": "user", "parts": [{"type": "text", "text": text}]}
    expected = {"fp": fp, "messages": [message], "retrievalPageSize": size}
    assert sent["id"]
    assert body == json.dumps(expected, separators=(",", ":")).encode("ascii")
