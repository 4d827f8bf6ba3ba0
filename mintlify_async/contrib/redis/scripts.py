"""Lua scripts on a Redis client. Each runs within a time limit, on any event loop.

Redis runs a script completely or not at all. Scripts take the time from the server, so that computers whose
clocks differ by minutes agree. All keys of one script have the same hash tag (the part in braces), so that a
cluster keeps them on one node.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from .. import extra_missing

try:
    import redis
    from redis.asyncio import ConnectionPool, Redis, RedisCluster
    from redis.commands.core import AsyncScript
    from redis.exceptions import RedisError
    from redis.exceptions import TimeoutError as RedisTimeoutError
except ModuleNotFoundError as error:
    raise extra_missing("redis", error) from None

from mintlify_async.checks import LARGEST, check_number
from mintlify_async.errors import CauseSummary, ConfigurationError, StateError, printable
from mintlify_async.runtime.limits import TimeLimit

Argument = str | bytes | int | float

T = TypeVar("T")

CANCEL_AGAIN: Final = 0.25
"""Seconds between two cancellations of a step: redis-py swallows some on Python 3.11."""

CONNECTIONS: Final = 32
"""Scripts at a time on one client. More would not be faster: Redis runs them one after the other."""


TEXT: Final = "aé€😀"
"""Text that every encoding but UTF-8 changes or refuses."""


class RedisClient(Protocol):
    """The methods used of ``redis.asyncio.Redis`` and ``redis.asyncio.RedisCluster``."""

    def evalsha(self, sha: str, numkeys: int, /, *keys_and_args: Any) -> Any:
        """Run the script that the server has cached under *sha*."""

    def script_load(self, script: bytes, /) -> Any:
        """Let the server cache *script*."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return the pipeline for the commands of one round trip."""


SILENCES: Final = (TimeoutError, RedisTimeoutError)
"""Errors of a Redis that does not answer. Any other error fails its own step only."""


class ClientConnections:
    """Limits how many scripts one client runs at a time, for all stores that use it."""

    def __init__(self, client: RedisClient) -> None:
        self.pool = getattr(client, "connection_pool", None)
        self.free = asyncio.Semaphore(min(CONNECTIONS, getattr(self.pool, "max_connections", CONNECTIONS)))
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def on_own_loop(self) -> bool:
        """Return whether the client's connections belong to the running loop.

        Raises:
            ConfigurationError: They belong to another loop, and cannot be made again on this one.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = weakref.ref(loop)
        if self.pool is None or self._loop() is loop:
            return True
        if type(self.pool) is not ConnectionPool:
            raise ConfigurationError(
                f"client: this Redis client has a {type(self.pool).__name__}, and another event loop used it "
                "first; create one client and one store for each event loop, or use a ConnectionPool",
                field="client",
            )
        return False


_connections: weakref.WeakKeyDictionary[object, ClientConnections] = weakref.WeakKeyDictionary()


async def _on_new_connection(pool: ConnectionPool, step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Run *step* with the pool's settings on a connection of the running loop."""
    options = {name: value for name, value in pool.connection_kwargs.items() if "maint" not in name}
    own_pool = ConnectionPool(pool.connection_class, max_connections=1, **options)
    async with Redis.from_pool(own_pool) as client:
        return await step(client)


async def _in_own_task(step: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run *step* of redis-py in a separate task.

    On Python 3.11 redis-py swallows many cancellations. The caller waits for asyncio alone, so its
    cancellation and the timeout are always raised.

    Raises:
        TimeoutError: *step* took longer than *seconds*. The message has the error that the client has hidden
            by trying again.
    """
    hidden: list[BaseException] = []
    task = asyncio.ensure_future(_keeping_hidden_error(step, hidden))
    limit = TimeLimit(asyncio.get_running_loop().time() + seconds)  # an answer that has arrived is read first
    try:
        with suppress(TimeoutError), limit:
            await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task], timeout=CANCEL_AGAIN)
        step.close()  # of a task that was cancelled before it began
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio logs that it never was
    if task.cancelled():
        reason = f"; the last try: {_described(hidden[0])}" if hidden else ""
        raise TimeoutError(f"no answer within the timeout of {seconds:g} s{reason}")
    return task.result()


async def _keeping_hidden_error(step: Coroutine[Any, Any, T], hidden: list[BaseException]) -> T:
    """Run *step*. If it is cancelled in a pause of redis-py's retries, add the error before the pause.

    redis-py pauses in the ``except`` block of that error, so the error is the context of the cancellation.
    """
    try:
        return await step
    except asyncio.CancelledError as cancellation:
        error: BaseException | None = cancellation
        while error is not None and not isinstance(error, RedisError | OSError):
            error = error.__context__
        if error is not None:
            hidden.append(error)
        raise


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {printable(str(error))}".rstrip(": ")


class RedisScripts:
    """Runs scripts on one client, within a time limit, on any event loop.

    A client's connections belong to the loop that opened them. On the loop of the first call, the client is
    used directly. On any other loop, each step opens a connection with the client's settings and closes it.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster`` whose ``encoding`` is UTF-8. It stays yours
            and is never closed here.
        namespace: The prefix of every key.
        timeout: Longest duration of one step, in seconds, whatever the client's own timeouts are.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str = "mintlify",
        timeout: float = 2.0,
    ) -> None:
        """Keep the client. Redis is not asked yet."""
        # redis.Redis has the same methods, and an address is what other packages take.
        if isinstance(client, redis.Redis | redis.RedisCluster | str):
            raise ConfigurationError(
                "client must be a redis.asyncio.Redis, such as redis.asyncio.Redis.from_url(…)",
                field="client",
            )
        _check_encoding(client)
        self._client = client
        check_number(timeout, "timeout", 0.001, most=LARGEST)
        self._timeout = timeout
        self._silences = 0
        self._silence = ""
        self._namespace = _check_namespace(namespace)

    def __repr__(self) -> str:
        """Show the namespace; the client's URL may contain a password."""
        return f"{type(self).__name__}(namespace={self._namespace!r})"

    async def _run(self, script: str, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run *script* in a step and return its result. Raises the errors of :meth:`_step`."""

        async def step(client: Redis) -> Any:
            return await AsyncScript(client, script.encode())(keys, args)

        return await self._step(step)

    async def _step(self, step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Return the result of *step*, which gets the client.

        Raises:
            StateError: There was no answer in time, or it was an error.
            ConfigurationError: The client's connections belong to another event loop.
        """
        connections = _connections.get(self._client) or _connections.setdefault(
            self._client, ClientConnections(self._client)
        )
        if not connections.on_own_loop():
            pool = cast("ConnectionPool", connections.pool)
            return await self._bounded(_on_new_connection(pool, step))
        silences = self._silences
        async with connections.free:
            if self._silences != silences:
                raise _unusable(self._silence)  # Redis is silent, so do not wait for another timeout
            return await self._bounded(_on_ready_client(self._client, step))

    async def _bounded(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            return await _in_own_task(step, self._timeout)
        except Exception as error:  # clients raise any, for instance AttributeError for a lost connection
            reason = _described(error)
            if isinstance(error, SILENCES):
                self._silences, self._silence = self._silences + 1, reason
        raise _unusable(reason)


async def _on_ready_client(client: RedisClient, step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Run *step* on *client*. A cluster client is not safe for steps that initialize it at the same time."""
    if isinstance(client, RedisCluster):
        await client.initialize()
    return await step(client)


def _unusable(reason: str) -> StateError:
    error = StateError(f"the store on Redis cannot be used: {reason}")
    error.__cause__ = CauseSummary(reason)
    return error


def text(value: object) -> str:
    """Return a reply as text, whether the client decodes replies or not."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _check_encoding(client: RedisClient) -> None:
    """Refuse a client that writes text in another form than other processes read it."""
    if isinstance(client, Redis | RedisCluster):
        encoder = cast("Any", client.get_encoder())
        try:
            same = encoder.encode(TEXT) == TEXT.encode()
        except (UnicodeError, LookupError, TypeError):
            same = False
        if not same:
            raise ConfigurationError(
                "client has an encoding other than UTF-8: create it without encoding=", field="client"
            )


def _check_namespace(namespace: object) -> str:
    # A brace would change which part of the key is the hash tag.
    if not isinstance(namespace, str) or not namespace or set(namespace) & set("{}"):
        raise ConfigurationError(
            f"namespace must be a string without braces that is not empty, not {namespace!r}",
            field="namespace",
        )
    return namespace
