"""ConversationTurn: the turn of a conversation that a reply belongs to.

A turn waits until it may start. It is saved before its ``Finish`` is returned, and rolled back if the answer
ends in any other way. Until the turn is over, no other turn of the conversation starts. A cancellation never
stops the save. The cancelled caller returns, and the next caller waits for the same save.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, Literal

from attrs import define, evolve, field

from ..assistant.reply import CloseIfUnused
from ..errors import MintlifyError
from ..http.connection_errors import timed_out
from ..messages import Message
from ..model.thread import Thread, thread_is_lost
from ..protocol.requests import Call, new_message_id
from ..rendering.readable_text import shorten
from ..runtime.lasting_steps import KeptStep, Recordings
from ..runtime.time_limits import TimeLimit
from .history import History, TurnQuestion
from .transcript import Transcript
from .turn_lock import TurnLock

_log = logging.getLogger("mintlify_async")


@define(eq=False, repr=False)
class ConversationTurn:
    """Implements :class:`~mintlify_async.assistant.reply.ReplyTurn`.

    Args:
        transcript: The transcript that the turn is saved to.
        turn_question: The question of the turn.
        prepare: Takes a history, and returns the request with its messages.
        history: The history before this turn.
        call: The request made from *history*.
        get_recordings: Returns the running loop's group of saves in the background.
    """

    transcript: Transcript
    _turn_question: TurnQuestion
    _prepare: Callable[[History], Call]
    _history: History
    _call: Call
    _get_recordings: Callable[[], Recordings]
    _state: Literal["waiting", "under way", "finished", "settled", "over"] = field(
        default="waiting", init=False
    )
    _lock: TurnLock | None = field(default=None, init=False)  # set from the start until the turn is over
    _deadline: float = field(default=math.inf, init=False)  # when the answer must end, by the loop's time
    _close_reply: CloseIfUnused | None = field(default=None, init=False)
    _shown_extent: tuple[int, str | None] | None = field(
        default=None, init=False
    )  # set by edits(): the number of shown characters, and the site URL
    _answer: tuple[Message, Thread | None] | None = field(default=None, init=False)  # the answer to save
    _new_history: History | None = field(default=None, init=False)  # the history with the answer to save
    _recordings: Recordings | None = field(default=None, init=False)  # of the loop on which the turn started
    _saving: KeptStep | None = field(default=None, init=False)
    _to_save: tuple[Message, Thread | None] | None = field(default=None, init=False)  # saved by _saving
    _is_stored: bool = field(default=False, init=False)

    async def enter(self, close_if_unused: CloseIfUnused) -> Call:
        """Take the lock and check the store. Return the request, made again if the history has changed."""
        self._deadline = asyncio.get_running_loop().time() + self._call.seconds
        self._recordings = self._get_recordings()  # the session may close before the answer ends
        limit = TimeLimit(self._deadline)
        try:
            with limit:
                await self._begin()
        except TimeoutError:
            if not limit.over:
                raise  # the store's own error
            what = "an earlier turn or the conversation's store took too long, so the question was not sent"
            raise timed_out("ask", "total", self._call.seconds, "no", what) from None
        self._close_reply = close_if_unused
        return self._within_deadline(self._call)

    async def _begin(self) -> None:
        """Wait in line and check the store."""
        transcript, queue = self.transcript, self.transcript.settings.queue
        lock = transcript.lock
        await lock.acquire(self, queue=queue)
        self._lock = lock
        try:
            # Turns that waited before this one have run, so their version is no conflict.
            await transcript.catch_up(refresh=queue, replacing=self._turn_question.replacing)
            history, self._state = transcript.before(self._turn_question), "under way"
            if history is not self._history:
                self._call, self._history = self._prepare(history), history
        except BaseException:
            self.left()
            raise

    def stepped(self) -> None:
        """Record that the running task reads the reply."""
        task = asyncio.current_task()
        if self._lock is not None and task is not None:
            self._lock.read_by(task)

    def refused(self, call: Call, error: MintlifyError) -> Call | None:
        """If *error* (404) means that the thread is lost, return the request without the thread."""
        thread = call.thread
        if not thread_is_lost(error) or thread is None or thread.key is None:
            return None
        _log.warning("the service has lost a conversation's thread: the question is asked in a new one")
        self._history = evolve(self._history, thread=None)
        return self._within_deadline(self._prepare(self._history))

    def _within_deadline(self, call: Call) -> Call:
        return call.within(self._deadline - asyncio.get_running_loop().time())

    def shown(self, site: str | None, characters: int | None) -> None:
        """Set how many characters of the answer the user has seen. None means all received characters."""
        self._shown_extent = None if characters is None else (characters, site)

    async def finished(self, message: Message | None, thread: Thread | None) -> None:
        """Save the turn. The store's error is raised when the reply ends, after ``Finish`` was returned."""
        if message is not None and self._state in ("under way", "finished"):
            self._state = "finished"
            self._save(message, thread)
        if self._saving is not None:
            await self._saving.ended()

    async def ended(
        self, message: Message | None, thread: Thread | None, *, whole: bool, cancelled: bool
    ) -> None:
        """Save a finished turn once, or roll it back once. Raise the store's error."""
        if self._state in ("under way", "finished"):
            self._settle(message, thread, whole=whole or self._state == "finished")
        if self._saving is not None:
            await self._saving.result(cancelled=cancelled)

    def _settle(self, message: Message | None, thread: Thread | None, *, whole: bool) -> None:
        self._state = "settled"  # so that close() in another task does not end the turn twice
        if message is not None and self._shown_extent is not None and not whole:
            message = shorten(message, *self._shown_extent)
        # A partial answer never replaces a complete answer.
        partial = self.transcript.settings.commit == "partial" and self._turn_question.replacing is None
        if message is not None and (whole or (partial and message.text)):
            self._save(message, thread)
        else:
            self.transcript.unfinished = self._turn_question

    def left(self) -> None:
        """Let the next turn start. If this turn is still running, it is rolled back."""
        lock, self._lock = self._lock, None
        if lock is not None:
            if self._state == "under way":
                self.transcript.unfinished = self._turn_question
            self._state = "over"
            lock.release()

    def _save(self, message: Message, thread: Thread | None) -> None:
        """If no save of this answer was started, start one."""
        if self._to_save == (message, thread):
            return
        assert self._recordings is not None
        step = self._commit(self._saving, message, thread)
        self._saving = self.transcript.keep(step, self._recordings)
        self._to_save = message, thread

    async def _commit(self, save_before: KeptStep | None, message: Message, thread: Thread | None) -> None:
        """If this answer is not saved yet, save it with its question."""
        try:
            if save_before is not None:
                await save_before.result()
            history = self._history_with(message, thread)
            if self.transcript.history is not history:
                await self.transcript.save(history)
                self._is_stored = True
                self._history = evolve(self._history, version=history.version)
        finally:
            if not self._is_stored:
                self.transcript.unfinished = self._turn_question

    def _history_with(self, message: Message, thread: Thread | None) -> History:
        question, history = self._turn_question, self._history
        if question.finish is not None:
            message = question.finish(message)
        id = message.id if self._answer is None else self._answer[0].id
        if not id or id in history.ids or any(one.id == id for one in question.messages):
            id = new_message_id()
        answer = evolve(message, id=id, role="assistant")
        if self._new_history is None or (answer, thread) != self._answer:
            self._answer = answer, thread
            with_turn = history.with_messages((*question.messages, answer))
            self._new_history = with_turn.next_version(thread or history.thread)
        return self._new_history

    def release_if_over(self, task: asyncio.Task[Any] | None) -> None:
        """Let the next turn start if this turn is over or abandoned. *task* took the last step of this turn.

        A turn is over if its answer has ended, even if the reply was not closed. Inside the reply's block,
        this applies only to the block's own task. A turn is abandoned if the task that read the reply outside
        a block has ended. The reply may still exist, because a cancellation's traceback can keep it alive.
        """
        close_reply = self._close_reply() if self._close_reply is not None else None
        is_own_task = task is asyncio.current_task()
        is_saved = self._saving is None or self._saving.done  # otherwise the reply's task may wait for it
        is_over = self._state in ("finished", "settled") and (is_own_task or is_saved)
        is_abandoned = task is None or task.done()
        if close_reply is None or not (is_over or is_abandoned):
            return
        if close_reply(is_over and is_own_task):
            self.left()
