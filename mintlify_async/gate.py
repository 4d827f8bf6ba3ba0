"""Turns of one conversation come in; one at a time goes through, the others wait in line or are told.

The gate stands before the conversation as its store knows it, not before one
object: a bot may make a new :class:`~mintlify_async.conversation.Conversation`
for each message, and two messages of one person still take turns.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol

from .errors import StateError

__all__ = ["Turn", "TurnGate", "busy_error", "shared_gate"]


class Turn(Protocol):
    """What goes through a gate."""

    def make_way(self) -> bool:
        """Give the gate up when nothing more depends on it; return whether it did."""
        ...


class TurnGate:
    """Lets one turn through at a time, in the order of their coming."""

    __slots__ = ("__weakref__", "_busy", "_holder", "_waiting")

    def __init__(self) -> None:
        """Stand open."""
        self._busy = False
        self._holder: weakref.ref[Any] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return self._busy

    async def enter(self, turn: Turn, *, queue: bool) -> None:
        """Return when it is this turn's time; :meth:`leave` must follow.

        Args:
            turn: Who enters; not kept alive by the gate.
            queue: Wait in line when another is under way.

        Raises:
            StateError: Another is under way, and *queue* is false.
        """
        if queue and not self._free():
            await self._wait()
            self._holder = weakref.ref(turn)
        else:
            self.enter_now(turn)

    @contextmanager
    def step(self) -> Generator[None]:
        """Hold the gate for a step that is no turn; never waits in line.

        Raises:
            StateError: A turn is under way.
        """
        self.enter_now(None)
        try:
            yield
        finally:
            self.leave()

    def enter_now(self, turn: Turn | None) -> None:
        """Enter without waiting; :meth:`leave` must follow.

        Raises:
            StateError: Another is under way.
        """
        if not self._free():
            raise busy_error()
        self._busy = True
        self._holder = weakref.ref(turn) if turn is not None else None

    def _free(self) -> bool:
        """Return whether the way is free; a turn that is committed and only not closed makes way."""
        holder = self._holder() if self._holder is not None else None
        if self._busy and holder is not None:
            holder.make_way()
        return not self._busy and not self._waiting

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:
                self.leave()  # it was this one's time already
            raise

    def leave(self) -> None:
        """Let the next one through. From any thread: a reply that nobody closed may be collected anywhere."""
        self._holder = None
        while self._waiting:
            waiter = self._waiting.popleft()
            try:
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)
            except RuntimeError:  # it waited on a loop that is closed now
                continue
            self._busy = True
            return
        self._busy = False


def busy_error() -> StateError:
    """Return the error for who cannot enter now."""
    return StateError(
        "this conversation is busy with another turn; read that reply to its end or close it first, "
        'or make the conversation with busy="queue"'
    )


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_GATES: MutableMapping[object, MutableMapping[tuple[str, str], TurnGate]] = weakref.WeakKeyDictionary()


def shared_gate(store: object, owner: str, id: str) -> TurnGate:
    """Return the gate before the conversation that *owner* keeps in *store* under *id*."""
    try:
        gates = _GATES.setdefault(store, weakref.WeakValueDictionary())
    except TypeError:  # a store of somebody's own that cannot be hashed or weakly referenced
        return TurnGate()
    return gates.setdefault((owner, id), TurnGate())
