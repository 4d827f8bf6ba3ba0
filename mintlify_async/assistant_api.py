"""The assistant's operation of the interface: a question is sent, and its answer is a stream."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from attrs import define

from .dispatch import Dispatcher
from .hooks import Fact, Observation
from .loops import session_closed
from .requests import Request
from .response_body import LiveResponse
from .timeouts import Timeouts

__all__ = ["AssistantAPI"]


@define(eq=False, repr=False)
class AssistantAPI:
    """What a reply calls.

    Args:
        http: Sends the question.
        timeouts: The limits on it.
        closed: Returns whether the session is closed. A bound method of the session keeps it alive
            for as long as the question may still be sent.
    """

    http: Dispatcher
    timeouts: Timeouts
    closed: Callable[[], bool]

    def open(self, request: Request) -> Coroutine[Any, Any, tuple[LiveResponse, int]]:
        """Send a question; return its live answer and how many attempts it took.

        Raises:
            StateError: The session is closed.
        """
        if self.closed():
            raise session_closed()
        return self.http.open(request, self.timeouts)

    def observe(self, request: Request) -> Observation | None:
        """Begin to follow a question, when the session has an observer."""
        if self.http.observer is None:
            return None
        facts: dict[str, Fact] = {"domain": request.domain or "", "base_url": self.http.base_url}
        if request.thread is not None:
            facts["conversation_id"] = request.thread.id
        facts["input"] = request.prompt or ""
        return self.http.observer.start("ask", facts)
