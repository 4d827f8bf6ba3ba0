"""Conversations kept on a Redis: a chat goes on in whichever worker has the next message.

Each conversation is a hash with its text and revision, and each owner has a
sorted set of ids. The names are fingerprints; the texts are not: they hold
threads' keys in clear, so guard this Redis as you guard your users' data.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from mintlify_async.stores import (
    StoredConversation,
    check_revision,
    first_revision,
    store_conflict,
)

from .scripts import Argument, RedisClient, Runner, Script, check_namespace, lifetime_ms, text

__all__ = ["RedisConversationStore"]

# KEYS: conversation.
_LOAD = Script("return redis.call('HMGET', KEYS[1], 'data', 'revision')")

# KEYS: conversation, the owner's ids; ARGV: id, text, revision it was made from, the new one, ms to keep
# (0: for ever), who writes: a client's own retry after a lost answer finds its own writing there.
_SAVE = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'revision', 'by')
if held[2] == ARGV[6] then return 1 end
if (held[1] or '0') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], 'data', ARGV[2], 'revision', ARGV[4], 'by', ARGV[6])
local till = '+inf'
if ARGV[5] ~= '0' then
  local t = redis.call('TIME')
  till = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[5])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('ZADD', KEYS[2], till, ARGV[1])
  if redis.call('ZCOUNT', KEYS[2], '+inf', '+inf') == 0 then redis.call('PEXPIRE', KEYS[2], ARGV[5]) end
else
  redis.call('PERSIST', KEYS[1])
  redis.call('ZADD', KEYS[2], till, ARGV[1])
  redis.call('PERSIST', KEYS[2])
end
return 1
"""
)

# KEYS: conversation, the owner's ids; ARGV: id.
_DELETE = Script("redis.call('ZREM', KEYS[2], ARGV[1]) return redis.call('DEL', KEYS[1])")

# KEYS: the owner's ids.
_IDS = Script(
    """
local t = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)))
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""
)


class RedisConversationStore:
    """Conversations on a Redis, for all processes and machines that use the same one.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster``. It stays yours: it is never closed here.
        namespace: Begins the name of every key.
        timeout: The longest that one step may take, in seconds.
        keep: How long a conversation is kept after its last turn, in seconds; None is for ever.

    Raises:
        ConfigurationError: An argument is none of these.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str = "mintlify",
        timeout: float = 2.0,
        keep: float | None = None,
    ) -> None:
        """Keep the client; nothing is sent yet."""
        self._runner = Runner(client, timeout)
        self._namespace = check_namespace(namespace)
        self._keep_ms = lifetime_ms(keep)

    def __repr__(self) -> str:
        """Show the namespace; the client's address may hold a password."""
        return f"RedisConversationStore(namespace={self._namespace!r})"

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return what *owner* keeps under *id*, or None."""
        data, revision = await self._run(_LOAD, self._keys(id, owner)[:1], [])
        if revision is None:
            return None
        return StoredConversation(data=text(data), revision=int(revision))

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Write *data* over what has *revision* (0: nothing), and return the new revision.

        Raises:
            StoreConflictError: By now there is another revision, or none any more.
        """
        check_revision(revision)
        new = revision + 1 if revision else first_revision()
        args: list[Argument] = [id, data, revision, new, self._keep_ms, uuid.uuid4().hex]
        if not await self._run(_SAVE, self._keys(id, owner), args):
            raise store_conflict(id)
        return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Drop what *owner* keeps under *id*, whatever its revision; return whether there was something."""
        return bool(await self._run(_DELETE, self._keys(id, owner), [id]))

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids that *owner* keeps, in order of their names."""
        return sorted(text(one) for one in await self._run(_IDS, self._keys("", owner)[1:], []))

    def _keys(self, id: str, owner: str) -> list[str]:
        """Return the conversation's key and that of the owner's ids; both carry the owner's tag."""
        prefix = f"{self._namespace}:conversations:{{{_fingerprint(owner)}}}"
        return [f"{prefix}:{_fingerprint(id)}", f"{prefix}:ids"]

    async def _run(self, script: Script, keys: list[str], args: list[Argument]) -> Any:
        return await self._runner.run_or_state_error(script, keys, args, what="conversation store")


def _fingerprint(name: str) -> str:
    return hashlib.sha256(b"mintlify-async conversations\0" + name.encode()).hexdigest()[:32]
