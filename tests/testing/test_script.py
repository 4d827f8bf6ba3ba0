"""Scripts: what the next answers are, to the byte and to the second."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from mintlify_async import (
    AssistantError,
    ConfigurationError,
    Finish,
    PaymentRequiredError,
    RateLimitError,
    TextDelta,
)
from mintlify_async.testing import (
    Answer,
    LocalService,
    Script,
)

JOBS = "/v2/agent/acme/job"
ASK = "/discovery/v2/assistant/acme-docs/message"


@pytest.fixture
async def service(virtual):
    async with LocalService() as running:
        yield running


@pytest.fixture
async def client(service):
    timeout = aiohttp.ClientTimeout(total=3600)
    async with aiohttp.ClientSession(service.base_url, timeout=timeout) as session:
        yield session


async def create(client, service):
    headers = {"Authorization": f"Bearer {service.admin_key}"}
    async with client.post(JOBS, json={"prompt": "Fix"}, headers=headers) as response:
        return response.status, await response.text(), response.headers


async def ask(client, service, text="How do I wait for a job?"):
    message = {"id": "1", "role": "user", "parts": [{"type": "text", "text": text}]}
    headers = {"Authorization": f"Bearer {service.assistant_key}"}
    body = {"fp": "anonymous", "messages": [message]}
    async with client.post(ASK, json=body, headers=headers) as response:
        return response.status, await response.text(), response.headers


async def test_an_answer_of_given_words():
    """Its text, sources and suggestions are those that were given; the rest is as always."""
    async with LocalService() as service, service.session() as session:
        chat = session.conversation()
        first = await chat.ask("How do I log in?")
        service.script.ask(
            text="Press the button.\n\n```suggestions\n(Keys)[/keys]\n(SSO)[/sso]\n```",
            sources=["/login", ("Log out", "https://docs.example/logout")],
        )
        answer = await chat.ask("And then?")
        assert answer.text == "Press the button."
        assert [(source.title, source.url) for source in answer.sources] == [
            (None, "/login"),
            ("Log out", "https://docs.example/logout"),
        ]
        assert [(one.title, one.path) for one in answer.suggestions] == [("Keys", "/keys"), ("SSO", "/sso")]
        assert answer.thread_id == first.thread_id
        assert answer.finish_reason == "stop"


async def test_words_only_and_an_error(service):
    """A text can be given alone, by position, too; an error comes after the text."""
    service.script.ask("Hello", pause=2.0)
    service.script.ask("Half of it", error="overloaded")
    service.script.ask(error="down", times=2)
    async with service.session() as session:
        answer = await session.ask("Hi")
        assert (answer.text, answer.sources, answer.suggestions) == ("Hello", [], [])
        assert service.now() > 8
        with pytest.raises(AssistantError, match="overloaded") as caught:
            await session.ask("Hi")
        assert caught.value.text == "Half of it"
        for _ in range(2):
            with pytest.raises(AssistantError, match="down"):
                await session.ask("Hi")


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("ask", {"text": "Hello", "status": 500}),
        ("ask", {"error": "no", "events": []}),
        ("ask", {"events": [], "body": "x"}),
        ("ask", {"event": []}),
        ("ask", {"status": "500"}),
        ("ask", {"times": 0}),
        ("get_job", {"status": "failed"}),
        ("job", {"status": "failed"}),
    ],
)
def test_a_slip_is_told_when_the_answer_is_scripted(operation, arguments):
    """Not by a puzzling answer in the middle of the test."""
    script = Script()
    with pytest.raises((ConfigurationError, TypeError)):
        getattr(script, operation)(**arguments)
    assert not script.rules


async def test_status_headers_and_body(client, service):
    """Exactly as given, once; then the service answers by itself."""
    service.script.create_job(status=503, headers={"Retry-After": "7"}, body="<html>")
    status, body, headers = await create(client, service)
    assert (status, body, headers["Retry-After"]) == (503, "<html>", "7")
    assert (await create(client, service))[0] == 201


async def test_a_status_alone_has_the_error_shape(client, service):
    """That of the operation's API."""
    service.script.create_job(status=500)
    service.script.ask(status=500)
    assert json.loads((await create(client, service))[1]) == {"error": "scripted status 500"}
    assert json.loads((await ask(client, service))[1]) == {"message": "scripted status 500"}


async def test_headers_alone_are_added_to_the_own_answer(client, service):
    """The service still answers by itself."""
    service.script.create_job(headers={"X-Request-Id": "req_1", "content-type": "application/x-job"})
    status, body, headers = await create(client, service)
    assert (status, json.loads(body)["id"]) == (201, "job_1")
    assert (headers["X-Request-Id"], headers["Content-Type"]) == ("req_1", "application/x-job")


async def test_fields_replace_those_of_the_own_answer(client, service):
    """The rest is the job as it is."""
    service.script.create_job(fields={"status": "queued", "new": 1})
    document = json.loads((await create(client, service))[1])
    assert (document["status"], document["new"], document["id"]) == ("queued", 1, "job_1")
    assert service.jobs["job_1"].status == "active"


async def test_exact_events(client, service):
    """Dicts and events of this package, each in an event of its own; [DONE] by choice."""
    service.script.ask(events=[{"type": "text-start", "id": "é"}, TextDelta(id="é", delta="\ud83d")])
    assert (await ask(client, service))[1] == (
        'data: {"type":"text-start","id":"é"}\n\n'
        'data: {"type":"text-delta","id":"\\u00e9","delta":"\\ud83d"}\n\n'
        "data: [DONE]\n\n"
    )
    service.script.ask(body=[Finish(thread_id="t")])
    assert (await ask(client, service))[1] == 'data: {"type":"finish","threadId":"t"}\n\n'


async def test_pauses_between_events(client, service, virtual):
    """A number between events, and the same pause between all of them."""
    service.script.ask(events=[{"type": "start"}, 30.0, {"type": "finish"}])
    await ask(client, service)
    assert virtual.now() == 30
    service.script.ask(events=[{"type": "start"}, {"type": "start-step"}, {"type": "finish"}], pause=5)
    await ask(client, service)
    assert virtual.now() == 40


async def test_exact_splits(client, service, virtual):
    """Each piece arrives by itself, though it ends inside a character."""
    service.script.ask(body=[b"data: \xc3", 2.0, b"\xa9", "\r", 1, "\n\r\n"])
    headers = {"Authorization": f"Bearer {service.assistant_key}"}
    async with client.post(ASK, json={}, headers=headers) as response:
        seen = [data async for data in response.content.iter_any()]
    assert seen == [b"data: \xc3", b"\xa9", b"\r", b"\n\r\n"]
    assert virtual.now() == 3


async def test_delay(client, service, virtual):
    """The answer is the service's own, later."""
    service.script.create_job(delay=45)
    assert (await create(client, service))[0] == 201
    assert virtual.now() == 45


async def test_answers_wait_in_line(client, service):
    """In order for each operation; one operation's answers do not hold up another's."""
    service.script.create_job(status=500)
    service.script.ask(status=404)
    service.script.create_job(status=502, times=2)
    assert (await ask(client, service))[0] == 404
    assert [(await create(client, service))[0] for _ in range(4)] == [500, 502, 502, 201]
    assert service.script.rules == []


async def test_until_told(client, service):
    """times=None goes on until the rule is stopped."""
    rule = service.script.create_job(status=500, times=None)
    assert [(await create(client, service))[0] for _ in range(3)] == [500] * 3
    rule.stop()
    assert (await create(client, service))[0] == 201
    assert rule.used == 3


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_a_429_alone_reaches_the_caller(service, operation):
    """As the service sends it: plain text, and a time that is too long to wait for."""
    getattr(service.script, operation)(status=429)
    async with service.session() as session:
        with pytest.raises(RateLimitError) as caught:
            await getattr(session, operation)("How do I wait for a job?")
    assert caught.value.retry_after == 3600
    assert caught.value.body == "Too many requests, please try again later."
    assert caught.value.headers["x-ratelimit-remaining"] == "0"
    assert service.requests.count(operation) == 1


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_a_402_alone(service, operation):
    """It has an error text, for questions, too."""
    getattr(service.script, operation)(status=402)
    async with service.session() as session:
        with pytest.raises(PaymentRequiredError) as caught:
            await getattr(session, operation)("How do I wait for a job?")
    assert "error" in caught.value.body


async def test_any_operation(client, service):
    """The next requests, whatever they are."""
    service.script.any(status=502, times=2)
    assert [(await create(client, service))[0], (await ask(client, service))[0]] == [502, 502]


async def test_answers_made_from_the_request(client, service):
    """A function sees what was sent."""
    service.script.create_job(body=lambda request: Answer(status=299, body=(request.body,)))
    assert (await create(client, service))[:2] == (299, '{"prompt": "Fix"}')


async def test_the_next_jobs_life(client, service, virtual):
    """By time, for one job; the one after it lives as usual."""
    service.script.job(seconds=60, outcome="failed")
    await create(client, service)
    await create(client, service)
    await asyncio.sleep(30)
    assert [job.status for job in service.jobs.values()] == ["active", "completed"]
    await asyncio.sleep(30)
    assert service.jobs["job_1"].status == "failed"


async def test_clearing(client, service):
    """Nothing is scripted any more."""
    service.script.any(status=500, times=None)
    service.script.clear()
    assert (await create(client, service))[0] == 201


async def test_many_streams_keep_their_order(service):
    """Each gets its own events, in order, all open at the same time."""
    opened = asyncio.Event()

    def respond(request):
        number = request.json["messages"][0]["id"]
        return Answer(body=tuple(f"{number}:{step};".encode() for step in range(20)), chunked=True)

    service.script.ask(body=respond, times=None)
    headers = {"Authorization": f"Bearer {service.assistant_key}"}
    connector = aiohttp.TCPConnector(limit=0)

    async def read(client, number):
        body = {"messages": [{"id": str(number)}]}
        async with client.post(service.base_url + ASK, json=body, headers=headers) as response:
            await opened.wait()
            return await response.text()

    async with aiohttp.ClientSession(connector=connector) as client:
        readers = [asyncio.create_task(read(client, number)) for number in range(300)]
        await service.until(lambda service: len(service.requests) == 300)
        opened.set()
        answers = await asyncio.gather(*readers)
    assert answers == ["".join(f"{number}:{step};" for step in range(20)) for number in range(300)]
