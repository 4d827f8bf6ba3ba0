"""Reply: one answer of the assistant, which is read while it arrives.

:mod:`.event_stream` splits and decodes the bytes, decides when an answer ends, and does no I/O. This module
opens the connection, waits for bytes and closes it. ``AFTER_FINISH`` limits the reading after the end.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from ..argument_checks import check_function
from ..errors import (
    APITimeoutError,
    MintlifyError,
    StateError,
    StreamInterruptedError,
    UnexpectedResponseError,
)
from ..events import Finish, StreamEvent
from ..http.attempts import open_answer
from ..http.live_response import Grace
from ..http.observer import begin_observation, note
from ..messages import Message
from ..model.response_info import ResponseInfo
from ..model.thread import Thread
from ..protocol.responses import response_info
from ..runtime.logs import Place, caller
from ..runtime.time_limits import TimeLimit
from ..wrong_names import AsyncOnly, helpful
from .answer import HOW_TO_READ, Answer, Extras, already_read, ended, warn_unread
from .event_stream import MessageStream
from .text_stream import TextStream

if TYPE_CHECKING:
    from ..http.live_response import LiveResponse
    from ..http.session_core import Core
    from ..protocol.requests import Call
    from ..rendering.edits import Edits
    from ..settings.options import Observation

__all__ = ["CloseIfUnused", "Reply", "ReplyTurn", "sent_key", "stream_of"]

AFTER_FINISH: Final = Grace(quiet=1.0, total=5.0)
"""Seconds for which the connection stays open for events after ``finish``, ``abort`` or ``error``."""
AFTER_DONE: Final = Grace(quiet=1.0, total=1.0)
"""Seconds for which the connection stays open after ``[DONE]``."""
ABANDONED_AFTER: Final = 5.0
"""If no step follows a cancelled step outside a block, the reply is closed after this many seconds."""

_log = logging.getLogger("mintlify_async")
_ending: set[asyncio.Task[None]] = set()  # asyncio keeps only weak references to tasks


State: TypeAlias = Literal["not started", "opening", "open", "read", "failed", "closed"]
"""The state of a reply. It ends as read to its end, failed, or closed before its end."""

CloseIfUnused: TypeAlias = "weakref.WeakMethod[Callable[[bool], bool]]"


class ReplyTurn(Protocol):
    """The steps of a conversation for one reply. The reply of a plain question has no turn."""

    async def enter(self, close_if_unused: CloseIfUnused) -> Call:
        """Wait until the question may be sent.

        Args:
            close_if_unused: Closes the reply without ending its turn, and returns whether the reply was
                closed. It does not close while a task opens or reads the reply. Its argument is whether the
                turn is over. If the turn is not over, an entered reply stays open, and any other raises
                ``StateError`` from then on. The reference is weak, because the reply owns the turn.

        Returns:
            The request to send. It replaces the question of the reply.

        Raises:
            MintlifyError: The question may not be sent. The reply can be entered again later.
        """
        ...

    async def finished(self, message: Message | None, thread: Thread | None) -> None:
        """``Finish`` was read, and is the next event to return. An error is kept for :meth:`ended`.

        If this call is cancelled, the next step calls it again.

        Args:
            message: The answer up to now, or None before its start.
            thread: The thread of the answer, or its known fields.
        """

    async def ended(
        self, message: Message | None, thread: Thread | None, *, whole: bool, cancelled: bool
    ) -> None:
        """Save the turn or roll it back. No event follows. Further calls wait for the same save.

        Args:
            message: The answer, or None if there is none.
            thread: The thread of the answer, or its known fields.
            whole: Whether the answer ended without an error or an ``abort``.
            cancelled: Whether the caller was cancelled, and so must not wait long.

        Raises:
            Exception: The error of the store. The turn was not saved.
        """

    def refused(self, call: Call, error: MintlifyError) -> Call | None:
        """Return the request to send after *error*, with which *call* was refused. None raises the error."""
        ...

    def stepped(self) -> None:
        """The running task reads the reply, outside a block."""

    def shown(self, site: str | None, characters: int | None) -> None:
        """Set how many characters of the answer the user has seen. None means all received characters."""

    def left(self) -> None:
        """Let the next turn start, because the reply's block was left, or the reply ended or was dropped."""


@helpful
class Reply(Extras, AsyncOnly):
    """An answer of the assistant: an async iterator of typed events, an async context manager, an awaitable.

    Nothing is sent before you enter, step or await it::

        async for event in session.ask("How do I log in?"): ...

        async with session.ask("And by SSO?", thread=thread) as reply:  # closes immediately on break
            async for text in reply.text_stream:
                print(text, end="")

        answer = await session.ask("…")  # the complete answer, an Answer

    One task at a time reads a reply, and only once. A cancelled step loses no event, and iteration can
    continue, also in another task. Two uses raise ``StateError``: reading the answer's fields before the
    start, and reading the reply a second time. If a reply is never read, a warning names the line that made
    it. If an answer stops before its end, all decoded events are delivered. Then
    :class:`~mintlify_async.errors.StreamInterruptedError` is raised, with the partial answer. A question is
    never sent again after the first byte of its answer has arrived.
    """

    def __init__(self, core: Core, call: Call, turn: ReplyTurn | None = None) -> None:
        """Record the line of the caller, for warnings. Nothing is sent."""
        self._state: State = "not started"
        self._turn = turn
        # Nearer callers are frames of this package. None once the reply was read, failed or closed.
        self._made_at: Place | None = caller(3)
        self._site, self._assumptions = core.options.site, core.options.assumptions
        self._core: Core | None = core  # None after the question was sent
        self._call: Call | None = call  # None when the stream exists
        self._stream: MessageStream | None = None
        self._opening: TimeLimit | None = None  # set while the reply enters the turn or connects
        self._live: LiveResponse | None = None
        self._connections: object = None  # kept open until the answer has ended
        self._response: ResponseInfo | None = None
        self._unsaved: Finish | None = None  # the last event, until its turn is saved
        self._error: Exception | None = None  # raised by every later ``await``
        self._unraised: MintlifyError | None = None  # the error of the answer, until a step raises it
        self._answer: Answer | None = None
        self._entered = False
        # Closes the reply if no step follows a cancelled step.
        self._alarm: asyncio.TimerHandle | None = None
        self._observation: Observation | None = None

    @property
    def response(self) -> ResponseInfo | None:
        """Status, headers and request id of the response, or None if there was none."""
        self._begun()
        return self._received()

    @property
    def text(self) -> str:
        """The text of the events returned up to now, for display; see :attr:`text_stream`.

        While the answer grows, reading the text again costs only the new text.
        """
        stream = self._begun()
        return stream.partial_text if self.closed else stream.text

    @property
    def earlier_text(self) -> str:
        """The text of messages that a second ``start`` with another id replaced. ``text`` starts with it."""
        return self._begun().earlier_text

    @property
    def message(self) -> Message | None:
        """The answer up to now, as a message with typed parts. None if there was no answer."""
        stream = self._begun()
        if self._live is None:
            return None
        return stream.partial if self.closed else stream.message

    @property
    def thread(self) -> Thread | None:
        """The conversation's thread, or its known fields. Pass it to the next ``ask``."""
        return self._begun().thread

    @property
    def site(self) -> str | None:
        """The site URL, or None. With it, paths become full URLs."""
        return self._site

    @property
    def finish_reason(self) -> str | None:
        """The service's reason for the end: ``stop``, ``length``, …, or None if there is none."""
        return self._begun().finish_reason

    @property
    def aborted(self) -> bool:
        """Whether the service ended the answer with an ``abort`` event."""
        return self._begun().aborted

    @property
    def abort_reason(self) -> str | None:
        """The service's reason for an abort, or None."""
        return self._begun().abort_reason

    @property
    def answer(self) -> Answer:
        """The complete answer. Before its end, or after a failure, reading it raises ``StateError``."""
        answer = self._complete_answer()
        if answer is None and self.closed:
            raise ended(None)
        if answer is None:
            raise StateError("this reply was not read to its end yet; `await` the reply to read all of it")
        return answer

    @property
    def complete(self) -> bool:
        """Whether the service announced the end of the answer. A closed connection is not enough."""
        return self._stream is not None and self._stream.complete

    @property
    def events_seen(self) -> int:
        """The number of events returned up to now."""
        return 0 if self._stream is None else self._stream.events_seen

    @property
    def closed(self) -> bool:
        """Whether no more events follow, because the answer ended, failed, or was closed."""
        return self._state not in ("not started", "opening", "open")

    def _begun(self) -> MessageStream:
        """Return the stream. If the reply was not started, raise StateError."""
        if self._core is not None and self._state != "opening":
            raise StateError(f"nothing was sent or read: this reply was not started; {HOW_TO_READ}")
        return self._so_far()

    def _so_far(self) -> MessageStream:
        """Return the stream. The first call makes it."""
        if self._stream is None:
            call, self._call = self._call, None
            assert call is not None
            self._stream = MessageStream(call.continued, call.thread, self._site)
        return self._stream

    def _received(self) -> ResponseInfo | None:
        """Return the data of the response. They are made on first use."""
        live = self._live
        if self._response is None and live is not None:
            self._response = response_info(self._assumptions, live.status, live.headers, live.attempts)
        return self._response

    def _complete_answer(self) -> Answer | None:
        if self._error is not None or not self.closed:
            return None
        stream = self._so_far()
        if self._answer is None and (stream.ended or stream.finish_seen):
            self._answer = Answer.of(stream, self._received(), self.site)
        return self._answer

    @property
    def text_stream(self) -> TextStream:
        """The text for display, piece by piece. Text that may still change is held back.

        It is an async iterator that reads this reply.
        """
        return TextStream(self, lambda: self._begun().growing_text())

    def edits(
        self, *, every: float = 1.2, limit: int = 1900, tail: Callable[[Reply], str] | None = None
    ) -> Edits:
        """Return an async iterator of chat messages that grow with the answer.

        Each :class:`Edit` contains a message's full text and the text to append. If its ``index`` is new,
        send the text as a new message. Otherwise edit the message with this index. Text that arrives between
        two edits is in the next edit. All received text is yielded before the iterator ends or raises.
        ``break`` closes the reply. The text is the same as in :attr:`text_stream`. Yielded text stays, even
        after a ``reset-step``.

        Args:
            every: Minimum seconds from your request for the next edit to that edit. ``async for`` requests
                the next edit when your code has finished the last one. The first edit does not wait.
                Telegram and Slack accept about one edit per second in one chat.
            limit: Maximum length of a message, in UTF-16 code units (Telegram: 4096, Discord: 2000), at least
                200. A longer answer continues in another message, split as by :func:`split_markdown`.
            tail: Returns the text below a complete answer, such as ``extras_markdown``. If it fails, its
                error is raised after the last edit.

        Raises:
            ConfigurationError: An argument is invalid.

        Example::

            async for edit in reply.edits(every=1.2, limit=4096):
                if edit.index == len(sent):
                    sent.append(await message.answer(edit.text))
                else:
                    await sent[-1].edit_text(edit.text)
        """
        from ..rendering.edits import Edits  # loaded here, because only chat bots need it

        check_function(tail, "tail")
        below = partial(tail, self) if tail is not None else None
        shown = None if self._turn is None else partial(self._note_shown, self._turn)
        return Edits(self, every=every, limit=limit, received=self._so_far, tail=below, on_shown=shown)

    def _note_shown(self, turn: ReplyTurn, characters: int | None) -> None:
        """Report to *turn* how many characters of the message were shown. Replaced messages do not count."""
        if characters is not None and (earlier := self._so_far().earlier_text):
            characters = max(0, characters - len(earlier) - len("\n\n"))
        turn.shown(self._site, characters)

    def run(self) -> Coroutine[Any, Any, Answer]:
        """Read to the end and return the answer. It is ``await reply`` as a coroutine, for ``create_task``.

        Raises:
            StreamError: The answer is incomplete. ``.partial`` is the partial answer.
            APIConnectionError: There was no response.
            APIStatusError: The service refused.
            StateError: Another task is reading the reply, or another turn of the conversation is running.
            StoreConflictError: The store has a newer turn. Errors of a store have the attribute ``answer``.
        """
        self._made_at = None  # cleared now, because the task may be cancelled before its first step
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
            if not self._entered:  # no exit of a block would close the reply
                self._shut(error)
                await self._end_turn(error)
            raise
        answer = self._complete_answer()
        if answer is None:
            text = "the reply was closed before its end"
            raise self._error or StreamInterruptedError(text, **self._so_far().so_far())
        return answer

    def __await__(self) -> Generator[Any, None, Answer]:
        """Read to the end and return the answer; see :meth:`run`."""
        return self.run().__await__()

    # Opening ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Send the question, and return this reply when the answer has started.

        Raises the same errors as :meth:`run`.
        """
        self._entered = True
        await self._start()
        return self

    async def _start(self) -> None:
        """If the answer is not open yet, open it."""
        if self._state == "opening":
            raise already_read()
        if self._state != "not started":
            return
        self._state = "opening"
        self._opening = limit = TimeLimit()  # close() ends this limit
        try:
            with limit:
                if self._turn is not None:
                    await self._enter_turn(self._turn)
                if self._state == "opening":  # otherwise another task has closed the reply
                    await self._open()
        except TimeoutError as error:
            if isinstance(error, MintlifyError) or not limit.ended:
                raise
        finally:
            self._opening = None
            if self._state == "opening":  # the turn or the observer refused, but a later start is possible
                self._state = "not started"
            if self._live is None:
                self._made_at = None  # no warning, because the reply was used

    async def _enter_turn(self, turn: ReplyTurn) -> None:
        call = await turn.enter(weakref.WeakMethod(self._close_if_unused))
        if self._core is not None:
            self._call, self._stream = call, None
        if self.closed:  # another task closed the reply while this task waited in line
            await self._end_turn(left=True)

    async def _open(self) -> None:
        """Send the question and store the connection of its answer."""
        core, call = self._core, self._call
        assert core is not None
        assert call is not None
        # A reply may be kept for a long time. It must not keep the session and its keys in memory.
        self._core, self._connections = None, core.shared
        try:
            core.check_open()
            if core.options.observer is not None:
                self._observation = begin_observation(
                    core.options.observer,
                    "ask",
                    domain=call.domain,
                    conversation_id=None if call.thread is None else call.thread.id,
                    input=call.text,
                    base_url=core.shared.transport.base_url,
                )
            observation = self._observation
            with nullcontext() if observation is None else observation.active():
                if self._turn is None:
                    self._live = live_response = await open_answer(core, call, observation)
                else:
                    self._live = live_response = await self._send(self._turn, core, call, observation)
        except BaseException as error:
            self._end("failed", error)
            await self._end_turn(error, left=True)  # if opening fails, `async with` does not call __aexit__
            raise
        thread_headers = (self._assumptions.thread_id_header, self._assumptions.thread_key_header)
        self._so_far().begin(live_response.headers, thread_headers, live_response.secret)
        if self.closed:  # another task closed the reply while this task opened it
            live_response.close()
        else:
            self._state = "open"

    async def _send(
        self, turn: ReplyTurn, core: Core, call: Call, observation: Observation | None
    ) -> LiveResponse:
        """Send the question. After a refusal, send the turn's other question, if there is one."""
        try:
            return await open_answer(core, call, observation)
        except MintlifyError as error:
            other_call = turn.refused(call, error)
            if other_call is None:
                raise
        self._call, self._stream = other_call, None
        return await open_answer(core, other_call, observation)

    # Reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Return itself, because there is only one stream. If it has ended, raise StateError."""
        if self._state == "closed" and self._error is not None:
            raise self._error
        if self.closed:
            raise ended(self._complete_answer())
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event. ``Finish`` follows after the turn was saved.

        Raises the same errors as :meth:`run`.
        """
        self._made_at = None
        if self._unsaved is not None:
            return await self._saved(self._unsaved)
        if self._state != "open":
            await self._start()
        stream = self._stream if self._stream is not None else self._so_far()
        try:
            while self._state == "open":
                event = stream.next_event()
                if event is not None:
                    if self._observation is not None and stream.events_seen == 1:
                        self._observation.event("first_event", {})
                    return await self._saved(event) if isinstance(event, Finish) else event
                if stream.ended:
                    self._end("read")
                else:
                    await self._read(stream)
        except StateError:
            raise  # another task is reading and continues
        except MintlifyError as error:
            self._end("failed", error)
            self._unraised = error  # the step may be cancelled before it raises the error
        await self._end_turn(self._unraised)
        unraised, self._unraised = self._unraised, None
        if unraised is not None:
            raise unraised from unraised.__cause__
        if self._state == "closed" and self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def _saved(self, finish: Finish) -> Finish:
        """Return *finish* when the turn is saved. A cancelled step does not lose the event."""
        if self._turn is not None:
            self._unsaved = finish
            await self._turn.finished(self.message, self.thread)
            self._unsaved = None
        return finish

    async def _read(self, stream: MessageStream) -> None:
        """Read the next bytes into *stream*, or end it if the body has ended."""
        live_response = self._live
        assert live_response is not None
        if live_response.pending:
            raise already_read()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._turn is not None and not self._entered:
            self._turn.stepped()
        grace = (AFTER_DONE if stream.done_seen else AFTER_FINISH) if stream.complete else None
        try:
            # Without a local variable. The server may send a key back in these bytes, and tools show the
            # variables of this frame with a later error.
            _feed(stream, await live_response.read(stream.events_seen, grace))
        except MintlifyError as error:
            if isinstance(error, APITimeoutError) and error.phase == "first_event":
                raise
            stream.feed_eof(error)
        except asyncio.CancelledError:
            if not self._entered:
                loop = asyncio.get_running_loop()
                self._alarm = loop.call_later(ABANDONED_AFTER, _call, weakref.WeakMethod(self._abandon))
            raise

    # Ending -----------------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reply; see :meth:`close`."""
        made_at = self._made_at
        self._shut(error if isinstance(error, asyncio.CancelledError) else None)
        await self._end_turn(error, left=True)
        if made_at is not None and error is None:
            warn_unread("entered, but never read", made_at)

    async def close(self) -> None:
        """Stop reading and close the connection immediately. A conversation's unfinished turn is rolled back.

        Any task may call this method, and more than once. A task that is reading then ends without an error.
        If the turn had finished and the store has a newer turn, ``StoreConflictError`` is raised.
        """
        self._shut()
        error = sys.exception()  # the error of the `finally` or `aclosing` that calls this method
        await self._end_turn(error if isinstance(error, asyncio.CancelledError) else None, left=True)

    aclose = close

    def _shut(self, error: asyncio.CancelledError | None = None) -> None:
        """Close the connection, and stop the task that opens it. The turn continues."""
        opening = self._opening
        self._end("closed", error)
        if opening is not None:
            opening.end()

    def _end(self, how: State, error: BaseException | None = None) -> None:
        """If the reply has not ended, end it, free the connection and end the observation.

        Args:
            how: The final state.
            error: The error of the end. If it is an error of the package, every later ``await`` raises it.
        """
        self._made_at = None
        if self.closed:
            return
        self._state = how
        if self._live is not None and not self._live.closed:
            self._live.close()
        self._connections = None
        if self._alarm is not None:
            self._alarm.cancel()
        if isinstance(error, MintlifyError):
            self._error = error
        if isinstance(error, UnexpectedResponseError) and (response := self._received()) is not None:
            error.status, error.headers = response.status, dict(response.headers)
            error.request_id = response.request_id
        self._end_observation(error)

    def _close_if_unused(self, over: bool) -> bool:
        """Close this reply on behalf of its turn; see :meth:`ReplyTurn.enter`."""
        reading = self._opening is not None or (self._live is not None and self._live.pending)
        if reading or (self._entered and not over):
            return False
        if not over and not self.closed:
            self._error = StateError(
                "this reply was closed, because its task ended before the answer was complete, "
                "and another question started. Use `async with`"
            )
        self._shut()
        return True

    def _abandon(self) -> None:
        """Close this reply, because no step followed a cancelled step."""
        text = f"the reply was closed: nobody read on within {ABANDONED_AFTER:g} s after a step was cancelled"
        error = StreamInterruptedError(text, **self._so_far().so_far())
        self._end("closed", asyncio.CancelledError())
        self._error = error
        if self._turn is not None:
            task = asyncio.get_running_loop().create_task(self._end_turn(error, left=True))
            _ending.add(task)
            task.add_done_callback(_ending.discard)

    def _end_observation(self, error: BaseException | None) -> None:
        observation, self._observation = self._observation, None
        if observation is not None:
            note(
                observation,
                conversation_id=self.thread_id,
                finish_reason=self.finish_reason or ("abort" if self.aborted else None),
                message_id=self.message.id if self.message is not None else None,
                request_id=self.request_id,
                output=self.text,
            )
            observation.end(error)

    async def _end_turn(self, error: BaseException | None = None, *, left: bool = False) -> None:
        """End the turn. If *error* is not already being raised, the store's error is raised.

        The next turn starts afterwards, but not before the reply's block has exited. Until then, the program
        may show this answer, and the next answer must not be mixed with it.
        """
        turn = self._turn
        if turn is None:
            return
        try:
            stream = self._so_far()
            message = None if self._live is None else stream.partial
            whole = stream.complete and not stream.aborted and self._error is None
            cancelled = isinstance(error, asyncio.CancelledError)
            await turn.ended(message, stream.thread, whole=whole, cancelled=cancelled)
        except Exception as problem:
            problem.__dict__["answer"] = self._complete_answer()  # set even on an error of another library
            self._error = problem
            if error is None:
                raise
            _log.warning("the turn of a conversation was not saved: %s", problem)
        finally:
            if left or not self._entered:
                turn.left()

    def __del__(self) -> None:
        """Close the connection of a reply that was not closed. Warn about a reply that was never read."""
        turn: ReplyTurn | None = getattr(self, "_turn", None)
        if turn is not None:
            turn.left()
        live_response = getattr(self, "_live", None)
        if live_response is not None:
            live_response.close_from_anywhere(report=not self.closed)
        if getattr(self, "_observation", None) is not None:
            cancelled = self._alarm is not None or self._unsaved is not None
            self._end_observation(asyncio.CancelledError() if cancelled else None)
        made_at: Place | None = getattr(self, "_made_at", None)
        if made_at is not None and not self._entered:
            warn_unread("never started, so nothing was sent", made_at)

    def __repr__(self) -> str:
        """Show the state and the number of events. The text is left out, because logs show reprs."""
        return f"<Reply {self._state}, {self.events_seen} events>"


def _feed(stream: MessageStream, data: bytes) -> None:
    """Pass the received bytes to *stream*. Empty bytes mean the end of the body."""
    if data:
        stream.feed(data)
    else:
        stream.feed_eof()


def _call(reference: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method if its object still exists. So a timer does not keep a reply alive."""
    method = reference()
    if method is not None:
        method()


def stream_of(reply: Reply) -> MessageStream:
    """Return the stream of *reply*. Between two steps, its ``next_delta()`` may be called."""
    return reply._so_far()  # pyright: ignore[reportPrivateUsage] - defined in this file


def sent_key(reply: Reply) -> str | None:
    """Return the API key that the question was sent with, so that output can hide it, or None."""
    live = reply._live  # pyright: ignore[reportPrivateUsage] - defined in this file
    return None if live is None else live.secret
