"""A store in one table of a Postgres database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from mintlify_async.argument_checks import LARGEST, check_keep, check_number
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.runtime.per_event_loop import LoopLocal
from mintlify_async.runtime.time_limits import TimeLimit
from mintlify_async.storage.store import Record, Snapshot, TakeResult, Usage, Window

from ..remote_steps import STEP_SECONDS, FirstLoop
from .connections import (
    CONNECTIONS,
    Connection,
    ConnectionSource,
    LoopConnections,
    Rows,
    check_source,
    run_statement,
    run_transaction,
)
from .postgres_failures import AGAIN, FAILURES, LOCKED
from .statements import Statements, lock_numbers

CLEAN_EVERY: Final = 100
"""Number of writing steps between two clean-ups. The first writing step of a process also cleans up."""

CLEAN_SECONDS: Final = 0.25
"""Maximum duration of a clean-up, in seconds. The caller of a step waits for it."""

LIMITS: Final = {"idle_in_transaction_session": 0.5, "lock": 0.7, "statement": 0.9}
"""The server's limits, as fractions of a step's time. The limits expire before the step's time is over,
so that the server still reports why the step failed.

If the commit of a step is delayed, a release waits for its lock. Therefore the server must end the step
before the lock limit of the release expires.
"""

LARGEST_INT: Final = 2**31 - 1
LARGEST_BIGINT: Final = 2**63 - 1


class PostgresStore:
    """A store in Postgres, shared by all processes and machines that use it. The server's time is used.

    Make the store's table once, with ``await store.setup()``, or put :attr:`schema` into a migration.

    With a URL, the store has a pool for each event loop. The store may be used from several threads and in
    several calls of ``asyncio.run``, and :meth:`close` closes the connections. With a function, the store
    belongs to the event loop that uses it first.

    Each step is a separate transaction, never a part of your transaction. Otherwise your rollback could
    remove a claim, and its request would be sent again. PgBouncer may be used, also in transaction mode.

    Conversations contain the keys of threads.

    A step raises :class:`~mintlify_async.errors.StateError` if Postgres does not respond in time. If a
    process is stopped during a step, the server ends the transaction. If no limit of the server applies, the
    next step that waits for the same key ends the stopped process's connection with
    ``pg_terminate_backend``. This requires the same role.

    Example::

        store = PostgresStore("postgresql://app@localhost/app")
        await store.setup()
        async with MintlifySession(ledger=store, quota=Quota(store=store)) as session:
            ...

    Args:
        source: A URL, ``postgresql://user@host:port/database``. Or a function that returns an async context
            manager of an asyncpg connection, such as ``pool.acquire``. The store never closes such
            connections.
        table: The table, ``name`` or ``schema.name``.
        timeout: Maximum duration of one step, in seconds. A cancelled step ends in about 0.3 s.
        keep: Seconds for which finished records are kept. None keeps them without limit.
        size: Maximum number of connections on one event loop. Other steps wait.
        options: With a URL: arguments of ``asyncpg.connect``, such as ``ssl``. The ``password`` may be a
            function. ``statement_cache_size`` is 0, because PgBouncer needs it.

    Raises:
        ConfigurationError: An argument is invalid. Nothing is sent yet.
    """

    def __init__(
        self,
        source: ConnectionSource,
        *,
        table: str = "mintlify_async",
        timeout: float = STEP_SECONDS,
        keep: float | None = None,
        size: int = CONNECTIONS,
        **options: Any,
    ) -> None:
        check_source(source, options)
        self._sql = Statements(table)
        self.table = table
        check_number(timeout, "timeout", 0.001, most=LARGEST)
        check_number(size, "size", 1, whole=True)
        self.keep = check_keep(keep)
        self._timeout = timeout
        self._begin = _begin(timeout)
        self._source, self._size = source, size
        self._options = {"statement_cache_size": 0, "timeout": timeout, **options}
        self._first_loop = FirstLoop()
        self._loops = LoopLocal(self._connect)
        self._writes = 0

    def __repr__(self) -> str:
        """Show the table. The URL is left out, because it may contain a password."""
        return f"PostgresStore(table={self.table!r})"

    @property
    def schema(self) -> str:
        """The SQL that makes the table, for a migration."""
        return self._sql.schema

    async def setup(self) -> None:
        """Make the table if it does not exist. Many processes may call this, at the same time and repeatedly.

        Raises:
            StateError: Postgres cannot be used, or the role may not make tables.
        """
        # A role that may not make tables gets no error if the table exists.
        [(exists,)] = await self._statement("SELECT to_regclass($1::text) IS NOT NULL", self._sql.table)
        if not exists:
            begin = f"{self._begin}; {self._sql.setup_lock()}"
            await self._step(lambda connection: run_transaction(connection, begin, self._sql.schema, ()))

    async def close(self) -> None:
        """Close the connections that this store opened from its URL, on every event loop.

        The records stay. The store stays usable.
        """
        loops, self._loops = self._loops, LoopLocal(self._connect)
        await loops.close()

    aclose = close

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the existing records of *keys*, and the server's time."""
        rows = await self._statement(self._sql.read, list(keys))
        if any(row[5] for row in rows):
            await self._correct(keys)
        records = {
            # The codec of an app's pool may have converted the bytes to another type.
            key: Record(value=bytes(v), version=name, since=since)
            for _, key, v, name, since, _ in rows
            if key
        }
        return Snapshot(records=records, now=rows[0][0])

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        expected: Mapping[str, str | None],
        version: str,
        keep: float | None = None,
    ) -> bool:
        """If every record still has its *expected* version, make all *changes*. Otherwise make none."""
        puts = {key: value for key, value in changes.items() if value is not None}
        gone = [key for key in changes if key not in puts]
        unchanged = [key for key in expected if key not in changes]
        [(done,)] = await self._transaction(
            [*changes, *expected],
            self._sql.write,
            *(list(expected), list(expected.values())),
            *(gone, list(puts), list(puts.values()), version, keep, unchanged),
        )
        await self._clean_at_times()
        return bool(done)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with *prefix*, sorted."""
        return [key for (key,) in await self._statement(self._sql.keys, prefix, prefix + "\U0010ffff")]

    async def take(self, windows: Sequence[Window], *, slot: str | None, block: str) -> TakeResult:
        """If every window has a free slot and there is no block, take *slot* in all windows."""
        logs = [window.key for window in windows]
        amounts = [min(window.amount, LARGEST_BIGINT) for window in windows]
        args = (logs, amounts, [float(window.seconds) for window in windows], slot, block)
        if slot is None:
            rows = await self._statement(self._sql.look, *args)
        else:
            rows = await self._transaction(logs, self._sql.take, *args)
            await self._clean_at_times()
        is_taken, block_seconds, is_ahead, *_ = rows[0]
        if is_ahead:
            await self._correct([*logs, block])
        usage = [Usage(used=row[3], opens_in=max(0.0, row[4])) for row in rows[: len(windows)]]
        return TakeResult(taken=is_taken, blocked=block_seconds, usage=tuple(usage))

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Return *slot* to every window. If it is not taken, do nothing."""
        await self._statement(self._sql.refund, [window.key for window in windows], slot)

    async def _correct(self, keys: Collection[str]) -> None:
        with suppress(StateError):  # a read-only server refuses this
            await self._statement(self._sql.correct, list(keys))

    async def _clean_at_times(self) -> None:
        """Delete expired rows outside of the step, because two steps could wait for each other's rows."""
        self._writes += 1
        if self._writes % CLEAN_EVERY == 1:
            with suppress(StateError):
                await self._step(self._clean)

    async def _clean(self, connection: Connection) -> Rows:
        # With a separate limit, because a slow clean-up must not look like an unavailable server.
        with suppress(TimeoutError), TimeLimit(asyncio.get_running_loop().time() + CLEAN_SECONDS):
            await run_statement(connection, self._sql.clean, ())
        return ()

    async def _statement(self, sql: str, *args: Any) -> Rows:
        return await self._step(lambda connection: run_statement(connection, sql, args))

    async def _transaction(self, keys: Collection[str], sql: str, *args: Any) -> Rows:
        numbers = lock_numbers(keys)
        begin = "; ".join([self._begin, *self._sql.locks(numbers)])

        async def work(connection: Connection) -> Rows:
            try:
                return await run_transaction(connection, begin, sql, args)
            except LOCKED:
                ended: Rows = ()
                idle = self._timeout * LIMITS["idle_in_transaction_session"]
                with suppress(*FAILURES):  # the role may not see or end other connections
                    ended = await run_statement(connection, self._sql.end_stopped, (numbers, idle))
                if not ended:
                    raise
            return await run_transaction(connection, begin, sql, args)

        return await self._step(work)

    async def _step(self, work: Callable[[Connection], Awaitable[Rows]]) -> Rows:
        """Return the result of *work* on a connection.

        Raises:
            StateError: Postgres did not respond in time, or refused.
            ConfigurationError: The source cannot be used, or belongs to another event loop.
        """
        here = self._loops.get()

        async def step() -> Rows:
            async with AsyncExitStack() as stack:
                connection = await here.borrow(stack)
                while True:
                    # A separate statement has the isolation level of the role, which may be serializable.
                    with suppress(*AGAIN):
                        return await work(connection)

        return await here.line.run(step, self._timeout)

    def _connect(self) -> LoopConnections:
        if not isinstance(self._source, str) and not self._first_loop.is_running():
            raise ConfigurationError(
                "source: another event loop used this function first, and its connections belong to it; "
                "create one store for each event loop, or give a URL",
                field="source",
            )
        return LoopConnections(self._source, self.table, self._size, self._options)


def _begin(seconds: float) -> str:
    """Return the statements that start a transaction of at most *seconds*.

    The transaction sets its isolation level, because a role can have another default level. With another
    level, a count could be wrong.
    """
    settings = [
        f"SET LOCAL {name}_timeout = {min(LARGEST_INT, max(1, round(seconds * 1000 * part)))}"
        for name, part in LIMITS.items()
    ]
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *settings])
