"""One set of resources per running event loop, closed with that loop.

A session may be used from several ``asyncio.run`` calls and from several threads, but connections
belong to the loop that opened them.
"""

# An asynchronous generator that was stepped once detects the end of a loop, because ``asyncio.run`` closes it
# through ``loop.shutdown_asyncgens``. (Closing a dead loop's connections from elsewhere does not work, nor
# does a weak dictionary keyed by loop.)

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
"""How long closing waits for the other loops, in seconds."""

LOOK_SECONDS: Final = 0.01
"""The time between two looks at the other loops, in seconds."""

STILL_LOOKS: Final = 10
"""A loop that rests for so many looks is not waited for. ``asyncio.run`` stops its loop between two steps."""


def session_closed(operation: str | None = None) -> StateError:
    """Return the error for a call on a session that is closed."""
    message = "this session is closed; make a new one"
    return StateError(f"{operation}: {message}" if operation else message)


class Closable(Protocol):
    """Resources that belong to one event loop."""

    async def close(self) -> None:
        """Close everything, on its own loop."""
        ...

    def abandon(self) -> None:
        """Close all that can be closed without waiting, from any thread."""
        ...


T = TypeVar("T", bound=Closable)


@define(eq=False)
class _Entry(Generic[T]):
    resources: T
    guard: AsyncGeneratorType[None, None]
    pid: int  # in a forked child, the sockets and their kernel events belong to the parent
    closing: asyncio.Task[None] | None = None  # kept here, because a loop refers to its tasks only weakly


class LoopLocal(Generic[T]):
    """One ``T`` per running event loop, made on first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Make resources with *make*, which is called on the loop that needs them."""
        self._make = make
        self._closed = False
        self._entries: dict[asyncio.AbstractEventLoop, _Entry[T]] = {}

    def get(self) -> T:
        """Return the running loop's resources, made on first use.

        Raises:
            StateError: They were closed, or this process was forked after they were made.
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
        # A loop that was closed without shutdown_asyncgens never ran its guard.
        for closed_loop in [other for other in list(self._entries) if other.is_closed()]:
            self._abandon(closed_loop)
        guard = cast("AsyncGeneratorType[None, None]", self._guard(loop))
        entry = self._entries[loop] = _Entry(self._make(), guard, os.getpid())
        # Step it by hand up to its yield, which registers it with the loop. It does not suspend before.
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
        """Return the task that closes the resources of *loop*, the running one. None if they are closed."""
        entry = self._entries.get(loop)
        if entry is None:
            return None
        # A loop that ends cancels its tasks first. If this was one, the guard closes what is left.
        if entry.closing is None or entry.closing.done():
            entry.closing = start_task(self._close_entry(loop, entry))
        return entry.closing

    async def _close_entry(self, loop: asyncio.AbstractEventLoop, entry: _Entry[T]) -> None:
        await entry.resources.close()
        self._entries.pop(loop, None)
        if not entry.guard.ag_running:  # else the guard waits for this task
            await entry.guard.aclose()

    async def close(self) -> None:
        """Close the running loop's resources, and let every other loop close its own; for good.

        Waits for the other loops that run, at most :data:`CLOSE_SECONDS` in all. A loop that is busy for
        longer, or stands still, closes its own when it runs next.
        """
        self._closed = True
        here = running_loop()  # None when Python closes the coroutine that had the session open
        until = 0.0 if here is None else here.time() + CLOSE_SECONDS
        others: list[asyncio.AbstractEventLoop] = []
        for loop, entry in list(self._entries.items()):
            if entry.pid != os.getpid():
                self._abandon(loop)
            elif loop is not here:
                others.append(loop)
                with suppress(RuntimeError):  # the loop is closed, perhaps since this moment
                    loop.call_soon_threadsafe(self._closing, loop)
        if here is not None:
            if closing := self._closing(here):
                await finish_shielded(closing)
            await self._wait_for(others, until)
        for loop in others:
            if loop.is_closed():  # without its guard
                self._abandon(loop)

    async def _wait_for(self, others: Collection[asyncio.AbstractEventLoop], until: float) -> None:
        # By looking, because a loop that stops or is closed wakes nobody.
        here, still = asyncio.get_running_loop(), 0
        while still < STILL_LOOKS and here.time() < until:
            unclosed = [loop for loop in others if loop in self._entries and not loop.is_closed()]
            if not unclosed:
                break
            still = 0 if any(loop.is_running() for loop in unclosed) else still + 1
            await asyncio.sleep(LOOK_SECONDS)

    def abandon(self) -> bool:
        """Close everything without waiting. Return whether anything was open that nobody had closed."""
        abandoned = [loop for loop in list(self._entries) if self._abandon(loop)]
        return bool(abandoned) and not self._closed

    def _abandon(self, loop: asyncio.AbstractEventLoop) -> bool:
        entry = self._entries.pop(loop, None)  # another thread may have removed it
        if entry is None or entry.pid != os.getpid():
            return False
        entry.resources.abandon()
        return True
