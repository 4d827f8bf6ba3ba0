"""Opens the store of a URL, for programs whose users choose the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Final

from mintlify_async.argument_checks import check_text
from mintlify_async.errors import ConfigurationError
from mintlify_async.storage.store import Store

__all__ = ["open_store"]


@asynccontextmanager
async def open_store(url: str, *, setup: bool = True) -> AsyncGenerator[Store]:
    """Open the store on Redis or Postgres at *url*. At the end of the block, close its connections.

    Example::

        async with open_store(os.environ["MINTLIFY_LEDGER"]) as store:
            async with MintlifySession(ledger=store) as session:
                ...

    Args:
        url: Starts with ``redis://``, ``rediss://``, ``unix://``, ``postgresql://`` or ``postgres://``.
        setup: Whether to make a missing table in a Postgres database.

    Raises:
        ConfigurationError: The URL has another scheme, or cannot be read. Nothing is sent.
        ModuleNotFoundError: The extra ``redis`` or ``postgres`` is not installed.
        StateError: Postgres cannot be used, or the role may not make the table.
    """
    scheme, is_url, _ = check_text(url, "url").partition("://")
    if not is_url or scheme.lower() not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise ConfigurationError(f"url must start with one of {known}", field="url")
    async with SCHEMES[scheme.lower()](url, setup) as store:
        yield store


@asynccontextmanager
async def _open_redis(url: str, setup: bool) -> AsyncGenerator[Store]:
    from .redis import RedisStore  # imported first, because its ImportError names the missing extra

    # isort: split
    from redis.asyncio import Redis

    try:
        client = Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType] - it takes any option
    except ValueError:  # the error's text may contain a part of the password
        raise ConfigurationError(
            "url cannot be read as a Redis URL; percent-encode its password", field="url"
        ) from None
    async with client:
        yield RedisStore(client)


@asynccontextmanager
async def _open_postgres(url: str, setup: bool) -> AsyncGenerator[Store]:
    from .postgres import PostgresStore

    async with aclosing(PostgresStore(url)) as store:
        if setup:
            await store.setup()
        yield store


SCHEMES: Final[Mapping[str, Callable[[str, bool], AbstractAsyncContextManager[Store]]]] = {
    "postgres": _open_postgres,
    "postgresql": _open_postgres,
    "redis": _open_redis,
    "rediss": _open_redis,
    "unix": _open_redis,
}
"""Maps the scheme of a URL to the function that opens the store."""
