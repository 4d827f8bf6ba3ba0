"""A ledger on Redis: of all workers and machines that create one job, only one sends the request.

A claim is a hash whose key contains a hash of the ``dedupe_key``. Open claims are
also fields of a second hash, so that they can be listed. All keys have one hash
tag. Leases are measured on the server's clock, so that a computer whose clock is
minutes off does not wait too long for another computer's claim, or too briefly.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from attrs import asdict, evolve

from mintlify_async.storage import Claim, check_job_id, no_open_claim, unknown_version

from .redis_store import RedisStore, Script, text

SKEW: Final = 1.0
"""Differences between two computers' clocks up to this, in seconds, are ignored."""

VERSION: Final = 1
"""The version of what the keys hold."""

_FIELDS: Final = "'claim', 'token', 'job_id', 'server'"

# KEYS: claim, open claims; ARGV: claim as JSON, token.
_CLAIM = Script(
    f"""
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'claim', ARGV[1], 'token', ARGV[2], 'server', now)
  redis.call('HSET', KEYS[2], KEYS[1], ARGV[1])
end
return {{now, redis.call('HMGET', KEYS[1], {_FIELDS})}}
"""
)

# KEYS: claim.
_FIND = Script(f"return redis.call('HMGET', KEYS[1], {_FIELDS})")

# KEYS: claim, open claims; ARGV: token, job id, ms to keep it (0: for good).
_RECORD = Script(
    """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'job_id', ARGV[2])
redis.call('HDEL', KEYS[2], KEYS[1])
if ARGV[3] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
"""
)

# KEYS: claim, open claims; ARGV: token.
_RELEASE = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'token', 'job_id')
if held[1] ~= ARGV[1] or held[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], KEYS[1])
return 1
"""
)

# KEYS: claim, open claims; ARGV: job id, ms to keep it (0: for good).
_RESOLVE = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local job = redis.call('HGET', KEYS[1], 'job_id')
if job and job ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'job_id', ARGV[1])
redis.call('HDEL', KEYS[2], KEYS[1])
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""
)

# KEYS: claim, open claims.
_FORGET = Script("redis.call('HDEL', KEYS[2], KEYS[1]) return redis.call('DEL', KEYS[1])")

# KEYS: open claims.
_OPEN = Script("return redis.call('HVALS', KEYS[1])")


class RedisLedger(RedisStore):
    """A ledger on a Redis, shared by all processes and machines that use it.

    It is as safe as the Redis is durable: the request of a claim that Redis lost
    can be sent again. Run Redis with ``appendonly yes`` (and ``appendfsync always`` against
    power cuts), and ``maxmemory-policy noeviction``.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster``. It stays yours: it is never closed here.
        namespace: The prefix of every key.
        timeout: Longest duration of one step, in seconds. When a claim cannot be written in
            time, an error is raised and nothing is sent.
        keep: How long a key is kept after its job was recorded, in seconds; None keeps it for
            good. Open claims are always kept.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    holds = "ledger"

    _server_ahead: float | None = None
    """By how many seconds the server's clock was ahead of this computer's at the last claim."""

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return the claim that the key has now."""
        keys = self._keys(claim.key)
        line = json.dumps({"version": VERSION, **asdict(claim)})
        now, held = await self._run(_CLAIM, keys, [line, claim.token])
        self._server_ahead = int(now) / 1e6 - claim.claimed_at
        found = self._read(held, keys[0])
        return claim if found is None or (found.token == claim.token and found.job_id is None) else found

    async def record(self, claim: Claim, job_id: str) -> None:
        """Add *job_id* to *claim*; do nothing when the key has another claim by now."""
        await self._run(_RECORD, self._keys(claim.key), [claim.token, job_id, self._keep_ms])

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open; do nothing when the key has another claim, or none."""
        await self._run(_RELEASE, self._keys(claim.key), [claim.token])

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        keys = self._keys(key)[:1]
        return self._read(await self._run(_FIND, keys), keys[0])

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first."""
        keys = self._keys("")[1:]
        found = [_parsed(text(one), keys[0]) for one in await self._run(_OPEN, keys)]
        return sorted(found, key=lambda claim: claim.claimed_at)

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim of *key* by hand: *job_id* is the job that was created.

        Raises:
            ConfigurationError: The key has no open claim.
        """
        check_job_id(job_id)
        await self.find(key)  # refuses a claim of another version
        if not await self._run(_RESOLVE, self._keys(key), [job_id, self._keep_ms]):
            raise no_open_claim(key)

    async def forget(self, key: str) -> None:
        """Delete *key* by hand; its request can be sent again."""
        await self._run(_FORGET, self._keys(key))

    def _keys(self, key: str) -> list[str]:
        name = hashlib.sha256(key.encode()).hexdigest()
        prefix = f"{self._namespace}:{{ledger}}"
        return [f"{prefix}:claim:{name}", f"{prefix}:open"]

    def _read(self, row: list[Any], place: str) -> Claim | None:
        """Return the claim in *row* of the key *place*, with its lease converted to this computer's clock."""
        line, token, job_id, server = (None if value is None else text(value) for value in row)
        if line is token is None:
            return None
        claim = evolve(_parsed(line or "{}", place), job_id=job_id)
        if self._server_ahead is None:
            return claim
        skew = (int(server or 0) / 1e6 - claim.claimed_at) - self._server_ahead
        if abs(skew) < SKEW:
            return claim
        return evolve(claim, lease_until=claim.lease_until + skew)


def _parsed(line: str, place: str) -> Claim:
    """Return the claim in the JSON text *line* of the key *place*."""
    fields: Any = json.loads(line)
    version = fields.pop("version", None)
    if version != VERSION:
        raise unknown_version(f"the Redis key {place!r}", version, VERSION, instead="another namespace=")
    return Claim(**fields)
