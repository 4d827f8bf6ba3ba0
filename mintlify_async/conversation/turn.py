"""ConversationTurn: the turn that a reply of a conversation belongs to.

A turn waits until it may start, is committed before its ``Finish`` is handed out, and is rolled back
when the answer ends in any other way. Until it is over, no other turn of the conversation starts.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field

from ..assistant.assistant_api import CloseIfUnused
from ..errors import APITimeoutError, MintlifyError, NotFoundError
from ..messages import Message
from ..model.thread import Thread
from ..protocol.calls import Call
from ..rendering.readable_text import shorten
from ..runtime.cancellation import cancel_requests
from ..runtime.limits import TimeLimit
from .history import Contents
from .transcript import Transcript, TurnQuestion

_log = logging.getLogger("mintlify_async")


@define(eq=False, repr=False)
class ConversationTurn:
    """Implements :class:`~mintlify_async.assistant.assistant_api.ReplyTurn`.

    Args:
        transcript: The transcript that the turn is committed to.
        turn_question: Its question.
        prepare: Returns the question to send, after the contents that it is given.
        first: The result of *prepare* when the reply was made.
        before: The contents at that moment.
        partial: Whether an answer that was broken off is committed when it has text.
        queue: Whether to wait in line while another turn is under way.
    """

    transcript: Transcript
    turn_question: TurnQuestion
    prepare: Callable[[Contents], Call]
    _first: Call | None = field(alias="first")
    _before: Contents = field(alias="before")  # the contents before this turn
    partial: bool
    queue: bool
    _deadline: float = field(default=math.inf, init=False)  # of the answer, by the loop's time
    _shown: tuple[int, str | None] | None = field(default=None, init=False)  # by edits: characters, the site
    _committed: tuple[Message, Thread | None] | None = field(default=None, init=False)  # answer, thread
    _answer_id: str = field(default="", init=False)
    _store_error: Exception | None = field(default=None, init=False)
    _gave_up: bool = field(default=False, init=False)  # the save was cancelled before it was done
    _close_reply: CloseIfUnused | None = field(default=None, init=False)
    _task: asyncio.Task[Any] | None = field(default=None, init=False)  # the task that entered
    _under_way: bool = field(default=False, init=False)
    _settled: bool = field(default=False, init=False)

    async def enter(self, close_if_unused: CloseIfUnused) -> Call | None:
        """Take the lock and check the store. Return the question, rebuilt if the history has changed."""
        transcript = self.transcript
        first_call = self._first or self.prepare(
            self._before
        )  # an observer that failed lets it be entered again
        total = first_call.timeouts.total
        now = asyncio.get_running_loop().time
        self._deadline = deadline = math.inf if total is None else now() + total
        history = await self._begin(TimeLimit(deadline), total)
        self._under_way = transcript.active = True
        self._settled = False
        self._task = asyncio.current_task()
        self._close_reply = close_if_unused
        prepared, self._first = first_call, None
        if history is not self._before:
            self._before = history
            try:
                prepared = self.prepare(history)
            except BaseException:
                self._roll_back()
                self.left()
                raise
        if total is not None:
            prepared = prepared.within(deadline - now())
        return None if prepared is first_call else prepared

    def refused(self, call: Call, error: MintlifyError) -> Call | None:
        """Return the question to send once more, without the thread that the service has lost."""
        thread = call.thread
        if not isinstance(error, NotFoundError) or thread is None or thread.key is None:
            return None
        _log.warning("the service has lost a conversation's thread: the question is asked in a new one")
        self._before = evolve(self._before, thread=None)
        second_call = self.prepare(self._before)
        if self._deadline == math.inf:
            return second_call
        return second_call.within(self._deadline - asyncio.get_running_loop().time())

    def shown(self, site: str | None, characters: int) -> None:
        """Say how much of the answer's text the reader was shown, who leaves before its end."""
        self._shown = (characters, site)

    async def _begin(self, limit: TimeLimit, total: float | None) -> Contents:
        """Wait in line and check the store, until *limit*; return the contents before this turn."""
        transcript = self.transcript
        try:
            async with limit:
                await transcript.lock.acquire(self.release_if_over, queue=self.queue)
                try:
                    # Turns that were ahead in line have run, so their revision is not a conflict.
                    await transcript.check_store(refresh=self.queue, replacing=self.turn_question.replacing)
                    return transcript.before(self.turn_question)
                except BaseException:
                    transcript.lock.release()
                    raise
        except TimeoutError:
            if total is None or not limit.over:
                raise  # the store's own
        text = f"ask: not sent within {total:g} s (total timeout): other turns, or the conversation's store"
        raise APITimeoutError(text, phase="total", seconds=total, sent="no", operation="ask")

    async def finished(self, message: Message | None, thread: Thread | None) -> None:
        """Commit. The store's error is raised when the reply ends, so that ``Finish`` is handed out first."""
        try:
            await self._commit(message, thread)
        except Exception as error:
            self._store_error = error
        except asyncio.CancelledError:
            self._gave_up = self._committed is None
            raise

    async def ended(self, message: Message | None, thread: Thread | None, *, whole: bool) -> None:
        """Commit a finished turn once, or roll it back once. Raises the store's error."""
        if not self._under_way or self._settled:
            return
        self._settled = True
        if self._store_error is not None:
            self._roll_back()
            raise self._store_error
        if message is not None and self._shown is not None and not whole and self._committed is None:
            message = shorten(message, *self._shown)
        if not self._to_be_saved(message, whole):
            self._roll_back()
            return
        try:
            await self._commit(message, thread)
        except asyncio.CancelledError:
            if self._committed is None:
                self._roll_back()
            raise

    def _to_be_saved(self, message: Message | None, whole: bool) -> bool:
        """Return whether the turn is worth saving, and its task has not given that up."""
        if self._gave_up and cancel_requests() > 0:  # else only one step of the reply was cancelled
            return False
        has_text = message is not None and bool(message.text)
        # A part of an answer never takes the place of a complete one.
        partial = self.partial and has_text and self.turn_question.replacing is None
        return self._committed is not None or whole or partial

    def left(self) -> None:
        """Let the next turn start."""
        if self._under_way:
            self._under_way = self.transcript.active = False
            self._task = None
            self.transcript.lock.release()

    async def _commit(self, message: Message | None, thread: Thread | None) -> None:
        """If there is an answer and it was not committed yet, commit it with its question."""
        if message is None:
            return
        history = self._before
        if self.turn_question.finish is not None:
            message = self.turn_question.finish(message)
        self._answer_id = self._answer_id or self.turn_question.answer_id(message.id, history)
        answer = evolve(message, id=self._answer_id, role="assistant")
        if (answer, thread) == self._committed:
            return
        contents = history.with_turn(self.turn_question.question, answer, thread)
        try:
            # A task that was cancelled while it read the answer is in a hurry as well.
            await self.transcript.save(contents, first_changed=history.end, hurry=cancel_requests() > 0)
        finally:
            if self.transcript.saved is contents:
                self._committed = (answer, thread)

    def _roll_back(self) -> None:
        self.transcript.unfinished = self.turn_question

    def release_if_over(self) -> bool:
        """If this turn is over or abandoned, let the next one start. Return whether it did.

        It is over if it was committed and only its reply was not closed. Inside the reply's block, it is over
        only for the block's own task. It is abandoned if the task that read the reply outside a block has
        ended, because a cancellation's traceback may keep such a reply alive.
        """
        close_reply = self._close_reply() if self._close_reply is not None else None
        over = self._settled or self._committed is not None
        abandoned = self._task is not None and self._task.done()
        if close_reply is None or not (over or abandoned):
            return False
        own_block = over and self._task is _current_task()
        if not close_reply(own_block):
            return False
        if not over:
            self._roll_back()
        self.left()
        return True

    def __del__(self) -> None:
        """Roll back a turn whose reply was dropped before its end."""
        if getattr(self, "_under_way", False):
            if not self._settled and self._committed is None:
                self._roll_back()
            self.left()


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running in this thread
        return None
