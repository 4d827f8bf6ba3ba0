"""A quota store on Redis: all workers and machines that use it share the counts.

Each step is one script and one round trip. An exact window is a sorted set of slots by the server's time in
microseconds; a counted window is a hash of counts per sixtieth; what the service reported (a block after a
429, how many calls are left) is a hash. Every key expires. Keys contain hashes: no project, domain or API key
can be read from them.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from mintlify_async.errors import ConfigurationError, QuotaExceededError
from mintlify_async.quota import MemoryQuotaStore, QuotaGate, QuotaRemaining, QuotaVerdict, QuotaWindow
from mintlify_async.quota.windows import FIRST_BLOCK, LONGEST_BLOCK, SAME_PERIOD

from .redis_store import Argument, RedisClient, RedisStore, Script, StoreUnavailable, check_seconds, text

if TYPE_CHECKING:
    from mintlify_async.runtime.clock import Clock

_log = logging.getLogger("mintlify_async")

MICROSECONDS: Final = 1_000_000
CATCH_UP_LOOK: Final = 0.01
"""Seconds between checks whether another call has finished telling Redis what it missed."""

# Numbers that become keys or values go through string.format: Lua's default conversion keeps only 14 digits,
# and microseconds since the epoch have 16.
_PRELUDE = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function int(x) return string.format('%.0f', x) end
local function state(key)
  local f = redis.call('HMGET', key, 'epoch', 'blocked', 'allowance', 'until', 'pause', 'doubles')
  return {epoch = f[1], blocked = tonumber(f[2] or '0'), allowance = tonumber(f[3] or '0'),
          till = tonumber(f[4] or '0'), pause = tonumber(f[5] or '0'), doubles = tonumber(f[6] or '0')}
end
local function keep(key, s, longest)
  local till = math.max(now + longest, s.blocked, s.till, s.doubles)
  redis.call('PEXPIRE', key, int(math.ceil((till - now) / 1000) + 1000))
end
local function service_wait(s, ahead)
  if s.blocked > now then return s.blocked - now end
  if s.till > now and s.allowance <= ahead then return s.till - now end
  return 0
end
local function exact_wait(key, amount, win, ahead)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now - win))
  local used = redis.call('ZCARD', key)
  local nth = used - amount + ahead
  if nth < 0 then return 0, used end
  local rounds, place, taken = math.floor(nth / amount), nth % amount, now
  if place < used then taken = tonumber(redis.call('ZRANGE', key, place, place, 'WITHSCORES')[2]) end
  return taken + win * (rounds + 1) - now, used
end
local function counted_wait(key, amount, win, ahead)
  local size, used, live = win / 60, 0, {}
  local oldest = math.floor(now / size) - 60
  local all = redis.call('HGETALL', key)
  for j = 1, #all, 2 do
    local index, n = tonumber(all[j]), tonumber(all[j + 1])
    if index < oldest then redis.call('HDEL', key, all[j])
    else used = used + n; live[#live + 1] = {index, n} end
  end
  local over = used - amount + ahead
  if over < 0 then return 0, used end
  table.sort(live, function(a, b) return a[1] < b[1] end)
  for _, one in ipairs(live) do
    over = over - one[2]
    if over < 0 then return (one[1] + 61) * size - now, used end
  end
  return win, used
end
local function wait_of(key, kind, amount, win, ahead)
  if kind == 'exact' then return exact_wait(key, amount, win, ahead) end
  return counted_wait(key, amount, win, ahead)
end
"""

# KEYS: state, windows ...; ARGV: slot, ahead, known epoch, new epoch, longest window, then kind, amount and
# µs of each window. The epoch is a random name of the server's data: a new one means that the data was lost.
_TAKE = Script(
    _PRELUDE
    + """
local ahead, longest = tonumber(ARGV[2]), tonumber(ARGV[5])
local s = state(KEYS[1])
if not s.epoch then
  s.epoch = ARGV[4]
  redis.call('HSET', KEYS[1], 'epoch', s.epoch)
end
keep(KEYS[1], s, longest)
if ARGV[3] ~= '' and ARGV[3] ~= s.epoch then return {-1, 0, 0, int(now), s.epoch} end
local wait = service_wait(s, ahead)
if wait > 0 then return {0, wait, 0, int(now), s.epoch} end
local which, granted = 0, {1, 0, 0, int(now), s.epoch}
for i = 2, #KEYS do
  local a = 3 * i
  local kind, amount, win = ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  if kind == 'exact' and redis.call('ZSCORE', KEYS[i], ARGV[1]) then return {1, 0, 0, int(now), s.epoch} end
  local w, used = wait_of(KEYS[i], kind, amount, win, ahead)
  granted[i + 4] = used + 1
  if w > wait then wait = w; which = i - 1 end
end
if wait > 0 then return {0, math.ceil(wait), which, int(now), s.epoch} end
for i = 2, #KEYS do
  local a = 3 * i
  local win = tonumber(ARGV[a + 2])
  if ARGV[a] == 'exact' then redis.call('ZADD', KEYS[i], int(now), ARGV[1])
  else redis.call('HINCRBY', KEYS[i], int(math.floor(now / (win / 60))), 1) end
  redis.call('PEXPIRE', KEYS[i], int(math.ceil(win * 62 / 60 / 1000) + 1000))
end
if s.till > now then redis.call('HINCRBY', KEYS[1], 'allowance', -1) end
return granted
"""
)

# KEYS: state, windows ...; ARGV: slot, when it was granted (0: not known), then kind and µs of each window.
_REFUND = Script(
    _PRELUDE
    + """
local taken = tonumber(ARGV[2])
for i = 2, #KEYS do
  local kind, win = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  if kind == 'exact' then redis.call('ZREM', KEYS[i], ARGV[1])
  elseif taken > 0 then
    local index = int(math.floor(taken / (win / 60)))
    if tonumber(redis.call('HGET', KEYS[i], index) or '0') > 0 then
      redis.call('HINCRBY', KEYS[i], index, -1)
    end
  end
end
if taken > 0 and state(KEYS[1]).till > now then redis.call('HINCRBY', KEYS[1], 'allowance', 1) end
return 1
"""
)

# KEYS: state; ARGV: µs to block (-1: the script chooses), first pause, longest pause, longest window.
# The same rules as windows.ServerLimits.block.
_BLOCK = Script(
    _PRELUDE
    + """
local s, wait = state(KEYS[1]), tonumber(ARGV[1])
if wait < 0 then
  if now < s.blocked then return s.blocked - now end
  if now < s.doubles then s.pause = math.min(s.pause * 2, tonumber(ARGV[3]))
  else s.pause = tonumber(ARGV[2]) end
  wait = s.pause
  s.doubles = now + 2 * wait
end
s.blocked = math.max(s.blocked, now + wait)
redis.call('HSET', KEYS[1], 'blocked', int(s.blocked), 'pause', int(s.pause), 'doubles', int(s.doubles))
keep(KEYS[1], s, tonumber(ARGV[4]))
return s.blocked - now
"""
)

# KEYS: state; ARGV: calls left, µs until the reset, µs within which two resets are the same, longest window.
# The same rules as windows.ServerLimits.learn.
_LEARN = Script(
    _PRELUDE
    + """
local s, left, till = state(KEYS[1]), tonumber(ARGV[1]), now + tonumber(ARGV[2])
if now < s.till and math.abs(s.till - till) <= tonumber(ARGV[3]) then left = math.min(left, s.allowance) end
s.till = till
redis.call('HSET', KEYS[1], 'allowance', int(left), 'until', int(till))
keep(KEYS[1], s, tonumber(ARGV[4]))
return 1
"""
)

# KEYS: state.
_UNBLOCK = Script("return redis.call('HDEL', KEYS[1], 'blocked', 'allowance', 'until', 'pause', 'doubles')")

# KEYS: state, windows ...; ARGV: kind, amount and µs of each window.
_LEFT = Script(
    _PRELUDE
    + """
local s, told = state(KEYS[1]), {}
local wait = service_wait(s, 0)
for i = 2, #KEYS do
  local a = 3 * i - 5
  local w, used = wait_of(KEYS[i], ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), 0)
  local left = tonumber(ARGV[a + 1]) - used
  if s.till > now then left = math.min(left, s.allowance) end
  told[#told + 1] = {left, math.ceil(math.max(w, wait)), math.max(0, s.blocked - now)}
end
return told
"""
)

# KEYS: one window; ARGV: kind, µs, then the name and the age in µs of each slot.
_ENTER = Script(
    _PRELUDE
    + """
local win = tonumber(ARGV[2])
for a = 3, #ARGV, 2 do
  local taken = now - tonumber(ARGV[a + 1])
  if ARGV[1] == 'exact' then redis.call('ZADD', KEYS[1], 'NX', int(taken), ARGV[a])
  else redis.call('HINCRBY', KEYS[1], int(math.floor(taken / (win / 60))), 1) end
end
redis.call('PEXPIRE', KEYS[1], int(math.ceil(win * 62 / 60 / 1000) + 1000))
return 1
"""
)


class RedisQuotaStore(RedisStore):
    """A quota store on a Redis, shared by all processes and machines that use it.

    Only the server's clock counts, so wrong clocks of the other computers do no harm. When the server has
    lost its data, each process enters its own slots again before it takes the next.

    Args:
        client: A ``redis.asyncio.Redis`` or ``RedisCluster``. It stays yours: it is never closed here.
        namespace: The prefix of every key.
        on_store_error: What happens while Redis cannot be reached: ``"raise"`` refuses every call,
            ``"local"`` gives this process its share of each limit, counted here.
        sharers: How many processes share the limits, for ``"local"``: the share is the limit
            divided by this, rounded down. It counts what all of them were last known to have used,
            so a process that was refused before has no share until the window has passed.
        timeout: Longest duration of one step, in seconds, whatever the client's own timeouts are.
        probe_every: How long Redis is not tried again after a failure, in seconds.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str = "mintlify",
        on_store_error: Literal["raise", "local"] = "raise",
        sharers: int | None = None,
        timeout: float = 0.25,
        probe_every: float = 1.0,
    ) -> None:
        if on_store_error not in ("raise", "local"):
            raise ConfigurationError(
                f"on_store_error must be 'raise' or 'local', not {on_store_error!r}", field="on_store_error"
            )
        if on_store_error == "local" and (type(sharers) is not int or sharers < 1):
            raise ConfigurationError(
                "sharers must be the number of processes that share the limits, for on_store_error='local'",
                field="sharers",
            )
        super().__init__(client, namespace=namespace, timeout=timeout)
        self._sharers = sharers if on_store_error == "local" else None
        self._probe_every = check_seconds(probe_every, "probe_every")
        self._name = uuid.uuid4().hex[:16]
        self._numbers = count()
        # All of these are by the gate's key.
        self._own = MemoryQuotaStore()  # what this process was granted, and what the service reported to it
        self._epochs: dict[str, str] = {}
        self._owed: dict[str, list[float]] = {}  # slots taken while Redis was unavailable
        # by the window's key: how many slots were in use, when
        self._known: dict[str, tuple[int, float]] = {}
        self._untold: set[str] = set()  # blocks that Redis does not know yet
        self._telling: set[str] = set()  # gates for which a call is telling Redis at this moment
        self._unavailable = False
        self._probe_at = 0.0

    def __repr__(self) -> str:
        return f"RedisQuotaStore(namespace={self._namespace!r}{', unavailable' if self._unavailable else ''})"

    async def take(self, gate: QuotaGate, *, ahead: int, clock: Clock) -> QuotaVerdict:
        """Take a slot in all windows of *gate*, or in none.

        Raises:
            QuotaExceededError: Redis cannot be reached, and ``on_store_error`` is ``"raise"``.
        """
        if not self._is_paused(clock):
            try:
                return await self._take_shared(gate, ahead, clock)
            except StoreUnavailable as error:
                self._mark_unavailable(error, clock)
        return await self._take_share(gate, ahead, clock)

    async def refund(self, gate: QuotaGate, slot: str, *, clock: Clock) -> None:
        """Give *slot* back, because nothing was sent. While Redis is unavailable the slot stays taken."""
        name, granted, noted = slot.split(" ")
        await self._own.refund(gate, noted, clock=clock)
        if name:
            await self._quietly(clock, _REFUND, self._keys(gate), [name, granted, *_kinds(gate)])
        elif float(noted) in self._owed.get(gate.key, ()):
            self._owed[gate.key].remove(float(noted))

    async def block(self, gate: QuotaGate, seconds: float | None, *, clock: Clock) -> None:
        """Refuse every call for *seconds*; None is 60 s, doubling. Works even while Redis is unavailable."""
        await self._own.block(gate, seconds, clock=clock)
        if not await self._quietly(clock, _BLOCK, self._keys(gate)[:1], _block_args(gate, seconds)):
            self._untold.add(gate.key)

    async def unblock(self, gate: QuotaGate, *, clock: Clock) -> None:
        """Forget what the service reported, for every process that shares this store.

        Raises:
            QuotaExceededError: Redis cannot be reached.
        """
        await self._own.unblock(gate, clock=clock)
        self._untold.discard(gate.key)
        try:
            await self._attempt(_UNBLOCK, self._keys(gate)[:1], [])
        except StoreUnavailable as error:
            self._mark_unavailable(error, clock)
            raise self._refusal(clock) from None

    async def learn(self, gate: QuotaGate, remaining: int, reset: float, *, clock: Clock) -> None:
        """Allow at most *remaining* calls in the next *reset* seconds, as the service reported."""
        await self._own.learn(gate, remaining, reset, clock=clock)
        args: list[Argument] = [remaining, _us(reset), _us(SAME_PERIOD), _us(gate.longest)]
        await self._quietly(clock, _LEARN, self._keys(gate)[:1], args)

    async def left(self, gate: QuotaGate, *, clock: Clock | None) -> tuple[QuotaRemaining, ...]:
        """Return what is left of each window of *gate*.

        Raises:
            QuotaExceededError: Redis cannot be reached, and ``on_store_error`` is ``"raise"``.
        """
        if clock is None or not self._is_paused(clock):
            try:
                told = await self._attempt(_LEFT, self._keys(gate), _windows(gate))
            except StoreUnavailable as error:
                self._mark_unavailable(error, clock)
            else:
                self._mark_available()
                return tuple(_remaining(window, *one) for window, one in zip(gate.windows, told, strict=True))
        if self._sharers is None:
            raise self._refusal(clock)
        return await self._own.left(gate.share(self._sharers), clock=clock)

    # While Redis answers

    async def _take_shared(self, gate: QuotaGate, ahead: int, clock: Clock) -> QuotaVerdict:
        await self._catch_up(gate, clock)
        slot = f"{self._name}-{next(self._numbers)}"
        granted, wait, which, at, epoch, *used = await self._ask(gate, slot, ahead)
        if granted < 0:  # the server has lost its data
            await self._enter_own(gate, clock)
            self._epochs[gate.key] = text(epoch)  # only now: it lets other calls take slots
            granted, wait, which, at, epoch, *used = await self._ask(gate, slot, ahead)
        self._mark_available()
        self._epochs[gate.key] = text(epoch)
        now = clock.now()
        if granted > 0:
            self._known |= {window.key: (n, now) for window, n in zip(gate.windows, used, strict=False)}
            return QuotaVerdict(slot=f"{slot} {text(at)} {self._own.note(gate, clock=clock)}")
        window = gate.windows[max(0, int(which) - 1)] if gate.windows else None
        if which and window is not None:
            self._known[window.key] = (window.amount, now)
        name = window.name if window is not None else None
        return QuotaVerdict(wait=max(wait, 1) / MICROSECONDS, limit=name, blocked=which == 0)

    async def _ask(self, gate: QuotaGate, slot: str, ahead: int) -> list[Any]:
        known = self._epochs.get(gate.key, "")
        args: list[Argument] = [slot, ahead, known, uuid.uuid4().hex, _us(gate.longest), *_windows(gate)]
        try:
            reply: list[Any] = await self._attempt(_TAKE, self._keys(gate), args)
        except anyio.get_cancelled_exc_class():  # the slot may have been granted, and will not be used
            with anyio.CancelScope(shield=True):
                await self._give_back_unseen(gate, slot)
            raise
        return reply

    async def _give_back_unseen(self, gate: QuotaGate, slot: str) -> None:
        try:
            await self._attempt(_REFUND, self._keys(gate), [slot, 0, *_kinds(gate)])
        except StoreUnavailable:  # the slot stays taken, which at most sends too little
            return

    async def _enter_own(self, gate: QuotaGate, clock: Clock) -> None:
        """Enter the slots of this process again after the server has lost its data; exact windows only."""
        for window in gate.windows:
            if window.exact:
                await self._enter(gate, window, self._own.taken(window, clock=clock), clock)

    async def _catch_up(self, gate: QuotaGate, clock: Clock) -> None:
        """Tell Redis what happened while it was unavailable, before a call of this process asks it."""
        waited = False
        while gate.key in self._telling:  # not a lock: calls may be on several event loops
            await clock.sleep(CATCH_UP_LOOK)
            waited = True
        if waited and self._unavailable:
            raise self._reason
        self._telling.add(gate.key)
        try:
            await self._tell_block(gate, clock)
            await self._tell_owed(gate, clock)
        finally:
            self._telling.discard(gate.key)

    async def _tell_block(self, gate: QuotaGate, clock: Clock) -> None:
        if gate.key in self._untold:
            left = await self._own.left(gate, clock=clock)
            seconds = max((one.blocked for one in left), default=0.0)
            await self._attempt(_BLOCK, self._keys(gate)[:1], _block_args(gate, seconds))
            self._untold.discard(gate.key)

    async def _tell_owed(self, gate: QuotaGate, clock: Clock) -> None:
        """Enter the slots taken while Redis was unavailable; more may be taken meanwhile."""
        owed = self._owed.pop(gate.key, [])
        try:
            for window in gate.windows:
                await self._enter(gate, window, owed, clock)
        except BaseException:
            self._owed[gate.key] = [*owed, *self._owed.get(gate.key, [])]
            raise

    async def _enter(self, gate: QuotaGate, window: QuotaWindow, taken: list[float], clock: Clock) -> None:
        now = clock.now()
        args: list[Argument] = [_kind(window), _us(window.seconds)]
        alike: Counter[float] = Counter()  # a slot needs the same name whenever it is entered
        for at in sorted(taken):
            if now - at < window.seconds:
                args += [f"{self._name}-{at!r}-{alike[at]}", _us(now - at)]
                alike[at] += 1
        if len(args) > 2:
            await self._attempt(_ENTER, [self._key(gate, window.key)], args)

    async def _quietly(self, clock: Clock, script: Script, keys: list[str], args: list[Argument]) -> bool:
        """Run *script* and return whether it ran; raises nothing when Redis is unavailable."""
        if self._is_paused(clock):
            return False
        try:
            await self._attempt(script, keys, args)
        except StoreUnavailable as error:
            self._mark_unavailable(error, clock)
            return False
        self._mark_available()
        return True

    def _key(self, gate: QuotaGate, name: str) -> str:
        return f"{self._namespace}:quota:{{{gate.tag}}}:{name}"

    def _keys(self, gate: QuotaGate) -> list[str]:
        return [self._key(gate, f"state:{gate.key}"), *(self._key(gate, w.key) for w in gate.windows)]

    # While Redis is unavailable

    async def _take_share(self, gate: QuotaGate, ahead: int, clock: Clock) -> QuotaVerdict:
        if self._sharers is None:
            raise self._refusal(clock)
        share, now = gate.share(self._sharers), clock.now()
        for window in share.windows:  # the count begins at the last known use, of all who share the limit
            used, at = self._known.get(window.key, (0, now))
            used += len(self._owed.get(gate.key, ()))
            if used >= window.amount and now - at < window.seconds and window.key in self._known:
                return QuotaVerdict(wait=at + window.seconds - now, limit=window.name)
        verdict = await self._own.take(share, ahead=ahead, clock=clock)
        if verdict.slot is None:
            return verdict
        self._owed.setdefault(gate.key, []).append(float(verdict.slot))
        return QuotaVerdict(slot=f" 0 {verdict.slot}")

    def _is_paused(self, clock: Clock) -> bool:
        """Return whether Redis failed a moment ago; after each pause one call tries again."""
        if not self._unavailable:
            return False
        now = clock.now()
        if now < self._probe_at:
            return True
        self._probe_at = now + self._probe_every
        return False

    def _mark_unavailable(self, error: StoreUnavailable, clock: Clock | None) -> None:
        self._reason = error
        if clock is not None:
            self._probe_at = clock.now() + self._probe_every
        if not self._unavailable:
            self._unavailable = True
            then = "each process keeps to its share" if self._sharers else "every call is refused"
            said = "the quota store on Redis is unavailable (%s): %s until it is available again"
            _log.warning(said, error.reason, then)

    def _mark_available(self) -> None:
        if self._unavailable:
            self._unavailable = False
            _log.warning("the quota store on Redis is available again")

    def _refusal(self, clock: Clock | None) -> QuotaExceededError:
        wait = self._probe_every if clock is None else max(0.001, self._probe_at - clock.now())
        error = QuotaExceededError(
            f"the quota store on Redis is unavailable ({self._reason.reason}); nothing was sent",
            retry_after=min(wait, self._probe_every),
        )
        error.__cause__ = self._reason.cause()
        return error


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def _kind(window: QuotaWindow) -> str:
    return "exact" if window.exact else "counted"


def _kinds(gate: QuotaGate) -> list[Argument]:
    return [one for window in gate.windows for one in (_kind(window), _us(window.seconds))]


def _windows(gate: QuotaGate) -> list[Argument]:
    return [one for window in gate.windows for one in (_kind(window), window.amount, _us(window.seconds))]


def _block_args(gate: QuotaGate, seconds: float | None) -> list[Argument]:
    wait = -1 if seconds is None else _us(seconds)
    return [wait, _us(FIRST_BLOCK), _us(LONGEST_BLOCK), _us(gate.longest)]


def _remaining(window: QuotaWindow, left: int, wait: int, blocked: int) -> QuotaRemaining:
    return QuotaRemaining(
        limit=window.name,
        amount=window.amount,
        per=window.seconds,
        left=0 if wait > 0 else max(0, left),
        next_in=wait / MICROSECONDS,
        blocked=blocked / MICROSECONDS,
    )
