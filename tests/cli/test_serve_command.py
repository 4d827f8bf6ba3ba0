"""``serve`` and ``demo``: the local service as a process of its own."""

from __future__ import annotations

import re
import signal
import socket

import aiohttp
import pytest

from mintlify_async.cli import demo
from tests.support.child_process import child_environment
from tests.support.command_line import run, start


async def serve(*options):
    """Start the command; return its process and its URL, when it is ready."""
    process = await start("serve", "--port", "0", *options, env=child_environment())
    ready = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", (await process.stdout.readline()).decode())
    assert ready
    return process, ready[1]


@pytest.mark.real
async def test_its_exports_are_all_that_a_client_needs():
    """One ready line on standard output; each page of an answer is listed once; a signal ends it well."""
    process, url = await serve()
    exports = b""
    while b"MINTLIFY_SITE" not in exports:
        exports += await process.stderr.readline()
    env = dict(re.findall(r"export (\w+)=(\S+)", exports.decode()))
    assert env["MINTLIFY_BASE_URL"] == url
    answer = await run("ask", "What is a follow-up?", **env)
    assert answer.status == 0, answer.err
    pages = re.findall(r"^- .* — (\S+)$", answer.out.partition("Sources:")[2].partition("See next:")[0], re.M)
    paths = [re.sub(r"https?://[^/]+", "", page) for page in pages]
    assert len(paths) == len(set(paths)) >= 1
    assert (await run("doctor", **env)).status == 0
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 0
    assert "POST " in err.decode()
    assert env["MINTLIFY_ASSISTANT_API_KEY"] not in err.decode()


@pytest.mark.real
async def test_its_flags(tmp_path):
    """Web pages of other origins, a recording, no lines."""
    process, url = await serve()
    recording = str(tmp_path / "answer.jsonl")
    names = {"MINTLIFY_BASE_URL": url, "MINTLIFY_DOMAIN": "acme-docs"}
    key = {"MINTLIFY_ASSISTANT_API_KEY": "mint_dsc_test_assistant_0123456789abcdef"}
    first = await run("ask", "Hm?", "--json", "--record", recording, "--keep-text", **names, **key)
    process.terminate()
    await process.communicate()
    process, url = await serve("--replay", recording, "--quiet", "--cors", "*", "--pause", "0.001")
    second = await run("ask", "Other words", "--json", **(names | {"MINTLIFY_BASE_URL": url}), **key)
    assert (first.status, second.out) == (0, first.out)
    async with (
        aiohttp.ClientSession() as client,
        client.options(url, headers={"Origin": "http://x"}) as answer,
    ):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
    process.terminate()
    _, err = await process.communicate()
    assert process.returncode == 0
    assert "POST " not in err.decode()


async def test_a_used_port_is_named():
    """One line with the address and the flag."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        ended = await run("serve", "--port", str(port))
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


@pytest.mark.real
async def test_the_demo_shows_everything(no_waits, monkeypatch):
    """Two answers in one thread, a job and its follow-up, each with its code, at most 80 columns wide."""
    monkeypatch.setattr(demo, "JOB_SECONDS", 0.05)
    monkeypatch.setattr(demo, "PAUSE_SECONDS", 0.0)
    ended = await run("demo")
    assert ended.status == 0, ended.err
    ids = re.findall(r"thread id: (\S+)", ended.out)
    assert len(ids) == 2
    assert ids[0] == ids[1]
    assert len(re.findall(r"^    \S+  completed", ended.out, re.MULTILINE)) == 2
    assert "session.ask(" in ended.out
    ours = re.findall(r"^(?:    |\d\. ).*$", ended.out, re.MULTILINE)
    assert max(map(len, ours)) <= 80
