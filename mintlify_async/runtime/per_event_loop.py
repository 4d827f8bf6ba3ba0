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
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..errors import StateError


def session_closed(operation: str | None = None) -> StateError:
    """Return the error for a call on a session that is closed."""
    message = "this session is closed; make a new one"
    return StateError(f"{operation}: {message}" if operation else message)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread. None if no loop is running."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Closable(Protocol):
    """Resources that belong to one event loop."""

    async def close(self) -> None:
        """Close everything, on its own loop."""
        ...

    def abandon(self) -> None:
        """Close all that can be closed without waiting, from any thread."""
        ...


T = TypeVar("T", bound=Closable)


class _Entry(NamedTuple, Generic[T]):
    resources: T
    guard: AsyncGenerator[None]
    pid: int  # in a forked child, the sockets and their kernel events belong to the parent


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
        resources = self._make()
        entry = self._entries[loop] = _Entry(resources, self._guard(loop, resources), os.getpid())
        # Step it by hand up to its yield, which registers it with the loop. It does not suspend before.
        with suppress(StopIteration):
            entry.guard.__anext__().send(None)
        return entry

    async def _guard(self, loop: asyncio.AbstractEventLoop, resources: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if self._entries.pop(loop, None) is not None:
                await resources.close()

    async def close(self) -> None:
        """Close the running loop's resources, and let every other live loop close its own; for good."""
        self._closed = True
        here = running_loop()  # None when Python closes the coroutine that had the session open
        for loop, entry in list(self._entries.items()):
            if entry.pid == os.getpid() and loop is here:
                await entry.guard.aclose()
            elif entry.pid == os.getpid() and loop.is_running():
                if self._entries.pop(loop, None) is not None:
                    asyncio.run_coroutine_threadsafe(entry.resources.close(), loop)
            else:
                self._abandon(loop)

    def abandon(self) -> bool:
        """Close everything without waiting. Return whether there was anything."""
        abandoned = [loop for loop in list(self._entries) if self._abandon(loop)]
        return bool(abandoned)

    def _abandon(self, loop: asyncio.AbstractEventLoop) -> bool:
        entry = self._entries.pop(loop, None)  # another thread may have removed it
        if entry is None or entry.pid != os.getpid():
            return False
        entry.resources.abandon()
        return True
