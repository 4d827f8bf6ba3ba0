"""Core: the data that every request of a session needs. It is the first argument of sending functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, cast

from attrs import field, frozen

from ..errors import StateError
from ..runtime.lasting_steps import Recordings
from ..runtime.logs import Place, line_of
from ..runtime.per_event_loop import LoopLocal, session_closed
from ..runtime.tasks import finish_shielded
from ..settings.options import Observation, Options
from ..settings.proxy_and_tls import TransportSettings
from ..settings.retry_policy import RetryBudget
from .transport import Transport


class LoopPart(Protocol):
    """An object that belongs to an event loop and is made by another subpackage, such as a scheduler."""

    async def close(self) -> None:
        """End the object, on its own loop."""


T = TypeVar("T")
P = TypeVar("P", bound=LoopPart)


class LoopResources:
    """The objects of a session on one event loop. They are closed in the right order.

    Args:
        transport: The connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.recordings = Recordings()
        self._parts: dict[type, LoopPart] = {}

    def part(self, kind: type[P], make: Callable[[], P]) -> P:
        """Return this loop's object of class *kind*. The first call makes it. It ends before connections."""
        if kind not in self._parts:
            self._parts[kind] = make()
        return cast("P", self._parts[kind])

    async def close(self) -> None:
        """End every wait, stream and request, and finish all pending records, despite a cancellation."""
        await finish_shielded(self._close())

    async def _close(self) -> None:
        for part in list(self._parts.values()):
            await part.close()
        await self.transport.close()
        await self.recordings.close()

    def abandon(self) -> None:
        """Close the sockets without waiting."""
        self.transport.abandon()


class Shared:
    """The objects that a session shares with the sessions from its ``with_options``.

    Sessions, handles and open replies keep this object alive. It is collected with the last of them, and
    warns if the session was not closed. It contains no keys, because a reply must not keep keys.

    Args:
        options: The options of the first session. Its poll policy is used for all jobs.
        transport: The settings of the connections.
        made_at: The line that made the first session.
    """

    def __init__(self, options: Options, transport: TransportSettings, made_at: Place) -> None:
        self.transport = transport
        self.budget = RetryBudget(options.retry.budget)
        self.poll = options.poll
        self.loops = LoopLocal(lambda: LoopResources(Transport(transport)))
        self._made_at = made_at
        self._parts: dict[type, Any] = {}

    def part(self, kind: type[T]) -> T:
        """Return this session's object of class *kind*, made by the first call. Any thread may call this."""
        if kind not in self._parts:
            self._parts.setdefault(kind, kind())
        return cast("T", self._parts[kind])

    def recordings(self) -> Recordings:
        """Return this loop's steps that outlive their callers. A closed session waits for no such steps."""
        try:
            return self.loops.get().recordings
        except StateError:
            return Recordings()

    def __del__(self) -> None:
        """If the session was not closed, close the connections and warn."""
        if self.loops.abandon():
            warnings.warn(
                f"a MintlifySession made at {':'.join(map(str, line_of(self._made_at)))} was never closed; "
                "use `async with` or `await session.close()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


class Lifetime:
    """Whether a session was closed. Its conversations and its unsent replies read it."""

    closed = False


@frozen(eq=False, repr=False)
class Core:
    """A session's settings, and the objects that it shares with others.

    Args:
        options: The settings.
        shared: The connections, and objects of other wings.
        lifetime: Belongs to this session only, because a session from ``with_options`` is closed alone.
        observation: The operation that every request belongs to, or None.
    """

    options: Options
    shared: Shared
    lifetime: Lifetime = field(factory=Lifetime)
    observation: Observation | None = None

    def check_open(self) -> Self:
        """Return this core. Raise a StateError if the session was closed."""
        if self.lifetime.closed:
            raise session_closed()
        return self
