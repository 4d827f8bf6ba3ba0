"""Running answers of the relay on Redis, so that a page can read and stop an answer on any worker.

An answer is a Redis Stream, whose entries are the frames of a tenth of a second, and a hash with its state.
The worker that reads the answer from the service writes at least twice a second; this shows the others that
it is alive, and tells it whether there are readers and whether to stop. Redis gets only what pages get and,
from a relay with a store, what they asked: no key of the service, and the thread only encrypted. The names of
the Redis keys are hashes of user and chat.
"""

from __future__ import annotations

import uuid
from typing import Final

from mintlify_async.contrib.stream_store import MAX_BYTES, SharedPiece, Written, check_max_bytes
from mintlify_async.protocol.argument_checks import check_seconds as check_zero_or_more

from .redis_store import Argument, RedisClient, RedisStore, Script, check_seconds, text

UNFOUND_MS: Final = 24 * 60 * 60 * 1000
"""How long the part of an answer is kept whose worker has died, until a look finds it."""

HURRY_MS: Final = 1500
"""How long a worker may be silent, which writes every 500 ms, while the chat's next question waits for it."""

_NOW: Final = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

# KEYS: state, frames; ARGV: answer, question, at, frames, size after them, first ("1", or "force")?, ended?,
# ms until the worker counts as dead, ms to keep, question's text. An entry's id is the size of the answer up
# to its end. What has "lost" is no longer its worker's, but theirs who found the worker dead and are to end
# the answer.
_WRITE = Script(
    _NOW
    + """
local held = redis.call('HMGET', KEYS[1], 'answer', 'size', 'reads', 'stop', 'lost', 'ended')
if held[1] and held[1] ~= ARGV[1] and ARGV[6] ~= 'force' then
  if ARGV[6] == '1' and not held[6] then redis.call('HSET', KEYS[1], 'stop', 1) end
  if ARGV[6] == '' or not held[6] then return {-1, 0, 1} end
end
if held[1] == ARGV[1] and (held[5] or held[6]) then return {held[2], held[3], held[4] or held[5] or 0} end
local size = tonumber(held[2] or '0')
if held[1] ~= ARGV[1] or ARGV[3] == '0' then
  if held[1] ~= ARGV[1] then redis.call('DEL', KEYS[1]) held = {} end
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'answer', ARGV[1], 'question', ARGV[2], 'asked', ARGV[10])
  size = 0
end
if size == tonumber(ARGV[3]) then
  if ARGV[4] ~= '' then redis.call('XADD', KEYS[2], ARGV[5] .. '-0', 'f', ARGV[4]) end
  size = tonumber(ARGV[5])
end
redis.call('HSET', KEYS[1], 'size', size, 'alive', string.format('%.0f', now + ARGV[8]))
if ARGV[7] ~= '' and size == tonumber(ARGV[5]) then redis.call('HSET', KEYS[1], 'ended', 1) end
redis.call('PEXPIRE', KEYS[1], ARGV[9])
redis.call('PEXPIRE', KEYS[2], ARGV[9])
return {size, held[3] or 0, held[4] or 0}
"""
)

# KEYS: state, frames; ARGV: answer (or ""), place, ms to end the answer if its worker has died, ms by which
# that counts as dead earlier.
_READ = Script(
    _NOW
    + """
local held = redis.call('HMGET', KEYS[1], 'answer', 'question', 'ended', 'alive')
if not held[1] or (ARGV[1] ~= '' and held[1] ~= ARGV[1]) then return false end
local running, lost = 0, 0
if not held[3] then
  running = 1
  redis.call('HINCRBY', KEYS[1], 'reads', 1)
  if now > held[4] - ARGV[4] then
    lost = 1
    redis.call('HSET', KEYS[1], 'lost', 1, 'alive', string.format('%.0f', now + ARGV[3]))
  end
end
local found, place = {}, ARGV[2]
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-0', '+')) do
  local frames, size = entry[2][2], string.match(entry[1], '^%d+')
  found[#found + 1], place = string.sub(frames, place - (size - #frames) + 1), size
end
local asked = ARGV[2] == '0' and redis.call('HGET', KEYS[1], 'asked') or ''
return {held[1], held[2], running, lost, table.concat(found), place, asked}
"""
)

# KEYS: state, frames; ARGV: answer, frames, ms to keep, a random name of this call. By the name a repetition,
# of a call whose answer was lost, finds that it has ended the answer itself.
_END_LOST = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'answer', 'lost', 'ended', 'size')
if held[1] ~= ARGV[1] then return 1 end
if held[3] or not held[2] then return held[3] == ARGV[4] and 1 or 0 end
local size = held[4] + #ARGV[2]
redis.call('XADD', KEYS[2], string.format('%.0f-0', size), 'f', ARGV[2])
redis.call('HSET', KEYS[1], 'ended', ARGV[4], 'size', size)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
"""
)

# KEYS: state.
_STOP = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'answer', 'ended')
if not held[1] or held[2] then return 0 end
redis.call('HSET', KEYS[1], 'stop', 1)
return 1
"""
)


class RedisStreamStore(RedisStore):
    """Running answers on a Redis, for any number of workers: ``streams=RedisStreamStore(client)``.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster``. It stays yours: it is never closed here.
        namespace: The prefix of every key.
        timeout: Longest duration of one step, in seconds. When Redis is away, answers go to their reader
            as they would without a store.
        grace: Seconds for which an answer goes on without any reader on any worker; then it is stopped at the
            service.
        keep: Seconds for which an answer can be read after its end, by a page that was being reloaded then.
        max_bytes: The largest size of one answer; a larger one ends with an error.
        lost_after: Seconds without a write after which the worker that reads an answer counts as dead.
            Readers on other workers are then told that the answer was interrupted.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    holds = "stream store"

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str = "mintlify",
        timeout: float = 1.0,
        grace: float = 60.0,
        keep: float = 60.0,
        max_bytes: int = MAX_BYTES,
        lost_after: float = 5.0,
    ) -> None:
        super().__init__(client, namespace=namespace, timeout=timeout)
        check_zero_or_more(grace, "grace", zero=True)
        check_zero_or_more(keep, "keep", zero=True)
        self.grace = grace
        self.keep = keep
        self.max_bytes = check_max_bytes(max_bytes)
        self._lost_ms = max(1, round(check_seconds(lost_after, "lost_after") * 1000))

    async def write(
        self,
        chat: str,
        answer: str,
        frames: bytes,
        *,
        at: int,
        question: str,
        asked: str = "",
        first: bool = False,
        force: bool = False,
        ended: bool = False,
    ) -> Written:
        """Add *frames* to *answer*; see :meth:`SharedStreamStore.write`."""
        kept = self._kept_ms if ended else max(self._kept_ms, UNFOUND_MS)
        place = "force" if force else "1" if first else ""
        args: list[Argument] = [answer, question, at, frames, at + len(frames)]
        args += [place, "1" if ended else "", self._lost_ms, kept, asked]
        size, reads, stopped = await self._run(_WRITE, self._keys(chat), args)
        return Written(int(size), int(reads or 0), bool(int(stopped)))

    async def read(
        self, chat: str, answer: str | None, place: int, *, hurry: bool = False
    ) -> SharedPiece | None:
        """Return what *answer* has after *place*; see :meth:`SharedStreamStore.read`."""
        earlier = max(0, self._lost_ms - HURRY_MS) if hurry else 0
        found = await self._run(_READ, self._keys(chat), [answer or "", place, self._lost_ms, earlier])
        if found is None:
            return None
        name, question, running, lost, frames, reached, asked = found
        data = frames if isinstance(frames, bytes) else str(frames).encode("ascii")
        state = (running == 1, lost == 1)
        return SharedPiece(text(name), text(question), *state, data, int(reached), text(asked or b""))

    async def end_lost(self, chat: str, answer: str, frames: bytes) -> bool:
        """End an answer whose worker has died; see :meth:`SharedStreamStore.end_lost`."""
        args: list[Argument] = [answer, frames, self._kept_ms, uuid.uuid4().hex]
        return bool(await self._run(_END_LOST, self._keys(chat), args))

    async def stop(self, chat: str) -> bool:
        """Ask the chat's answer to stop; see :meth:`SharedStreamStore.stop`."""
        return bool(await self._run(_STOP, self._keys(chat)[:1]))

    @property
    def _kept_ms(self) -> int:
        return self._lost_ms + round(self.keep * 1000)

    def _keys(self, chat: str) -> list[str]:
        state = f"{self._namespace}:streams:{{{chat}}}"
        return [state, f"{state}:frames"]
