"""A real Redis for the tests, which is started on a free port of loopback and killed at will."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redis.asyncio import Redis

START_SECONDS = 20.0
"""How long a Redis may take to start on a busy computer."""

HIGHEST_PORT = 55_535
"""The nodes of a cluster talk to each other on a port that is higher by 10,000."""


def _free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port <= HIGHEST_PORT:
            return port


class RedisServer:
    """One redis-server process on loopback, with its own directory.

    Args:
        directory: The folder of its file.
        durable: Whether each write is on disk before its response. Otherwise a restart loses all data.
        cluster: Whether it is a cluster of one node, which refuses scripts whose keys are apart.
    """

    def __init__(self, directory: Path, *, durable: bool = False, cluster: bool = False) -> None:
        """Choose a port. Nothing runs yet."""
        self.directory = directory
        self.durable = durable
        self.cluster = cluster
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

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
        keep = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no"]
        installed = shutil.which("redis-server")
        if installed is None:
            pytest.skip("redis-server is not installed")
        command = [installed, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *keep]
        command += ["--cluster-enabled", "yes"] if self.cluster else []
        self._process = subprocess.Popen(
            [*command, "--dir", str(self.directory), "--loglevel", "warning"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"redis-server did not start on port {self.port}")
            time.sleep(0.02)
        if self.cluster:
            self._take_all_slots(end)
        return self

    def _take_all_slots(self, end: float) -> None:
        for first in range(0, 16384, 4096):
            self.say(b"CLUSTER ADDSLOTS " + " ".join(map(str, range(first, first + 4096))).encode())
        while b"cluster_state:ok" not in self.say(b"CLUSTER INFO"):
            assert time.monotonic() < end
            time.sleep(0.02)

    def kill(self) -> None:
        """End it immediately, like ``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def stand_still(self, seconds: float) -> None:
        """Let it do nothing for *seconds*, like a busy computer or a failover."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def say(self, *commands: bytes) -> bytes:
        """Send *commands* and return the last response."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            for command in commands:
                connection.sendall(command + b"\r\n")
                answer = connection.recv(1024)
        return answer

    def _answers(self) -> bool:
        try:
            return self.say(b"PING").startswith(b"+PONG")
        except OSError:
            return False


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
    made: list[RedisServer] = []

    def make(*, durable: bool = False, cluster: bool = False) -> RedisServer:
        directory = tmp_path / f"redis-{len(made)}"
        directory.mkdir()
        made.append(RedisServer(directory, durable=durable, cluster=cluster))
        return made[-1].start()

    yield make
    for server in made:
        server.kill()
