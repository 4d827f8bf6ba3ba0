"""Where the relay keeps running answers, so that they outlive their reader.

A store says how long answers are kept. :class:`MemoryStreamStore` keeps them in this process; a
:class:`SharedStreamStore`, such as ``RedisStreamStore``, also shows them to other workers.
"""

from __future__ import annotations

import math
from typing import Protocol

from attrs import field, frozen

from mintlify_async.errors import ConfigurationError
from mintlify_async.protocol.argument_checks import check_seconds
from mintlify_async.runtime.closing import NothingToClose

MAX_BYTES = 8 * 1024 * 1024


def _seconds(instance: object, attribute: object, value: float) -> None:
    name: str = getattr(attribute, "name", "")
    check_seconds(value, name, zero=True)


def check_max_bytes(value: int) -> int:
    """Return *value*, the largest size of an answer.

    Raises:
        ConfigurationError: It is below 1.
    """
    if not 1 <= value < math.inf:
        raise ConfigurationError("max_bytes must be 1 or more", field="max_bytes")
    return value


@frozen(kw_only=True)
class MemoryStreamStore(NothingToClose):
    """Running answers in the memory of this process: for an app with one worker.

    Args:
        grace: Seconds for which an answer goes on without any reader; then it is stopped at the service.
        keep: Seconds for which an answer can be read after its end, by a page that was being reloaded then.
        max_bytes: The largest size of one answer; a larger one ends with an error.

    Raises:
        ConfigurationError: An argument is out of range.
    """

    grace: float = field(default=60.0, validator=_seconds)
    keep: float = field(default=60.0, validator=_seconds)
    max_bytes: int = field(default=MAX_BYTES, converter=check_max_bytes)


@frozen
class Written:
    """The store's response to the worker that writes an answer.

    Attributes:
        size: How many bytes of the answer the store has now.
        reads: A count that grows with each look of a reader on another worker.
        stopped: Whether the answer must be stopped, because a reader asked for it or the chat has a newer
            answer.
    """

    size: int
    reads: int
    stopped: bool


@frozen
class SharedPiece:
    """The store's response to a reader on another worker.

    Attributes:
        answer: The answer's id.
        question: The id of the message that it answers.
        running: Whether the answer has not ended.
        lost: Whether the answer's worker has died, and the caller is to end the answer. Until it had time to
            do so, other looks do not say that.
        frames: The frames after the reader's place.
        place: The reader's place after these frames.
        asked: The question, as it was written; "" except in a look from the answer's beginning.
    """

    answer: str
    question: str
    running: bool
    lost: bool
    frames: bytes
    place: int
    asked: str = ""


class SharedStreamStore(Protocol):
    """Shows running answers to all workers.

    A chat has one answer at a time, which one worker writes. Only what the page gets, and what it asked, is
    written. *chat* is a digest that reveals neither the user nor the chat.
    """

    @property
    def grace(self) -> float:
        """Seconds for which an answer goes on without any reader."""
        ...

    @property
    def keep(self) -> float:
        """Seconds for which an answer can be read after its end."""
        ...

    @property
    def max_bytes(self) -> int:
        """The largest size of one answer."""
        ...

    async def write(
        self,
        chat: str,
        answer: str,
        frames: bytes,
        *,
        at: int,
        question: str,
        asked: str = "",
        first: bool = False,
        force: bool = False,
        ended: bool = False,
    ) -> Written:
        """Add *frames* to *answer*, or, without frames, only say that its worker is alive.

        Writing the same frames twice adds them once. If the store has another number of bytes than *at*, it
        adds nothing and returns its own number; *at* 0 begins the answer again.

        Args:
            chat: The chat.
            answer: The answer's id, which no other answer has.
            frames: The bytes from *at* on.
            at: How many bytes of the answer were written before.
            question: The id of the message that the answer answers.
            asked: The question, in plain ASCII, when *at* is 0; kept with the answer.
            first: Whether this is the first write, which takes the place of the chat's earlier answer. If
                that still runs, it is asked to stop instead, and the size in the result is -1.
            force: Whether the first write takes the place also of an answer that runs.
            ended: Whether the answer ends with these bytes.

        Raises:
            StateError: The store cannot be used.
        """
        ...

    async def read(
        self, chat: str, answer: str | None, place: int, *, hurry: bool = False
    ) -> SharedPiece | None:
        """Return what *answer* has after *place*; None when the chat's answer is another one, or is gone.

        Args:
            chat: The chat.
            answer: The answer's id; None for the chat's latest.
            place: The reader's place, from the piece before; 0 at first.
            hurry: Whether the next question waits for the end, so that a worker counts as dead sooner.

        Raises:
            StateError: The store cannot be used.
        """
        ...

    async def end_lost(self, chat: str, answer: str, frames: bytes) -> bool:
        """End an answer whose worker has died, with *frames*; return False if another call has ended it.

        From the look that found it on, a worker that only seemed to be dead is told to stop.

        Raises:
            StateError: The store cannot be used.
        """
        ...

    async def stop(self, chat: str) -> bool:
        """Ask the chat's answer to stop; return whether there is one that has not ended.

        Its worker may have died.

        Raises:
            StateError: The store cannot be used.
        """
        ...
