"""Connections of asyncpg: from a pool for each event loop, or from the caller, and what runs on one.

No connection goes back with a transaction open, or in the middle of a statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from inspect import signature
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from .. import extra_missing

try:
    import asyncpg
except ModuleNotFoundError as error:
    raise extra_missing("postgres", error) from None

from mintlify_async.errors import ConfigurationError, MintlifyError, printable
from mintlify_async.runtime.time_limits import TimeLimit

from ..remote_steps import StepLine, described
from .postgres_failures import FAILURES, ONLY_READS, BorrowError, explain

CLOSE_SECONDS: Final = 1.0
"""How long closing waits for running steps and for the server, in seconds."""

CONNECTIONS: Final = 4
"""The default of ``size=``: how many connections are open at a time on one event loop."""

OWN_OPTIONS: Final = {"dsn", "loop", "connection_class", "record_class", "timeout"}
"""Arguments of ``asyncpg.connect`` that are not the caller's."""


class Connection(Protocol):
    """The methods used of an asyncpg connection."""

    async def execute(self, query: str, /) -> Any:
        """Run statements without arguments."""

    async def fetch(self, query: str, /, *args: Any) -> Any:
        """Return the rows of one statement."""

    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        ...

    def terminate(self) -> None:
        """Close it without waiting."""


Lending = AbstractAsyncContextManager[Any]
"""Lends a connection for the time of its block."""

ConnectionSource = str | Callable[[], Lending]
"""A URL, or a function such as ``pool.acquire``."""

Rows = Sequence[Sequence[Any]]


def check_source(source: object, options: dict[str, Any]) -> None:
    """Check what a user gave as source, and the *options* of its connections.

    Raises:
        ConfigurationError: It is neither a URL nor a function, or an option is unknown.
    """
    if isinstance(source, str):
        if problem := _url_problem(source):
            raise ConfigurationError(f"source {problem}", field="source")
        known = set(signature(asyncpg.connect).parameters) - OWN_OPTIONS
    elif callable(source) and not isinstance(source, type):
        known = set[str]()
    else:
        raise ConfigurationError(
            "source must be a URL such as postgresql://user@host/database, or a function that lends a "
            f"connection of asyncpg, such as pool.acquire; got {type(source).__name__}",
            field="source",
        )
    for name in options:
        if name not in known:
            what = "no option of asyncpg.connect" if known else "for a URL only; set it where you connect"
            raise ConfigurationError(f"{printable(name, 80)} is {what}", field=name)


def _url_problem(url: str) -> str | None:
    """Return why asyncpg cannot read *url*, or None. The text shows nothing of a password."""
    scheme = url.partition(":")[0]
    if scheme in ("postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"):
        return "is a URL for SQLAlchemy; write postgresql:// without +, and the options of asyncpg behind ?"
    if scheme not in ("postgresql", "postgres") or not url.isprintable():
        return "must be a URL that begins with postgresql://"
    parts = urlsplit(url)
    _, at, hosts = parts.netloc.rpartition("@")
    try:
        for host in hosts.split(","):
            _ = urlsplit(f"//{host}").port
        is_cut = not at and "@" in parts.path + parts.fragment
    except ValueError:  # asyncpg's error would show it, and it may be a part of the password
        is_cut = True
    return "has no valid host and port, or a password with / ? or #; write %2F %3F %23" if is_cut else None


class LoopConnections:
    """The connections of one event loop, and the line of the steps that wait for one.

    Args:
        source: As :func:`check_source` takes it.
        table: The table, for errors.
        size: Connections at a time.
        options: The options of the own connections.
    """

    def __init__(self, source: ConnectionSource, table: str, size: int, options: dict[str, Any]) -> None:
        """Connect to nothing yet."""
        self.line = StepLine("Postgres", size, FAILURES, partial(explain, table=table))
        self._source = source
        self._pool: Any = None
        if isinstance(source, str):
            # RESET ALL after each step would cost a round trip. SET LOCAL ends with its transaction.
            self._pool = asyncpg.create_pool(
                source, min_size=0, max_size=size, reset=_leave_as_it_is, **options
            )

    async def borrow(self, stack: AsyncExitStack) -> Connection:
        """Return a connection, which goes back at the end of *stack*.

        Raises:
            BorrowError: The caller's function failed, in its own way.
            ConfigurationError: The function does not fit.
        """
        if self._pool is not None:
            await self._pool  # it opens nothing and does not suspend, because min_size is 0
            return cast("Connection", await stack.enter_async_context(self._pool.acquire()))
        try:
            lending = cast("Callable[[], Lending]", self._source)()
            check_lending(lending)
            connection = await stack.enter_async_context(lending)
        except (MintlifyError, *FAILURES):
            raise
        except Exception as error:
            raise BorrowError(described(error)) from None
        check_connection(connection)
        return cast("Connection", connection)

    async def close(self) -> None:
        """Close the own connections, after running steps."""
        if self._pool is not None:
            await self._pool
            with suppress(Exception), TimeLimit(asyncio.get_running_loop().time() + CLOSE_SECONDS):
                await self._pool.close()  # if it is cancelled, it terminates

    def abandon(self) -> None:
        """Drop the own connections."""
        if self._pool is not None:
            with suppress(Exception):  # of a closed loop
                self._pool.terminate()


async def _leave_as_it_is(connection: object) -> None:
    pass


def check_lending(lending: object) -> None:
    """Refuse what lends nothing.

    Raises:
        ConfigurationError: It is no async context manager.
    """
    if hasattr(lending, "__aenter__"):
        return
    if asyncio.iscoroutine(lending):
        lending.close()  # or Python warns that it was never awaited
    raise ConfigurationError(
        "source must return an async context manager, as pool.acquire does; it returned "
        f"{type(lending).__name__}",
        field="source",
    )


def check_connection(connection: Any) -> None:
    """Refuse what is no connection of asyncpg, and a connection whose transaction is the caller's.

    Raises:
        ConfigurationError: It cannot be used.
    """
    if not hasattr(connection, "fetch") or not hasattr(connection, "is_in_transaction"):
        kind = f"{type(connection).__module__}.{type(connection).__name__}"
        raise ConfigurationError(f"source must lend a connection of asyncpg, not a {kind}", field="source")
    if connection.is_in_transaction():
        raise ConfigurationError(
            "source lent a connection with an open transaction. A step must not be part of your transaction, "
            "because a claim that you roll back would be sent again; lend a connection of its own",
            field="source",
        )


async def run_transaction(connection: Connection, begin: str, sql: str, args: Sequence[Any]) -> Rows:
    """Return the rows of *sql* in a transaction, which *begin* starts.

    The commit is a message of its own. It is sent only when nobody has cancelled, so a statement that was
    held up on its way never counts.
    """
    try:
        await connection.execute(begin)
        rows = await (connection.fetch(sql, *args) if args else connection.execute(sql))
        await connection.execute("COMMIT")
    except BaseException as error:
        await _give_back(connection, "ROLLBACK", error)
        raise
    return cast("Rows", rows)


async def run_statement(connection: Connection, sql: str, args: Sequence[Any]) -> Rows:
    """Return the rows of *sql*, a transaction by itself."""
    try:
        return cast("Rows", await connection.fetch(sql, *args))
    except BaseException as error:
        await _give_back(connection, "SELECT", error)  # it waits until the server has ended the statement
        raise


async def _give_back(connection: Connection, last: str, error: BaseException) -> None:
    """Run *last* on a connection whose step was cancelled or failed. If that is not possible, close it.

    A step that was cancelled is cancelled again if this takes long. It then ends here. A connection to a
    server that only reads is closed, too: after a failover, a new one leads to the server that writes.
    """
    if isinstance(error, ONLY_READS):
        connection.terminate()
        return
    try:
        await connection.execute(last)
    except BaseException:  # the caller raises the first error or cancellation
        with suppress(Exception):
            connection.terminate()
