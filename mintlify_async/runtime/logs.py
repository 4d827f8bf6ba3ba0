"""Log lines: their fields, lines about slow steps, and the caller's line in the user's code.

Fields contain no user text and no secret.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType
from typing import Final, TypeAlias

from ..errors import printable

__all__ = ["log_fields"]

SECONDS: Final = 5.0
"""Time in seconds after which a step gets a log line."""

log = logging.getLogger("mintlify_async")

Place: TypeAlias = tuple[CodeType, int]
"""A function's code and an offset in it. :func:`line_of` looks up the line when it is needed."""

Fields = Callable[[], dict[str, object]]
"""Returns the fields of a log line when the line is written."""


def log_fields(
    operation: str, *, job_id: str | None = None, request_id: str | None = None, attempt: int | None = None
) -> dict[str, object]:
    """Return the ``extra=`` of a log record.

    A field that the program's record factory sets is left out, because ``logging`` refuses it twice.
    """
    job_id = None if job_id is None else printable(job_id)
    fields: dict[str, object] = {
        "operation": operation,
        "job_id": job_id,
        "request_id": request_id,
        "attempt": attempt,
    }
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        return fields
    own_record = factory("mintlify_async", logging.DEBUG, "", 0, "", (), None)
    return {name: value for name, value in fields.items() if name not in own_record.__dict__}


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


def caller(depth: int = 1) -> Place:
    """Return the nearest caller outside this package, for a warning about an object.

    Args:
        depth: The number of callers to skip. They are functions of this package.
    """
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage] - documented; inspect.stack reads files
    ours = "mintlify_async."
    while frame.f_back is not None and frame.f_globals.get("__name__", ours).startswith(ours):
        frame = frame.f_back  # the code that attrs generates has no __name__
    return frame.f_code, frame.f_lasti


def line_of(place: Place) -> tuple[str, int]:
    """Return the file and the line of *place*. It reads the function's table of lines."""
    code, at = place
    lines = (line for start, end, line in code.co_lines() if start <= at < end and line is not None)
    return code.co_filename, next(lines, code.co_firstlineno)
