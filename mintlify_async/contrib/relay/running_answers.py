"""Starts, finds and stops running answers, on this worker and on others.

An answer belongs to a user and a chat. Other users do not find it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request

from mintlify_async import StateError
from mintlify_async.protocol.object_checks import Kind

from ..stream_store import MemoryStreamStore
from .answer import gone
from .live_answer import LiveAnswer, LiveReader
from .refusals import BUSY, RelayRefusal
from .shared_answers import TICK, AnswerWriter, SharedReader
from .shutdown import LAST_WORDS

if TYPE_CHECKING:
    from ..stream_store import SharedStreamStore
    from .answer import AnswerSettings, OpenReply, Readable
    from .stored_chats import StoredChats

log = logging.getLogger("mintlify_async.relay")

MAKE_WAY = 2.0
"""Seconds that the next question of a chat waits until the running answer has been stopped."""

STREAMS = Kind("a stream store", ("write", "read", "stop"), "MemoryStreamStore()")

Opening = Callable[["LiveAnswer"], "Coroutine[Any, Any, OpenReply]"]


class RunningAnswers:
    """The running answers of one relay.

    Args:
        store: Where they are kept.
        settings: The relay's settings for answers.
        chats: The conversations in the app's store, or None.
    """

    def __init__(
        self,
        store: MemoryStreamStore | SharedStreamStore,
        settings: AnswerSettings,
        chats: StoredChats | None,
    ) -> None:
        self._store = store
        self._chats = chats
        self._shared = None if isinstance(store, MemoryStreamStore) else store
        self._settings = settings
        self._here: dict[str, LiveAnswer] = {}
        self._writers: dict[LiveAnswer, AnswerWriter] = {}
        self._writing: set[asyncio.Task[bool]] = set()

    async def ask(self, request: Request, opening: Opening) -> Readable:
        """Start *opening* in a task of its own, and return a reader when the answer has begun.

        Raises:
            RelayRefusal: There is no answer.
            ClientDisconnect: The reader left. If the question was complete, the answer goes on.
        """
        live = LiveAnswer(self._settings, grace=self._store.grace, max_bytes=self._store.max_bytes)
        reader, asked, opened = LiveReader(live), live.asked, live.opened
        live.start(opening(live))
        try:
            await asyncio.wait([asked])  # until then the task reads the body, and notices a reader who leaves
            if not asked.cancelled():
                asked.result()
            leaving = asyncio.ensure_future(gone(request.receive))
            try:
                await asyncio.wait((opened, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                await asyncio.wait([leaving])
            if not opened.done():
                raise ClientDisconnect
            if not opened.cancelled():  # it was stopped meanwhile, as its reader is told
                opened.result()
        except BaseException:
            await reader.close()
            if not asked.done():
                live.stop()
            raise
        return reader

    async def make_way(self, live: LiveAnswer, user: str, chat_id: str | None) -> None:
        """Give *live* the place of its chat, after the answer that has it was stopped and its hooks called.

        From now on, the chat's next question stops *live*, also while it waits.
        """
        if chat_id is None:
            return
        chat = live.chat = chat_key(user, chat_id)
        live.before, self._here[chat] = self._here.get(chat), live
        live.on_end(partial(self._ended, chat, live))
        clock = self._settings.clock
        until = clock.now() + MAKE_WAY
        try:
            with suppress(TimeoutError):
                async with clock.deadline(until):
                    await self._follow(live)
            if self._shared is not None:
                self._writers[live] = writer = AnswerWriter(self._shared, live, chat)
                placed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                task = asyncio.create_task(
                    self._write(
                        live, writer, until, placed, partial(self._elsewhere, user, chat_id, hurry=True)
                    )
                )  # also when live is stopped
                self._writing.add(task)
                task.add_done_callback(partial(self._written, chat, live))
                await asyncio.shield(placed)
        except StateError as error:
            self._leave_alone(live, error)

    async def begin(self, live: LiveAnswer, question: str, asked: str = "") -> None:
        """Let readers of its chat find *live*, the answer to the message whose id is *question*.

        *asked* is what :meth:`asked_elsewhere` returns on other workers.
        """
        live.question, live.asked_of_store = question, asked
        if live.chat and live in self._writers:
            try:
                await self._writers[live].write()
            except StateError as error:
                self._leave_alone(live, error)
        if not live.chat:
            live.grace = 0.0  # no page can find it again
        if not live.asked.done():
            live.asked.set_result(None)

    def _leave_alone(self, live: LiveAnswer, error: StateError) -> None:
        log.warning("an answer goes to its reader alone: %s", error)
        live.chat = ""

    async def _follow(self, live: LiveAnswer) -> None:
        """Stop the answers before *live* and return when they have ended."""
        while (before := live.before) is not None:
            before.stop()
            await before.wait()
            if before in self._writers:
                await self._writers[before].write()  # the end, before its task does so
            live.before = before.before  # which it had not waited for when it was stopped

    async def find(self, user: str, chat_id: str, after: str | None) -> Readable | None:
        """Return a reader of the chat's answer, from its beginning; None when there is nothing to read.

        Args:
            user: The user's id.
            chat_id: The id that the page gave the chat.
            after: The id of the last message that the page has whole. Only the answer to that message is
                read, also one that has ended. None: any answer that runs.
        """
        chat = chat_key(user, chat_id)
        live = self._here.get(chat)
        if live is not None and _wanted(live.question, after, not live.ended):
            return LiveReader(live)
        try:
            reader = await self._elsewhere(user, chat_id)
        except StateError as error:
            log.warning("an answer cannot be resumed: %s", error)
            return None
        if reader is None or _wanted(reader.found.question, after, reader.found.running):
            return reader
        await reader.end_if_lost()
        return None

    async def asked_elsewhere(self, user: str, chat_id: str) -> str:
        """Return what is being answered in the chat on another worker; "" when nothing is."""
        chat = chat_key(user, chat_id)
        live = self._here.get(chat)
        if live is not None and not live.ended:
            return ""
        try:
            reader = await self._elsewhere(user, chat_id)
        except StateError as error:
            log.warning("a history may lack the question that another worker answers: %s", error)
            return ""
        if reader is None:
            return ""
        await reader.end_if_lost()
        return reader.found.asked if reader.found.running and not reader.found.lost else ""

    async def _elsewhere(self, user: str, chat_id: str, *, hurry: bool = False) -> SharedReader | None:
        """Return a reader of the chat's latest answer in the shared store, from its beginning."""
        if self._shared is None:
            return None
        chat = chat_key(user, chat_id)
        found = await self._shared.read(chat, None, 0, hurry=hurry)
        if found is None:
            return None
        return SharedReader(self._shared, chat, found, self._settings, user, chat_id, self._chats)

    async def stop(self, user: str, chat_id: str) -> None:
        """Stop the chat's answer, if one runs.

        Raises:
            RelayRefusal: The store cannot be used.
        """
        chat = chat_key(user, chat_id)
        live = self._here.get(chat)
        try:
            if live is not None and not live.ended:
                live.stop()
            elif self._shared is not None:
                await self._shared.stop(chat)
        except StateError as error:
            log.warning("an answer cannot be stopped: %s", error)
            raise RelayRefusal(503, BUSY) from None

    async def written(self) -> None:
        """Return when other workers can read the ends of the answers, or after a moment."""
        clock = self._settings.clock
        with suppress(TimeoutError):
            async with clock.deadline(clock.now() + LAST_WORDS):
                while self._writers:
                    await clock.sleep(TICK)

    async def _write(
        self,
        live: LiveAnswer,
        writer: AnswerWriter,
        until: float,
        placed: asyncio.Future[None],
        before: Callable[[], Coroutine[Any, Any, SharedReader | None]],
    ) -> bool:
        """Write *live* when it has its chat's place, from *until* on by force.

        *before* returns a reader of the answer that has it. Return whether the store has all that it needs
        to have.
        """
        clock = self._settings.clock
        try:
            while not await writer.take_place(force=clock.now() >= until):
                if (reader := await before()) is not None:
                    await reader.end_if_lost()
                await clock.sleep(TICK)
                if live.ended:  # it was stopped
                    return True
        except Exception as error:  # a store of the app's own may raise anything
            placed.set_exception(error)
            return False
        placed.set_result(None)
        return await writer.run()

    def _ended(self, chat: str, live: LiveAnswer) -> None:
        if live not in self._writers:
            self._forget_later(chat, live)

    def _written(self, chat: str, live: LiveAnswer, task: asyncio.Task[bool]) -> None:
        self._writing.discard(task)
        del self._writers[live]
        if not task.cancelled() and task.result():
            self._forget(chat, live)
        else:
            self._forget_later(chat, live)

    def _forget_later(self, chat: str, live: LiveAnswer) -> None:
        clock = self._settings.clock
        if self._here.get(chat) is live:
            clock.call_at(clock.now() + self._store.keep, partial(self._forget, chat, live))

    def _forget(self, chat: str, live: LiveAnswer) -> None:
        if self._here.get(chat) is live:
            del self._here[chat]


def running_answers(
    store: MemoryStreamStore | SharedStreamStore | None,
    settings: AnswerSettings,
    chats: StoredChats | None,
) -> RunningAnswers | None:
    """Return the running answers that *store* keeps, if there is one.

    Raises:
        ConfigurationError: *store* is something else.
    """
    if store is None:
        return None
    if not isinstance(store, MemoryStreamStore):
        STREAMS.check(store, "streams")
    return RunningAnswers(store, settings, chats)


def _wanted(question: str, after: str | None, running: bool) -> bool:
    return running if after is None else question == after


def chat_key(user: str, chat_id: str) -> str:
    """Return the name of a chat in a store, from which neither user nor chat can be read."""
    text = "mintlify-async answers\0" + json.dumps([user, chat_id])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
