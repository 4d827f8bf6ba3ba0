"""Virtual time for tests. The event loop's time jumps ahead when all tasks wait.

Half an hour of polling takes milliseconds. ``asyncio.sleep``, ``asyncio.timeout`` and ``loop.time`` in your
own code are also virtual, because the time of the event loop itself is replaced.

The time stands still while a task can run, and while a thread works for ``asyncio.to_thread``,
``loop.run_in_executor``, ``asyncio.wrap_future`` or ``anyio.to_thread.run_sync``. It also stands still while
bytes are on their way between two connections of this loop. For other threads and processes, see *quiet*.
(The kernel does not deliver every byte immediately. For example, the congestion
control BBR also paces bytes on the loopback interface.)
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import threading
import time
from asyncio import futures
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from ..errors import StateError
from ..runtime.clock import read_from

if sys.platform == "linux":
    import termios
    from fcntl import ioctl

EPOCH: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: the date at the start of virtual time, so that dates in tests do not change."""

LOOK_SECONDS = 0.0005
"""Real seconds between two checks while a thread works or the kernel still delivers bytes."""

LONGEST_DELIVERY = 5.0
"""After this many real seconds, bytes that the kernel has not delivered do not stop the time any more."""

LONGEST_START = 1.0
"""Real seconds in which a thread must start its work. After that, virtual time no longer stands
still for its future.
"""

CLOSING_SECONDS = 0.05
"""Real seconds for the last bytes of a closed end to arrive, once for each connection."""


TCP_ESTABLISHED = 1
"""The state of a connection that neither end has closed, in Linux's numbers."""


class VirtualTime:
    """The virtual time of one event loop, made by :func:`virtual_time`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, selector: selectors.BaseSelector, quiet: float
    ) -> None:
        self._loop = loop
        self._select = selector.select
        self._run_in_executor = loop.run_in_executor
        self._quiet = quiet
        self._connections = _Connections(loop, selector)
        self._in_executors = 0
        self._futures = WeakKeyDictionary[Future[Any], float]()
        self.started_at = self.seconds = float(int(loop.time()) + 1)  # whole seconds, so that sums are exact
        self._replaced: list[tuple[object, str, object]] = [
            (loop, "time", self.loop_time),
            (loop, "run_in_executor", self.run_in_executor),
            (selector, "select", self.select),
        ]

    def now(self) -> float:
        """Return the virtual seconds since the start, to the microsecond."""
        return round(self.seconds - self.started_at, 6)

    def date(self) -> float:
        """Return the virtual date, in seconds since 1970."""
        return EPOCH + self.now()

    def start(self) -> None:
        """Make the time virtual."""
        for owner, name, method in self._replaced:
            setattr(owner, name, method)
        _watch_futures(self, watch=True)

    def stop(self) -> None:
        """Make the time real again."""
        for owner, name, _ in self._replaced:
            delattr(owner, name)
        _watch_futures(self, watch=False)
        loop, real = self._loop, type(self._loop).time
        ahead = self.seconds - real(loop)
        if ahead > 0:
            setattr(loop, "time", lambda: real(loop) + ahead)  # noqa: B010 - a method

    # These methods replace the loop's own methods

    def loop_time(self) -> float:
        """Return the time of the loop."""
        return self.seconds

    def run_in_executor(self, *arguments: Any) -> asyncio.Future[Any]:
        """Count the call. The time stands still until the call has returned."""
        future = self._run_in_executor(*arguments)
        self._in_executors += 1
        future.add_done_callback(self._executor_returned)
        return future

    def _executor_returned(self, _: object) -> None:
        self._in_executors -= 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready events. If nothing can run, move the time by *timeout* instead of waiting."""
        events = self._select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._in_executors or self._threads_work() or self._connections.deliver():
            return self._select(LOOK_SECONDS)
        if events := self._select(0):  # the last bytes arrived, or a thread returned, between the two checks
            return events
        if timeout is None:  # no timer is due, so only an outside event can continue the loop
            return self._select(None)
        if self._quiet and (events := self._select(self._quiet)):
            return events
        self.seconds += timeout
        return []

    def note_future(self, source: object, destination: object) -> None:
        """Record a thread's future that ``asyncio.wrap_future`` connects to this loop."""
        if isinstance(source, Future) and getattr(destination, "get_loop", lambda: None)() is self._loop:
            self._futures[source] = time.monotonic() + LONGEST_START

    def _threads_work(self) -> bool:
        """Return whether a thread works for this loop, or is about to start."""
        now = time.monotonic()
        if any(
            one.running() or (now < begun and not one.done()) for one, begun in list(self._futures.items())
        ):
            return True
        # anyio has no list of its threads. Each thread has its loop and the queue of idle threads.
        return any(
            getattr(thread, "loop", None) is self._loop
            and thread not in getattr(thread, "idle_workers", (thread,))
            for thread in threading.enumerate()
        )


_watching: set[VirtualTime] = set()
_chain_future: Any = getattr(futures, "_chain_future")  # noqa: B009 - no public way to find the threads


def _chain_and_note(source: Any, destination: Any) -> None:
    for virtual in list(_watching):
        virtual.note_future(source, destination)
    _chain_future(source, destination)


def _watch_futures(virtual: VirtualTime, *, watch: bool) -> None:
    """Report each future of ``asyncio.wrap_future`` to *virtual*, or stop reporting."""
    (_watching.add if watch else _watching.discard)(virtual)
    setattr(futures, "_chain_future", _chain_and_note if _watching else _chain_future)  # noqa: B010 - as above


class _Connections:
    """Checks whether the kernel is still delivering bytes between two TCP connections of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, selector: selectors.BaseSelector) -> None:
        # The selector does not contain connections that are not read now. This private dictionary does.
        self._transports: Mapping[int, asyncio.Transport] = getattr(loop, "_transports", {})
        self._selector = selector
        self._under_way_since: float | None = None
        self._alone_since = WeakKeyDictionary[asyncio.Transport, float]()

    def deliver(self) -> bool:
        """Return whether a connection waits for bytes on their way, or for the close of its other side."""
        ends = {_addresses(one): one for one in list(self._transports.values()) if _is_open_tcp(one)}
        others = {one: ends.get((theirs, ours)) for (ours, theirs), one in ends.items() if self._is_read(one)}
        now = time.monotonic()
        if not any(_carries(sender, one) for one, sender in others.items() if sender is not None):
            self._under_way_since = None
        elif now - (since := self._under_way_since or now) < LONGEST_DELIVERY:
            self._under_way_since = since
            return True
        alone = [one for one, other in others.items() if other is None]
        return any(now - self._alone_since.setdefault(one, now) < CLOSING_SECONDS for one in alone)

    def _is_read(self, transport: asyncio.Transport) -> bool:
        try:
            return bool(self._selector.get_key(_socket(transport)).events & selectors.EVENT_READ)
        except KeyError:
            return False


def _socket(transport: asyncio.Transport) -> socket.socket:
    return cast("socket.socket", transport.get_extra_info("socket"))


def _is_open_tcp(transport: asyncio.Transport) -> bool:
    sock = _socket(transport)
    return (
        sock.fileno() >= 0
        and sock.type == socket.SOCK_STREAM
        and sock.family in (socket.AF_INET, socket.AF_INET6)
    )


def _addresses(transport: asyncio.Transport) -> tuple[object, object]:
    return transport.get_extra_info("sockname"), transport.get_extra_info("peername")


def _carries(sender: asyncio.Transport, receiver: asyncio.Transport) -> bool:
    """Return whether the kernel has bytes of *sender* that *receiver* has not received."""
    if sys.platform != "linux" or not _unacknowledged(sender):
        return False
    _socket(receiver).setsockopt(
        socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1
    )  # the acknowledgement may be delayed
    return _unacknowledged(sender) > 0


def _unacknowledged(transport: asyncio.Transport) -> int:
    return int.from_bytes(ioctl(_socket(transport), termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def other_end_closes(transport: asyncio.Transport | None) -> bool:
    """Return whether the other end of a connection was closed, or is being closed in the running loop."""
    if transport is None or not _is_open_tcp(transport):
        return False
    if sys.platform == "linux":
        state = _socket(transport).getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state != TCP_ESTABLISHED:
            return True
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return False
    transports: Mapping[int, asyncio.Transport] = getattr(loop, "_transports", {})
    theirs = _addresses(transport)[::-1]
    return any(one.is_closing() and _addresses(one) == theirs for one in list(transports.values()))


@contextmanager
def virtual_time(*, quiet: float = 0.0) -> Generator[VirtualTime]:
    """Make the running loop's time virtual inside the block.

    ::

        with virtual_time() as time:
            async with LocalService() as service, service.session() as session:
                await session.run_job("Fix the typos", timeout=900)
        assert time.now() >= 3    # virtual seconds; the block took milliseconds

    The dates of this package also become virtual. The loop's time never goes back, even after the block.

    Args:
        quiet: Real seconds without activity before each jump of the time (default: 0). Use 0.1 if another
            process or another thread's loop takes part, such as Redis.

    Raises:
        StateError: The running loop's time cannot be replaced, such as uvloop's, or it is already virtual.
    """
    loop = asyncio.get_running_loop()
    if is_virtual(loop):
        raise StateError("the time of this event loop is already virtual")
    selector = _selector_of(loop)
    if selector is None:
        raise StateError(
            "the time of this event loop cannot be made virtual; use asyncio's own selector loop"
        )
    virtual = VirtualTime(loop, selector, quiet)
    virtual.start()
    try:
        with read_from(virtual.date):
            yield virtual
    finally:
        virtual.stop()


def is_virtual(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Return whether the time of *loop* is virtual."""
    return isinstance(getattr(getattr(loop, "time", None), "__self__", None), VirtualTime)


@contextmanager
def virtual_time_if_possible() -> Generator[VirtualTime | None]:
    """Make the running loop's time virtual. On a loop that is not asyncio's own, it stays real."""
    if _selector_of(asyncio.get_running_loop()) is None:
        yield None
    else:
        with virtual_time() as virtual:
            yield virtual


def _selector_of(loop: asyncio.AbstractEventLoop) -> selectors.BaseSelector | None:
    """Return the selector of *loop*, or None if its time cannot be made virtual, such as uvloop's."""
    selector = getattr(loop, "_selector", None)
    return selector if isinstance(selector, selectors.BaseSelector) else None
