"""Handles SIGTERM inside a block. CI services end a run with SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def on_sigterm(handler: Callable[..., object]) -> Generator[None]:
    """In the main thread, if SIGTERM is not ignored, call *handler* for SIGTERM inside the block."""
    previous = signal.getsignal(signal.SIGTERM)
    # Only the main thread can set handlers. None is a handler that Python did not set.
    if current_thread() is not main_thread() or previous in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
