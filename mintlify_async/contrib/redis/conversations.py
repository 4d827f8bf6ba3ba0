"""A conversation store on Redis, so that any worker can continue a conversation.

Each conversation is a hash with its text and revision, and each owner has a
sorted set of ids. The names of the keys are hashes. The texts are stored as they
are and contain threads' keys, so protect this Redis like your users' data.
"""

from __future__ import annotations

import hashlib
import uuid

from mintlify_async.storage import StoredConversation, check_revision, first_revision, store_conflict

from .scripts import Argument, RedisStore, Script, text

# KEYS: conversation.
_LOAD = Script("return redis.call('HMGET', KEYS[1], 'data', 'revision')")

# KEYS: conversation, the owner's ids; ARGV: id, text, the revision that the text was made from, the new one,
# milliseconds to keep it (0: for good), a random name of this save. redis-py repeats a script whose answer
# was lost; by that name the repetition finds that it has already saved.
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


class RedisConversationStore(RedisStore):
    """Conversations on a Redis, shared by all processes and machines that use it.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster``. It stays yours: it is never closed here.
        namespace: The prefix of every key.
        timeout: Longest duration of one step, in seconds.
        keep: How long a conversation is kept after its last turn, in seconds; None keeps it for good.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    holds = "conversation store"

    async def load(self, id: str, *, owner: str) -> StoredConversation | None:
        """Return the conversation *id* of *owner*, or None."""
        data, revision = await self._run(_LOAD, self._keys(id, owner)[:1])
        if revision is None:
            return None
        return StoredConversation(data=text(data), revision=int(revision))

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        """Replace the text that has *revision* (0: none) by *data*, and return the new revision.

        Raises:
            StoreConflictError: The text has another revision by now, or was deleted.
        """
        check_revision(revision)
        new = revision + 1 if revision else first_revision()
        args: list[Argument] = [id, data, revision, new, self._keep_ms, uuid.uuid4().hex]
        if not await self._run(_SAVE, self._keys(id, owner), args):
            raise store_conflict(id)
        return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner* at any revision; return whether it existed."""
        return bool(await self._run(_DELETE, self._keys(id, owner), [id]))

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        return sorted(text(one) for one in await self._run(_IDS, self._keys("", owner)[1:]))

    def _keys(self, id: str, owner: str) -> list[str]:
        """Return the keys of the conversation and of the owner's ids, both with the owner's hash tag."""
        prefix = f"{self._namespace}:conversations:{{{_fingerprint(owner)}}}"
        return [f"{prefix}:{_fingerprint(id)}", f"{prefix}:ids"]


def _fingerprint(name: str) -> str:
    return hashlib.sha256(b"mintlify-async conversations\0" + name.encode()).hexdigest()[:32]
