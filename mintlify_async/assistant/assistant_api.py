"""The assistant's operation of the interface: a question is sent, and its answer is a stream."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias, Unpack

from attrs import frozen

from ..errors import MintlifyError
from ..http.dispatch import Dispatcher
from ..http.response_body import LiveResponse
from ..messages import Message, Question
from ..model.thread import Thread
from ..protocol.calls import AskOptions, Call, ask_call
from ..settings.options import Observation, Options

CloseIfUnused: TypeAlias = "weakref.WeakMethod[Callable[[bool], bool]]"


@frozen(eq=False, repr=False)
class AssistantAPI:
    """The interface of a session for replies and conversations.

    Args:
        http: Sends the question.
        defaults: The defaults of a question.
        site: The URL of the documentation, or None. Links in answers start with it.
        check_open: Raises when the session is closed. A bound method of the session keeps it alive
            for as long as the question may still be sent.
        connections: Stay open while they are referred to. They contain no keys.
    """

    http: Dispatcher
    defaults: Options
    site: str | None
    check_open: Callable[[], None]
    connections: object

    def call(self, question: Question, **options: Unpack[AskOptions]) -> Call:
        """Check a question and its options, and return the call. Nothing is sent.

        Raises:
            ConfigurationError: An argument is invalid.
            StateError: The session is closed.
        """
        self.check_open()
        return ask_call(self.defaults, question, options)

    def open(
        self, call: Call, observation: Observation | None = None
    ) -> Coroutine[Any, Any, tuple[LiveResponse, int]]:
        """Send a question. Return its live answer and how many attempts it took.

        Raises:
            StateError: The session is closed.
        """
        self.check_open()
        return self.http.open(call, observation)

    def observe(self, call: Call) -> Observation | None:
        """Begin to follow a question, when the session has an observer."""
        if self.http.observer is None:
            return None
        thread = None if call.thread is None else call.thread.id
        return self.http.observe("ask", domain=call.domain, conversation_id=thread, input=call.text)


class ReplyTurn(Protocol):
    """The steps of a conversation around one reply. The reply of a plain question has no turn."""

    async def enter(self, close_if_unused: CloseIfUnused) -> Call | None:
        """Wait until the question may be sent.

        Args:
            close_if_unused: Closes the reply without ending its turn, and returns whether it did. It does
                not while a task opens or reads the reply. Its argument is whether the turn is over: if
                not, an entered reply stays open, and any other raises ``StateError`` from then on.
                Weak: the reply owns the turn.

        Returns:
            What to send in place of the question that the reply was made with. None to send that one.

        Raises:
            MintlifyError: It may not be sent. The reply can be entered again later.
        """
        ...

    async def finished(self, message: Message | None, thread: Thread | None) -> None:
        """``Finish`` was read and is handed out next. An error is kept for :meth:`ended`.

        Args:
            message: The answer so far, or None before its start.
            thread: Its thread, or the known fields of it.
        """
        ...

    async def ended(self, message: Message | None, thread: Thread | None, *, whole: bool) -> None:
        """Commit the turn or roll it back, now that no event follows. Further calls do nothing.

        Args:
            message: The answer, or None when there is none.
            thread: Its thread, or the known fields of it.
            whole: Whether the answer ended without an error or an ``abort``.

        Raises:
            Exception: The error of the store: the turn was not saved.
        """
        ...

    def refused(self, call: Call, error: MintlifyError) -> Call | None:
        """Return what to send once more after *error*, which refused *call*; None to raise it."""
        ...

    def shown(self, site: str | None, characters: int | None) -> None:
        """Say how much of the answer's text the reader was shown. None means all that arrives."""
        ...

    def left(self) -> None:
        """Let the next turn begin: the reply's block was left, or it ended and had no block."""
        ...
