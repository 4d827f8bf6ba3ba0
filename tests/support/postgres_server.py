"""A real Postgres for the tests, on a free port of loopback, and PgBouncer in front of it.

Both refuse to run as root. Then they run as Debian's user ``postgres``, in a folder of their own.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import START_SECONDS, free_port

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # a killed server loses nothing, only a computer without power would
    "max_connections": "60",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "logging_collector": "off",
}


def _binary(name: str) -> str:
    """Return the path of a program of Postgres. Debian keeps each version in a folder of its own."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[4].zfill(3)
    )
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        pytest.skip("postgresql is not installed")
    return found


def _other_user() -> dict[str, Any]:
    """Return arguments for ``Popen`` that run a program as another user than root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _new_folder(name: str) -> Path:
    """Return a new folder that the other user owns; pytest's own folders are closed to it."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"mintlify-{name}-", dir=parent))
    if user := _other_user():
        shutil.chown(folder, user["user"], user["group"])
    return folder


def _children(pid: int) -> list[int]:
    """Return the processes that *pid* has started. Linux only."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Daemon:
    """A process in a folder of its own, which is deleted with it."""

    end_signal = signal.SIGQUIT

    def __init__(self, name: str) -> None:
        """Choose a port and a folder. Nothing runs yet."""
        self.name, self.port, self.folder = name, free_port(), _new_folder(name)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *command: str) -> None:
        """Start it in the background. Its log is the file ``log`` in the folder."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **_other_user()
            )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def until(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it answers."""
        end = time.monotonic() + START_SECONDS
        while not is_ready():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start on port {self.port}:\n{self.log}")
            time.sleep(0.02)

    def signal(self, number: signal.Signals, *, wait: bool = False) -> None:
        """Send a signal, if it runs, and perhaps wait for its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            if wait:
                self._process.wait(timeout=60)

    def freeze(self, *, thaw: bool = False) -> None:
        """Stop it with its children in the middle of whatever they do, or let them go on."""
        assert self._process is not None
        for pid in [self._process.pid, *_children(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if thaw else signal.SIGSTOP)

    def remove(self) -> None:
        """End it and delete its folder."""
        if self._process is not None and self._process.poll() is None:
            self.freeze(thaw=True)
            self.signal(self.end_signal, wait=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresServer(Daemon):
    """One server on loopback. Everybody may connect as ``postgres``.

    Attributes:
        database: The name of the database in :attr:`url`.
    """

    def __init__(self) -> None:
        super().__init__("postgres")
        self.database = "postgres"

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{port}/{self.database}"

    def make(self) -> PostgresServer:
        """Make its files, and start it."""
        options = ("--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-instructions")
        command = (_binary("initdb"), *options, "--pgdata", str(self.folder / "data"))
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **_other_user())
        return self.start()

    def start(self) -> PostgresServer:
        """Start it, again after a stop, and return when it answers."""
        settings = SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        self.run(_binary("postgres"), "-D", str(self.folder / "data"), *options)
        self.until(self._answers)
        return self

    def stop(self) -> None:
        """End it at once, with all connections."""
        self.signal(signal.SIGINT, wait=True)

    def _answers(self) -> bool:
        command = (_binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port))
        return subprocess.run(command, check=False).returncode == 0

    def say(self, *statements: str, database: str | None = None) -> str:
        """Run *statements*, each in a transaction of its own, and return their rows."""
        arguments = [part for statement in statements for part in ("-c", statement)]
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database or self.database)
        command = (_binary("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *where, *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def connections(self) -> int:
        """Return how many clients are connected to the database."""
        question = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{self.database}'"
        return int(self.say(question, database="postgres"))

    def new_database(self) -> None:
        """Make an empty database, whose own order of texts is that of a language."""
        self.database = f"test_{secrets.token_hex(4)}"
        self.say(
            f"CREATE DATABASE {self.database} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'",
            database="postgres",
        )

    def drop_database(self) -> None:
        """Delete the test's database, whoever uses it."""
        self.say(f"DROP DATABASE {self.database} WITH (FORCE)", database="postgres")
        self.database = "postgres"


class PgBouncer(Daemon):
    """A PgBouncer in transaction mode: each transaction may run on another connection of the server.

    Args:
        server: The server behind it.
    """

    end_signal = signal.SIGKILL  # a shell that starts the tests in the background makes it ignore SIGQUIT

    def __init__(self, server: PostgresServer) -> None:
        super().__init__("pgbouncer")
        self.server = server

    @property
    def url(self) -> str:
        return self.server.url_at(self.port)

    def start(self) -> PgBouncer:
        """Start it, and return when it listens."""
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            pytest.skip("pgbouncer is not installed")
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self.folder / 'users'}\n"
            "pool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 200\n"
        )
        self.run(program, str(self.folder / "ini"))
        self.until(lambda: "process up" in self.log)
        return self


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """One Postgres for the complete run. Each test gets a database of its own by ``postgres_server``."""
    server = PostgresServer()
    try:
        yield server.make()
    finally:
        server.remove()


@pytest.fixture
def postgres_server(shared_postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A Postgres with a database that is empty."""
    shared_postgres.new_database()
    yield shared_postgres
    shared_postgres.drop_database()


@pytest.fixture
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A PgBouncer in front of the test's database."""
    bouncer = PgBouncer(postgres_server)
    try:
        yield bouncer.start()
    finally:
        bouncer.remove()


@pytest.fixture
def own_postgres() -> Iterator[Callable[[], PostgresServer]]:
    """Makes the test's own Postgres that can be stopped and frozen, with ``own_postgres()``."""
    with ExitStack() as stack:

        def make() -> PostgresServer:
            server = PostgresServer()
            stack.callback(server.remove)
            return server.make()

        yield make
