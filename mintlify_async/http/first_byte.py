"""Tells when the first byte of a request was written, or that none was written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ..errors import StateError
from ..runtime import dates

FIRST_BYTE_SECONDS: Final = 10.0
"""How long ``before_first_byte`` may take, in seconds. A SQLite store whose file is locked waits as
long: see ``BUSY_SECONDS`` in ``storage/sqlite_file.py``."""


class Sending:
    """When the first byte of a request was written. Whatever ends the request, the fact stands here.

    Args:
        before_first_byte: Awaited when the connection is there and nothing is written yet, once for each
            attempt. It may take 10 s. When it raises, nothing is sent, and its error is the request's. An
            attempt that ends meanwhile cancels it.
        on_retry: Awaited before the pause that precedes another attempt, if ``before_first_byte`` was
            called. When it raises, there is no other attempt, and its error is the request's.

    Attributes:
        sent_at: The date of the newest attempt's first byte, in seconds since 1970; None when none was
            written. An attempt that was refused with 429 no longer counts once another one is to follow.
        failure: What ``before_first_byte`` raised in the newest attempt, or None.
        job_id: The id of the job in the response, as soon as it was read, or None.
    """

    __slots__ = (
        "_asked",
        "_attempt",
        "_open",
        "before_first_byte",
        "failure",
        "job_id",
        "on_retry",
        "sent_at",
    )

    def __init__(
        self,
        before_first_byte: Callable[[], Awaitable[object]] | None = None,
        on_retry: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.before_first_byte = before_first_byte
        self.on_retry = on_retry
        self.sent_at: float | None = None
        self.failure: Exception | None = None
        self.job_id: str | None = None
        self._attempt = 0
        self._open = False
        self._asked = False

    def begin(self) -> int:
        """Begin an attempt and return its number. The body names this number before it writes."""
        self._attempt += 1
        self._open, self._asked = True, False
        self.sent_at = self.failure = None
        return self._attempt

    def seal(self) -> None:
        """End the attempt. If its first byte is not written yet, it is never written."""
        self._open = False

    async def first_byte(self, attempt: int) -> None:
        """Return when the body of *attempt* may write its first byte, which is noted as written.

        Raises:
            ConnectionAbortedError: The attempt has ended, or :attr:`failure` says why nothing may be written.
        """
        if self.before_first_byte is not None and self._is_open(attempt):
            self._asked = True
            limit = asyncio.timeout(FIRST_BYTE_SECONDS)
            try:
                async with limit:
                    await self.before_first_byte()
            except Exception as error:
                failure = error
                if limit.expired():
                    failure = StateError(f"not ready within {FIRST_BYTE_SECONDS:g} s; nothing was sent")
                if self._is_open(attempt):
                    self.failure = failure
                    self.seal()
        if not self._is_open(attempt):
            raise ConnectionAbortedError("the attempt ended before its first byte was written")
        self.sent_at = dates.now()

    def _is_open(self, attempt: int) -> bool:
        return self._open and attempt == self._attempt

    async def again(self) -> None:
        """Drop the newest attempt, which had no effect. Another one follows."""
        self.seal()
        self.sent_at = None
        if self._asked and self.on_retry is not None:
            await self.on_retry()
        self._asked = False
