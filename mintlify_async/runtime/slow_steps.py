"""Logs what a program waits for, so that a slow service does not look like a program that hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

SECONDS: Final = 5.0
"""How long a step may take before the log has a line about it."""

log = logging.getLogger("mintlify_async")


@contextmanager
def logged_if_slow(message: str, *args: object) -> Generator[None]:
    """Log *message* at INFO if the block takes longer than five seconds."""
    alarm = asyncio.get_running_loop().call_later(SECONDS, log.info, message, *args)
    try:
        yield
    finally:
        alarm.cancel()
