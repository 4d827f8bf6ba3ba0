"""Logs what a program waits for, so that a slow service does not look like a program that hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

SECONDS: Final = 5.0
"""How long a step may take before the log has a line about it."""

log = logging.getLogger("mintlify_async")


Fields = Callable[[], dict[str, object]]
"""Returns the fields of a line when it is written."""


def logged_if_slow(
    message: str, *args: object, fields: Fields | None = None
) -> AbstractContextManager[object]:
    """Return a block that logs *message* at INFO, with *fields*, if it takes longer than five seconds."""
    return _Alarm(message, args, fields) if log.isEnabledFor(logging.INFO) else _UNLOGGED


_UNLOGGED: Final = nullcontext()


class _Alarm:
    def __init__(self, message: str, args: tuple[object, ...], fields: Fields | None) -> None:
        self._line = message, *args
        self._fields = fields

    def __enter__(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(SECONDS, self._log)

    def _log(self) -> None:
        log.info(*self._line, extra=None if self._fields is None else self._fields())

    def __exit__(self, *_: object) -> None:
        self._handle.cancel()
