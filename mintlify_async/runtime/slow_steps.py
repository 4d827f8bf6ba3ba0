"""Logs what a program waits for, so that a slow service does not look like a program that hangs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

SECONDS: Final = 5.0
"""How long a step may take before the log has a line about it."""

log = logging.getLogger("mintlify_async")


def logged_if_slow(message: str, *args: object) -> AbstractContextManager[object]:
    """Return a block that logs *message* at INFO if it takes longer than five seconds."""
    return _Alarm(message, args) if log.isEnabledFor(logging.INFO) else _UNLOGGED


_UNLOGGED: Final = nullcontext()


class _Alarm:
    def __init__(self, message: str, args: tuple[object, ...]) -> None:
        self._line = message, *args

    def __enter__(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(SECONDS, partial(log.info, *self._line))

    def __exit__(self, *_: object) -> None:
        self._handle.cancel()
