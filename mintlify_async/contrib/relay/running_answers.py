"""The running answers of one relay. It limits their number, finds them, and ends them together.

An answer belongs to a user and a chat. Other users do not find it. With a shared store, every worker finds
it: the worker that reads the answer copies its log there, and gets Stop and readers from there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from attrs import define, field

from mintlify_async import StateError

from ..stream_store import MemoryStreamStore, SharedAnswer, SharedStreams
from .answer_logs import Log
from .chats import Chat
from .page_events import DONE
from .page_stream import PageSource
from .refusals import BUSY, RESTARTING, TOO_MANY, RelayRefusal, retry_after
from .running_answer import INTERRUPTED, Asker, RunningAnswer, TellHook

if TYPE_CHECKING:
    from collections.abc import Generator

log = logging.getLogger("mintlify_async.relay")

MAKE_WAY = 2.0  # seconds that a chat's next question waits until the running answer has been stopped
LAST_WORDS = 2.0  # seconds for cut answers to send their error and to run the app's hook
TICK = 0.1  # seconds between two writes of an answer, and between two looks of a reader on another worker
BEAT = 0.5  # seconds until a silent answer is also written, to show that its worker lives and to get Stop
PATIENCE = 5.0  # seconds for which a reader on another worker waits for a store that cannot be reached
UNREAD_PER_USER = 2  # answers of one user that may continue without a reader
ADDRESS_SHARE = 4  # one IP address may have this part of all places


@define
class SharedLog:
    """The log of an answer on another worker."""

    store: SharedStreams
    chat: str
    answer: str
    cut: Callable[[], bool]
    _over: bool = field(default=False, init=False)
    _seen_at: float | None = field(default=None, init=False)  # when the store answered last

    @contextmanager
    def reading(self) -> Generator[None]:
        """Do nothing, because each look reports that there is a reader."""
        yield

    def wake(self) -> None:
        """Do nothing: a read returns soon."""

    async def read(self, place: int) -> tuple[bytes | None, int]:
        """Return the bytes after *place*; see :meth:`Log.read`. Here a place is a number of bytes."""
        now = asyncio.get_running_loop().time
        self._seen_at = self._seen_at or now()
        if not self._over:
            try:
                piece = await self.store.read(self.chat, self.answer, place)
                self._seen_at = now()
            except StateError as error:
                lost = now() - self._seen_at > PATIENCE
                if lost:
                    log.warning("an answer on another worker cannot be read: %s", error)
            else:
                self._over = piece.ended
                if piece.frames or piece.ended:
                    return piece.frames or None, piece.place
                lost = piece.place < place or not piece.running  # bytes, or its worker
            if not (lost or self.cut()):
                await asyncio.sleep(TICK)
                return b"", place
            self._over = True
            return INTERRUPTED + DONE, place
        return None, place


class RunningAnswers:
    """Starts, finds and stops the answers of one relay.

    Args:
        streams: Where they outlive their readers, or None.
        most: How many may run at the same time.
        per_user: How many may run at the same time for one user.
        tell: Calls the app's hook. It raises nothing.
    """

    def __init__(
        self,
        streams: MemoryStreamStore | SharedStreams | None,
        *,
        most: int,
        per_user: int,
        tell: TellHook,
    ) -> None:
        self._shared = None if streams is None or isinstance(streams, MemoryStreamStore) else streams
        self._grace = 0.0 if streams is None else streams.grace
        self._keep = 0.0 if streams is None else streams.keep
        self._most, self._per_user = most, per_user
        self._per_address = max(per_user, most // ADDRESS_SHARE)
        self.tell = tell
        self._running: dict[RunningAnswer, None] = {}  # the oldest first
        self._newest: dict[str, RunningAnswer] = {}  # by chat
        self._readers: list[dict[str, str]] = []  # of existing logs
        self._tasks: set[asyncio.Task[Any]] = set()  # of responses, and of writers to the shared store
        self._draining = self._cutting = False

    @property
    def count(self) -> int:
        """The number of answers that run."""
        return len(self._running)

    def check_open(self) -> None:
        """Raise RelayRefusal when the app shuts down."""
        if self._draining:
            raise RelayRefusal(503, RESTARTING, retry_after(1))  # by then another process answers

    @asynccontextmanager
    async def ask(self, asker: Asker, chat: Chat) -> AsyncGenerator[PageSource]:
        """Start the answer to the question of *chat*, and read it while the block runs.

        Raises:
            RelayRefusal: There is no place for it, or the app shuts down.
        """
        self.check_open()
        for answer in self._of_chat(asker.chat_key):
            answer.stop()
        self._make_place(asker)
        answer = RunningAnswer(asker, chat, self)
        self._running[answer] = None
        if asker.chat_key:
            self._newest[asker.chat_key] = answer
        async with self._reading(answer.log):
            yield PageSource(answer.log, answer.begun)

    @asynccontextmanager
    async def resume(self, found: Log, user: str, address: str) -> AsyncGenerator[PageSource]:
        """Read an answer that :meth:`find` returned. Raises what :meth:`reader` raises."""
        async with self.reader(user, address), self._reading(found):
            yield PageSource(found)

    @asynccontextmanager
    async def reader(self, user: str, address: str) -> AsyncGenerator[None]:
        """While the block runs, take a place for a reader of a log. There are as many places as answers.

        Raises:
            RelayRefusal: There is none.
        """
        names = {"user": user, "address": address}
        users, addresses = (sum(one[name] == names[name] for one in self._readers) for name in names)
        if len(self._readers) >= self._most:
            raise RelayRefusal(503, BUSY, retry_after(1))
        if users >= self._per_user or (address and addresses >= self._per_address):
            raise RelayRefusal(429, TOO_MANY, retry_after(1))
        self._readers.append(names)
        try:
            yield
        finally:
            self._readers.remove(names)

    async def find(self, chat_key: str, after: str | None) -> Log | None:
        """Return the log of the chat's answer; None if there is none.

        Args:
            chat_key: The chat.
            after: The id of the last complete message in the web page. Only the answer to that message is
                read, even if it has ended. None: any running answer.
        """
        answer = self._newest.get(chat_key)
        if answer is not None and _wanted(answer.question_id, after, not answer.log.ended):
            return answer.log
        shared = await self._elsewhere(chat_key)
        if shared is None or not _wanted(shared.about.get("question", ""), after, shared.running):
            return None
        assert self._shared is not None
        return SharedLog(self._shared, chat_key, shared.id, lambda: self._cutting)

    async def progress(self, chat_key: str) -> dict[str, Any] | None:
        """Return :attr:`.Chat.progress` of the answer that is being written in a chat, or None."""
        answers = self._of_chat(chat_key)
        if ending := [answer.task for answer in answers if answer.stopping]:
            await asyncio.wait(ending, timeout=MAKE_WAY)  # the answer is being saved
        running = [answer for answer in answers if not (answer.stopping or answer.log.ended)]
        if running:
            return running[-1].chat.progress or None
        shared = await self._elsewhere(chat_key)
        return shared.about.get("progress") if shared is not None and shared.running else None

    async def stop(self, chat_key: str) -> None:
        """Stop the chat's answer, if one runs. Raises RelayRefusal when the store cannot be used."""
        answers = self._of_chat(chat_key)
        for answer in answers:
            answer.stop()
        if self._shared is not None:
            try:
                await self._shared.stop(chat_key)
            except StateError as error:
                log.warning("an answer on another worker cannot be stopped: %s", error)
                if not answers:
                    raise RelayRefusal(503, BUSY) from None

    async def drain(self, seconds: float) -> None:
        """Refuse new questions; after *seconds*, cut the answers that still run."""
        self._draining = True
        await self._quiet(seconds)
        if self._running or self._tasks:
            self._cutting = True
            log.warning("the app shuts down: %d answers are cut", self.count)
            for answer in self._running:
                answer.stop("interrupted")
            await self._quiet(LAST_WORDS)

    async def _quiet(self, seconds: float) -> None:
        """Return when nothing runs any more, or after *seconds*."""
        now = asyncio.get_running_loop().time
        until = now() + seconds
        while (tasks := {*self._tasks, *(answer.task for answer in self._running)}) and now() < until:
            await asyncio.wait(tasks, timeout=until - now())

    # Places -----------------------------------------------------------------------------------

    def _make_place(self, asker: Asker) -> None:
        """Make sure that one more answer of *asker* may run. If needed, stop an answer without a reader."""
        too_many = RelayRefusal(429, TOO_MANY, retry_after(1))
        self._make_one(self._alive(), self._most, RelayRefusal(503, BUSY, retry_after(1)))
        self._make_one(self._alive(user=asker.user), self._per_user, too_many)
        if asker.address:
            self._make_one(self._alive(address=asker.address), self._per_address, too_many)

    def _make_one(self, answers: Sequence[RunningAnswer], most: int, refusal: RelayRefusal) -> None:
        if len(answers) >= most:
            unread = [answer for answer in answers if answer.unread]
            if not unread:
                raise refusal
            min(unread, key=_last_read).stop()

    def _of_chat(self, chat_key: str) -> list[RunningAnswer]:
        """Return the answers of a chat, the oldest first."""
        return [answer for answer in self._running if chat_key == answer.asker.chat_key != ""]

    def _alive(self, *, user: str | None = None, address: str | None = None) -> list[RunningAnswer]:
        """Return the answers of one user or IP address that were not asked to stop."""
        return [
            answer
            for answer in self._running
            if not answer.stopping
            and user in (None, answer.asker.user)
            and address in (None, answer.asker.address)
        ]

    def unread(self, answer: RunningAnswer) -> None:
        """*answer* has no reader left. If there are few such answers, it may continue for the grace."""
        if answer.log.ended or answer.stopping:
            return
        if not (self._grace and answer.resumable):  # no page can find it again
            answer.stop()
            return
        asyncio.get_running_loop().call_later(self._grace, self._look, answer)
        address = answer.asker.address
        groups = [(self._alive(user=answer.asker.user), UNREAD_PER_USER)]
        groups += [(self._alive(address=address), self._per_user)] if address else []
        for answers, most in groups:
            unread = sorted((one for one in answers if one.unread), key=_last_read)
            for one in unread[: max(0, len(unread) - most)]:
                one.stop()

    def _look(self, answer: RunningAnswer) -> None:
        """Stop *answer* if its grace is over."""
        now = asyncio.get_running_loop().time()
        if answer.unread and not answer.log.ended and now - answer.read_at >= self._grace - TICK / 10:
            answer.stop()

    def ended(self, answer: RunningAnswer) -> None:
        """The place of *answer* is free. Its log stays for a while."""
        del self._running[answer]
        if key := answer.asker.chat_key:
            asyncio.get_running_loop().call_later(self._keep, self._forget, key, answer)

    def _forget(self, key: str, answer: RunningAnswer) -> None:
        if self._newest.get(key) is answer:
            del self._newest[key]

    # Other workers ----------------------------------------------------------------------------

    async def make_way(self, answer: RunningAnswer) -> None:
        """Return when the answers before *answer* in its chat have ended, here and on other workers.

        They were asked to stop. An answer that waits here ends after them, so the next one waits for all.
        """
        before = takewhile(lambda one: one is not answer, self._of_chat(answer.asker.chat_key))
        if tasks := [one.task for one in before]:
            await asyncio.wait(tasks, timeout=MAKE_WAY)
        if self._shared is not None and answer.resumable:
            try:
                await self._make_way_elsewhere(self._shared, answer)
            except StateError as error:
                _goes_alone(answer, error)

    async def describe(self, answer: RunningAnswer) -> None:
        """Let pages on other workers find *answer* by its question."""
        if self._shared is not None and answer.resumable:
            about = {"question": answer.question_id, "progress": answer.chat.progress}
            try:
                await self._shared.describe(answer.asker.chat_key, answer.id, json.dumps(about))
            except StateError as error:
                _goes_alone(answer, error)

    async def _make_way_elsewhere(self, shared: SharedStreams, answer: RunningAnswer) -> None:
        """Make *answer* the newest of its chat on all workers, and wait until the one before has ended."""
        now, key = asyncio.get_running_loop().time, answer.asker.chat_key
        until = now() + MAKE_WAY
        previous = await shared.begin(key, answer.id)
        copying = asyncio.create_task(self._copy(shared, answer))
        self._tasks.add(copying)
        copying.add_done_callback(self._tasks.discard)
        while previous and await shared.runs(key, previous):
            if now() >= until or self._cutting:
                break
            await asyncio.sleep(TICK)  # it runs on another worker, which sends no event

    async def _copy(self, shared: SharedStreams, answer: RunningAnswer) -> None:
        """Copy the log of *answer* to *shared*, and follow its reports, until the answer has ended."""
        now = asyncio.get_running_loop().time
        key, place, size, written, away = answer.asker.chat_key, 0, 0, now(), False
        while True:
            ended = answer.log.ended
            frames, end = answer.log.since(place)
            if frames or ended or now() - written > BEAT - TICK / 2:
                written = now()
                try:
                    state = await shared.write(key, answer.id, frames, at=size, ended=ended)
                    place, size, away = end, size + len(frames), False
                    answer.read_elsewhere = state.read
                    if state.read:
                        answer.read_at = now()
                    if state.stopped:
                        answer.stop()
                except StateError as error:
                    if not away:
                        log.warning("other workers cannot read an answer: %s", error)
                    away, answer.read_elsewhere = True, False
                if ended:
                    return
                if answer.unread:
                    self._look(answer)
            await asyncio.sleep(TICK)

    async def _elsewhere(self, chat_key: str) -> SharedAnswer | None:
        """Return the newest answer of a chat on any worker."""
        if self._shared is None:
            return None
        try:
            return await self._shared.newest(chat_key)
        except StateError as error:
            log.warning("an answer on another worker cannot be found: %s", error)
            return None

    @asynccontextmanager
    async def _reading(self, source: Log) -> AsyncGenerator[None]:
        """Count a reader of *source*, whose response a shutdown waits for."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with source.reading():
                yield
        finally:
            self._tasks.discard(task)


def _goes_alone(answer: RunningAnswer, error: StateError) -> None:
    log.warning("an answer goes to its reader alone: %s", error)
    answer.resumable = False


def _wanted(question: str, after: str | None, running: bool) -> bool:
    return running if after is None else question == after


def _last_read(answer: RunningAnswer) -> float:
    return answer.read_at


def chat_key(user: str, chat_id: str | None) -> str:
    """Return the name of a chat in a store, from which neither user nor chat can be read; "" without one."""
    if chat_id is None:
        return ""
    text = "mintlify-async answers\0" + json.dumps([user, chat_id])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
