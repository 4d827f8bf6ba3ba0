"""A connection that ends in the middle: what is raised, and that a paid request was sent once."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import pytest

from mintlify_async import (
    APIConnectionError,
    APITimeoutError,
    MintlifySession,
    OutcomeUnknownError,
    RetryPolicy,
    StateError,
    StreamInterruptedError,
    Timeouts,
)
from tests.support.quick_polls import QuickPolls
from tests.support.raw_server import EVENTS, RawServer, job_answer, stream_answer
from tests.support.secret_guard import Keys

MANY = 20
AT_ONCE = {"short": 20, "1 MB": 5}
PROMPTS = {"short": "x", "1 MB": "x" * 1_000_000}
CALLS = {
    "create_job": lambda session, prompt: session.create_job(prompt),
    "run_job": lambda session, prompt: session.run_job(prompt),
    "send": lambda session, prompt: session.job("job_1").send(prompt),
    "ask": lambda session, prompt: session.ask(prompt).run(),
    "conversation.ask": lambda session, prompt: session.conversation().ask(prompt).run(),
}
QUESTIONS = {"ask", "conversation.ask"}


def session_for(server, **settings):
    return MintlifySession(
        base_url=server if isinstance(server, str) else server.url,
        admin_key=Keys.admin,
        assistant_key=Keys.assistant,
        project_id="acme",
        domain="acme-docs",
        poll=QuickPolls(),
        **settings,
    )


async def answered(connection, line):
    """Answer a request completely."""
    await connection.body()
    await connection.send(stream_answer() if "/assistant/" in line else job_answer())


def losing(how, when):
    """Return the play of a server that loses the first connection of each POST, and answers the next."""

    async def play(connection, line):
        if lost and line.startswith("POST"):
            lost.pop()
            await connection.body(1000 if when == "during the request" else float("inf"))
            connection.lose(how)
        else:
            await answered(connection, line)

    lost = [None]
    return play


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("size", PROMPTS)
@pytest.mark.parametrize("name", CALLS)
async def test_lost_after_the_request(name, size, how):
    """The outcome of an agent POST is unknown; a question had no answer. Each was sent once."""
    async with RawServer(losing(how, "after the request")) as server, session_for(server) as session:
        expected = APIConnectionError if name in QUESTIONS else OutcomeUnknownError
        with pytest.raises(expected) as caught:
            await CALLS[name](session, PROMPTS[size])
        assert type(caught.value) is expected
        assert server.count("POST") == 1
        result = await CALLS[name](session, PROMPTS[size])  # the session works
        assert server.count("POST") == 2
        assert (result.text if name in QUESTIONS else result.id) in ("Press the button.", "job_1")


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("name", CALLS)
async def test_lost_during_the_request(name, how):
    """The server has read a part of it only. It may be a proxy that has passed it on."""
    async with RawServer(losing(how, "during the request")) as server, session_for(server) as session:
        expected = APIConnectionError if name in QUESTIONS else OutcomeUnknownError
        with pytest.raises(expected) as caught:
            await CALLS[name](session, PROMPTS["1 MB"])
        assert type(caught.value) is expected
        assert server.count("POST") == 1


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("size", PROMPTS)
async def test_many_at_once_are_lost(size, how):
    """Each has its own error; nothing was sent twice."""

    async def play(connection, line):
        await connection.body()
        connection.lose(how)

    async with RawServer(play) as server, session_for(server) as session:
        calls = [session.create_job(PROMPTS[size]) for _ in range(AT_ONCE[size])]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [OutcomeUnknownError] * AT_ONCE[size]
        assert server.count("POST") == AT_ONCE[size]


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_lost_in_the_middle_of_an_answer(how):
    """The error has the text that arrived, and the question is not sent again."""

    async def play(connection, line):
        await connection.body()
        data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS[:3])
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n%s\r\n" % (len(data), data)
        )
        await asyncio.sleep(0.02)  # a reset would overtake what was sent
        connection.lose(how)

    async with RawServer(play) as server, session_for(server) as session:
        calls = [session.ask("x").run() for _ in range(MANY)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [StreamInterruptedError] * MANY
        assert {error.partial.text for error in errors} == {"Press the button."}
        assert server.count("POST") == MANY


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_polls_that_are_lost(how):
    """A wait polls again, and ends with the record."""

    async def play(connection, line):
        await connection.body()
        polls.append(line)
        if len(polls) % 3:
            connection.lose(how)
        else:
            await connection.send(job_answer())

    polls = []
    async with RawServer(play) as server, session_for(server) as session:
        jobs = [session.job(f"job_{number}") for number in range(1, 2)]
        assert [(await job.wait(timeout=20)).status for job in jobs] == ["completed"]
        assert server.count("POST") == 0


# Cancelled --------------------------------------------------------------------------------------


async def stalled(connection, line):
    """Read a part of the request, and nothing more."""
    await connection.body(1000)
    await asyncio.sleep(3600)


@pytest.mark.parametrize("size", PROMPTS)
@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_in_the_middle_of_a_request(name, size):
    """Each task ends as cancelled, many at once, and nothing is sent again."""
    async with RawServer(stalled) as server, session_for(server) as session:
        calls = [asyncio.create_task(CALLS[name](session, PROMPTS[size])) for _ in range(AT_ONCE[size])]
        await server.until(AT_ONCE[size])
        for call in calls:
            call.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [True] * AT_ONCE[size]
        assert server.count("POST") == AT_ONCE[size]


@pytest.mark.parametrize("size", PROMPTS)
async def test_cancelled_while_the_connection_is_lost(size):
    """At each of forty moments, the task ends as cancelled or with the error of the lost connection."""

    async def play(connection, line):
        await connection.body()
        connection.lose("fin")

    async with RawServer(play) as server, session_for(server) as session:
        for moment in range(40):
            call = asyncio.create_task(session.create_job(PROMPTS[size]))
            await asyncio.sleep(0.0004 * moment)
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled() or type(call.exception()) is OutcomeUnknownError
        assert server.count("POST") <= 40


async def test_cancelled_in_the_middle_of_an_answer():
    """The connection is closed, so that the service stops; the session answers the next question."""
    left = []

    async def play(connection, line):
        await connection.body()
        await connection.send(stream_answer()[:-120])
        left.append(await connection.reader.read())

    async with RawServer(play) as server, session_for(server) as session:
        calls = [asyncio.create_task(session.ask("x").run()) for _ in range(MANY)]
        await server.until(MANY)
        await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [True] * MANY
        async with asyncio.timeout(20):
            while len(left) < MANY:
                await asyncio.sleep(0.001)
        server.play = answered
        assert (await session.ask("x")).text == "Press the button."


# Closed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", PROMPTS)
@pytest.mark.parametrize("name", CALLS)
async def test_the_session_is_closed_in_the_middle_of_a_request(name, size):
    """An agent POST may have reached the service, which its error says. A question is refused as closed."""
    async with RawServer(stalled) as server:
        session = session_for(server)
        calls = [asyncio.create_task(CALLS[name](session, PROMPTS[size])) for _ in range(AT_ONCE[size])]
        await server.until(AT_ONCE[size])
        async with asyncio.timeout(20):
            await session.close()
            errors = await asyncio.gather(*calls, return_exceptions=True)
        expected = StateError if name in QUESTIONS else OutcomeUnknownError
        assert [type(error) for error in errors] == [expected] * AT_ONCE[size]
        assert server.count("POST") == AT_ONCE[size]


async def test_the_session_is_closed_in_the_middle_of_waits(service, session):
    """Each of twenty waits says that the session is closed, and nothing is polled any more."""
    service.script.job("active", times=None)
    jobs = [await session.create_job("x") for _ in range(MANY)]
    waits = [asyncio.create_task(job.wait()) for job in jobs]
    await service.until(lambda service: service.requests.count("get_job") >= MANY)
    async with asyncio.timeout(20):
        await session.close()
        errors = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(error) for error in errors] == [StateError] * MANY
    polls = service.requests.count("get_job")
    await asyncio.sleep(0.1)
    assert service.requests.count("get_job") == polls


async def test_the_session_is_closed_in_the_middle_of_answers(service, session):
    """Each of twenty replies raises, and the service notices that the client has left."""
    service.script.ask(events=[*EVENTS[:3], 60.0], times=MANY)
    calls = [asyncio.create_task(session.ask("x").run()) for _ in range(MANY)]
    await service.until(lambda service: service.requests.count("ask") == MANY)
    async with asyncio.timeout(20):
        await session.close()
        errors = await asyncio.gather(*calls, return_exceptions=True)
        await service.until(lambda service: not service.answering)
    assert {type(error) for error in errors} <= {StateError, StreamInterruptedError}
    assert len(errors) == MANY


# Floods -----------------------------------------------------------------------------------------


def flood(listener):
    """Send interim responses to the first client, as fast as it takes them, until it leaves."""
    sock, _ = listener.accept()
    with sock:
        sock.recv(65536)
        try:
            while True:
                sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000)
        except OSError:
            pass


@pytest.mark.parametrize("name", ["create_job", "ask"])
async def test_a_flood_of_interim_responses_ends_with_the_limit(name):
    """Bytes that arrive without end do not move a limit of 0.3 s."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=flood, args=[listener])
        thread.start()
        limits = Timeouts(request=0.3, first_event=0.3)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with session_for(url, timeouts=limits, retry=RetryPolicy(attempts=1)) as session:
            began = time.monotonic()
            expected = APITimeoutError if name == "ask" else OutcomeUnknownError
            with pytest.raises(expected):
                await CALLS[name](session, "x")
            seconds = time.monotonic() - began
        await asyncio.to_thread(thread.join)
    assert seconds < 3
