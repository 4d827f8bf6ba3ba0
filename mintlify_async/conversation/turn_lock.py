"""TurnLock: lets one turn of a conversation run at a time.

The lock belongs to the conversation in its store, not to one object: a bot may make a new
:class:`~mintlify_async.conversation.conversation.Conversation` for each message, and two messages of one
user still run one after the other.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, MutableMapping
from contextlib import asynccontextmanager

from ..errors import StateError
from ..runtime.slow_steps import logged_if_slow


class TurnLock:
    """A lock that is handed over in the order of the requests, across event loops and threads."""

    def __init__(self) -> None:
        """Start unlocked."""
        self._locked = False
        self._release_if_over: weakref.WeakMethod[Callable[[], bool]] | None = None
        self._holder: weakref.ref[asyncio.Task[object]] | None = None  # the task that took the lock
        self._loop: asyncio.AbstractEventLoop | None = None  # of that task
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def locked(self) -> bool:
        """Whether a turn is under way."""
        return self._locked

    async def acquire(self, release_if_over: Callable[[], bool], *, queue: bool) -> None:
        """Take the lock for a turn; :meth:`release` must follow.

        Args:
            release_if_over: A method of the turn, which the lock does not keep alive. It releases the lock
                if nothing depends on the turn any more.
            queue: If another turn is running, wait in line. If false, a running turn is a ``StateError``.
                Waiting for a turn that this task started is always a ``StateError``.
        """
        await self._take(queue=queue)
        self._release_if_over = weakref.WeakMethod(release_if_over)

    @asynccontextmanager
    async def hold(self, *, queue: bool) -> AsyncGenerator[None]:
        """Hold the lock for a step that is no turn; *queue* as for :meth:`acquire`."""
        await self._take(queue=queue)
        try:
            yield
        finally:
            self.release()

    def check_free(self) -> None:
        """Raise StateError when a turn is under way."""
        if not self._available():
            raise busy_error()

    async def _take(self, *, queue: bool) -> None:
        task = asyncio.current_task()
        assert task is not None
        if not queue:
            self.check_free()
        elif not self._available():
            if self._holder is not None and self._holder() is task:
                raise StateError(
                    "this task has begun a turn of this conversation and would wait for itself; "
                    "read that reply to its end or close it first"
                )
            with logged_if_slow("a question waits for another turn of its conversation to end"):
                await self._wait()
        self._locked = True
        self._holder, self._loop = weakref.ref(task), task.get_loop()

    def _available(self) -> bool:
        """Return whether the lock is free, once a holder that is over has released it."""
        release_if_over = self._release_if_over() if self._release_if_over is not None else None
        if self._locked and release_if_over is not None:
            release_if_over()
        if self._locked and self._loop is not None and self._loop.is_closed():
            self.release()  # its loop was closed with the task pending, so nothing else will
        return not self._locked and not self._waiting

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:
                self.release()  # the lock was handed to this task before it was cancelled
            raise

    def release(self) -> None:
        """Hand the lock to the next in line. From any thread: a finalizer may run on another one."""
        self._release_if_over = self._holder = self._loop = None
        while self._waiting:
            waiter = self._waiting.popleft()
            try:
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)
            except RuntimeError:  # it waited on a loop that is closed now
                continue
            self._locked = True
            return
        self._locked = False


def busy_error() -> StateError:
    """Return the error for a turn that cannot start now."""
    return StateError(
        "this conversation is busy with another turn; read that reply to its end or close it first, "
        'or make the conversation with busy="queue"'
    )


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_LOCKS: MutableMapping[object, MutableMapping[tuple[str, str], TurnLock]] = weakref.WeakKeyDictionary()


def shared_lock(store: object, owner: str, id: str) -> TurnLock:
    """Return the lock of the conversation that *owner* keeps in *store* under *id*."""
    try:
        locks = _LOCKS.setdefault(store, weakref.WeakValueDictionary())
    except TypeError:  # a user's own store that cannot be hashed or weakly referenced
        return TurnLock()
    return locks.setdefault((owner, id), TurnLock())
