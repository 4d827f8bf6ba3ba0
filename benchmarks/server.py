"""The server that every client asks, in a process of its own: it writes answers that were made beforehand.

The domain in a question's path names the shape of the answer; the domain ``held`` is a stream that stays
open. It is plain asyncio, so that it costs little beside the client that is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from urllib.parse import unquote

from .bodies import HEAD, chunk, script
from .measuring import ROOT

HELD_HEAD = HEAD + chunk(b'data: {"type":"text-start","id":"t"}\n\n')
HELD_DELTA = b'data: {"type":"text-delta","id":"t","delta":"%d %.6f "}\n\n'
HELD_END = chunk(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n') + b"0\r\n\r\n"
JOB = {
    "source": {"repository": "https://git.test/acme/docs", "ref": "main"},
    "model": "large-1",
    "createdAt": "2026-01-02T03:04:05.678Z",
    "archivedAt": None,
}


def unread(client_port: int, server_port: int) -> bool:
    """Tell whether bytes wait in the client's socket, as Linux says it."""
    ends = f"0100007F:{client_port:04X} 0100007F:{server_port:04X}"  # loopback
    found = re.search(ends + r" \w+ \w+:(\w+)", Path("/proc/net/tcp").read_text())
    return found is not None and found[1] != "00000000"


class Service:
    """What all connections share: the jobs' status, and the streams that are held open."""

    def __init__(self) -> None:
        self.held: list[Connection] = []
        self.job_status = "active"
        self.tasks: set[asyncio.Task[None]] = set()

    def later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def emit(self, events: int, per_second: float) -> None:
        """Send *events* in all, *per_second*, to one held stream after the other in a shuffled order.

        Each event says its number within its stream and the monotonic time at which it was written.
        """
        random.Random(1).shuffle(self.held)
        due = time.monotonic()
        for number in range(events):
            stream = self.held[number % len(self.held)]
            stream.write(chunk(HELD_DELTA % (number // len(self.held), time.monotonic())))
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def end(self) -> None:
        for stream in self.held:
            stream.write(HELD_END)
        self.held.clear()


class Connection(asyncio.Protocol):
    """Answers the requests of one connection, one after the other."""

    def __init__(self, service: Service) -> None:
        self.service, self.buffer = service, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.write = transport, transport.write

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete; its body is not looked at."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            length = re.search(rb"\r\ncontent-length: *(\d+)", head)
            assert length or b"transfer-encoding" not in head, head
            end += 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < end:
                return
            path = self.buffer.split(b" ", 2)[1].decode()
            self.buffer = self.buffer[end:]
            self.answer(path.strip("/").split("/"))

    def answer(self, words: list[str]) -> None:
        """Write what the path asks for."""
        service = self.service
        match words:
            case ["discovery", "v2", "assistant", "held", "message"]:
                service.held.append(self)
                self.write(HELD_HEAD)
            case ["discovery", "v2", "assistant", shape, "message"]:
                plan = script(unquote(shape))
                if plan.lockstep:
                    service.later(self.in_step(plan.pieces))
                else:
                    self.write(b"".join(plan.pieces))
            case ["v2", "agent", _, "job", *asked]:
                job = {"id": asked[0] if asked else "job_1", "status": service.job_status, **JOB}
                self.respond(job, b"200" if asked else b"201")
            case ["control", "emit", events, per_second]:
                service.later(service.emit(int(events), float(per_second)))
                self.respond({})
            case ["control", "end"]:
                service.end()
                self.respond({})
            case ["control", "jobs", status]:
                service.job_status = status
                self.respond({})
            case _:
                self.respond({"error": words}, b"404")

    def respond(self, document: object, status: bytes = b"200") -> None:
        """Write a whole response with a JSON body."""
        body = json.dumps(document, separators=(",", ":")).encode()
        head = b"HTTP/1.1 %b X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.write(head % (status, len(body)) + body)

    async def in_step(self, pieces: list[bytes]) -> None:
        """Write each piece when the one before has left the client's socket: one piece per read."""
        client, server = (self.transport.get_extra_info(name)[1] for name in ("peername", "sockname"))
        for piece in pieces:
            self.write(piece)
            await asyncio.sleep(0.001)
            while unread(client, server) and not self.transport.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


async def serve() -> None:
    """Serve on loopback until standard input ends; the port is the first line of the output."""
    service, loop = Service(), asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    async with await loop.create_server(lambda: Connection(service), sock=listener, backlog=4096):
        print(listener.getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run Python in another process while the block lasts; yield the address that it serves, and its id."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(started.stdout.readline())}", started.pid
        finally:
            started.stdin.close()
            started.wait(timeout=30)


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run the server while the block lasts; yield its address."""
    with process("-m", "benchmarks.server") as (url, _):
        yield url


async def control(server: str, words: str) -> None:
    """Tell the server *words*: ``emit/EVENTS/PER_SECOND``, ``end`` or ``jobs/STATUS``."""
    import aiohttp

    async with aiohttp.request("POST", f"{server}/control/{words}") as response:
        assert response.status == 200


if __name__ == "__main__":
    asyncio.run(serve())
