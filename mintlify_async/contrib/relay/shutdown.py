"""Ends a relay's answers when the app shuts down: no answer begins, and running ones end or are cut."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .refusals import RelayRefusal, retry_after

if TYPE_CHECKING:
    from mintlify_async import Reply
    from mintlify_async.runtime.clock import Clock

log = logging.getLogger("mintlify_async.relay")

ENDING = "The assistant is being restarted. Please try again."
LAST_WORDS = 2.0  # seconds for cut answers to send their error and to run the app's hook
LOOK = 0.05  # seconds between two looks at whether answers still run


class Shutdown:
    """The running answers, and whether new ones may begin.

    Attributes:
        cutting: Whether the answers that still run are being cut.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: WeakSet[Reply] = WeakSet()
        self._cut: WeakSet[Reply] = WeakSet()
        self._began = False
        self.cutting = False

    def check(self) -> None:
        """Let a question in, unless the app shuts down.

        Raises:
            RelayRefusal: The app shuts down.
        """
        if self._began:
            raise _refusal()

    def add(self, reply: Reply) -> None:
        """Count *reply* among those that the shutdown may cut.

        Raises:
            RelayRefusal: They have been cut already.
        """
        if self.cutting:
            raise _refusal()
        self._running.add(reply)

    def has_cut(self, reply: Reply) -> bool:
        """Return whether the shutdown closed *reply* before it had ended."""
        return reply in self._cut

    def check_opened(self, reply: Reply) -> None:
        """Let *reply* be sent, unless it was cut while it was being opened.

        Raises:
            RelayRefusal: It was cut.
        """
        if reply in self._cut:
            raise _refusal()

    async def drain(self, seconds: float, streaming: Callable[[], int]) -> None:
        """Refuse new questions; wait until *streaming* is 0; after *seconds*, cut what still runs."""
        self._began = True
        await self._wait(seconds, streaming)
        if streaming():
            self.cutting = True
            log.warning("the app shuts down: %d answers are cut", streaming())
            self._cut.update(reply for reply in self._running if not reply.closed)
            closing = [reply.close() for reply in self._cut]
            await asyncio.gather(*closing, return_exceptions=True)  # a store may refuse the turn
            await self._wait(LAST_WORDS, streaming)

    async def _wait(self, seconds: float, streaming: Callable[[], int]) -> None:
        end = self._clock.now() + seconds
        while streaming() and (left := end - self._clock.now()) > 0:
            await self._clock.sleep(min(left, LOOK))


def _refusal() -> RelayRefusal:
    return RelayRefusal(503, ENDING, retry_after(1))  # by then another process answers


@asynccontextmanager
async def on_signal(drain: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Run *drain* when the process is told to end, beside the server's own handler; or at the block's end."""
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    def begin() -> None:
        if not draining:
            draining.append(asyncio.create_task(drain()))

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(_hook(number, lambda: loop.call_soon_threadsafe(begin)))
        try:
            yield
        finally:
            begin()
            await draining[0]


def _hook(number: int, told: Callable[[], object]) -> Callable[[], object]:
    """Call *told* at the signal *number*, then the handler that is there; return what undoes it."""
    earlier = signal.getsignal(number)
    if not callable(earlier):  # no server handles it: the process ends at once, or never
        return lambda: None

    def handle(number: int, frame: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and another handler has kept this one
            told()
        earlier(number, frame)

    def undo() -> None:
        if signal.getsignal(number) is handle:
            signal.signal(number, earlier)

    try:
        signal.signal(number, handle)
    except ValueError:  # not in the main thread, for instance in a test client's
        return lambda: None
    return undo
