"""What a reply is made with: a question that is ready to be sent, and the turn that it belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from attrs import define

from ..messages import Message
from ..model.thread import Thread
from ..protocol.assumptions import Assumptions
from ..protocol.requests import Request

if TYPE_CHECKING:
    from ..http.observer import Observation
    from ..http.response_body import LiveResponse
    from ..runtime.clock import Clock

__all__ = ["Asker", "CloseIfUnused", "PreparedQuestion", "ReplySettings", "Turn"]


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class ReplySettings:
    """The session's settings that its replies need.

    Args:
        assumptions: What is assumed of the service.
        max_event_bytes: The largest event, in bytes.
        max_reply_bytes: The largest answer, in decoded bytes.
        comments_are_activity: Whether a comment resets the limit on silence.
        clock: The session's clock.
    """

    assumptions: Assumptions
    max_event_bytes: int
    max_reply_bytes: int
    comments_are_activity: bool
    clock: Clock


class Asker(Protocol):
    """Sends questions."""

    def open(self, request: Request) -> Awaitable[tuple[LiveResponse, int]]:
        """Send *request*; return the answer, whose headers have arrived, and the number of attempts."""
        ...

    def observe(self, request: Request) -> Observation | None:
        """Start an observation of *request*; None when the session has no observer."""
        ...


class PreparedQuestion(NamedTuple):
    """A question that was checked and is ready to be sent: the arguments of :class:`Reply`."""

    asker: Asker
    request: Request
    settings: ReplySettings
    message: Message | None = None


CloseIfUnused: TypeAlias = "weakref.WeakMethod[Callable[[bool], bool]]"


class Turn(Protocol):
    """What a conversation does around one reply. The reply of a plain question has no turn."""

    async def enter(self, close_if_unused: CloseIfUnused) -> PreparedQuestion | None:
        """Wait until the question may be sent.

        Args:
            close_if_unused: Closes the reply without ending its turn, and returns whether it did. It does
                not while a task opens or reads the reply; nor inside the reply's block, unless its
                argument is true. Weak: the reply owns the turn.

        Returns:
            What to send in place of the question that the reply was made with; None to send that one.

        Raises:
            MintlifyError: It may not be sent. The reply can be entered again later.
        """
        ...

    async def finished(self, message: Message | None, thread: Thread | None) -> None:
        """``Finish`` was read and is handed out next. An error is kept for :meth:`ended`.

        Args:
            message: The answer so far; None before it began.
            thread: Its thread, as far as it is known.
        """
        ...

    async def ended(self, message: Message | None, thread: Thread | None, *, whole: bool) -> None:
        """Commit the turn or roll it back, now that no event follows. Further calls do nothing.

        Args:
            message: The answer; None when there is none.
            thread: Its thread, as far as it is known.
            whole: Whether the answer ended without an error or an ``abort``.

        Raises:
            Exception: The error of the store: the turn was not saved.
        """
        ...

    def left(self) -> None:
        """Let the next turn begin: the reply's block was left, or it ended and had no block."""
        ...
