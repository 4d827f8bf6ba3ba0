"""Coordinates the calls with a ``dedupe_key`` on one event loop, and reads their ledger while they wait.

Calls with the same key are sent one after the other, so twenty callers with one free slot of a quota get one
job.
A call that waits for a slot or for another process reacts to a change of its key within about a second. All
waiting keys of a ledger are read in one step, because a read for each key would keep the store busy.
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
from .ledger import Claim, KeyHeldError, check_same, claim_keys

FIRST_PAUSE: Final = 0.05
"""Seconds until the key of a waiting call is read for the first time. The pause doubles each time."""

LONGEST_PAUSE: Final = 1.0
"""Longest pause between two reads of a key, in seconds."""

MOST_KEYS: Final = 1000
"""Maximum number of keys that one step reads."""

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
        """If the wait is over for *snapshot*, end the wait. Otherwise, or for None, set a longer pause."""
        try:
            if snapshot is not None and self.is_over(snapshot):
                self.limit.end()
        except StateError:  # a damaged record, which the call reads again to raise the error
            self.limit.end()
        self.pause = min(LONGEST_PAUSE, 2 * self.pause)
        self.at = asyncio.get_running_loop().time() + self.pause


class KeyWatch:
    """The running calls with a ``dedupe_key`` of one event loop. Stores are read only while calls wait."""

    def __init__(self) -> None:
        """Start without calls."""
        self._calls: dict[tuple[int, str], tuple[Claim, asyncio.Event]] = {}
        self._waiters: set[_Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf  # an uvloop timer may not have when()
        self._look: asyncio.Task[None] | None = None
        self._closed = False

    async def enter(self, store: Store, claim: Claim, until: float) -> Callable[[], None]:
        """Wait until the earlier calls with the same key have ended. Return a function that ends this call.

        Args:
            store: The ledger.
            claim: The claim of this call.
            until: When to stop waiting, by the loop's time.

        Raises:
            ConfigurationError: The key belongs to another request.
            TimeoutError: The time *until* has come, and another call has not ended.
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
        """Wait for *step*. Cancel it if *is_over* is true for the ledger's records of *key*.

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
        """If no read is running, set the timer for the next read. The end of a read plans the next one."""
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
        except BaseException:  # from a task factory. The next read may succeed
            for waiter in self._waiters:
                waiter.look(None)
            self._plan()
            raise

    async def _read(self) -> None:
        """Read the keys that are due now or soon, so that later reads share a step."""
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
        """Stop reading. The waiting calls end with the connections."""
        self._closed = True
        self._waiters.clear()
        self._plan()
        if self._look is not None:
            await end_tasks([self._look])


async def _read(store: Store, names: list[str]) -> Snapshot | None:
    try:
        return await store.read(names)
    except Exception:  # nothing is sent because of this read, and the next read may succeed
        return None
