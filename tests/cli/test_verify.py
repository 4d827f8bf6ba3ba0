"""``doctor --verify``: each assumption that one run can show is found broken alone, and its line fixes it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from attrs import define, evolve, field

import mintlify_async
from mintlify_async import Assumptions, MintlifySession
from mintlify_async.cli import verify as verify_command
from mintlify_async.cli.verify import ANY_KEY, NAMES, Verification
from mintlify_async.testing import Customer, LocalService
from mintlify_async.testing.loop_time import virtual_time
from tests.support.command_line import run

HOP = {"connection", "content-length", "transfer-encoding", "host", "date", "server"}


@define
class Wire:
    """A request, or a response, on its way."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "GET"
    status: int = 200


ChangeRequest = Callable[[Wire], Wire]
"""Returns the request to pass on; one with a status other than 200 is the answer itself."""
ChangeAnswer = Callable[[Wire, Wire], Wire]
"""Returns the answer to give, from the request and the answer."""


@asynccontextmanager
async def changed(
    service: LocalService,
    request: ChangeRequest = lambda request: request,
    answer: ChangeAnswer = lambda request, answer: answer,
) -> AsyncIterator[str]:
    """Yield the URL of a service that answers like *service*, except for the changes."""

    def kept(headers: Mapping[str, str]) -> dict[str, str]:
        return {name.lower(): value for name, value in headers.items() if name.lower() not in HOP}

    async def handle(http: web.BaseRequest) -> web.Response:
        asked = Wire(http.path, kept(http.headers), await http.read(), http.method)
        given = request(asked)
        if given.status == 200:
            url = service.base_url + given.path
            async with client.request(given.method, url, data=given.body, headers=given.headers) as response:
                given = Wire(
                    given.path, kept(response.headers), await response.read(), status=response.status
                )
            given = answer(asked, given)
        return web.Response(status=given.status, headers=given.headers, body=given.body)

    async with aiohttp.ClientSession() as client, RawTestServer(handle) as server:
        yield str(server.make_url("")).rstrip("/")


PAGE = Path(mintlify_async.__file__).parent / "docs" / "explanation" / "assumptions.mdx"


async def verify(service: LocalService, *, with_job: bool = True, **settings: Any) -> Verification:
    """Run the verification against *service*."""

    def make() -> MintlifySession:
        return service.session(**(ANY_KEY | settings))

    keys = {"assistant": service.assistant_key, "admin": service.admin_key}
    verification = Verification(make, keys, lambda text: None)
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
        request: What happens to requests.
        answer: What happens to answers.
        options: Of the local service.
        script: What is scripted.
        fixed: Whether the line that is printed fixes the main path.
    """

    name: str
    request: ChangeRequest = lambda request: request
    answer: ChangeAnswer = lambda request, answer: answer
    options: dict[str, Any] = field(factory=dict)
    script: Callable[[LocalService], object] = lambda service: None
    fixed: bool = True


def refusal(request: Wire, status: int, **document: Any) -> Wire:
    return evolve(request, status=status, body=json.dumps(document).encode(), headers={})


def is_question(request: Wire) -> bool:
    return "/assistant/" in request.path


def renamed(names: dict[str, str]) -> ChangeAnswer:
    def answer(request: Wire, answer: Wire) -> Wire:
        return evolve(
            answer, headers={names.get(name, name): value for name, value in answer.headers.items()}
        )

    return answer


def no_anonymous(request: Wire) -> Wire:
    if is_question(request) and json.loads(request.body)["fp"] == "anonymous":
        return refusal(request, 400, error="Invalid request", details=[{"message": "fp must name a user"}])
    return request


def of_old(request: Wire) -> Wire:
    """The path of the package is the v1 endpoint."""
    if not is_question(request):
        return request
    return evolve(request, status=203, body=b'0:"text"\nd:{"finishReason":"stop"}\n', headers={})


def no_such_path(request: Wire) -> Wire:
    """Jobs are read at another path."""
    return refusal(request, 404, message="Not Found") if request.method == "GET" else request


def body_of_questions(change: Callable[[bytes], bytes]) -> ChangeAnswer:
    def answer(request: Wire, answer: Wire) -> Wire:
        changes = is_question(request) and answer.status == 200
        return evolve(answer, body=change(answer.body)) if changes else answer

    return answer


def in_another_zone(request: Wire, answer: Wire) -> Wire:
    record = json.loads(answer.body) if "/job" in request.path and answer.status < 300 else {}
    if "createdAt" not in record:
        return answer
    record["createdAt"] = "2020-01-01T05:30:00.000"
    return evolve(answer, body=json.dumps(record).encode())


def without_end(body: bytes) -> bytes:
    events = body.split(b"\n\n")
    return b"\n\n".join(one for one in events if b'"finish"' not in one and b"[DONE]" not in one) + b"\n\n"


THREAD = {"x-thread-id": "x-conversation-id", "x-thread-key": "x-conversation-key"}
OTHER_RESET = {"times": None, "status": 429, "headers": {"X-Reset-In": "2"}}


@pytest.fixture
async def quick():
    """Time jumps to the next moment at which something happens."""
    with virtual_time():
        yield


OTHER_PREFIX = Customer(assistant_key="mint_test_for_questions_0123456789")

BREACHES = [
    Breach("get-job path", no_such_path, fixed=False),
    Breach("key prefixes", options={"customers": [OTHER_PREFIX]}),
    Breach("thread headers", answer=renamed(THREAD)),
    Breach("`fp` defaults to `anonymous`", no_anonymous, fixed=False),
    Breach("request id", script=lambda service: service.script.ask(headers={"X-Amzn-RequestId": "42"})),
    Breach("reset headers", script=lambda service: service.script.create_job(**OTHER_RESET), fixed=False),
    Breach(
        "only `id` and `status` of a job are certain",
        script=lambda service: service.script.job("active", "succeeded", times=None),
        fixed=False,
    ),
    Breach("a date without a zone is UTC", answer=in_another_zone, fixed=False),
    Breach("framing", answer=body_of_questions(lambda body: body.replace(b"data: ", b"")), fixed=False),
    Breach(
        "part shapes",
        answer=body_of_questions(lambda body: body.replace(b'"delta":', b'"text":')),
        fixed=False,
    ),
    Breach("the v1 endpoint", of_old, fixed=False),
    Breach("a stream is complete", answer=body_of_questions(without_end), fixed=False),
]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.name)
async def test_what_is_broken_is_found_alone(breach):
    """A service that breaks one assumption: that row is broken, and the line that is printed fixes it."""
    async with (
        LocalService(**breach.options) as service,
        changed(service, breach.request, breach.answer) as address,
    ):
        breach.script(service)
        verification = await verify(service, base_url=address)
        assert broken(verification) == [breach.name]
        assert verification.rows[breach.name].fix
        if breach.fixed:
            line = verification.rows[breach.name].fix
            settings = eval(f"dict({line})", {"Assumptions": Assumptions})
            await main_path(service.session(base_url=address, **settings))


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
        "a job may answer 404",
    }


@pytest.mark.parametrize("location", ["http://docs.example/x", "http://[::1/", "/elsewhere", ""])
async def test_a_redirect_is_a_finding(service, location):
    """It is not followed, and the finding names its target, also one that is no URL."""

    def redirect(request: Wire) -> Wire:
        return evolve(request, status=308, headers={"location": location}, body=b"")

    async with changed(service, redirect) as address:
        verification = await verify(service, base_url=address)
    assert broken(verification) == ["base URL"]
    assert repr(location) in verification.rows["base URL"].evidence
    assert not service.requests


@pytest.mark.usefixtures("quick")
async def test_all_is_well_with_the_local_service():
    """Nothing is broken; two questions and one job are paid for."""
    async with LocalService() as service:
        verification = await verify(service)
        assert service.requests.count("create_job") == 1
        assert service.requests.count("ask") == 2
    assert broken(verification) == verification.trouble == []
    assert [name for name, row in verification.rows.items() if row.status == "held"] == [
        *("base URL", "get-job path", "key prefixes", "thread headers", "`fp` defaults to `anonymous`"),
        *("only `id` and `status` of a job are certain", "framing", "part shapes", "the v1 endpoint"),
        *("a stream is complete", "a job may answer 404"),
    ]


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
    terminal = SimpleNamespace(isatty=lambda: True, readline=lambda: said)
    monkeypatch.setattr(verify_command, "sys", SimpleNamespace(stdin=terminal))
    ended = await run("doctor", "--verify", service=service)
    assert ended.status == status, ended.err
    assert ended.err.index("about 46 credits") < ended.err.index("[y/N]")
    assert bool(service.requests) is (status == 0)


async def test_a_service_that_cannot_be_reached_is_status_1(service):
    """Nothing is said of the assumptions."""
    ended = await run("doctor", "--verify", "--yes", service=service, MINTLIFY_BASE_URL="http://127.0.0.1:9")
    assert ended.status == 1
    assert "failed: " in ended.out
    assert "broken" not in ended.out
