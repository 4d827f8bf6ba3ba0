"""Handles SIGTERM, with which CI services end a run, for the length of a block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def on_sigterm(handler: Callable[..., object]) -> Generator[None]:
    """Let *handler* take SIGTERM in the block, if this is the main thread and SIGTERM is not ignored."""
    previous = signal.getsignal(signal.SIGTERM)
    # Only the main thread can set handlers. None is a handler that was not set by Python.
    if current_thread() is not main_thread() or previous in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
