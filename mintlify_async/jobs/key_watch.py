"""What calls with a ``dedupe_key`` on one event loop know of each other, and of the ledger while they wait.

Calls with one key send one after the other, so that twenty callers with one free slot of a quota get one job.
A call that waits, for a slot or for another process, hears within about a second that its key has changed.
All keys that wait on one ledger are read in one step, because a read for each of a thousand would keep the
store busy.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from attrs import define, field

from ..errors import StateError
from ..runtime.tasks import end_tasks, start_task
from ..runtime.time_limits import TimeLimit
from ..storage.store import Snapshot, Store
from .claims import Claim, KeyHeldError, check_same, claim_keys

FIRST_PAUSE: Final = 0.05
"""Seconds until the key of a call that waits is read for the first time; doubles each time."""

LONGEST_PAUSE: Final = 1.0
"""Longest such pause, in seconds."""

MOST_KEYS: Final = 1000
"""How many keys one step reads at most."""

T = TypeVar("T")


@define(eq=False)
class _Waiter:
    store: Store
    key: str
    is_over: Callable[[Snapshot], bool]
    at: float
    limit: TimeLimit = field(factory=TimeLimit)
    pause: float = FIRST_PAUSE

    def look(self, snapshot: Snapshot | None) -> None:
        """End the wait if it is over by *snapshot*. If not, or if nothing could be read, wait longer."""
        try:
            if snapshot is not None and self.is_over(snapshot):
                self.limit.end()
        except StateError:  # a damaged record: the call reads it again, and raises the error
            self.limit.end()
        self.pause = min(LONGEST_PAUSE, 2 * self.pause)
        self.at = asyncio.get_running_loop().time() + self.pause


class KeyWatch:
    """The calls with a ``dedupe_key`` that run on one event loop. It reads a store only while calls wait."""

    def __init__(self) -> None:
        """Start without any."""
        self._calls: dict[tuple[int, str], tuple[Claim, asyncio.Event]] = {}
        self._waiters: set[_Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf  # a handle of uvloop may not tell it
        self._look: asyncio.Task[None] | None = None
        self._closed = False

    async def enter(self, store: Store, claim: Claim, until: float) -> Callable[[], None]:
        """Wait until the calls with the same key that came before have ended. Return what ends this one.

        Args:
            store: The ledger.
            claim: The call's.
            until: When to give up, by the loop's time.

        Raises:
            ConfigurationError: The key belongs to another request.
            TimeoutError: It is *until*, and another call has not ended.
        """
        place = id(store), claim.key
        async with asyncio.timeout_at(None if until == math.inf else until):
            while place in self._calls:
                other, ended = self._calls[place]
                check_same(other, claim)
                await ended.wait()
        self._calls[place] = claim, (ended := asyncio.Event())

        def leave() -> None:
            del self._calls[place]
            ended.set()

        return leave

    async def unless(
        self, store: Store, key: str, is_over: Callable[[Snapshot], bool], step: Awaitable[T]
    ) -> T:
        """Wait for *step*, but end it when *is_over* is true for what the ledger has of *key*.

        Raises:
            KeyHeldError: *is_over* is true. *step* was cancelled.
        """
        now = asyncio.get_running_loop().time()
        waiter = _Waiter(store, key, is_over, now + FIRST_PAUSE)
        self._waiters.add(waiter)
        self._plan()
        try:
            with waiter.limit:
                return await step
        except TimeoutError:
            if not waiter.limit.ended:
                raise
        finally:
            self._waiters.discard(waiter)
            self._plan()
        raise KeyHeldError("another call has used the dedupe_key; nothing was sent")

    def _plan(self) -> None:
        """Set the timer for the next look, unless one is under way, which plans again."""
        at = min((waiter.at for waiter in self._waiters), default=math.inf)
        if self._timer is not None and (at < self._timer_at or at == math.inf):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._look is None and at < math.inf and not self._closed:
            self._timer, self._timer_at = asyncio.get_running_loop().call_at(at, self._begin_look), at

    def _begin_look(self) -> None:
        self._timer = None
        try:
            self._look = start_task(self._read())
        except BaseException:  # a task factory's, which the next look may not meet
            for waiter in self._waiters:
                waiter.look(None)
            self._plan()
            raise

    async def _read(self) -> None:
        """Read the keys of those whose time has come, or comes soon, so that they stay together."""
        now = asyncio.get_running_loop().time()
        due = [waiter for waiter in self._waiters if waiter.at <= now + waiter.pause / 2]
        due = sorted(due, key=lambda waiter: waiter.at)[:MOST_KEYS]
        try:
            for store in {id(waiter.store): waiter.store for waiter in due}.values():
                waiters = [waiter for waiter in due if waiter.store is store]
                snapshot = await _read(store, [name for one in waiters for name in claim_keys(one.key)])
                for waiter in waiters:
                    waiter.look(snapshot)
        finally:
            self._look = None
            self._plan()

    async def close(self) -> None:
        """Read no more. What waits is ended with the connections."""
        self._closed = True
        self._waiters.clear()
        self._plan()
        if self._look is not None:
            await end_tasks([self._look])


async def _read(store: Store, names: list[str]) -> Snapshot | None:
    try:
        return await store.read(names)
    except Exception:  # nothing is sent by this look, and the next one may succeed
        return None
