"""The assistant's operation of the interface: a question is sent, and its answer is a stream."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from attrs import define, evolve

from ..http.dispatch import Dispatcher
from ..http.observer import Fact, Observation
from ..http.response_body import LiveResponse
from ..http.timeouts import Timeouts
from ..messages import Question, clean_text
from ..protocol.argument_checks import check_messages, check_thread, merged
from ..protocol.requests import Request, ask_request, new_message_id
from .prepared_question import PreparedQuestion, ReplySettings


@define(eq=False, repr=False)
class AssistantAPI:
    """What a reply calls.

    Args:
        http: Sends the question.
        timeouts: The limits on it.
        check_open: Raises when the session is closed. A bound method of the session keeps it alive
            for as long as the question may still be sent.
        settings: The session's settings that its replies need.
    """

    http: Dispatcher
    timeouts: Timeouts
    check_open: Callable[[], None]
    settings: ReplySettings

    def prepare(
        self,
        question: Question,
        *,
        domain: str,
        thread: object = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> PreparedQuestion:
        """Check a question and return what its reply is made with; sends nothing.

        Args:
            question: A string, or the messages of the conversation.
            domain: The site.
            thread: The thread to continue, or its id.
            headers: Additional headers.
            extra_body: Additional fields of the body.
            fields: The other fields of the request; see :func:`ask_request`.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        http = self.http
        asked = question if type(question) is str and question else check_messages(question, new_message_id)
        request = ask_request(
            http.assumptions,
            domain,
            asked,
            thread=check_thread(thread),
            headers=merged(http.headers, headers),
            extra_body=merged(http.extra_body, extra_body),
            **fields,
        )
        if http.observer is not None:
            request.prompt = clean_text(asked) if isinstance(asked, str) else asked[-1].text
        continued = None if isinstance(asked, str) or asked[-1].role != "assistant" else asked[-1]
        settings = self.settings  # the session's, nearly always
        if settings.comments_are_activity != self.timeouts.comments_are_activity:
            settings = evolve(settings, comments_are_activity=self.timeouts.comments_are_activity)
        return PreparedQuestion(self, request, settings, continued)

    def open(self, request: Request) -> Coroutine[Any, Any, tuple[LiveResponse, int]]:
        """Send a question; return its live answer and how many attempts it took.

        Raises:
            StateError: The session is closed.
        """
        self.check_open()
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
