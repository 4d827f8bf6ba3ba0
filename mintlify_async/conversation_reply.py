"""A question and its conversation come in; a reply goes out that commits its turn, or rolls it back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from attrs import evolve

from .assistant import Reply
from .cancellation import Deadline, finish_shielded
from .errors import StateError
from .events import Finish, StreamEvent
from .parts import Message
from .record import Record, Said, new_message_id

__all__ = ["ConversationReply"]

_log = logging.getLogger("mintlify_async")


class ConversationReply(Reply):
    """A reply that is one turn of a conversation; see :meth:`Conversation.ask`."""

    __slots__ = (
        "__weakref__",
        "_answer_id",
        "_ask",
        "_before",
        "_committed",
        "_entering",
        "_held",
        "_inside",
        "_options",
        "_partial",
        "_question",
        "_queue",
        "_record",
        "_settled",
        "_task",
        "_trouble",
    )

    def __init__(
        self,
        record: Record,
        ask: Callable[[], Reply],
        question: tuple[Message, ...],
        options: Mapping[str, Any],
        *,
        partial: bool,
        queue: bool,
    ) -> None:
        """Check everything that can be checked; nothing changes yet."""
        probe = ask()
        assert probe._asker is not None  # it is new
        assert probe._request is not None
        super().__init__(probe._asker, probe._request, probe._settings, probe._message)
        self._record = record
        self._ask = ask
        self._question = question
        self._options = options
        self._partial = partial
        self._queue = queue
        self._before = record.said  # what was said before this turn
        self._committed: Said | None = None
        self._answer_id = ""
        self._held: StreamEvent | None = None  # read, but not handed out: the step was cancelled while saving
        self._trouble: Exception | None = None  # the store's
        self._task: asyncio.Task[Any] | None = None  # which entered
        self._entering = self._inside = self._settled = False

    # Entering -------------------------------------------------------------------------------

    async def _start(self, *, entered: bool = False) -> Self:
        self._entered |= entered
        if self._started or self._closed:
            return self
        if self._entering or self._inside:
            raise StateError("this reply is already being read by another task; read it in one, or ask twice")
        self._entering = True
        self._opening = waiting = Deadline()  # close() ends it
        try:
            with waiting:
                await self._enter()
        except TimeoutError:
            if not waiting.ended:
                raise
        finally:
            self._entering = False
            self._opening = None
        if self._closed:  # by another task, while it waited in line
            await self._leave()
            return self
        try:
            self._ask_anew()
            return await super()._start()
        except BaseException as error:
            self._end(error)
            await self._leave(error)  # a block that was not entered is not left
            raise

    async def _enter(self) -> None:
        """Begin the turn: when it is its time, and nobody else has saved."""
        record = self._record
        await record.gate.enter(self, queue=self._queue)
        try:
            await record.check_store(refresh=self._queue)  # who stands in line expects that others go before
            record.check_new(self._question)
        except BaseException:
            record.gate.leave()
            raise
        self._inside = record.active = True
        self._task = asyncio.current_task()

    def _ask_anew(self) -> None:
        """Ask with the history as it is now that the turn has begun."""
        if self._record.said is not self._before:
            probe = self._ask()
            self._asker, self._request, self._settings = probe._asker, probe._request, probe._settings
            self._thread, self._message = probe._thread, probe._message
            self._before = self._record.said

    # Reading --------------------------------------------------------------------------------

    async def __anext__(self) -> StreamEvent:
        """Return the next event; the turn is committed before ``Finish`` is handed out.

        Raises:
            StopAsyncIteration: The answer ended, or was closed.
            StreamError: The answer did not arrive whole; nothing was committed.
            StateError: Another task is reading it, or another turn is under way.
            StoreConflictError: Somebody else saved; nothing was committed.
        """
        if self._held is not None:
            event, self._held = self._held, None
            return event
        try:
            event = await super().__anext__()
        except StopAsyncIteration:
            await self._settle()
            raise
        except BaseException as error:
            if self._closed:
                await self._settle(error)
            raise
        if isinstance(event, Finish):
            await self._commit_at(event)
        return event

    async def _commit_at(self, event: StreamEvent) -> None:
        """Commit at ``finish``. An error of the store is raised when the reply ends, after this event."""
        self._held = event
        try:
            await self._commit()
        except Exception as error:
            self._trouble = error
        self._held = None

    async def _commit(self) -> None:
        said = self._said_now()
        if said is None or said == self._committed:
            return
        if self._record.has_store:
            await finish_shielded(self._commit_whole(said))
        else:
            await self._commit_whole(said)

    async def _commit_whole(self, said: Said) -> None:
        await self._record.save(said)
        self._committed = said

    def _said_now(self) -> Said | None:
        """Return what was said, this turn included; None when there is no answer."""
        message, before = self.message, self._before
        if message is None:
            return None
        taken = before.ids() | {one.id for one in self._question}
        if not self._answer_id:
            self._answer_id = message.id if message.id and message.id not in taken else new_message_id()
        answer = evolve(message, id=self._answer_id, role="assistant")
        return Said(messages=(*before.messages, *self._question, answer), thread=self.thread or before.thread)

    # Ending ---------------------------------------------------------------------------------

    async def run(self) -> Self:
        """Read to the end and return this reply; see :meth:`Reply.run`.

        Raises:
            StreamError: The answer did not arrive whole; nothing was committed.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            StateError: Another task is reading it, or another turn is under way.
            StoreConflictError: Somebody else saved; nothing was committed.
        """
        if self._trouble is not None:
            raise self._trouble
        try:
            return await super().run()
        except BaseException as error:
            if self._closed:
                await self._settle(error)
            raise

    async def close(self) -> None:
        """Give the answer up and free its connection at once; a turn that did not finish is rolled back.

        Raises:
            StoreConflictError: It had finished, and somebody else saved.
        """
        self._shut()
        await self._leave()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; see :meth:`close`."""
        self._shut()
        await self._leave(error)

    async def _leave(self, error: BaseException | None = None) -> None:
        """Settle the turn, and let the next one through."""
        try:
            await self._settle(error)
        finally:
            self._let_through()

    def _let_through(self) -> None:
        if self._inside:
            self._inside = self._record.active = False
            self._task = None
            self._record.gate.leave()

    async def _settle(self, error: BaseException | None = None) -> None:
        """Commit or roll back, once. The store's error is raised unless *error* is on its way already.

        Inside its block the turn goes on until the block is left: what was read may still be
        being shown, and the next answer must not run into it.
        """
        if not self._inside or self._settled:
            return
        self._settled = True
        try:
            await self._conclude()
        except Exception as trouble:
            self._trouble = trouble
            if error is None:
                raise
            _log.warning("the turn of a conversation was not saved: %s", trouble)
        finally:
            if not self._entered:
                self._let_through()

    async def _conclude(self) -> None:
        """Commit what is finished, or roll back."""
        if self._trouble is not None:
            self._roll_back()
            raise self._trouble
        ended_well = self.complete and not self.aborted and self._error is None
        if self._committed is not None or ended_well or (self._partial and self.text):
            await self._commit()
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        self._record.failed = (self._question, self._options)

    def make_way(self) -> bool:
        """Leave when nobody is at this turn any more, or only the task that asks now, with the answer kept.

        A reply that was read outside a block by a task that was cancelled is nobody's,
        though the cancellation's traceback may keep it alive.
        """
        over = self._settled or self._committed is not None
        task = self._task
        abandoned = not self._entered and task is not None and task.done()
        ours = not self._entered or task is _current_task()
        if self._busy or not (abandoned or (over and ours)):
            return False
        self._shut()
        if not over:
            self._roll_back()
        self._let_through()
        return True

    def __del__(self) -> None:
        """Roll a turn back that nobody ended."""
        if getattr(self, "_inside", False):
            if not self._settled and self._committed is None:
                self._roll_back()
            self._let_through()
        super().__del__()


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running here
        return None
