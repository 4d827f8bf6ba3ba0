"""The server that every client asks, in plain asyncio. A question's domain names the answer's shape."""

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from .bodies import HEAD, chunk, script, shape_of
from .measuring import ROOT, STEADY

HELD_HEAD = HEAD + chunk(b'data: {"type":"text-start","id":"t"}\n\n')
HELD_DELTA = b'data: {"type":"text-delta","id":"t","delta":"%.6f"}\n\n'
HELD_END = chunk(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n') + b"0\r\n\r\n"
SOURCE = {"repository": "https://git.test/acme/docs", "ref": "main"}
JOB = {"id": "job_1", "status": "active", "source": SOURCE, "createdAt": "2026-01-02T03:04:05.678Z"}
SPEAKING = 100  # of the held streams get events
held: list[asyncio.StreamWriter] = []


async def emit(events: int, per_second: float) -> None:
    random.Random(1).shuffle(held)
    due = time.monotonic()
    for number in range(events):
        held[number % min(SPEAKING, len(held))].write(chunk(HELD_DELTA % time.monotonic()))
        due += 1 / per_second
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            await answer(head.split(b" ", 2)[1].decode().strip("/").split("/"), writer)


async def answer(words: list[str], writer: asyncio.StreamWriter) -> None:
    match words:
        case ["discovery", "v2", "assistant", "held", "message"]:
            held.append(writer)
            writer.write(HELD_HEAD)
        case ["discovery", "v2", "assistant", domain, "message"]:
            plan = script(shape_of(unquote(domain)))
            if plan.lockstep:
                await in_step(plan.pieces, writer)
            else:
                writer.write(b"".join(plan.pieces))
        case ["v2", "agent", _, "job", *asked]:
            respond(writer, {**JOB, "id": asked[0] if asked else "job_1"}, b"200" if asked else b"201")
        case ["control", "emit", events, per_second]:
            respond(writer, {})
            await emit(int(events), float(per_second))
        case ["control", "end"]:
            while held:
                held.pop().write(HELD_END)
            respond(writer, {})
        case ["control", "jobs", status]:
            JOB["status"] = status
            respond(writer, {})
        case _:
            respond(writer, {"error": words}, b"404")


def respond(writer: asyncio.StreamWriter, document: object, status: bytes = b"200") -> None:
    body = json.dumps(document, separators=(",", ":")).encode()
    head = b"HTTP/1.1 %b X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % (status, len(body)) + body)


async def in_step(pieces: list[bytes], writer: asyncio.StreamWriter) -> None:
    """Write each piece when the piece before has left the client's socket, so one piece per read."""
    client, server = (writer.get_extra_info(name)[1] for name in ("peername", "sockname"))
    ends = f"0100007F:{client:04X} 0100007F:{server:04X}"  # loopback, then the bytes waiting in the socket
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.001)
        while re.search(ends + r" \w+ \w+:\w*[^0\W]", Path("/proc/net/tcp").read_text()):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.001)


def standing_by(port: int) -> None:
    """Print the port, and end the process with standard input, without waiting for clients."""
    print(port, flush=True)
    threading.Thread(target=lambda: os._exit(bool(sys.stdin.read())), daemon=True).start()


async def serve() -> None:
    async with await asyncio.start_server(connection, "127.0.0.1", 0, backlog=4096) as server:
        standing_by(server.sockets[0].getsockname()[1])
        await server.serve_forever()


@contextlib.contextmanager
def running(module: str = "benchmarks.server", *arguments: str) -> Iterator[tuple[str, int]]:
    """Run the server *module* in another process while the block lasts. Yield its URL and its id."""
    command, pipe = [sys.executable, "-m", module, *arguments], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | STEADY, stdin=pipe, stdout=pipe) as started:
        assert started.stdout is not None
        yield f"http://127.0.0.1:{int(started.stdout.readline())}", started.pid
        # Leaving the block closes its standard input, at which it ends, and waits for it.


async def control(server: str, words: str) -> None:
    import aiohttp  # the server itself does not need it

    async with aiohttp.request("POST", f"{server}/control/{words}") as response:
        assert response.status == 200


if __name__ == "__main__":
    asyncio.run(serve())
