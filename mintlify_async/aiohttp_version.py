"""Warn when the installed aiohttp has a flaw that a newer one has mended.

The versions that work are in ``pyproject.toml``. Some of them are known to be unsafe; they stay
allowed, because applications pin aiohttp and could not install this package otherwise.
"""

from __future__ import annotations

import logging
import re
from functools import cache

__all__ = ["known_flaw", "log_known_flaw", "version_numbers"]

# Until this version, aiohttp's parser of responses has the flaw GHSA-cq5v-8q36-5273.
FIRST_SAFE_VERSION = (3, 14, 3)

log = logging.getLogger("mintlify_async")


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of *version*: ``(3, 14, 0)`` for ``3.14.0rc1``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def known_flaw(version: str) -> str | None:
    """Say what is wrong with aiohttp *version* and how to mend it; None when nothing is known."""
    if version_numbers(version) >= FIRST_SAFE_VERSION:
        return None
    safe = ".".join(map(str, FIRST_SAFE_VERSION))
    return (
        f"aiohttp {version} has a flaw in its response parser (GHSA-cq5v-8q36-5273); "
        f"install a newer one: pip install 'aiohttp>={safe},<4'"
    )


@cache  # once per process
def log_known_flaw(version: str) -> None:
    """Log a warning when aiohttp *version* has a known flaw; a second call does nothing."""
    flaw = known_flaw(version)
    if flaw is not None:
        log.warning("%s", flaw)
