"""A store on Redis. It consists of five small scripts.

A record is a hash. The index of a folder is a sorted set of names, sorted by their expiry. A log of slots is
a sorted set, sorted by the time when the slots were taken. All keys of a room have the room as hash tag.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from mintlify_async.argument_checks import check_keep
from mintlify_async.storage.store import (
    NothingToClose,
    Record,
    Snapshot,
    TakeResult,
    Usage,
    Window,
    damaged_record,
    new_version,
)

from ..remote_steps import STEP_SECONDS
from .connections import Argument, RedisClient, RedisScripts, text

MICROSECONDS: Final = 1_000_000

# KEYS: records. Returns the time, and the data of each record.
_READ: Final = """
local t = redis.call('TIME')
local reply = {t[1] * 1000000 + t[2]}
for i, key in ipairs(KEYS) do
  reply[i + 1] = redis.call('HMGET', key, 'value', 'version', 'since')
end
return reply
"""

# KEYS: a record and its index, for each record.
# ARGV: version, milliseconds to keep ('' means no limit); then for each record its name, the expected version
# ('*' any, '' none) and the change ('=' none, '-' delete, '+' and the value).
_WRITE: Final = """
local version, keep = ARGV[1], tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local since = string.format('%.0f', t[1] * 1000000 + t[2])
local as_expected, repeated, others, exists = true, false, false, {}
for i = 1, #KEYS / 2 do
  local current = redis.call('HGET', KEYS[2 * i - 1], 'version') or ''
  local expected, change = ARGV[3 * i + 1], ARGV[3 * i + 2]
  exists[i] = current ~= ''
  if expected ~= '*' and expected ~= current then as_expected = false end
  if change:sub(1, 1) == '+' then repeated, others = true, others or current ~= version end
end
if not as_expected then return repeated and not others and 1 or 0 end
for i = 1, #KEYS / 2 do
  local record, index = KEYS[2 * i - 1], KEYS[2 * i]
  local name, change = ARGV[3 * i], ARGV[3 * i + 2]
  if change == '-' then
    redis.call('DEL', record)
    redis.call('ZREM', index, name)
  elseif exists[i] or change ~= '=' then
    if change ~= '=' then
      redis.call('HSET', record, 'value', change:sub(2), 'version', version, 'since', since)
    end
    redis.call('ZADD', index, keep and string.format('%.0f', now + keep) or '+inf', name)
    if keep then redis.call('PEXPIRE', record, keep) else redis.call('PERSIST', record) end
  end
  redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('%.0f', now))
  local last = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')[2]
  if last == 'inf' then redis.call('PERSIST', index)
  elseif last then redis.call('PEXPIREAT', index, last) end
end
return 1
"""

# KEYS: an index.
_KEYS: Final = """
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
"""

# KEYS: the block, the room's epoch, and the log of each window. ARGV: slot ('' takes none), a random name for
# a new epoch, the epoch that this process has ('' for none); then for each window its amount, its length in
# microseconds, and the last time and count of slots in this process. Another epoch means that Redis has lost
# its data. Then the counted slots are entered again. Returns the time, the epoch, 1 if the slot is taken, the
# block's milliseconds (-2: none, -1: no limit), and for each window the slots that count and the microseconds
# until a slot is free.
_TAKE: Final = """
local slot, new_epoch, known_epoch = unpack(ARGV, 1, 3)
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local blocked = redis.call('PTTL', KEYS[1])
redis.call('SET', KEYS[2], new_epoch, 'NX')
local epoch, longest = redis.call('GET', KEYS[2]), 0
local free, taken = blocked == -2 and slot ~= '', #KEYS > 2 and slot ~= ''
for i = 3, #KEYS do
  local log, amount, length, at, count = KEYS[i], unpack(ARGV, 4 * i - 8, 4 * i - 5)
  longest = math.max(longest, length)
  for n = 1, known_epoch ~= '' and epoch ~= known_epoch and now - length < tonumber(at) and count or 0 do
    if tonumber(redis.call('ZSCORE', log, 'lost-' .. n) or 0) < tonumber(at) then
      redis.call('ZADD', log, at, 'lost-' .. n)
    end
  end
  redis.call('ZREMRANGEBYSCORE', log, '-inf', string.format('%.0f', now - length))
  if redis.call('ZCARD', log) >= tonumber(amount) then free = false end
  if not redis.call('ZSCORE', log, slot) then taken = false end
end
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', longest / 1000 + 60000))
local reply = {now, epoch, (free or taken) and 1 or 0, blocked}
for i = 3, #KEYS do
  local log, amount, length = KEYS[i], unpack(ARGV, 4 * i - 8, 4 * i - 7)
  if free then redis.call('ZADD', log, 'NX', string.format('%.0f', now), slot) end
  redis.call('PEXPIRE', log, math.ceil(length / 1000))
  local used = redis.call('ZCARD', log)
  local oldest = used >= tonumber(amount)
    and redis.call('ZRANGE', log, used - amount, used - amount, 'WITHSCORES')[2]
  reply[#reply + 1] = used
  reply[#reply + 1] = oldest and oldest + length - now or 0
end
return reply
"""

# KEYS: the log of each window. ARGV: slot.
_REFUND: Final = "for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end"


class RedisStore(RedisScripts, NothingToClose):
    """A store on Redis, shared by all processes and machines that use it. The server's time is used.

    The store is only as durable as the Redis. If Redis has lost a claim, its request can be sent again. Run
    Redis with ``appendonly yes`` (and ``appendfsync always`` against power cuts), and with
    ``maxmemory-policy noeviction``. If Redis has still lost slots, each process enters its own count of slots
    again.

    Conversations contain the keys of threads.

    A step raises :class:`~mintlify_async.errors.StateError` if Redis does not respond in time, or if the
    client raises an error.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster`` whose ``encoding`` is UTF-8, its default. It is
            never closed here.
        namespace: The prefix of every key.
        timeout: Maximum duration of one step, in seconds. The client's own timeouts do not change it.
        keep: Seconds for which finished records are kept. None keeps them without limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str = "mintlify",
        timeout: float = STEP_SECONDS,
        keep: float | None = None,
    ) -> None:
        """Store the client. Nothing is sent to Redis yet."""
        super().__init__(client, namespace=namespace, timeout=timeout)
        self.keep = check_keep(keep)
        self._epochs: dict[str, str] = {}  # by room
        # Maps the length of a window to the time and the count of slots of each log, oldest first.
        self._known: dict[str, dict[str, tuple[int, int]]] = {}

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the existing records of *keys*, and the server's time."""
        now, *rows = await self._run(_READ, [self._key(key) for key in keys])
        pairs = zip(keys, rows, strict=True)
        records = {key: _record(key, *row) for key, row in pairs if any(cell is not None for cell in row)}
        return Snapshot(records=records, now=int(now) / MICROSECONDS)

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        expected: Mapping[str, str | None],
        version: str,
        keep: float | None = None,
    ) -> bool:
        """If every record still has its *expected* version, make all *changes*. Otherwise make none."""
        keys: list[str] = []
        args: list[Argument] = [version, "" if keep is None else max(1, round(keep * 1000))]
        for key in dict.fromkeys([*changes, *expected]):
            keys += [self._key(key), self._index(key)]
            args += [key.split("/", 2)[2], expected[key] or "" if key in expected else "*"]
            args.append(_change(changes[key]) if key in changes else "=")
        return bool(await self._run(_WRITE, keys, args))

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with *prefix*, sorted."""
        room, folder, _ = prefix.split("/", 2)
        names = await self._run(_KEYS, [self._index(prefix)])
        keys = [f"{room}/{folder}/{text(name)}" for name in names]
        return sorted(key for key in keys if key.startswith(prefix))

    async def take(self, windows: Sequence[Window], *, slot: str | None, block: str) -> TakeResult:
        """If every window has a free slot and there is no block, take *slot* in all windows."""
        room = block.split("/", 1)[0]
        keys = [self._key(block), self._key(f"{room}/epoch"), *(self._key(window.key) for window in windows)]
        args: list[Argument] = [slot or "", new_version(), self._epochs.get(room, "")]
        for window in windows:
            args += [window.amount, round(window.seconds * MICROSECONDS)]
            args += self._known.get(_folder(window), {}).get(window.key, (0, 0))
        now, epoch, is_taken, block_ms, *numbers = await self._run(_TAKE, keys, args)
        self._epochs[room] = text(epoch)
        counts, waits = numbers[::2], numbers[1::2]
        for window, count in zip(windows, counts, strict=True):
            self._remember(window, now, count)
        return TakeResult(
            taken=bool(is_taken),
            blocked=math.inf if block_ms == -1 else max(0, block_ms) / 1000,
            usage=tuple(
                Usage(used=count, opens_in=max(0, wait) / MICROSECONDS)
                for count, wait in zip(counts, waits, strict=True)
            ),
        )

    def _remember(self, window: Window, now: int, count: int) -> None:
        """Store the count of a log, and drop the counts of logs whose slots have all expired."""
        logs = self._known.setdefault(_folder(window), {})
        logs.pop(window.key, None)
        logs[window.key] = now, count
        expired = now - round(window.seconds * MICROSECONDS)
        while logs[oldest := next(iter(logs))][0] <= expired:
            del logs[oldest]

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Return *slot* to every window. If it is not taken, do nothing."""
        if windows:
            await self._run(_REFUND, [self._key(window.key) for window in windows], [slot])

    def _key(self, key: str) -> str:
        room, path = key.split("/", 1)
        return f"{self._namespace}:{{{room}}}:{path}"

    def _index(self, key: str) -> str:
        room, folder, _ = key.split("/", 2)
        return f"{self._namespace}:{{{room}}}:{folder}"


def _folder(window: Window) -> str:
    return window.key.rpartition(":")[0] or window.key


def _change(value: bytes | None) -> bytes:
    # Written as UTF-8 text, so that a client that decodes replies can also read the value. ASCII bytes do not
    # change.
    return b"-" if value is None else b"+" + value.decode("latin-1").encode()


def _record(key: str, value: Any, version: Any, since: Any) -> Record:
    if value is not None and version is not None:
        with suppress(TypeError, ValueError):
            since = int(since) / MICROSECONDS
            return Record(value=text(value).encode("latin-1"), version=text(version), since=since)
    raise damaged_record("the store on Redis", key)
