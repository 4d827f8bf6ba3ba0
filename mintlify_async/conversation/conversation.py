"""Conversation: a dialogue with the assistant that keeps its history and its thread.

Nothing changes until a reply is entered. When the answer's ``finish`` has arrived, the question, the answer
and the thread are saved together, first in the store. A turn that is interrupted, cancelled, refused or fails
does not change the history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, Self, Unpack, cast

from attrs import evolve

from ..argument_checks import check_name
from ..assistant.reply import Reply
from ..errors import ConfigurationError, StateError
from ..http.session_core import Core
from ..messages import Message, Question, coerce_messages
from ..model.strict_json import as_object
from ..model.thread import Thread
from ..protocol.requests import AskOptions, Call, TurnOptions, ask_call, check_turn_options, new_message_id
from ..storage.store import Store
from ..wrong_names import helpful
from .history import History, TurnQuestion, messages_to_send
from .records import FORMAT, NAME_CHARACTERS, coerce_history, heads_of, read_fields
from .settings import ConversationSettings
from .transcript import Transcript
from .turn import ConversationTurn
from .turn_lock import busy_error

__all__ = ["Conversation", "MakesConversations", "ask_with"]


class MakesConversations(Protocol):
    """The method of a session that :meth:`Conversation.from_dict` needs."""

    def conversation(self, *args: Any, **settings: Any) -> Conversation:
        """Return a new conversation."""
        ...


@helpful
class Conversation:
    """A conversation with the assistant. Each question is sent with its history and its thread.

    It is made by ``session.conversation(...)``::

        chat = session.conversation(fp="user-42")
        answer = await chat.ask("How do I log in?")
        answer = await chat.ask("And by SSO?")  # sent with the first question and answer

    With a *store*, the conversation survives restarts. The store is read when the first reply is entered (or
    by :meth:`load`). Each finished turn is saved before it becomes part of the history. If another process
    has saved the conversation since, a turn raises :class:`~mintlify_async.errors.StoreConflictError`. If
    possible, it does so before its question is sent. Then call :meth:`load` and ask again. A cancellation
    never stops a running save. A cancelled task stops waiting after 0.25 s, and the turn may be stored. The
    next turn waits for the save. If no caller got its error, the next turn raises it.

    One turn runs at a time, even if several objects have the same store, owner and id. With ``busy="queue"``,
    turns, :meth:`undo`, :meth:`save` and :meth:`delete` wait in line in the order of their start. Each turn
    reads the store again when it starts. A task that would wait for its own turn gets a StateError.
    """

    def __init__(self, core: Core, settings: ConversationSettings) -> None:
        """Called by ``session.conversation``. There is no I/O."""
        self._core = core
        self._transcript = Transcript(settings)

    # The views ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The name of the conversation in the store."""
        return self._transcript.id

    @property
    def owner(self) -> str:
        """The owner of the conversation in the store; by default the ``fp``."""
        return self._transcript.owner

    @property
    def fp(self) -> str:
        """The name of the user that the service gets."""
        return self._transcript.settings.fp

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the finished turns, oldest first. With a store, the messages of the last read.

        With a store and ``max_messages``, a turn reads only the turns that it sends. :meth:`load` reads all.
        """
        return self._transcript.history.messages

    @property
    def system(self) -> Message | None:
        """The system message that is sent before every question, or None."""
        return self._transcript.history.system

    @property
    def thread(self) -> Thread | None:
        """The thread at the service, or None before the first answer."""
        return self._transcript.history.thread

    @property
    def unanswered(self) -> Message | None:
        """The last question if its turn did not finish, or None. :meth:`retry` asks it again."""
        unfinished = self._transcript.unfinished
        return unfinished.messages[-1] if unfinished is not None else None

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._transcript.lock.locked

    def __repr__(self) -> str:
        """Show the name, the owner and the number of messages. The text is left out."""
        return f"<Conversation {self.id!r} of {self.owner!r}, {len(self.messages)} messages>"

    # Turns ----------------------------------------------------------------------------------

    def ask(
        self, question: Question, *, replacing: str | None = None, **options: Unpack[TurnOptions]
    ) -> Reply:
        """Ask the next question. Nothing is sent or changed before the reply is entered, stepped or awaited.

        When the answer's ``finish`` has arrived, the question, the answer and the thread are saved together.
        Any other end does not change the conversation, and its error has the partial answer. If you then ask
        the same question again, it keeps its id.

        Args:
            question: Text, or messages that end with a user's message. Pass only new messages, because the
                conversation adds the history.
            replacing: The id of a message of the conversation, to edit a question or to get another answer.
                If the new turn is saved, it replaces the turn of that message and all later turns. Otherwise
                these turns stay. The question is sent with the turns before them, in a new thread, because
                the old thread contains them. ``commit="partial"`` has no effect on this turn.
            options: Additional arguments of ``session.ask``: ``context``, ``filter``, ``current_path``,
                ``retrieval_page_size``, ``timeout``, ``headers``, ``extra_body``. ``timeout`` also limits the
                wait for other turns.

        Raises:
            ConfigurationError: An argument is invalid. Nothing is sent. An invalid *replacing* may be found
                only when the reply is entered.
            StateError: When the reply is entered, another turn is running. With ``busy="queue"``, only if the
                same task started that turn.
            APITimeoutError: When the reply is entered, ``timeout`` has passed. Nothing was sent.
            StoreConflictError: When the reply is entered or ends, the store has a newer revision. At the end,
                every error of the store has the attribute ``answer``.

        Example::

            async with chat.ask("How do I log in?") as reply:
                async for text in reply.text_stream:
                    print(text, end="")
        """
        messages, unfinished = _checked(question), self._transcript.unfinished
        if isinstance(question, str) and unfinished is not None and unfinished.replacing == replacing:
            same_question = (evolve(messages[0], id=unfinished.messages[0].id),)
            messages = same_question if same_question == unfinished.messages else messages
        return self._reply(TurnQuestion(messages=messages, options=options, replacing=replacing))

    def retry(self, **options: Unpack[TurnOptions]) -> Reply:
        """Ask the question of an unfinished turn again, as the same message with the same id.

        Args:
            options: Options that replace the options of the first call.

        Raises:
            StateError: The last turn finished, or there was no turn.
        """
        unfinished = self._transcript.unfinished
        if unfinished is None:
            raise StateError("there is no question to ask again: the last turn finished")
        return self._reply(evolve(unfinished, options=options or unfinished.options))

    def _reply(self, turn_question: TurnQuestion) -> Reply:
        transcript = self._transcript
        check_turn_options(turn_question.options)
        if turn_question.replacing is None or transcript.history.complete:
            history = transcript.before(turn_question)
        else:
            history = History()  # the turn to replace may not be read yet, but the new turn finds it
        prepare = partial(self._call, turn_question)
        call = prepare(history)
        turn = ConversationTurn(
            transcript, turn_question, prepare, history, call, self._core.shared.recordings
        )
        return Reply(self._core, call, turn)

    def _call(self, turn_question: TurnQuestion, history: History) -> Call:
        settings = self._transcript.settings
        self._core.check_open()
        return ask_call(
            self._core.options,
            messages_to_send(history, turn_question.messages, settings.max_messages),
            cast("AskOptions", dict(thread=history.thread, fp=settings.fp, **turn_question.options)),
        )

    async def undo(self, *, keep_thread: bool = False) -> list[Message]:
        """Remove the last turn and return its question. You can ask the question again.

        The service keeps the turns of a thread. To remove the turn there as well, the next question starts a
        new thread and is sent with the history.

        Args:
            keep_thread: Continue the same thread. The service then still has the removed turn.

        Raises:
            StateError: There is no turn, or a turn is running; see :class:`Conversation`.
            StoreConflictError: The store has a newer revision. Call :meth:`load` and try again.
        """
        transcript, queue = self._transcript, self._transcript.settings.queue
        async with transcript.lock.hold(queue=queue):
            await transcript.catch_up(refresh=queue)
            remaining_history = transcript.history.without_last_turn()
            if remaining_history is None and not transcript.history.complete:
                await transcript.read()
                remaining_history = transcript.history.without_last_turn()
            if remaining_history is None:
                raise StateError("there is no turn to undo")
            removed_messages = transcript.history.messages[len(remaining_history.messages) :]
            await self._save(remaining_history.next_version(self.thread if keep_thread else None))
        return [message for message in removed_messages if message.role == "user"]

    def fork(self, *, id: str | None = None, keep_thread: bool = False) -> Conversation:
        """Return another conversation with the same history, which continues independently.

        It has the same owner, store and settings, and is saved with its first finished
        turn. The service keeps the turns of a thread, so two conversations in one thread would mix. Therefore
        the fork starts a new thread and sends the history there.

        Args:
            id: The name of the fork in the store; a new name by default.
            keep_thread: Continue the same thread in both conversations.

        Raises:
            StateError: Not all turns were read from the store. Call ``await chat.load()`` first.
        """
        history, settings = self._transcript.whole(), self._transcript.settings
        settings = evolve(settings, id=id, owner=self.owner, system=self.system)
        return Conversation(self._core, settings)._continue(
            history if keep_thread else evolve(history, thread=None)
        )

    def _continue(self, history: History) -> Self:
        self._transcript.continue_with(evolve(history, system=self.system))
        return self

    def begin_with(
        self,
        messages: Sequence[str | Message | Mapping[str, Any]] = (),
        *,
        thread: Thread | str | None = None,
    ) -> Self:
        """Start with a history, in a thread. Return this conversation.

        If the store has a conversation with this id, its data replaces the history and the thread.

        Args:
            messages: The earlier messages, oldest first.
            thread: The thread that the first question continues; a new one by default.

        Raises:
            ConfigurationError: An argument is invalid.
            StateError: The conversation already has messages, or a turn is running.
        """
        transcript = self._transcript
        transcript.lock.check_free()
        if transcript.history.end:
            raise StateError("this conversation has messages already; begin_with(…) is for a new one")
        history = evolve(transcript.history, thread=Thread.of(thread))
        transcript.history = history.with_messages(coerce_history(messages))
        return self

    def forget_thread(self) -> None:
        """Start a new thread with the next question, and send the history there.

        Use this method if the service no longer has the thread (404). The change is saved with the next turn.

        Raises:
            StateError: A turn is running.
        """
        transcript = self._transcript
        transcript.lock.check_free()
        transcript.history = evolve(transcript.history, thread=None)

    # Storing --------------------------------------------------------------------------------

    async def load(self) -> Self:
        """Read the conversation from the store, and replace the data here. Return this conversation.

        The first turn reads the store without this call. Use the call to show the history, or after a
        :class:`~mintlify_async.errors.StoreConflictError`.

        Raises:
            StateError: There is no store, a turn is running, or the stored data is not a conversation.
        """
        transcript = self._transcript
        transcript.require_store()
        turn = transcript.lock.turn
        if isinstance(turn, ConversationTurn) and turn.transcript is transcript:
            raise busy_error()
        await transcript.lock.saved()
        await transcript.read()
        return self

    @staticmethod
    async def ids(store: Store, *, owner: str) -> list[str]:
        """Return the ids of the conversations of *owner* in *store*, sorted.

        Args:
            store: The store.
            owner: The owner, which is the ``fp`` by default.

        Raises:
            StateError: The store cannot be used.
        """
        prefix = heads_of(check_name(owner, "owner", NAME_CHARACTERS))
        return sorted(key.removeprefix(prefix) for key in await store.keys(prefix))

    async def save(self) -> None:
        """Write the conversation to the store. Finished turns are saved without this call.

        Raises:
            StateError: The conversation has no store, or a turn is running; see :class:`Conversation`.
            StoreConflictError: The store has a newer revision. Call :meth:`load` first.
        """
        transcript = self._transcript
        transcript.require_store()
        async with transcript.lock.hold(queue=transcript.settings.queue):
            await transcript.catch_up()
            await self._save(transcript.history.next_version(self.thread))

    async def _save(self, history: History) -> None:
        transcript = self._transcript
        await transcript.keep(transcript.save(history), self._core.shared.recordings()).result()

    async def delete(self) -> bool:
        """Delete the conversation in the store, and its history here. Return whether the store had it.

        Raises:
            StateError: The conversation has no store, or a turn is running; see :class:`Conversation`.
        """
        transcript = self._transcript
        transcript.require_store()
        async with transcript.lock.hold(queue=transcript.settings.queue, ignore_save=True):
            return await transcript.delete()

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as a JSON object. It contains the thread's key, so protect it.

        Raises:
            StateError: Not all turns were read from the store. Call ``await chat.load()`` first.
        """
        return self._transcript.to_dict()

    @classmethod
    def from_dict(cls, session: MakesConversations, stored: object, **settings: Any) -> Conversation:
        """Make a conversation from the result of :meth:`to_dict`.

        Args:
            session: The session that sends the questions.
            stored: The result of ``to_dict``.
            settings: Arguments of ``session.conversation``. They replace the stored settings.

        Raises:
            ConfigurationError: *stored* is not the result of ``to_dict``.
        """
        fields = as_object(stored) or {}
        if fields.get("version") != FORMAT or not isinstance(fields.get("messages"), list):
            raise ConfigurationError(
                "stored is not a conversation: pass what to_dict() of this version returned", field="stored"
            )
        history = read_fields(fields)
        names = {name: fields[name] for name in ("id", "owner", "fp") if isinstance(fields.get(name), str)}
        chat = session.conversation(**{"system": history.system, **names, **settings})
        return chat._continue(history.with_messages(coerce_history(fields["messages"])))


def ask_with(
    conversation: Conversation,
    question: Question,
    finish: Callable[[Message], Message],
    *,
    replacing: str | None = None,
    **options: Unpack[TurnOptions],
) -> Reply:
    """Ask as :meth:`Conversation.ask` does, but save the answer that *finish* returns. For the relay."""
    turn_question = TurnQuestion(
        messages=_checked(question), options=options, replacing=replacing, finish=finish
    )
    return conversation._reply(turn_question)  # pyright: ignore[reportPrivateUsage] - defined in this file


def _checked(question: Question) -> tuple[Message, ...]:
    messages = tuple(coerce_messages(question, new_message_id))
    if messages[-1].role != "user":
        raise ConfigurationError("the question's last message must be a user's", field="messages")
    return messages
