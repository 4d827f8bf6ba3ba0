"""asyncpg connections, from a pool for each event loop or from the caller, and the statements run on them.

No connection is returned with an open transaction or a running statement.
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
"""Maximum time that closing waits for running steps and for the server, in seconds."""

CONNECTIONS: Final = 4
"""The default of ``size=``: the number of open connections on one event loop."""

OWN_OPTIONS: Final = {"dsn", "loop", "connection_class", "record_class", "timeout"}
"""Arguments of ``asyncpg.connect`` that the caller cannot set."""


class Connection(Protocol):
    """The methods of an asyncpg connection that this package uses."""

    async def execute(self, query: str, /) -> Any:
        """Run statements without arguments."""

    async def fetch(self, query: str, /, *args: Any) -> Any:
        """Return the rows of one statement."""

    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        ...

    def terminate(self) -> None:
        """Close the connection without waiting."""


Lending = AbstractAsyncContextManager[Any]
"""An async context manager. Its value is a connection, for the time of the block."""

ConnectionSource = str | Callable[[], Lending]
"""A URL, or a function such as ``pool.acquire``."""

Rows = Sequence[Sequence[Any]]


def check_source(source: object, options: dict[str, Any]) -> None:
    """Check the user's *source*, and the *options* of its connections.

    Raises:
        ConfigurationError: *source* is neither a URL nor a function, or an option is unknown.
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
    """Return why asyncpg cannot read *url*, or None. The text contains no part of the password."""
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
    except ValueError:  # asyncpg's error would show the port, which may be part of the password
        is_cut = True
    return "has no valid host and port, or a password with / ? or #; write %2F %3F %23" if is_cut else None


class LoopConnections:
    """The connections of one event loop, and the line of steps that wait for a connection.

    Args:
        source: The source, as :func:`check_source` accepts it.
        table: The name of the table, for errors.
        size: Maximum number of connections at the same time.
        options: The options of this object's own connections.
    """

    def __init__(self, source: ConnectionSource, table: str, size: int, options: dict[str, Any]) -> None:
        """Store the arguments. No connection is opened yet."""
        self.line = StepLine("Postgres", size, FAILURES, partial(explain, table=table))
        self._source = source
        self._pool: Any = None
        if isinstance(source, str):
            # RESET ALL after each step would cost a round trip. SET LOCAL ends with the transaction.
            self._pool = asyncpg.create_pool(
                source, min_size=0, max_size=size, reset=_leave_as_it_is, **options
            )

    async def borrow(self, stack: AsyncExitStack) -> Connection:
        """Return a connection. It is returned to its source at the end of *stack*.

        Raises:
            BorrowError: The caller's function raised an error of any kind.
            ConfigurationError: The function's result cannot be used.
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
        """Close the connections that this object opened, after the running steps have ended."""
        if self._pool is not None:
            await self._pool
            with suppress(Exception), TimeLimit(asyncio.get_running_loop().time() + CLOSE_SECONDS):
                await self._pool.close()  # a cancelled close() terminates the connections

    def abandon(self) -> None:
        """Drop the connections that this object opened."""
        if self._pool is not None:
            with suppress(Exception):  # the loop is closed
                self._pool.terminate()


async def _leave_as_it_is(connection: object) -> None:
    pass


def check_lending(lending: object) -> None:
    """Refuse a result that is not an async context manager.

    Raises:
        ConfigurationError: *lending* is not an async context manager.
    """
    if hasattr(lending, "__aenter__"):
        return
    if asyncio.iscoroutine(lending):
        lending.close()  # otherwise Python warns that it was never awaited
    raise ConfigurationError(
        "source must return an async context manager, as pool.acquire does; it returned "
        f"{type(lending).__name__}",
        field="source",
    )


def check_connection(connection: Any) -> None:
    """Refuse an object that is not an asyncpg connection, and a connection in the caller's transaction.

    Raises:
        ConfigurationError: The connection cannot be used.
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
    """Return the rows of *sql* in a transaction. *begin* starts the transaction.

    The commit is a separate message. It is sent only if the step was not cancelled, so a statement that was
    delayed on its way never counts.
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
    """Return the rows of *sql*, run as a separate transaction."""
    try:
        return cast("Rows", await connection.fetch(sql, *args))
    except BaseException as error:
        await _give_back(connection, "SELECT", error)  # returns after the server has ended the statement
        raise


async def _give_back(connection: Connection, last: str, error: BaseException) -> None:
    """Run *last* on a connection whose step was cancelled or failed. If this fails, close the connection.

    If this call takes long after a cancellation, it is cancelled again, and ends. A connection to a read-only
    server is also closed, because after a failover, a new connection leads to the server that writes.
    """
    if isinstance(error, ONLY_READS):
        connection.terminate()
        return
    try:
        await connection.execute(last)
    except BaseException:  # the caller raises the first error or cancellation
        with suppress(Exception):
            connection.terminate()
