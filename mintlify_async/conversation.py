"""Questions come in; replies go out, and what was said is kept: history and thread together, or not at all.

Nothing changes until a reply is entered. At the answer's ``finish`` the question,
the answer and the thread are committed in one step, in the store first; a turn
that is cut, cancelled, refused or fails leaves no trace in the history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, Unpack

from attrs import evolve, frozen

from .assistant import Reply
from .errors import ConfigurationError, StateError
from .events import Finish, StreamEvent
from .history import HISTORY_PARTS, HistoryBounds, check_bound, messages_to_send, turn_start
from .models import ContextItem, SearchFilter, Thread
from .parts import Message
from .protocol import check_messages, check_thread
from .record import Record, Said, new_message_id, read_said, seed_messages, system_message
from .shield import to_the_end
from .stores import ConversationStore
from .timeouts import Timeouts
from .wire import as_object

if TYPE_CHECKING:
    from .session import MintlifySession

__all__ = ["AskOptions", "Conversation", "ConversationReply", "Question"]

_log = logging.getLogger("mintlify_async")

Question: TypeAlias = str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]]
"""A question: text, a message, a browser's UIMessage dict, or several of those."""


class AskOptions(TypedDict, total=False):
    """What may accompany a question: arguments of ``session.ask`` that are not the conversation's own."""

    retrieval_page_size: float | None
    filter: SearchFilter | Mapping[str, Any] | None
    context: Sequence[ContextItem | Mapping[str, Any]] | None
    current_path: str | None
    timeout: float | None
    timeouts: Timeouts | None
    headers: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None


@frozen(kw_only=True)
class _Rules:
    """How a conversation behaves; the same for its forks."""

    domain: str | None
    commit: Literal["finish", "partial"]
    busy: Literal["raise", "queue"]
    bounds: HistoryBounds


class Conversation:
    """A conversation with the assistant that carries its history and its thread forward.

    Made by ``session.conversation(...)``::

        chat = session.conversation(fp="user-42")
        reply = await chat.ask("How do I log in?")
        reply = await chat.ask("And by SSO?")  # asked with what was said before

    With a *store* it survives restarts: what the store has is read when the first
    reply is entered (or by :meth:`load`), and each finished turn is saved before it
    counts here. When another process has saved meanwhile, a turn raises
    :class:`~mintlify_async.errors.StoreConflictError`, before it is sent where that
    can be known: :meth:`load` and ask again.

    One turn runs at a time. Objects with the same store, owner and id take turns, too.
    """

    __slots__ = ("__weakref__", "_record", "_rules", "_session", "_store")

    def __init__(
        self,
        session: MintlifySession,
        *,
        fp: str,
        domain: str | None = None,
        store: ConversationStore | None = None,
        id: str | None = None,
        owner: str | None = None,
        thread: Thread | str | None = None,
        messages: Sequence[str | Message | Mapping[str, Any]] = (),
        system: str | Message | None = None,
        commit: Literal["finish", "partial"] = "finish",
        busy: Literal["raise", "queue"] = "raise",
        max_messages: int | None = None,
        max_characters: int | None = None,
        history_parts: Collection[str] | None = HISTORY_PARTS,
        keep_messages: int | None = None,
    ) -> None:
        """Check the arguments; no I/O. ``session.conversation`` explains them."""
        _check_choice("commit", commit, ("finish", "partial"))
        _check_choice("busy", busy, ("raise", "queue"))
        bounds = HistoryBounds(max_messages=max_messages, max_characters=max_characters, parts=history_parts)
        self._session = session
        self._store = store
        self._rules = _Rules(domain=domain, commit=commit, busy=busy, bounds=bounds)
        self._record = Record(
            id=id,
            owner=owner,
            fp=fp,
            said=Said(messages=seed_messages(messages), thread=check_thread(thread)),
            system=system_message(system),
            store=store,
            keep=check_bound("keep_messages", keep_messages),
        )

    # The views ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its name in the store."""
        return self._record.id

    @property
    def owner(self) -> str:
        """Whose it is in the store; the ``fp`` by default."""
        return self._record.owner

    @property
    def fp(self) -> str:
        """Names the user to the service."""
        return self._record.fp

    @property
    def messages(self) -> tuple[Message, ...]:
        """The finished turns, oldest first; with a store, as far as it was read."""
        return self._record.said.messages

    @property
    def system(self) -> Message | None:
        """The system message that goes before every question, or None."""
        return self._record.system

    @property
    def thread(self) -> Thread | None:
        """The thread at the service, or None before the first answer."""
        return self._record.said.thread

    @property
    def unanswered(self) -> Message | None:
        """The last question, when its turn did not finish; :meth:`retry` asks it again."""
        return self._record.failed[0][-1] if self._record.failed is not None else None

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return self._record.gate.busy

    @property
    def revision(self) -> int:
        """The revision in the store that this object stands at; 0 for none."""
        return self._record.revision

    def __repr__(self) -> str:
        """Show its name and size; nothing of what was said."""
        return f"<Conversation {self.id!r} of {self.owner!r}, {len(self.messages)} messages>"

    # Turns ----------------------------------------------------------------------------------

    def ask(self, question: Question, **options: Unpack[AskOptions]) -> Reply:
        """Ask the next question. Nothing is sent or changed before the reply is entered, stepped or awaited.

        When the answer's ``finish`` has come, question, answer and thread are committed
        together. A turn that ends otherwise leaves the conversation as it was; the error
        has what came. Then the same question, asked again, keeps its id.

        Args:
            question: Text; or messages, the last of them a user's. Only what is new:
                the history is added here.
            options: Further arguments of ``session.ask``: ``context``, ``filter``,
                ``current_path``, ``retrieval_page_size``, ``timeout``, ``timeouts``,
                ``headers``, ``extra_body``.

        Raises:
            ConfigurationError: An argument is wrong; nothing is sent.
            StateError: When the reply is entered: another turn is under way.
            StoreConflictError: When the reply is entered or at its end: somebody else saved.

        Example::

            async with chat.ask("How do I log in?") as reply:
                async for text in reply.text_stream:
                    print(text, end="")
        """
        failed = self._record.failed
        if isinstance(question, str) and failed is not None and _same(failed[0], question):
            messages = failed[0]
        else:
            messages = tuple(check_messages(question, new_message_id))
        if messages[-1].role != "user":
            raise ConfigurationError("the question's last message must be a user's", field="messages")
        self._record.check_new(messages)
        return self._reply(messages, options)

    def retry(self, **options: Unpack[AskOptions]) -> Reply:
        """Ask the question again whose turn did not finish: the same message, with the same id.

        Args:
            options: Replace the options it was asked with.

        Raises:
            StateError: The last turn finished, or there was none.
        """
        failed = self._record.failed
        if failed is None:
            raise StateError("there is no question to ask again: the last turn finished")
        messages, before = failed
        return self._reply(messages, options or before)

    def _reply(self, question: tuple[Message, ...], options: Mapping[str, Any]) -> Reply:
        return ConversationReply(
            self._record,
            lambda: self._ask(question, options),
            question,
            options,
            partial=self._rules.commit == "partial",
            queue=self._rules.busy == "queue",
        )

    def _ask(self, question: Sequence[Message], options: Mapping[str, Any]) -> Reply:
        """Return the reply to *question* after what was said so far; nothing is sent yet."""
        system = [self.system] if self.system is not None else []
        return self._session.ask(
            messages_to_send([*system, *self.messages], question, self._rules.bounds),
            thread=self.thread,
            fp=self.fp,
            domain=self._rules.domain,
            **options,
        )

    async def undo(self, *, keep_thread: bool = False) -> list[Message]:
        """Take the last turn back, and return its question, which can be asked again.

        The service remembers what was said in a thread. So that it forgets the turn, too,
        the next question begins a new thread, and carries the history with it.

        Args:
            keep_thread: Go on in the same thread all the same.

        Raises:
            StateError: There is no turn, or one is under way.
            StoreConflictError: Somebody else saved; load and try again.
        """
        record = self._record
        with record.gate.step():
            await record.check_store()
            start = turn_start(self.messages)
            if start is None:
                raise StateError("there is no turn to take back")
            taken = self.messages[start:]
            said = Said(messages=self.messages[:start], thread=self.thread if keep_thread else None)
            await to_the_end(record.save(said))
        return [message for message in taken if message.role == "user"]

    def fork(self, *, id: str | None = None, keep_thread: bool = False) -> Conversation:
        """Return another conversation that begins with what was said here and goes on apart from it.

        It has the same owner, store and settings, and is saved with its first finished
        turn. The service remembers what was said in a thread, and two that share one would
        hear each other; so it begins a new thread, and carries the history there.

        Args:
            id: Its name in the store; a new one by default.
            keep_thread: Go on in the same thread all the same.

        Raises:
            StateError: It was not read from its store yet: ``await chat.load()`` first.
        """
        if not self._record.loaded:
            raise StateError("this conversation was not read from its store yet: `await chat.load()` first")
        bounds = self._rules.bounds
        other = Conversation(
            self._session,
            fp=self.fp,
            domain=self._rules.domain,
            store=self._store,
            id=id,
            owner=self.owner,
            system=self.system,
            commit=self._rules.commit,
            busy=self._rules.busy,
            max_messages=bounds.max_messages,
            max_characters=bounds.max_characters,
            history_parts=bounds.parts,
            keep_messages=self._record.keep,
        )
        said = self._record.said
        other._record.said = said if keep_thread else evolve(said, thread=None)
        other._record.loaded = True
        return other

    def forget_thread(self) -> None:
        """Begin a new thread with the next question; the history goes with it.

        For a thread that the service no longer knows (404). Saved with the next turn.

        Raises:
            StateError: A turn is under way.
        """
        with self._record.gate.step():
            self._record.said = evolve(self._record.said, thread=None)

    # Keeping --------------------------------------------------------------------------------

    async def load(self) -> Self:
        """Read what the store has, in place of what is here. Return this conversation.

        The first turn does this by itself; call it to show the history before, or after a
        :class:`~mintlify_async.errors.StoreConflictError`.

        Raises:
            StateError: It has no store, a turn is under way, or what the store has is no conversation.
        """
        record = self._record
        record.require_store()
        with record.gate.step():
            record.loaded = False
            await record.check_store()
        return self

    async def save(self) -> None:
        """Write what is here to the store. Each finished turn does this by itself.

        Raises:
            StateError: It has no store, or a turn is under way.
            StoreConflictError: Somebody else saved; :meth:`load` first.
        """
        record = self._record
        record.require_store()
        with record.gate.step():
            await record.check_store()
            await to_the_end(record.save(record.said))

    async def delete(self) -> bool:
        """Drop it from the store, and what is here with it. Return whether the store had it.

        Raises:
            StateError: It has no store, or a turn is under way.
        """
        record = self._record
        store = record.require_store()
        with record.gate.step():
            there = await store.delete(self.id, owner=self.owner)
            record.said, record.revision, record.failed, record.loaded = Said(), 0, None, True
        return there

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as a JSON object: the thread's key in clear, to be stored, not shown."""
        return self._record.to_dict(self._record.said)

    @classmethod
    def from_dict(cls, session: MintlifySession, stored: object, **settings: Any) -> Conversation:
        """Make the conversation that :meth:`to_dict` gave.

        Args:
            session: Talks to the service.
            stored: What ``to_dict`` gave.
            settings: Arguments of ``session.conversation``; they win over what was stored.

        Raises:
            ConfigurationError: *stored* is no such object.
        """
        said, system = read_said(stored)
        found = as_object(stored) or {}
        kept: dict[str, Any] = {"system": system}
        kept.update({name: found[name] for name in ("id", "owner", "fp") if isinstance(found.get(name), str)})
        chat = session.conversation(**(kept | settings))
        chat._record.said = said if settings.get("thread") is None else evolve(said, thread=chat.thread)
        chat._record.loaded = True
        return chat


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
        super().__init__(probe._open, probe._settings, observe=probe._observe)
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

    async def _start(self) -> None:
        if self._closed:
            return
        if self._entering or self._inside:
            raise StateError("this reply is already being read by another task; read it in one, or ask twice")
        self._entering = True
        try:
            await self._enter()
        finally:
            self._entering = False
        if self._closed:  # by another task, while it waited in line
            await self._leave()
            return
        try:
            self._ask_anew()
            await super()._start()
        except BaseException as error:
            self._end(error)
            await self._leave(error)  # a block that was not entered is not left
            raise

    async def _enter(self) -> None:
        """Begin the turn: when it is its time, and nobody else has saved."""
        record = self._record
        await record.gate.enter(self, queue=self._queue)
        try:
            await record.check_store()
            record.check_new(self._question)
        except BaseException:
            record.gate.leave()
            raise
        self._inside = True
        self._task = asyncio.current_task()

    def _ask_anew(self) -> None:
        """Ask with the history as it is now that the turn has begun."""
        if self._record.said is not self._before:
            probe = self._ask()
            self._open, self._settings, self._observe = probe._open, probe._settings, probe._observe
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
            await to_the_end(self._commit_whole(said))
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
            self._inside, self._task = False, None
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
        if self._entered:
            free = over and task is _current_task()
        else:
            free = over or (task is not None and task.done())
        if not free or self._reading:
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


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(
            f"{name} must be {' or '.join(map(repr, choices))}; got {value!r}", field=name
        )


def _same(question: tuple[Message, ...], text: str) -> bool:
    return len(question) == 1 and question[0] == evolve(Message.user(text), id=question[0].id)
