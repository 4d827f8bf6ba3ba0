"""Shows a running answer to other workers, and reads one that runs on another worker."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import evolve

from mintlify_async import MintlifyError, StateError, StreamInterruptedError
from mintlify_async.assistant.stream import MessageStream
from mintlify_async.runtime.cancellation import finish_shielded

from .answer import AnswerSettings, RelayedAnswer
from .json_values import is_object
from .live_answer import INTERRUPTED, STOPPED, LiveAnswer
from .page_events import DONE
from .seal import SealError

if TYPE_CHECKING:
    from ..stream_store import SharedPiece, SharedStreamStore
    from .stored_chats import StoredChats

log = logging.getLogger("mintlify_async.relay")

TICK = 0.1
"""Seconds between two writes of an answer, and between two looks of a reader on another worker."""
BEAT = 0.5
"""Seconds after which a silent answer is written, too: its worker shows that it lives, and learns of Stop."""
PATIENCE = 5.0
"""Seconds for which a reader on another worker waits for a store that cannot be reached."""
LAST_STEPS = 20.0
"""Seconds that the steps may take which end an answer whose worker has died, after their reader has left."""


class AnswerWriter:
    """Writes one running answer to the store until it has ended."""

    def __init__(self, store: SharedStreamStore, live: LiveAnswer, chat: str) -> None:
        self._store = store
        self._live = live
        self._chat = chat
        self._answer = uuid.uuid4().hex
        self._sent = 0  # pieces
        self._size = 0  # bytes
        self._reads = 0

    async def take_place(self, *, force: bool) -> bool:
        """Return whether this answer has the chat's place now; if another one runs there, ask it to stop."""
        told = await self._store.write(
            self._chat, self._answer, b"", at=0, question="", first=True, force=force
        )
        return told.size >= 0

    async def write(self) -> bool:
        """Write what is new, and do what the store says; return whether nothing more is to be written.

        Raises:
            StateError: The store cannot be used.
        """
        live = self._live
        ended, pieces = live.ended, len(live.pieces)
        frames = b"".join(live.pieces[self._sent :])
        told = await self._store.write(
            self._chat,
            self._answer,
            frames,
            at=self._size,
            question=live.question,
            asked="" if self._size else live.asked_of_store,
            ended=ended,
        )
        whole = told.size == self._size + len(frames)
        if whole:
            self._sent, self._size = pieces, told.size
        else:  # the store has lost it: begin again
            self._sent = self._size = 0
        if told.reads != self._reads:
            self._reads = told.reads
            live.seen()
        if told.stopped:
            live.stop()
        return ended and (whole or told.stopped)

    async def run(self) -> bool:
        """Write until the answer has ended; return whether the store has all of it."""
        live, clock = self._live, self._live.settings.clock
        last, away = clock.now(), False
        try:
            while True:
                await clock.sleep(TICK)
                fresh = live.ended or len(live.pieces) > self._sent
                if clock.now() - last < (BEAT if away or not fresh else TICK) - TICK / 2:
                    continue
                last = clock.now()
                try:
                    if await self.write():
                        return True
                    away = False
                except StateError as error:
                    if not away:
                        log.warning("other workers cannot read an answer: %s", error)
                    away = True
                    if live.ended:
                        return False
        except asyncio.CancelledError:  # the app is shutting down, and the answer with it
            await live.wait()
            with suppress(StateError):
                await self.write()
            raise


class SharedReader:
    """Reads an answer that runs on another worker, from its first frame on.

    Args:
        store: Where the answer is.
        chat: Its chat.
        found: The first piece.
        settings: The relay's settings for answers.
        user: The user's id.
        chat_id: The id that the page gave the chat.
        chats: The conversations in the app's store, or None.

    Attributes:
        found: The newest piece.
    """

    def __init__(
        self,
        store: SharedStreamStore,
        chat: str,
        found: SharedPiece,
        settings: AnswerSettings,
        user: str,
        chat_id: str,
        chats: StoredChats | None,
    ) -> None:
        self.settings = settings
        self.found = found
        self._store = store
        self._chat = chat
        self._user = user
        self._chat_id = chat_id
        self._chats = chats

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield what the page gets; ``[DONE]`` is the last."""
        clock = self.settings.clock
        seen = clock.now()
        while True:
            await self.end_if_lost()
            if self.found.frames:
                yield self.found.frames
            if not self.found.running:
                break
            await clock.sleep(TICK)
            if self.settings.shutdown.cutting:
                yield INTERRUPTED
                break
            try:
                newer = await self._store.read(self._chat, self.found.answer, self.found.place)
                seen = clock.now()
            except StateError as error:
                if clock.now() - seen < PATIENCE:
                    self.found = evolve(self.found, frames=b"")
                    continue
                log.warning("an answer on another worker cannot be read: %s", error)
                yield INTERRUPTED
                break
            if newer is None:  # the chat has a newer answer
                yield STOPPED
                break
            self.found = newer
        yield DONE

    async def close(self) -> None:
        """Stop reading; the other worker notices that nothing reads any more."""

    async def end_if_lost(self) -> None:
        """If the worker has died and this reader is to end the answer: keep the part, end it, tell the hook.

        When this worker dies meanwhile, or Redis is away, a later look does it again. The store and the hook
        still get the part once: the chat's revision, and the end of the answer, are there once.
        """
        if self.found.lost:
            with suppress(StateError):
                await finish_shielded(self._end_lost(), patience=LAST_STEPS)

    async def _end_lost(self) -> None:
        whole = await self._store.read(self._chat, self.found.answer, 0)
        if whole is None:
            return
        user, chat_id = self._user, self._chat_id
        lost = answer_of(whole.frames, self.settings, user, chat_id)
        if self._chats is not None and whole.asked:
            fp = self.settings.seal.pseudonym(user)
            await self._chats.keep_part(chat_id, user, lost.message, whole.asked, fp=fp)
        if await self._store.end_lost(self._chat, whole.answer, INTERRUPTED):
            log.warning("an answer was interrupted: its worker has died")
            await self.settings.tell(lost)


def answer_of(frames: bytes, settings: AnswerSettings, user: str, chat_id: str) -> RelayedAnswer:
    """Return the interrupted answer that consists of *frames*."""
    stream = MessageStream()
    stream.feed(frames)
    stream.feed_eof()
    with suppress(MintlifyError):  # the frames end with the error that they tell of
        while stream.next_event() is not None:
            pass
    message, thread = stream.message if stream.message.parts else None, None
    if message is not None and is_object(message.metadata):
        metadata = dict(message.metadata)
        token = metadata.pop("threadId", None)
        with suppress(SealError):
            thread = settings.seal.open(token, user, any_site=True) if isinstance(token, str) else None
        message = evolve(message, metadata=metadata or None)
    return RelayedAnswer(
        outcome="failed",
        user=user,
        chat_id=chat_id,
        question=(),
        message=message,
        thread=thread,
        error=StreamInterruptedError("the worker that read the answer has died", partial=message),
    )
