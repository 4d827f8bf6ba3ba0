"""One set of resources for each running event loop. It is closed with that loop.

A session may be used in several calls of ``asyncio.run`` and in several threads, but connections belong to
the loop that opened them.
"""

# An asynchronous generator that has made its first step detects the end of a loop, because ``asyncio.run``
# closes the generator through ``loop.shutdown_asyncgens``. It is not possible to close the connections of an
# ended loop from another loop, or with a weak dictionary of loops.

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import suppress
from types import AsyncGeneratorType
from typing import Final, Generic, Protocol, TypeVar, cast

from attrs import define

from ..errors import StateError
from .tasks import finish_shielded, running_loop, start_task

__all__ = ["LoopLocal", "session_closed"]

CLOSE_SECONDS: Final = 5.0
"""Maximum time that closing waits for other loops, in seconds."""

LOOK_SECONDS: Final = 0.01
"""The time between two checks of the other loops, in seconds."""

STILL_LOOKS: Final = 10
"""If the other loops are idle at this number of checks in a row, closing does not wait for them.

One check is not enough, because ``asyncio.run`` pauses between two steps.
"""


def session_closed(operation: str | None = None) -> StateError:
    """Return the error for a call on a closed session."""
    message = "this session is closed; make a new one"
    return StateError(f"{operation}: {message}" if operation else message)


class Closable(Protocol):
    """Resources that belong to one event loop."""

    async def close(self) -> None:
        """Close everything. Called on the loop of the resources."""

    def abandon(self) -> None:
        """Close everything that needs no waiting. Any thread may call this."""


T = TypeVar("T", bound=Closable)


@define(eq=False)
class _Entry(Generic[T]):
    resources: T
    guard: AsyncGeneratorType[None, None]
    pid: int  # a forked child must not touch the parent's sockets and kernel events
    closing: asyncio.Task[None] | None = None  # kept here, because a loop has only weak references to tasks


class LoopLocal(Generic[T]):
    """One ``T`` for each running event loop. The first use makes it."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Store *make*. It is called on the loop that needs the resources."""
        self._make = make
        self._closed = False
        self._entries: dict[asyncio.AbstractEventLoop, _Entry[T]] = {}

    def get(self) -> T:
        """Return the running loop's resources. The first call makes them.

        Raises:
            StateError: The resources were closed, or the process was forked after they were made.
        """
        if self._closed:
            raise session_closed()
        loop = asyncio.get_running_loop()
        entry = self._entries.get(loop) or self._add(loop)
        if entry.pid != os.getpid():
            raise StateError(
                "this session was used before the process forked, and its connections belong to the parent; "
                "make a session in the child"
            )
        return entry.resources

    def _add(self, loop: asyncio.AbstractEventLoop) -> _Entry[T]:
        # A loop that was closed without shutdown_asyncgens has not run its guard.
        for closed_loop in [other for other in list(self._entries) if other.is_closed()]:
            self._abandon(closed_loop)
        guard = cast("AsyncGeneratorType[None, None]", self._guard(loop))
        entry = self._entries[loop] = _Entry(self._make(), guard, os.getpid())
        # This step runs the guard to its yield, without suspending, and registers it with the loop.
        with suppress(StopIteration):
            entry.guard.__anext__().send(None)
        return entry

    async def _guard(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if closing := self._closing(loop):
                await finish_shielded(closing)

    def _closing(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
        """Return the task that closes the resources of *loop*, the running loop. None if they are closed."""
        entry = self._entries.get(loop)
        if entry is None:
            return None
        # When a loop ends, it cancels its tasks before it closes its generators. If the loop cancelled this
        # task, the guard closes the rest.
        if entry.closing is None or entry.closing.done():
            entry.closing = start_task(self._close_entry(loop, entry))
        return entry.closing

    async def _close_entry(self, loop: asyncio.AbstractEventLoop, entry: _Entry[T]) -> None:
        await entry.resources.close()
        self._entries.pop(loop, None)
        if not entry.guard.ag_running:  # otherwise the guard waits for this task
            await entry.guard.aclose()

    async def close(self) -> None:
        """Close the running loop's resources. Other loops close their own. No loop gets new ones.

        The method waits for the other running loops, at most :data:`CLOSE_SECONDS` in all. If a loop is busy
        for longer, or does not run, it closes its resources when it runs next.
        """
        self._closed = True
        here = running_loop()  # None if Python closes the coroutine of the session's block
        until = 0.0 if here is None else here.time() + CLOSE_SECONDS
        others: list[asyncio.AbstractEventLoop] = []
        for loop, entry in list(self._entries.items()):
            if entry.pid != os.getpid():
                self._abandon(loop)
            elif loop is not here:
                others.append(loop)
                with suppress(RuntimeError):  # the loop is closed, perhaps since the check
                    loop.call_soon_threadsafe(self._closing, loop)
        if here is not None:
            if closing := self._closing(here):
                await finish_shielded(closing)
            await self._wait_for(others, until)
        for loop in others:
            if loop.is_closed():  # closed without its guard
                self._abandon(loop)

    async def _wait_for(self, others: Collection[asyncio.AbstractEventLoop], until: float) -> None:
        # A loop that stops or is closed wakes no other loop, so this method checks repeatedly.
        here, still = asyncio.get_running_loop(), 0
        while still < STILL_LOOKS and here.time() < until:
            unclosed = [loop for loop in others if loop in self._entries and not loop.is_closed()]
            if not unclosed:
                break
            still = 0 if any(loop.is_running() for loop in unclosed) else still + 1
            await asyncio.sleep(LOOK_SECONDS)

    def abandon(self) -> bool:
        """Close everything without waiting. Return whether close() had left resources open."""
        abandoned = [loop for loop in list(self._entries) if self._abandon(loop)]
        return bool(abandoned) and not self._closed

    def _abandon(self, loop: asyncio.AbstractEventLoop) -> bool:
        entry = self._entries.pop(loop, None)  # another thread may have removed it
        if entry is None or entry.pid != os.getpid():
            return False
        entry.resources.abandon()
        return True
