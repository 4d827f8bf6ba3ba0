"""The relay: checks who asks and how often, asks the assistant, and hands over the open answer.

It uses Starlette only; :mod:`.router` adds the parts for FastAPI.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Required, TypedDict

from attrs import define, evolve
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mintlify_async import ConfigurationError, MintlifyError, QuotaExceededError
from mintlify_async.protocol.argument_checks import check_seconds
from mintlify_async.protocol.object_checks import CLOCK, SESSION, check_function, check_type
from mintlify_async.runtime.clock import Clock, SystemClock

from .adapters import PageRoute, asgi_app, fastapi_router, starlette_routes
from .answer import AnswerHook, AnswerSettings, Mode, OpenReply, RelayResponse
from .feedback import RelayFeedback, read_feedback
from .hooks import call
from .limits import RelayLimits, check_places, check_silence
from .opening import ask_while_there, logged_refusal, thread_of, without_patience
from .question import PAGE_FIELDS, Question, merged_options, page_options, read_question
from .refusals import AT_WORK, BUSY, TOO_MANY, RelayRefusal, refusal_for, retry_after
from .request_body import BodyReader
from .running_answers import running_answers
from .seal import DAY, ThreadSeal
from .shutdown import Shutdown, on_signal
from .stored_chats import StoredQuestion, stored_chats
from .uploads import Uploads
from .waiting_page import WaitingResponse

if TYPE_CHECKING:
    from aiohttp.web import RouteDef
    from fastapi import APIRouter
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from mintlify_async import MintlifySession, Reply
    from mintlify_async.storage import ConversationStore

    from ..stream_store import MemoryStreamStore, SharedStreamStore
    from .live_answer import LiveAnswer

log = logging.getLogger("mintlify_async.relay")

UserHook = Callable[[Request], "str | Awaitable[str]"]
AskOptions = Mapping[str, Any] | Callable[[Request, Mapping[str, Any]], Any] | None
FeedbackHook = Callable[[RelayFeedback], object]
RateHook = Callable[[str, Request], "float | Awaitable[float | None] | None"]


@define
class _Places:
    """Limits how many answers stream at once, in total and for each user."""

    total: int
    per_user: int
    taken: Counter[str]

    def check(self, user: str) -> None:
        """Raise when there is no place for an answer to *user*."""
        if self.taken.total() >= self.total:
            raise RelayRefusal(503, BUSY, retry_after(1))
        if self.taken[user] >= self.per_user:
            raise RelayRefusal(429, TOO_MANY, retry_after(1))

    def enter(self, user: str) -> None:
        self.check(user)
        self.taken[user] += 1

    def leave(self, user: str) -> None:
        self.taken[user] -= 1
        if self.taken[user] <= 0:
            del self.taken[user]


class RelaySettings(TypedDict, total=False):
    """The arguments that :func:`relay_router` and :func:`relay_routes` pass on to :class:`Relay`."""

    secrets: Required[Sequence[str]]
    store: ConversationStore | None
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

    :meth:`router` (FastAPI), :meth:`routes` (Starlette), :meth:`app` (any ASGI framework) and
    :meth:`aiohttp_routes` add it to an app. For a handler of your own there are :meth:`respond`,
    :meth:`open` and, as a FastAPI dependency, :meth:`opened`.

    The functions of your app may be plain or async. A plain one runs in a thread, as FastAPI runs it, so that
    a database query does not stop the other answers; only ``error_text`` does not, and must be quick.

    Args:
        session: The session that asks the assistant. The relay never closes it. A refusal of the service, or
            of a quota in the mode ``"wait"``, reaches the page within 2 seconds, with its ``Retry-After``.
        secrets: Random strings of at least 32 characters that encrypt threads for pages. The first one
            encrypts; all of them decrypt. The first one also makes the pseudonym by which the service knows a
            user.
        user: A plain or async function that takes the request and returns an id of one person or, for people
            without an account, of one browser. The id stays in your app: the service gets a pseudonym as
            ``fp``. To refuse the request, raise an ``HTTPException`` or return an empty string. Not needed
            when every call of :meth:`respond` and :meth:`open` passes ``user=``.
        store: Where conversations are kept, each named by its chat's id and owned by the user. A page then
            posts its newest message only (of a whole history, only that counts), and gets the history from
            :meth:`history`. Without a store, pages keep their history and their sealed thread.
        rate: A plain or async function that takes the user and the request, before the body is read. It
            returns None to continue, or the seconds after which the user may ask again (429). Questions and
            verdicts are ``POST``; ``request.method`` is ``GET`` for a history or an answer to go on with.
            A Stop is not asked about, and never refused.
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
        page_fields: The fields that a page may set, of ``currentPath``, ``context`` and ``filter``, unless
            *ask* sets them. Of a filter a page may name ``version`` and ``language``, never ``groups``: these
            are what the reader is allowed to see.
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
        streams: Where running answers are kept, so that a page can go on after a reload: a
            ``MemoryStreamStore`` for one worker, a ``RedisStreamStore`` for several. Only Stop or a new
            question of the page ends an answer at once. None: an answer ends when its reader leaves.
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
        store: ConversationStore | None = None,
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
        told = {"on_finish": on_finish, "on_unfinished": on_unfinished, "on_feedback": on_feedback}
        for name, hook in {"user": user, "rate": rate, **told}.items():
            check_function(hook, name, plain=False)
        check_function(error_text, "error_text")
        if not (ask is None or callable(ask) or isinstance(ask, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError("ask must be a mapping of arguments, or a function", field="ask")
        check_places(max_concurrent=max_concurrent, max_concurrent_per_user=max_concurrent_per_user)
        check_silence(keep_alive=keep_alive, stall=stall)
        self._session = without_patience(session)
        limits = limits or RelayLimits()
        self._clock: Clock = CLOCK.check(clock, "clock") or SystemClock()
        self._bodies = BodyReader(limits, Uploads(limits), self._clock)
        self._seal = ThreadSeal(secrets, ttl=seal_ttl, clock=self._clock)
        self._chats = stored_chats(self._session, store, self._clock, limits.messages)
        self._user = user
        self._rate = rate
        self._ask = ask
        self._on_feedback = on_feedback
        self._page_fields = frozenset(page_fields)
        self._shutdown = Shutdown(self._clock)
        self._places = _Places(max_concurrent, max_concurrent_per_user, Counter())
        self._loading = _Places(max_concurrent, max_concurrent_per_user, Counter())  # histories, in memory
        self._answer_settings = AnswerSettings(
            mode=mode,
            clock=self._clock,
            keep_alive=keep_alive,
            stall=stall,
            seal=self._seal,
            shutdown=self._shutdown,
            on_finish=on_finish,
            on_unfinished=on_unfinished,
            error_text=error_text,
        )
        self._resumed = _Places(max_concurrent, max_concurrent_per_user, Counter())
        self._domain = None if ask is None or callable(ask) else ask.get("domain")
        self._answer_settings = self._settings_for(self._domain)
        self._running = running_answers(streams, self._answer_settings, self._chats)

    @property
    def streaming(self) -> int:
        """The number of answers that are open now."""
        return self._places.taken.total()

    @property
    def arriving(self) -> int:
        """The size of the request bodies that are arriving now, in bytes."""
        return self._bodies.uploads.bytes

    def router(self, *, path: str = "/api/chat", user: Any = None) -> APIRouter:
        """Return a FastAPI router: ``app.include_router(relay.router())``.

        Args:
            path: The path that pages post their questions to; the other paths are below it.
            user: ``Depends(current_user)``, with a dependency of yours that returns the user's id; the
                relay's user hook by default.

        Raises:
            ConfigurationError: *path* has no slash in front, or nothing says who the user is.
        """
        return fastapi_router(self._page_routes(user), path, user)

    def routes(self, *, path: str = "/api/chat") -> list[Route]:
        """Return Starlette routes: ``Starlette(routes=relay.routes())``. *path* is as for :meth:`router`."""
        return starlette_routes(self._page_routes(), path)

    def app(self, *, path: str = "/api/chat", rest: ASGIApp | None = None) -> ASGIApp:
        """Return an ASGI application, to be mounted in another or put in front of it.

        Args:
            path: As for :meth:`router`, below the path at which you mount it. ``"/"`` is for frameworks
                that mount at a path without a slash at its end.
            rest: The application that gets all other requests, and the lifespan.
        """
        return asgi_app(self._page_routes(), path, rest)

    def aiohttp_routes(self, *, path: str = "/api/chat") -> list[RouteDef]:
        """Return routes for aiohttp.web: ``app.add_routes(relay.aiohttp_routes())``.

        The relay's hooks get Starlette's request; ``request.scope["aiohttp.request"]`` is the server's own.
        *path* is as for :meth:`router`.
        """
        from .aiohttp_web import aiohttp_routes  # aiohttp's server takes time to import

        return aiohttp_routes(self._page_routes(), path)

    def _page_routes(self, user: object = None) -> list[PageRoute]:
        """Return what answers a page's requests: the table that each framework's routes are made of."""
        if user is None and self._user is None:
            raise ConfigurationError(
                "user is missing: pass a function that takes the request and returns the user's id, "
                "or an id of the browser for people without an account",
                field="user",
            )
        return [
            PageRoute("POST", "", self.respond),
            PageRoute("POST", "/feedback", self.feedback),
            # ai 5.0.0 does not encode slashes in the chat's id.
            PageRoute("GET", "/{chat_id:path}/stream", self.resume),
            PageRoute("DELETE", "/{chat_id:path}/stream", self.stop),
            PageRoute("GET", "/{chat_id:path}", self.history),
        ]

    async def respond(self, request: Request, *, user: str | None = None) -> Response:
        """Return the response to a page's POST: the streamed answer, or a refusal.

        The question is asked while the response is sent, which decides its status then. If the assistant is
        silent for 5 seconds, that is 200 with a comment, so that a proxy does not give up; a refusal that
        comes later is an ``error`` event.

        Args:
            request: The page's request; its body must not have been read yet.
            user: The user's id; the user hook is called when it is None.
        """

        async def answer(asked: Callable[[], object]) -> Response:
            try:
                if self._running is not None:
                    opening = partial(self._admit, request, user, asked)
                    return RelayResponse(await self._running.ask(request, opening))
                return (await self._admit(request, user, asked)).response()
            except RelayRefusal as refusal:
                return refusal.response()
            except ClientDisconnect:
                return Response(status_code=499)  # for logs: the reader has left

        return WaitingResponse(answer, self._answer_settings)

    async def drain(self, seconds: float) -> None:
        """End all answers, because the app shuts down; new questions get 503 from now on.

        Returns when no answer runs any more. Give it less time than the server gives its connections. It
        must run before or while the server waits for them: :meth:`drain_on_signal` sees to that. aiohttp.web
        calls ``on_shutdown`` at the right time.

        Args:
            seconds: How long running answers may take. Then their pages get an ``error`` event and
                ``[DONE]``, and ``on_unfinished`` an answer whose outcome is ``interrupted``, within two
                more seconds. 0 cuts them at once.

        Raises:
            ConfigurationError: *seconds* is below 0, or no finite number.
        """
        check_seconds(seconds, "seconds", zero=True)
        await self._shutdown.drain(seconds, lambda: self.streaming + self._resumed.taken.total())
        if self._running is not None:
            await self._running.written()

    def drain_on_signal(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """Return a block, for your app's lifespan, in which SIGTERM or SIGINT begins :meth:`drain`.

        A server runs the end of the lifespan only when its connections have ended, which is too late to
        drain. The signal still reaches the server's own handler. Where there is none, as in a worker process
        of hypercorn, and outside the main thread, the signal is left alone; the block's end drains, too.

        Args:
            seconds: As for :meth:`drain`.
        """
        check_seconds(seconds, "seconds", zero=True)
        return on_signal(lambda: self.drain(seconds))

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
            await self._check_rate(who, request)
            verdict = await read_feedback(request, who, self._bodies)
            await call(self._on_feedback, verdict)
        except RelayRefusal as refusal:
            return refusal.response()
        except ClientDisconnect:
            return Response(status_code=499)
        return Response(status_code=204)

    async def history(self, request: Request, *, user: str | None = None) -> Response:
        """Return the messages of the user's conversation ``chat_id`` as JSON, for ``useChat({messages})``.

        The newest ones, as many as ``RelayLimits.messages``. 404 if the user has no such conversation.

        Args:
            request: The page's request, with ``chat_id`` among the parameters of its path.
            user: The user's id; the user hook is called when it is None.
        """
        try:
            if self._chats is None:
                raise RelayRefusal(404, "Conversations are not kept here.")
            who = await self._who(request, user)
            await self._check_rate(who, request)
            self._loading.enter(who)
            leave = partial(self._loading.leave, who)
            try:
                events, chat_id = self._answer_settings.page_events(), request.path_params["chat_id"]
                elsewhere = await self._running.asked_elsewhere(who, chat_id) if self._running else ""
                response = await self._chats.history(chat_id, who, events, elsewhere)
            except BaseException:
                leave()
                raise
            weakref.finalize(response, leave)
        except RelayRefusal as refusal:
            return refusal.response()
        except MintlifyError as error:
            return logged_refusal(error).response()
        return response

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
            await self._check_rate(who, request)
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
        return await self._admit(request, user, lambda: None)

    async def _admit(
        self,
        request: Request,
        user: str | None,
        asked: Callable[[], object],
        live: LiveAnswer | None = None,
    ) -> OpenReply:
        """Open the answer: until the reader leaves or, as *live*, until it is stopped.

        *asked* is called when the question is about to be sent.
        """
        self._shutdown.check()
        who = await self._who(request, user)
        await self._check_rate(who, request)
        if live is None:  # its question may end the answer that has the place
            self._places.check(who)  # taken when the body has arrived: slow ones must not hold places
        question = await read_question(request, self._bodies, stored=self._chats is not None)
        options = await self._options(request, question)
        question = evolve(question, fields={})  # parsed, they can take twenty times their size in the request
        if live is not None and self._running is not None:
            await self._running.make_way(live, who, question.chat_id)
        self._shutdown.check()  # a drain may have begun and ended meanwhile
        self._places.enter(who)
        leave = partial(self._places.leave, who)
        try:
            return await self._open(request, question, options, who, leave, asked, live)
        except BaseException:
            leave()
            raise

    async def _open(
        self,
        request: Request,
        question: Question,
        options: Mapping[str, Any],
        user: str,
        leave: Callable[[], None],
        asked: Callable[[], object],
        live: LiveAnswer | None,
    ) -> OpenReply:
        domain = options.get("domain")
        settings = self._answer_settings if domain == self._domain else self._settings_for(domain)
        fp = self._seal.pseudonym(user)
        running = None if live is None else self._running
        stored: StoredQuestion | None = None
        try:
            if self._chats is None:
                thread = thread_of(question, user, settings.seal)
                ask: Callable[..., Reply] = partial(self._session.ask, question.messages, fp=fp, **options)
            else:
                stored = await self._chats.begin(question, user, options, fp=fp)
                question, thread, ask = stored.question, stored.thread, stored.ask
            if live is not None and running is not None:
                await running.begin(live, question.messages[-1]["id"], stored.for_others() if stored else "")
            asked()
            page = request if live is None else None
            reply = await ask_while_there(ask, thread, page, self._shutdown)
        except MintlifyError as error:
            if stored is not None and stored.is_busy(error):
                raise RelayRefusal(409, AT_WORK) from None
            raise logged_refusal(error) from None
        return OpenReply(
            reply,
            question=question,
            thread=thread,
            key=reply.sent_key,
            user=user,
            settings=settings,
            leave=leave,
            kept=None if stored is None else stored.answer,
        )

    def _settings_for(self, domain: object) -> AnswerSettings:
        """Return the settings of an answer about *domain*, by default the session's: its seal is for it."""
        site = domain or self._session.options.domain
        return evolve(self._answer_settings, seal=self._seal.at(self._session.base_url, f"{site}"))

    async def _who(self, request: Request, user: str | None) -> str:
        if user is None:
            if self._user is None:
                raise ConfigurationError(
                    "pass user= to the relay, or to each respond() and open()", field="user"
                )
            user = await call(self._user, request)
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

    async def _check_rate(self, user: str, request: Request) -> None:
        if self._rate is not None:
            try:
                wait = await call(self._rate, user, request)
            except QuotaExceededError as error:
                raise refusal_for(error) from None
            if wait is None:
                return
            if isinstance(wait, bool) or not isinstance(wait, int | float):
                raise ConfigurationError(
                    "the rate hook must return None to continue, or seconds to wait, "
                    f"not {type(wait).__name__}",
                    field="rate",
                )
            if wait > 0:
                raise RelayRefusal(429, TOO_MANY, retry_after(wait))

    async def _options(self, request: Request, question: Question) -> dict[str, Any]:
        own = await call(self._ask, request, question.fields) if callable(self._ask) else self._ask
        chosen = page_options(question.fields, self._page_fields, self._bodies.limits)
        return merged_options(own or {}, chosen)


def _check(mode: str, page_fields: Collection[str]) -> None:
    if mode not in ("safe", "modern"):
        raise ConfigurationError('mode must be "safe" or "modern"', field="mode")
    if isinstance(page_fields, str) or set(page_fields) - set(PAGE_FIELDS):
        raise ConfigurationError(f"page_fields may name {', '.join(PAGE_FIELDS)}", field="page_fields")
