"""The service as a process: a ready line, a log, a clean stop; the published JavaScript client against it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager

import aiohttp
import node_client
import pytest

from mintlify_async import ConfigurationError, MintlifySession
from mintlify_async.testing import Keys, LocalService, serve

KEYS = Keys()
QUESTIONS = ("How do I wait for a job?", "And with a timeout?")

pytestmark = pytest.mark.shows_secrets("serve tells the local service's keys on purpose")


@asynccontextmanager
async def served(*arguments):
    """Run ``serve`` as a process; give its address; stop it, and keep what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mintlify_async", "serve", "--port", "0", *arguments),
        env={name: value for name, value in os.environ.items() if not name.startswith("MINTLIFY_")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        line = (await process.stdout.readline()).decode()
        match = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", line)
        if match is None:
            raise AssertionError(f"no ready line: {line!r} {(await process.stderr.read()).decode()}")
        yield match[1], process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def test_ready_line_log_and_clean_stop():
    """One line on standard output; requests on standard error, no key among them; SIGTERM ends it with 0."""
    async with served() as (address, process):
        url = f"{address}/v2/agent/acme/job"
        key = {"Authorization": f"Bearer {KEYS.admin}"}
        call = {"url": url, "json": {"prompt": "A secret prompt"}, "headers": key}
        async with aiohttp.ClientSession() as client, client.post(**call) as response:
            assert response.status == 201
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert process.returncode == 0
    assert out == b""
    log = err.decode()
    assert re.search(r"\d\d:\d\d:\d\d POST /v2/agent/acme/job -> 201 \(create_job, 0\.\d{3} s\)", log)
    assert re.search(r"serving \d+ pages from \S+/mintlify_async/docs\n", log)
    assert log.endswith("stopping\nstopped after 1 requests\n")
    assert "secret prompt" not in log


async def test_a_test_in_another_language_looks_inside():
    """What was received and what jobs did, scripts, and a fresh start: over HTTP, without a key."""
    async with served() as (address, _), aiohttp.ClientSession(address) as client:

        async def call(method, path, **kwargs):
            async with client.request(method, path, **kwargs) as response:
                return response.status, await response.json() if response.status != 204 else None

        key = {"Authorization": f"Bearer {KEYS.admin}"}
        job = {"prompt": "Say what the thread key is"}
        answers = [{"operation": "create_job", "status": 429}, {"operation": "any", "status": 500}]
        assert await call("POST", "/_local/script", json={"answers": answers}) == (200, {"queued": 2})
        assert [(await call("POST", "/v2/agent/acme/job", json=job, headers=key))[0] for _ in range(3)] == [
            429,
            500,
            201,
        ]
        wrong = {"answers": [*answers, {"operation": "dance"}]}
        status, said = await call("POST", "/_local/script", json=wrong)
        assert (status, "answers[2].operation" in said["error"]) == (400, True)
        status, seen = await call("GET", "/_local/requests")
        assert [(one["operation"], one["status"], one["json"]) for one in seen] == [
            ("create_job", 429, job),
            ("create_job", 500, job),
            ("create_job", 201, job),
        ]
        assert KEYS.admin not in json.dumps(seen)
        status, (one,) = await call("GET", "/_local/jobs")
        assert (one["prompts"], one["diff"][:5]) == ([job["prompt"]], "--- a")
        assert await call("DELETE", "/_local") == (204, None)
        assert await call("GET", "/_local/requests") == (200, [])
        assert (await call("GET", "/_local/nothing"))[0] == 404


async def test_it_stops_in_the_middle_of_an_answer(tmp_path):
    """An answer that never ends does not hold it up."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"answers": [{"operation": "ask", "chunks": ["data: ", 3600, "x"]}]}))
    async with served("--script", str(script)) as (address, process):
        url = f"{address}/discovery/v2/assistant/acme-docs/message"
        async with aiohttp.ClientSession() as client, client.post(url, json={}) as response:
            assert await response.content.readany() == b"data: "
            process.send_signal(signal.SIGTERM)
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()
        await process.communicate()
    assert process.returncode == 0


async def test_a_script_with_a_mistake_is_said():
    """Before anything listens."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mintlify_async", "serve", "--port", "0", "--script", "/nowhere.json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode != 0
    assert out == b""
    assert "nowhere.json" in err.decode()
    assert "Traceback" not in err.decode()


async def test_serving_inside_a_program(capsys):
    """The same as a coroutine: it serves until a signal, and gives the signals back."""
    task = asyncio.create_task(serve(LocalService(), quiet=True))
    while "ready" not in capsys.readouterr().out:
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)
    await task
    assert not asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)  # none is left


async def test_a_port_is_no_service():
    with pytest.raises(ConfigurationError, match=r"as in serve\(LocalService\(port=8765\)\)") as refused:
        await serve(8765)
    assert refused.value.field == "service"


def clean(message):
    """Return what a message says, without the ids that each request has of its own."""
    text = json.dumps({"role": message["role"], "parts": message["parts"]}, sort_keys=True)
    return json.loads(re.sub(r"\b(call|source|text|msg)_\d+", r"\1_n", text))


async def test_the_published_client_reads_the_same():
    """DefaultChatTransport and readUIMessageStream of ai 7 fold both answers as our reply does."""
    async with served() as (address, _):
        seen = await node_client.chat(address, "acme-docs", KEYS.assistant, *QUESTIONS)
        async with MintlifySession(
            base_url=address, domain="acme-docs", assistant_key=KEYS.assistant
        ) as session:
            first = await session.ask(QUESTIONS[0])
            second = await session.ask(QUESTIONS[1], thread=first.thread)
    theirs = [message for message in seen["messages"] if message["role"] == "assistant"]
    ours = [reply.message.to_wire() for reply in (first, second)]
    assert [clean(message) for message in theirs] == [clean(message) for message in ours]
    text = "".join(part["text"] for part in theirs[1]["parts"] if part["type"] == "text")
    assert f"Earlier in this thread you asked: “{QUESTIONS[0]}”" in text
    assert seen["threadId"] == "thread_1"
