"""Records whether and when the first byte of a request was written, and how the request ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..errors import StateError, printable
from ..runtime import clock
from ..settings.retry_policy import Outcome

FIRST_BYTE_SECONDS: Final = 10.0
"""Maximum time for :meth:`Sending.before_first_byte`, in seconds. A SQLite store waits as long for a locked
file: see ``BUSY_SECONDS`` in ``storage/sqlite_file.py``."""

CLEAN_UP_SECONDS: Final = 0.25
"""Time for which an ending call waits for its clean-up, in seconds. The clean-up continues after that."""

T = TypeVar("T")


class Sending:
    """Records when the first byte of a request was written, however the request ends.

    For a call with a ``dedupe_key``, a subclass in ``jobs/send_once.py`` overrides async methods.

    Args:
        until: When the call must have ended, by the loop's time. Its waits for a slot, for a store and for
            other calls are included.

    Attributes:
        dedupe_key: The ``dedupe_key`` of the call, or None.
        on_first_byte: Called just before the first byte of an attempt is written, or None.
        on_no_effect: Called if that attempt had no effect and another attempt follows, or None.
        ends_at: The latest end of the last attempt, by the loop's time.
        body_read: Whether aiohttp read the body in the last attempt. A substitute session never reads it.
        body_read_again: Whether aiohttp read the body again after the first byte was written.
        sent_at: The date of the last attempt's first byte, in seconds since 1970. None if none was written.
            After a 429, the value is removed if another attempt follows.
        status: The status of the response to the last attempt, or 0.
        failure: The error of :meth:`before_first_byte` in the last attempt, or None.
        job_id: The id of the job in the response, as soon as it was read, or None.
    """

    __slots__ = (
        "_attempt",
        "_open",
        "body_read",
        "body_read_again",
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
        self.body_read = self.body_read_again = False
        self._attempt = self.status = 0
        self._open = 0  # the number of the attempt that may write its first byte, or 0

    @property
    def outcome(self) -> Outcome:
        """How the last attempt failed, if it failed."""
        if 300 <= self.status < 500:
            return "refused" if self.status == 429 else "answered"
        return "not_sent" if self.sent_at is None else "unknown"

    @property
    def had_no_effect(self) -> bool:
        """Whether the last attempt started nothing, because it was not sent or was refused."""
        return self.outcome != "unknown"

    @property
    def next_step(self) -> str:
        """What the user should do if the outcome of the request is unknown."""
        if self.dedupe_key is None or not self.body_read:  # without a first byte, the key may have no claim
            return "look at the dashboard or the repository before you send it again"
        return (
            f"call it again with dedupe_key {printable(self.dedupe_key, 80)!r}, which sends nothing, and "
            "returns the job or says how to find it"
        )

    async def ready(self, step: Awaitable[T]) -> T:
        """Wait for *step*, which gets the key and a slot. If this call raises, there is no attempt."""
        return await step

    async def before_first_byte(self) -> None:
        """Prepare the first byte of an attempt, after the connection was opened.

        The call may take 10 s. If it raises, nothing is sent, and the request raises the same error. If the
        attempt ends, the call is cancelled.
        """

    async def again(self, seconds: float) -> str | None:
        """Drop the last attempt, which had no effect. Another attempt follows in *seconds*.

        Return None, or the reason why no other attempt may follow.
        """
        del seconds
        self.seal()
        if self.on_no_effect is not None:
            self.on_no_effect()
        self.body_read, self.sent_at, self.status = False, None, 0
        return None

    def patience(self, seconds: float) -> float:
        """Return how many of *seconds* the call may wait for its clean-up, at most 0.25 s after *until*."""
        left = self.until + CLEAN_UP_SECONDS - asyncio.get_running_loop().time()
        return min(seconds, max(0.0, left))

    def begin(self) -> int:
        """Start an attempt and return its number. The body passes this number before it writes."""
        self._attempt += 1
        self._open = self._attempt
        self.body_read = self.body_read_again = False
        self.sent_at = self.failure = None
        self.status = 0
        return self._attempt

    def seal(self) -> None:
        """End the attempt. If its first byte was not written yet, it is never written."""
        self._open = 0

    async def first_byte(self, attempt: int) -> None:
        """Wait until the body of *attempt* may write its first byte. The byte is recorded as written.

        Raises:
            ConnectionAbortedError: The attempt has ended or has already written its first byte, or
                :attr:`failure` is set.
        """
        if attempt == self._open:
            self.body_read = True
            if self.must_wait and self.sent_at is None:
                await self._wait(attempt)
        if attempt != self._open:
            raise ConnectionAbortedError("the attempt ended before its first byte was written")
        if self.sent_at is not None:
            self.body_read_again = True
            raise ConnectionAbortedError("the request was written before, and is never written again")
        self.sent_at = clock.now()
        if self.on_first_byte is not None:
            self.on_first_byte()

    async def _wait(self, attempt: int) -> None:
        """Call :meth:`before_first_byte`. If it fails, end the attempt."""
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
