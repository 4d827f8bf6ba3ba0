"""Reply: one answer of the assistant, read while it arrives.

Framing, decoding and the rules for an answer's end are in :mod:`mintlify_async.assistant.stream`, which does
no I/O. This module opens the connection, waits for its bytes and closes it.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Generator
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
from ..events import Finish, StreamEvent
from ..http.observer import end_answer
from ..messages import Message
from ..model.response_info import ResponseInfo
from ..model.thread import Thread
from ..protocol.object_checks import check_function
from ..protocol.requests import Request
from ..protocol.responses import response_info
from ..runtime.caller import Place, caller
from ..runtime.cancellation import Deadline
from .answer import HOW_TO_READ, Answer, Extras, Snapshots, TextStream, already_read, ended, warn_unread
from .message_builder import GrowingText
from .stream import MessageStream

if TYPE_CHECKING:
    from ..http.observer import Observation
    from ..http.response_body import LiveResponse
    from ..rendering.edits import Edits
    from .assistant_api import Asker, ReplySettings, ReplyTurn

# How long, in seconds, the connection stays open for what may follow the announced end.
QUIET_AFTER_END = 1.0
TOTAL_AFTER_FINISH = 5.0
TOTAL_AFTER_DONE = 1.0

_UNOBSERVED = nullcontext()
_log = logging.getLogger("mintlify_async")


class Reply(Extras):
    """An answer of the assistant: an async iterator of typed events, an async context manager, an awaitable.

    Nothing is sent before it is entered, stepped or awaited::

        async for event in session.ask("How do I log in?"): ...

        async with session.ask("And by SSO?", thread=thread) as reply:  # closes at once on break
            async for text in reply.text_stream:
                print(text, end="")

        answer = await session.ask("…")  # the whole answer, an Answer

    It is read once, by one task at a time. Cancelling a step loses no event: iteration may go on, in
    another task, too. What is asked of the answer before it was begun is a ``StateError``, and so is
    reading it a second time; a reply that is never read warns with the line that made it.
    An answer that stops before its end raises
    :class:`~mintlify_async.errors.StreamInterruptedError` with what had arrived;
    everything that was decoded is delivered first. A question is never sent again
    once the first byte of its answer has arrived.
    """

    def __init__(
        self,
        asker: Asker,
        request: Request,
        settings: ReplySettings,
        message: Message | None = None,
        turn: ReplyTurn | None = None,
    ) -> None:
        """Note the line that asks; send nothing."""
        self._asker: Asker | None = asker
        self._request: Request | None = request
        self._settings = settings
        self._message = message
        self._turn = turn
        self._thread = request.thread
        # None once it was read, failed or closed. Nearer callers are this package's.
        self._made_at: Place | None = caller(3)
        self._opening: Deadline | None = None  # while it enters the turn or connects
        self._live: LiveResponse | None = None
        self._attempts = 0
        self._response: ResponseInfo | None = None
        self._stream: MessageStream | None = None
        self._unsaved: Finish | None = None  # read, but its turn is still being saved
        self._heard = -1  # events seen at the last read, to tell comments from events
        self._cause: MintlifyError | None = None  # why the body ended early
        self._error: Exception | None = None  # raised by every later ``await``
        self._answer: Answer | None = None
        self._started = False
        self._entered = False
        self._closed = False
        self._stepping = False  # also after a step that was cancelled
        self._observation: Observation | None = None
        self._notable: type = Finish  # of events; all until an observer knows of the first

    @property
    def sent_key(self) -> str | None:
        """The key that the question was sent with, or None: for code that must keep it out of its output."""
        return None if self._live is None else self._live.secret

    @property
    def response(self) -> ResponseInfo | None:
        """Status, headers and request id, or None if there was no answer."""
        self._begun()
        live = self._live
        if self._response is None and self._attempts and live is not None:
            assumptions = self._settings.assumptions
            self._response = response_info(assumptions, live.status, live.headers, self._attempts)
        return self._response

    @property
    def text(self) -> str:
        """The text of the events handed out so far, as people read it; see :attr:`text_stream`."""
        text = self.growing_text()
        return text.before + text.close() if self._closed else text.before

    @property
    def message(self) -> Message | None:
        """The answer so far as a message with typed parts, or None if there was no answer."""
        stream = self._begun()
        return stream.message if stream is not None else self._message

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread, as far as it is known: pass it to the next ``ask``."""
        stream = self._begun()
        return stream.thread if stream is not None else self._thread

    @property
    def site(self) -> str | None:
        """The documentation's address, or None: with it, paths are whole addresses."""
        return self._settings.site

    @property
    def finish_reason(self) -> str | None:
        """The service's reason for the end: ``stop``, ``length``, …; None when it gave none."""
        stream = self._begun()
        return stream.finish_reason if stream is not None else None

    @property
    def aborted(self) -> bool:
        """Whether the service ended the answer with an ``abort`` event."""
        stream = self._begun()
        return stream is not None and stream.aborted

    @property
    def abort_reason(self) -> str | None:
        """The service's reason for an abort, or None."""
        stream = self._begun()
        return stream.abort_reason if stream is not None else None

    @property
    def answer(self) -> Answer:
        """The whole answer, once it has ended; a ``StateError`` before, and when it failed."""
        answer = self._whole_answer()
        if answer is None and self._closed:
            raise ended(None)
        if answer is None:
            raise StateError("this reply was not read to its end yet; `await` the reply to read all of it")
        return answer

    @property
    def complete(self) -> bool:
        """Whether the service announced the end of the answer; a closed connection alone is no end."""
        return self._stream is not None and self._stream.complete

    @property
    def events_seen(self) -> int:
        """How many events were handed out."""
        return self._stream.events_seen if self._stream is not None else 0

    @property
    def at_hand(self) -> bool:
        """Whether the next event has arrived, too, so that code that passes events on may wait for it."""
        return self._stream is not None and not self._closed and self._stream.at_hand

    @property
    def closed(self) -> bool:
        """Whether no more events follow: the answer ended, failed, or was closed."""
        return self._closed

    def _begun(self) -> MessageStream | None:
        """Return the stream, or None if there was no answer. Raises StateError if there was no try."""
        if self._stream is None and not self._started and self._opening is None:
            raise StateError(f"nothing was sent or read: this reply was not started; {HOW_TO_READ}")
        return self._stream

    def _whole_answer(self) -> Answer | None:
        stream = self._stream
        if self._error is not None or stream is None or not self._closed:
            return None
        if self._answer is None and (stream.ended or stream.finish_seen):
            self._answer = Answer.of(stream, self.response, self.site)
        return self._answer

    @property
    def text_stream(self) -> TextStream:
        """The text as people read it, piece by piece; :class:`~.answer.TextStream` says what is held back.

        An async iterator that reads this reply.
        """
        return TextStream(self, self.growing_text)

    def growing_text(self) -> GrowingText:
        """Return the text of the events handed out so far, for code that reads events and shows text, too.

        ``before`` is that text, and ``after(event)`` what each further event adds; ``close()`` gives the
        rest at the end. Raises StateError before the reply was started.
        """
        return (self._begun() or MessageStream()).growing_text()

    def snapshots(self) -> Snapshots:
        """Return an async iterator of the message after each change; it reads this reply.

        A snapshot takes time in proportion to the message; :attr:`text_stream` takes less.
        """
        return Snapshots(self, self._changed)

    def _changed(self) -> Message | None:
        """Return the message if the last event changed it."""
        stream = self._stream
        return stream.message if stream is not None and stream.wrote else None

    def edits(
        self, *, every: float = 1.2, limit: int = 1900, tail: Callable[[Reply], str] | None = None
    ) -> Edits:
        """Return an async iterator of chat messages that grow with the answer.

        Each :class:`Edit` holds a message's whole text and what to append to it: send it when its
        ``index`` is new, else edit that message. The reply is read on meanwhile. Everything received is
        shown before the iterator ends or raises. Breaking out of the loop closes the reply. The text is
        that of :attr:`text_stream`: what a ``reset-step`` made void stays, once it was received.

        Args:
            every: Seconds between one edit and the next, counted from the moment you ask for the next.
                Telegram and Slack accept about one edit per second in one chat.
            limit: The longest message, in UTF-16 code units (Telegram: 4096, Discord: 2000). A longer
                answer continues in another message; a code block is closed and opened again.
            tail: Makes the text below a complete answer, such as ``extras_markdown``.

        Raises:
            ConfigurationError: An argument is invalid.

        Example::

            async for edit in reply.edits(every=1.2, limit=4096):
                if edit.index == len(sent):
                    sent.append(await message.answer(edit.text))
                else:
                    await sent[-1].edit_text(edit.text)
        """
        from ..rendering.edits import Edits  # loaded when it is used: only chat surfaces need it

        check_function(tail, "tail")
        below = partial(tail, self) if tail is not None else None
        return Edits(self, self._settings.clock, every=every, limit=limit, tail=below)

    def run(self) -> Coroutine[Any, Any, Answer]:
        """Read to the end and return the answer: ``await reply`` as a coroutine, for ``create_task``.

        Raises:
            StreamError: The answer did not arrive whole; ``.partial`` has what did.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            StateError: Another task is reading it, or another turn of the conversation is under way.
            StoreConflictError: The store has a newer turn. Any error of a store has the answer as ``answer``.
        """
        self._made_at = None  # also if the task is cancelled before its first step
        return self._run()

    async def _run(self) -> Answer:
        if self._error is not None:
            raise self._error
        try:
            while True:
                await self.__anext__()
        except StopAsyncIteration:
            pass
        except asyncio.CancelledError as error:
            if not self._entered:  # there is no block whose end would close it
                self._shut(error)
                await self._end_turn(error)
            raise
        answer = self._whole_answer()
        if answer is None:
            kept: dict[str, Any] = {"partial": self._message, "thread": self._thread}
            if self._stream is not None:
                kept = self._stream.kept()
            closed = StreamInterruptedError("the reply was closed before its end", **kept)
            self._error = self._error or closed
            raise self._error
        return answer

    def __await__(self) -> Generator[Any, None, Answer]:
        """Read to the end; see :meth:`run`."""
        return self.run().__await__()

    # Opening ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Send the question; return this reply once the answer has begun. Raises what :meth:`run` raises."""
        self._entered = True
        return await self._start()

    async def _start(self) -> Self:
        """Open the answer, unless that was done."""
        if self._started or self._closed:
            return self
        if self._opening is not None:
            raise already_read()
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
            if not self._started:
                self._made_at = None  # it was tried
        return self

    async def _enter_turn(self, turn: ReplyTurn) -> None:
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
            self._notable = Finish if observation is None else object
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
        limit, site = settings.max_event_bytes, settings.site
        stream = MessageStream(message=self._message, thread=self._thread, max_event_bytes=limit, site=site)
        self._stream = stream
        stream.begin(live.headers, settings.thread_headers, live.secret)
        if self._closed:  # by another task, while it was being opened
            live.close()

    # Reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Return itself: there is one stream. Raises StateError when it has ended."""
        if isinstance(self._error, StateError):
            raise self._error
        if self._closed:
            raise ended(self._whole_answer())
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event, ``Finish`` once the turn is saved; raises what :meth:`run` raises."""
        self._made_at = None
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
                    if isinstance(event, self._notable):
                        await self._note(event)
                    return event
                if stream.ended:
                    self._end(None)
                    break
                live = self._to_be_read(stream)
                live.check_process()
                try:
                    # Not a variable of this frame: it may repeat a key, and later errors have this frame.
                    self._feed(stream, live, await live.read())
                except MintlifyError as error:
                    self._cut(stream, error)
        except StateError:
            raise  # another task is reading; its reading goes on
        except MintlifyError as error:
            self._fail(error)
            await self._end_turn(error)
            raise error from error.__cause__
        await self._end_turn()
        if isinstance(self._error, StateError):
            raise self._error
        raise StopAsyncIteration

    async def _note(self, event: object) -> None:
        """Report the first event; save the turn that ``Finish`` ends. A cancelled step does not lose it."""
        if self._notable is object:
            self._notable = Finish
            if self._observation is not None:
                self._observation.event("first_event", {})
        if self._turn is not None and isinstance(event, Finish):
            self._unsaved = event
            await self._turn.finished(*self._so_far())
            self._unsaved = None

    def _to_be_read(self, stream: MessageStream) -> LiveResponse:
        """Return the live response with the limits of the next read set; raise if it must not be read."""
        live = self._live
        assert live is not None
        if live.pending:
            raise already_read()
        self._stepping = True
        if live.taken > (limit := self._settings.max_reply_bytes) and not stream.complete:
            raise StreamDecodeError(f"the answer is larger than max_reply_bytes={limit}", **stream.kept())
        if live.waiting_first and stream.events_seen:
            live.waiting_first = False
        complete = stream.complete
        if complete or not self._settings.comments_are_activity:
            live.still_quiet = stream.events_seen == self._heard
            self._heard = stream.events_seen
        if complete:
            live.grace(QUIET_AFTER_END, TOTAL_AFTER_DONE if stream.done_seen else TOTAL_AFTER_FINISH)
        return live

    def _feed(self, stream: MessageStream, live: LiveResponse, data: bytes) -> None:
        """Feed *stream* what arrived, up to the largest answer; no bytes are the body's end."""
        self._stepping = False
        over = live.taken - self._settings.max_reply_bytes
        within = data[:-over] if over > 0 else data
        if within:
            stream.feed(within)
        elif stream.complete or not data:
            stream.feed_eof()

    def _cut(self, stream: MessageStream, error: MintlifyError) -> None:
        """End *stream*, whose body ended with *error*: no failure if the end was announced before."""
        self._stepping = False
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
        made_at, self._made_at = self._made_at, None
        self._shut(error if isinstance(error, asyncio.CancelledError) else None)
        await self._end_turn(error, left=True)
        if made_at is not None and error is None:
            warn_unread("entered, but never read", made_at)

    async def close(self) -> None:
        """Stop reading and free the connection at once. A conversation's unfinished turn is rolled back.

        Safe to repeat and from any task; a task that is reading then ends without an error. A turn that
        had finished may raise ``StoreConflictError``: the store has a newer one.
        """
        self._made_at = None
        self._shut()
        await self._end_turn(left=True)

    aclose = close

    def _shut(self, error: asyncio.CancelledError | None = None) -> None:
        """Close the connection and stop a task that is opening it; the turn goes on."""
        live = self._live
        if live is not None:
            live.close()
        self._end(error)
        if self._opening is not None:
            self._opening.end()

    def _close_if_unused(self, over: bool) -> bool:
        """Close this reply for its turn; see :meth:`ReplyTurn.enter`."""
        reading = self._opening is not None or (self._live is not None and self._live.pending)
        if reading or (self._entered and not over):
            return False
        if not over and not self._closed:
            self._error = StateError(
                "this reply was closed before its end: the task that began it had ended when the next "
                "question was asked; read it within `async with`"
            )
        self._shut()
        return True

    def _fail(self, error: BaseException) -> None:
        """End with *error*; every later ``await`` raises it when it is one of ours."""
        self._started, self._made_at = True, None
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
        self._end_observation(error)

    def _end_observation(self, error: BaseException | None) -> None:
        observation, self._observation = self._observation, None
        if observation is not None:
            end_answer(
                observation,
                error,
                conversation_id=self.thread_id,
                finish_reason=self.finish_reason or ("abort" if self.aborted else None),
                message_id=self.message.id if self.message is not None else None,
                request_id=self.request_id,
                output=self.text,
            )

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
            await turn.ended(*self._so_far(), whole=whole)
        except Exception as problem:
            problem.__dict__["answer"] = self._whole_answer()  # also on an error that is not one of ours
            self._error = problem
            if error is None:
                raise
            _log.warning("the turn of a conversation was not saved: %s", problem)
        finally:
            if left or not self._entered:
                turn.left()

    def _so_far(self) -> tuple[Message | None, Thread | None]:
        """Return the message and the thread, as far as they are known."""
        stream = self._stream
        return (stream.message, stream.thread) if stream is not None else (self._message, self._thread)

    def __del__(self) -> None:
        """Free the connection of a reply that was not closed; warn about one that was never read."""
        live = getattr(self, "_live", None)
        if live is not None:
            live.close_from_anywhere(report=not self._closed)
        if getattr(self, "_observation", None) is not None:
            cancelled = self._stepping or self._unsaved is not None
            self._end_observation(asyncio.CancelledError() if cancelled else None)
        made_at: Place | None = getattr(self, "_made_at", None)
        if made_at is not None and not self._entered:
            warn_unread("never started, so nothing was sent", made_at)

    def __repr__(self) -> str:
        """Show the state and the number of events; no text, since answers do not belong in logs."""
        state = "closed" if self._closed else "open" if self._started else "not started"
        return f"<Reply {state}, {self.events_seen} events>"
