"""A page's request in, the assistant's answer out as it streams: guarded, sealed, and ended with the reader.

Starlette only; :mod:`.router` adds what is FastAPI's own.
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

from mintlify_async.clock import Clock, SystemClock
from mintlify_async.errors import ConfigurationError, MintlifyError

from .answer import AnswerHook, Mode, OpenReply, Teller, gone, result
from .page_events import masked
from .question import PAGE_FIELDS, Question, RelayLimits, page_options, read_question
from .refusals import BUSY, TOO_MANY, RelayRefusal, refusal_for, retry_after
from .seal import DAY, SealError, ThreadSeal

if TYPE_CHECKING:
    from mintlify_async.assistant import Reply
    from mintlify_async.session import MintlifySession
    from mintlify_async.thread import Thread

__all__ = ["Relay", "RelaySettings"]

log = logging.getLogger("mintlify_async.relay")

UserHook = Callable[[Request], "str | Awaitable[str]"]
AskOptions = Mapping[str, Any] | Callable[[Request, Mapping[str, Any]], Any] | None
RateHook = Callable[[str], "float | Awaitable[float | None] | None"]


@define
class _Places:
    """How many answers may stream at once: all together, and for one user."""

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
    """What :func:`relay_router` and :func:`relay_routes` hand on to :class:`Relay`, which documents it."""

    secrets: Required[Sequence[str]]
    rate: RateHook | None
    on_finish: AnswerHook | None
    on_unfinished: AnswerHook | None
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
    clock: Clock | None


class Relay:
    """Answers ``useChat`` pages from the assistant; the key, and the thread's, stay on the server.

    Most apps want :func:`relay_router` (FastAPI) or :func:`relay_routes`
    (Starlette), which take the same arguments. For a handler of your own there
    are :meth:`respond`, :meth:`open` and, as a FastAPI dependency,
    :meth:`opened`.

    Args:
        session: Asks the assistant; yours to close.
        secrets: Random strings of at least 32 characters that seal threads for
            pages. The first one seals, all of them open.
        user: Tells who asks: gets the request, returns an id that belongs to
            one person or, for people without an account, to one browser. It
            becomes the service's ``fp``, so let it be a name that says
            nothing, not an e-mail address. May be a coroutine function; refuse
            with an ``HTTPException`` or by returning an empty string. Not
            needed when every call of :meth:`respond` and :meth:`open` names
            the user.
        rate: Called with the user before anything is read; returns None to go
            on, or the seconds after which the user may ask again (429). May be
            a coroutine function.
        on_finish: Called with each finished answer, before the page is told
            that it is over; to store it, say. May be a coroutine function.
            What it raises is logged and does not reach the page.
        on_unfinished: The same for each answer that was stopped or broke off.
        mode: ``"safe"`` sends only what every ``useChat`` from ai 5.0.0 on
            accepts; ``"modern"`` sends everything but the thread's id and key,
            for pages of a release that knows all of it.
        ask: What every question is asked with, such as
            ``{"retrieval_page_size": 8}``; or a function that returns it, of the
            request and of what the page sent besides its messages, which is
            not checked. May be a coroutine function. Never ``fp`` or ``thread``.
        page_fields: Fields that a page may choose: of ``currentPath``,
            ``context`` and ``filter``.
        limits: How much a page may send.
        max_concurrent: Answers that may stream at once; the next gets 503.
        max_concurrent_per_user: The same for one user; the next gets 429.
        keep_alive: Seconds of silence after which a comment is sent, so that
            proxies keep the connection; None for never.
        stall: Seconds that a reader may take to accept a piece of the answer
            before the answer is given up; None for any time.
        seal_ttl: How long a page's sealed thread can be gone on with, in
            seconds; 30 days unless told.
        error_text: Turns the error that broke an answer off into what the page
            shows; short fixed sentences unless told.
        clock: Where the time comes from.

    Raises:
        ConfigurationError: An argument is missing or wrong; it names which.
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
        clock: Clock | None = None,
    ) -> None:
        """Check the arguments; nothing is sent."""
        _check(mode, page_fields)
        _check_at_least_one(max_concurrent=max_concurrent, max_concurrent_per_user=max_concurrent_per_user)
        _check_seconds(keep_alive=keep_alive, stall=stall)
        self._session = session
        self._limits = limits or RelayLimits()
        self._clock: Clock = clock or SystemClock()
        self._seal = ThreadSeal(secrets, ttl=seal_ttl, clock=self._clock)
        self._user = user
        self._rate = rate
        self._ask = ask
        self._page_fields = frozenset(page_fields)
        self._places = _Places(max_concurrent, max_concurrent_per_user, Counter())
        self._teller = Teller(
            mode=mode,
            clock=self._clock,
            keep_alive=keep_alive,
            stall=stall,
            seal=self._seal,
            on_finish=on_finish,
            on_unfinished=on_unfinished,
            error_text=error_text,
        )

    @property
    def streaming(self) -> int:
        """How many answers are open at the moment."""
        return self._places.taken.total()

    async def respond(self, request: Request, *, user: str | None = None) -> Response:
        """Return the whole answer to a page's POST, a refusal included: a handler in one line.

        Args:
            request: The page's request; its body must not have been read yet.
            user: Who asks; the user hook is asked when it is not given.
        """
        try:
            return (await self.open(request, user=user)).response()
        except RelayRefusal as refusal:
            return refusal.response()
        except ClientDisconnect:
            return Response(status_code=499)  # nobody is there to read it

    async def resume(self, request: Request) -> Response:
        """Answer a page that asks, on loading, for a stream to go on with: there is none."""
        return Response(status_code=204)

    async def opened(self, request: Request) -> AsyncIterator[OpenReply]:
        """Open the answer before your handler runs and close it after the response: a FastAPI dependency.

        Raises:
            RelayRefusal: There is no answer; FastAPI sends what it says.
        """
        reply = await self.open(request)
        try:
            yield reply
        finally:
            await reply.close()

    async def open(self, request: Request, *, user: str | None = None) -> OpenReply:
        """Check the page's request, ask the assistant, and return when its answer begins.

        The caller sends :meth:`OpenReply.response` or closes the reply.

        Args:
            request: The page's request; its body must not have been read yet.
            user: Who asks; the user hook is asked when it is not given.

        Raises:
            RelayRefusal: There is no answer: what the page sent, a limit, or
                the service stands against it.
            ClientDisconnect: The reader left before the answer began.
        """
        who = await self._who(request, user)
        await self._check_rate(who)
        self._places.enter(who)  # before anything is read: bodies take memory
        leave = partial(self._places.leave, who)
        try:
            return await self._open(request, who, leave)
        except BaseException:
            leave()
            raise

    async def _open(self, request: Request, user: str, leave: Callable[[], None]) -> OpenReply:
        question = await read_question(request, self._limits, self._clock)
        thread = self._thread(question, user)
        options = await self._options(request, question)
        question = evolve(question, fields={})  # may be twenty times as large as it came: not kept any longer
        reply = self._reply(question, thread, user, options)
        await _open_while_there(reply, request, in_thread=thread is not None)
        return OpenReply(reply, question=question, thread=thread, user=user, teller=self._teller, leave=leave)

    def _reply(
        self, question: Question, thread: Thread | None, user: str, options: Mapping[str, Any]
    ) -> Reply:
        try:
            return self._session.ask(question.messages, thread=thread, fp=user, **options)
        except ConfigurationError as error:
            if (error.field or "").startswith("messages"):  # the page's, all else is the app's
                raise RelayRefusal(400, "The assistant does not accept this question.") from None
            raise _logged_refusal(error, in_thread=thread is not None) from None
        except MintlifyError as error:
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
                'the user hook returned "anonymous", which everybody without an account would share: '
                "return an id of the browser, from a cookie, say",
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
                    "the rate hook must return None to go on, or seconds to wait; not a boolean", field="rate"
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
            raise _seal_refusal(error) from None

    async def _options(self, request: Request, question: Question) -> dict[str, Any]:
        own = await result(self._ask(request, question.fields)) if callable(self._ask) else self._ask
        return {**(own or {}), **page_options(question.fields, self._page_fields)}


def _check(mode: str, page_fields: Collection[str]) -> None:
    if mode not in ("safe", "modern"):
        raise ConfigurationError('mode must be "safe" or "modern"', field="mode")
    if isinstance(page_fields, str) or set(page_fields) - set(PAGE_FIELDS):
        raise ConfigurationError(f"page_fields may name {', '.join(PAGE_FIELDS)}", field="page_fields")


def _check_at_least_one(**numbers: int) -> None:
    for name, number in numbers.items():
        if not number >= 1:
            raise ConfigurationError(f"{name} must be 1 or more", field=name)


def _check_seconds(**times: float | None) -> None:
    for name, seconds in times.items():
        if seconds is not None and not seconds > 0:
            raise ConfigurationError(f"{name} is in seconds and must be above 0, or None", field=name)


def _seal_refusal(error: SealError) -> RelayRefusal:
    match error.reason:
        case "foreign":  # as if it were not there: to this user it is not
            return RelayRefusal(404, "This conversation is not there. Please start a new one.")
        case "expired":
            return RelayRefusal(400, "This conversation has expired. Please start a new one.")
        case _:
            return RelayRefusal(400, "This conversation cannot be gone on with. Please start a new one.")


async def _open_while_there(reply: Reply, request: Request, *, in_thread: bool) -> None:
    """Open the reply, unless the reader leaves first: a service that says nothing must not hold the place."""
    opened = False
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await gone(request.receive)
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            await reply.__aenter__()
            opened = True
        except MintlifyError as error:
            failure = _logged_refusal(error, in_thread=in_thread)
        except Exception as error:  # the app's own, from its key's function, say: raised below, as it is
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
