"""Streams an open reply to a page as server-sent events, until the answer ends or the reader leaves."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio
from attrs import evolve, frozen
from starlette.responses import StreamingResponse

from mintlify_async import AssistantError, MintlifyError, StoreConflictError
from mintlify_async.events import ErrorEvent, Finish, StreamEvent
from mintlify_async.runtime.cancellation import finish_shielded

from .hooks import call
from .json_values import Wire
from .page_events import (
    DONE,
    KEEP_ALIVE,
    ModernEvents,
    PageEvents,
    SafeEvents,
    ThreadHider,
    delta_frame,
    frame,
    masked,
)
from .punctual_store import StoreError
from .refusals import cut_text
from .side_tasks import SideTasks

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from starlette.types import Message as ASGIMessage
    from starlette.types import Receive, Scope, Send

    from mintlify_async import Message, Reply, Thread
    from mintlify_async.runtime.clock import Clock

    from .question import Question
    from .seal import ThreadSeal
    from .shutdown import Shutdown
    from .stored_chats import KeptAnswer

log = logging.getLogger("mintlify_async.relay")

Mode = Literal["safe", "modern"]
Outcome = Literal["finished", "failed", "left", "interrupted"]
AnswerHook = Callable[["RelayedAnswer"], object]

HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-vercel-ai-ui-message-stream", b"v1"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
FIRST_COMMENT = 5.0  # seconds without a first event; most refusals have come by then
MOST_FRAMES = 512  # in one piece; between two of them, other tasks get their turn
_SEALED = ("start", "finish")  # the events whose metadata carries the seal
_UNSAVED = (StoreError, StoreConflictError)  # errors of a store: the answer itself may be whole


@frozen(kw_only=True)
class RelayedAnswer:
    """Describes an answer that has ended; the argument of the relay's hooks.

    Attributes:
        outcome: ``finished``; ``failed`` when the service aborted the answer or it was interrupted; ``left``
            when the reader pressed Stop or closed the page or, with ``streams``, stayed away; ``interrupted``
            when the app's shutdown or the server cut it.
        user: The user's id, as your ``user`` function returned it.
        chat_id: The id that the page gave the chat, or None. It is not checked.
        question: The messages that were sent to the service, as JSON objects. Empty when the worker that knew
            them has died.
        message: The answer, or the part of it that arrived; None when nothing did.
        thread: The thread at the service, with its key, or None.
        finish_reason: Why the model stopped, or None.
        error: The error that interrupted the answer, or for which a finished answer is not in the relay's
            store, or None.
    """

    outcome: Outcome
    user: str
    chat_id: str | None
    question: Sequence[Mapping[str, Any]]
    message: Message | None
    thread: Thread | None
    finish_reason: str | None = None
    error: MintlifyError | None = None


@frozen(kw_only=True)
class AnswerSettings:
    """The relay's settings for answers: what the app's hooks and the page are told, and when."""

    mode: Mode
    clock: Clock
    keep_alive: float | None
    stall: float | None
    seal: ThreadSeal
    shutdown: Shutdown
    on_finish: AnswerHook | None
    on_unfinished: AnswerHook | None
    error_text: Callable[[MintlifyError], str] | None

    def page_events(self) -> PageEvents:
        """Return what turns the events of one answer into those for the page."""
        return SafeEvents() if self.mode == "safe" else ModernEvents()

    def public_text(self, error: MintlifyError) -> str:
        """Return the text that the page shows for *error*."""
        if self.error_text is not None:
            try:
                text = self.error_text(error)
                if isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a hook returns anything
                    return text
                log.error("the relay's error_text must return a string, not %s", type(text).__name__)
            except Exception:  # an error in the app's code; the page still needs a text
                log.exception("the relay's error_text raised")
        if self.mode == "modern" and isinstance(error, AssistantError):
            return error.error_text or cut_text(error)
        return cut_text(error)

    def hook(self, outcome: Outcome) -> AnswerHook | None:
        """Return the app's hook for an answer that has ended with *outcome*."""
        return self.on_finish if outcome == "finished" else self.on_unfinished

    async def tell(self, answer: RelayedAnswer) -> None:
        """Call the app's hook and let it finish, even when the reader has left."""
        hook = self.hook(answer.outcome)
        if hook is None:
            return
        try:
            await finish_shielded(call(hook, answer))
        except Exception:  # an error in the app's code must not break the answer
            log.exception("the relay's hook for an answer that %s raised", answer.outcome)


async def gone(receive: Receive) -> None:
    """Return when the reader has left. Servers of ASGI 2.4 report it only to a pending ``receive``."""
    while (await receive())["type"] != "http.disconnect":
        pass


class OpenReply:
    """An answer that has begun: send :meth:`response`, or read :attr:`reply` yourself and close this.

    Attributes:
        reply: The answer itself.
        user: The id of the user who asked.
        question: The question, checked.
        settings: The relay's settings for answers.
    """

    # *key* is the service's, which no page may see, even if the service repeats it; *leave* frees the
    # answer's place among the concurrent ones; *kept* makes what a store keeps.
    def __init__(
        self,
        reply: Reply,
        *,
        question: Question,
        thread: Thread | None,
        key: str | None,
        user: str,
        settings: AnswerSettings,
        leave: Callable[[], None],
        kept: KeptAnswer | None = None,
    ) -> None:
        self.reply = reply
        self.user = user
        self.question = question
        self.settings = settings
        self._leave = weakref.finalize(self, leave)  # runs once, also when this is never closed
        self._events = settings.page_events()
        self._kept = kept
        self._hider = ThreadHider() if kept is None else kept.hider
        self._hider.learn(key)
        self._learn(thread)
        self._sealed: Thread | None = None  # the thread that the page has
        self._token = ""  # as the page has it
        self._begun = self._finishing = self._closed = self._told = False
        self._outcome: Outcome = "left"
        self._error: MintlifyError | None = None
        self._cut_by: MintlifyError | None = None
        self._stopped = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def response(self) -> RelayResponse:
        """Return the response that streams the answer to the page and then closes it."""
        return RelayResponse(self)

    def interrupted(self) -> None:
        """Tell the hooks that the reader did not leave: the server, or the app, cut the answer."""
        if self._outcome == "left":
            self._outcome = "interrupted"

    async def close(self) -> None:
        """Close the answer at the service and free its place. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self.reply.close()
            except MintlifyError as error:  # what had arrived could not be saved
                self._note(error)
            finally:
                self._leave()
            await self._tell()

    aclose = close

    async def cut(self, error: MintlifyError | None = None) -> None:
        """End the answer at the service now, while :meth:`frames` is being read by another task.

        The frames then end with *error*. Without one they end like an answer that the reader stopped.
        """
        self._cut_by, self._stopped = error, error is None
        try:
            await self.reply.close()
        except MintlifyError as unsaved:  # what had arrived could not be saved
            self._note(unsaved)

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield server-sent events for the page, those of one read in one piece; ``[DONE]`` is the last."""
        self._learn(self.reply.thread)
        made: list[bytes] = []
        events, hider = self._events, self._hider
        try:
            async for event in self.reply:
                # Nine of ten events are deltas, which need no more than this.
                delta = delta_frame(event, events, hider)
                if delta is not None:
                    made.append(delta)
                else:
                    made += self._page(event)
                many = len(made) >= MOST_FRAMES
                if made and (many or not self.reply.at_hand):
                    yield b"".join(made)
                    made.clear()
                    if self._finishing:  # the page has all that was made
                        self._outcome = "finished"
                    if many:
                        await asyncio.sleep(0)
            await self.reply.run()  # raises if the reply was closed early, for instance with the session
        except MintlifyError as error:
            self._failed(error)
        else:
            self._stopped = False  # it was whole already
        made += self._ending()
        if made:
            yield b"".join(made)
        await self._tell()
        await self._make_room()
        yield DONE

    async def _make_room(self) -> None:
        """Free the answer's places before the page sees the end, at which it may send the next question."""
        if self._kept is not None:
            await self.reply.close()  # a stored conversation takes the next question then
        self._leave()

    def _note(self, error: MintlifyError) -> None:
        level, what = (logging.ERROR, "saved") if isinstance(error, _UNSAVED) else (logging.WARNING, "whole")
        log.log(level, "an answer was not %s: %s: %s", what, type(error).__name__, masked(str(error)))
        self._error = self._error or error

    def _failed(self, error: MintlifyError) -> None:
        if not self._stopped:
            self._note(self._cut_by or error)

    def _page(self, event: StreamEvent) -> Iterable[bytes]:
        """Return the frames for one event of the service that is no plain delta."""
        if isinstance(event, ErrorEvent):
            return ()  # the reply raises it, and _ending tells the page
        self._begun = True
        self._learn(self.reply.thread)
        self._finishing = self._finishing or isinstance(event, Finish)
        wire = event.to_wire()
        named = (wire,) if self._kept is None else self._kept.named(wire)
        return [self._frame(shown) for one in named for shown in self._events.page(one)]

    def _frame(self, event: Wire) -> bytes:
        if event["type"] in _SEALED:
            return frame(self._with_seal(self._hider.hide(event)))
        return frame(event, self._hider)

    def _ending(self) -> Iterator[bytes]:
        """Yield what the page still needs of an unfinished answer: its thread and the error."""
        failed = self._error is not None and not isinstance(self._error, _UNSAVED)
        ended: Outcome = "failed" if failed or self.reply.aborted else "finished"
        if failed and self.settings.shutdown.has_cut(self.reply):
            ended = "interrupted"
        self._outcome = "left" if self._stopped else ended
        if self._begun and self._kept is None and self.reply.thread != self._sealed:
            yield frame(self._with_seal({"type": "message-metadata"}))
        if self._error is not None:
            text = self.settings.public_text(self._error)
            yield frame({"type": "error", "errorText": text}, self._hider)
        if self._stopped:
            yield frame({"type": "abort"})

    def _with_seal(self, event: Wire) -> Wire:
        thread = self.reply.thread
        if thread is None or self._kept is not None:  # with a store, the page needs no thread
            return event
        if thread != self._sealed:
            self._sealed, self._token = thread, self.settings.seal.seal(thread, self.user)
        return {**event, "messageMetadata": {**(event.get("messageMetadata") or {}), "threadId": self._token}}

    def _learn(self, thread: Thread | None) -> None:
        if thread is not None:
            self._hider.learn(thread.id, thread.key)

    async def _tell(self) -> None:
        told, self._told = self._told, True
        if told or self.settings.hook(self._outcome) is None:
            return
        message = self.reply.message
        if message is not None and self._kept is not None and self._kept.id:
            message = evolve(message, id=self._kept.id)  # as the page and the store know it
        await self.settings.tell(
            RelayedAnswer(
                outcome=self._outcome,
                user=self.user,
                chat_id=self.question.chat_id,
                question=self.question.messages,
                message=message,
                thread=self.reply.thread,
                finish_reason=self.reply.finish_reason,
                error=self._error,
            )
        )


class Readable(Protocol):
    """A source of an answer's frames, which a response streams and then leaves."""

    settings: AnswerSettings

    def frames(self) -> AsyncGenerator[bytes]:
        """Yield server-sent events; ``[DONE]`` is the last."""
        ...

    async def close(self) -> None:
        """Leave the answer."""
        ...


class RelayResponse(StreamingResponse):
    """Streams an open reply to a page, and closes the reply when the answer ends or the reader leaves.

    Args:
        opened: The result of :meth:`Relay.open` or of the :meth:`Relay.opened` dependency.
        leave: Called when the response has ended.
    """

    def __init__(self, opened: Readable, leave: Callable[[], None] = lambda: None) -> None:
        self._frames = opened.frames()
        super().__init__(self._frames)
        self.raw_headers = [*HEADERS]
        self._opened = opened
        self._leave = weakref.finalize(self, leave)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send each frame as it arrives, and stop when the reader leaves."""
        try:
            await self._send_while_there(receive, _Sender(send, self._opened.settings.clock))
        except OSError:
            pass  # other servers report in this way that the reader has left
        except asyncio.CancelledError:  # of this task: the server, or the app, gives up
            if isinstance(self._opened, OpenReply):  # any other goes on without its reader
                self._opened.interrupted()
            raise
        finally:
            self._leave()
            await self._opened.close()
        if self.background is not None:
            await self.background()

    async def _send_while_there(self, receive: Receive, sender: _Sender) -> None:
        settings = self._opened.settings
        async with SideTasks() as beside:

            async def stop_after(wait: Coroutine[Any, Any, None]) -> None:
                try:
                    await wait
                finally:
                    sending.cancel()

            # In a task of its own: waking it for an event does not resume the frames of server and framework.
            head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            sending = beside.start(partial(sender.send_all, head, self._frames))
            beside.start(lambda: stop_after(gone(receive)))
            if (every := settings.keep_alive) is not None:
                first = min(every, FIRST_COMMENT)
                beside.start_after(settings.clock, first, partial(sender.keep_alive, every))
            if (limit := settings.stall) is not None:
                beside.start_after(settings.clock, limit, lambda: stop_after(sender.stalled(limit)))
            await asyncio.wait([sending])


class _Sender:
    """Sends one ASGI message at a time: frames of the answer, and comments while it is silent."""

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._began = clock.now()  # when sending the last message began
        self._busy = False  # whether it is still being sent
        self._spoke = False  # whether anything was sent after the head
        self._commenting = asyncio.Lock()
        self._over = False

    async def say(self, message: ASGIMessage) -> None:
        self._began, self._busy = self._clock.now(), True
        await self._send(message)
        self._busy = False

    async def send_all(self, head: ASGIMessage, frames: AsyncGenerator[bytes]) -> None:
        """Send *head* and each of *frames* as it is made; the last one ends the response."""
        await self.say(head)
        async with aclosing(frames):
            async for made in frames:
                if self._busy:  # a comment is being sent
                    async with self._commenting:
                        pass
                more = made is not DONE
                # As say() does, but without a coroutine of its own for each event.
                self._began, self._busy, self._spoke, self._over = self._clock.now(), True, True, not more
                await self._send({"type": "http.response.body", "body": made, "more_body": more})
                self._busy = False

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment after each *seconds* without a message; before the first event, sooner."""
        while not self._over:
            silence = seconds if self._spoke else min(seconds, FIRST_COMMENT)
            due = self._began + silence - self._clock.now()
            if due > 0 or self._busy:
                await self._clock.sleep(due if due > 0 else silence)
                continue
            try:
                async with self._commenting:
                    if self._busy or self._over:  # since this comment waited for the one before
                        continue
                    self._spoke = True
                    await self.say({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            except OSError:  # the reader has left; sending the answer fails in the same way
                return

    async def stalled(self, seconds: float) -> None:
        """Return when the reader has not accepted a message within *seconds*."""
        while True:
            due = self._began + seconds - self._clock.now() if self._busy else seconds
            if due <= 0:
                return
            await self._clock.sleep(due)
