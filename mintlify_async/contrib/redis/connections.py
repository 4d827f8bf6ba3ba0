"""Runs Lua scripts on a Redis client, within a time limit, on any event loop.

Redis runs a script completely or not at all. Scripts use the server's time, so that computers with different
clocks agree. All keys of one script have the same hash tag (the text in braces), so that a cluster keeps them
on one node.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from .. import extra_missing

try:
    import redis
    from redis.asyncio import ConnectionPool, Redis, RedisCluster
    from redis.commands.core import AsyncScript
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import ReadOnlyError
    from redis.exceptions import TimeoutError as RedisTimeoutError
except ModuleNotFoundError as error:
    raise extra_missing("redis", error) from None

from mintlify_async.argument_checks import LARGEST, check_number
from mintlify_async.errors import ConfigurationError

from ..remote_steps import AWAY, FirstLoop, StepLine, described

Argument = str | bytes | int | float

T = TypeVar("T")

CONNECTIONS: Final = 32
"""Number of scripts at the same time on one client. More is not faster, because Redis runs one at a time."""


TEXT: Final = "aé€😀"
"""A text that every encoding except UTF-8 changes or refuses."""


class RedisClient(Protocol):
    """The methods of ``redis.asyncio.Redis`` and ``redis.asyncio.RedisCluster`` that this package uses."""

    def evalsha(self, sha: str, numkeys: int, /, *keys_and_args: Any) -> Any:
        """Run the script that the server has cached under *sha*."""

    def script_load(self, script: bytes, /) -> Any:
        """Make the server cache *script*."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline for the commands of one round trip."""


SILENCES: Final = (TimeoutError, RedisTimeoutError)
"""Errors of a Redis that does not respond. Any other error fails only its own step."""


class ClientConnections:
    """The connections of one client, and the line of scripts of all stores with this client."""

    def __init__(self, client: RedisClient) -> None:
        self.pool = getattr(client, "connection_pool", None)
        self.line = new_line(min(CONNECTIONS, getattr(self.pool, "max_connections", CONNECTIONS)))
        self._first_loop = FirstLoop()

    def on_own_loop(self) -> bool:
        """Return whether the client's connections belong to the running loop.

        Raises:
            ConfigurationError: The connections belong to another loop, and cannot be opened again here.
        """
        if self._first_loop.is_running() or self.pool is None:
            return True
        if type(self.pool) is not ConnectionPool:
            raise ConfigurationError(
                f"client: this Redis client has a {type(self.pool).__name__}, and another event loop used it "
                "first; create one client and one store for each event loop, or use a ConnectionPool",
                field="client",
            )
        return False


def new_line(places: int) -> StepLine:
    """Return a line for *places* scripts at the same time."""
    # Clients raise any error, for example AttributeError for a lost connection.
    return StepLine("Redis", places, (Exception,), explain)


def explain(error: Exception) -> tuple[str, bool]:
    """Return the reason of *error*, and whether the waiting scripts would also get no response."""
    reason = described(error)
    if isinstance(error, (OSError, RedisConnectionError, *SILENCES)):
        reason = f"{reason}; {AWAY}"
    elif isinstance(error, ReadOnlyError):
        reason = f"{reason}; the server is a replica, perhaps since a failover: let the client connect again"
    return reason, isinstance(error, SILENCES)


_connections: weakref.WeakKeyDictionary[object, ClientConnections] = weakref.WeakKeyDictionary()


async def _on_new_connection(pool: ConnectionPool, step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Run *step* with the pool's settings on a connection of the running loop."""
    options = {name: value for name, value in pool.connection_kwargs.items() if "maint" not in name}
    own_pool = ConnectionPool(pool.connection_class, max_connections=1, **options)
    async with Redis.from_pool(own_pool) as client:
        return await step(client)


class RedisScripts:
    """Runs scripts on one client, within a time limit, on any event loop.

    A client's connections belong to the loop that opened them. On the loop of the first call, the client is
    used directly. On any other loop, each step opens a connection with the client's settings and closes it.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster`` whose ``encoding`` is UTF-8. It is not closed
            here.
        namespace: The prefix of every key.
        timeout: Maximum duration of one step, in seconds. The client's own timeouts do not change it.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str,
        timeout: float,
    ) -> None:
        """Store the client. Nothing is sent to Redis yet."""
        # redis.Redis and the class itself have the same methods.
        unfit = isinstance(client, type | redis.Redis | redis.RedisCluster)
        if unfit or not hasattr(client, "evalsha"):
            raise ConfigurationError(
                "client must be a redis.asyncio.Redis, such as redis.asyncio.Redis.from_url(…)",
                field="client",
            )
        _check_encoding(client)
        self._client = client
        check_number(timeout, "timeout", 0.001, most=LARGEST)
        self._timeout = timeout
        self._namespace = _check_namespace(namespace)

    def __repr__(self) -> str:
        """Show the namespace. The client is left out, because its URL may contain a password."""
        return f"{type(self).__name__}(namespace={self._namespace!r})"

    async def _run(self, script: str, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run *script* in a step and return its result. Raise the errors of :meth:`_step`."""

        async def step(client: Redis) -> Any:
            return await AsyncScript(client, script.encode())(keys, args)

        return await self._step(step)

    async def _step(self, step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Return the result of *step*, which takes the client.

        Raises:
            StateError: There was no response in time, or the response was an error.
            ConfigurationError: The client's connections belong to another event loop.
        """
        connections = _connections.get(self._client) or _connections.setdefault(
            self._client, ClientConnections(self._client)
        )
        if connections.on_own_loop():
            return await connections.line.run(lambda: _on_ready_client(self._client, step), self._timeout)
        pool = cast("ConnectionPool", connections.pool)
        return await new_line(1).run(lambda: _on_new_connection(pool, step), self._timeout)


async def _on_ready_client(client: RedisClient, step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Run *step* on *client*. Two steps must not initialize a cluster client at the same time."""
    if isinstance(client, RedisCluster):
        await client.initialize()
    return await step(client)


def text(value: object) -> str:
    """Return a reply as text. The client may or may not have decoded it."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _check_encoding(client: RedisClient) -> None:
    """Refuse a client with another encoding, because other processes could not read its text."""
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
    # A brace would change the hash tag of the key.
    if not isinstance(namespace, str) or not namespace or set(namespace) & set("{}"):
        raise ConfigurationError(
            f"namespace must be a string without braces that is not empty, not {namespace!r}",
            field="namespace",
        )
    return namespace
