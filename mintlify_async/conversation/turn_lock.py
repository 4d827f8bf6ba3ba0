"""TurnLock: lets one turn of a conversation run at a time.

The lock belongs to the conversation in its store, not to one object. So a bot may make a new
:class:`~mintlify_async.conversation.conversation.Conversation` for each message, and two messages of one user
still run one after the other. Each event loop has its own locks. If two loops use one stored conversation at
the same time, the version in the store decides which turn is saved.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import weakref
from collections.abc import AsyncGenerator, MutableMapping
from functools import partial
from typing import Any, Final, Protocol

from ..errors import StateError
from ..runtime.lasting_steps import KeptStep
from ..runtime.logs import log_fields, logged_if_slow
from ..runtime.tasks import running_loop

STEPS_APART: Final = 5.0
"""If a turn's task has ended without an error, the turn is abandoned after this many seconds. In this time,
another task may continue to read the reply."""

_BEHIND_ANOTHER: Final = "a question waits for another turn of its conversation to end"
_fields: Final = partial(log_fields, "ask")

Key = tuple[int, str, str]  # the id() of the store, the owner, the conversation's id


class LockHolder(Protocol):
    """A turn that holds a lock."""

    def release_if_over(self, task: asyncio.Task[Any] | None) -> None:
        """Release the lock if the turn is over or abandoned. *task* took the last step of the turn."""


class TurnLock:
    """A lock for the tasks of one event loop. The tasks get the lock in the order of their requests.

    Args:
        store: The conversation's store. It lives as long as its locks.

    Attributes:
        saving: The last save, for which the next turn waits.
    """

    def __init__(self, store: object = None) -> None:
        self._store = store
        self.saving: KeptStep | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0  # the number of waiting steps
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: weakref.ref[asyncio.Task[Any]] | None = None  # the task that took the last step
        self._turn: weakref.ref[LockHolder] | None = None  # weak, so that a dropped reply frees the lock

    @property
    def locked(self) -> bool:
        """Whether a turn is running."""
        return self._lock.locked()

    @property
    def turn(self) -> LockHolder | None:
        """The turn that is running, or None."""
        return None if self._turn is None else self._turn()

    async def acquire(
        self, turn: LockHolder | None = None, *, queue: bool, ignore_save: bool = False
    ) -> None:
        """Take the lock. A call of :meth:`release` must follow.

        Args:
            turn: The turn that takes the lock. None for a step that is no turn.
            queue: Whether to wait in line if another turn is running. If false, a running turn is a
                ``StateError``. Waiting for a turn that this task started is always a ``StateError``.
            ignore_save: Do not raise the last save's error. For a step that deletes the saved conversation.

        Raises:
            Exception: The error of the last save, if no caller got it.
        """
        task = asyncio.current_task()
        assert task is not None
        if not queue:
            self.check_free()
        elif self._is_taken() and self._task is not None and self._task() is task:
            raise StateError(
                "this task has started a turn of this conversation and would wait for itself; "
                "read that reply to its end or close it first"
            )
        self._waiting += 1
        try:
            with logged_if_slow(_BEHIND_ANOTHER, fields=_fields):
                await self._lock.acquire()
        finally:
            self._waiting -= 1
        self._loop = task.get_loop()
        self._turn = None if turn is None else weakref.ref(turn)
        self.read_by(task)
        try:
            await self._last_save(ignore_error=ignore_save)
        except BaseException:
            self.release()
            raise

    async def _last_save(self, *, ignore_error: bool) -> None:
        if self.saving is None:
            return
        with logged_if_slow("a question waits until the turn before is saved", fields=_fields):
            await (self.saving.ended() if ignore_error else self.saving.result())
        self.saving.report()
        self.saving = None

    async def saved(self) -> None:
        """Wait until the last save has ended. Its error is raised by the next turn."""
        if self.saving is not None:
            await self.saving.ended()

    def read_by(self, task: asyncio.Task[Any]) -> None:
        """Record the task that takes the turn's next step. When the task has ended, the turn is abandoned."""
        if self._task is not None and self._task() is task:
            return
        self._forget_task()
        self._task = weakref.ref(task)
        task.add_done_callback(self._task_ended)

    def _forget_task(self) -> None:
        task, self._task = None if self._task is None else self._task(), None
        if task is not None:
            task.remove_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """Check whether the turn is abandoned, for the steps that wait in line.

        After a successful end, wait first, because another task may continue to read the reply.
        """
        # task.exception() would prevent asyncio from logging an error that no code retrieves.
        if task.cancelled() or getattr(task, "_exception", None) is not None:
            self._ask_for_line(task)
        elif not task.get_loop().is_closed():
            task.get_loop().call_later(STEPS_APART, self._ask_for_line, task)

    def _ask_for_line(self, task: asyncio.Task[Any]) -> None:
        if self._waiting and self._task is not None and self._task() is task:
            self._is_taken()

    @contextlib.asynccontextmanager
    async def hold(self, *, queue: bool, ignore_save: bool = False) -> AsyncGenerator[None]:
        """Take the lock for a step that is no turn. See :meth:`acquire` for the arguments."""
        await self.acquire(queue=queue, ignore_save=ignore_save)
        try:
            yield
        finally:
            self.release()

    def check_free(self) -> None:
        """Raise StateError if a turn is running."""
        if self._is_taken():
            raise busy_error()

    def _is_taken(self) -> bool:
        """Release the lock if its turn is over. Return whether the lock is taken."""
        if (turn := self.turn) is not None:
            turn.release_if_over(None if self._task is None else self._task())
        return self.locked

    def release(self) -> None:
        """Let the next turn start. Any thread may call this, because finalizers may run on any thread."""
        loop = self._loop
        if loop is None or loop is running_loop():
            self._release()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed and has no other turn
                loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._forget_task()
        self._turn = None
        self._lock.release()


def busy_error() -> StateError:
    """Return the error for a turn that cannot start now."""
    return StateError(
        "this conversation is busy with another turn; read that reply to its end or close it first, "
        'or make the conversation with busy="queue"'
    )


_LOCKS: MutableMapping[object, MutableMapping[Key, TurnLock]] = weakref.WeakKeyDictionary()


def turn_lock(store: object, owner: str, id: str) -> TurnLock:
    """Return the running loop's lock of the conversation *id* of *owner* in *store*."""
    loop = running_loop()
    if loop is None:
        return TurnLock()  # no running loop, so no other turn
    locks = _LOCKS.setdefault(loop, weakref.WeakValueDictionary())
    return locks.setdefault((builtins.id(store), owner, id), TurnLock(store))
