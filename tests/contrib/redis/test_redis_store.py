"""RedisStore: the shared cases with each kind of client; cancelled calls, partitions, loops, keys."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from mintlify_async.contrib.redis import RedisStore, RedisStreamStore
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.storage.store import Store, new_version
from mintlify_async.testing.store_cases import BLOCK, A, B, StoreCases, WireCases, put, values, windows
from tests.support.documented_rights import documented, use
from tests.support.own_time_cases import count_in_threads
from tests.support.redis_server import RedisServer


class Stutter:
    """A client that sends every script twice, like a client that lost the first response."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def evalsha(self, sha: str, numkeys: int, *rest: Any) -> Any:
        await self._client.evalsha(sha, numkeys, *rest)
        return await self._client.evalsha(sha, numkeys, *rest)

    def script_load(self, script: bytes) -> Any:
        return self._client.script_load(script)


CLIENTS: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "plain": ({}, lambda client: client),
    "resp3-decoding": ({"protocol": 3, "decode_responses": True}, lambda client: client),
    "retrying": ({}, Stutter),
}


class TestRedisStore(StoreCases):
    """The cases of every store, with the clients that people have."""

    @pytest.fixture(params=CLIENTS)
    async def store(self, request: Any, redis_server: RedisServer) -> AsyncIterator[Store]:
        settings, wrap = CLIENTS[request.param]
        async with redis_server.client(**settings) as client:
            yield RedisStore(wrap(client), timeout=20)


class TestRedisWire(WireCases):
    """A script comes late."""

    @pytest.fixture
    def address(self, redis_server: RedisServer) -> tuple[str, int]:
        return "127.0.0.1", redis_server.port

    @pytest.fixture
    def reach(self) -> Any:
        @asynccontextmanager
        async def reach(port: int) -> AsyncIterator[Store]:
            async with Redis(port=port) as client:
                yield RedisStore(client)

        return reach


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("cluster"), cluster=True).start()
    yield server
    server.kill()


class TestRedisCluster(StoreCases):
    """A cluster refuses scripts whose keys are apart."""

    @pytest.fixture
    async def store(self, cluster: RedisServer) -> AsyncIterator[Store]:
        cluster.say(b"FLUSHALL")
        client = RedisCluster(host="127.0.0.1", port=cluster.port)
        yield RedisStore(client, timeout=20)
        await client.aclose()


async def test_a_new_cluster_client_may_be_used_by_many_calls_at_once(cluster: RedisServer):
    """It is initialized before the first step, so that no step meets a connection that is not open yet."""
    for number in range(10):
        client = RedisCluster(host="127.0.0.1", port=cluster.port)
        store, quota = (RedisStore(client, timeout=20, namespace=f"n{number}") for _ in "ab")
        steps = [put(store, f"room{n}/open/a") for n in range(40)]
        slots = [quota.take(windows(a=(100, 60)), slot=new_version(), block=BLOCK) for _ in range(40)]
        await asyncio.gather(*steps, *slots)
        await client.aclose()


# Cancelled and slow calls


@pytest.mark.parametrize("step", ["read", "write", "keys", "take"])
async def test_a_cancelled_call_goes_no_further(redis_client: Any, step: str):
    """Cancelled after any number of turns of the loop, no task goes on behind its wait for Redis."""
    store = RedisStore(redis_client, timeout=20)
    call = {
        "read": lambda: store.read([A]),
        "write": lambda: store.write({A: b"1"}, expected={}, version=new_version()),
        "keys": lambda: store.keys("room/open/"),
        "take": lambda: store.take(windows(a=(10_000, 60)), slot=new_version(), block=BLOCK),
    }[step]
    await call()
    went_on = []

    async def caller(turns: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(100):
            requests = task.cancelling()
            await call()
            if task.cancelling() > requests:
                went_on.append(turns)
                return

    for turns in range(60):
        task = asyncio.create_task(caller(turns))
        for _ in range(turns):
            await asyncio.sleep(0 if turns % 2 else 0.0002)
        task.cancel()
        await asyncio.wait([task])
    assert not went_on


class Swallows:
    """A client that loses each cancellation, as redis-py does on Python 3.11."""

    def __init__(self) -> None:
        self.asked, self.lost = asyncio.Event(), 0

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        self.asked.set()
        for _ in range(3):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.lost += 1
        return [1_000_000]


async def test_a_client_that_swallows_a_cancellation_does_no_harm():
    """The cancellation reaches the caller all the same, and no task is left."""
    client = Swallows()
    task = asyncio.create_task(RedisStore(client, timeout=20).read([]))
    await client.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.lost == 3


class Slow:
    """A Redis that answers at once, while the event loop is busy for longer than the timeout."""

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_later(0.02, answer.set_result, [1_000_000])
        loop.call_soon(time.sleep, 0.3)
        await answer
        await asyncio.sleep(0)  # a parser takes a few turns of the loop
        await asyncio.sleep(0)
        return answer.result()


async def test_a_busy_loop_is_not_an_absent_redis():
    """An answer that has arrived is read, though the time is over."""
    assert (await RedisStore(Slow(), timeout=0.1).read([])).now == 1


@pytest.mark.parametrize(("of_client", "of_store"), [(3600, 0.3), (0.3, 20)])
async def test_a_partition_stops_a_crowd_once(of_client: float, of_store: float):
    """Five hundred steps at once on a Redis that never answers wait for one timeout, not one each."""
    server = socket.create_server(("127.0.0.1", 0), backlog=100)  # it never accepts what connects
    with server:
        client = Redis(port=server.getsockname()[1], socket_timeout=of_client, retry=Retry(NoBackoff(), 0))
        store = RedisStore(client, timeout=of_store)
        start = time.monotonic()
        results = await asyncio.gather(*(put(store, A) for _ in range(500)), return_exceptions=True)
        assert time.monotonic() - start < 60
        await client.aclose()
    assert all(isinstance(result, StateError) for result in results)
    assert {str(result).partition(": ")[2][:12] for result in results} == {"TimeoutError"}


class Fails:
    """A client that raises *error* at its first call."""

    def __init__(self, error: Exception) -> None:
        self.calls, self._error = 0, error

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            await asyncio.sleep(0.01)
            raise self._error
        return [1_000_000]


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.MaxConnectionsError("Too many connections"),
        redis.ReadOnlyError("You can't write against a read only replica."),
        redis.ConnectionError("Connection lost"),
        redis.exceptions.NoPermissionError("No permissions to access a key"),
        ConnectionResetError(104, "reset"),
        AttributeError("'NoneType' object has no attribute 'writelines'"),
        UnicodeEncodeError("latin-1", "€", 0, 1, "ordinal not in range(256)"),
        KeyError("slot"),
        RuntimeError("Event loop is closed"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_fails_its_own_step_alone(error: Exception):
    """Whatever the client raises is a StateError that names it; the steps that wait behind it are made."""
    store = RedisStore(Fails(error), timeout=20)
    results = await asyncio.gather(*(store.read([]) for _ in range(100)), return_exceptions=True)
    (failed,) = [result for result in results if isinstance(result, BaseException)]
    assert isinstance(failed, StateError)
    assert f"cannot be used: {type(error).__name__}" in str(failed)
    assert failed.__context__ is None


BROKEN = {
    "password": ({"password": "wrong-secret"}, "AuthenticationError"),
    "user": ({"username": "nobody", "password": "wrong-secret"}, "AuthenticationError"),
    "no password": ({}, "AuthenticationError|Authentication required"),
    "RESP2": ({"password": "wrong-secret", "protocol": 2}, "AuthenticationError"),
    "port": ({"port": 1}, "ConnectionError.*127.0.0.1:1"),
    "host": ({"host": "no-such-host.invalid"}, "ConnectionError.*no-such-host.invalid"),
    "socket": ({"unix_socket_path": "/no/such/socket"}, "ConnectionError.*/no/such/socket"),
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["own loop", "other loop"])
async def test_what_is_wrong_with_redis_is_told_although_its_client_tries_again(
    own_redis: Callable[..., RedisServer], broken: str, elsewhere: bool
):
    """A default client of redis-py tries for longer than a step may take; the error is the one it hides."""
    server = own_redis()
    server.say(b"CONFIG SET requirepass right")
    settings, reason = BROKEN[broken]
    async with Redis(**{"host": "127.0.0.1", "port": server.port} | settings) as client:
        store = RedisStore(client, timeout=1)
        if elsewhere:
            await asyncio.gather(store.read([A]), return_exceptions=True)
        with pytest.raises(StateError, match=f"({reason}).*; check that the server runs") as caught:
            await (asyncio.to_thread(asyncio.run, store.read([A])) if elsewhere else store.read([A]))
        assert "wrong-secret" not in str(caught.value)


class DeadClient:
    """A Redis that was never there."""

    async def evalsha(self, sha: str, numkeys: int, /, *rest: Any) -> Any:
        raise ConnectionRefusedError(111, "refused\nby 10.0.0.5")


async def test_redis_away_is_a_state_error():
    """One line that says why; the cause is a summary that can be pickled."""
    with pytest.raises(
        StateError,
        match=r"the store on Redis cannot be used: ConnectionRefusedError.*; check that the server runs",
    ) as caught:
        await RedisStore(DeadClient()).read([A])
    assert "\n" not in str(caught.value)
    assert type(caught.value.__cause__).__name__ == "CauseSummary"


# Connections and loops


async def test_more_steps_than_connections_wait_their_turn(redis_server: RedisServer):
    """A pool refuses what goes beyond its connections; six hundred steps of two stores are no outage."""
    async with redis_server.client(max_connections=10) as client:
        stores = [RedisStore(client, timeout=20) for _ in range(2)]
        steps = [store.read([A]) for store in stores for _ in range(300)]
        assert len(await asyncio.gather(*steps)) == 600


async def test_loops_in_other_threads_may_share_it(redis_client: Any):
    """A client's connections belong to one loop; on another loop a step opens one of its own."""
    store = RedisStore(redis_client, timeout=20)
    await put(store, B)
    await count_in_threads(store)


async def test_a_blocking_pool_on_another_loop_is_refused(redis_server: RedisServer):
    """Its connections belong to the loop that used it first; the error says what to do."""
    pool = BlockingConnectionPool.from_url(redis_server.url, max_connections=2)
    client = Redis(connection_pool=pool)
    store = RedisStore(client, timeout=20)
    await store.read([])
    with pytest.raises(ConfigurationError, match="BlockingConnectionPool") as refused:
        await asyncio.to_thread(asyncio.run, store.read([]))
    assert refused.value.field == "client"
    with pytest.raises(StateError, match="BlockingConnectionPool"):  # the relay goes on without the log
        await asyncio.to_thread(asyncio.run, RedisStreamStore(client).newest("chat"))
    await client.aclose()
    await pool.disconnect()


async def test_script_flush_does_no_harm(redis_client: Any):
    """A server that forgot the scripts is told them again."""
    store = RedisStore(redis_client, timeout=20)
    await put(store, A)
    await redis_client.script_flush()
    await put(store, B)
    assert await values(store, A, B) == {A: b"1", B: b"1"}


# Keys and arguments


async def test_keys_have_the_namespace_and_one_hash_tag(redis_client: Any):
    """Staging and production may share a Redis, and a cluster keeps a room on one node."""
    store, other = RedisStore(redis_client), RedisStore(redis_client, namespace="staging")
    for one in (store, other):
        await put(one, A)
        await one.take(windows(a=(1, 60)), slot=new_version(), block=BLOCK)
    assert (await other.take(windows(a=(1, 60)), slot=None, block=BLOCK)).usage[0].used == 1
    keys = sorted(key.decode() for key in await redis_client.keys("*"))
    names = ["epoch", "open", "open/a", "slots/a"]
    assert keys == [f"{space}:{{room}}:{name}" for space in ("mintlify", "staging") for name in names]


async def test_what_may_expire_leaves_nothing_behind(redis_client: Any):
    """Neither an index of records that are gone, nor logs of slots that no longer count."""
    store = RedisStore(redis_client, timeout=20)
    await put(store, A, keep=1)
    await store.take(windows(a=(1, 1)), slot=new_version(), block=BLOCK)
    for key in await redis_client.keys("*"):
        assert 0 < await redis_client.pttl(key) <= 61_000, key
    await put(store, B)
    assert await redis_client.pttl("mintlify:{room}:open") == -1


@pytest.mark.parametrize("field", ["value", "version", "since"])
async def test_a_damaged_record_is_told(redis_client: Any, field: str):
    """Another program wrote into our key."""
    store = RedisStore(redis_client, timeout=20)
    await put(store, A)
    await redis_client.hdel("mintlify:{room}:open/a", field)
    with pytest.raises(StateError, match="damaged record 'room/open/a'"):
        await store.read([A])


async def test_a_user_with_the_documented_rights(redis_server: RedisServer):
    """They are enough for a store, and for running answers of the relay."""
    redis_server.say(documented("ACL SETUSER").encode())
    async with redis_server.client(username="app", password="password") as client:
        await use(RedisStore(client, timeout=20))
        streams = RedisStreamStore(client, timeout=20)
        await streams.begin("chat", "one")
        await streams.describe("chat", "one", "{}")
        assert await streams.write("chat", "one", b"text", at=0, ended=False) == (False, False)
        assert await streams.newest("chat") is not None
        assert await streams.read("chat", "one", 0) == (b"text", 4, "running")
        await streams.stop("chat")
        assert await streams.write("chat", "one", b"", at=4, ended=True) == (True, True)
    redis_server.say(b"ACL DELUSER app")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"namespace": "a{b}"}, "namespace"),
        ({"namespace": None}, "namespace"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"keep": -1}, "keep"),
        ({"client": "redis://localhost"}, "client"),
        ({"client": redis.Redis()}, "client"),  # it has the same methods, and would block the loop
        # Other processes would look for other keys, or read back other bytes.
        *(
            ({"client": Redis(encoding=encoding, decode_responses=decode)}, "client")
            for encoding in ("latin-1", "cp1252", "utf-16", "ascii", "utf-8-sig", "utf-7", "unknown")
            for decode in (True, False)
        ),
        ({"client": RedisCluster("127.0.0.1", encoding="latin-1")}, "client"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments: dict[str, Any], field: str):
    """Before anything is sent."""
    with pytest.raises(ConfigurationError) as error:
        RedisStore(**{"client": DeadClient(), **arguments})
    assert error.value.field == field


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "u8"])
def test_every_name_of_utf_8_is_taken(encoding: str):
    """As Python's codecs know it."""
    RedisStore(Redis(encoding=encoding, decode_responses=True))
    RedisStreamStore(Redis(encoding=encoding, encoding_errors="replace"))
