"""Questions come in; replies go out, and what was said is kept: history and thread together, or not at all.

Nothing changes until a reply is entered. At the answer's ``finish`` the question,
the answer and the thread are committed in one step, in the store first; a turn
that is cut, cancelled, refused or fails leaves no trace in the history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, Unpack

from attrs import evolve, frozen

from .argument_checks import check_messages, check_thread
from .assistant import Reply
from .cancellation import finish_shielded
from .conversation_reply import ConversationReply
from .errors import ConfigurationError, StateError
from .gate import busy_error
from .history import HISTORY_PARTS, HistoryBounds, check_bound, messages_to_send, turn_start
from .json_text import as_object
from .parts import Message
from .question import ContextItem, SearchFilter
from .record import Record, Said, new_message_id, read_said, seed_messages, system_message
from .stores import ConversationStore
from .thread import Thread
from .timeouts import Timeouts

if TYPE_CHECKING:
    from .session import MintlifySession

__all__ = ["AskOptions", "Conversation", "Question"]

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

    One turn runs at a time. Objects with the same store, owner and id take turns, too;
    with ``busy="queue"``, each turn begins with what the store has by then.
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
            await finish_shielded(record.save(said))
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
        self._record.require_store()
        if self._record.active:
            raise busy_error()
        self._record.loaded = False
        await self._record.check_store()
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
            await finish_shielded(record.save(record.said))

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


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(
            f"{name} must be {' or '.join(map(repr, choices))}; got {value!r}", field=name
        )


def _same(question: tuple[Message, ...], text: str) -> bool:
    return len(question) == 1 and question[0] == evolve(Message.user(text), id=question[0].id)
