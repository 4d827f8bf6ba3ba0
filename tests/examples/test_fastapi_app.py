"""The FastAPI example on a real server: statuses, what is logged, and what reaches the service."""

from __future__ import annotations

import asyncio
import json

import fastapi_app
import pytest

from mintlify_async import Quota
from mintlify_async.testing import Cut, JobLife, LocalService
from tests.support.relay_kit import serving, until

httpx = pytest.importorskip("httpx", reason="httpx is not installed")

pytestmark = pytest.mark.real

SPEND = {"Idempotency-Key": "order-1"}


@pytest.fixture
async def service():
    async with LocalService(life=JobLife(looks=["active", "completed"])) as service:
        yield service


@pytest.fixture
async def client(service, bare, tmp_path):
    bare.chdir(tmp_path)
    for name, value in service.environment.items():
        bare.setenv(name, value)
    async with serving(fastapi_app.app) as url, httpx.AsyncClient(base_url=url) as client:
        yield client


async def test_an_answer_is_streamed(client, service):
    """The text arrives as it is sent, also through nginx, which reads a header."""
    service.script.ask(text="Press the button.", pause=0.1)
    async with client.stream("GET", "/ask", params={"q": "How do I log in?"}) as answer:
        pieces = [piece async for piece in answer.aiter_text()]
    assert (answer.status_code, "".join(pieces)) == (200, "Press the button.")
    assert len(pieces) > 1
    assert answer.headers["x-accel-buffering"] == "no"


async def test_a_job_is_created_once_and_looked_at(client, service):
    """The key of a request that is repeated names the same job."""
    for _ in range(2):
        created = await client.post("/jobs", json={"prompt": "Fix the typos"}, headers=SPEND)
        assert (created.status_code, created.json()) == (202, {"id": "job_1"})
    assert (await client.get("/jobs/job_1")).json()["status"] == "active"
    assert service.requests.count("create_job") == 1


@pytest.mark.parametrize(
    ("path", "arguments", "says"),
    [
        ("/jobs", {"json": {"prompt": ""}, "headers": SPEND}, "prompt is empty"),
        ("/jobs", {"json": {"prompt": "x"}}, "Idempotency-Key"),
        ("/jobs", {"json": {"prompt": "x"}, "headers": {"Idempotency-Key": "k" * 600}}, "dedupe_key"),
        ("/ask", {"params": {"q": ""}}, "question"),
    ],
)
async def test_the_callers_own_fault_is_422(client, service, caplog, path, arguments, says):
    """The answer says what is wrong with it; nothing was sent, and nothing is logged as an error."""
    refused = await client.request("POST" if path == "/jobs" else "GET", path, **arguments)
    assert (refused.status_code, says in refused.text) == (422, True), refused.text
    assert not service.requests
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("answer", "status", "logged"),
    [
        ({"status": 401}, 502, "AuthenticationError: ask: 401"),
        ({"status": 404}, 502, "NotFoundError: ask: 404"),
        ({"status": 400}, 502, "BadRequestError: ask: 400"),
        ({"status": 429, "headers": {"Retry-After": "86400"}}, 503, "RateLimitError: ask: 429"),
    ],
)
async def test_trouble_of_our_own_is_logged_and_not_told(client, service, caplog, answer, status, logged):
    """The caller learns that it is not their fault, and when to come back; the log has the cause."""
    service.script.ask(**answer)
    refused = await client.get("/ask", params={"q": "Hm?"})
    assert refused.status_code == status
    assert refused.headers.get("Retry-After") == answer.get("headers", {}).get("Retry-After")
    assert [record.message for record in caplog.records if logged in record.message]
    assert logged not in refused.text


async def test_the_share_of_a_user_is_429_and_the_limits_of_all_are_503(client, service, caplog, bare):
    """A user learns when to ask again, and the others still ask. It is no error of the app."""
    for _ in range(fastapi_app.SHARE.amount):
        assert (await client.get("/ask", params={"q": "Hm?"})).status_code == 200
    refused = await client.get("/ask", params={"q": "Hm?"})
    assert (refused.status_code, refused.json()) == (429, {"error": "you have asked too many questions"})
    assert 3000 < int(refused.headers["Retry-After"]) <= 3600
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert service.requests.count("ask") == fastapi_app.SHARE.amount
    bare.setitem(fastapi_app.app.dependency_overrides, fastapi_app.the_user, lambda: "bob")
    assert (await client.get("/ask", params={"q": "Hm?"})).status_code == 200
    assert json.loads(service.requests[-1].body)["fp"] == "bob"
    session = fastapi_app.app.state.session
    async with session.with_options(quota=Quota(ask_per_key=1)) as fastapi_app.app.state.session:
        statuses = [(await client.get("/ask", params={"q": "Hm?"})).status_code for _ in range(2)]
    fastapi_app.app.state.session = session
    assert statuses == [200, 503]


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "Press the button and wait.", "fault": Cut(at=-60)},
        {"body": "<html>not here</html>"},
        {"error": "overloaded"},
        {"events": [{"type": "start"}, {"type": "abort", "reason": "busy"}]},
    ],
)
async def test_an_answer_that_breaks_off_says_so(client, service, caplog, answer):
    """It never looks like a finished one, whatever the reason; the log has it."""
    service.script.ask(**answer)
    assert (await client.get("/ask", params={"q": "Hm?"})).text.endswith("\n[the answer was interrupted]\n")
    assert [record.message for record in caplog.records if "an answer was interrupted" in record.message]


@pytest.mark.parametrize(
    "answer",
    [{"events": [{"type": "start"}, 3600.0]}, {"text": "word " * 2000, "pause": 0.05}],
    ids=["before the first word", "in the middle"],
)
async def test_a_reader_who_leaves_ends_the_answer(client, service, answer):
    """The connection to the service is closed, too: it stops to generate."""

    async def read():
        async with client.stream("GET", "/ask", params={"q": "Hm?"}) as answer:
            await anext(answer.aiter_text())

    service.script.ask(**answer)
    reading = asyncio.create_task(read())
    await until(lambda: service.requests)
    if "text" in answer:
        await reading
    reading.cancel()
    await asyncio.wait([reading])
    await until(lambda: service.requests[0].client_left)
