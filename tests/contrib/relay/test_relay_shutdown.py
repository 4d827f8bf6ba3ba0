"""Answers when the app shuts down: they end, or the page and the hooks learn that they were cut."""

from __future__ import annotations

import asyncio
import re
import signal
import sys

import aiohttp
import pytest

pytest.importorskip("fastapi")

from mintlify_async import ConfigurationError
from tests.support.child_process import child_environment
from tests.support.relay_desk import ENDLESS, TURN, desk
from tests.support.relay_kit import Page, events


async def test_an_answer_whose_finish_has_come_is_finished():
    """What the shutdown closes then is only the silence after the end."""
    told: list[str] = []
    async with desk(on_end=lambda answer: told.append(answer.outcome)) as here:
        here.service.script.ask(events=[*TURN, 60.0])
        async with here.page.request() as response:
            await response.content.readuntil(b'"finish"')
            await here.relay.drain(0)
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert told == ["finished"]


@pytest.mark.parametrize("callable_handler", [True, False])
async def test_the_servers_own_handler_gets_the_signal(callable_handler):
    """It runs beside the drain and is restored; where no server handles the signal, nothing is changed."""
    heard: list[int] = []
    handler = (lambda number, frame: heard.append(number)) if callable_handler else signal.SIG_IGN
    earlier = signal.signal(signal.SIGTERM, handler)
    try:
        async with desk() as here:
            async with here.relay.drain_on_signal(5):
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0.01)
                assert heard == [signal.SIGTERM] * callable_handler
                assert (await here.page.post())[0] == (503 if callable_handler else 200)
            assert signal.getsignal(signal.SIGTERM) is handler
            assert (await here.page.post())[0] == 503, "the block's end drains, too"
    finally:
        signal.signal(signal.SIGTERM, earlier)


@pytest.mark.parametrize("seconds", [-1, None, float("nan"), float("inf")])
async def test_a_bad_time_is_refused_when_the_app_starts(here, seconds):
    """At the signal it would be too late."""
    with pytest.raises(ConfigurationError, match="seconds"):
        await here.relay.drain_on_signal(seconds).__aenter__()
    with pytest.raises(ConfigurationError, match="seconds"):
        await here.relay.drain(seconds)
    assert (await here.page.post())[0] == 200


SERVERS = {
    "uvicorn": ["uvicorn", "--port", "0", "--timeout-graceful-shutdown", "20"],
    "hypercorn": ["hypercorn", "--bind", "127.0.0.1:0", "--workers", "0", "--graceful-timeout", "20"],
}


@pytest.mark.real
@pytest.mark.parametrize("server", SERVERS)
async def test_a_real_server_that_is_told_to_end(server, service):
    """At SIGTERM the page of a silent answer gets its error event, and the process ends without waiting."""
    pytest.importorskip(server)
    command = [sys.executable, "-m", *SERVERS[server], "tests.support.relay_app:app"]
    service.script.ask(events=ENDLESS, times=None)
    env = child_environment(service, PYTHONWARNINGS=None, PYTHONUNBUFFERED="1")
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        line = b""
        while (found := re.search(rb"http://127\.0\.0\.1:[1-9]\d*", line)) is None:
            line = await process.stdout.readline()
            assert line, "the server did not start"
        address = found[0].decode()
        async with aiohttp.ClientSession() as http, Page(http, address).request() as response:
            seen = await response.content.readuntil(b"Hello ")
            process.send_signal(signal.SIGTERM)
            seen += await response.read()
        said = (await process.stdout.read()).decode()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = "The answer was interrupted. Please try again."
    assert events(seen)[-1] == {"type": "error", "errorText": text}
    assert "told interrupted 'Hello '" in said
    assert "lifespan ended" in said
    assert "Traceback" not in said
    assert said.count("told") == 1
