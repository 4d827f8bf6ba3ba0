"""Keeps pages' conversations in a store: asks their questions and returns their history.

Only the newest message that a page posts is read. The messages before it come from the store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
import weakref
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from attrs import define, evolve, field, frozen
from starlette.responses import StreamingResponse

from mintlify_async import ConfigurationError, Message, MintlifyError, StateError
from mintlify_async.conversation.history import Contents, HistoryBounds, messages_to_send
from mintlify_async.protocol.object_checks import CONVERSATION_STORE

from .json_values import Wire
from .page_events import PageEvents, ThreadHider, masked, message_json
from .punctual_store import PunctualStore
from .question import Question
from .refusals import AT_WORK, RelayRefusal

if TYPE_CHECKING:
    from mintlify_async import Conversation, MintlifySession, Reply, Thread
    from mintlify_async.runtime.clock import Clock
    from mintlify_async.storage import ConversationStore

log = logging.getLogger("mintlify_async.relay")

MAX_ID_CHARACTERS = 200  # as stores allow for a conversation, and pages send back
# How long a question waits for the answer before it, which may be ending: Stop, or a reload.
BUSY_SECONDS = 2.0
LOOK_SECONDS = 0.05  # between two looks at that

_NOT_THERE = "This conversation is not there."
_NO_QUESTION = "There is no such question to answer again. Please ask it as a new one."


@define(eq=False)
class KeptAnswer:
    """Makes the answer that the store keeps, with the id that the page knows and without the thread.

    Args:
        before: The conversation's messages, with the question.

    Attributes:
        id: The answer's id, once the page has it.
        hider: Removes the thread's id and key.
        reply: The answer. It owns this.
    """

    before: Sequence[Message]
    id: str = field(default="", init=False)
    hider: ThreadHider = field(factory=ThreadHider, init=False)
    reply: weakref.ref[Reply] | None = field(default=None, init=False)

    def named(self, wire: Wire) -> list[Wire]:
        """Return the events for *wire*, such that the first is a ``start`` with an id that stays."""
        if wire["type"] != "start":
            return [wire] if self.id else [*self.named({"type": "start"}), wire]
        if not self.id:
            given: str = wire.get("messageId") or ""
            taken = any(message.id == given for message in self.before)
            self.id = given if 0 < len(given) <= MAX_ID_CHARACTERS and not taken else str(uuid.uuid4())
        return [{**wire, "messageId": self.id}]

    def kept(self, message: Message) -> Message:
        """Return what the store keeps of *message*."""
        reply = self.reply() if self.reply is not None else None
        if reply is not None:
            self.hide(reply.thread)  # perhaps the last event is the first to name it
        message = evolve(message, id=self.id or message.id)
        wire = message.to_wire()
        hidden = self.hider.hide(wire)
        return message if hidden is wire else Message.from_wire(hidden)

    def hide(self, thread: Thread | None) -> None:
        """Hide *thread* from now on."""
        if thread is not None:
            self.hider.learn(thread.id, thread.key)

    @property
    def being_written(self) -> bool:
        """Whether the answer was begun and has not ended."""
        reply = self.reply() if self.reply is not None else None
        return reply is not None and not reply.closed


@frozen(kw_only=True)
class StoredQuestion:
    """A question in a stored conversation, ready to be asked.

    Attributes:
        question: The page's question, with the messages that are sent.
        thread: The thread that it is asked in, or None.
        answer: Makes the answer that the store keeps.
    """

    question: Question
    thread: Thread | None
    answer: KeptAnswer
    _chat: Conversation = field(alias="chat")
    _asked: Sequence[Message] = field(alias="asked")
    _replacing: str | None = field(alias="replacing")
    _options: Mapping[str, Any] = field(alias="options")

    def for_others(self) -> str:
        """Return what :meth:`StoredChats.history` needs on another worker while this is being answered."""
        asked = [message.to_wire() for message in self._asked]
        return json.dumps({"revision": self._chat.revision, "replacing": self._replacing, "asked": asked})

    def ask(self, *, thread: Thread | None) -> Reply:
        """Return the reply; None as *thread* begins a new one."""
        if thread is None:
            self._chat.forget_thread()
        kept = self.answer.kept
        reply = self._chat.ask(self._asked, replacing=self._replacing, kept=kept, **self._options)
        self.answer.reply = weakref.ref(reply)
        return reply

    def is_busy(self, error: MintlifyError) -> bool:
        """Return whether *error* says that another answer of the conversation is being written."""
        return type(error) is StateError and self._chat.busy


class StoredChats:
    """The conversations in a store, each named by its chat's id and owned by its user.

    Args:
        session: Asks the questions.
        store: Where the conversations are kept.
        clock: The source of time.
        most: The most messages that are sent with a question, and shown to a page.
    """

    def __init__(self, session: MintlifySession, store: ConversationStore, clock: Clock, most: int) -> None:
        self._session = session
        self._store = PunctualStore(store, clock)
        self._clock = clock
        self._most = most
        self._answers: WeakValueDictionary[tuple[str, str], KeptAnswer] = WeakValueDictionary()

    async def begin(
        self, question: Question, user: str, options: Mapping[str, Any], *, fp: str
    ) -> StoredQuestion:
        """Find the place of *question* in its conversation.

        Args:
            question: What the page sent.
            user: Owns the conversation.
            options: Further arguments of ``session.ask``.
            fp: The pseudonym by which the service knows the user.

        Raises:
            RelayRefusal: The conversation lacks the question, or another answer is being written there.
            StateError: The store cannot be read.
        """
        more = dict(options)
        chat = self._chat(question.chat_id, user, fp=fp, domain=more.pop("domain", None))
        if not await self._is_free(chat):
            raise RelayRefusal(409, AT_WORK)
        await chat.load(last=self._most)
        target = question.message_id
        named = {message["id"] for message in question.messages} | {target}
        if target is not None and not chat.complete and _earliest(chat, named) is None:
            await chat.load()
        contents = Contents().with_messages(chat.messages)
        asked = [Message.from_wire(message) for message in question.messages]
        if not asked:  # a page that wants another answer need not repeat the question
            asked = _question_of(contents, target)
        replacing = _earliest(chat, {*named, asked[0].id})
        before = contents.before(replacing) or contents
        self._answers[user, chat.id] = answer = KeptAnswer(before=(*before.messages, *asked))
        answer.hide(chat.thread)
        sent = messages_to_send(before, asked, HistoryBounds(max_messages=self._most), chat.system)
        return StoredQuestion(
            question=evolve(question, messages=[message.to_wire() for message in sent]),
            # The old thread remembers what is replaced: a new one begins, and gets the history before it.
            thread=chat.thread if replacing is None else None,
            answer=answer,
            chat=chat,
            asked=asked,
            replacing=replacing,
            options=more,
        )

    async def history(
        self, chat_id: str, user: str, events: PageEvents, elsewhere: str = ""
    ) -> StreamingResponse:
        """Return the conversation's newest messages as a JSON list of UIMessages.

        If an answer is being written here or, as *elsewhere* says, on another worker, its question is the
        last one.

        Raises:
            RelayRefusal: *user* has no such conversation.
            StateError: The store cannot be read.
        """
        try:
            chat = self._chat(chat_id, user)
        except RelayRefusal:
            raise RelayRefusal(404, _NOT_THERE) from None
        answer = self._answers.get((user, chat_id))
        if answer is None or not answer.being_written:
            await self._is_free(chat)  # what has just been stopped, for instance by a reload, is being saved
            await chat.load(last=self._most)
            messages = _with_question(chat, elsewhere) if elsewhere else chat.messages
            if not chat.revision and not messages:
                raise RelayRefusal(404, _NOT_THERE)
            answer = KeptAnswer(before=messages)
            answer.hide(chat.thread)
        body = _json_list(answer.before[-self._most :], events, answer.hider)
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        return StreamingResponse(body, headers=headers, media_type="application/json")

    async def keep_part(self, chat_id: str, user: str, part: Message | None, asked: str, *, fp: str) -> None:
        """Keep an answer whose worker has died as that would have kept it: as far as it came, or not at all.

        Args:
            chat_id: The id that the page gave the chat.
            user: Owns the conversation.
            part: What arrived.
            asked: What :meth:`StoredQuestion.for_others` returned. If the conversation has gone on since
                then, it stays as it is.
            fp: As for :meth:`begin`.
        """
        told = json.loads(asked)
        if told["replacing"] is not None or part is None or not part.text:
            return
        try:
            chat = await self._chat(chat_id, user, fp=fp).load(last=self._most)
            if chat.revision == told["revision"]:
                await chat.add_turn(told["asked"], part)
        except MintlifyError as error:
            log.error("an answer was not saved: %s: %s", type(error).__name__, masked(str(error)))

    def _chat(self, id: str | None, user: str, **settings: Any) -> Conversation:
        try:
            return self._session.conversation(
                id=id or "",
                owner=user,
                store=self._store,
                commit="partial",  # after Stop or a cut, the page shows what had arrived
                max_messages=self._most,
                **settings,
            )
        except ConfigurationError as error:
            if error.field != "id":
                raise
        raise RelayRefusal(400, f"The chat's id must be a text of 1 to {MAX_ID_CHARACTERS} characters.")

    async def _is_free(self, chat: Conversation) -> bool:
        """Return whether no answer of *chat* is being written or saved, perhaps after a moment."""
        until = self._clock.now() + BUSY_SECONDS
        while chat.busy and self._clock.now() < until:
            await self._clock.sleep(LOOK_SECONDS)
        return not chat.busy


def stored_chats(
    session: MintlifySession, store: ConversationStore | None, clock: Clock, most: int
) -> StoredChats | None:
    """Return the conversations in *store*, if there is one.

    Raises:
        ConfigurationError: *store* is something else.
    """
    CONVERSATION_STORE.check(store, "store")
    return None if store is None else StoredChats(session, store, clock, most)


def _earliest(chat: Conversation, ids: Collection[str | None]) -> str | None:
    return next((message.id for message in chat.messages if message.id in ids), None)


def _with_question(chat: Conversation, elsewhere: str) -> tuple[Message, ...]:
    """Return the messages of *chat* with the question that is being answered, unless the turn is saved."""
    told = json.loads(elsewhere)
    if told["revision"] != chat.revision:
        return chat.messages
    contents = Contents().with_messages(chat.messages)
    before = contents.before(told["replacing"]) or contents
    return (*before.messages, *map(Message.from_wire, told["asked"]))


def _question_of(contents: Contents, target: str | None) -> list[Message]:
    """Return the question of the turn that has the message *target*; without a target, the last one."""
    turns = [turn for turn in contents.turns if target in (None, *(message.id for message in turn.messages))]
    asked = [message for turn in turns[-1:] for message in turn.messages if message.role == "user"]
    if not asked:
        raise RelayRefusal(404, _NO_QUESTION)
    return asked


async def _json_list(
    messages: Sequence[Message], events: PageEvents, hider: ThreadHider
) -> AsyncIterator[bytes]:
    before = b"["
    for message in messages:
        if message.role in ("user", "assistant"):  # an app's instructions are not for pages
            yield before + message_json(message.to_wire(), events, hider)
            before = b","
            await asyncio.sleep(0)
    yield b"]" if before == b"," else b"[]"
