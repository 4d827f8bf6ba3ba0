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
from typing import Generic, Protocol, TypeVar

from ..errors import StateError

__all__ = ["LoopLocal", "process_forked", "session_closed"]


def session_closed(operation: str | None = None) -> StateError:
    """Return the error for a call on a session that is closed."""
    message = "this session is closed; make a new one"
    return StateError(f"{operation}: {message}" if operation else message)


def process_forked() -> StateError:
    """Return the error for a call in a child process on connections of its parent."""
    return StateError(
        "this session was used before the process forked, and its connections belong to the parent; "
        "make a session in the child"
    )


class Closable(Protocol):
    """Resources that belong to one event loop."""

    async def close(self) -> None:
        """Close everything, on its own loop."""
        ...

    def abandon(self) -> None:
        """Close all that can be closed without waiting, from any thread."""
        ...


T = TypeVar("T", bound=Closable)


class _Entry(Generic[T]):
    __slots__ = ("guard", "loop", "pid", "resources")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resources: T, guard: AsyncGenerator[None, None]
    ) -> None:
        self.loop = loop
        self.resources = resources
        self.guard = guard
        self.pid = os.getpid()


class LoopLocal(Generic[T]):
    """One ``T`` per running event loop, made on first use."""

    __slots__ = ("_closed", "_entries", "_make")

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
        entry = self._entries.get(loop)
        if entry is None:
            return self._add(loop)
        if entry.pid != os.getpid():
            raise process_forked()
        return entry.resources

    def _add(self, loop: asyncio.AbstractEventLoop) -> T:
        self._forget_closed_loops()
        resources = self._make()
        guard = _guard(self._entries, loop, resources)
        self._entries[loop] = _Entry(loop, resources, guard)
        # Step it by hand up to its yield, which registers it with the loop. It does not suspend before.
        with suppress(StopIteration):
            guard.__anext__().send(None)
        return resources

    async def close(self) -> None:
        """Close the running loop's resources, and let every other live loop close its own; for good."""
        self._closed = True
        here = asyncio.get_running_loop()
        self._forget_parents()
        for loop, entry in list(self._entries.items()):
            if loop is here:
                await entry.guard.aclose()
            else:
                self._entries.pop(loop, None)
                _close_elsewhere(entry)

    def _forget_closed_loops(self) -> None:
        # A loop that was closed without shutdown_asyncgens never ran its guard.
        # Other threads may add and remove theirs meanwhile.
        for loop in list(self._entries):
            entry = self._entries.pop(loop, None) if loop.is_closed() else None
            if entry is not None:
                entry.resources.abandon()

    def _forget_parents(self) -> None:
        # In a forked child, the sockets and their kernel events belong to the parent.
        for loop, entry in list(self._entries.items()):
            if entry.pid != os.getpid():
                del self._entries[loop]

    def abandon(self) -> bool:
        """Close everything without waiting. Return whether there was anything."""
        self._forget_parents()
        entries = list(self._entries.values())
        self._entries.clear()
        for entry in entries:
            entry.resources.abandon()
        return bool(entries)


async def _guard(
    entries: dict[asyncio.AbstractEventLoop, _Entry[T]], loop: asyncio.AbstractEventLoop, resources: T
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if entries.pop(loop, None) is not None:
            await resources.close()


def _close_elsewhere(entry: _Entry[T]) -> None:
    if entry.loop.is_closed():
        entry.resources.abandon()
        return
    if entry.loop.is_running():
        asyncio.run_coroutine_threadsafe(entry.resources.close(), entry.loop)
    else:
        entry.resources.abandon()
