"""Limits in time: a block that ends when its time is over, or when another task ends it.

A limit ends its block only after the loop has looked at its sockets again. If user code blocked the loop past
the limit, an answer may have arrived meanwhile, and an answer that has arrived is worth more than the limit.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

__all__ = ["TimeLimit"]

PASSES = 4
"""Turns of the loop between the limit and its end: reading the socket, waking the reader, two to spare."""


class TimeLimit:
    """As ``asyncio.timeout``, but its time comes after a further look at the sockets, and a task can end it.

    The block raises ``TimeoutError`` when the loop's time has reached *at*, or after :meth:`end`. Enter it
    once, and never hold it across a ``yield``::

        async with TimeLimit(asyncio.get_running_loop().time() + 5):
            await something

    Args:
        at: When the block ends, by the running loop's time. None and infinity mean never.
        among: Holds the limit while its block runs, for code that ends all of them.

    Attributes:
        ended: Whether :meth:`end` ended the block.
    """

    __slots__ = ("_among", "_at", "_handle", "_loop", "_timeout", "ended")

    def __init__(self, at: float | None = None, among: set[TimeLimit] | None = None) -> None:
        self._among = among
        self._at = math.inf if at is None else at
        self._loop = asyncio.get_running_loop()
        self._timeout: asyncio.Timeout | None = None  # while the block runs
        self._handle: asyncio.Handle | None = None
        self.ended = False

    async def __aenter__(self) -> Self:
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        if self._among is not None:
            self._among.add(self)
        if self.ended:
            self.end()
        elif self._at < math.inf:
            self._handle = self._loop.call_at(self._at, self._expire, PASSES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timeout, self._timeout = self._timeout, None
        if self._among is not None:
            self._among.discard(self)
        if self._handle is not None:
            self._handle.cancel()
        if timeout is not None:
            await timeout.__aexit__(kind, error, trace)

    @property
    def over(self) -> bool:
        """Whether the time has come, or :meth:`end` was called."""
        return self.ended or self._loop.time() >= self._at

    def end(self) -> None:
        """End the block at its next suspension, from any task of its loop. It may be over already."""
        self.ended = True
        self._expire(0)

    def _expire(self, passes: int) -> None:
        # Each cycle of the loop reads arrived data before it calls due callbacks.
        if passes:
            self._handle = self._loop.call_soon(self._expire, passes - 1)
        elif self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(0)  # in the next turn: a step that has its result already ends well
