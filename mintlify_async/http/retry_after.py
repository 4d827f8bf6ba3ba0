"""What the headers of a response say about time: ``Retry-After``, the reset of a limit, and dates.

It does no I/O. The caller passes the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache

_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_EPOCH_BEGINS = 1_000_000_000.0  # a reset "in" 30 years is a date, in seconds since the epoch


def retry_after_seconds(headers: Mapping[str, str], wall: float, *, resets: bool = True) -> float | None:
    """Return how long the service asks to wait, in seconds, or None when it says nothing readable.

    Args:
        headers: The answer's headers, names in lower case.
        wall: Seconds since the epoch by our own clock. A date is measured against
            the answer's own ``Date`` where there is one, so that a wrong clock here does no harm.
        resets: Whether the end of a limit's window counts. Many services send it with every
            response, but only after a 429 does it ask callers to wait.
    """
    stated = headers.get("retry-after-ms")
    if stated is not None and (milliseconds := _number(stated)) is not None:
        return milliseconds / 1000
    stated = headers.get("retry-after")  # seconds or a date: RFC 9110, 10.2.3
    if stated is not None:
        seconds = _number(stated)
        return seconds if seconds is not None else _until(stated, headers, wall)
    if not resets:
        return None
    for name in ("ratelimit-reset", "x-ratelimit-reset"):  # assumption: reset headers
        seconds = _number(headers.get(name))
        if seconds is not None:
            return max(0.0, seconds - _server_now(headers, wall)) if seconds > _EPOCH_BEGINS else seconds
    return None


def _number(text: str | None) -> float | None:
    text = text.strip() if text is not None else ""
    return float(text) if _NUMBER.fullmatch(text) else None


@lru_cache(maxsize=8)  # the answers of one second share a date
def http_date(text: str | None) -> float | None:
    """Return a date of HTTP (RFC 9110, 5.6.7) in seconds since 1970, or None when it is not readable."""
    try:
        date = parsedate_to_datetime(text) if text else None
        moment = math.nan if date is None else date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment if math.isfinite(moment) else None


def _server_now(headers: Mapping[str, str], wall: float) -> float:
    date = http_date(headers.get("date"))
    return wall if date is None else date


def _until(text: str, headers: Mapping[str, str], wall: float) -> float | None:
    moment = http_date(text)
    return None if moment is None else max(0.0, moment - _server_now(headers, wall))
