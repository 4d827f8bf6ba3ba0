"""The clock: only this module reads the computer's clock.

Durations within a process use the event loop's time (``loop.time``, ``asyncio.sleep``, ``asyncio.timeout``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

__all__ = ["as_text", "now", "read_from"]

_source: Callable[[], float] = time.time


def now() -> float:
    """Return seconds since 1970, by the computer's clock."""
    return _source()


def as_text(date: float | None) -> str:
    """Return *date*, in seconds since 1970, as text in UTC."""
    try:
        return f"{datetime.fromtimestamp(date or 0.0, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):  # from a clock that was wrong
        return f"{date}"


@contextmanager
def read_from(source: Callable[[], float]) -> Generator[None]:
    """Inside the block, :func:`now` returns the result of *source* in every thread. For virtual time."""
    global _source
    previous_source, _source = _source, source
    try:
        yield
    finally:
        _source = previous_source
