"""The assistant's operation of the interface: a question is sent, and its answer is a stream."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from attrs import define, evolve

from ..http.dispatch import Dispatcher
from ..http.observer import Fact, Observation
from ..http.response_body import LiveResponse
from ..http.timeouts import Timeouts
from ..messages import Message, Question, clean_text
from ..model.question import ContextItem, SearchFilter
from ..model.thread import Thread
from ..model.wire_value import MISSING, Missing
from ..protocol.argument_checks import check_messages, check_thread, merged
from ..protocol.assumptions import Assumptions
from ..protocol.requests import Request, ask_request, new_message_id
from ..rendering.sources import check_site
from ..runtime.clock import Clock


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class ReplySettings:
    """The session's settings that its replies need.

    Args:
        assumptions: What is assumed of the service.
        max_event_bytes: The largest event, in bytes.
        max_reply_bytes: The largest answer, in decoded bytes.
        comments_are_activity: Whether a comment resets the limit on silence.
        clock: The session's clock.
        fp: Names the user, where a question names none.
        retrieval_page_size: Search results used for an answer, where a question does not say.
        asked_domain: Returns the site to ask: the one that it is given, or the session's.
        thread_headers: The names of the headers with a thread's id and its key.
        site: The documentation's address, or None.
    """

    assumptions: Assumptions
    max_event_bytes: int
    max_reply_bytes: int
    comments_are_activity: bool
    clock: Clock
    fp: str
    retrieval_page_size: float | None
    asked_domain: Callable[[str | None], str]
    thread_headers: tuple[str, str]
    site: str | None = None


class Asker(Protocol):
    """Sends questions."""

    @property
    def timeouts(self) -> Timeouts:
        """The limits on them."""
        ...

    def within(self, seconds: float) -> Asker:
        """Return one that allows *seconds* for a whole answer."""
        ...

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


class ReplyTurn(Protocol):
    """What a conversation does around one reply. The reply of a plain question has no turn."""

    async def enter(self, close_if_unused: CloseIfUnused) -> PreparedQuestion | None:
        """Wait until the question may be sent.

        Args:
            close_if_unused: Closes the reply without ending its turn, and returns whether it did. It does
                not while a task opens or reads the reply. Its argument is whether the turn is over: if
                not, an entered reply stays open, and any other raises ``StateError`` from then on.
                Weak: the reply owns the turn.

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


def last_question(messages: Sequence[Message]) -> str:
    """Return the text of the last message of a user; "" if there is none."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


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
        domain: str | None = None,
        fp: str | None = None,
        retrieval_page_size: float | Missing | None = MISSING,
        thread: object = None,
        filter: SearchFilter | Mapping[str, Any] | None = None,
        context: Sequence[ContextItem | Mapping[str, Any]] | None = None,
        current_path: str | None = None,
        site: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> PreparedQuestion:
        """Check a question and return what its reply is made with; sends nothing.

        Args:
            question: A string, or the messages of the conversation.
            domain: The site; the session's by default.
            fp: Names the user; the session's by default.
            retrieval_page_size: Search results used for the answer; the session's by default, None: not sent.
            thread: The thread to continue, or its id.
            filter: Limits the search.
            context: Code or selected text.
            current_path: The page that the user is reading.
            site: The documentation's address; the session's by default.
            headers: Additional headers.
            extra_body: Additional fields of the body.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        http, settings = self.http, self.settings
        domain = settings.asked_domain(domain)
        asked = question if type(question) is str and question else check_messages(question, new_message_id)
        request = ask_request(
            http.assumptions,
            domain,
            asked,
            fp=settings.fp if fp is None else fp,
            thread=None if thread is None else check_thread(thread),
            retrieval_page_size=(
                settings.retrieval_page_size if retrieval_page_size is MISSING else retrieval_page_size
            ),
            filter=filter,
            context=context,
            current_path=current_path,
            headers=merged(http.headers, headers),
            extra_body=merged(http.extra_body, extra_body),
        )
        if http.observer is not None:
            request.prompt = clean_text(asked) if isinstance(asked, str) else last_question(asked)
        continued = None if isinstance(asked, str) or asked[-1].role != "assistant" else asked[-1]
        # The session's settings, unless the call has timeouts of its own.
        if settings.comments_are_activity != self.timeouts.comments_are_activity:
            settings = evolve(settings, comments_are_activity=self.timeouts.comments_are_activity)
        if site is not None:
            settings = evolve(settings, site=check_site(site))
        return PreparedQuestion(self, request, settings, continued)

    def within(self, seconds: float) -> AssistantAPI:
        """Return one that allows *seconds* for a whole answer, and a millisecond when they are over."""
        return evolve(self, timeouts=self.timeouts.with_total(max(seconds, 0.001)))

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
