"""Conversation: a dialogue with the assistant that keeps its history and its thread.

Nothing changes until a reply is entered. At the answer's ``finish`` the question, the answer and
the thread are committed together, to the store first. A turn that is interrupted, cancelled,
refused or fails leaves no trace in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, Self, Unpack, cast

from attrs import evolve

from ..assistant.reply import Reply
from ..checks import check_name
from ..errors import ConfigurationError, StateError
from ..habits import helpful
from ..http.session_core import Core
from ..messages import Message, Question, coerce_messages
from ..model.strict_json import as_object
from ..model.thread import Thread
from ..protocol.calls import AskOptions, Call, TurnOptions, ask_call, check_turn_options, new_message_id
from ..storage.store import Store
from .history import History, TurnQuestion, messages_to_send
from .records import FORMAT, NAME_CHARACTERS, coerce_history, heads_of, read_fields
from .transcript import ConversationSettings, Transcript
from .turn import ConversationTurn
from .turn_lock import busy_error

__all__ = ["Conversation", "MakesConversations", "ask_with"]


class MakesConversations(Protocol):
    """The part of a session that :meth:`Conversation.from_dict` needs."""

    def conversation(self, *args: Any, **settings: Any) -> Conversation:
        """Return a new conversation."""
        ...


@helpful
class Conversation:
    """A conversation with the assistant. Each question is sent with its history and its thread.

    Made by ``session.conversation(...)``::

        chat = session.conversation(fp="user-42")
        answer = await chat.ask("How do I log in?")
        answer = await chat.ask("And by SSO?")  # sent with the first question and answer

    With a *store*, it survives restarts. The store is read when the first reply is entered (or by
    :meth:`load`). Each finished turn is saved before it becomes part of the history. If another process has
    saved meanwhile, a turn raises :class:`~mintlify_async.errors.StoreConflictError`, if possible before it
    is sent. Then call :meth:`load` and ask again. Nothing cuts a save that has begun: a task that is
    cancelled leaves after 0.25 s, and the turn may be stored. The next turn waits for the save and raises its
    error if nobody has received it.

    One turn runs at a time, even across objects with the same store, owner and id. With ``busy="queue"``,
    turns, :meth:`undo`, :meth:`save` and :meth:`delete` wait in line in the order of their start. Each turn
    reads the store again when it starts. If a task waits for a turn that it started itself, it gets a
    StateError.
    """

    def __init__(self, core: Core, settings: ConversationSettings) -> None:
        """Made by ``session.conversation``; no I/O."""
        self._core = core
        self._transcript = Transcript(settings)

    # The views ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its name in the store."""
        return self._transcript.id

    @property
    def owner(self) -> str:
        """Its owner in the store; the ``fp`` by default."""
        return self._transcript.owner

    @property
    def fp(self) -> str:
        """Names the user to the service."""
        return self._transcript.settings.fp

    @property
    def messages(self) -> tuple[Message, ...]:
        """The finished turns, oldest first. With a store, they show its state at the last read.

        With a store and ``max_messages``, a turn reads only the turns that it sends: :meth:`load` reads all.
        """
        return self._transcript.history.messages

    @property
    def system(self) -> Message | None:
        """The system message that goes before every question, or None."""
        return self._transcript.history.system

    @property
    def thread(self) -> Thread | None:
        """The thread at the service, or None before the first answer."""
        return self._transcript.history.thread

    @property
    def unanswered(self) -> Message | None:
        """The last question, when its turn did not finish; :meth:`retry` asks it again."""
        unfinished = self._transcript.unfinished
        return unfinished.messages[-1] if unfinished is not None else None

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._transcript.lock.locked

    def __repr__(self) -> str:
        """Show its name and size; no text."""
        return f"<Conversation {self.id!r} of {self.owner!r}, {len(self.messages)} messages>"

    # Turns ----------------------------------------------------------------------------------

    def ask(
        self,
        question: Question,
        *,
        replacing: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Reply:
        """Ask the next question. Nothing is sent or changed before the reply is entered, stepped or awaited.

        When the answer's ``finish`` has arrived, question, answer and thread are committed together. A turn
        that ends otherwise does not change the conversation, and its error has the partial answer. If the
        same question is then asked again, it keeps its id.

        Args:
            question: Text, or messages that end with a user's message. Pass only new messages, because the
                history is added here.
            replacing: The id of a message of the conversation, to edit a question or to have it answered
                again. If the new turn is committed, it replaces the turn of that message and all later turns.
                Otherwise they stay. The question is sent with the turns before them, in a new thread, because
                the old thread contains them. ``commit="partial"`` has no effect on it.
            options: Further arguments of ``session.ask``: ``context``, ``filter``,
                ``current_path``, ``retrieval_page_size``, ``timeout``, ``headers``,
                ``extra_body``. ``timeout`` also limits the wait in line.

        Raises:
            ConfigurationError: An argument is invalid. Nothing is sent. An invalid *replacing* may be found
                only when the reply is entered.
            StateError: When the reply is entered: another turn is running. With ``busy="queue"``: the same
                task has started that turn.
            APITimeoutError: When the reply is entered: ``timeout`` has passed. Nothing was sent.
            StoreConflictError: When the reply is entered or at its end: the store has a newer revision. At
                its end, every error of the store has the answer as ``answer``.

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
            options: Options that replace those of the first call.

        Raises:
            StateError: The last turn finished, or there was none.
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
            history = History()  # the turn to replace may not have been read yet; the new turn looks for it
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
        """Remove the last turn and return its question, which can be asked again.

        The service keeps the turns of a thread. To remove the turn there as well, the next question starts a
        new thread and is sent with the history.

        Args:
            keep_thread: Keep the same thread.

        Raises:
            StateError: There is no turn, or one is running; see :class:`Conversation`.
            StoreConflictError: The store has a newer revision. Load and try again.
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
            id: Its name in the store; a new one by default.
            keep_thread: Keep the same thread.

        Raises:
            StateError: It was not read from its store, or not all of it: ``await chat.load()`` first.
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
        """Start with this history, in this thread. Return this conversation.

        If the store has the conversation's id, its data replaces both.

        Args:
            messages: The earlier messages, oldest first.
            thread: The thread that the first question continues; a new one by default.

        Raises:
            ConfigurationError: An argument is invalid.
            StateError: The conversation has messages already, or a turn is running.
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

        For a thread that the service no longer knows (404). Saved with the next turn.

        Raises:
            StateError: A turn is under way.
        """
        transcript = self._transcript
        transcript.lock.check_free()
        transcript.history = evolve(transcript.history, thread=None)

    # Storing --------------------------------------------------------------------------------

    async def load(self) -> Self:
        """Read the conversation from the store, in place of the present one. Return this conversation.

        The first turn reads the store on its own. Call this to show the history, or after a
        :class:`~mintlify_async.errors.StoreConflictError`.

        Raises:
            StateError: It has no store, a turn is running, or the stored data is not a conversation.
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
        """Return the ids of the conversations that *owner* has in *store*, sorted.

        Args:
            store: The store.
            owner: The owner, which is the ``fp`` by default.

        Raises:
            StateError: The store cannot be used.
        """
        prefix = heads_of(check_name(owner, "owner", NAME_CHARACTERS))
        return sorted(key.removeprefix(prefix) for key in await store.keys(prefix))

    async def save(self) -> None:
        """Write the conversation to the store. Each finished turn is saved without a call.

        Raises:
            StateError: It has no store, or a turn is running; see :class:`Conversation`.
            StoreConflictError: The store has a newer revision; :meth:`load` first.
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
        """Delete the conversation from the store, and its history here. Return whether the store had it.

        Raises:
            StateError: It has no store, or a turn is running; see :class:`Conversation`.
        """
        transcript = self._transcript
        transcript.require_store()
        async with transcript.lock.hold(queue=transcript.settings.queue, ignore_save=True):
            return await transcript.delete()

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as a JSON object. It contains the thread's key, so protect it.

        Raises:
            StateError: Not all of it was read from its store: ``await chat.load()`` first.
        """
        return self._transcript.to_dict()

    @classmethod
    def from_dict(cls, session: MakesConversations, stored: object, **settings: Any) -> Conversation:
        """Return the conversation that :meth:`to_dict` described.

        Args:
            session: Sends its questions.
            stored: The result of ``to_dict``.
            settings: Arguments of ``session.conversation``. They replace the stored settings.

        Raises:
            ConfigurationError: *stored* is not such an object.
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
    """Ask as :meth:`Conversation.ask` does, and commit the answer that *finish* returns. For the relay."""
    turn_question = TurnQuestion(
        messages=_checked(question), options=options, replacing=replacing, finish=finish
    )
    return conversation._reply(turn_question)  # pyright: ignore[reportPrivateUsage] - of this module


def _checked(question: Question) -> tuple[Message, ...]:
    messages = tuple(coerce_messages(question, new_message_id))
    if messages[-1].role != "user":
        raise ConfigurationError("the question's last message must be a user's", field="messages")
    return messages
