"""The life of every answer of one relay: its place, its readers, its grace period and its end.

This module starts, finds and ends the answers. It limits how many run in total, for a user and for an IP
address. An answer belongs to a user and a chat. Other users do not find it. With a shared store, every
worker finds it. The worker that reads the answer writes the answer's log to the store. From the store, this
worker also learns whether a user of another worker pressed Stop or reads the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mintlify_async import StateError

from ..memory_stream_store import MemoryStreamStore
from .answer_log import TICK, Log, SharedLog
from .chats import Chat
from .client_address import ADDRESS_SHARE
from .refusal_texts import BUSY_TEXT, RESTARTING_TEXT, TOO_MANY_TEXT, RelayRefusal, retry_after_header
from .running_answer import MAKE_WAY, AnswerHooks, Asker, RelayedAnswer, RunningAnswer

if TYPE_CHECKING:
    from ..redis.redis_stream_store import RedisStreamStore, SharedAnswer

log = logging.getLogger("mintlify_async.relay")

LAST_WORDS = 2.0  # seconds for interrupted answers to send their error and to call the app's hook
UNREAD_PER_USER = 2  # answers of one user that may continue without a reader


class RunningAnswers:
    """Starts, finds and stops the answers of one relay.

    Args:
        streams: The store of answers that continue without a reader, or None.
        most: Maximum number of answers that run at the same time.
        per_user: Maximum number of answers that run at the same time for one user.
        tell: Calls the app's hook. *tell* never raises an error.
    """

    def __init__(
        self,
        streams: MemoryStreamStore | RedisStreamStore | None,
        *,
        most: int,
        per_user: int,
        tell: Callable[[RelayedAnswer], Awaitable[None]],
    ) -> None:
        self._shared = None if streams is None or isinstance(streams, MemoryStreamStore) else streams
        self._grace = 0.0 if streams is None else streams.grace
        self._keep = 0.0 if streams is None else streams.keep
        self._most, self._per_user = most, per_user
        self._hooks = AnswerHooks(shared=self._shared, unread=self._unread, tell=tell, ended=self._ended)
        self._running: dict[RunningAnswer, None] = {}  # the oldest first
        self._newest: dict[str, RunningAnswer] = {}  # by chat
        self._readers: list[Asker] = []  # the readers of existing logs
        self._tasks: set[asyncio.Task[Any]] = set()  # the tasks of answers and of responses
        self._draining = self._cutting = False

    @property
    def count(self) -> int:
        """The number of running answers."""
        return len(self._running)

    def check_open(self) -> None:
        """Raise RelayRefusal if the app shuts down."""
        if self._draining:
            raise RelayRefusal(503, RESTARTING_TEXT, retry_after_header(1))  # by then, another process runs

    @asynccontextmanager
    async def ask(self, asker: Asker, chat: Chat) -> AsyncGenerator[Log]:
        """Start the answer to the question of *chat*, and read it while the block runs.

        Raises:
            RelayRefusal: There is no place, or the app shuts down.
        """
        self.check_open()
        earlier = self._of_chat(asker.chat_key)
        for answer in self._making_way(asker, earlier):
            answer.stop()
        answer = RunningAnswer(asker, chat, earlier=[one.task for one in earlier], hooks=self._hooks)
        self._running[answer] = None
        if asker.chat_key:
            self._newest[asker.chat_key] = answer
        self._wait_for(answer.task)
        self._wait_for(asyncio.current_task())
        with answer.log.reading():
            yield answer.log

    @asynccontextmanager
    async def read(self, reader: Asker, opened: Callable[[], Awaitable[Log]]) -> AsyncGenerator[Log]:
        """Read the log that *opened* returns, while the block runs.

        As many logs can be read at the same time as answers can run: in total, for a user and for an IP
        address.

        Raises:
            RelayRefusal: There is no place, or *opened* raises it.
        """
        for same, most, refusal in self._places(reader):
            if sum(map(same, self._readers)) >= most:
                raise refusal
        self._wait_for(asyncio.current_task())
        self._readers.append(reader)
        try:
            source = await opened()
            with source.reading():
                yield source
        finally:
            self._readers.remove(reader)

    async def find(self, chat_key: str, after: str | None) -> Log | None:
        """Return the log of the chat's answer, or None.

        Args:
            chat_key: The key of the chat.
            after: The id of the last complete message in the web page. Only the answer to that message is
                read, even if it has ended. None means any running answer.
        """

        def wanted(answer: RunningAnswer | SharedAnswer) -> bool:
            return answer.running if after is None else answer.about.get("question") == after

        answer = await self._newest_of(chat_key, wanted)
        if isinstance(answer, RunningAnswer):
            return answer.log
        if answer is None or self._shared is None:
            return None
        return SharedLog(self._shared, chat_key, answer.id, lambda: self._cutting)

    async def progress(self, chat_key: str) -> dict[str, Any] | None:
        """Return :attr:`.Chat.progress` of the running answer in a chat, or None."""
        if ending := [answer.task for answer in self._of_chat(chat_key) if answer.stopped]:
            await asyncio.wait(ending, timeout=MAKE_WAY)  # the answer is being saved
        answer = await self._newest_of(chat_key, lambda one: one.running)
        return None if answer is None else answer.about.get("progress")

    async def _newest_of(
        self, chat_key: str, wanted: Callable[[RunningAnswer | SharedAnswer], bool]
    ) -> RunningAnswer | SharedAnswer | None:
        """Return a chat's newest answer, from this worker or else another worker, if it is *wanted*."""
        answer: RunningAnswer | SharedAnswer | None = self._newest.get(chat_key)
        if self._shared is not None and (answer is None or not wanted(answer)):
            try:
                answer = await self._shared.newest(chat_key)
            except StateError as error:
                log.warning("an answer on another worker cannot be found: %s", error)
        return answer if answer is not None and wanted(answer) else None

    async def stop(self, chat_key: str) -> None:
        """If the chat has a running answer, stop it. If the store cannot be used, raise RelayRefusal."""
        answers = [answer for answer in self._of_chat(chat_key) if answer.running]
        for answer in answers:
            answer.stop()
        if self._shared is not None:
            try:
                await self._shared.stop(chat_key)
            except StateError as error:
                log.warning("an answer on another worker cannot be stopped: %s", error)
                if not answers:
                    raise RelayRefusal(503, BUSY_TEXT) from None

    async def drain(self, seconds: float) -> None:
        """Refuse new questions. After *seconds*, interrupt the answers that still run."""
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        if self._tasks:
            self._cutting = True
            log.warning("the app shuts down: %d answers are cut", self.count)
            for answer in self._running:
                answer.stop("interrupted")
            await asyncio.wait(self._tasks, timeout=LAST_WORDS)

    def _wait_for(self, task: asyncio.Task[Any] | None) -> None:
        """Make a shutdown wait for *task*."""
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # Places -----------------------------------------------------------------------------------

    def _places(self, asker: Asker) -> list[tuple[Callable[[Asker], bool], int, RelayRefusal]]:
        """For each kind of place, return a function, the maximum and the refusal.

        The function says whether another asker shares the place with *asker*.
        """
        too_many = RelayRefusal(429, TOO_MANY_TEXT, retry_after_header(1))
        per_address = max(self._per_user, self._most // ADDRESS_SHARE)
        return [
            (lambda one: True, self._most, RelayRefusal(503, BUSY_TEXT, retry_after_header(1))),
            (lambda one: one.user == asker.user, self._per_user, too_many),
            (lambda one: one.address == asker.address, per_address, too_many),
        ]

    def _making_way(self, asker: Asker, earlier: Collection[RunningAnswer]) -> list[RunningAnswer]:
        """Return the answers that stop for a question of *asker*: *earlier*, and some without a reader.

        A stopped answer needs memory until it is saved. So a question is refused if more stopped answers than
        places are still being saved.

        Raises:
            RelayRefusal: There is no place. Then no answer stops.
        """
        making_way = list(earlier)
        for same, most, refusal in reversed(self._places(asker)):
            answers = [one for one in self._running if same(one.asker)]
            running = [one for one in answers if not one.stopped and one not in making_way]
            unread = [one for one in running if one.unread]
            full = len(running) >= most
            stopped = [one for one in answers if one.stopped]
            if (full and not unread) or len(stopped) > most:
                raise refusal
            if full:
                making_way.append(min(unread, key=lambda answer: answer.read_at))
        return making_way

    def _of_chat(self, chat_key: str) -> list[RunningAnswer]:
        """Return the answers of a chat, the oldest first."""
        return [answer for answer in self._running if chat_key == answer.asker.chat_key != ""]

    def _unread(self, answer: RunningAnswer) -> None:
        """Start the grace time of *answer*.

        If the user or the IP address now has too many unread answers, stop the answers that have been unread
        for the longest time.
        """
        if not (answer.running and answer.unread):
            return
        if not (self._grace and answer.resumable):  # no web page can find the answer again
            answer.stop()
            return
        asyncio.get_running_loop().call_later(self._grace, self._look, answer)
        _, (user, *_), (address, *_) = self._places(answer.asker)
        for same, most in ((user, UNREAD_PER_USER), (address, self._per_user)):
            unread = [one for one in self._running if one.running and one.unread and same(one.asker)]
            for one in sorted(unread, key=lambda answer: answer.read_at)[: max(0, len(unread) - most)]:
                one.stop()

    def _look(self, answer: RunningAnswer) -> None:
        """Stop *answer* if its grace time is over."""
        now = asyncio.get_running_loop().time()
        if answer.unread and answer.running and now - answer.read_at >= self._grace - TICK / 10:
            answer.stop()

    def _ended(self, answer: RunningAnswer) -> None:
        """Free the place of *answer*. Keep its log for a while."""
        del self._running[answer]
        asyncio.get_running_loop().call_later(self._keep, self._forget, answer)

    def _forget(self, answer: RunningAnswer) -> None:
        if self._newest.get(answer.asker.chat_key) is answer:
            del self._newest[answer.asker.chat_key]


def chat_key(user: str, chat_id: str | None) -> str:
    """Return the name of a chat in a store, a hash of user and chat. Without a chat, return ""."""
    if chat_id is None:
        return ""
    text = "mintlify-async answers\0" + json.dumps([user, chat_id])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
