"""PostgresStore while Postgres is away, frozen, locked, read-only or used up: no call hangs."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from mintlify_async import MintlifySession
from mintlify_async.contrib.postgres import PostgresStore
from mintlify_async.errors import StateError
from mintlify_async.storage.store import change, new_version
from mintlify_async.testing import LocalService
from mintlify_async.testing.held_wire import HeldWire
from mintlify_async.testing.store_cases import BLOCK, A, B, count, put, values, windows
from tests.support.keyed_worker import engine_of
from tests.support.postgres_server import PostgresServer

BOUND = 12.5
"""Ten times the 1.25 s of a step with ``timeout=1``, a quarter of a second of which ends its statement."""


@pytest.fixture
async def impatient(store: PostgresStore, postgres_server: PostgresServer) -> AsyncIterator[PostgresStore]:
    """A store whose steps take a second at most."""
    impatient = PostgresStore(postgres_server.url, timeout=1)
    await put(impatient, A)
    yield impatient
    await impatient.close()


@asynccontextmanager
async def fails(reason: str) -> AsyncIterator[None]:
    """The block raises a StateError with *reason* in time. Neither text nor cause has a detail."""
    start = time.monotonic()
    with pytest.raises(StateError, match=f"the store on Postgres cannot be used: .*{reason}") as caught:
        yield
    assert time.monotonic() - start < BOUND
    shown = "".join(traceback.format_exception(caught.value))
    assert "DETAIL" not in shown
    assert "asyncpg.exceptions" not in shown


# The server is away


async def test_after_a_restart_nothing_fails(own_postgres: Callable[[], PostgresServer]):
    """While it is down, a step ends at once. The connections from before are not used again."""
    server = own_postgres()
    store = PostgresStore(server.url, timeout=5)
    await store.setup()
    await put(store, A)
    server.stop()
    await asyncio.sleep(0.1)
    async with fails("(ConnectionRefusedError|Connect call failed).*; check that the server runs"):
        await store.read([A])
    server.start()
    for _ in range(3):
        assert await values(store, A) == {A: b"1"}
    await store.close()


async def test_a_wrong_url_says_what_to_do(postgres_server: PostgresServer):
    """Its user, its database or its port."""
    right, port = postgres_server.url, str(postgres_server.port)
    wrong_urls = {
        "nobody": postgres_server.url_at(postgres_server.port, "nobody"),
        "no_such_database": right.replace(f"/{postgres_server.database}", "/no_such_database"),
        "ConnectionRefusedError|Connect call failed": right.replace(port, "1"),
    }
    for reason, url in wrong_urls.items():
        store = PostgresStore(url, timeout=5)
        async with fails(f"({reason}).*; check that the server runs .* and that its URL"):
            await store.read([A])
        await store.close()


async def test_when_all_backends_are_terminated_nothing_fails(
    store: PostgresStore, postgres_server: PostgresServer
):
    """An idle connection that the server has closed is noticed before it is used."""
    await asyncio.gather(*(put(store, A) for _ in range(8)))
    postgres_server.say(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        f"AND datname = '{postgres_server.database}'"
    )
    await asyncio.sleep(0.1)
    for _ in range(3):
        await put(store, A, b"2")
    assert await values(store, A) == {A: b"2"}


async def test_a_frozen_server_ends_a_step_in_time(own_postgres: Callable[[], PostgresServer]):
    """It accepts what is sent, and answers nothing. With ``timeout=1`` a step takes 1.25 s."""
    server = own_postgres()
    store = PostgresStore(server.url, timeout=1)
    await store.setup()
    for step in (
        lambda: store.read([A]),
        lambda: put(store, B),
        lambda: store.take(windows(a=(1, 60)), slot="s", block=BLOCK),
        lambda: store.refund(windows(a=(1, 60)), slot="s"),
    ):
        await put(store, A)  # the step has a connection that is open
        server.freeze()
        async with fails("no answer within the timeout of 1 s; check that the server runs"):
            await step()
        # The store connects anew: the limit of connecting or that of the step ends it, both are 1 s.
        async with fails("no answer (within the timeout of 1 s|in time)"):
            await step()
        server.freeze(thaw=True)
        await asyncio.sleep(0.1)
    server.freeze()
    crowd = asyncio.gather(*(put(store, A) for _ in range(100)), return_exceptions=True)
    start = time.monotonic()
    assert all(isinstance(result, StateError) for result in await crowd)
    assert time.monotonic() - start < BOUND  # for all of them; four at a time would take 30 s
    server.freeze(thaw=True)
    await asyncio.sleep(0.1)
    assert await values(store, A) == {A: b"1"}
    await store.close()


async def test_nothing_is_sent_while_the_claim_cannot_be_written():
    """The server was never there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = PostgresStore(f"postgresql://127.0.0.1:{port}/app", timeout=1)
    async with LocalService() as service, service.session(ledger=store) as session:
        assert isinstance(session, MintlifySession)
        async with fails("refused|Connect call failed"):
            await session.create_job("x", dedupe_key="key", timeout=1)
        assert service.requests.count("create_job") == 0


# The server refuses


async def test_a_server_that_only_reads(store: PostgresStore, postgres_server: PostgresServer):
    """A standby after a failover: what only looks works, and each other step says why not."""
    await put(store, A)
    await store.take(windows(a=(5, 60)), slot="one", block=BLOCK)
    postgres_server.say(f"ALTER DATABASE {postgres_server.database} SET default_transaction_read_only = on")
    await store.close()
    assert await values(store, A) == {A: b"1"}
    assert await store.keys("room/open/") == [A]
    assert (await store.take(windows(a=(5, 60)), slot=None, block=BLOCK)).usage[0].used == 1
    await store.setup()
    for call in (
        lambda: put(store, A),
        lambda: store.take(windows(a=(5, 60)), slot="two", block=BLOCK),
        lambda: store.refund(windows(a=(5, 60)), slot="one"),
    ):
        async with fails("it only reads"):
            await call()


@pytest.mark.parametrize("source", ["url", "function"])
async def test_after_a_failover_the_store_connects_again(
    store: PostgresStore, postgres_server: PostgresServer, source: str
):
    """The old server only reads, and keeps its connections. Each of them fails one step at most."""

    def only_reads(word: str) -> None:
        name = postgres_server.database
        postgres_server.say(
            f"ALTER DATABASE {name} SET default_transaction_read_only = {word}", database="postgres"
        )

    await put(store, A)
    only_reads("on")  # for connections that are opened from now on
    async with asyncpg.create_pool(postgres_server.url, min_size=4, max_size=4) as pool:
        after = PostgresStore(postgres_server.url if source == "url" else pool.acquire, timeout=10)
        await asyncio.gather(*(after.read([A]) for _ in range(4)))
        only_reads("off")
        failures = 0
        for _ in range(10):
            try:
                await put(after, A, b"2")
            except StateError:
                failures += 1
        assert 0 < failures <= 4
        assert await values(after, A) == {A: b"2"}
        await after.close()


async def test_without_its_table(postgres_server: PostgresServer):
    """The error says how the table is made."""
    store = PostgresStore(postgres_server.url)
    for call in (lambda: store.read([A]), lambda: put(store, A)):
        async with fails("it has no table mintlify_async; call await store.setup"):
            await call()
    await store.close()


@pytest.mark.parametrize("step", ["read", "write", "take"])
async def test_a_lock_of_another_session(
    impatient: PostgresStore, postgres_server: PostgresServer, step: str
):
    """A migration that keeps the table locked: the step ends, and the server says why where it can."""
    other = await asyncpg.connect(postgres_server.url)
    async with other.transaction():
        await other.execute("LOCK TABLE mintlify_async")
        async with fails("another session holds a lock" if step != "read" else "no answer within"):
            await {
                "read": lambda: impatient.read([A]),
                "write": lambda: put(impatient, A),
                "take": lambda: impatient.take(windows(a=(1, 60)), slot="s", block=BLOCK),
            }[step]()
    await other.close()
    assert await values(impatient, A) == {A: b"1"}


async def test_a_process_that_is_stopped_in_a_step_frees_its_key(
    impatient: PostgresStore, postgres_server: PostgresServer
):
    """The server ends a transaction that says nothing for half of the time of a step."""
    other = await asyncpg.connect(postgres_server.url)
    store = PostgresStore(lambda: _Stopped(other), timeout=1)
    stopped = asyncio.create_task(put(store, A))
    await asyncio.sleep(0.1)
    await put(impatient, A, b"2")  # waits for the key's lock
    assert await values(impatient, A) == {A: b"2"}
    with pytest.raises(StateError):
        await stopped
    other.terminate()


@pytest.mark.parametrize("between", ["nothing", "PgBouncer"])
async def test_a_process_that_is_stopped_in_a_statement_frees_its_key(
    request: pytest.FixtureRequest, impatient: PostgresStore, postgres_server: PostgresServer, between: str
):
    """Its statement has arrived without the values. No limit of the server ends it, but who waits does."""
    port = postgres_server.port if between == "nothing" else request.getfixturevalue("pgbouncer").port
    async with HeldWire("127.0.0.1", port) as wire:
        held = PostgresStore(postgres_server.url_at(wire.port), timeout=1)
        await put(held, B)
        wire.hold(2, 60.0)
        stopped = asyncio.create_task(held.write({A: b"late"}, expected={A: None}, version="late"))
        while not wire.is_holding:
            await asyncio.sleep(0.01)
        await put(impatient, A, b"2")
        with pytest.raises(StateError):
            await stopped
        assert await values(held, A) == {A: b"2"}
        await held.close()


async def test_who_waits_for_its_turn_ends_no_transaction(
    store: PostgresStore, postgres_server: PostgresServer
):
    """A transaction that waits for a lock, or that works for long, is not that of a stopped process."""
    patient = PostgresStore(postgres_server.url, timeout=20)
    hasty = PostgresStore(postgres_server.url, timeout=1)
    other = await asyncpg.connect(postgres_server.url)
    async with other.transaction():
        await other.execute("LOCK TABLE mintlify_async")
        step = asyncio.create_task(put(patient, A, b"2"))
        await asyncio.sleep(0.3)
        for _ in range(2):
            async with fails("another session holds a lock|no answer"):
                await put(hasty, A)
    await step
    assert await values(store, A) == {A: b"2"}
    for each in (patient, hasty, other):
        await each.close()


class _Stopped:
    """Lends a connection whose statements come after a minute, once the transaction has begun."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> _Stopped:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    async def fetch(self, *_: object) -> None:
        await asyncio.sleep(60)


async def test_a_used_up_pool_of_the_app(store: PostgresStore, postgres_server: PostgresServer):
    """A pool of asyncpg has no limit of its own for the wait."""
    async with asyncpg.create_pool(postgres_server.url, min_size=0, max_size=1) as pool:
        lent = PostgresStore(pool.acquire, timeout=1)
        async with pool.acquire(), fails("no answer within the timeout of 1 s"):
            await lent.read([A])
        await put(lent, A)


async def test_a_server_without_a_free_connection(own_postgres: Callable[[], PostgresServer]):
    """As it says itself."""
    server = own_postgres()
    store = PostgresStore(server.url, timeout=5)
    connections = []
    with contextlib.suppress(asyncpg.TooManyConnectionsError):
        while True:
            connections.append(await asyncpg.connect(server.url))
    async with fails("it has no connection left .* fewer with size="):
        await store.read([A])
    for connection in connections:
        await connection.close()


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_the_level_of_a_role_changes_nothing(
    store: PostgresStore, postgres_server: PostgresServer, level: str
):
    """With the role's level, a count would be wrong, or most steps would fail."""
    postgres_server.say(
        f"ALTER DATABASE {postgres_server.database} SET default_transaction_isolation = '{level}'"
    )
    await store.close()
    limits = windows(a=(50, 60), b=(70, 60))
    slots = [new_version() for _ in range(150)]
    results = await asyncio.gather(*(store.take(limits, slot=slot, block=BLOCK) for slot in slots))
    assert sum(result.taken for result in results) == 50
    await asyncio.gather(*(change(store, [A], count) for _ in range(30)))
    assert await values(store, A) == {A: b"30"}
    await asyncio.gather(
        *(store.refund(limits, slot=slot) for slot in slots),
        *(store.read([A]) for _ in range(50)),
        *(put(store, f"room/open/{n}", keep=0.001) for n in range(250)),
    )
    look = await store.take(limits, slot=None, block=BLOCK)
    assert [usage.used for usage in look.usage] == [0, 0]


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_a_statement_that_could_not_be_ordered_is_repeated(
    store: PostgresStore, postgres_server: PostgresServer, level: str
):
    """A refund is a statement by itself, at the level of the role. Nothing was done, so it is run again."""
    database = postgres_server.database
    postgres_server.say(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
    await store.close()
    limits = windows(a=(5, 60))
    await store.take(limits, slot="one", block=BLOCK)
    other = await asyncpg.connect(postgres_server.url)
    async with other.transaction():
        await other.execute("UPDATE mintlify_async SET ends = ends + 1")
        refund = asyncio.create_task(store.refund(limits, slot="one"))
        await asyncio.sleep(0.2)  # it waits for the row
    await refund
    assert (await store.take(limits, slot=None, block=BLOCK)).usage[0].used == 0
    await other.close()


async def test_a_slow_clean_up_fails_nobody(store: PostgresStore, postgres_server: PostgresServer):
    """It ends after a quarter of a second. Steps that wait for its connection are done after it."""
    await put(store, "room/done/first")
    await put(store, A, keep=0.001)
    postgres_server.say(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN PERFORM pg_sleep(9); RETURN OLD; END'",
        "CREATE TRIGGER slow BEFORE DELETE ON mintlify_async FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    narrow = PostgresStore(postgres_server.url, timeout=20, size=1)
    start = time.monotonic()
    first = asyncio.create_task(put(narrow, "room/open/first"))
    await asyncio.sleep(0.15)  # it cleans up
    await asyncio.gather(first, *(put(narrow, f"room/open/{number}") for number in range(49)))
    assert time.monotonic() - start < 5
    assert len(await narrow.keys("room/open/")) == 50
    await narrow.close()


async def test_time_is_read_behind_the_lock(store: PostgresStore, postgres_server: PostgresServer):
    """A slot that was taken after a wait counts from its taking. Else a window would have too many."""
    await store.take(windows(a=(5, 60)), slot="one", block=BLOCK)
    other = await asyncpg.connect(postgres_server.url)
    async with other.transaction():
        await other.execute("LOCK TABLE mintlify_async")
        take = asyncio.create_task(store.take(windows(a=(5, 60)), slot="two", block=BLOCK))
        write = asyncio.create_task(put(store, A))
        await asyncio.sleep(0.5)
        released = await other.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    await asyncio.gather(take, write)
    assert (await store.read([A])).records[A].since >= released
    since = await other.fetchval("SELECT since FROM mintlify_async WHERE slot = 'two'")
    assert since >= released
    await other.close()


async def test_no_value_is_shown(store: PostgresStore, postgres_server: PostgresServer):
    """The server's DETAIL has the row, which may contain a thread's key."""
    postgres_server.say("ALTER TABLE mintlify_async ADD CHECK (length(value) < 5)")
    async with fails("CheckViolationError: new row"):
        await put(store, A, bytes(9))
    key = "room/open/\0" + chr(104) * 9
    with pytest.raises(StateError, match="DataError: a key or value cannot be stored") as caught:
        await store.write({A: b"1"}, expected={key: None}, version="v")
    assert chr(104) * 9 not in "".join(traceback.format_exception(caught.value))


# Cancelled steps


@pytest.mark.parametrize("lender", ["url", "pool", "sqlalchemy"])
async def test_cancelled_steps_leave_whole_connections(
    store: PostgresStore, postgres_server: PostgresServer, lender: str
):
    """Each ends within a second. None goes back with a transaction open, and the app's own queries work."""
    dice = random.Random(lender)
    async with lenders(lender, postgres_server) as (cancelled, query):
        await put(cancelled, A)
        other = await asyncpg.connect(postgres_server.url)
        longest = 0.0
        for number in range(60):
            async with other.transaction():
                if number % 3 == 0:
                    await other.execute("LOCK TABLE mintlify_async")
                steps = [asyncio.create_task(put(cancelled, A)), asyncio.create_task(cancelled.read([A]))]
                await asyncio.sleep(dice.uniform(0, 0.01))
                start = time.monotonic()
                for step in steps:
                    step.cancel()
                await asyncio.wait(steps)
                longest = max(longest, time.monotonic() - start)
            if query:
                await query()
        assert longest < 1.0
        idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        assert postgres_server.say(idle) == "0"
        assert postgres_server.say("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0"
        await put(cancelled, A, b"2")
        await other.close()


@asynccontextmanager
async def lenders(kind: str, server: PostgresServer) -> AsyncIterator[tuple[PostgresStore, Callable | None]]:
    """A store on connections of a *kind*, and a query of the app on one of them."""
    if kind == "url":
        store = PostgresStore(server.url, timeout=20)
        yield store, None
        await store.close()
    elif kind == "pool":
        async with asyncpg.create_pool(server.url, min_size=0, max_size=2) as pool:

            async def query() -> None:
                async with pool.acquire() as connection, connection.transaction():
                    assert await connection.fetchval("SELECT 1") == 1

            yield PostgresStore(pool.acquire, timeout=20), query
    else:
        pytest.importorskip("sqlalchemy")
        from sqlalchemy import text

        async with engine_of(server.url.replace(":", "+asyncpg:", 1)) as (engine, connection):

            async def ask() -> None:
                async with engine.begin() as connection:
                    assert (await connection.execute(text("SELECT 1"))).scalar() == 1

            yield PostgresStore(connection, timeout=20), ask
