"""A real Redis for the tests, which is started on a free port of loopback and killed at will."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redis.asyncio import Redis

START_SECONDS = 20.0
"""How long a Redis may take to start on a busy computer."""


def free_port() -> int:
    """Return a port of loopback for a server that is started later, and perhaps again after a kill.

    It lies below the ports that the system gives to connections and to listeners on port 0. Another test
    could be given one of those before the server listens on it.
    """
    given_by_system = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = 10_000 + secrets.randbelow(given_by_system - 10_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class RedisServer:
    """One redis-server process on loopback, with its own directory.

    Args:
        directory: The folder of its file.
        durable: Whether each write is on disk before its response. Otherwise a restart loses all data.
        cluster: Whether it is a cluster of one node, which refuses scripts whose keys are apart.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        cluster: bool = False,
    ) -> None:
        """Choose a port. Nothing runs yet."""
        self.port = free_port()
        self.cluster = cluster
        self._options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(directory),
            "--save",
            "",
        ]
        if durable:
            self._options += ["--appendonly", "yes", "--appendfsync", "always"]
        if cluster:
            self._options += ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        self._process: Any = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, **options: Any) -> Redis:
        """Return a client that does not hide failures behind its own retries."""
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        return Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), **options)

    def start(self) -> RedisServer:
        """Start it, again after a kill, and return when it answers."""
        installed = shutil.which("redis-server")
        if installed is None:
            pytest.skip("redis-server is not installed")
        self._process = subprocess.Popen(
            [installed, *self._options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self._until(b"PING", b"+PONG")
        if self.cluster:
            self.say(b"CLUSTER ADDSLOTSRANGE 0 16383")
            self._until(b"CLUSTER INFO", b"cluster_state:ok")
        return self

    def _until(self, command: bytes, answer: bytes) -> None:
        """Repeat *command* until *answer* is a part of the response."""
        end = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError):  # it does not listen yet
                if answer in self.say(command):
                    return
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"redis-server did not start on port {self.port}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it immediately, like ``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def say(self, *commands: bytes) -> bytes:
        """Send *commands* and return the last response."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            for command in commands:
                connection.sendall(command + b"\r\n")
                answer = connection.recv(1024)
        return answer


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the complete run. Each test gets it empty through ``redis_server``."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
def redis_server(shared_redis: RedisServer) -> RedisServer:
    """A Redis that is empty."""
    shared_redis.say(b"FLUSHALL", b"CONFIG RESETSTAT")
    return shared_redis


@pytest.fixture
async def redis_client(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A client of an empty Redis."""
    async with redis_server.client() as client:
        yield client


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Makes the test's own Redis that can be killed, with ``own_redis(durable=True)``."""
    with ExitStack() as stack:

        def make(**options: bool) -> RedisServer:
            server = RedisServer(tmp_path, **options)
            stack.callback(server.kill)
            return server.start()

        yield make
