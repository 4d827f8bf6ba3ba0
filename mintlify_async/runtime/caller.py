"""Finds the application's call of this package, for warnings about unclosed or unread objects."""

from __future__ import annotations

import sys
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""A file and a line in it."""


def caller(depth: int = 1) -> Place:
    """Return the nearest place outside this package that led to this call.

    Args:
        depth: How many callers up to start; nearer ones, which are this package's, are not looked at.
    """
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage] - documented; inspect.stack reads files
    ours = "mintlify_async."
    while frame.f_back is not None and frame.f_globals.get("__name__", ours).startswith(ours):
        frame = frame.f_back  # code that attrs generates has no __name__
    return frame.f_code.co_filename, frame.f_lineno
