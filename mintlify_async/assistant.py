"""An answer of the assistant while it arrives: a way to open it goes in, typed events come out.

The stream's own logic (framing, events, folding, what counts as an end) is in
:mod:`mintlify_async.stream`; here are the connection, the waiting and the closing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from attrs import define

from .assumptions import Assumptions
from .cancellation import Deadline
from .errors import (
    APITimeoutError,
    MintlifyError,
    StateError,
    StreamDecodeError,
    StreamInterruptedError,
    UnexpectedResponseError,
)
from .events import StreamEvent, TextDelta
from .parts import Message, clean_text
from .requests import Request
from .response_info import ResponseInfo
from .responses import response_info
from .stream import MessageStream
from .thread import Thread

if TYPE_CHECKING:
    from .clock import Clock
    from .edits import Edits
    from .hooks import Observation
    from .response_body import LiveResponse
    from .sources import AnswerSource

__all__ = ["Reply", "Snapshots", "TextStream"]

GRACE_SECONDS = 1.0  # what may still come after the end was announced


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class ReplySettings:
    """What a session's replies need to know beyond their connections.

    Args:
        assumptions: What is taken for granted of the service.
        thread_headers: The headers that name a thread's id and its key.
        max_event_bytes: The largest event.
        max_reply_bytes: The largest answer, in decoded bytes.
        comments_are_activity: Whether a comment ends a silence.
        clock: The session's.
    """

    assumptions: Assumptions
    thread_headers: tuple[str, str]
    max_event_bytes: int
    max_reply_bytes: int
    comments_are_activity: bool
    clock: Clock


class Asker(Protocol):
    """What sends a session's questions."""

    def open(self, request: Request) -> Awaitable[tuple[LiveResponse, int]]:
        """Send *request*; return the answer and how many attempts it took."""
        ...

    def observe(self, request: Request) -> Observation | None:
        """Begin to follow it, when the session has an observer."""
        ...


class Reply:
    """An answer of the assistant: an async iterator of typed events, an async context manager, an awaitable.

    Nothing is sent before it is entered, stepped or awaited::

        async for event in session.ask("How do I log in?"): ...

        async with session.ask("And by SSO?", thread=thread) as reply:  # closes at once on break
            async for text in reply.text_stream:
                print(text, end="")

        reply = await session.ask("…")  # the whole answer

    One task reads at a time. Cancelling a step loses no event: iteration may go on.
    An answer that stops before its end raises
    :class:`~mintlify_async.errors.StreamInterruptedError` with what had arrived;
    everything that was decoded is delivered first. Nothing is ever asked again by
    itself once the first byte has come.
    """

    __slots__ = (
        "_asker",
        "_attempts",
        "_cause",
        "_closed",
        "_entered",
        "_error",
        "_heard",
        "_live",
        "_message",
        "_observation",
        "_opening",
        "_request",
        "_response",
        "_settings",
        "_started",
        "_stream",
        "_thread",
    )

    def __init__(
        self,
        asker: Asker,
        request: Request,
        settings: ReplySettings,
        message: Message | None = None,
    ) -> None:
        """Keep the question; made by ``session.ask``.

        Args:
            asker: What sends the question; kept until it is sent, and it keeps the session alive.
            request: The question.
            settings: The session's.
            message: The assistant message that the answer continues, if any.
        """
        self._response: ResponseInfo | None = None
        self._attempts = 0
        self._asker: Asker | None = asker
        self._request: Request | None = request
        self._opening: Deadline | None = None
        self._settings = settings
        self._thread = request.thread
        self._message = message
        self._stream: MessageStream | None = None
        self._live: LiveResponse | None = None
        self._error: MintlifyError | None = None
        self._started = self._entered = self._closed = False
        self._heard = -1
        self._cause: MintlifyError | None = None
        self._observation: Observation | None = None

    # The views --------------------------------------------------------------------------------

    @property
    def sent_key(self) -> str | None:
        """The key that the question was sent with, or None: for code that must keep it out of its output."""
        return None if self._live is None else self._live.secret

    @property
    def response(self) -> ResponseInfo | None:
        """Status, headers and request id, or None before the answer began."""
        live = self._live
        if self._response is None and self._attempts and live is not None:
            assumptions = self._settings.assumptions
            self._response = response_info(assumptions, live.status, live.headers, self._attempts)
        return self._response

    @property
    def text(self) -> str:
        """The answer's text so far: exactly the events handed out, or the whole after ``await``."""
        return self._stream.text if self._stream is not None else ""

    @property
    def message(self) -> Message | None:
        """The answer so far as a message with typed parts, or None before it began."""
        return self._stream.message if self._stream is not None else self._message

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread as far as it is known: pass it to the next ``ask``."""
        return self._stream.thread if self._stream is not None else self._thread

    @property
    def thread_id(self) -> str | None:
        """The thread's id, or None."""
        thread = self.thread
        return thread.id if thread is not None else None

    @property
    def sources(self) -> list[AnswerSource]:
        """The pages that the answer rests on, in order, each once."""
        return self._stream.sources if self._stream is not None else []

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, as the service says: ``stop``, ``length``, …; None when it did not say."""
        return self._stream.finish_reason if self._stream is not None else None

    @property
    def complete(self) -> bool:
        """Whether the answer's end was announced, not merely its connection closed."""
        return self._stream is not None and self._stream.complete

    @property
    def aborted(self) -> bool:
        """Whether the service broke the answer off by an ``abort`` event."""
        return self._stream is not None and self._stream.aborted

    @property
    def abort_reason(self) -> str | None:
        """The service's reason for an abort, or None."""
        return self._stream.abort_reason if self._stream is not None else None

    @property
    def events_seen(self) -> int:
        """How many events were handed out."""
        return self._stream.events_seen if self._stream is not None else 0

    @property
    def wrote(self) -> bool:
        """Whether the last event changed the message."""
        return self._stream is not None and self._stream.wrote

    @property
    def closed(self) -> bool:
        """Whether nothing more will come: it ended, failed, or was closed."""
        return self._closed

    @property
    def text_stream(self) -> TextStream:
        """The answer's text, piece by piece as it arrives; an async iterator over this same reply."""
        return TextStream(self)

    def snapshots(self) -> Snapshots:
        """Return an async iterator of the message after each change, over this same reply.

        Each snapshot costs in proportion to the message; for plain text use :attr:`text_stream`.
        """
        return Snapshots(self)

    def edits(
        self, *, every: float = 1.2, limit: int = 1900, tail: Callable[[Reply], str] | None = None
    ) -> Edits:
        """Return an async iterator of a chat surface's messages as they grow.

        Each :class:`Edit` holds a message's whole text and what to append to it: send it when its
        ``index`` is new, else edit that message. This reply is read on while you do. Whatever
        happens, everything that had come is shown before the iterator ends or raises. Breaking it
        off gives the reply up.

        Args:
            every: Seconds from when you are done with one edit until the next, at least; Telegram
                and Slack bear about one a second in one chat.
            limit: The longest message, in UTF-16 code units, as Telegram counts (its bound is 4096;
                Discord's is 2000). A longer answer goes on in another message, cut between
                paragraphs or words; a code block is closed and opened again.
            tail: Makes what is said below a complete answer, such as ``extras_markdown``; the
                ``suggestions`` block is then left out of the text.

        Raises:
            ConfigurationError: *every* or *limit* is wrong.

        Example::

            async for edit in reply.edits(every=1.2, limit=4096):
                if edit.index == len(sent):
                    sent.append(await message.answer(edit.text))
                else:
                    await sent[-1].edit_text(edit.text)
        """
        from .edits import Edits  # loaded when it is used: only chat surfaces need it

        return Edits(self, self._settings.clock, every=every, limit=limit, tail=tail)

    async def final(self) -> Message:
        """Read to the end and return the whole message.

        Raises:
            StreamError: The answer did not arrive whole; ``.partial`` has what did.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
        """
        await self.run()
        assert self._stream is not None
        return self._stream.message

    async def run(self) -> Self:
        """Read to the end and return this reply: ``await reply`` as a coroutine, for ``create_task``.

        Raises:
            StreamError: The answer did not arrive whole; ``.partial`` has what did.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            StateError: Another task is reading it.
        """
        if self._error is not None:
            raise self._error
        try:
            async for _ in self:
                pass
        except asyncio.CancelledError:
            if not self._entered:
                self._shut()  # nobody else will
            raise
        if self._error is not None:
            raise self._error
        if self._stream is None or not self._stream.ended:
            raise self._closed_early()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Read to the end; see :meth:`run`."""
        return self.run().__await__()

    # Reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Return itself: there is one stream."""
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event.

        Raises:
            StopAsyncIteration: The answer ended, or was closed.
            StreamError: The answer did not arrive whole.
            StateError: Another task is reading it.
        """
        if not self._started:
            await self._start()
        stream = self._stream
        while not self._closed and stream is not None:
            try:
                event = stream.next_event()
            except StreamInterruptedError as error:
                raise self._failed(error) from (self._cause or error.__cause__)
            except MintlifyError as error:
                raise self._failed(error) from error.__cause__
            if event is not None:
                return event
            if stream.ended:
                self._end(None)
                break
            live = self._to_be_read(stream)
            try:
                data = await live.read()
            except MintlifyError as error:
                self._cut(stream, error)
            else:
                self._feed(stream, live, data)
        raise StopAsyncIteration

    async def _start(self, *, entered: bool = False) -> Self:
        """Send the question and wait for the answer's beginning, unless that was done; return this reply.

        *entered* is whether its block begins with that.
        """
        self._entered |= entered
        if self._started or self._closed:
            return self
        if self._opening is not None:
            raise _already_read()
        asker, request = self._asker, self._request
        assert asker is not None
        assert request is not None
        self._observation = asker.observe(request)
        self._opening = opening = Deadline()  # close() ends it
        try:
            with opening:
                if self._observation is None:
                    self._live, attempts = await asker.open(request)
                else:
                    with self._observation.active():
                        self._live, attempts = await asker.open(request)
        except MintlifyError as error:
            self._failed(error)
            raise
        except BaseException as error:
            self._started = True
            if opening.ended and isinstance(error, TimeoutError):
                return self
            self._end(error)
            raise
        finally:
            self._opening = self._asker = self._request = asker = request = None
        self._begin(self._live, attempts)
        return self

    def _begin(self, live: LiveResponse, attempts: int) -> None:
        settings = self._settings
        self._started = True
        self._attempts = attempts
        self._stream = stream = MessageStream(
            message=self._message, thread=self._thread, max_event_bytes=settings.max_event_bytes
        )
        stream.begin(live.headers, settings.thread_headers, live.secret)
        if self._closed:  # by another task, while it was being opened
            live.close()

    @property
    def _busy(self) -> bool:
        """Whether a task opens or reads it at this moment."""
        return self._opening is not None or (self._live is not None and self._live.pending)

    def _to_be_read(self, stream: MessageStream) -> LiveResponse:
        """Return the live response, which the caller reads once; nobody else may until then."""
        live = self._live
        assert live is not None
        if live.pending:
            raise _already_read()
        if live.waiting_first and stream.events_seen:
            live.waiting_first = False
            if self._observation is not None:
                self._observation.event("first_event", {})
        complete = stream.complete
        if complete or not self._settings.comments_are_activity:
            live.still_quiet = stream.events_seen == self._heard
            self._heard = stream.events_seen
        if complete:
            live.grace(GRACE_SECONDS, in_all=stream.done_seen)
        return live

    def _feed(self, stream: MessageStream, live: LiveResponse, data: bytes) -> None:
        """Feed the stream what arrived, or its end."""
        if not data:
            stream.feed_eof()
            return
        if live.taken > self._settings.max_reply_bytes:
            limit = self._settings.max_reply_bytes
            error = StreamDecodeError(f"the answer is larger than max_reply_bytes={limit}", **self._kept())
            raise self._failed(error)
        stream.feed(data)

    def _cut(self, stream: MessageStream, error: MintlifyError) -> None:
        """The body ended with *error*: that is the answer's end when one was announced."""
        if self._closed:
            return
        if isinstance(error, APITimeoutError) and error.phase == "first_event":
            raise self._failed(error) from error.__cause__
        self._cause = error
        stream.feed_eof(str(error))

    # Ending -----------------------------------------------------------------------------------

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        """Send the question and return this reply once the answer has begun.

        Raises:
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
        """
        return self._start(entered=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._shut()

    async def close(self) -> None:
        """Give the answer up and free its connection at once.

        Safe to repeat and from any task; a task that is reading then ends quietly.
        """
        self._shut()

    def _shut(self) -> None:
        live = self._live
        if live is not None:
            live.close()
        self._end(None)
        if self._opening is not None:
            self._opening.end()

    def _failed(self, error: MintlifyError) -> MintlifyError:
        """Remember *error* for every later ``await`` and free the connection."""
        self._started = True
        self._error = error
        if isinstance(error, UnexpectedResponseError) and self.response is not None:
            error.status, error.headers = self.response.status, dict(self.response.headers)
            error.request_id = self.response.request_id
        if self._live is not None:
            self._live.close()
        self._end(error)
        return error

    def _end(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        if self._live is not None and self._stream is not None and self._stream.ended:
            self._live.close()
        observation, self._observation = self._observation, None
        if observation is not None:
            self._tell(observation)
            observation.end(error)

    def _tell(self, observation: Observation) -> None:
        """Note how the answer ended."""
        facts = {
            "conversation_id": self.thread_id,
            "finish_reason": self.finish_reason,
            "message_id": self.message.id if self.message is not None else None,
            "request_id": self.response.request_id if self.response is not None else None,
            "output": self.text,
        }
        for name, fact in facts.items():
            if fact:
                observation.set(name, fact)

    def _closed_early(self) -> StreamInterruptedError:
        self._error = StreamInterruptedError("the reply was closed before its end", **self._kept())
        return self._error

    def _kept(self) -> dict[str, Any]:
        return {"partial": self.message, "thread": self.thread, "events_seen": self.events_seen}

    def __del__(self) -> None:
        """Free a connection that nobody closed."""
        live = getattr(self, "_live", None)
        if live is not None:
            live.close_from_anywhere(report=not self._closed)

    def __repr__(self) -> str:
        """Show how far it is, nothing of what was said."""
        state = "closed" if self._closed else "open" if self._started else "not started"
        return f"<Reply {state}, {self.events_seen} events>"


class TextStream:
    """The text of a reply, piece by piece; half a character is held back until its other half has come."""

    __slots__ = ("_held", "_reply")

    def __init__(self, reply: Reply) -> None:
        """Read from *reply*."""
        self._reply = reply
        self._held = ""

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> str:
        """Return the next piece of text, never empty; errors are those of the reply."""
        while True:
            try:
                event = await self._reply.__anext__()
            except StopAsyncIteration:
                rest, self._held = clean_text(self._held), ""
                if rest:
                    return rest
                raise
            if isinstance(event, TextDelta):
                arrived = self._held + event.delta
                text = clean_text(arrived, streaming=True)
                self._held = arrived[-1:] if "\ud800" <= arrived[-1:] <= "\udbff" else ""
                if text:
                    return text
            del event  # a stream that waits does not hold it


class Snapshots:
    """The message of a reply after each change."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        """Read from *reply*."""
        self._reply = reply

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the message after the next change; errors are those of the reply."""
        while True:
            await self._reply.__anext__()
            if self._reply.wrote:
                message = self._reply.message
                assert message is not None
                return message


def _already_read() -> StateError:
    return StateError("this reply is already being read by another task; read it in one, or ask twice")
