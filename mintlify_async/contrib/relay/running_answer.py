"""One running answer. A task asks the question and writes the web page's events to a log.

The task ends when the answer has ended, when a user pressed Stop, when the chat's next question came, or when
the answer had no reader for the grace period. Responses to web pages read the log. They may start and end at
any time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, frozen

from mintlify_async import MintlifyError, StateError, StreamInterruptedError
from mintlify_async.assistant.reply import sent_key, stream_of
from mintlify_async.events import ErrorEvent, Finish
from mintlify_async.model.secret import mask_service_keys
from mintlify_async.runtime.logs import log_fields
from mintlify_async.runtime.time_limits import TimeLimit

from .answer_log import TICK, MemoryLog
from .chats import Chat
from .page_events import DONE, INTERRUPTED, STOPPED, delta_frame, frame
from .refusal_texts import (
    AT_FAULT_TEXT,
    RESTARTING_TEXT,
    UNSAVED_TEXT,
    RelayRefusal,
    cut_text,
    retry_after_header,
)

if TYPE_CHECKING:
    from mintlify_async import Message, Reply, Thread
    from mintlify_async.assistant.event_stream import MessageStream
    from mintlify_async.events import StreamEvent

    from ..redis.redis_stream_store import RedisStreamStore

log = logging.getLogger("mintlify_async.relay")

Outcome = Literal["finished", "failed", "left", "interrupted"]
EndHook = Callable[["RelayedAnswer"], object]

MAX_BYTES = 8 * 1024 * 1024  # maximum size of one answer. A larger answer ends with an error
TURN_BYTES = 32 * 1024  # bytes written in one cycle of the event loop, before other tasks run
MAKE_WAY = 2.0  # maximum seconds that a chat's next question waits for the running answer to stop
BEAT = 0.5  # seconds between writes of a silent answer. A write shows that its worker is alive, and gets Stop


@frozen(kw_only=True)
class RelayedAnswer:
    """An answer that has ended. It is the argument of the relay's ``on_end``.

    Attributes:
        outcome: ``finished`` if the answer is complete, ``failed`` if it ended with an error or the service
            aborted it, and ``interrupted`` if the app was shut down. Otherwise ``left``, because the user
            pressed Stop, asked the next question of the chat, or left the page. With ``streams``, a user has
            left only after the grace period, or when another answer needs the place.
        user: The user's id, as your ``user`` function returned it.
        chat_id: The chat's id from the page, or None. Only its form is checked, not who owns the chat.
        question: The messages that were sent to the service, as JSON objects.
        message: The answer or the partial answer. None if nothing arrived.
        thread: The thread at the service, with its key, or None.
        finish_reason: The reason why the model stopped, or None.
        error: The error that interrupted the answer, or the error of the store that could not save it, or
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
    """The user and the chat of a question.

    Attributes:
        user: The user's id.
        address: The IP address, or its prefix, as named by :class:`.ClientAddresses`.
        chat_id: The chat's id from the page, or None.
        chat_key: The name of the chat in a store. It is a hash, from which nobody can read the user or the
            chat. Without a chat, "".
    """

    user: str
    address: str
    chat_id: str | None
    chat_key: str


@frozen(kw_only=True)
class AnswerHooks:
    """The functions of the relay for its answers.

    Attributes:
        shared: The store through which other workers find the answers, or None.
        unread: Called when the last reader has ended.
        tell: Calls the app's hook at the end of an answer that had started. It raises no error.
        ended: Frees the place of the answer.
    """

    shared: RedisStreamStore | None
    unread: Callable[[RunningAnswer], object]
    tell: Callable[[RelayedAnswer], Awaitable[None]]
    ended: Callable[[RunningAnswer], object]


class RunningAnswer:
    """The task that answers one question, and its log.

    Args:
        asker: The user and the chat.
        chat: Asks the question, and filters the events for the web page.
        earlier: The tasks of earlier answers in the chat, which were asked to stop.
        hooks: The functions of the relay.

    Attributes:
        id: A random name of the answer.
        log: The log that web pages read.
        about: The id of the question, and the history's data about it; see :attr:`.Chat.progress`.
        stopped: The outcome from :meth:`stop`, or None.
        read_at: When the answer last had a reader, by the loop's time.
        read_elsewhere: Whether the answer has a reader on another worker.
        resumable: Whether a page can find the answer again.
        task: The task of the answer.
    """

    def __init__(
        self,
        asker: Asker,
        chat: Chat,
        *,
        earlier: Collection[asyncio.Task[None]],
        hooks: AnswerHooks,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.asker = asker
        self.log = MemoryLog(self._left)
        self.about: dict[str, Any] = {}
        self.stopped: Outcome | None = None
        self.read_at = asyncio.get_running_loop().time()
        self.read_elsewhere = False
        self.resumable = asker.chat_key != ""
        self._chat = chat
        self._hooks = hooks
        self._limit = TimeLimit()  # stop() ends this limit
        self._reply: Reply | None = None  # set when the answer has started
        self._finished = False  # whether Finish, the last event, has arrived
        self._error: Exception | None = None
        self.task = asyncio.create_task(self._run(earlier, hooks.shared if self.resumable else None))

    @property
    def running(self) -> bool:
        """Whether more events may follow."""
        return not (self.stopped or self.log.ended)

    @property
    def unread(self) -> bool:
        """Whether the answer has no reader now."""
        return not self.log.readers and not self.read_elsewhere

    def stop(self, outcome: Outcome = "left") -> None:
        """End the answer at the service, and inform its readers. Repeated calls do nothing."""
        if not self.stopped:
            self.stopped = outcome
            self._limit.end()

    def _left(self) -> None:
        self.read_at = asyncio.get_running_loop().time()
        self._hooks.unread(self)

    async def _run(self, earlier: Collection[asyncio.Task[None]], shared: RedisStreamStore | None) -> None:
        outcome: Outcome = "failed"
        copying: asyncio.Task[None] | None = None
        try:
            # A stop does not end this wait. The chat's next answer waits for this answer, and so for the
            # earlier answers.
            if earlier:
                await asyncio.wait(earlier, timeout=MAKE_WAY)
            if shared is not None:
                copying = await self._begin_shared(shared)
            outcome = await self._answer(shared)
        except RelayRefusal as refusal:
            self._refuse(refusal)
        except asyncio.CancelledError:  # the app shuts down
            outcome = "interrupted"
            self.log.append(INTERRUPTED)
            raise
        except Exception:
            log.exception("an answer failed", extra=log_fields("ask"))
            self._refuse(RelayRefusal(500, AT_FAULT_TEXT))
        finally:
            try:
                if self._reply is not None:
                    await self._hooks.tell(self._description(self._reply, outcome))
            finally:
                self._hooks.ended(self)
                self.log.append(DONE)
                self.log.end()
                # The log may be kept for a while. The message and the error are deleted, because an error
                # keeps its frames.
                del self._chat, self._reply, self._error
                self.about.pop("progress", None)
        if copying is not None:
            await copying

    async def _answer(self, shared: RedisStreamStore | None) -> Outcome:
        """Ask, and write the answer. Return its outcome."""
        try:
            with self._limit:
                await self._chat.begin()
                self.about = {"question": self._chat.messages[-1]["id"], "progress": self._chat.progress}
                if shared is not None and self.resumable:
                    with self._else_alone():  # web pages find the answer by its question's id
                        await shared.describe(self.asker.chat_key, self.id, json.dumps(self.about))
                self._check_stop()
                self._reply = reply = await self._open()
                self._check_stop()
                await self._read(reply)
        except Exception as error:  # the app's own store may raise any error
            if self.stopped and isinstance(error, TimeoutError):
                if self._reply is None and self.stopped == "interrupted":
                    raise RelayRefusal(503, RESTARTING_TEXT, retry_after_header(1)) from None
            elif self._reply is None:
                raise
            else:
                self._fail(error)
        finally:
            await self._close()
        return self._ending()

    def _check_stop(self) -> None:
        """After :meth:`stop`, raise TimeoutError. An app's store may have swallowed the cancellation."""
        if self.stopped:
            raise TimeoutError

    async def _open(self) -> Reply:
        """Return the reply whose answer has started."""
        try:
            reply = await self._chat.open()
        except MintlifyError as error:
            raise self._chat.refusal(error) from None
        self._chat.hider.learn(sent_key(reply))
        self._chat.learn(reply.thread)
        return reply

    async def _read(self, reply: Reply) -> None:
        """Write each event in the web page's form."""
        await self.log.fill(partial(self._write_arrived, reply, stream_of(reply)))
        await reply.run()  # raises if the reply was closed early, for example with the session

    async def _write_arrived(self, reply: Reply, stream: MessageStream) -> bool:
        """Write the next event and all events that have arrived. Return False at the answer's end."""
        events, hider, writing = self._chat.events, self._chat.hider, self.log
        size = writing.size
        if size > MAX_BYTES:
            raise StreamInterruptedError(f"the answer is larger than {MAX_BYTES} bytes")
        try:
            event: StreamEvent | None = await anext(reply)
        except StopAsyncIteration:
            return False
        while event is not None:
            # Nine of ten events are deltas, which need only this check.
            delta = delta_frame(event, events, hider)
            if delta is not None:
                writing.append(delta)
            elif not writing.filling:  # the answer was closed while its turn was saved
                return False
            else:
                self._write(event, reply)
            if not stream.queue:
                return True
            if writing.size > size + TURN_BYTES:
                await asyncio.sleep(0)
                return True
            event = stream.next_delta() or await anext(reply, None)
        return False

    def _write(self, event: StreamEvent, reply: Reply) -> None:
        """Write an event that is not a usual delta."""
        if isinstance(event, ErrorEvent):
            return  # the reply raises the error
        self._finished = self._finished or isinstance(event, Finish)
        self._chat.learn(reply.thread)
        for event_frame in self._chat.frames(event.to_wire(), reply.thread):
            self.log.append(event_frame)

    async def _close(self) -> None:
        """Close the answer at the service. This saves the partial answer and lets the next question start."""
        if self._reply is not None:
            try:
                await self._reply.close()
            except Exception as error:  # the store failed
                self._fail(error)

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
            text = UNSAVED_TEXT if self._finished else cut_text(self._error)
            self.log.append(frame({"type": "error", "errorText": text}))
        whole = self._finished or self._error is None
        return "finished" if whole and not (reply is not None and reply.aborted) else "failed"

    def _fail(self, error: Exception) -> None:
        if self._error is not None or (self.stopped and isinstance(error, StreamInterruptedError)):
            return
        self._error = error
        what = "saved" if self._finished or self.stopped else "whole"
        level = logging.ERROR if what == "saved" else logging.WARNING
        id = self._reply.request_id if self._reply is not None else None
        fields, text = log_fields("ask", request_id=id), mask_service_keys(str(error))
        log.log(level, "an answer was not %s: %s: %s", what, type(error).__name__, text, extra=fields)

    def _refuse(self, refusal: RelayRefusal) -> None:
        """Send the readers the reason why there is no answer."""
        self.log.refusal = refusal
        self.log.append(frame({"type": "error", "errorText": refusal.detail}))

    def _description(self, reply: Reply, outcome: Outcome) -> RelayedAnswer:
        message = reply.message
        if message is not None and self._chat.answer_id:
            message = evolve(message, id=self._chat.answer_id)  # with the id that the page and the store have
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

    # Other workers ----------------------------------------------------------------------------

    async def _begin_shared(self, shared: RedisStreamStore) -> asyncio.Task[None] | None:
        """Make this the chat's newest answer on all workers, and wait until the previous answer has ended.

        Return the task that copies the log, or None if the store cannot be used.
        """
        key, loop_time = self.asker.chat_key, asyncio.get_running_loop().time
        until = loop_time() + MAKE_WAY
        copying: asyncio.Task[None] | None = None
        with self._else_alone():
            previous = await shared.begin(key, self.id)
            copying = asyncio.create_task(self._copy(shared))
            while previous and await shared.runs(key, previous):
                if loop_time() >= until or self.stopped == "interrupted":
                    break
                await asyncio.sleep(TICK)  # the previous answer runs on another worker, which sends no event
        return copying

    @contextmanager
    def _else_alone(self) -> Generator[None]:
        """If the store cannot be used in the block, mark the answer as not resumable."""
        try:
            yield
        except StateError as error:
            log.warning("the stream store cannot be used, so an answer cannot be resumed: %s", error)
            self.resumable = False

    async def _copy(self, shared: RedisStreamStore) -> None:
        """Copy the log to *shared* until the answer ends.

        Each write returns whether the answer must stop, and whether it has a reader on another worker.
        """
        loop_time = asyncio.get_running_loop().time
        place, written, away = 0, loop_time(), False
        while True:
            ended, frames = self.log.ended, self.log.since(place)
            if frames or ended or loop_time() - written > BEAT - TICK / 2:
                written, read = loop_time(), False
                try:
                    key, id = self.asker.chat_key, self.id
                    stopped, read = await shared.write(key, id, frames, at=place, ended=ended)
                    place, away = place + len(frames), False
                    if stopped:
                        self.stop()
                except StateError as error:
                    if not away:
                        log.warning("other workers cannot read an answer: %s", error)
                    away = True
                had_reader, self.read_elsewhere = self.read_elsewhere, read
                if had_reader and not read:
                    self._left()
                if ended:
                    return
            await asyncio.sleep(TICK)
