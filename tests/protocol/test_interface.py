"""The interface to the letter: for each field, limit and rule, what is sent, what is refused, what is read.

The names of the cases are the sections of the interface's document, which is not in this repository.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mintlify_async import ConfigurationError, Quota, Thread
from mintlify_async.model.job_record import Job, JobStatus
from tests.support.secret_guard import Keys

KEYS = Keys()
RECORD = {"id": "j", "status": "active"}
MESSAGE = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
EMOJI = "\U0001f600"


async def test_each_operation_on_the_wire(service):
    """Sections 1 and 5: the key of its kind in Authorization, and JSON where there is a body."""
    service.script.send_message(body=RECORD)
    service.script.get_job(body=RECORD, times=None)
    async with service.session() as session:
        job = session.job("j")
        await session.create_job("x")
        await job.refresh()
        await job.send("y")
        await session.ask("z")
    seen = [
        (request.method, request.path, request.headers.get("content-type")) for request in service.requests
    ]
    project, domain = service.project_id, service.domain
    json_type = "application/json"
    assert seen == [
        ("POST", f"/v2/agent/{project}/job", json_type),
        ("GET", f"/v2/agent/{project}/job/j", None),
        ("POST", f"/v2/agent/{project}/job/j/message", json_type),
        ("POST", f"/discovery/v2/assistant/{domain}/message", json_type),
    ]
    authorized = [request.headers["authorization"] for request in service.requests]
    admin, assistant = f"Bearer {service.admin_key}", f"Bearer {service.assistant_key}"
    assert authorized == [admin, admin, admin, assistant]


MESSAGES = {
    "role not shown": {**MESSAGE, "role": "x"},
    "part not shown": {**MESSAGE, "parts": [{"type": "x", "y": None}]},
    "no parts": {**MESSAGE, "parts": []},
    "no text": {**MESSAGE, "parts": [{"type": "text", "text": ""}]},
}
CONTEXTS = {
    "none": [],
    "all fields": [{"type": "code", "value": "", "path": "", "elementId": "e", "new": [None]}],
    "two": ({"type": "code", "value": "a"}, {"type": "textSelection", "value": "b"}),
}
SENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("2.3 fp, default here", {}, {"fp": "anonymous"}),
    ("2.3 fp", {"fp": "user-42"}, {"fp": "user-42"}),
    ("2.3 messages", {"question": [MESSAGE]}, {"messages": [MESSAGE]}),
    *((f"2.3 message, {name}", {"question": one}, {"messages": [one]}) for name, one in MESSAGES.items()),
    ("2.3 threadId", {"thread": "t"}, {"threadId": "t"}),
    ("2.3 threadId and its key", {"thread": Thread("t", "k")}, {"threadId": "t", "threadKey": "k"}),
    ("2.3 threadId null", {"extra_body": {"threadId": None}}, {"threadId": None}),
    ("2.3 retrievalPageSize, default", {}, {"retrievalPageSize": 5}),
    ("2.3 retrievalPageSize, a number", {"retrieval_page_size": 2.5}, {"retrievalPageSize": 2.5}),
    ("2.3 retrievalPageSize left out", {"retrieval_page_size": None}, {}),
    ("2.3 filter", {"filter": {"a": {"b": [1, None, ("c",)]}}}, {"filter": {"a": {"b": [1, None, ["c"]]}}}),
    ("2.3 filter, empty", {"filter": {}}, {"filter": {}}),
    ("2.3 filter null", {"extra_body": {"filter": None}}, {"filter": None}),
    *(
        (f"2.3 context, {name}", {"context": items}, {"context": [*items]})
        for name, items in CONTEXTS.items()
    ),
    ("2.3 currentPath, empty", {"current_path": ""}, {"currentPath": ""}),
    ("2.3 currentPath, longest", {"current_path": EMOJI * 200}, {"currentPath": EMOJI * 200}),
]


@pytest.mark.shows_secrets("the thread's key belongs in the body that is examined")
@pytest.mark.parametrize(("arguments", "sent"), [row[1:] for row in SENT], ids=[row[0] for row in SENT])
async def test_what_a_question_sends(service, arguments, sent):
    """Section 2.3: each field under its name, as it was given, and no field that was not."""
    arguments = {"question": "Hi", **arguments}
    service.script.ask(events=[{"type": "finish"}])
    async with service.session() as session:
        await session.ask(arguments.pop("question"), **arguments)
    (request,) = service.requests
    assert {name: request.json[name] for name in sent} == sent
    always = {"fp", "messages"} | ({"retrievalPageSize"} if "retrieval_page_size" not in arguments else set())
    assert set(request.json) == always | set(sent)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("2.3 fp", {"fp": ""}, "fp"),
    ("2.3 fp", {"fp": 1}, "fp"),
    ("2.3 messages, none", {"question": []}, "messages"),
    ("2.3 messages, no text", {"question": ""}, "messages"),
    ("2.3 messages", {"question": None}, "messages"),
    ("2.3 message.id", {"question": {**MESSAGE, "id": 1}}, "messages.id"),
    ("2.3 message.role", {"question": [{**MESSAGE, "role": None}]}, "messages[0].role"),
    ("2.3 message.parts", {"question": [{**MESSAGE, "parts": "Hi"}]}, "messages[0].parts"),
    ("2.3 part.type", {"question": [{**MESSAGE, "parts": [{"text": "Hi"}]}]}, "messages[0].parts[0].type"),
    ("2.3 part.text", {"question": [{**MESSAGE, "parts": [{"type": "text"}]}]}, "messages[0].parts[0].text"),
    ("2.3 threadId", {"thread": ""}, "thread"),
    ("2.3 retrievalPageSize", {"retrieval_page_size": "5"}, "retrieval_page_size"),
    ("2.3 filter", {"filter": ["a"]}, "filter"),
    ("2.3 filter", {"filter": {"groups": "admin", "new": 1}}, "filter.groups"),
    ("2.3 filter", {"filter": {"groups": ["a", 5]}}, "filter.groups[1]"),
    ("2.3 filter", {"filter": {"groups": {"admin": True}}}, "filter.groups"),
    ("2.3 filter", {"filter": {"version": 2}}, "filter.version"),
    ("2.3 context", {"context": 5}, "context"),
    ("2.3 context", {"context": {"type": "code", "value": "x"}}, "context"),
    ("2.3 context.type", {"context": [{"value": "x"}]}, "context[0].type"),
    ("2.3 context.type", {"context": [{"type": "file", "value": "x"}]}, "context[0].type"),
    ("2.3 context.value", {"context": [{"type": "code"}]}, "context[0].value"),
    ("2.3 context.path", {"context": [{"type": "code", "value": "x", "path": 1}]}, "context[0].path"),
    (
        "2.3 context.elementId",
        {"context": [{"type": "code", "value": "", "elementId": []}]},
        "context[0].elementId",
    ),
    ("2.3 currentPath", {"current_path": "p" * 201}, "current_path"),
    ("2.3 currentPath", {"current_path": b"p"}, "current_path"),
    ("4.3 domain", {"domain": ""}, "domain"),
]


@pytest.mark.parametrize(
    ("arguments", "field"), [row[1:] for row in REFUSED], ids=[f"{row[0]} {row[1]}"[:60] for row in REFUSED]
)
async def test_what_a_question_refuses(service, arguments, field):
    """Section 2.3: a required field that is missing, another type, a limit passed; nothing is sent."""
    arguments = {"question": "Hi", **arguments}
    async with service.session() as session:
        with pytest.raises(ConfigurationError) as caught:
            await session.ask(arguments.pop("question"), **arguments)
    assert caught.value.field == field
    assert not service.requests


@pytest.mark.parametrize("prompt", ["x", " ", "\n", EMOJI, "x" * 100_000])
async def test_a_prompt_is_sent_as_it_is(service, prompt):
    """Section 2.2: at least one character; no other rule and no longest one."""
    async with service.session() as session:
        job = await session.create_job(prompt)
        await job.send(prompt)
    bodies = [request.json for request in service.requests if request.method == "POST"]
    assert bodies == [{"prompt": prompt}] * 2


@pytest.mark.parametrize("name", ["id", "status", "source", "model", "prLink", "createdAt", "archivedAt"])
@pytest.mark.parametrize("content", ["text", None, "absent"])
def test_what_a_record_says(name, content):
    """Section 2.1: each field is read under its name, and may be null or absent unless it names the job."""
    wire: dict[str, Any] = {
        "id": "j",
        "status": "active",
        "source": {"repository": "r", "ref": "main"},
        "model": "m",
        "prLink": "https://example.com/1",
        "createdAt": "2026-01-02T03:04:05Z",
        "archivedAt": "2026-01-02T03:04:06+01:00",
    }
    if content != "text" and name not in ("id", "status"):
        wire[name] = content
        wire = {n: sent for n, sent in wire.items() if sent != "absent"}
    job = Job.from_wire(wire)
    assert job.to_wire() == wire
    read = {
        "id": "j",
        "status": "active",
        "model": "m",
        "prLink": "https://example.com/1",
        "createdAt": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "archivedAt": datetime(2026, 1, 2, 2, 4, 6, tzinfo=UTC),
    }
    got = {"id": job.id, "status": job.status, "model": job.model, "prLink": job.pr_link}
    got |= {"createdAt": job.created_at, "archivedAt": job.archived_at}
    assert got == {n: read[n] if wire.get(n) is not None else None for n in read}
    assert (job.source.repository, job.source.ref) == ("r", "main") if job.source else name == "source"


def test_the_statuses():
    """Section 3: four of them, of which three end a job."""
    assert {str(status): Job(id="j", status=status).done for status in JobStatus} == {
        "active": False,
        "completed": True,
        "archived": True,
        "failed": True,
    }


async def test_the_thread_comes_with_finish(service):
    """Section 6: the event ``finish`` has ``threadId``, which the next question may send back."""
    service.script.ask(events=[{"type": "start"}, {"type": "finish", "threadId": "t"}], times=None)
    async with service.session() as session:
        answer = await session.ask("x")
        await session.ask("y", thread=answer.thread)
    assert "threadId" not in service.requests[0].json
    assert service.requests[1].json["threadId"] == "t"


async def test_the_limits_of_use(service):
    """Section 8: two limits of the agent, three of the assistant, each in its window."""
    async with service.session(quota=Quota()) as session:
        left = [
            (limit.limit, limit.amount, limit.per)
            for operation in ("create_job", "send_message", "ask")
            for limit in await session.quota_left(operation)
        ]
    day = 86_400
    assert sorted(left) == [
        ("ask_per_address", 10_000, day),
        ("ask_per_key", 10_000, 31 * day),
        ("ask_per_organization", 10_000, 3600),
        ("create_job", 100, 3600),
        ("send_message", 100, 3600),
    ]
