"""The server that every client asks, in a process of its own: it writes answers that were made beforehand.

The domain in a question's path names the shape of the answer; the domain ``held`` is a stream that stays
open. It is plain asyncio, so that it costs little beside the client that is measured.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from .bodies import HEAD, chunk, script
from .measuring import ROOT

HELD_HEAD = HEAD + chunk(b'data: {"type":"text-start","id":"t"}\n\n')
HELD_DELTA = b'data: {"type":"text-delta","id":"t","delta":"%.6f"}\n\n'
HELD_END = chunk(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n') + b"0\r\n\r\n"
SOURCE = {"repository": "https://git.test/acme/docs", "ref": "main"}
JOB = {"id": "job_1", "status": "active", "source": SOURCE, "createdAt": "2026-01-02T03:04:05.678Z"}
held: list[asyncio.StreamWriter] = []


def unread(client_port: int, server_port: int) -> bool:
    """Tell whether bytes wait in the client's socket, as Linux says it."""
    ends = f"0100007F:{client_port:04X} 0100007F:{server_port:04X}"  # loopback
    found = re.search(ends + r" \w+ \w+:(\w+)", Path("/proc/net/tcp").read_text())
    return found is not None and found[1] != "00000000"


async def emit(events: int, per_second: float) -> None:
    """Send *events* in all to one held stream after the other; each says when it was written."""
    random.Random(1).shuffle(held)
    due = time.monotonic()
    for number in range(events):
        held[number % len(held)].write(chunk(HELD_DELTA % time.monotonic()))
        due += 1 / per_second
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, one after the other; their bodies are not looked at."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            await answer(head.split(b" ", 2)[1].decode().strip("/").split("/"), writer)


async def answer(words: list[str], writer: asyncio.StreamWriter) -> None:
    """Write what the path asks for."""
    match words:
        case ["discovery", "v2", "assistant", "held", "message"]:
            held.append(writer)
            writer.write(HELD_HEAD)
        case ["discovery", "v2", "assistant", shape, "message"]:
            plan = script(unquote(shape))
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
    """Write a whole response with a JSON body."""
    body = json.dumps(document, separators=(",", ":")).encode()
    head = b"HTTP/1.1 %b X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % (status, len(body)) + body)


async def in_step(pieces: list[bytes], writer: asyncio.StreamWriter) -> None:
    """Write each piece when the one before has left the client's socket: one piece per read."""
    client, server = (writer.get_extra_info(name)[1] for name in ("peername", "sockname"))
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.001)
        while unread(client, server) and not writer.is_closing():  # noqa: ASYNC110 - only Linux knows
            await asyncio.sleep(0.001)


async def serve() -> None:
    """Serve on loopback until standard input ends; the port is the first line of the output."""
    async with await asyncio.start_server(connection, "127.0.0.1", 0, backlog=4096) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        os._exit(0)  # clients that are still connected are not waited for


@contextlib.contextmanager
def running(module: str = "benchmarks.server", *arguments: str) -> Iterator[tuple[str, int]]:
    """Run *module*, which serves, in another process while the block lasts; yield its address and its id."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(started.stdout.readline())}", started.pid
        finally:
            started.stdin.close()
            started.wait(timeout=30)


async def control(server: str, words: str) -> None:
    """Tell the server *words*: ``emit/EVENTS/PER_SECOND``, ``end`` or ``jobs/STATUS``."""
    import aiohttp

    async with aiohttp.request("POST", f"{server}/control/{words}") as response:
        assert response.status == 200


if __name__ == "__main__":
    asyncio.run(serve())
