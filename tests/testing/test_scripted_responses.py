"""Scripts: what the next answers are, to the byte and to the second."""

from __future__ import annotations

import asyncio

import pytest

from mintlify_async import (
    AssistantError,
    ConfigurationError,
    Finish,
    PaymentRequiredError,
    RateLimitError,
    TextDelta,
)
from mintlify_async.testing import Answer, JobLife, Script

ASK = "/discovery/v2/assistant/acme-docs/message"


async def test_an_answer_of_given_words(service):
    """Its text, sources and suggestions are those that were given; the rest is as always."""
    async with service.session() as session:
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
        for text, error in (("Half of it", "overloaded"), ("", "down"), ("", "down")):
            with pytest.raises(AssistantError, match=error) as caught:
                await session.ask("Hi")
            assert caught.value.text == text


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("ask", {"text": "Hello", "status": 500}),
        ("ask", {"error": "no", "events": []}),
        ("ask", {"events": [], "body": "x"}),
        ("ask", {"status": "500"}),
        ("ask", {"times": 0}),
        ("get_job", {"status": "failed"}),
    ],
)
def test_a_slip_is_told_when_the_answer_is_scripted(operation, arguments):
    """Not by a puzzling answer in the middle of the test."""
    script = Script()
    with pytest.raises(ConfigurationError):
        getattr(script, operation)(**arguments)
    assert not script.rules


OWN = {"id": "job_1", "status": "active"}


def echo(request):
    return Answer(status=299, body=(request.body,))


@pytest.mark.parametrize(
    ("scripted", "status", "body"),
    [
        ({"status": 503, "headers": {"Retry-After": "7"}, "body": "<html>"}, 503, "<html>"),
        ({"status": 500}, 500, {"error": "scripted status 500"}),
        ({"headers": {"X-Request-Id": "req_1", "content-type": "application/x-job"}}, 201, OWN),
        ({"fields": {"status": "queued", "new": 1}}, 201, OWN | {"status": "queued", "new": 1}),
        ({"delay": 45}, 201, OWN),
        ({"body": echo}, 299, {"prompt": "Fix the typos"}),
    ],
)
async def test_one_answer_is_as_scripted(client, service, scripted, status, body):
    """What is given replaces that of the service's own answer, once; then the service answers by itself."""
    service.script.create_job(**scripted)
    got, document, headers = await client.create()
    assert got == status
    assert ({name: document[name] for name in body} if isinstance(body, dict) else document) == body
    assert all(headers.getall(name) == [text] for name, text in scripted.get("headers", {}).items())
    assert service.now() == scripted.get("delay", 0)
    status, document, _ = await client.create()
    assert (status, document["status"]) == (201, "active")
    assert service.jobs["job_1"].status != "queued"


async def test_exact_events(client, service):
    """Dicts and events of this package, each in an event of its own; [DONE] by choice."""
    service.script.ask(events=[{"type": "text-start", "id": "é"}, TextDelta(id="é", delta="\ud83d")])
    assert (await client.ask("Hi"))[1] == (
        'data: {"type":"text-start","id":"é"}\n\n'
        'data: {"type":"text-delta","id":"\\u00e9","delta":"\\ud83d"}\n\n'
        "data: [DONE]\n\n"
    )
    service.script.ask(body=[Finish(thread_id="t")])
    assert (await client.ask("Hi"))[1] == 'data: {"type":"finish","threadId":"t"}\n\n'


async def test_pauses_between_events(client, service):
    """A number between events, and the same pause between all of them."""
    service.script.ask(events=[{"type": "start"}, 30.0, {"type": "finish"}])
    await client.ask("Hi")
    assert service.now() == 30
    service.script.ask(events=[{"type": "start"}, {"type": "start-step"}, {"type": "finish"}], pause=5)
    await client.ask("Hi")
    assert service.now() == 40


async def test_exact_splits(client, service):
    """Each piece arrives by itself, though it ends inside a character."""
    service.script.ask(body=[b"data: \xc3", 2.0, b"\xa9", "\r", 1, "\n\r\n"])
    async with client.request("POST", ASK, service.assistant_key, json={}) as response:
        seen = [data async for data in response.content.iter_any()]
    assert seen == [b"data: \xc3", b"\xa9", b"\r", b"\n\r\n"]
    assert service.now() == 3


async def test_answers_wait_in_line(client, service):
    """In order for each operation; one operation's answers do not hold up another's."""
    service.script.create_job(status=500)
    service.script.ask(status=404)
    service.script.create_job(status=502, times=2)
    assert (await client.ask("Hi"))[:2] == (404, {"message": "scripted status 404"})
    assert [(await client.create())[0] for _ in range(4)] == [500, 502, 502, 201]
    assert service.script.rules == []


async def test_until_told(client, service):
    """times=None goes on until the rule is stopped, or all are cleared. It can answer any operation."""
    rule = service.script.any(status=502, times=None)
    assert [(await client.create())[0], (await client.ask("Hi"))[0], (await client.create())[0]] == [502] * 3
    rule.stop()
    assert (await client.create())[0] == 201
    assert rule.used == 3
    service.script.create_job(status=500, times=None)
    service.script.clear()
    assert (await client.create())[0] == 201


@pytest.mark.parametrize("operation", ["create_job", "ask"])
async def test_a_429_alone_and_a_402_alone_reach_the_caller(service, operation):
    """As the service sends them: text and a time that is too long to wait for, and an error text."""
    getattr(service.script, operation)(status=429)
    getattr(service.script, operation)(status=402)
    async with service.session() as session:
        with pytest.raises(RateLimitError, match="Too many requests, please try again later") as limited:
            await getattr(session, operation)("Hm?")
        with pytest.raises(PaymentRequiredError, match="scripted") as unpaid:
            await getattr(session, operation)("Hm?")
    assert (limited.value.retry_after, limited.value.headers["x-ratelimit-remaining"]) == (3600, "0")
    assert "error" in unpaid.value.body
    assert service.requests.count(operation) == 2


async def test_the_next_jobs_life(client, service):
    """By time, or by looks, the last of which stays; for one job. The one after them lives as usual."""
    service.script.job(seconds=60, outcome="failed")
    service.script.job("active", "queued", "failed")
    for _ in range(3):
        await client.create()
    looks = [(await client.look("job_2"))[1]["status"] for _ in range(4)]
    assert looks == ["active", "queued", "failed", "failed"]
    await asyncio.sleep(30)
    assert [service.jobs[name].status for name in ("job_1", "job_3")] == ["active", "completed"]
    await asyncio.sleep(30)
    assert service.jobs["job_1"].status == "failed"


async def test_many_streams_keep_their_order(client, service):
    """Each gets its own events, in order, all open at the same time."""
    opened = asyncio.Event()

    def respond(request):
        number = request.json["messages"][0]["id"]
        return Answer(body=tuple(f"{number}:{step};".encode() for step in range(20)), chunked=True)

    service.script.ask(body=respond, times=None)

    async def read(number):
        body = {"messages": [{"id": str(number)}]}
        async with client.request("POST", ASK, service.assistant_key, json=body) as response:
            await opened.wait()
            return await response.text()

    readers = [asyncio.create_task(read(number)) for number in range(300)]
    await service.until(lambda service: len(service.requests) == 300)
    opened.set()
    answers = await asyncio.gather(*readers)
    assert answers == ["".join(f"{number}:{step};" for step in range(20)) for number in range(300)]


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("create_job", {"pause": 40}),
        ("create_job", {"events": []}),
        ("create_job", {"text": "Hello"}),
        ("create_job", {"status": 503, "fields": {"id": "x"}}),
        ("create_job", {"body": "x", "life": JobLife()}),
        ("send_message", {"content": None}),
        ("get_job", {"life": JobLife()}),
        ("any", {"fields": {}}),
        ("ask", {"fields": {}}),
        ("ask", {"pause": 2.0, "status": 500}),
        ("ask", {"pause": 2.0, "body": ["x", "y"]}),
        ("ask", {"body": lambda request: Answer(), "status": 500}),
        ("any", {"body": lambda request: Answer(), "headers": {"a": "b"}}),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(operation, options):
    """A test with it would be right for the wrong reason. The error says what the method takes."""
    script = Script()
    with pytest.raises(ConfigurationError) as caught:
        getattr(script, operation)(**options)
    assert not script.rules
    assert caught.value.field in options
