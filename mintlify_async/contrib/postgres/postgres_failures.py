"""The reason why Postgres cannot be used, in one line. It never contains a DETAIL, which may show a value."""

from __future__ import annotations

from typing import Final

import asyncpg

from ..remote_steps import AWAY, described


class BorrowError(Exception):
    """The caller's function returned no connection. Its error may come from any library."""


FAILURES: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    BorrowError,
    OSError,
    TimeoutError,
    RuntimeError,  # from a pool whose event loop is closed
    ValueError,  # from a part of the URL that asyncpg cannot read
)
"""Errors that mean that Postgres cannot be used."""

AGAIN: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""Errors after which the same statements may succeed. The failed statements have changed nothing."""

LOCKED: Final = asyncpg.LockNotAvailableError
"""Another session has the lock of a key or of the table."""

ONLY_READS: Final = asyncpg.ReadOnlySQLTransactionError
"""The server is a standby, perhaps after a failover. Its connections stay open."""

REASONS: Final = {
    "25006": "it only reads (a standby, or default_transaction_read_only)",
    "26000": "PgBouncer lost a prepared statement; give your pool statement_cache_size=0",
    "42P05": "PgBouncer mixed up prepared statements; give your pool statement_cache_size=0",
    "42P01": "it has no table {table}; call await store.setup(), or run the SQL of store.schema",
    "42703": "the table {table} has other columns than store.schema",
    "53300": "it has no connection left (max_connections): raise it, or let the stores keep fewer with size=",
    "55P03": "another session holds a lock",
    "57014": f"no answer in time; {AWAY}",
}
"""The reason for an SQLSTATE. For any other error, the reason is the error's first line."""


UNREACHABLE: Final = ("08", "28", "3D", "57P")
"""Prefixes of an SQLSTATE: no connection, a refused user, an unknown database, a server that stops."""


def explain(error: Exception, table: str) -> tuple[str, bool]:
    """Return the reason of *error*, and whether the waiting steps would fail in the same way."""
    if isinstance(error, BorrowError):
        return str(error), False
    if isinstance(error, asyncpg.DataError):
        return "DataError: a key or value cannot be stored", False  # the error's text may show them
    if isinstance(error, TimeoutError) and not str(error):
        return REASONS["57014"], True  # raised while asyncpg connects
    state = getattr(error, "sqlstate", None) or ""
    reason = REASONS[state].format(table=table) if state in REASONS else described(error)
    if state not in REASONS and (isinstance(error, OSError) or state.startswith(UNREACHABLE)):
        reason = f"{reason}; {AWAY}"
    return reason, isinstance(error, OSError)  # TimeoutError is an OSError
