"""A Lua script, its keys and arguments come in; Redis's answer, or why there was none, comes out.

Each step of a store is one script: Redis runs it whole or not at all, and it
takes the time from the server, so that computers whose clocks differ by
minutes agree. All keys of one script carry the same hash tag (the part in
braces), so that a cluster keeps them on one node.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar, cast

import anyio
from attrs import field, frozen

try:
    from redis.asyncio import ConnectionPool, Redis
    from redis.exceptions import NoScriptError, RedisError
except ImportError as error:  # pragma: no cover - tested in an environment without it
    raise ImportError(
        "mintlify_async.contrib.redis needs redis: pip install 'mintlify-async[redis]'"
    ) from error

from mintlify_async.errors import CauseSummary, ConfigurationError, StateError, printable

__all__ = [
    "Argument",
    "RedisClient",
    "Runner",
    "Script",
    "StoreAway",
    "check_namespace",
    "check_seconds",
    "lifetime_ms",
    "text",
]

Argument = str | int | float

T = TypeVar("T")

CONNECTIONS: Final = 32
"""Steps at a time on one client; more make nothing faster, since Redis runs one after the other."""


class RedisClient(Protocol):
    """What is used of ``redis.asyncio.Redis`` and ``redis.asyncio.RedisCluster``."""

    def evalsha(self, sha: str, numkeys: int, /, *keys_and_args: Any) -> Any:
        """Run the script that the server knows by *sha*."""
        ...

    def eval(self, script: str, numkeys: int, /, *keys_and_args: Any) -> Any:
        """Run *script*, and let the server keep it."""
        ...


@frozen
class Script:
    """A script's text, and the name that Redis gives it."""

    text: str
    sha: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Name it as Redis does."""
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


class StoreAway(Exception):  # noqa: N818 - never leaves this package; it becomes an error of ours
    """Redis could not do it: away, silent, full, or refusing."""

    def __init__(self, reason: BaseException) -> None:
        """Keep the reason's class and its first words."""
        self.reason = f"{type(reason).__name__}: {printable(str(reason))}".rstrip(": ")
        super().__init__(self.reason)

    def cause(self) -> CauseSummary:
        """Return what stands for the reason in an error's chain."""
        return CauseSummary(self.reason)


FAILURES: Final = (RedisError, OSError, TimeoutError, RuntimeError)
"""RuntimeError: a client that belongs to an event loop that is closed is a Redis that cannot be reached."""


class Runner:
    """Runs scripts on one client, within a time, on whatever event loop.

    A client's connections belong to the loop that opened them. On the first
    loop that comes the client is used as it is; on any other, each step has a
    connection of its own, made like the client's and closed again.

    At most 32 steps are under way on the client: its pool refuses what goes
    beyond its connections (100 since redis 8), and must serve its owner, too.

    Args:
        client: The user's client; never closed here.
        timeout: The longest that one step may take, in seconds, whatever the client's patience is.
    """

    def __init__(self, client: RedisClient, timeout: float) -> None:
        """Keep the client; nothing is sent yet."""
        self._client = client
        self._timeout = check_seconds(timeout, "timeout")
        self._home: weakref.ref[asyncio.AbstractEventLoop] | None = None
        pool = getattr(client, "connection_pool", None)
        self._places = asyncio.Semaphore(min(CONNECTIONS, getattr(pool, "max_connections", CONNECTIONS)))
        self._failures = 0
        self._last: StoreAway | None = None

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run *script* and return its answer.

        Raises:
            StoreAway: There was no answer in time, or it was an error.
        """
        if not self._at_home():
            return await self._visit(script, keys, args)
        failures = self._failures
        async with self._places:
            if self._last is not None and self._failures != failures:
                raise self._last  # somebody ahead has waited in vain: one timeout is enough for all
            return await self._bounded(_evaluate(self._client, script, keys, args))

    async def run_or_state_error(
        self, script: Script, keys: Sequence[str], args: Sequence[Argument], *, what: str
    ) -> Any:
        """Run *script*, for a store whose failure is its caller's: *what* names the store.

        Raises:
            StateError: There was no answer in time, or it was an error.
        """
        try:
            return await self.run(script, keys, args)
        except StoreAway as error:
            away = error
        failure = StateError(f"the {what} on Redis cannot be used: {away.reason}")
        failure.__cause__ = away.cause()
        raise failure

    async def _bounded(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            with anyio.fail_after(self._timeout):
                return await step
        except FAILURES as error:
            self._failures += 1
            self._last = StoreAway(error)
        raise self._last

    async def _visit(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        async def step() -> Any:
            async with self._visitor() as client:
                return await _evaluate(client, script, keys, args)

        return await self._bounded(step())

    def _at_home(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._home is None:
            self._home = weakref.ref(loop)
        return (
            self._home() is loop or type(getattr(self._client, "connection_pool", None)) is not ConnectionPool
        )

    def _visitor(self) -> Redis:
        """Return a client like the user's, for one step on another loop."""
        pool: ConnectionPool = cast("Redis", self._client).connection_pool
        options = {name: value for name, value in pool.connection_kwargs.items() if "maint" not in name}
        return Redis.from_pool(ConnectionPool(pool.connection_class, max_connections=1, **options))


async def _evaluate(
    client: RedisClient, script: Script, keys: Sequence[str], args: Sequence[Argument]
) -> Any:
    try:
        return await client.evalsha(script.sha, len(keys), *keys, *args)
    except NoScriptError:  # a new server, or SCRIPT FLUSH
        return await client.eval(script.text, len(keys), *keys, *args)


def text(value: object) -> str:
    """Return a reply as text, whether the client decodes replies or not."""
    return value.decode() if isinstance(value, bytes) else str(value)


def check_namespace(namespace: object) -> str:
    """Return *namespace* when it can begin a key: a brace would move the hash tag."""
    if not isinstance(namespace, str) or not namespace or set(namespace) & set("{}"):
        raise ConfigurationError(
            f"namespace must be a string without braces that is not empty, not {namespace!r}",
            field="namespace",
        )
    return namespace


def check_seconds(value: object, name: Literal["timeout", "probe_every", "keep"]) -> float:
    """Return *value* when it is a number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigurationError(f"{name} must be seconds above 0, not {value!r}", field=name)
    return value


def lifetime_ms(keep: float | None) -> int:
    """Return *keep*, in seconds, as the milliseconds of an expiry: at least 1; 0 stands for ever."""
    return 0 if keep is None else max(1, round(check_seconds(keep, "keep") * 1000))
