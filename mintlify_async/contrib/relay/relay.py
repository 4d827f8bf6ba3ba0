"""The relay: checks who asks and how often, asks the assistant, and hands over the open answer.

It uses Starlette only; :mod:`.router` adds the parts for FastAPI.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Required, TypedDict

import anyio
from attrs import define, evolve
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mintlify_async import ConfigurationError, MintlifyError
from mintlify_async.protocol.object_checks import CLOCK, SESSION, check_function, check_type
from mintlify_async.runtime.clock import Clock, SystemClock

from .answer import AnswerHook, AnswerSettings, Mode, OpenReply, RelayResponse, gone, result
from .feedback import RelayFeedback, read_feedback
from .page_events import masked
from .question import PAGE_FIELDS, Question, RelayLimits, page_options, read_question
from .refusals import BUSY, TOO_MANY, RelayRefusal, refusal_for, retry_after
from .running_answers import running_answers
from .seal import DAY, SealError, ThreadSeal

if TYPE_CHECKING:
    from mintlify_async import MintlifySession, Reply, Thread

    from ..stream_store import MemoryStreamStore, SharedStreamStore
    from .live_answer import LiveAnswer

log = logging.getLogger("mintlify_async.relay")

UserHook = Callable[[Request], "str | Awaitable[str]"]
AskOptions = Mapping[str, Any] | Callable[[Request, Mapping[str, Any]], Any] | None
FeedbackHook = Callable[[RelayFeedback], object]
RateHook = Callable[[str], "float | Awaitable[float | None] | None"]


@define
class _Places:
    """Limits how many answers stream at once, in total and for each user."""

    total: int
    per_user: int
    taken: Counter[str]

    def enter(self, user: str) -> None:
        if self.taken.total() >= self.total:
            raise RelayRefusal(503, BUSY, retry_after(1))
        if self.taken[user] >= self.per_user:
            raise RelayRefusal(429, TOO_MANY, retry_after(1))
        self.taken[user] += 1

    def leave(self, user: str) -> None:
        self.taken[user] -= 1
        if self.taken[user] <= 0:
            del self.taken[user]


class RelaySettings(TypedDict, total=False):
    """The arguments that :func:`relay_router` and :func:`relay_routes` pass on to :class:`Relay`."""

    secrets: Required[Sequence[str]]
    rate: RateHook | None
    on_finish: AnswerHook | None
    on_unfinished: AnswerHook | None
    on_feedback: FeedbackHook | None
    mode: Mode
    ask: AskOptions
    page_fields: Collection[str]
    limits: RelayLimits | None
    max_concurrent: int
    max_concurrent_per_user: int
    keep_alive: float | None
    stall: float | None
    seal_ttl: float
    error_text: Callable[[MintlifyError], str] | None
    streams: MemoryStreamStore | SharedStreamStore | None
    clock: Clock | None


class Relay:
    """Answers ``useChat`` pages with the assistant; all keys stay on the server.

    Most apps use :func:`relay_router` (FastAPI) or :func:`relay_routes` (Starlette), which take the same
    arguments. For a handler of your own there are :meth:`respond`, :meth:`open` and, as a FastAPI dependency,
    :meth:`opened`.

    Args:
        session: The session that asks the assistant. The relay never closes it.
        secrets: Random strings of at least 32 characters that encrypt threads for pages. The first one
            encrypts; all of them decrypt.
        user: A plain or async function that takes the request and returns an id of one person or, for people
            without an account, of one browser. The service gets it as ``fp``, so it should not be an e-mail
            address or another name. To refuse the request, raise an ``HTTPException`` or return an empty
            string. Not needed when every call of :meth:`respond` and :meth:`open` passes ``user=``.
        rate: A plain or async function that takes the user, before the body is read. It returns None to
            continue, or the seconds after which the user may ask again (429).
        on_finish: A plain or async function that takes each finished answer, for instance to store it, before
            the page is told that the answer has ended. Its errors are logged and do not reach the page.
        on_unfinished: The same for each answer that was stopped or interrupted.
        on_feedback: A plain or async function that takes each verdict of a reader on an answer, a
            :class:`RelayFeedback`. Pages post it to ``/feedback`` below the path of their questions, as
            ``{"chatId": ..., "messageId": ..., "value": 1}``, or -1. Without a hook that path gives 404.
        mode: ``"safe"`` sends only what every ``useChat`` from ai 5.0.0 on accepts. ``"modern"`` sends
            everything except the thread's id and key, for pages whose release knows all of it.
        ask: Arguments for every question, such as ``{"retrieval_page_size": 8}``; or a plain or async
            function that returns them, given the request and the fields that the page sent besides its
            messages, unchecked. They cannot contain ``fp`` or ``thread``.
        page_fields: The fields that a page may set, of ``currentPath``, ``context`` and ``filter``.
        limits: How much a page may send.
        max_concurrent: How many answers may stream at once; the next request gets 503.
        max_concurrent_per_user: How many answers may stream at once for one user; the next request gets 429.
        keep_alive: Seconds of silence after which a comment is sent, so that proxies keep the connection
            open; None for no comments.
        stall: Seconds that a reader may take to accept a piece of the answer before the answer is closed;
            None for no limit.
        seal_ttl: How long a page can continue its thread, in seconds; 30 days by default.
        error_text: Returns the text that the page shows for the error that interrupted an answer; short fixed
            sentences by default.
        streams: Where answers that run are kept, so that a page can go on with its answer after a reload, and
            only a page that asks to stop it ends it at once: a ``MemoryStreamStore`` for one worker, a
            ``RedisStreamStore`` for several. None: an answer ends when its reader leaves.
        clock: The source of time.

    Raises:
        ConfigurationError: An argument is missing or invalid; ``.field`` names it.
    """

    def __init__(
        self,
        session: MintlifySession,
        *,
        secrets: Sequence[str],
        user: UserHook | None = None,
        rate: RateHook | None = None,
        on_finish: AnswerHook | None = None,
        on_unfinished: AnswerHook | None = None,
        on_feedback: FeedbackHook | None = None,
        mode: Mode = "safe",
        ask: AskOptions = None,
        page_fields: Collection[str] = ("currentPath",),
        limits: RelayLimits | None = None,
        max_concurrent: int = 1000,
        max_concurrent_per_user: int = 20,
        keep_alive: float | None = 15.0,
        stall: float | None = 60.0,
        seal_ttl: float = 30 * DAY,
        error_text: Callable[[MintlifyError], str] | None = None,
        streams: MemoryStreamStore | SharedStreamStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check(mode, page_fields)
        SESSION.check(session, "session", required=True)
        check_type(limits, RelayLimits, "limits")
        for name, hook in (("user", user), ("rate", rate), ("on_finish", on_finish)):
            check_function(hook, name, plain=False)
        check_function(on_unfinished, "on_unfinished", plain=False)
        check_function(on_feedback, "on_feedback", plain=False)
        check_function(error_text, "error_text")
        if not (ask is None or callable(ask) or isinstance(ask, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError("ask must be a mapping of arguments, or a function", field="ask")
        for name, number in (
            ("max_concurrent", max_concurrent),
            ("max_concurrent_per_user", max_concurrent_per_user),
        ):
            if not number >= 1:
                raise ConfigurationError(f"{name} must be 1 or more", field=name)
        for name, seconds in (("keep_alive", keep_alive), ("stall", stall)):
            if seconds is not None and not seconds > 0:
                raise ConfigurationError(f"{name} is in seconds and must be above 0, or None", field=name)
        self._session = session
        self._limits = limits or RelayLimits()
        self._clock: Clock = CLOCK.check(clock, "clock") or SystemClock()
        self._seal = ThreadSeal(secrets, ttl=seal_ttl, clock=self._clock)
        self._user = user
        self._rate = rate
        self._ask = ask
        self._on_feedback = on_feedback
        self._page_fields = frozenset(page_fields)
        self._places = _Places(max_concurrent, max_concurrent_per_user, Counter())
        self._answer_settings = AnswerSettings(
            mode=mode,
            clock=self._clock,
            keep_alive=keep_alive,
            stall=stall,
            seal=self._seal,
            on_finish=on_finish,
            on_unfinished=on_unfinished,
            error_text=error_text,
        )
        self._resumed = _Places(max_concurrent, max_concurrent_per_user, Counter())
        self._running = running_answers(streams, self._answer_settings)

    @property
    def streaming(self) -> int:
        """The number of answers that are open now."""
        return self._places.taken.total()

    async def respond(self, request: Request, *, user: str | None = None) -> Response:
        """Return the response to a page's POST: the streamed answer, or a refusal.

        Args:
            request: The page's request; its body must not have been read yet.
            user: The user's id; the user hook is called when it is None.
        """
        try:
            if self._running is not None:
                opening = partial(self._admit, request, user)
                return RelayResponse(await self._running.ask(request, opening))
            return (await self.open(request, user=user)).response()
        except RelayRefusal as refusal:
            return refusal.response()
        except ClientDisconnect:
            return Response(status_code=499)  # for logs: the reader has left

    async def feedback(self, request: Request, *, user: str | None = None) -> Response:
        """Pass a reader's verdict on an answer to ``on_feedback``; return 204, or a refusal.

        Args:
            request: The page's request; its body must not have been read yet.
            user: The user's id; the user hook is called when it is None.
        """
        try:
            if self._on_feedback is None:
                raise RelayRefusal(404, "Feedback is not collected here.")
            who = await self._who(request, user)
            await self._check_rate(who)
            self._places.enter(who)
            try:
                verdict = await read_feedback(request, who, self._clock, self._limits.body_seconds)
            finally:
                self._places.leave(who)
            await result(self._on_feedback(verdict))
        except RelayRefusal as refusal:
            return refusal.response()
        except ClientDisconnect:
            return Response(status_code=499)
        return Response(status_code=204)

    async def resume(self, request: Request, *, user: str | None = None) -> Response:
        """Return the running answer of the path's ``chat_id`` from its beginning; 204 when there is none.

        A page says in its query what it has: ``after`` is the id of the last message that it has whole. Then
        it gets the answer to that message only, also when that has ended meanwhile.

        Args:
            request: The page's request.
            user: The user's id; the user hook is called when it is None.
        """
        if self._running is None:
            return Response(status_code=204)
        try:
            who = await self._who(request, user)
            after = request.query_params.get("after") or None
            found = await self._running.find(who, request.path_params["chat_id"], after)
            if found is None:
                return Response(status_code=204)
            self._resumed.enter(who)
            return RelayResponse(found, partial(self._resumed.leave, who))
        except RelayRefusal as refusal:
            return refusal.response()

    async def stop(self, request: Request, *, user: str | None = None) -> Response:
        """Stop the running answer of the path's ``chat_id`` at the service; return 204, with or without one.

        Args:
            request: The page's request.
            user: The user's id; the user hook is called when it is None.
        """
        try:
            who = await self._who(request, user)
            if self._running is not None:
                await self._running.stop(who, request.path_params["chat_id"])
        except RelayRefusal as refusal:
            return refusal.response()
        return Response(status_code=204)

    async def opened(self, request: Request) -> AsyncIterator[OpenReply]:
        """Open the answer before your handler runs and close it after the response: a FastAPI dependency.

        Raises:
            RelayRefusal: There is no answer; FastAPI sends the refusal.
        """
        reply = await self.open(request)
        try:
            yield reply
        finally:
            await reply.close()

    async def open(self, request: Request, *, user: str | None = None) -> OpenReply:
        """Check the page's request, ask the assistant, and return when the answer begins.

        Send :meth:`OpenReply.response`, or close the reply.

        Args:
            request: The page's request; its body must not have been read yet.
            user: The user's id; the user hook is called when it is None.

        Raises:
            RelayRefusal: There is no answer, because of the page's request, a limit, or an error of the
                service.
            ClientDisconnect: The reader left before the answer began.
        """
        return await self._admit(request, user)

    async def _admit(self, request: Request, user: str | None, live: LiveAnswer | None = None) -> OpenReply:
        """Open the answer: until the reader leaves or, as *live*, until it is stopped."""
        who = await self._who(request, user)
        await self._check_rate(who)
        self._places.enter(who)  # before the body is read, which takes memory
        leave = partial(self._places.leave, who)
        try:
            return await self._open(request, who, leave, live)
        except BaseException:
            leave()
            raise

    async def _open(
        self, request: Request, user: str, leave: Callable[[], None], live: LiveAnswer | None
    ) -> OpenReply:
        question = await read_question(request, self._limits, self._clock)
        if live is not None and self._running is not None:
            await self._running.make_way(live, user, question.chat_id)
        thread = self._thread(question, user)
        options = await self._options(request, question)
        question = evolve(question, fields={})  # parsed, they can take twenty times their size in the request
        reply = self._reply(question, thread, user, options)
        if live is not None and self._running is not None:
            await self._running.begin(live, question.messages[-1]["id"])
        await _open_while_there(reply, request if live is None else None, in_thread=thread is not None)
        return OpenReply(
            reply,
            question=question,
            thread=thread,
            key=reply.sent_key,
            user=user,
            settings=self._answer_settings,
            leave=leave,
        )

    def _reply(
        self, question: Question, thread: Thread | None, user: str, options: Mapping[str, Any]
    ) -> Reply:
        try:
            return self._session.ask(question.messages, thread=thread, fp=user, **options)
        except MintlifyError as error:
            field = error.field if isinstance(error, ConfigurationError) else None
            if (field or "").startswith("messages"):  # the page sent them; the app set all other fields
                raise RelayRefusal(400, "The assistant does not accept this question.") from None
            raise _logged_refusal(error, in_thread=thread is not None) from None

    async def _who(self, request: Request, user: str | None) -> str:
        if user is None:
            if self._user is None:
                raise ConfigurationError(
                    "pass user= to the relay, or to each respond() and open()", field="user"
                )
            user = await result(self._user(request))
        if user == "anonymous":
            raise ConfigurationError(
                'the user hook returned "anonymous", which all people without an account would share: '
                "return an id of the browser, for instance from a cookie",
                field="user",
            )
        if not user:
            raise RelayRefusal(401, "Please sign in first.")
        if not isinstance(user, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a hook returns anything
            raise ConfigurationError(
                f"the user hook must return a string, not {type(user).__name__}", field="user"
            )
        return user

    async def _check_rate(self, user: str) -> None:
        if self._rate is not None:
            wait = await result(self._rate(user))
            if isinstance(wait, bool):
                raise ConfigurationError(
                    "the rate hook must return None to continue, or seconds to wait, not a boolean",
                    field="rate",
                )
            if wait is not None and wait > 0:
                raise RelayRefusal(429, TOO_MANY, retry_after(wait))

    def _thread(self, question: Question, user: str) -> Thread | None:
        if question.seal is None:
            return None
        try:
            return self._seal.open(question.seal, user)
        except SealError as error:
            log.info("a page's sealed thread was refused: %s", error.reason)
            raise RelayRefusal(*_SEAL_REFUSALS[error.reason]) from None

    async def _options(self, request: Request, question: Question) -> dict[str, Any]:
        own = await result(self._ask(request, question.fields)) if callable(self._ask) else self._ask
        return {**(own or {}), **page_options(question.fields, self._page_fields)}


def _check(mode: str, page_fields: Collection[str]) -> None:
    if mode not in ("safe", "modern"):
        raise ConfigurationError('mode must be "safe" or "modern"', field="mode")
    if isinstance(page_fields, str) or set(page_fields) - set(PAGE_FIELDS):
        raise ConfigurationError(f"page_fields may name {', '.join(PAGE_FIELDS)}", field="page_fields")


_SEAL_REFUSALS = {
    # 404, so that the user does not learn that the conversation exists
    "foreign": (404, "This conversation is not there. Please start a new one."),
    "expired": (400, "This conversation has expired. Please start a new one."),
    "changed": (400, "This conversation cannot be continued. Please start a new one."),
}


async def _open_while_there(reply: Reply, request: Request | None, *, in_thread: bool) -> None:
    """Open the reply, unless the reader leaves first: a silent service must not occupy the user's place.

    Without a request, open it whether the reader leaves or not.
    """
    opened = False
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def watch(request: Request) -> None:
            await gone(request.receive)
            tasks.cancel_scope.cancel()

        if request is not None:
            tasks.start_soon(watch, request)
        try:
            await reply.__aenter__()
            opened = True
        except MintlifyError as error:
            failure = _logged_refusal(error, in_thread=in_thread)
        except Exception as error:  # the app's own, for instance from its key function; raised below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not opened:
        with anyio.CancelScope(shield=True):
            await reply.close()
        raise ClientDisconnect


def _logged_refusal(error: MintlifyError, *, in_thread: bool) -> RelayRefusal:
    refusal = refusal_for(error, in_thread=in_thread)
    level = logging.ERROR if refusal.status_code in (500, 502) else logging.WARNING
    told = (refusal.status_code, type(error).__name__, masked(str(error)))
    log.log(level, "the assistant gave no answer (the page gets %s): %s: %s", *told)
    return refusal
