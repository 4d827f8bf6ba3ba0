"""``doctor --verify``: each assumption that one run can show is found broken alone, and its line fixes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from attrs import define, field

import mintlify_async
from mintlify_async import Assumptions, MintlifySession
from mintlify_async.cli import verify as verify_command
from mintlify_async.cli.verify import ANY_KEY, NAMES, Verification
from mintlify_async.testing import Customer, LocalService, Script, local_responses
from tests.support.command_line import run

PAGE = Path(mintlify_async.__file__).parent / "docs" / "explanation" / "assumptions.md"


async def verify(service: LocalService, *, with_job: bool = True) -> Verification:
    """Run the verification against *service*."""
    keys = {"assistant": service.assistant_key, "admin": service.admin_key}
    verification = Verification(lambda: service.session(**ANY_KEY), keys, lambda text: None)
    await verification.run(with_job=with_job)
    return verification


def broken(verification: Verification) -> list[str]:
    return [name for name, row in verification.rows.items() if row.status == "broken"]


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
        script: What is scripted.
        customer: Its customer.
        thread_headers: Its names for the headers of a thread.
        fixed: Whether the test applies the printed line and runs the main path with it.
    """

    name: str
    script: Callable[[Script], object] = lambda script: None
    customer: Customer = field(factory=Customer)
    thread_headers: dict[str, str] = local_responses.THREAD_HEADERS
    fixed: bool = False


THREAD = {"threadId": "X-Conversation-Id", "threadKey": "X-Conversation-Key"}
OTHER_PREFIX = Customer(assistant_key="mint_test_for_questions_0123456789")
NO_JOB = {"status": 404, "body": {"message": "Not Found"}, "times": None}
NO_USER = {"status": 400, "body": {"details": [{"message": "fp must name a user"}]}}
STATUSES = ("active", "succeeded")
IN_ANOTHER_ZONE = {"createdAt": "2026-01-01T00:30:00.000"}
RESET = {"status": 429, "headers": {"X-Reset-In": "2"}, "times": None}
OLD = {"status": 203, "body": b'0:"text"\nd:{"finishReason":"stop"}\n'}
START = {"type": "text-start", "id": "t"}
SHAPELESS = [START, {"type": "text-delta", "id": "t"}]
TWICE = {"headers": {"X-Thread-Id": "t", "X-Thread-Key": "k"}, "times": 2}

BREACHES = [
    Breach("get-job path", lambda script: script.get_job(**NO_JOB)),
    Breach("key prefixes", customer=OTHER_PREFIX, fixed=True),
    Breach("thread headers", thread_headers=THREAD, fixed=True),
    Breach("`fp` defaults to `anonymous`", lambda script: script.ask(**NO_USER)),
    Breach("request id", lambda script: script.ask(headers={"X-Amzn-RequestId": "42"}), fixed=True),
    Breach("reset headers", lambda script: script.create_job(**RESET)),
    Breach("only `id` and `status` of a job are certain", lambda script: script.job(*STATUSES, times=None)),
    Breach(
        "only `id` and `status` of a job are certain", lambda script: script.get_job(body=b"[]", times=None)
    ),
    Breach("a date without a zone is UTC", lambda script: script.create_job(fields=IN_ANOTHER_ZONE)),
    Breach("framing", lambda script: script.ask(body=[b'{"type":"start"}\n\n'])),
    Breach("part shapes", lambda script: script.ask(events=SHAPELESS, **TWICE)),
    Breach("the v1 endpoint", lambda script: script.ask(**OLD)),
    Breach("a stream has ended", lambda script: script.ask(body=[START], **TWICE)),
    Breach("a stream has ended", lambda script: (script.ask(), script.ask(body=[START]))),
]


@pytest.mark.usefixtures("virtual")
@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.name)
async def test_what_is_broken_is_found_alone(monkeypatch, breach):
    """If a service breaks one assumption, only that row is broken, and it prints a fix."""
    monkeypatch.setattr(local_responses, "THREAD_HEADERS", breach.thread_headers)
    async with LocalService(customers=[breach.customer]) as service:
        breach.script(service.script)
        verification = await verify(service)
        assert broken(verification) == [breach.name]
        line = verification.rows[breach.name].fix
        assert line
        if breach.fixed:
            settings = eval(f"dict({line})", {"Assumptions": Assumptions})
            await main_path(service.session(**settings))


def test_each_assumption_that_one_run_can_show_is_broken_in_a_test():
    """The others are never broken: no run asks for what would show them."""
    shown = {"base URL", *(breach.name for breach in BREACHES)}
    assert set(NAMES) - shown == {
        "the assistant's key stays on a server",
        "a 429 without `Retry-After`",
        "a domain stands for an organization",
        "a month is at most 31 days",
        "`currentPath` counts code points",
        "stale result",
        "the service may answer a poll with 404",
    }


@pytest.mark.parametrize("status", [300, 308])
@pytest.mark.parametrize("location", ["http://docs.example/x", "http://[::1/", "/elsewhere", ""])
async def test_a_redirect_is_a_finding(service, location, status):
    """It is not followed, and the finding names its target, also one that is no URL."""
    service.script.any(status=status, headers={"location": location}, body=b"", times=None)
    verification = await verify(service)
    assert broken(verification) == ["base URL"]
    assert repr(location) in verification.rows["base URL"].evidence
    assert len(service.requests) == 1


@pytest.mark.usefixtures("virtual")
async def test_all_is_well_with_the_local_service():
    """Nothing is broken; two questions and one job are paid for."""
    async with LocalService() as service:
        verification = await verify(service)
        assert service.requests.count("create_job") == 1
        assert [request.json["fp"] for request in service.requests.of("ask")] == ["anonymous"] * 2
    assert broken(verification) == verification.trouble == []
    assert [name for name, row in verification.rows.items() if row.status == "held"] == [
        *("base URL", "get-job path", "key prefixes", "thread headers", "`fp` defaults to `anonymous`"),
        "request id",
        *("only `id` and `status` of a job are certain", "framing", "part shapes", "the v1 endpoint"),
        *("a stream has ended", "the service may answer a poll with 404"),
    ]


@pytest.mark.usefixtures("virtual")
@pytest.mark.parametrize("created", ["soon", "", 5, None, ["2026-01-01"]])
async def test_a_date_that_cannot_be_read_is_no_finding(created):
    """Neither broken nor held, and the check goes on."""
    async with LocalService() as service:
        service.script.create_job(fields={"createdAt": created})
        verification = await verify(service)
    assert broken(verification) == verification.trouble == []
    assert verification.rows["a date without a zone is UTC"].status not in ("held", "broken")
    assert verification.rows["framing"].status == "held"


async def test_what_this_version_does_not_know_breaks_nothing():
    """Unknown types and fields of events are named."""
    async with LocalService() as service:
        events = [
            *({"type": "start", "trace": 1}, {"type": "heartbeat"}, {"type": "text-start", "id": "t"}),
            *({"type": "text-delta", "id": "t", "delta": "Hi", "model": "m"}, {"type": "finish"}),
        ]
        service.script.ask(events=events)
        verification = await verify(service, with_job=False)
    assert verification.unknown == {"heartbeat", "start.trace", "text-delta.model"}


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
    assert "46 credits" in ended.err
    assert "110 credits" in ended.err
    rows = ended.out.splitlines()
    assert len(rows) == len(NAMES)
    assert all(re.match(r"(held    |not seen)  ", row) for row in rows), ended.out
    assert service.assistant_key not in ended.out + ended.err + path.read_text()
    async with LocalService() as again:
        again.replay(path)
        assert (await run("ask", "Hm?", service=again)).status == 0


async def test_a_broken_assumption_is_status_1(service):
    """And its line stands below it."""
    service.script.ask(headers={"X-Amzn-RequestId": "1"})
    ended = await run("doctor", "--verify", "--yes", service=service)
    assert ended.status == 1
    assert "broken    request id: " in ended.out
    assert "assumptions=Assumptions(request_id_headers=('x-amzn-requestid',))" in ended.out


@pytest.mark.parametrize(
    ("arguments", "changes", "says"),
    [
        (["--verify"], {}, "--yes"),
        (["--job"], {}, "--verify"),
        (["--record", "x"], {}, "--verify"),
        (["--verify", "--yes", "--job"], {"MINTLIFY_ADMIN_API_KEY": None}, "doctor"),
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
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(verify_command, "sys", SimpleNamespace(stdin=terminal))
    ended = await run("doctor", "--verify", service=service, stdin=said)
    assert ended.status == status, ended.err
    assert ended.err.index("about 46 credits") < ended.err.index("[y/N]")
    assert bool(service.requests) is (status == 0)


async def test_a_service_that_cannot_be_reached_is_status_1(service):
    """Nothing is said of the assumptions."""
    ended = await run("doctor", "--verify", "--yes", service=service, MINTLIFY_BASE_URL="http://127.0.0.1:9")
    assert ended.status == 1
    assert "failed: " in ended.out
    assert "broken" not in ended.out
