"""A conversation store on Redis, so that any worker can continue a conversation.

Each conversation is a hash with its head and revision, and a sorted set of its turns; each owner has a sorted
set of ids. The names of the keys are hashes. The texts are stored as they are and contain threads' keys, so
protect this Redis like your users' data.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Final

from mintlify_async.storage import (
    StoredConversation,
    StoredTurn,
    check_revision,
    first_revision,
    store_conflict,
    unknown_version,
)

from .redis_store import Argument, RedisStore, Script, text

VERSION: Final = 2
"""The version of what the keys hold; 1 had each conversation as one text."""

# KEYS: conversation, turns; ARGV: the place of the first turn that is wanted, or "".
_LOAD = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'version', 'revision', 'head')
local turns = {}
if ARGV[1] ~= '' then turns = redis.call('ZRANGE', KEYS[2], ARGV[1], -1) end
return {held[1], held[2], held[3], redis.call('ZCARD', KEYS[2]), turns}
"""
)

# KEYS: conversation, turns, the owner's ids; ARGV: id, head, the revision that the change is based on, its
# new one, milliseconds to keep it (0: for good), a random name of this save, the version, the numbers of the
# turns that stay (from, and below), then number and text of each new turn. redis-py repeats a script whose
# answer was lost; by the name the repetition finds that it has already saved.
_SAVE = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'revision', 'by')
if held[2] == ARGV[6] then return 1 end
if (held[1] or '0') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], 'head', ARGV[2], 'revision', ARGV[4], 'by', ARGV[6], 'version', ARGV[7])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[8])
redis.call('ZREMRANGEBYSCORE', KEYS[2], ARGV[9], '+inf')
for i = 10, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[i], ARGV[i] .. ' ' .. ARGV[i + 1]) end
local till = '+inf'
if ARGV[5] ~= '0' then
  local t = redis.call('TIME')
  till = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[5])
  redis.call('PEXPIREAT', KEYS[1], till)
  redis.call('PEXPIREAT', KEYS[2], till)
  redis.call('ZADD', KEYS[3], till, ARGV[1])
  if redis.call('ZCOUNT', KEYS[3], '+inf', '+inf') == 0 then redis.call('PEXPIRE', KEYS[3], ARGV[5]) end
else
  redis.call('PERSIST', KEYS[1])
  redis.call('PERSIST', KEYS[2])
  redis.call('ZADD', KEYS[3], till, ARGV[1])
  redis.call('PERSIST', KEYS[3])
end
return 1
"""
)

# KEYS: conversation, turns, the owner's ids; ARGV: id.
_DELETE = Script(
    "redis.call('ZREM', KEYS[3], ARGV[1]) redis.call('DEL', KEYS[2]) return redis.call('DEL', KEYS[1])"
)

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

    Run Redis with ``maxmemory-policy noeviction``, or it may drop the turns of a conversation
    and keep the rest.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster``. It stays yours: it is never closed here.
        namespace: The prefix of every key.
        timeout: Longest duration of one step, in seconds.
        keep: How long a conversation is kept after its last turn, in seconds; None keeps it for good.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    holds = "conversation store"

    async def load(self, id: str, *, owner: str, last: int | None = None) -> StoredConversation | None:
        """Return the conversation *id* of *owner* with its *last* turns (None: all), or None."""
        keys = self._keys(id, owner)[:2]
        start: Argument = 0 if last is None else -last or ""
        version, revision, head, count, members = await self._run(_LOAD, keys, [start])
        if revision is None:
            return None
        if version is None or text(version) != str(VERSION):
            found = None if version is None else text(version)
            raise unknown_version(
                f"the Redis key {keys[0]!r}", found, VERSION, instead="delete it, or another namespace="
            )
        turns = tuple(_turn(text(member)) for member in members)
        return StoredConversation(
            head=text(head), turns=turns, complete=len(turns) == count, revision=int(revision)
        )

    async def save(
        self, id: str, head: str, turns: Sequence[StoredTurn], *, owner: str, revision: int, keep: range
    ) -> int:
        """Change the conversation that has *revision* (0: none), and return the new revision.

        Raises:
            StoreConflictError: The conversation has another revision by now, or was deleted.
        """
        check_revision(revision)
        new = revision + 1 if revision else first_revision()
        args: list[Argument] = [id, head, revision, new, self._keep_ms, uuid.uuid4().hex, VERSION]
        args += [keep.start, keep.stop]
        for turn in turns:
            args += [turn.number, turn.data]
        if not await self._run(_SAVE, self._keys(id, owner), args):
            raise store_conflict(id)
        return new

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete the conversation *id* of *owner* at any revision; return whether it existed."""
        return bool(await self._run(_DELETE, self._keys(id, owner), [id]))

    async def ids(self, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner*, sorted."""
        return sorted(text(one) for one in await self._run(_IDS, self._keys("", owner)[2:]))

    def _keys(self, id: str, owner: str) -> list[str]:
        """Return the keys of the conversation, its turns and the owner's ids, with the owner's hash tag."""
        prefix = f"{self._namespace}:conversations:{{{_fingerprint(owner)}}}"
        one = f"{prefix}:{_fingerprint(id)}"
        return [one, f"{one}:turns", f"{prefix}:ids"]


def _turn(member: str) -> StoredTurn:
    number, _, data = member.partition(" ")
    return StoredTurn(number=int(number), data=data)


def _fingerprint(name: str) -> str:
    return hashlib.sha256(b"mintlify-async conversations\0" + name.encode()).hexdigest()[:32]
