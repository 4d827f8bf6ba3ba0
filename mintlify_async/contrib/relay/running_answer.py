"""One running answer. A task asks the question and writes the web page's events to a log.

It ends when the answer has ended, when a user pressed Stop, when the chat's next question came, or when it
had no reader for the grace period. Responses to web pages read the log and may come and go.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attrs import evolve, frozen

from mintlify_async import MintlifyError, NotFoundError, StreamInterruptedError
from mintlify_async.assistant.reply import sent_key
from mintlify_async.events import ErrorEvent, Finish
from mintlify_async.runtime.limits import TimeLimit

from .answer_logs import MemoryLog
from .chats import Chat
from .page_events import DONE, INTERRUPTED, STOPPED, delta_frame, frame
from .refusals import AT_FAULT, RESTARTING, UNSAVED, RelayRefusal, cut_text, masked, retry_after

if TYPE_CHECKING:
    from mintlify_async import Message, Reply, Thread

log = logging.getLogger("mintlify_async.relay")

Outcome = Literal["finished", "failed", "left", "interrupted"]
EndHook = Callable[["RelayedAnswer"], object]
TellHook = Callable[["RelayedAnswer"], Awaitable[None]]

MAX_BYTES = 8 * 1024 * 1024  # of one answer; a larger one ends with an error
TURN_BYTES = 32 * 1024  # in one cycle of the event loop, before other tasks run and readers are awaited


@frozen(kw_only=True)
class RelayedAnswer:
    """Describes an answer that has ended. It is the argument of the relay's ``on_end``.

    Attributes:
        outcome: ``finished``; ``failed`` when the service aborted the answer or it was interrupted; ``left``
            when the user pressed Stop or closed the page or, with ``streams``, stayed away; ``interrupted``
            when the app was shut down.
        user: The user's id, as your ``user`` function returned it.
        chat_id: The id that the page gave the chat, or None. It is not checked.
        question: The messages that were sent to the service, as JSON objects.
        message: The answer or the partial answer. None if nothing arrived.
        thread: The thread at the service, with its key, or None.
        finish_reason: Why the model stopped, or None.
        error: The error that interrupted the answer; or the error of the store that could not save it; or
            None.
    """

    outcome: Outcome
    user: str
    chat_id: str | None
    question: Sequence[Mapping[str, Any]]
    message: Message | None
    thread: Thread | None
    finish_reason: str | None = None
    error: Exception | None = None


@frozen(kw_only=True)
class Asker:
    """Who asks, and in which chat.

    Attributes:
        user: The user's id.
        address: The IP address, or the customer's prefix of it; "" if it is not known.
        chat_id: The id that the page gave the chat, or None.
        chat_key: The name of the chat in a store, from which neither user nor chat can be read; "" without.
    """

    user: str
    address: str
    chat_id: str | None
    chat_key: str


class Home(Protocol):
    """The place where answers run. It has the other answers of the chat, and the other workers."""

    async def make_way(self, answer: RunningAnswer) -> None:
        """Return when *answer* may be asked, because those before it in its chat have ended."""
        ...

    async def describe(self, answer: RunningAnswer) -> None:
        """Let pages find *answer* by its question."""
        ...

    def unread(self, answer: RunningAnswer) -> None:
        """The last reader of *answer* has left."""
        ...

    @property
    def tell(self) -> TellHook:
        """Call the app's hook. It raises nothing."""
        ...

    def ended(self, answer: RunningAnswer) -> None:
        """The place of *answer* is free."""
        ...


class RunningAnswer:
    """The task that answers one question, and its log.

    Args:
        asker: Who asks.
        chat: Asks the question, and filters the events for the web page.
        home: Where it runs.

    Attributes:
        id: A random name.
        log: The log that web pages read.
        about: The id of the question, and what a history shows of it; see :attr:`.Chat.progress`.
        stopped: The outcome that :meth:`stop` gave it, or None.
        read_at: When it had a reader last, by the loop's time.
        read_elsewhere: Whether it has a reader on another worker.
        resumable: Whether a page can find it again.
        task: The task.
    """

    def __init__(self, asker: Asker, chat: Chat, home: Home) -> None:
        self.id = uuid.uuid4().hex
        self.asker = asker
        self.log = MemoryLog(self._left)
        self.about: dict[str, Any] = {}
        self.stopped: Outcome | None = None
        self.read_at = asyncio.get_running_loop().time()
        self.read_elsewhere = False
        self.resumable = asker.chat_key != ""
        self._chat = chat
        self._home = home
        self._limit = TimeLimit()  # stop() ends it
        self._reply: Reply | None = None  # from the answer's start on
        self._finished = False  # its last event, Finish, has come
        self._error: Exception | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether more will come."""
        return not (self.stopped or self.log.ended)

    @property
    def unread(self) -> bool:
        """Whether the answer has no reader now."""
        return not self.log.readers and not self.read_elsewhere

    def stop(self, outcome: Outcome = "left") -> None:
        """End the answer at the service, and tell its readers. Harmless to repeat."""
        if not self.stopped:
            self.stopped = outcome
            self._limit.end()

    def _left(self) -> None:
        self.read_at = asyncio.get_running_loop().time()
        self._home.unread(self)

    async def _run(self) -> None:
        outcome: Outcome = "failed"
        try:
            outcome = await self._answer()
        except RelayRefusal as refusal:
            self._refuse(refusal)
        except asyncio.CancelledError:  # because the app shuts down
            outcome = "interrupted"
            self.log.append(INTERRUPTED)
            raise
        except Exception:
            log.exception("an answer failed")
            self._refuse(RelayRefusal(500, AT_FAULT))
        finally:
            try:
                await self._close()
                if self._reply is not None:
                    await self._home.tell(self._description(self._reply, outcome))
            finally:
                self._home.ended(self)
                self.log.append(DONE)
                self.log.end()
                # The log may be kept for a while, but not the message, and no error, which holds its frames.
                self._reply = self._error = None
                self._chat = Chat()
                self.about.pop("progress", None)

    async def _answer(self) -> Outcome:
        """Ask, and write the answer. Return its outcome."""
        # A stop does not end this: the chat's next answer waits for this one, and so for those before it.
        await self._home.make_way(self)
        try:
            async with self._limit:
                self._check_stop()
                await self._chat.begin()
                self.about = {"question": self._chat.messages[-1]["id"], "progress": self._chat.progress}
                await self._home.describe(self)
                self._check_stop()
                self._reply = reply = await self._open()
                self._check_stop()
                await self._read(reply)
        except Exception as error:  # a store of the app's own may raise anything
            by_stop = isinstance(error, TimeoutError) and not isinstance(error, MintlifyError)
            if not (self.stopped and by_stop):
                if self._reply is None:
                    raise
                self._fail(error)
            elif self._reply is None and self.stopped == "interrupted":
                raise RelayRefusal(503, RESTARTING, retry_after(1)) from None
        await self._close()
        return self._ending()

    def _check_stop(self) -> None:
        """Raise TimeoutError after :meth:`stop`, whose cancellation an app's store may have swallowed."""
        if self.stopped:
            raise TimeoutError

    async def _open(self) -> Reply:
        """Return the reply whose answer has started. If the service has lost the thread, ask without it."""
        thread = self._chat.thread
        self._chat.learn(thread)
        try:
            try:
                reply = await self._chat.ask(thread).__aenter__()
            except NotFoundError:
                if thread is None:
                    raise
                log.info("the service has lost a thread: the question is asked again without it")
                reply = await self._chat.ask(None).__aenter__()
        except MintlifyError as error:
            raise self._chat.refusal(error) from None
        self._chat.hider.learn(sent_key(reply))
        self._chat.learn(reply.thread)
        return reply

    async def _read(self, reply: Reply) -> None:
        """Write each event in the web page's form."""
        chat, events, hider, writing = self._chat, self._chat.events, self._chat.hider, self.log
        turn_end = TURN_BYTES
        async for event in reply:
            # Nine of ten events are deltas, which need no more than this.
            delta = delta_frame(event, events, hider)
            if delta is not None:
                writing.append(delta)
            elif not isinstance(event, ErrorEvent):  # the reply raises it
                self._finished = self._finished or isinstance(event, Finish)
                chat.learn(reply.thread)
                for event_frame in chat.frames(event.to_wire(), reply.thread):
                    writing.append(event_frame)
            if writing.size > turn_end:
                await asyncio.sleep(0)
                await writing.room()
                if writing.size > MAX_BYTES:
                    raise StreamInterruptedError(f"the answer is larger than {MAX_BYTES} bytes")
                turn_end = writing.size + TURN_BYTES
        await reply.run()  # raises if the reply was closed early, for instance with the session

    def _ending(self) -> Outcome:
        """Write the web page's missing events, and return the answer's outcome."""
        reply = self._reply
        if reply is not None and self.log.size:
            for event_frame in self._chat.ending(reply.thread):
                self.log.append(event_frame)
        if self.stopped and not self._finished:
            self.log.append(STOPPED if self.stopped == "left" else INTERRUPTED)
            return self.stopped
        if self._error is not None:
            text = UNSAVED if self._finished else cut_text(self._error)
            self.log.append(frame({"type": "error", "errorText": text}))
        whole = self._finished or self._error is None
        return "finished" if whole and not (reply is not None and reply.aborted) else "failed"

    async def _close(self) -> None:
        """Close the answer at the service. This saves the partial answer and lets the next question start."""
        if self._reply is not None:
            try:
                await self._reply.close()
            except Exception as error:  # a store's
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._error is not None or (self.stopped and isinstance(error, StreamInterruptedError)):
            return
        self._error = error
        what = "saved" if self._finished or self.stopped else "whole"
        level = logging.ERROR if what == "saved" else logging.WARNING
        log.log(level, "an answer was not %s: %s: %s", what, type(error).__name__, masked(str(error)))

    def _refuse(self, refusal: RelayRefusal) -> None:
        """Tell the readers why there is no answer."""
        self.log.refusal = refusal
        self.log.append(frame({"type": "error", "errorText": refusal.detail}))

    def _description(self, reply: Reply, outcome: Outcome) -> RelayedAnswer:
        message = reply.message
        if message is not None and self._chat.answer_id:
            message = evolve(message, id=self._chat.answer_id)  # as the page and the store know it
        return RelayedAnswer(
            outcome=outcome,
            user=self.asker.user,
            chat_id=self.asker.chat_id,
            question=self._chat.messages,
            message=message,
            thread=reply.thread,
            finish_reason=reply.finish_reason,
            error=self._error,
        )
