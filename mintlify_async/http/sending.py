"""Tells when the first byte of a request was written, or that none was, and what became of the request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..errors import StateError
from ..runtime import dates
from ..settings.retry_policy import Outcome

FIRST_BYTE_SECONDS: Final = 10.0
"""How long :meth:`Sending.before_first_byte` may take, in seconds. A SQLite store whose file is locked waits
as long: see ``BUSY_SECONDS`` in ``storage/sqlite_file.py``."""

CLEAN_UP_SECONDS: Final = 0.25
"""How long a call that ends waits for its clean-up, in seconds. The clean-up goes on without it."""

T = TypeVar("T")


class Sending:
    """When the first byte of a request was written. Whatever ends the request, the fact stands here.

    A call with a ``dedupe_key`` overrides what is awaited: see ``jobs/send_once.py``.

    Args:
        until: When the call must have ended, by the loop's time. Its waits for a slot, for a store and for
            other calls count, too.

    Attributes:
        dedupe_key: The ``dedupe_key`` of the call, or None.
        on_first_byte: Called just before the first byte of an attempt is written, or None.
        on_no_effect: Called when that attempt had no effect and another one follows, or None.
        ends_at: When the newest attempt ends at the latest, by the loop's time.
        asked: Whether aiohttp has asked for the body in the newest attempt. A stand-in for its session never
            does.
        asked_again: Whether it has asked for the body again after the first byte was written.
        sent_at: The date of the newest attempt's first byte, in seconds since 1970; None when none was
            written. An attempt that was refused with 429 no longer counts once another one is to follow.
        status: The status of the newest attempt's answer, or 0.
        failure: What :meth:`before_first_byte` raised in the newest attempt, or None.
        job_id: The id of the job in the response, as soon as it was read, or None.
    """

    __slots__ = (
        "_attempt",
        "_open",
        "asked",
        "asked_again",
        "dedupe_key",
        "ends_at",
        "failure",
        "job_id",
        "on_first_byte",
        "on_no_effect",
        "sent_at",
        "status",
        "until",
    )

    must_wait = False
    """Whether :meth:`before_first_byte` does something."""

    def __init__(self, until: float = math.inf) -> None:
        self.until = until
        self.dedupe_key: str | None = None
        self.on_first_byte: Callable[[], None] | None = None
        self.on_no_effect: Callable[[], None] | None = None
        self.ends_at = math.inf
        self.sent_at: float | None = None
        self.failure: Exception | None = None
        self.job_id: str | None = None
        self.asked = self.asked_again = False
        self._attempt = self.status = 0
        self._open = 0  # the number of the attempt that may write its first byte, or 0

    @property
    def outcome(self) -> Outcome:
        """How the newest attempt failed, if it did."""
        if 300 <= self.status < 500:
            return "refused" if self.status == 429 else "answered"
        return "not_sent" if self.sent_at is None else "unknown"

    @property
    def had_no_effect(self) -> bool:
        """Whether the newest attempt has started nothing, because it was not sent or was refused."""
        return self.outcome != "unknown"

    async def ready(self, step: Awaitable[T]) -> T:
        """Wait for *step*, which gets what an attempt needs. If this raises, there is no attempt."""
        return await step

    async def before_first_byte(self) -> None:
        """Do what must precede the first byte of an attempt, when its connection is there.

        It may take 10 s. If it raises, nothing is sent, and its error is the request's. An attempt that ends
        meanwhile cancels it.
        """

    async def again(self, seconds: float) -> str | None:
        """Drop the newest attempt, which had no effect. Another one follows in *seconds*.

        Return None, or why no other one may follow.
        """
        del seconds
        self.seal()
        if self.on_no_effect is not None:
            self.on_no_effect()
        self.asked, self.sent_at, self.status = False, None, 0
        return None

    def patience(self, seconds: float) -> float:
        """Return for how many of *seconds* the call may wait for its clean-up: 0.25 s beyond its end."""
        left = self.until + CLEAN_UP_SECONDS - asyncio.get_running_loop().time()
        return min(seconds, max(0.0, left))

    def begin(self) -> int:
        """Begin an attempt and return its number. The body names this number before it writes."""
        self._attempt += 1
        self._open = self._attempt
        self.asked = self.asked_again = False
        self.sent_at = self.failure = None
        self.status = 0
        return self._attempt

    def seal(self) -> None:
        """End the attempt. If its first byte is not written yet, it is never written."""
        self._open = 0

    async def first_byte(self, attempt: int) -> None:
        """Return when the body of *attempt* may write its first byte, which is noted as written.

        Raises:
            ConnectionAbortedError: The attempt has ended or has written its first byte before, or
                :attr:`failure` says why nothing may be written.
        """
        if attempt == self._open:
            self.asked = True
            if self.must_wait and self.sent_at is None:
                await self._wait(attempt)
        if attempt != self._open:
            raise ConnectionAbortedError("the attempt ended before its first byte was written")
        if self.sent_at is not None:
            self.asked_again = True
            raise ConnectionAbortedError("the request was written before, and is never written again")
        self.sent_at = dates.now()
        if self.on_first_byte is not None:
            self.on_first_byte()

    async def _wait(self, attempt: int) -> None:
        """Do what must precede the first byte. If it fails, seal the attempt."""
        limit = asyncio.timeout(FIRST_BYTE_SECONDS)
        try:
            async with limit:
                await self.before_first_byte()
        except Exception as error:
            failure = error
            if limit.expired():
                failure = StateError(f"not ready within {FIRST_BYTE_SECONDS:g} s; nothing was sent")
            if attempt == self._open and self.sent_at is None:
                self.failure = failure
                self.seal()
