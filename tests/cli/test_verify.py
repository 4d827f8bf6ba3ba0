"""``doctor --verify``: each assumption that one run can show is found broken alone, and its line mends it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from attrs import define, field
from changed_service import ChangeAnswer, ChangeRequest, Wire, changed
from command_line import run

import mintlify_async
from mintlify_async import Assumptions, MintlifySession, PollPolicy, RetryPolicy
from mintlify_async.cli import verify as verify_command
from mintlify_async.cli.assumption_checks import NAMES
from mintlify_async.cli.verify import Verification, Watch
from mintlify_async.testing import JobLife, Keys, LocalService, VirtualClock

PAGE = Path(mintlify_async.__file__).parent / "docs" / "explanation" / "assumptions.mdx"


async def verify(service: LocalService, *, with_job: bool = True, **settings: Any):
    """Run the verification against *service*."""
    watch = Watch()

    def make(**changes: Any) -> MintlifySession:
        given = {"check_key_kind": False, "recorder": watch, **settings}
        return service.session(**(given | changes))

    keys = {"assistant": service.assistant_key, "admin": service.admin_key}
    return await Verification(make, watch, keys, lambda text: None).run(with_job=with_job)


def broken(report: Any) -> list[str]:
    return [row.name for row in report.rows.values() if row.status == "broken"]


async def main_path(session: MintlifySession) -> None:
    """Ask, ask on in the thread, run a job: what a user does."""
    async with session:
        answer = await session.ask("How do I log in?")
        assert answer.text
        again = await session.ask("And by SSO?", thread=answer.thread)
        assert "Earlier in this thread" in again.text
        assert (await session.run_job("Fix the typos", timeout=900)).status == "completed"


@define
class Breach:
    """How a service breaks one assumption.

    Args:
        name: The assumption.
        request: What happens to requests.
        answer: What happens to answers.
        options: Of the local service.
        script: What is scripted.
        mended: Whether a setting mends the main path.
    """

    name: str
    request: ChangeRequest = lambda request: request
    answer: ChangeAnswer = lambda request, answer: answer
    options: dict[str, Any] = field(factory=dict)
    script: Callable[[LocalService], object] = lambda service: None
    mended: bool = True


def refusal(request: Wire, status: int, **document: Any) -> Wire:
    return request.evolve(status=status, body=json.dumps(document).encode(), headers={})


def is_question(request: Wire) -> bool:
    return "/assistant/" in request.path


def renamed(names: dict[str, str]) -> ChangeAnswer:
    def answer(request: Wire, answer: Wire) -> Wire:
        return answer.evolve(headers={names.get(name, name): value for name, value in answer.headers.items()})

    return answer


def moved(pattern: str, to: str) -> ChangeRequest:
    """Serve at another path what the local service serves at *pattern*, and 404 there."""
    here = re.compile(to)

    def request(request: Wire) -> Wire:
        if re.fullmatch(pattern, request.path) and request.method in ("GET", "POST"):
            if request.method == "GET" or is_question(request):
                return refusal(request, 404, message="Not Found")
        elif found := here.fullmatch(request.path):
            groups = found.groupdict()
            if "domain" in groups:
                return request.evolve(path=f"/discovery/v2/assistant/{groups['domain']}/message")
            return request.evolve(path=f"/v2/agent/{groups['project']}/job/{groups['job']}")
        return request

    return request


def no_anonymous(request: Wire) -> Wire:
    if is_question(request) and json.loads(request.body)["fp"] == "anonymous":
        return refusal(request, 400, error="Invalid request", details=[{"message": "fp must name a user"}])
    return request


def with_request_id(request: Wire, answer: Wire) -> Wire:
    return answer.evolve(headers={**answer.headers, "x-amzn-requestid": "42"})


def of_old(request: Wire) -> Wire:
    """The path of the package is the v1 endpoint; the v2 one is where the interface lists it."""
    if request.path.startswith("/discovery/v2/assistant/"):
        return request.evolve(status=203, body=b'0:"text"\nd:{"finishReason":"stop"}\n', headers={})
    return moved("none", "/v2/assistant/(?P<domain>[^/]+)/message")(request)


def body_of_questions(change: Callable[[bytes], bytes]) -> ChangeAnswer:
    def answer(request: Wire, answer: Wire) -> Wire:
        changes = is_question(request) and answer.status == 200
        return answer.evolve(body=change(answer.body)) if changes else answer

    return answer


def in_another_zone(request: Wire, answer: Wire) -> Wire:
    record = json.loads(answer.body) if "/job" in request.path and answer.status < 300 else {}
    if "createdAt" not in record:
        return answer
    record["createdAt"] = "2026-01-01T05:30:00.000"  # the virtual clock begins at midnight
    return answer.evolve(body=json.dumps(record).encode())


def without_end(body: bytes) -> bytes:
    events = body.split(b"\n\n")
    return b"\n\n".join(one for one in events if b'"finish"' not in one and b"[DONE]" not in one) + b"\n\n"


THREAD = {"x-thread-id": "x-conversation-id", "x-thread-key": "x-conversation-key"}
TOLD_OTHERWISE = {"status": 429, "headers": {"X-Reset-In": "2"}}

BREACHES = [
    Breach(
        "get-job path", moved("/v2/agent/[^/]+/job/[^/]+", "/v2/agent/(?P<project>[^/]+)/jobs/(?P<job>[^/]+)")
    ),
    Breach("key prefixes", options={"keys": Keys(assistant="mint_test_for_questions_0123456789")}),
    Breach("thread headers", answer=renamed(THREAD)),
    Breach("`fp` defaults to `anonymous`", no_anonymous),
    Breach("request id", answer=with_request_id),
    Breach("reset headers", script=lambda service: service.script.create_job(**TOLD_OTHERWISE)),
    Breach(
        "only `id` and `status` of a job are certain",
        script=lambda service: service.script.job("active", "succeeded", times=None),
        mended=False,
    ),
    Breach("a date without a zone is UTC", answer=in_another_zone),
    Breach("framing", answer=body_of_questions(lambda body: body.replace(b"data: ", b"")), mended=False),
    Breach(
        "part shapes",
        answer=body_of_questions(lambda body: body.replace(b'"delta":', b'"text":')),
        mended=False,
    ),
    Breach("the v1 endpoint", of_old),
    Breach("a stream is complete", answer=body_of_questions(without_end), mended=False),
    Breach("a job may answer 404", options={"life": JobLife(seconds=100, not_found=50)}),
]


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.name)
async def test_what_is_broken_is_found_alone_and_mended(breach):
    """A service that breaks one assumption: that row is broken, and the line that is printed mends it."""
    async with (
        LocalService(clock=VirtualClock(), **breach.options) as service,
        changed(service, breach.request, breach.answer) as address,
    ):
        breach.script(service)
        report = await verify(service, base_url=address)
        assert broken(report) == [breach.name]
        assert report.trouble == []
        row = report.rows[breach.name]
        assert row.seen
        if breach.mended:
            known = {"Assumptions": Assumptions, "PollPolicy": PollPolicy, "RetryPolicy": RetryPolicy}
            settings = eval(f"dict({row.mend if '=' in row.mend else ''})", known)
            breach.script(service)
            await main_path(service.session(base_url=address, **settings))


def test_each_assumption_that_one_run_can_show_is_broken_in_a_test():
    """The others are always not seen: no run asks for what would show them."""
    shown = {"base URL", *(breach.name for breach in BREACHES)}
    assert set(NAMES) - shown == {
        "the assistant's key stays on a server",
        "a 429 without `Retry-After`",
        "a domain stands for an organization",
        "a month is at most 31 days",
        "`currentPath` counts code points",
        "a follow-up may read the first turn's end",
    }


async def test_another_address_is_found(service):
    """A redirect is not followed; the address that it names is the line."""
    away = f"{service.base_url}/x"

    def redirect(request: Wire) -> Wire:
        return request.evolve(status=308, headers={"location": away}, body=b"")

    async with changed(service, redirect) as address:
        report = await verify(service, base_url=address)
    assert broken(report) == ["base URL"]
    name, _, value = report.rows["base URL"].mend.partition("=")
    assert not service.requests
    with mock.patch.dict(os.environ, {**service.environment, name: value}):
        await main_path(MintlifySession(poll=PollPolicy(settle_seconds=0)))


async def test_all_is_well_with_the_local_service():
    """Nothing is broken; what one run cannot show is not seen; the facts say what the refusals were."""
    async with LocalService(clock=VirtualClock()) as service:
        report = await verify(service)
        assert service.requests.count("create_job") == 1
        assert service.requests.count("ask") == 4
        assert len(service.jobs) == 1
    assert report.fine
    assert [row.name for row in report.rows.values() if row.status == "held"] == [
        *("base URL", "get-job path", "key prefixes", "thread headers", "`fp` defaults to `anonymous`"),
        *("only `id` and `status` of a job are certain", "framing", "part shapes", "the v1 endpoint"),
        *("a stream is complete", "a job may answer 404"),
    ]
    assert report.facts["wrong_key_status"] == 401
    assert report.facts["wrong_thread_key_status"] == report.facts["unknown_job_status"] == 404
    stream = report.facts["stream"]
    assert stream["unknown_event_types"] == stream["unknown_fields"] == []
    assert stream["done_is_last"]
    assert stream["ended"] == "whole"


async def test_what_we_do_not_know_is_told():
    """Unknown types and fields, comments, and the times of headers and first event break nothing."""
    async with LocalService(clock=VirtualClock()) as service:
        events = [
            *({"type": "start", "trace": 1}, {"type": "heartbeat"}, {"type": "text-start", "id": "t"}),
            *({"type": "text-delta", "id": "t", "delta": "Hi", "model": "m"}, {"type": "finish"}),
        ]
        chunks = [1.5, b": hello\r\n\r\n", *(f"data: {json.dumps(one)}\r\n\r\n" for one in events)]
        service.script.ask(
            chunks=chunks, delay=2.0, headers={"X-Thread-Id": "t", "Content-Type": "text/plain"}
        )
        report = await verify(service, with_job=False)
    stream = report.facts["stream"]
    assert stream["unknown_event_types"] == ["heartbeat"]
    assert stream["unknown_fields"] == ["start.trace", "text-delta.model"]
    assert (stream["line_end"], stream["comments"], stream["done_is_last"]) == ("CRLF", 1, False)
    assert (stream["seconds_to_headers"], stream["seconds_to_first_event"]) == (2.0, 3.5)
    assert stream["content_type"] == "text/plain"
    assert broken(report) == ["thread headers"]  # the scripted thread is not the service's


def test_the_rows_are_those_of_the_page():
    """Each row of the table "What we assume" is judged, in its order."""
    rows = re.findall(r"^\| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert len(rows) == len(NAMES)
    assert [name for name, row in zip(NAMES, rows, strict=True) if name not in row] == []


# The command


async def test_the_command_prints_every_row(service, tmp_path):
    """Status 0 on the local service; the cost first; the recording plays."""
    path = tmp_path / "service.jsonl"
    ended = await run("doctor", "--verify", "--job", "--yes", "--record", str(path), service=service)
    assert ended.status == 0, ended.out + ended.err
    assert "asks 2 questions (about 46 credits) and creates a job (about 110 credits" in ended.err
    rows = ended.out.splitlines()[: len(NAMES)]
    assert all(re.match(r"(held    |not seen)  ", row) for row in rows), ended.out
    assert service.assistant_key not in ended.out + ended.err + path.read_text()
    async with LocalService(replay=path) as again:
        assert (await run("ask", "Hm?", service=again)).status == 0


async def test_the_command_prints_json(service):
    """One object: the address, a record for each assumption, the facts, what failed."""
    ended = await run("doctor", "--verify", "--yes", "--json", service=service)
    found = json.loads(ended.out)
    assert (ended.status, found["service"], found["trouble"]) == (0, service.base_url, [])
    assert {row["status"] for row in found["assumptions"]} == {"held", "not seen"}
    assert found["facts"]["stream"]["bytes"] > 1000


async def test_a_broken_assumption_is_status_1(service):
    """And its line stands below it."""
    service.script.ask(headers={"X-Amzn-RequestId": "1"})
    ended = await run("doctor", "--verify", "--yes", service=service)
    assert ended.status == 1
    assert "broken    request id: it is in x-amzn-requestid\n" in ended.out
    assert "mend it: assumptions=Assumptions(request_id_headers=('x-amzn-requestid',))" in ended.out


@pytest.mark.parametrize(
    ("arguments", "changes", "says"),
    [
        (["--verify"], {}, "nothing was sent: add --yes"),
        (["--job"], {}, "--job needs --verify"),
        (["--record", "x"], {}, "--record needs --verify"),
        (["--verify", "--yes", "--job"], {"MINTLIFY_ADMIN_API_KEY": None}, "needs a key"),
    ],
)
async def test_nothing_is_sent_without_consent(service, arguments, changes, says):
    """Status 2, and no request."""
    ended = await run("doctor", *arguments, service=service, **changes)
    assert ended.status == 2
    assert says in ended.err
    assert not service.requests


@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("yes\n", 0), ("\n", 2), ("", 2), ("no\n", 2)])
async def test_consent_can_be_typed(service, monkeypatch, said, status):
    """On a terminal, the command waits for a yes after it has said the cost."""
    terminal = SimpleNamespace(isatty=lambda: True, readline=lambda: said)
    monkeypatch.setattr(verify_command, "sys", SimpleNamespace(stdin=terminal))
    ended = await run("doctor", "--verify", service=service)
    assert ended.status == status, ended.err
    assert ended.err.index("about 46 credits") < ended.err.index("go on? [y/N]")
    assert bool(service.requests) is (status == 0)


async def test_a_service_that_cannot_be_reached_is_status_1(service):
    """Nothing is said of the assumptions."""
    ended = await run("doctor", "--verify", "--yes", service=service, MINTLIFY_BASE_URL="http://127.0.0.1:9")
    assert ended.status == 1
    assert "failed: ask: " in ended.out
    assert "broken" not in ended.out
