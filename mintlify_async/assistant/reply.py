"""Reply: one answer of the assistant, read while it arrives.

Framing, decoding and the rules for an answer's end are in :mod:`mintlify_async.assistant.stream`, which does
no I/O. This module opens the connection, waits for its bytes and closes it.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Generator
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import (
    APITimeoutError,
    MintlifyError,
    StateError,
    StreamDecodeError,
    StreamInterruptedError,
    UnexpectedResponseError,
)
from ..events import Finish, StreamEvent, TextDelta
from ..messages import Message, clean_text
from ..model.response_info import ResponseInfo
from ..model.thread import Thread
from ..protocol.requests import Request
from ..protocol.responses import response_info
from ..runtime.cancellation import Deadline
from .prepared_question import Asker, ReplySettings, Turn
from .stream import MessageStream

if TYPE_CHECKING:
    from ..http.observer import Observation
    from ..http.response_body import LiveResponse
    from ..rendering.edits import Edits
    from ..rendering.sources import AnswerSource

__all__ = ["Reply", "Snapshots", "TextStream"]

GRACE_SECONDS = 1.0  # how long the connection stays open for what may follow the announced end

_UNOBSERVED = nullcontext()
_log = logging.getLogger("mintlify_async")


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
    everything that was decoded is delivered first. A question is never sent again
    once the first byte of its answer has arrived.
    """

    __slots__ = (
        "__weakref__",
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
        "_turn",
        "_unsaved",
    )

    def __init__(
        self,
        asker: Asker,
        request: Request,
        settings: ReplySettings,
        message: Message | None = None,
        turn: Turn | None = None,
    ) -> None:
        """Keep a :class:`PreparedQuestion` and its turn; made by ``session.ask`` and ``conversation.ask``."""
        self._asker: Asker | None = asker
        self._request: Request | None = request
        self._settings = settings
        self._thread = request.thread
        self._message = message
        self._turn = turn
        self._opening: Deadline | None = None  # while a task enters the turn or opens the connection
        self._live: LiveResponse | None = None
        self._attempts = 0
        self._response: ResponseInfo | None = None
        self._stream: MessageStream | None = None
        self._unsaved: Finish | None = None  # read, but not handed out: its turn is being saved
        self._heard = -1  # events seen at the last read, to tell comments from events
        self._cause: MintlifyError | None = None  # why the body ended early
        self._error: Exception | None = None  # raised by every later ``await``
        self._started = self._entered = self._closed = False
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
        """The text of the events handed out so far; the whole text after ``await``."""
        return self._stream.text if self._stream is not None else ""

    @property
    def message(self) -> Message | None:
        """The answer so far as a message with typed parts, or None before it began."""
        return self._stream.message if self._stream is not None else self._message

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread, as far as it is known: pass it to the next ``ask``."""
        return self._stream.thread if self._stream is not None else self._thread

    @property
    def thread_id(self) -> str | None:
        """The thread's id, or None."""
        thread = self.thread
        return thread.id if thread is not None else None

    @property
    def sources(self) -> list[AnswerSource]:
        """The pages that the answer is based on, in order, without duplicates."""
        return self._stream.sources if self._stream is not None else []

    @property
    def finish_reason(self) -> str | None:
        """The service's reason for the end: ``stop``, ``length``, …; None when it gave none."""
        return self._stream.finish_reason if self._stream is not None else None

    @property
    def complete(self) -> bool:
        """Whether the service announced the end of the answer; a closed connection alone is no end."""
        return self._stream is not None and self._stream.complete

    @property
    def aborted(self) -> bool:
        """Whether the service ended the answer with an ``abort`` event."""
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
    def closed(self) -> bool:
        """Whether no more events follow: the answer ended, failed, or was closed."""
        return self._closed

    @property
    def text_stream(self) -> TextStream:
        """The answer's text, piece by piece as it arrives: an async iterator that reads this reply."""
        return TextStream(self)

    def snapshots(self) -> Snapshots:
        """Return an async iterator of the message after each change; it reads this reply.

        A snapshot takes time in proportion to the message. For plain text use :attr:`text_stream`.
        """
        return Snapshots(self, self._changed)

    def _changed(self) -> bool:
        """Return whether the last event changed the message."""
        return self._stream is not None and self._stream.wrote

    def edits(
        self, *, every: float = 1.2, limit: int = 1900, tail: Callable[[Reply], str] | None = None
    ) -> Edits:
        """Return an async iterator of chat messages that grow with the answer.

        Each :class:`Edit` holds a message's whole text and what to append to it: send it when its
        ``index`` is new, else edit that message. The reply is read on meanwhile. Everything
        received so far is shown before the iterator ends or raises. Breaking out of the loop
        closes the reply.

        Args:
            every: Seconds between one edit and the next, counted from the moment you ask for the next.
                Telegram and Slack accept about one edit per second in one chat.
            limit: The longest message, in UTF-16 code units, as Telegram counts (its limit is 4096;
                Discord's is 2000). A longer answer continues in another message. It is split between
                paragraphs or words; a code block is closed and opened again.
            tail: Makes the text below a complete answer, such as ``extras_markdown``; the
                ``suggestions`` block is then left out of the answer's text.

        Raises:
            ConfigurationError: *every* or *limit* is invalid.

        Example::

            async for edit in reply.edits(every=1.2, limit=4096):
                if edit.index == len(sent):
                    sent.append(await message.answer(edit.text))
                else:
                    await sent[-1].edit_text(edit.text)
        """
        from ..rendering.edits import Edits  # loaded when it is used: only chat surfaces need it

        below = partial(tail, self) if tail is not None else None
        return Edits(self, self._settings.clock, every=every, limit=limit, tail=below)

    async def final(self) -> Message:
        """Read to the end and return the whole message. Raises the errors of :meth:`run`."""
        await self.run()
        assert self._stream is not None
        return self._stream.message

    async def run(self) -> Self:
        """Read to the end and return this reply: ``await reply`` as a coroutine, for ``create_task``.

        Raises:
            StreamError: The answer did not arrive whole; ``.partial`` has what did.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            StateError: Another task is reading it, or another turn of the conversation is under way.
            StoreConflictError: A conversation's turn could not be saved: the store has a newer one.
        """
        if self._error is not None:
            raise self._error
        try:
            async for _ in self:
                pass
        except asyncio.CancelledError as error:
            if not self._entered:  # there is no block whose end would close it
                self._shut()
                await self._end_turn(error)
            raise
        if self._error is not None:
            raise self._error
        if self._stream is None or not self._stream.ended:
            self._error = StreamInterruptedError("the reply was closed before its end", **self._kept())
            raise self._error
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Read to the end; see :meth:`run`."""
        return self.run().__await__()

    # Opening ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Send the question and return this reply once the answer has begun.

        Raises:
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            StateError: Another turn of the conversation is under way.
            StoreConflictError: The conversation's store has newer turns; nothing was sent.
        """
        return await self._start(entered=True)

    async def _start(self, *, entered: bool = False) -> Self:
        """Open the answer, unless that was done. *entered* is whether the reply's block begins with that."""
        self._entered |= entered
        if self._started or self._closed:
            return self
        if self._opening is not None:
            raise _already_read()
        self._opening = opening = Deadline()  # close() ends it
        try:
            with opening:
                if self._turn is not None:
                    await self._enter_turn(self._turn)
                if not self._closed:
                    await self._open()
        except TimeoutError as error:
            if isinstance(error, MintlifyError) or not opening.ended:
                raise
        finally:
            self._opening = None
        return self

    async def _enter_turn(self, turn: Turn) -> None:
        prepared = await turn.enter(weakref.WeakMethod(self._close_if_unused))
        if prepared is not None:
            self._asker, self._request, self._settings, self._message = prepared
            self._thread = prepared.request.thread
        if self._closed:  # by another task, while this one waited in line
            await self._end_turn(left=True)

    async def _open(self) -> None:
        """Send the question and take over the connection of its answer."""
        asker, request = self._asker, self._request
        assert asker is not None
        assert request is not None
        try:
            # When the observer fails, nothing was sent: the reply can be started again.
            self._observation = observation = asker.observe(request)
            try:
                with _UNOBSERVED if observation is None else observation.active():
                    self._live, self._attempts = await asker.open(request)
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                # A reply may be kept for long; it must not keep the session and its keys.
                self._asker = self._request = asker = request = None
        except BaseException as error:
            await self._end_turn(error, left=True)  # a block that was not entered is not left
            raise
        live, settings = self._live, self._settings
        self._started = True
        self._stream = stream = MessageStream(
            message=self._message, thread=self._thread, max_event_bytes=settings.max_event_bytes
        )
        names = settings.assumptions
        stream.begin(live.headers, (names.thread_id_header, names.thread_key_header), live.secret)
        if self._closed:  # by another task, while it was being opened
            live.close()

    # Reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Return itself: there is one stream."""
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event. A conversation's turn is saved before ``Finish`` is returned.

        Raises:
            StopAsyncIteration: The answer ended, or was closed.
            StreamError: The answer did not arrive whole.
            StateError: Another task is reading it, or another turn of the conversation is under way.
            StoreConflictError: A conversation's turn could not be saved: the store has a newer one.
        """
        if self._unsaved is not None:
            finish, self._unsaved = self._unsaved, None
            return finish
        if not self._started:
            await self._start()
        stream = self._stream
        try:
            while not self._closed and stream is not None:
                event = stream.next_event()
                if event is not None:
                    if self._turn is not None and isinstance(event, Finish):
                        await self._save(self._turn, event)
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
        except StateError:
            raise  # another task is reading; its reading goes on
        except MintlifyError as error:
            self._fail(error)
            await self._end_turn(error)
            raise error from error.__cause__
        await self._end_turn()
        raise StopAsyncIteration

    async def _save(self, turn: Turn, event: Finish) -> None:
        """Save the turn that *event* finishes. A step that is cancelled meanwhile does not lose *event*."""
        self._unsaved = event
        await turn.finished(self.message, self.thread)
        self._unsaved = None

    def _to_be_read(self, stream: MessageStream) -> LiveResponse:
        """Return the live response with the limits of the next read set. Raises StateError if it is read."""
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
        """Feed *stream* what arrived; no bytes are the body's end."""
        limit = self._settings.max_reply_bytes
        if not data:
            stream.feed_eof()
        elif live.taken > limit:
            raise StreamDecodeError(f"the answer is larger than max_reply_bytes={limit}", **self._kept())
        else:
            stream.feed(data)

    def _cut(self, stream: MessageStream, error: MintlifyError) -> None:
        """End *stream*, whose body ended with *error*: no failure if the end was announced before."""
        if self._closed:
            return
        if isinstance(error, APITimeoutError) and error.phase == "first_event":
            raise error
        self._cause = error
        stream.feed_eof(str(error))

    # Ending -----------------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; see :meth:`close`."""
        self._shut()
        await self._end_turn(error, left=True)

    async def close(self) -> None:
        """Stop reading and free the connection at once. A conversation's unfinished turn is rolled back.

        Safe to repeat and from any task; a task that is reading then ends without an error.

        Raises:
            StoreConflictError: A conversation's turn had finished, and the store has a newer one.
        """
        self._shut()
        await self._end_turn(left=True)

    def _shut(self) -> None:
        """Close the connection and stop a task that is opening it; the turn goes on."""
        live = self._live
        if live is not None:
            live.close()
        self._end(None)
        if self._opening is not None:
            self._opening.end()

    def _close_if_unused(self, even_in_block: bool) -> bool:
        """Close this reply for its turn; see :meth:`Turn.enter`."""
        reading = self._opening is not None or (self._live is not None and self._live.pending)
        if reading or (self._entered and not even_in_block):
            return False
        self._shut()
        return True

    def _fail(self, error: BaseException) -> None:
        """End with *error*; every later ``await`` raises it when it is one of ours."""
        self._started = True
        if isinstance(error, MintlifyError):
            self._error = error
            if self._live is not None:
                self._live.close()
        if isinstance(error, StreamInterruptedError) and self._cause is not None:
            error.__cause__ = self._cause
        if isinstance(error, UnexpectedResponseError) and self.response is not None:
            error.status, error.headers = self.response.status, dict(self.response.headers)
            error.request_id = self.response.request_id
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        if self._live is not None and self._stream is not None and self._stream.ended:
            self._live.close()
        observation, self._observation = self._observation, None
        if observation is not None:
            self._report(observation)
            observation.end(error)

    async def _end_turn(self, error: BaseException | None = None, *, left: bool = False) -> None:
        """Settle the turn. The store's error is raised, unless *error* is being raised already.

        The next turn begins afterwards, but not before the reply's block was left: what was read may
        still be being shown, and the next answer must not be mixed with it.
        """
        turn = self._turn
        if turn is None:
            return
        try:
            whole = self.complete and not self.aborted and self._error is None
            await turn.ended(self.message, self.thread, whole=whole)
        except Exception as problem:
            self._error = problem
            if error is None:
                raise
            _log.warning("the turn of a conversation was not saved: %s", problem)
        finally:
            if left or not self._entered:
                turn.left()

    def _report(self, observation: Observation) -> None:
        """Tell the observer how the answer ended."""
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

    def _kept(self) -> dict[str, Any]:
        return {"partial": self.message, "thread": self.thread, "events_seen": self.events_seen}

    def __del__(self) -> None:
        """Free the connection of a reply that was not closed."""
        live = getattr(self, "_live", None)
        if live is not None:
            live.close_from_anywhere(report=not self._closed)

    def __repr__(self) -> str:
        """Show the state and the number of events; no text, since answers do not belong in logs."""
        state = "closed" if self._closed else "open" if self._started else "not started"
        return f"<Reply {state}, {self.events_seen} events>"


class TextStream:
    """The text of a reply, piece by piece. Half a surrogate pair is held back until the other half comes."""

    def __init__(self, reply: Reply) -> None:
        """Read from *reply*."""
        self._reply = reply
        self._held = ""

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> str:
        """Return the next piece of text, never empty; raises what the reply raises."""
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
            del event  # or this frame would keep it in memory while it waits for the next


class Snapshots:
    """The message of a reply after each change."""

    def __init__(self, reply: Reply, changed: Callable[[], bool]) -> None:
        """Read from *reply*; *changed* returns whether its last event changed the message."""
        self._reply = reply
        self._changed = changed

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the message after the next change; raises what the reply raises."""
        while True:
            await self._reply.__anext__()
            if self._changed():
                message = self._reply.message
                assert message is not None
                return message


def _already_read() -> StateError:
    return StateError("this reply is already being read by another task; read it in one, or ask twice")
