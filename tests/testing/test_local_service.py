"""The local service as a bare HTTP client sees it: faithful to the interface, honest about what it got."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from mintlify_async import ConfigurationError, NotFoundError, StateError, Thread
from mintlify_async.testing import AnswerStyle, Customer, JobLife, Limits, LocalService, ThreadStyle
from mintlify_async.testing.virtual_clock import EPOCH

JOBS = "/v2/agent/acme/job"
ASK = "/discovery/v2/assistant/acme-docs/message"


def events(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def text_of(stream):
    return "".join(event["delta"] for event in events(stream) if event["type"] == "text-delta")


def results_of(stream):
    return next(e for e in events(stream) if e["type"] == "tool-output-available")["output"]["results"]


# Jobs


async def test_a_job_lives_and_opens_a_pull_request(client):
    """Created active, without a link; after its time completed, with one; every field of the interface."""
    status, job, _ = await client.create()
    assert status == 201
    assert job == {
        "id": "job_1",
        "status": "active",
        "source": {"repository": "acme/docs", "ref": "agent/job_1"},
        "model": "local-stand-in",
        "prLink": None,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "archivedAt": None,
    }
    await asyncio.sleep(2.9)
    assert (await client.look())[1]["status"] == "active"
    await asyncio.sleep(0.1)
    status, done = await client.look()
    assert (status, done["status"]) == (200, "completed")
    assert done["prLink"] == "https://github.com/acme/docs/pull/1"


@pytest.mark.parametrize(
    ("life", "status", "link"),
    [
        (JobLife(outcome="archived"), "archived", False),
        (JobLife(files=False), "completed", False),
        (JobLife(outcome="merging"), "merging", False),
    ],
)
async def test_lives_end_in_every_way(make, life, status, link):
    """Failed, archived, without files, or as something that no one has heard of."""
    client = await make(life=life)
    await client.create()
    await asyncio.sleep(3)
    job = (await client.look())[1]
    assert (job["status"], job["prLink"] is not None) == (status, link)
    assert (job["archivedAt"] is not None) == (status == "archived")


async def test_a_job_that_cannot_be_seen_yet(make):
    """A new job may be 404 for a moment."""
    client = await make(life=JobLife(not_found=5))
    await client.create()
    assert (await client.look())[0] == 404
    await asyncio.sleep(5)
    assert (await client.look())[0] == 200


async def test_unknown_jobs_and_paths(client):
    """404 with the service's own error shape."""
    assert await client.look("job_9") == (404, {"error": "Job not found"})
    assert (await client.call("GET", "/v2/agent/acme/jobs"))[0] == 404
    assert (await client.call("PUT", JOBS, json={}))[0] == 404


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"json": {"prompt": ""}}, "at least 1 character"),
        ({"json": {}}, "prompt is required"),
        ({"data": b"{", "headers": {"Content-Type": "application/json"}}, "JSON object"),
        ({"data": b'{"prompt": "x"}', "headers": {"Content-Type": "text/plain"}}, "Content-Type"),
    ],
)
async def test_bad_prompts(client, sent, says):
    """400 that says what is wrong, and no job."""
    status, body, _ = await client.call("POST", JOBS, **sent)
    assert status == 400
    assert says in body["error"]
    assert not client.service.jobs


# Keys


async def test_every_kind_of_key(client, service):
    """Missing, wrong, expired and of the other kind: 401. Without the scope: 403."""
    assert (await client.create(key="mint_nobody"))[0] == 401
    assert (await client.create(key=service.expired_key))[0] == 401
    assert (await client.create(key=service.assistant_key))[0] == 401
    assert (await client.ask("Hi", key=service.admin_key))[0] == 401
    status, body, _ = await client.create(key=service.read_only_key)
    assert (status, body) == (403, {"error": "The API key lacks the scope: write"})
    await client.create()
    assert (await client.look(key=service.read_only_key))[0] == 200
    async with client.http.post(service.base_url + ASK, json={}) as response:
        assert response.status == 401
        assert set(await response.json()) == {"message"}


async def test_a_key_opens_its_customers_places_only(make):
    """Projects, jobs, domains and threads of another customer are not found."""
    beta = Customer("beta", assistant_key="mint_dsc_of_beta_0123456789")
    client = await make()
    client.service.customers.append(beta)
    path = "/v2/agent/beta/job"
    refused = await client.call("POST", path, json={"prompt": "x"})
    assert refused[:2] == (404, {"error": "Project not found"})
    assert (await client.call("POST", path, beta.admin_key, json={"prompt": "x"}))[0] == 201
    assert (await client.look())[0] == 404
    refused = await client.ask("How do I wait for a job?", key=beta.assistant_key)
    assert refused[:2] == (404, {"message": "Domain not found"})
    _, _, headers = await client.ask("How do I wait for a job?")
    async with client.service.session(beta) as session:
        assert (await session.ask("How do I wait for a job?")).text
        with pytest.raises(NotFoundError, match="Thread"):
            await session.ask("And then?", thread=Thread(headers["X-Thread-Id"], headers["X-Thread-Key"]))


async def test_a_customer_without_credits(make):
    """The last credit pays for a job; then each kind of request gets a 402 with an error, and polls go on."""
    client = await make(customers=[Customer(credits=1)])
    assert (await client.create())[0] == 201
    for refused in (await client.create(), await client.send(), await client.ask("Hi")):
        assert refused[:2] == (402, {"error": "Your credits are used up"})
    assert (await client.look())[0] == 200
    client.service.customers[0].credits = None
    assert (await client.create())[0] == 201


async def test_answers_have_a_date(client):
    """That of the virtual time; a 429 and a scripted answer, too."""
    await asyncio.sleep(90)
    client.service.script.create_job(status=429)
    for _ in range(2):
        _, _, headers = await client.create()
        assert headers["Date"] == "Thu, 01 Jan 2026 00:01:30 GMT"


async def test_a_request_has_its_times(client):
    """When it came, and how long the response took."""
    await asyncio.sleep(90)
    client.service.script.create_job(delay=1.5)
    await client.create()
    (request,) = client.service.requests
    assert (request.at, request.wall, request.seconds) == (90, EPOCH + 90, 1.5)


# The assistant


async def test_an_answer_is_a_whole_stream(client):
    """Start, the search, sources, text, finish with the thread, [DONE]; and the AI SDK's headers."""
    status, stream, headers = await client.ask("How do I wait for a job?")
    assert status == 200
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["X-Vercel-AI-UI-Message-Stream"] == "v1"
    kinds = list(dict.fromkeys(event["type"] for event in events(stream)))
    assert kinds == [
        *("start", "start-step", "tool-input-start", "tool-input-delta", "tool-input-available"),
        *("tool-output-available", "finish-step", "source-url", "text-start", "text-delta", "text-end"),
        "finish",
    ]
    assert stream.endswith("data: [DONE]\n\n")
    assert events(stream)[-1] == {"type": "finish", "finishReason": "stop", "threadId": "thread_1"}
    assert headers["X-Thread-Id"] == "thread_1"
    assert "Found in 5 sections" in text_of(stream)


async def test_the_search_finds_what_fits(client):
    """As many sections as the question asks for, five by default."""
    _, stream, _ = await client.ask("When is a key refused?", retrievalPageSize=3)
    assert len(results_of(stream)) == 3
    _, stream, _ = await client.ask("job session answer key thread")
    assert len(results_of(stream)) == 5


async def test_code_blocks_stay_whole(client):
    """What is quoted has as many fences open as closed, and the code itself."""
    _, stream, _ = await client.ask("How do I create my first job?")
    assert "async def main():" in text_of(stream)
    assert text_of(stream).count("```") % 2 == 0


async def test_a_question_without_words(client):
    """Nothing found is said so, and is a whole answer."""
    _, stream, _ = await client.ask("zzzz")
    assert text_of(stream) == "The documentation says nothing about “zzzz”."
    assert results_of(stream) == []


EVERY_MISTAKE = {
    "fp": None,
    "messages": [{"role": "bot", "parts": [{"type": "text"}]}, {}],
    "threadId": 3,
    "retrievalPageSize": "5",
    "filter": {"groups": "staff"},
    "context": [{"type": "image", "value": ""}, {"type": "code"}],
    "currentPath": "x" * 201,
}
PLACES = [
    *("fp", "messages[0].id", "messages[0].role", "messages[0].parts[0].text"),
    *("messages[1].id", "messages[1].role", "messages[1].parts", "threadId", "retrievalPageSize"),
    *("filter.groups", "context[0].type", "context[1].value", "currentPath"),
]
NOT_EVEN_THEIR_TYPES = {"messages": [], "filter": "v1", "context": {}}


@pytest.mark.parametrize(
    ("body", "places"), [(EVERY_MISTAKE, PLACES), (NOT_EVEN_THEIR_TYPES, [*NOT_EVEN_THEIR_TYPES])]
)
async def test_bad_questions(client, body, places):
    """400 with details, each naming what is wrong."""
    status, answer, _ = await client.ask("Hi", **body)
    assert status == 400
    assert [detail["message"].partition(" ")[0] for detail in answer["details"]] == places


async def test_what_javascript_clients_send_is_accepted(client):
    """Further keys, null for nothing, and the parts of an earlier answer."""
    asked = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "How do I create a job?"}]}
    parts = [{"type": "step-start"}, {"type": "tool-search", "input": {}}]
    history = [asked, {"id": "2", "role": "assistant", "parts": parts}, asked | {"id": "3"}]
    status, stream, _ = await client.ask(messages=history, id="chat", threadId=None, filter=None)
    assert status == 200
    assert "you asked: “How do I create a job?”" in text_of(stream)


# Threads


async def test_a_thread_remembers(client):
    """The key comes once, in a header; with it, the next answer knows the question before."""
    _, _, first = await client.ask("How do I create a job?")
    thread = {"threadId": first["X-Thread-Id"], "threadKey": first["X-Thread-Key"]}
    status, stream, headers = await client.ask("And its limits?", **thread)
    assert (status, headers["X-Thread-Id"]) == (200, "thread_1")
    assert "Earlier in this thread you asked: “How do I create a job?”" in text_of(stream)
    assert "X-Thread-Key" not in headers
    assert client.service.threads["thread_1"].questions == ["How do I create a job?", "And its limits?"]


@pytest.mark.parametrize("body", [{}, {"threadKey": "thread_key_wrong"}, {"threadId": "thread_9"}])
async def test_a_thread_without_its_key_is_not_found(client, body):
    """No key, a wrong key and a wrong id look the same."""
    await client.ask("How do I create a job?")
    status, answer, _ = await client.ask("And?", **({"threadId": "thread_1"} | body))
    assert (status, answer) == (404, {"message": "Thread not found"})


@pytest.mark.parametrize("place", ["header", "finish", "metadata", "data"])
async def test_every_place_of_a_thread(make, place):
    """The id and the key stand where the style says, and nowhere else."""
    client = await make(answers=AnswerStyle(thread=ThreadStyle(id_in={place}, key_in={place})))
    _, stream, headers = await client.ask("Hi there job")
    finish = events(stream)[-1]
    named = {
        "header": {"threadId": headers.get("X-Thread-Id"), "threadKey": headers.get("X-Thread-Key")},
        "finish": finish,
        "metadata": finish.get("messageMetadata", {}),
        "data": next((event for event in events(stream) if event["type"] == "data-thread"), {}),
    }
    key = client.service.threads["thread_1"].key
    assert {where for where, names in named.items() if names.get("threadId")} == {place}
    assert named[place]["threadKey"] == key


async def test_threads_without_keys(make):
    """As the interface alone describes them: the id is enough."""
    client = await make(answers=AnswerStyle(thread=ThreadStyle(keys=False)))
    _, _, headers = await client.ask("How do I create a job?")
    assert "X-Thread-Key" not in headers
    assert (await client.ask("And?", threadId="thread_1"))[0] == 200


# Limits


async def test_the_agents_limits(make):
    """Creations and follow-ups have a sliding hour each, by project. Invalid ones are not counted."""
    other = Customer("other")
    client = await make(limits=Limits(create_job=2, send_message=1), customers=[Customer(), other])
    assert [(await client.create(prompt))[0] for prompt in ("", "Fix", "Fix")] == [400, 201, 201]
    assert (await client.send())[0] == 200
    await asyncio.sleep(600)
    status, body, headers = await client.create()
    assert (status, body) == (429, "Too many requests, please try again later.")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["Retry-After"] == "3000"
    assert (headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == ("2", "0")
    assert (await client.send())[0] == 429
    path = "/v2/agent/other/job"
    assert (await client.call("POST", path, other.admin_key, json={"prompt": "x"}))[0] == 201
    await asyncio.sleep(3000)
    assert (await client.create())[0] == 201


@pytest.mark.parametrize(
    ("limit", "window"),
    [("ask_per_key", 31 * 86_400), ("ask_per_organization", 3600), ("ask_per_address", 86_400)],
)
async def test_the_assistants_limits(make, limit, window):
    """The limits of a key in the longest month, of an organization in an hour, of an IP address in a day.

    Each response has the uses that are left.
    """
    client = await make(limits=Limits(**{limit: 1}))
    for expected in (200, 429):
        status, _, headers = await client.ask("job")
        assert (status, headers["X-RateLimit-Remaining"]) == (expected, "0")
        assert headers.get("Retry-After") == (str(window) if expected == 429 else None)


# What was received


async def test_everything_is_recorded(client):
    """Method, raw path, headers in lower case, body and key. A request is equal to plain tuples."""
    seen = []
    client.service.observer = seen.append
    await client.call("POST", JOBS + "?a=%2F", json={"prompt": "é"}, headers={"X-Trace": "7"})
    requests = client.service.requests
    (request,) = seen
    assert requests == seen
    assert request == ("POST", JOBS + "?a=%2F")
    assert request == ("POST", JOBS + "?a=%2F", {"prompt": "é"})
    assert request != ("GET", JOBS + "?a=%2F")
    assert (request.operation, request.headers["x-trace"], request.status) == ("create_job", "7", 201)
    assert request.key == client.service.admin_key
    assert request.params == {"project": "acme"}
    assert request.finished
    assert not request.client_left
    assert (requests.count("create_job"), requests.count(("POST", JOBS))) == (1, 0)
    assert repr(requests) == repr([("POST", JOBS + "?a=%2F", {"prompt": "é"})])
    requests.clear()
    assert requests == []


async def test_a_block_that_was_left_is_seen_at_once(service):
    """Directly after it, without another turn of the loop. The service stops answering."""
    async with service.session() as session:
        service.script.ask(text="one two three", pause=10.0)
        async with session.ask("How do I wait for a job?") as reply:
            await anext(reply)
            assert not service.requests[-1].client_left
        assert service.requests[-1].client_left
        await service.until(lambda service: not service.answering)
        assert service.now() < 10
        async with session.ask("How do I wait for a job?") as reply:  # no pause in this one
            await anext(reply.text_stream)
        assert service.requests[-1].client_left
        await session.ask("How do I wait for a job?")
        assert not service.requests[-1].client_left


async def test_the_session_of_a_service_tells_the_turns_of_its_jobs_apart(virtual):
    """However far behind its replicas are."""
    life = JobLife(seconds=100, stale=150)
    async with LocalService(life=life) as service, service.session() as session:
        job = await session.create_job("Fix the typos")
        await job.wait()
        service.life = JobLife(seconds=100, stale=150, outcome="failed")
        turn = await job.send("And the links")
        assert (await turn.wait(check=False)).status == "failed"


# Lifetime


async def test_start_and_stop():
    """Stopping breaks off what is under way and leaves nothing. It can start again, on the same port."""
    service = LocalService()
    await service.start()
    with pytest.raises(StateError):
        await service.start()
    async with aiohttp.ClientSession() as http:
        service.script.ask(delay=3600)
        call = asyncio.create_task(http.post(service.base_url + ASK))
        await service.until(lambda service: service.requests.count("ask") == 1)
        await service.stop()
        with pytest.raises(aiohttp.ClientError):
            await call
        assert service.connections == 0
        assert not service.requests[0].client_left
        stopped = service.base_url
        async with service, http.get(stopped) as response:
            assert response.status == 404


async def test_a_page_of_another_origin(make):
    """A browser's preflight is answered, and the thread's headers can be read."""
    client = await make(cors="http://localhost:5173")
    status, _, headers = await client.call("OPTIONS", ASK)
    assert (status, headers["Access-Control-Allow-Origin"]) == (204, "http://localhost:5173")
    assert "Authorization" in headers["Access-Control-Allow-Headers"]
    _, _, headers = await client.ask("job")
    assert headers["Access-Control-Allow-Origin"] == "http://localhost:5173"
    assert "X-Thread-Id" in headers["Access-Control-Expose-Headers"]


@pytest.mark.parametrize(
    ("stale", "seen"), [((0, 20), ["active", "completed"]), (20, ["completed", "completed"])]
)
async def test_replicas_that_are_behind_answer_in_turn(client, stale, seen):
    """After a follow-up every other poll, or every poll, is 20 s behind. The job has both prompts."""
    client.service.life = JobLife(seconds=1)
    await client.create()
    await asyncio.sleep(5)
    client.service.script.send_message(life=JobLife(seconds=30, stale=stale))
    assert (await client.send())[1]["status"] == seen[0]
    assert client.service.jobs["job_1"].prompts == ["Fix the typos", "And the guide"]
    looks = [(await client.look())[1]["status"] for _ in range(4)]
    assert sorted(looks[:2]) == sorted(looks[2:]) == seen
    await asyncio.sleep(25)
    assert [(await client.look())[1]["status"] for _ in range(2)] == ["active"] * 2


@pytest.mark.parametrize(
    ("make_wrong", "field"),
    [
        (lambda: LocalService(port=70_000), "port"),
        (lambda: ThreadStyle(id_in={"footer"}), "id_in"),
        (lambda: Customer(project_id=None), "project_id"),
        (lambda: Customer(domain=""), "domain"),
        (lambda: Customer(admin_key=("mint_a", "mint_b")), "admin_key"),
    ],
)
def test_wrong_settings_are_refused(make_wrong, field):
    """The error names the argument."""
    with pytest.raises(ConfigurationError) as caught:
        make_wrong()
    assert caught.value.field == field


async def test_each_response_has_a_request_id(service):
    """As the real service's: an error, a job and an answer show it."""
    async with service.session() as session:
        job = await session.create_job("Fix the typos")
        assert job.job.raw.request_id == "req_1"
        with pytest.raises(NotFoundError) as caught:
            await session.job("job_404").refresh()
        assert caught.value.request_id == "req_2"
        assert (await session.ask("Hm?")).response.request_id == "req_3"


@pytest.mark.parametrize("depth", [300, 3_000, 100_000])
@pytest.mark.parametrize("path", ["/v2/agent/acme/job", "/discovery/v2/assistant/acme-docs/message"])
async def test_json_that_is_nested_too_deep_is_a_400(service, path, depth):
    """No traceback, and the log can be read."""
    body = b'{"prompt":' + b"[" * depth + b"]" * depth + b"}"
    key = service.assistant_key if "assistant" in path else service.admin_key
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession() as client:
        response = await client.post(service.base_url + path, data=body, headers=headers)
        assert response.status == 400
    assert repr(service.requests)


def test_a_session_on_another_loop_than_its_service_says_so():
    """If the loop of the service does not run, as with a fixture of another scope, nothing would answer."""
    service = LocalService()

    async def calls() -> None:
        async with service.session() as session:
            with pytest.raises(StateError, match="another event loop"):
                await session.create_job("Fix the typos")
            with pytest.raises(StateError, match="loop_scope"):
                await session.ask("Hm?")

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(service.start())
        second.run(calls())
        first.run(service.stop())
