"""Logs what a program waits for, so that a slow service does not look like a program that hangs."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

SECONDS: Final = 5.0
"""How long a step may take before the log has a line about it."""

log = logging.getLogger("mintlify_async")


class LoggedIfSlow:
    """A block that logs *message* at INFO if it takes longer than five seconds."""

    def __init__(self, message: str, *args: object) -> None:
        self._message = message
        self._args = args
        self._alarm: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if log.isEnabledFor(logging.INFO):
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(SECONDS, log.info, self._message, *self._args)

    def __exit__(self, *_: object) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
