"""A kept connection that received bytes while nobody used it gives nobody an answer."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from mintlify_async import MintlifySession, RetryPolicy, Timeouts
from tests.support.raw_server import job_answer
from tests.support.secret_guard import Keys
from tests.support.tls import tls_contexts

HERE = "127.0.0.1"


def answer(text: str) -> bytes:
    """Return a complete response to a question."""
    events = (
        {"type": "start"},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": text},
        {"type": "text-end", "id": "0"},
        {"type": "finish", "threadId": f"thread of {text}"},
    )
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


STRAY_TEXT = "somebody else's"
STRAY = answer(STRAY_TEXT)
STRAY_JOB = job_answer().replace(b"completed", b"cancelled")
HEAD, _, BODY = STRAY.partition(b"\r\n\r\n")
CHUNKED = HEAD.replace(b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked") + b"\r\n\r\n"
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

STRAYS = {
    "the end": b"",
    "an answer": STRAY,
    "two answers": STRAY + STRAY,
    "an answer, cut": STRAY[:-20],
    "half an answer": STRAY[: len(STRAY) // 2],
    "the head of an answer": HEAD + b"\r\n\r\n",
    "half a head": HEAD[:30],
    "the body of an answer": BODY,
    "a chunked answer": CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "a chunked answer, cut": CHUNKED + b"%x\r\n%b\r\n" % (len(BODY), BODY),
    "the end of chunks": b"0\r\n\r\n",
    "a job": STRAY_JOB,
    "408": TIMED_OUT,
    "408, then an answer": TIMED_OUT + STRAY,
    "100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "103": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    "100, then an answer": b"HTTP/1.1 100 Continue\r\n\r\n" + STRAY,
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "503": b"HTTP/1.1 503 Unavailable\r\nContent-Length: 4\r\n\r\nbusy",
    "a line end": b"\r\n",
    "one byte": b"H",
    "zeros": b"\0" * 100,
    "a TLS record": b"\x15\x03\x03\x00\x02\x01\x00",
}
"""What a server, or a proxy that lost its place, may send on an idle connection."""


class Stranger:
    """A server, in a thread, that sends stray bytes behind its answers when it is told to.

    Which bytes follow an answer depends on the text of the question. As a proxy, it connects with itself.

    Attributes:
        url: Its URL.
        all_sent: Is set when the stray bytes are on their way.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self.all_sent = threading.Event()
        self._waiting: list[tuple[bytes, asyncio.StreamWriter]] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))

    def __enter__(self) -> Stranger:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def serving(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
            return lambda reader, writer: tasks.add(asyncio.create_task(play(reader, writer)))

        server = await asyncio.start_server(serving(self._serve), HERE, 0, ssl=self._context)
        proxy = await asyncio.start_server(serving(tunnel), HERE, 0)
        self.port, self.proxy_port = (one.sockets[0].getsockname()[1] for one in (server, proxy))
        self.url = f"{'https' if self._context else 'http'}://{HERE}:{self.port}"
        self._ready.set()
        await self._end.wait()
        server.close()
        proxy.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(sizes[0].split(b":")[1])) if sizes else b"{}"
                text = json.loads(body)["messages"][0]["parts"][0]["text"] if sizes else ""
                if text in STRAYS:
                    self._waiting.append((STRAYS[text], writer))
                writer.write(answer(f"for {text}") if sizes else job_answer())
        writer.transport.abort()

    def send_strays(self) -> None:
        """Send all stray bytes, from the thread of the server. No bytes are the end of the connection."""

        def send() -> None:
            for stray, writer in self._waiting:
                writer.write(stray) if stray else writer.close()
            self._loop.call_later(0.05, self.all_sent.set)  # a proxy has passed them on by then

        self._loop.call_soon_threadsafe(send)


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one client of a proxy."""
    port = int((await reader.readuntil(b"\r\n\r\n")).split()[1].rpartition(b":")[2])
    there, back = await asyncio.open_connection(HERE, port)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
        target.close()

    try:
        await asyncio.gather(copy(reader, back), copy(there, writer))
    finally:
        back.transport.abort()
        writer.transport.abort()


async def ask(session: MintlifySession) -> tuple[str, str]:
    next_answer = await session.ask("next")
    return next_answer.text, next_answer.thread.id if next_answer.thread else ""


async def poll(session: MintlifySession) -> tuple[str, str]:
    job = await session.job("job_1").refresh()
    return job.id, job.status


NEXT = {"ask": (ask, ("for next", "thread of for next")), "poll": (poll, ("job_1", "completed"))}
"""What a session does next, and its result."""


@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("is_busy", [False, True], ids=["", "busy"])
@pytest.mark.parametrize("route", ["plain", "TLS", "CONNECT"])
async def test_no_stray_bytes_are_an_answer(route, is_busy, following):
    """The next question and the next poll get their own answers, also if the loop has not read the bytes."""
    served, trust = tls_contexts()
    with Stranger(served if route != "plain" else None) as server:
        proxy = f"http://{HERE}:{server.proxy_port}" if route == "CONNECT" else None
        sessions = [
            MintlifySession(
                base_url=server.url,
                proxy=proxy,
                ssl=trust,
                admin_key=Keys.admin,
                assistant_key=Keys.assistant,
                project_id="acme",
                domain="acme-docs",
                retry=RetryPolicy(attempts=1),
                timeouts=Timeouts(request=3, first_event=3, idle=3),
            )
            for _ in STRAYS
        ]
        try:
            first = [session.ask(shape).run() for session, shape in zip(sessions, STRAYS, strict=True)]
            assert [one.text for one in await asyncio.gather(*first)] == [f"for {shape}" for shape in STRAYS]
            server.send_strays()
            if is_busy:
                assert server.all_sent.wait(10)  # the loop stands
            else:
                while not server.all_sent.is_set():
                    await asyncio.sleep(0.01)
            step, right = NEXT[following]
            results = await asyncio.gather(*map(step, sessions), return_exceptions=True)
        finally:
            await asyncio.gather(*(session.close() for session in sessions))
    wrong = {shape: result for shape, result in zip(STRAYS, results, strict=True) if result != right}
    assert wrong == {}


PURE_PYTHON = """
import sys, aiohttp.http_parser, pytest
assert aiohttp.http_parser.HttpResponseParser is aiohttp.http_parser.HttpResponseParserPy
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", sys.argv[1], "-k", "no_stray_bytes"]))
"""


@pytest.mark.real
def test_the_parser_in_pure_python_finds_no_answer_either():
    """The same with aiohttp's parser in pure Python."""
    env = {**os.environ, "AIOHTTP_NO_EXTENSIONS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PURE_PYTHON, __file__], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
