"""An open reply in; frames for the page out, until the answer or the reader has gone."""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

import anyio
from attrs import frozen
from starlette.responses import StreamingResponse

from mintlify_async.errors import AssistantError, MintlifyError

from .page_events import (
    DONE,
    KEEP_ALIVE,
    ModernEvents,
    PageEvents,
    SafeEvents,
    ThreadHider,
    Wire,
    frame,
    masked,
)
from .refusals import cut_text

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from starlette.types import Message as ASGIMessage
    from starlette.types import Receive, Scope, Send

    from mintlify_async.assistant import Reply
    from mintlify_async.clock import Clock
    from mintlify_async.parts import Message
    from mintlify_async.thread import Thread

    from .question import Question
    from .seal import ThreadSeal

__all__ = ["AnswerHook", "Mode", "OpenReply", "RelayResponse", "RelayedAnswer", "Teller", "gone", "result"]

log = logging.getLogger("mintlify_async.relay")

Mode = Literal["safe", "modern"]
Outcome = Literal["finished", "failed", "left"]
AnswerHook = Callable[["RelayedAnswer"], object]

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
}
_SEALED = ("start", "finish")  # the events whose metadata carries the seal


@frozen(kw_only=True)
class RelayedAnswer:
    """What the hooks get when an answer has ended.

    Attributes:
        outcome: ``finished``; ``failed`` when the service stopped or broke it
            off; ``left`` when the reader pressed Stop or closed the page.
        user: Whose it is, as your user hook named them.
        chat_id: The page's own name for the chat, or None; it is not checked.
        question: The history that was asked, in the wire's form.
        message: The answer, as far as it came; None when nothing had come.
        thread: The conversation at the service, its key included, or None.
        finish_reason: Why the model stopped, or None.
        error: What broke the answer off, or None.
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
class Teller:
    """What a relay tells of its answers: to the app by hooks, to the page by sentences."""

    mode: Mode
    clock: Clock
    keep_alive: float | None
    stall: float | None
    seal: ThreadSeal
    on_finish: AnswerHook | None
    on_unfinished: AnswerHook | None
    error_text: Callable[[MintlifyError], str] | None

    def public_text(self, error: MintlifyError) -> str:
        """Return what the page is told of *error*."""
        if self.error_text is not None:
            try:
                text = self.error_text(error)
                if isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a hook returns anything
                    return text
                log.error("the relay's error_text returned no string but a %s", type(text).__name__)
            except Exception:  # the app's own code: the page must be told all the same
                log.exception("the relay's error_text raised")
        if self.mode == "modern" and isinstance(error, AssistantError):
            return error.error_text or cut_text(error)
        return cut_text(error)

    async def tell(self, answer: RelayedAnswer) -> None:
        """Call the app's hook, to its end, even when the reader has left."""
        hook = self.on_finish if answer.outcome == "finished" else self.on_unfinished
        if hook is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                await result(hook(answer))
            except Exception:  # the app's own code: its failure must not break the answer
                log.exception("the relay's hook for an answer that %s raised", answer.outcome)


async def result(value: Any) -> Any:
    """Return what a hook returned, awaited when it has to be."""
    return await value if inspect.isawaitable(value) else value


async def gone(receive: Receive) -> None:
    """Return when the reader has left; servers of ASGI 2.4 tell it only to those who listen."""
    while (await receive())["type"] != "http.disconnect":
        pass


class OpenReply:
    """An answer that has begun: send :meth:`response`, or read :attr:`reply` yourself and close it.

    Attributes:
        reply: The answer itself.
        user: Who asked.
        question: What was asked.
        teller: The settings of its relay.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        question: Question,
        thread: Thread | None,
        user: str,
        teller: Teller,
        leave: Callable[[], None],
    ) -> None:
        """Take over a reply that is open; *leave* gives its place back."""
        self.reply = reply
        self.user = user
        self.question = question
        self.teller = teller
        self._leave = weakref.finalize(self, leave)  # once, also when nobody closes this
        self._events: PageEvents = SafeEvents() if teller.mode == "safe" else ModernEvents()
        self._hider = ThreadHider()
        self._hider.learn(_key_of(reply))
        self._learn(thread)
        self._sealed: Thread | None = None  # what the page was last told
        self._begun = self._closed = self._told = False
        self._outcome: Outcome = "left"
        self._error: MintlifyError | None = None

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the answer."""
        await self.close()

    def response(self) -> RelayResponse:
        """Return the response that streams the answer to the page, and closes it at the end."""
        return RelayResponse(self)

    async def close(self) -> None:
        """Close the answer at the service, and give its place to the next; harmless when done already."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self.reply.close()
            finally:
                self._leave()
            await self._tell()

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the server-sent events for the page, the closing ``[DONE]`` included."""
        try:
            async for event in self.reply:
                for made in self._page(event.to_wire()):
                    yield made
            await self.reply.run()  # raises when it was closed before its end, with the session, say
        except MintlifyError as error:
            log.warning("an answer broke off: %s: %s", type(error).__name__, masked(str(error)))
            self._error = error
        for made in self._ending():
            yield made
        await self._tell()
        yield DONE

    def _page(self, wire: Wire) -> Iterator[bytes]:
        """Yield what the page gets for one event."""
        if wire["type"] == "error":
            return  # told in the end, when the reply has raised it
        self._learn(self.reply.thread)
        if wire["type"] == "finish":
            self._outcome = "finished"
        for event in self._events.page(wire):
            shown = self._hider.hide(event)
            yield frame(self._with_seal(shown) if shown["type"] in _SEALED else shown)
        self._begun = True

    def _ending(self) -> Iterator[bytes]:
        """Yield what must be told before ``[DONE]``: the thread of an answer that did not finish, and why."""
        failed = self._error is not None or self.reply.aborted
        self._outcome = "failed" if failed else "finished"
        if self._begun and self.reply.thread != self._sealed:
            yield frame(self._with_seal({"type": "message-metadata"}))
        if self._error is not None:
            text = self.teller.public_text(self._error)
            yield frame(self._hider.hide({"type": "error", "errorText": text}))

    def _with_seal(self, event: Wire) -> Wire:
        thread = self.reply.thread
        if thread is None:
            return event
        self._sealed = thread
        token = self.teller.seal.seal(thread, self.user)
        return {**event, "messageMetadata": {**(event.get("messageMetadata") or {}), "threadId": token}}

    def _learn(self, thread: Thread | None) -> None:
        if thread is not None:
            self._hider.learn(thread.id, thread.key)

    async def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        await self.teller.tell(
            RelayedAnswer(
                outcome=self._outcome,
                user=self.user,
                chat_id=self.question.chat_id,
                question=self.question.messages,
                message=self.reply.message,
                thread=self.reply.thread,
                finish_reason=self.reply.finish_reason,
                error=self._error,
            )
        )


def _key_of(reply: Reply) -> str | None:
    """Return the key that the question went out with: a service may repeat it, and no page may see it."""
    return getattr(getattr(reply, "_live", None), "secret", None)


class RelayResponse(StreamingResponse):
    """Streams an open reply to a page, and closes it when either side is done.

    Args:
        opened: What :meth:`Relay.open` returned, or the :meth:`Relay.opened`
            dependency gave.
    """

    def __init__(self, opened: OpenReply) -> None:
        """Take over *opened*; nothing is read before it is sent."""
        self._frames = opened.frames()
        super().__init__(self._frames, headers=HEADERS)
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames as they come, listening for the reader's leaving all the while."""
        try:
            await self._send_while_there(scope, receive, _Sender(send, self._opened.teller.clock))
        finally:
            await self._opened.close()
        if self.background is not None:
            await self.background()

    async def _send_while_there(self, scope: Scope, receive: Receive, sender: _Sender) -> None:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await gone(receive)
                tasks.cancel_scope.cancel()

            async def give_up(seconds: float) -> None:
                await sender.stalled(seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            if self._opened.teller.keep_alive is not None:
                tasks.start_soon(sender.keep_alive, self._opened.teller.keep_alive)
            if self._opened.teller.stall is not None:
                tasks.start_soon(give_up, self._opened.teller.stall)
            try:
                await self._send(scope, sender)
            except OSError:
                pass  # how other servers say that the reader has left
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _send(self, scope: Scope, sender: _Sender) -> None:
        headers = list(self.raw_headers)
        if scope.get("http_version", "1.1").startswith("1"):  # HTTP/2 forbids the field
            headers.append((b"connection", b"keep-alive"))
        await sender.start(self.status_code, headers)
        async with aclosing(self._frames) as frames:
            async for made in frames:
                await sender.body(made)
        await sender.end()


class _Sender:
    """ASGI's ``send``, one message at a time, for an answer and the comments in its silences."""

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._lock = anyio.Lock()
        self._last = clock.now()
        self._since: float | None = None  # when the message began that is being sent
        self._over = False

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        async with self._lock:
            await self._say({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes) -> None:
        async with self._lock:
            if not self._over:  # a comment may have waited while the end was sent
                await self._say({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        async with self._lock:
            self._over = True
            await self._say({"type": "http.response.body", "body": b"", "more_body": False})

    async def _say(self, message: ASGIMessage) -> None:
        self._since = self._clock.now()
        await self._send(message)
        self._last, self._since = self._clock.now(), None

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment whenever nothing was sent for *seconds*, until the end or the reader has left."""
        while not self._over:
            due = self._last + seconds - self._clock.now()
            if due > 0:
                await self._clock.sleep(due)
                continue
            try:
                await self.body(KEEP_ALIVE)
            except OSError:  # the reader has left; whoever sends the answer learns it, too
                return

    async def stalled(self, seconds: float) -> None:
        """Return when the reader has not taken one message for *seconds*."""
        while True:
            since = self._since
            due = seconds if since is None else since + seconds - self._clock.now()
            if due <= 0:
                return
            await self._clock.sleep(due)
