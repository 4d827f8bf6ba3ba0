"""Times in the headers of a response: ``Retry-After``, the reset of a limit, and dates.

This module does no I/O. The caller passes the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache

_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_EPOCH_BEGINS = 1_000_000_000.0  # a larger number is a date in seconds since 1970, not a period


def retry_after_seconds(headers: Mapping[str, str], wall: float, *, resets: bool = True) -> float | None:
    """Return the seconds that the service asks to wait, or None if no header can be read.

    Args:
        headers: The headers of the response, with names in lower case.
        wall: Seconds since 1970 by this machine's clock. A date is compared with the response's ``Date``
            header, if there is one, so a wrong clock here does no harm.
        resets: Whether to use the end of a limit's window. Many services send it with every response, but
            only after a 429 is it a request to wait.
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


@lru_cache(maxsize=8)  # responses of the same second have the same date
def http_date(text: str | None) -> float | None:
    """Return an HTTP date (RFC 9110, 5.6.7) in seconds since 1970, or None if it cannot be read."""
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
