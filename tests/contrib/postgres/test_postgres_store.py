"""PostgresStore: the shared cases, direct and through PgBouncer and SQLAlchemy; loops, table, arguments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from mintlify_async.contrib.postgres import PostgresStore
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.storage.store import Store, new_version
from mintlify_async.testing.store_cases import BLOCK, A, StoreCases, WireCases, put, values, windows
from tests.support.documented_rights import documented, use
from tests.support.keyed_worker import opened
from tests.support.own_time_cases import count_in_threads
from tests.support.postgres_server import PgBouncer, PostgresServer


class TestPostgresStore(StoreCases):
    """The cases of every store."""

    @pytest.fixture(params=["direct", "pgbouncer", "sqlalchemy"])
    async def store(self, request: Any, postgres_server: PostgresServer) -> AsyncIterator[Store]:
        url = postgres_server.url
        if request.param == "sqlalchemy":
            pytest.importorskip("sqlalchemy")
            url = postgres_server.url.replace(":", "+asyncpg:", 1)
        elif request.param == "pgbouncer":
            url = request.getfixturevalue("pgbouncer").url
        async with opened(url, timeout=20) as store:
            yield store


class TestPostgresWire(WireCases):
    """BEGIN, the statement or COMMIT comes late."""

    @pytest.fixture
    def address(self, postgres_server: PostgresServer) -> tuple[str, int]:
        return "127.0.0.1", postgres_server.port

    @pytest.fixture
    def reach(self, postgres_server: PostgresServer) -> Any:
        @asynccontextmanager
        async def reach(port: int) -> AsyncIterator[Store]:
            store = PostgresStore(postgres_server.url_at(port))
            await store.setup()
            yield store
            await store.close()

        return reach


# Connections and loops


def test_three_runs_and_four_threads_with_one_store(postgres_server: PostgresServer):
    """The connections of a loop are closed with it, without any call of the user."""
    store = PostgresStore(postgres_server.url, timeout=20)
    asyncio.run(store.setup())
    for number in range(3):
        asyncio.run(put(store, f"room/open/{number}"))
    assert postgres_server.connections() == 0
    asyncio.run(count_in_threads(store))
    assert postgres_server.connections() == 0


async def test_a_closed_store_can_be_used_again(store: PostgresStore, postgres_server: PostgresServer):
    """As the other stores, which have nothing to close."""
    await put(store, A)
    assert postgres_server.connections() >= 1
    await store.close()
    assert postgres_server.connections() == 0
    assert await values(store, A) == {A: b"1"}


async def test_at_most_four_connections(store: PostgresStore, postgres_server: PostgresServer):
    """Six hundred steps wait their turn."""
    steps = [store.read([A]) for _ in range(600)]
    assert len(await asyncio.gather(*steps)) == 600
    assert postgres_server.connections() <= 4


async def test_a_function_on_another_loop_is_refused(postgres_server: PostgresServer):
    """Its connections belong to the loop that used it first; the error says what to do."""
    async with asyncpg.create_pool(postgres_server.url, min_size=0) as pool:
        store = PostgresStore(pool.acquire, timeout=20)
        await store.setup()
        with pytest.raises(ConfigurationError, match="one store for each event loop") as refused:
            await asyncio.to_thread(asyncio.run, store.read([A]))
        assert refused.value.field == "source"


async def test_a_dead_loop_is_a_state_error(postgres_server: PostgresServer):
    """A pool of asyncpg raises RuntimeError on another loop than its own."""

    async def pool() -> Any:
        return await asyncpg.create_pool(postgres_server.url, min_size=0)

    dead = await asyncio.to_thread(asyncio.run, pool())
    with pytest.raises(StateError, match="the store on Postgres cannot be used"):
        await PostgresStore(dead.acquire, timeout=1).read([A])


# The table


async def test_twenty_make_the_table_at_once(postgres_server: PostgresServer):
    """Every worker of an app does so at its start."""
    stores = [PostgresStore(postgres_server.url, timeout=20, size=1) for _ in range(20)]
    await asyncio.gather(*(one.setup() for one in stores))
    await put(stores[0], A)
    for one in stores:
        await one.close()


@pytest.mark.parametrize("table", ["order", "Jobs", "odd.select"])
async def test_a_table_of_any_name_by_printed_sql(postgres_server: PostgresServer, table: str):
    """For people with migrations. It is the table that setup() would make."""
    store = PostgresStore(postgres_server.url, table=table, timeout=20)
    postgres_server.say("CREATE SCHEMA odd", store.schema)
    await store.setup()
    await put(store, A, keep=1)
    quoted = table.replace("Jobs", '"Jobs"').replace("order", '"order"').replace("select", '"select"')
    assert postgres_server.say(f"SELECT count(*) FROM {quoted}") == "1"
    await store.close()


async def test_a_role_with_the_documented_rights(postgres_server: PostgresServer, store: PostgresStore):
    """They are enough. An app whose migrations make the table may call setup() all the same."""
    postgres_server.say("DROP ROLE IF EXISTS app", "CREATE ROLE app LOGIN", documented("GRANT"))
    url = postgres_server.url_at(postgres_server.port, "app")
    app, other = PostgresStore(url, timeout=20), PostgresStore(url, table="other", timeout=20)
    await app.setup()
    await use(app)
    with pytest.raises(StateError, match="permission denied for schema public"):
        await other.setup()
    await app.close()
    await other.close()
    postgres_server.say("DROP OWNED BY app", "DROP ROLE app")


async def test_one_table_under_two_names_has_one_lock(store: PostgresStore, postgres_server: PostgresServer):
    """A process writes the schema, another one does not: they count the same slots."""
    other = PostgresStore(postgres_server.url, table="public.mintlify_async", timeout=20)
    takes = [
        one.take(windows(a=(20, 60)), slot=new_version(), block=BLOCK)
        for one in (store, other)
        for _ in range(100)
    ]
    assert sum(result.taken for result in await asyncio.gather(*takes)) == 20
    await other.close()


async def test_what_has_expired_leaves_the_table(store: PostgresStore, postgres_server: PostgresServer):
    """Records and slots, by writers and by callers that only take."""
    for number in range(300):
        await put(store, f"room/open/{number}", keep=0.001)
    assert int(postgres_server.say("SELECT count(*) FROM mintlify_async")) <= 100
    for _ in range(300):
        await store.take(windows(a=(9, 0.001)), slot=new_version(), block=BLOCK)
    assert int(postgres_server.say("SELECT count(*) FROM mintlify_async")) <= 100


AHEAD = "UPDATE mintlify_async SET since = since + 172800, ends = ends + 172800"


async def test_a_record_of_the_future_is_as_old_as_its_first_reading(
    store: PostgresStore, postgres_server: PostgresServer
):
    """After a failover to another clock. Its version stays, and it ends as late after it."""
    version = await put(store, A, keep=100)
    postgres_server.say(AHEAD)
    snapshot = await store.read([A])
    assert snapshot.records[A].since == snapshot.now
    assert snapshot.records[A].version == version
    row = postgres_server.say(
        "SELECT since <= extract(epoch FROM now()), ends - since < 101 FROM mintlify_async"
    )
    assert row == "t|t"


@pytest.mark.parametrize("slot", ["b", None])
async def test_slots_and_blocks_of_the_future_count_from_now(
    store: PostgresStore, postgres_server: PostgresServer, slot: str | None
):
    """They must not close an hour for two days. The first step that sees them sets them to now."""
    await store.take(windows(a=(1, 3600)), slot="a", block=BLOCK)
    await put(store, BLOCK, b"", keep=100)
    postgres_server.say(AHEAD)
    result = await store.take(windows(a=(1, 3600)), slot=slot, block=BLOCK)
    assert not result.taken
    assert (result.blocked, result.usage[0].opens_in) == (
        pytest.approx(100, abs=5),
        pytest.approx(3600, abs=5),
    )
    ahead = "SELECT count(*) FROM mintlify_async WHERE since > extract(epoch FROM now())"
    assert postgres_server.say(ahead) == "0"


# Connections that are lent


async def test_a_connection_with_an_open_transaction_is_refused(
    store: PostgresStore, postgres_server: PostgresServer
):
    """A claim that the app rolls back would be sent again."""
    connection = await asyncpg.connect(postgres_server.url)
    lent = PostgresStore(lambda: contextlib.nullcontext(connection), timeout=20)
    async with connection.transaction():
        await connection.execute("CREATE TABLE mine (a int)")
        with pytest.raises(ConfigurationError, match="open transaction"):
            await put(lent, A)
        assert await connection.fetchval("SELECT count(*) FROM mine") == 0
    await put(lent, A)
    assert await values(store, A) == {A: b"1"}
    await connection.close()


async def test_a_pool_with_a_cache_behind_pgbouncer_names_the_setting(
    store: PostgresStore, pgbouncer: PgBouncer
):
    """A user's pool keeps prepared statements, which PgBouncer gives to other connections."""
    async with asyncpg.create_pool(pgbouncer.url, min_size=10, max_size=10) as pool:
        lent = PostgresStore(pool.acquire, timeout=20, size=10)
        steps = [put(lent, f"room/open/{n}") for n in range(300)]
        results = await asyncio.gather(*steps, return_exceptions=True)
        errors = {str(result) for result in results if isinstance(result, BaseException)}
        assert errors
        assert all("statement_cache_size=0" in text for text in errors), errors


async def test_what_is_not_asyncpg_is_refused():
    """The function of another driver's pool, or one that only connects."""

    class Other:
        """A connection of another driver."""

    async def connect() -> None: ...

    with pytest.raises(ConfigurationError, match=r"asyncpg, not a .*Other"):
        await PostgresStore(lambda: contextlib.nullcontext(Other())).read([A])
    with pytest.raises(ConfigurationError, match="it returned coroutine"):
        await PostgresStore(connect).read([A])


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"source": "mysql://localhost"}, "source"),
        ({"source": "postgresql+asyncpg://u:hush@localhost/d"}, "source"),
        ({"source": "postgresql://u:hu/sh@localhost/d"}, "source"),
        ({"source": "postgresql://u:hu#sh@localhost/d"}, "source"),
        ({"source": "postgresql://u:hush@localhost:port/d"}, "source"),
        ({"source": "postgresql://u:12/hush@localhost/d"}, "source"),
        ({"source": "postgresql://localhost:port/d"}, "source"),
        ({"source": ""}, "source"),
        ({"source": None}, "source"),
        ({"source": PostgresStore}, "source"),
        ({"table": "a b"}, "table"),
        ({"table": 'a"; DROP TABLE b; --'}, "table"),
        ({"table": "a" * 59}, "table"),
        ({"table": None}, "table"),
        ({"timeout": 0}, "timeout"),
        ({"size": 0}, "size"),
        ({"size": 2.5}, "size"),
        ({"keep": -1}, "keep"),
        ({"passwort": "hush"}, "passwort"),
        ({"dsn": "postgresql://elsewhere"}, "dsn"),
        ({"source": contextlib.nullcontext, "ssl": True}, "ssl"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments: dict[str, Any], field: str):
    """Before anything is sent. No password shows."""
    if arguments.get("source") is contextlib.nullcontext:
        arguments["source"] = lambda: None
    with pytest.raises(ConfigurationError) as error:
        PostgresStore(**{"source": "postgresql://localhost", **arguments})
    assert error.value.field == field
    assert "hu" not in str(error.value).replace("such", "")


def test_several_hosts_and_every_option_are_accepted():
    """A URL of a cluster with a failover, and what asyncpg.connect takes."""
    url = "postgresql://user:p%2Fw@one:5432,two:5433/app?target_session_attrs=read-write"
    store = PostgresStore(url, ssl=True, password=lambda: "hush", server_settings={"search_path": "app"})
    PostgresStore("postgresql:///app?host=/var/run/postgresql")
    assert repr(store) == "PostgresStore(table='mintlify_async')"


async def test_a_codec_of_the_app_changes_no_value(store: PostgresStore, postgres_server: PostgresServer):
    """The app's pool reads binary values as memoryview."""

    async def set_codec(connection: asyncpg.Connection) -> None:
        await connection.set_type_codec(
            "bytea", encoder=bytes, decoder=memoryview, schema="pg_catalog", format="binary"
        )

    async with asyncpg.create_pool(postgres_server.url, min_size=0, max_size=1, init=set_codec) as pool:
        lent = PostgresStore(pool.acquire, timeout=20)
        await put(lent, A)
        assert type((await lent.read([A])).records[A].value) is bytes
    assert await values(store, A) == {A: b"1"}
