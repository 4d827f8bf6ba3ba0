"""The chat that a question belongs to. Either the web page or the app's store keeps the chat.

Both kinds of chat choose the messages to send, the thread of the request, and the data of the thread for the
web page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from attrs import evolve

from mintlify_async import Message, MintlifyError, StateError, StoreConflictError
from mintlify_async.conversation.conversation import ask_with
from mintlify_async.conversation.history import SENT_PARTS
from mintlify_async.model.secret import mask_service_keys
from mintlify_async.model.thread import thread_is_lost
from mintlify_async.runtime.logs import log_fields

from .answer_log import MemoryLog
from .page_events import THREAD_DOMAIN, SafeEvents, ThreadHider, frame, stored_message_json
from .page_question import ID_CHARACTERS, PageQuestion, QuestionLimits, Wire, is_id, is_object
from .refusal_texts import (
    AT_WORK_TEXT,
    GONE_TEXT,
    NO_QUESTION_TEXT,
    UNREADABLE_TEXT,
    RelayRefusal,
    refusal_for,
)
from .seal import SealError, ThreadSeal

if TYPE_CHECKING:
    from mintlify_async import Conversation, MintlifySession, Reply, Thread
    from mintlify_async.storage import Store

log = logging.getLogger("mintlify_async.relay")

# Maximum duration of a store's step, in seconds. The step must end before the first comment of the response,
# after 5 s, because the HTTP status is sent with this comment.
STORE_SECONDS = 4.0


class Chat:
    """Asks one question, and makes the events for its web page.

    Attributes:
        messages: The messages that are sent, as JSON objects.
        answer_id: The id under which a store keeps the answer. With "", the store uses the id that the
            service gave the answer.
        used_ids: The ids of the messages before the answer.
        hider: Removes text that no web page may get.
        progress: Data for the history while this question is being answered: the question, its place in the
            history, and the id of the last message in the store. Or None.
    """

    def __init__(self) -> None:
        self.messages: Sequence[Wire] = ()
        self.answer_id = ""
        self.used_ids: Collection[str] = ()
        self.hider = ThreadHider()
        self.events = SafeEvents()
        self.progress: Wire = {}

    async def begin(self) -> None:
        """Prepare the messages to send. Raise RelayRefusal if that is not possible."""

    async def open(self) -> Reply:
        """Ask, and return the reply after its answer has started. Raise MintlifyError if it does not start.

        If the service has lost the thread, ask once more without it.
        """
        try:
            return await self._ask()
        except MintlifyError as error:
            if not (thread_is_lost(error) and self._forget_thread()):
                raise
        log.info(
            "the service has lost a thread: the question is asked again without it", extra=log_fields("ask")
        )
        return await self._ask()

    async def _ask(self) -> Reply:
        raise NotImplementedError

    def _forget_thread(self) -> bool:
        """Remove the thread from the next request. Return False if this does not change the request."""
        raise NotImplementedError

    def refusal(self, error: MintlifyError) -> RelayRefusal:
        """Return the refusal for an error before the answer."""
        return refusal_for(error)

    def learn(self, thread: Thread | None) -> None:
        """Hide the id and the key of *thread* from now on."""
        if thread is not None:
            self.hider.learn(thread.id, thread.key)

    def frames(self, wire: Wire, thread: Thread | None) -> list[bytes]:
        """Return the web page's event for *wire*, an event of an answer in *thread*."""
        return [frame(event, self.hider) for event in self._page_events(wire)]

    def _page_events(self, wire: Wire) -> list[Wire]:
        """Return the events for *wire* that a web page accepts.

        The web page later sends the message's id back, so the id must be one that the relay accepts.
        """
        if wire["type"] == "start" and not self._fits(wire.get("messageId")):
            wire = {**wire, "messageId": None}
        return self.events.page(wire)

    def _fits(self, id: object) -> TypeGuard[str]:
        """Return whether *id* is valid, new in this chat, and contains nothing to hide."""
        if not is_id(id) or id in self.used_ids:
            return False
        start = {"type": "start", "messageId": id}
        return bool(json.loads(frame(start, self.hider).removeprefix(b"data: ")) == start)

    def ending(self, thread: Thread | None) -> list[bytes]:
        """If the answer ended without its last event, return the missing events for the web page."""
        return []


class PageChat(Chat):
    """A chat whose page keeps the history and the encrypted thread."""

    def __init__(
        self,
        session: MintlifySession,
        question: PageQuestion,
        *,
        user: str,
        seal: ThreadSeal,
        place: str,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.messages = question.messages
        self.used_ids = question.ids
        self._session = session
        self._user, self._seal, self._place = user, seal, place
        self._options = options
        self._sealed: Thread | None = None  # the thread that the page has
        self._thread: Thread | None = None  # the thread of the question
        if question.seal is not None:
            try:
                self._thread = seal.open(question.seal, user, place)
            except SealError as error:  # for example, the secret was changed, or the user has signed in
                reason = "a page's sealed thread is %s: the question is asked without it"
                log.info(reason, error, extra=log_fields("ask"))
        self.learn(self._thread)

    async def _ask(self) -> Reply:
        fp = self._seal.pseudonym(self._user)
        reply = self._session.ask(self.messages, thread=self._thread, fp=fp, **self._options)
        return await reply.__aenter__()

    def _forget_thread(self) -> bool:
        had_thread, self._thread = self._thread is not None, None
        return had_thread

    def frames(self, wire: Wire, thread: Thread | None) -> list[bytes]:
        """Return the web page's event for *wire*.

        The ``start`` and ``finish`` events contain the sealed thread in their metadata.
        """
        if thread is None or wire["type"] not in ("start", "finish"):
            return super().frames(wire, thread)
        return [self._with_seal(self.hider.hide(event), thread) for event in self._page_events(wire)]

    def ending(self, thread: Thread | None) -> list[bytes]:
        """Return an event with the sealed thread. If the web page already has it, return nothing."""
        if thread is None or thread == self._sealed:
            return []
        return [self._with_seal({"type": "message-metadata"}, thread)]

    def _with_seal(self, event: Wire, thread: Thread) -> bytes:
        self._sealed = thread
        token = self._seal.seal(thread, self._user, self._place)
        return frame({**event, "messageMetadata": {**event.get("messageMetadata", {}), "threadId": token}})


class StoredChat(Chat):
    """A chat in the app's store. Only the newest message that the web page sent is used."""

    def __init__(
        self,
        conversation: Conversation,
        domain: str | None,
        question: PageQuestion,
        limits: QuestionLimits,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._conversation = conversation
        self._domain = domain
        self._question = question
        self._limits = limits
        self._options = options
        self._asked: Sequence[Message] = ()
        self._replacing: str | None = None

    async def begin(self) -> None:
        """Read the conversation, and find the place of the question in it.

        Raises:
            RelayRefusal: The conversation does not contain the question, is too long, or cannot be read.
        """
        history = await _loaded(self._conversation)
        self.learn(self._conversation.thread)
        last = history[-1] if history else None
        if last is not None and _domain_of(last) != self._domain:
            self._conversation.forget_thread()
        target = self._question.message_id
        self._asked = [Message.from_wire(message) for message in self._question.messages]
        if not self._asked:  # for another answer, a page need not repeat the question
            self._asked = _question_of(history, target)
        ids = {target, *(message.id for message in self._asked)}
        place = next((at for at, message in enumerate(history) if message.id in ids), None)
        if place is not None:
            self._replacing = history[place].id
            history = history[: _turn_start(history, place)]
        sent = [message for message in (*history, *self._asked) if message.role != "system"]
        self.messages = [_sendable(message) for message in sent[-self._limits.max_messages :]]
        self._limits.check(self.messages)
        self.used_ids = {message.id for message in (*history, *self._asked)}
        asked = [message.to_wire() for message in self._asked]
        self.progress = {"asked": asked, "place": len(history), "last": last and last.id}

    async def _ask(self) -> Reply:
        replacing, options = self._replacing, self._options
        reply = ask_with(self._conversation, self._asked, self._kept, replacing=replacing, **options)
        return await reply.__aenter__()

    def _forget_thread(self) -> bool:
        thread = self._conversation.thread
        # If the thread has a key, the conversation itself has already asked again without the thread.
        if thread is None or thread.key is not None:
            return False
        self._conversation.forget_thread()
        return True

    def refusal(self, error: MintlifyError) -> RelayRefusal:
        """Return the refusal for an error before the answer. The error may come from the store."""
        if type(error) is StateError:
            return RelayRefusal(409, AT_WORK_TEXT) if self._conversation.busy else _unreadable(error)
        return super().refusal(error)

    def frames(self, wire: Wire, thread: Thread | None) -> list[bytes]:
        """Return the web page's event for *wire*. The first event is a ``start`` with the final id."""
        if wire["type"] == "start":
            if not self.answer_id:
                message_id = wire.get("messageId")
                self.answer_id = message_id if self._fits(message_id) else str(uuid.uuid4())
            wire = {**wire, "messageId": self.answer_id}
        elif not self.answer_id:
            return [*self.frames({"type": "start"}, thread), *self.frames(wire, thread)]
        return super().frames(wire, thread)

    def _kept(self, message: Message) -> Message:
        """Return *message* as it is stored.

        It has ``answer_id`` as its id, and the thread's domain, but not the thread's id and key.
        """
        wire = self.hider.hide(message.to_wire())
        if self._domain is not None:
            metadata = wire.get("metadata")
            wire["metadata"] = {**(metadata if is_object(metadata) else {}), THREAD_DOMAIN: self._domain}
        return evolve(Message.from_wire(wire), id=self.answer_id or message.id)


class PunctualStore:
    """The app's store, with a time limit for each step and one error class for all failures."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return repr(self._store)

    def __getattr__(self, name: str) -> Any:
        """Return a step of the store."""
        step = getattr(self._store, name)
        if not callable(step):
            return step
        call = cast("Callable[..., Awaitable[Any]]", step)

        async def punctual(*args: Any, **options: Any) -> Any:
            try:
                async with asyncio.timeout(STORE_SECONDS):
                    return await call(*args, **options)
            except StoreConflictError:
                raise
            except Exception as error:  # the app's own store may raise any error
                reason = f"{type(error).__name__}: {str(error)[:200]}"
                raise StateError(f"the store {self._store!r} failed: {reason}") from None

        return punctual


class StoredChats:
    """The conversations in a store. Each has the chat's id as its name, and the user as its owner."""

    def __init__(self, session: MintlifySession, store: Store, limits: QuestionLimits) -> None:
        self._session = session
        self._store: Any = PunctualStore(store)
        self._limits = limits

    def chat(self, question: PageQuestion, *, user: str, fp: str, options: Mapping[str, Any]) -> StoredChat:
        """Return the chat of *question*. The chat is not read yet.

        Raises:
            RelayRefusal: The chat's id is invalid.
        """
        if question.chat_id is None:
            raise RelayRefusal(400, f"The chat's id must be a text of 1 to {ID_CHARACTERS} characters.")
        rest, own = dict(options), self._session.options.domain
        domain = rest.pop("domain", None) or own
        session = self._session if domain == own else self._session.with_options(domain=domain)
        conversation = self._conversation(session, question.chat_id, user, fp=fp)
        return StoredChat(conversation, None if domain == own else domain, question, self._limits, rest)

    async def history(self, chat_id: str, user: str, progress: Wire | None) -> MemoryLog:
        """Return a conversation's newest messages as a JSON list of UIMessages, checked by ``page_events``.

        Args:
            chat_id: The id that the page gave the chat.
            user: The user's id.
            progress: :attr:`Chat.progress` of the running answer, or None.

        Raises:
            RelayRefusal: *user* has no such conversation, or it cannot be read.
        """
        if not is_id(chat_id):
            raise RelayRefusal(404, GONE_TEXT)
        conversation = self._conversation(self._session, chat_id, user)
        messages = await _loaded(conversation)
        # The turn of the running question may already have been saved.
        if progress is not None and progress["last"] == (messages[-1].id if messages else None):
            messages = [*messages[: progress["place"]], *map(Message.from_wire, progress["asked"])]
        if not messages:
            raise RelayRefusal(404, GONE_TEXT)
        hider, events, json_list = ThreadHider(), SafeEvents(), MemoryLog()
        if conversation.thread is not None:
            hider.learn(conversation.thread.id, conversation.thread.key)
        texts = list[bytes]()
        for message in messages[-self._limits.max_messages :]:
            if message.role in ("user", "assistant"):  # the app's instructions are not for pages
                texts.append(stored_message_json(message.to_wire(), events, hider))
                await asyncio.sleep(0)
        json_list.append(b"[%b]" % b",".join(texts))
        json_list.end()
        return json_list

    def _conversation(self, session: MintlifySession, id: str, user: str, **settings: Any) -> Conversation:
        return session.conversation(
            id=id,
            owner=user,
            store=self._store,
            commit="partial",  # after Stop or an interruption, the web page shows the partial answer
            max_messages=self._limits.max_messages,
            **settings,
        )


async def _loaded(conversation: Conversation) -> Sequence[Message]:
    """Return the messages in the store. If it cannot be read, raise RelayRefusal."""
    try:
        await conversation.load()
    except StateError as error:
        raise _unreadable(error) from None
    return conversation.messages


def _unreadable(error: StateError) -> RelayRefusal:
    """Return the refusal for a store that cannot be used. The error is logged."""
    log.error("a conversation cannot be read: %s", mask_service_keys(str(error)))
    return RelayRefusal(503, UNREADABLE_TEXT)


def _domain_of(message: Message) -> object:
    """Return the domain of the thread of *message*, the last of a turn. None means the session's domain."""
    return message.metadata.get(THREAD_DOMAIN) if is_object(message.metadata) else None


def _turn_start(history: Sequence[Message], at: int) -> int:
    """Return the place of the first message in the turn of the message at *at*."""
    while at > 0 and not (history[at].role == "user" and history[at - 1].role != "user"):
        at -= 1
    return at


def _question_of(history: Sequence[Message], target: str | None) -> list[Message]:
    """Return the question of the turn of the message *target*. Without a target, use the last turn."""
    places = [at for at, message in enumerate(history) if target in (None, message.id)]
    turn = history[_turn_start(history, places[-1]) : places[-1] + 1] if places else ()
    question = [message for message in turn if message.role == "user"]
    if not question:
        raise RelayRefusal(404, NO_QUESTION_TEXT)
    return question


def _sendable(message: Message) -> Wire:
    """Return the parts of *message* that a conversation sends again, as JSON."""
    parts = [part.to_wire() for part in message.parts if part.type in SENT_PARTS]
    return {"id": message.id, "role": message.role, "parts": parts}
