"""Reads standard input and files as UTF-8 text. Ctrl-C and SIGTERM end a read, also in an event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

from .error_advice import UsageError

AGAIN = 0.05
"""If a signal did not end a read, it is sent again after this many seconds."""


def read_text(words: Sequence[str], what: str) -> str:
    """Return *words* as one text. If they are ``-`` or empty, return standard input.

    Raises:
        UsageError: The text is missing, blank, or not UTF-8.
    """
    from_input = not words or list(words) == ["-"]
    if from_input and (is_closed() or (not words and sys.stdin.isatty())):
        closed = " (which is closed)" if is_closed() else ""
        raise UsageError(f"no {what}: give it as an argument, or on standard input{closed}")
    text = read_file("-") if from_input else " ".join(words)
    if not text.strip():
        raise UsageError(f"the {what} is blank: give it as an argument, or on standard input")
    return text


def read_file(name: str) -> str:
    """Return the text of the file *name*, or of standard input if it is ``-``.

    Raises:
        UsageError: Standard input is closed, or the text is not UTF-8.
        OSError: The file cannot be read.
    """
    with interruptible():  # a file may be a pipe, as in `<(program)`
        data = _binary_input().read() if name == "-" else Path(name).read_bytes()
    return _decoded(data, "standard input" if name == "-" else name)


def read_line() -> str | None:
    """Return the next line of standard input, or None at its end.

    Raises:
        UsageError: As for :func:`read_file`.
    """
    with interruptible():
        line = _binary_input().readline()
    return _decoded(line, "this line of standard input") if line else None


def is_closed() -> bool:
    """Return whether the process was started without a standard input, as with ``<&-``."""
    stdin: IO[str] | None = sys.stdin
    return stdin is None


def _binary_input() -> IO[bytes]:
    if is_closed():
        raise UsageError("standard input is closed")
    # Python would decode with the locale, and with the C locale hide bytes that are not text.
    return sys.stdin.buffer


def _decoded(data: bytes, source: str) -> str:
    """Return *data* as text without a byte order mark. Each line ending becomes one character."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # UTF-16, or not text at all
        raise UsageError(f"{source} is not text in UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def interruptible() -> Generator[None]:
    """The first Ctrl-C or SIGTERM inside the block ends a blocking read.

    The handlers of a running event loop only cancel a task, but the read blocks the loop.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    arrived: list[int] = []
    late: list[int] = []  # signals after the read
    over = False

    def end_read(number: int, frame: FrameType | None) -> None:
        if over:
            late.append(number)
        elif not arrived:  # a repeated signal must not interrupt the code after the read
            arrived.append(number)
            (_terminate if number == signal.SIGTERM else signal.default_int_handler)(number, frame)

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # An ignored signal stays ignored, as under `nohup`.
    ours = [number for number in previous if previous[number] not in (None, signal.SIG_IGN)]
    for number in ours:
        signal.signal(number, end_read)
    try:
        with _repeated(ours, arrived):
            try:
                _raise_if_cancelled()
                yield
            finally:
                over = True
    finally:
        for number in ours:
            signal.signal(number, previous[number])
    if late and not arrived:
        signal.raise_signal(late[0])


@contextmanager
def _repeated(numbers: Collection[int], arrived: Sequence[int]) -> Generator[None]:
    """Send the signals *numbers* again, until *arrived* shows that a handler has run.

    A signal interrupts a read only while the read waits. If a signal comes a moment before, for example while
    readline shows its prompt, Python would not run the handler until the next key.
    """
    main_thread = threading.get_ident()
    from_signals, to_thread = socket.socketpair()
    over = threading.Event()

    def repeat() -> None:
        while (number := from_signals.recv(1)) and number[0] not in numbers:
            pass
        while number and not arrived and not over.is_set():
            signal.pthread_kill(main_thread, number[0])
            over.wait(AGAIN)

    with from_signals, to_thread:
        to_thread.setblocking(False)
        previous = signal.set_wakeup_fd(to_thread.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            signal.set_wakeup_fd(previous)
            to_thread.shutdown(socket.SHUT_WR)
            thread.join()


def _raise_if_cancelled() -> None:
    """Raise CancelledError if a signal came before the read, and only cancelled the task."""
    with suppress(RuntimeError):  # without a loop
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


def _terminate(*_: object) -> NoReturn:
    raise asyncio.CancelledError
