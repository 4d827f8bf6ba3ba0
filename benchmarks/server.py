"""Bytes of requests in, precomputed bytes of answers out: the server, in a process of its own.

Raw asyncio, so that it costs as little as can be beside the client that is
measured. It knows four kinds of request, all ``POST`` or ``GET`` as the real
service has them: an answer (the *domain* in its path names the shape), a job,
a stream that is held open (domain ``held``), and ``/control/…``.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.sslproto
import contextlib
import json
import random
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import NamedTuple

from .bodies import Script, chunk, script

__all__ = ["ServerAddress", "running"]

HELD_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + chunk(b'data: {"type":"start","messageId":"m"}\n\ndata: {"type":"text-start","id":"t"}\n\n')
)
HELD_END = (
    chunk(b'data: {"type":"text-end","id":"t"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n') + b"0\r\n\r\n"
)
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20  # from linux/netlink.h and linux/sock_diag.h
TICK = 0.005  # seconds between two batches of events to the held streams


def respond(status: bytes, body: bytes) -> bytes:
    """Return a whole response with a JSON body."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


def job(job_id: str, status: str) -> bytes:
    """Return a job record as the service writes it."""
    record = {
        "id": job_id,
        "status": status,
        "source": {"repository": "https://git.test/acme/docs", "ref": "main"},
        "model": "large-1",
        "prLink": None if status == "active" else "https://git.test/acme/docs/pull/7",
        "createdAt": "2026-01-02T03:04:05.678Z",
        "archivedAt": None,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def unread(client_port: int, server_port: int) -> int:
    """Return how many bytes wait in the client's socket, as the kernel says it; 0 where none can be asked."""
    if not hasattr(socket, "AF_NETLINK"):
        return 0
    loopback = socket.inet_aton("127.0.0.1") + bytes(12)
    ends = struct.pack("!HH", client_port, server_port) + loopback * 2
    wanted = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    request = wanted + ends + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, 1, 0, 0) + request)
        answer = kernel.recv(4096)
    if struct.unpack_from("=H", answer, 4)[0] != SOCK_DIAG_BY_FAMILY:
        return 0  # the connection is gone
    received: int = struct.unpack_from("=I", answer, 72)[0]
    return received


class Held:
    """The streams that are held open, and the events sent to them."""

    def __init__(self) -> None:
        """Start with none."""
        self.open: list[Connection] = []

    async def emit(self, rounds: int, per_second: float) -> None:
        """Send *rounds* events to each stream, in a shuffled order, at *per_second* in all; then the end.

        Each event says its number and the monotonic time at which it was written.
        """
        streams, roll = list(self.open), random.Random(1)
        self.open.clear()
        batch = max(1, int(per_second * TICK))
        due = time.monotonic()
        for number in range(rounds):
            roll.shuffle(streams)
            for start in range(0, len(streams), batch):
                for stream in streams[start : start + batch]:
                    stamp = b'{"type":"text-delta","id":"t","delta":"%d %.6f "}' % (number, time.monotonic())
                    stream.write(chunk(b"data: " + stamp + b"\n\n"))
                due += TICK
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        for stream in streams:
            stream.write(HELD_END)


class Service:
    """What all connections share: the state of jobs and of the held streams."""

    def __init__(self) -> None:
        """Jobs begin as active; no stream is held."""
        self.held = Held()
        self.job_status = "active"
        self.tasks: set[asyncio.Task[None]] = set()

    def later(self, work: Coroutine[object, object, None]) -> None:
        """Run the coroutine *work* beside the connections."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def control(self, words: list[str]) -> bytes:
        """Obey ``emit/ROUNDS/PER_SECOND`` or ``jobs/STATUS``; answer with how many streams are held."""
        count = len(self.held.open)
        if words[0] == "emit":
            self.later(self.held.emit(int(words[1]), float(words[2])))
        elif words[0] == "jobs":
            self.job_status = words[1]
        return respond(b"200 OK", b'{"held":%d}' % count)


class Connection(asyncio.Protocol):
    """One connection: requests in, one after the other, answers out."""

    def __init__(self, service: Service) -> None:
        """Serve what *service* holds."""
        self.service = service
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the buffer below it may grow, as a whole answer is written at once."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.write: Callable[[bytes], None] = transport.write

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self.buffer += data
        while (request := self.take()) is not None:
            method, path = request
            self.answer(method, path.strip("/").split("/"))

    def take(self) -> tuple[str, str] | None:
        """Cut one whole request off the buffer; its body is not looked at."""
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.split(b"\r\n")
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])
        }
        if fields.get(b"transfer-encoding") == b"chunked":
            _, ended, rest = rest.partition(b"0\r\n\r\n")
            if not ended:
                return None
        else:
            length = int(fields.get(b"content-length", b"0"))
            if len(rest) < length:
                return None
            rest = rest[length:]
        self.buffer = rest
        method, path, _ = lines[0].decode().split(" ", 2)
        return method, path

    def answer(self, method: str, words: list[str]) -> None:
        """Write what the path asks for."""
        match words:
            case ["discovery", "v2", "assistant", "held", "message"]:
                self.service.held.open.append(self)
                self.write(HELD_HEAD)
            case ["discovery", "v2", "assistant", shape, "message"]:
                self.stream(script(shape))
            case ["v2", "agent", _, "job", job_id, *_]:
                self.write(respond(b"200 OK", job(job_id, self.service.job_status)))
            case ["v2", "agent", _, "job"]:
                self.write(respond(b"201 Created", job("job_1", self.service.job_status)))
            case ["control", *rest]:
                self.write(self.service.control(rest))
            case _:
                self.write(respond(b"404 Not Found", json.dumps({"error": [method, *words]}).encode()))

    def stream(self, plan: Script) -> None:
        """Write an answer: at once, or each piece when the client has read the one before."""
        if plan.lockstep:
            self.service.later(self.in_step(plan.pieces))
        else:
            for piece in plan.pieces:
                self.write(piece)

    async def in_step(self, pieces: list[bytes]) -> None:
        """Write each piece when the one before has left the client's socket: one piece a read."""
        client, server = (
            self.transport.get_extra_info("peername")[1],
            self.transport.get_extra_info("sockname")[1],
        )
        for piece in pieces:
            self.write(piece)
            await asyncio.sleep(0.001)
            while unread(client, server) and not self.transport.is_closing():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)


async def serve(announce: Callable[[int], None], context: ssl.SSLContext | None) -> None:
    """Serve on loopback until standard input ends."""
    service, loop = Service(), asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = await loop.create_server(lambda: Connection(service), sock=listener, ssl=context, backlog=4096)
    async with server:
        announce(listener.getsockname()[1])
        await loop.run_in_executor(None, sys.stdin.read)


class ServerAddress(NamedTuple):
    """Where the server listens; *authority* is the file of the certificate to trust, for TLS."""

    base_url: str
    authority: str | None = None

    def url(self, shape: str) -> str:
        """Return the address of the answer in *shape*."""
        return f"{self.base_url}/discovery/v2/assistant/{shape}/message"


@contextlib.contextmanager
def running(authority: tuple[str, str] | None = None) -> Iterator[ServerAddress]:
    """Run the server in another process for as long as the block lasts.

    Args:
        authority: Files of the certificate to trust and of the server's own
            certificate with its key; TLS is served then.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.server",
        *(["--certificate", authority[1]] if authority else []),
    ]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            port = int(process.stdout.readline())
            scheme = "https" if authority else "http"
            yield ServerAddress(f"{scheme}://127.0.0.1:{port}", authority[0] if authority else None)
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def main() -> None:
    """Serve until standard input ends; the port is the first line of the output."""
    parser = argparse.ArgumentParser(description="serve the precomputed answers")
    parser.add_argument("--certificate", help="file of the certificate and its key, for TLS")
    options = parser.parse_args()
    context = None
    if options.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate)
        # 256 KiB a connection otherwise; what the server holds is not what is measured.
        asyncio.sslproto.SSLProtocol.max_size = 16_384  # type: ignore[attr-defined]
    asyncio.run(serve(lambda port: print(port, flush=True), context))


if __name__ == "__main__":
    main()
