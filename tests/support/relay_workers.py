"""Workers of an app with the relay and pages of the AI SDK, each in its own process."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment
from tests.support.relay_browser import page_program

SECONDS = 300
PAUSE = 0.03
WORDS = [f"word-{number} " for number in range(30)]
ANSWER: list[Any] = [
    {"type": "start", "messageId": "m1"},
    0.1,
    {"type": "start-step"},
    {"type": "reasoning-start", "id": "r"},
    {"type": "reasoning-delta", "id": "r", "delta": "Let me see."},
    {"type": "reasoning-end", "id": "r"},
    {"type": "tool-input-start", "toolCallId": "c", "toolName": "search", "dynamic": True},
    {"type": "tool-input-available", "toolCallId": "c", "toolName": "search", "input": 1, "dynamic": True},
    {"type": "tool-output-available", "toolCallId": "c", "output": ["found"], "dynamic": True},
    {"type": "finish-step"},
    {"type": "start-step"},
    {"type": "source-url", "sourceId": "s", "url": "https://docs.example/a", "title": "A"},
    {"type": "text-start", "id": "0"},
    *({"type": "text-delta", "id": "0", "delta": word} for word in WORDS),
    {"type": "text-end", "id": "0"},
    {"type": "finish-step"},
    {"type": "finish", "finishReason": "stop", "threadId": "thread_77"},
]
LASTS = 1000 * (0.1 + PAUSE * len(ANSWER))  # milliseconds


class Worker:
    """One worker, which may be killed and started again under the same URL."""

    def __init__(self, service: LocalService, listener: socket.socket, **environment: str) -> None:
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._environment = child_environment(service, **environment)

    async def start(self) -> None:
        """Start it. Connections wait in its listener until it serves."""
        listener = self._listener.fileno()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.relay_app", str(listener)),
            env=self._environment,
            pass_fds=(listener,),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        """End it immediately, like ``kill -9``."""
        with suppress(ProcessLookupError):  # it has ended on its own
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def workers(
    service: LocalService, *, redis: str, store: bool = False, page: str = "", shared: bool = False
) -> AsyncIterator[list[Worker]]:
    """Start two workers, or one if there is no *redis*. Stop them afterwards.

    With *store*, the app stores the conversations, on Redis if there is one. With *shared*, the workers have
    one URL.
    """
    environment = {"STREAMS": redis or "memory", "STORE": "1" if store else "", "PAGE": page}
    with ExitStack() as stack:
        made = list[Worker]()
        for _ in range(2 if redis else 1):
            if not (made and shared):
                listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            made.append(Worker(service, listener, **environment))
        await asyncio.gather(*(worker.start() for worker in made))
        try:
            yield made
        finally:
            await asyncio.gather(*(worker.kill() for worker in made))


class Pages:
    """Pages of one release of ai, which play stories and return their state at the end."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def tell(self, chat: str, *lives: dict[str, Any]) -> dict[str, Any]:
        """Return the status, the error and the messages of the page of *chat* at the end of *lives*."""
        self._waiting[chat] = told = asyncio.get_running_loop().create_future()
        self._say(chat=chat, lives=[{"milliseconds": None, "stop": None, **life} for life in lives])
        async with asyncio.timeout(SECONDS):
            return await told

    def _say(self, **words: Any) -> None:
        self._process.stdin.write(json.dumps(words).encode() + b"\n")

    async def note_arrivals(self, service: LocalService) -> None:
        """Tell the pages the service's questions. A page that leaves earlier may not have sent its own."""
        seen = 0
        while True:
            for request in service.requests[seen:]:
                if not request.body:  # it is on its way
                    break
                text: str = request.json["messages"][-1]["parts"][0]["text"]
                self._say(arrived=text.removeprefix("question of "))
                seen += 1
            await asyncio.sleep(0.005)

    async def listen(self) -> None:
        async for line in self._process.stdout:
            shown = json.loads(line)
            self._waiting.pop(shown["chat"]).set_result(shown)
        for told in self._waiting.values():
            told.set_exception(RuntimeError("the pages have ended"))


@asynccontextmanager
async def pages(release: str, service: LocalService) -> AsyncIterator[Pages]:
    """Start the pages. Stop them afterwards."""
    program = page_program(release, "relay_pages.mjs")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", program, limit=2**24, stdin=pipe, stdout=pipe)
    made = Pages(process)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(made.listen())
        noting = group.create_task(made.note_arrivals(service))
        try:
            yield made
            process.stdin.close()
            await listening
            assert await process.wait() == 0
        finally:
            noting.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
