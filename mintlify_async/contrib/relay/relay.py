"""The relay checks the user and the rate, reads the question, and returns the response.

The relay needs Starlette. Only :meth:`Relay.router` also needs FastAPI.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from attrs import evolve
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mintlify_async import ConfigurationError, QuotaExceededError
from mintlify_async.argument_checks import check_number, check_seconds, check_store
from mintlify_async.runtime.logs import log_fields

from ...wrong_names import helpful
from .. import extra_missing
from ..memory_stream_store import MemoryStreamStore
from .answer_lifetimes import RunningAnswers, chat_key
from .answer_log import Log
from .chats import Chat, PageChat, StoredChats
from .client_address import ClientAddresses
from .page_question import PageQuestion, QuestionLimits, is_id, read_question
from .page_response import PageResponse
from .refusal_texts import (
    NOT_KEPT_TEXT,
    SIGN_IN_TEXT,
    TOO_MANY_TEXT,
    RelayRefusal,
    refusal_for,
    retry_after_header,
)
from .request_body import MAX_BODY_BYTES, BodyReader
from .running_answer import Asker, EndHook, RelayedAnswer
from .seal import ThreadSeal

if TYPE_CHECKING:
    from fastapi import APIRouter

    from mintlify_async import MintlifySession
    from mintlify_async.storage import Store

    from ..redis.redis_stream_store import RedisStreamStore

log = logging.getLogger("mintlify_async.relay")

UserHook = Callable[[Request], "str | Awaitable[str]"]
AskArguments = Mapping[str, Any] | Callable[[Request, Mapping[str, Any]], Any] | None
RateHook = Callable[[str, Request], "float | Awaitable[float | None] | None"]
Handler = Callable[[Request, str], Awaitable[Response]]

MAX_RETRYING = 2.0  # seconds, because for a web page a refusal with "retry in 30 s" is better than waiting
_HOOK_DECIDES: Any = object()  # in place of a user: the hook Relay(user=...) returns the user
JSON = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


@helpful
class Relay:
    """Answers ``useChat`` pages with the assistant. All keys stay on the server.

    :meth:`router` (FastAPI) and :meth:`routes` (Starlette) add the relay to an app. Any ASGI app can mount
    ``Starlette(routes=relay.routes())``.

    The functions of your app may be plain or async. A plain function runs in a thread, as in FastAPI, so that
    a database query does not block the other answers.

    Args:
        session: The session that asks the assistant. The relay never closes it. A refusal of the service, or
            of a quota in the mode ``"wait"``, reaches the page within 2 seconds, with its ``Retry-After``.
        secrets: Random strings of at least 32 characters that encrypt threads for web pages. The first string
            encrypts. All strings decrypt. The first string also makes the pseudonym of a user at the service.
        user: A plain or async function that takes the request and returns an id of one person or, for people
            without an account, of one browser. An id has at most 200 characters. ``"anonymous"`` is refused,
            because all users would share it. The id stays in your app. The service gets a pseudonym as
            ``fp``. To refuse the request, raise an ``HTTPException`` or return an empty string. The function
            is not needed with ``relay.router(user=Depends(...))``.
        store: The store of conversations. Each is named by its chat id and owned by the user. A web page then
            posts only its newest message, and gets the history by ``GET``. If it posts its full history, only
            the newest message is used. None: web pages keep their history and their sealed thread.
        streams: The store of running answers, so that a web page can continue after a reload: a
            ``MemoryStreamStore`` for one worker, a ``RedisStreamStore`` for several. Only Stop or the next
            question of the chat ends an answer immediately. At most two answers of a user continue without a
            browser. None: an answer ends when its last browser disconnects.
        rate: A plain or async function that takes the user and the request, before the body is read. It
            returns None to continue, or the seconds after which the user may ask again (429). Questions are
            ``POST``. For a history or a resumed answer, ``request.method`` is ``GET``. The function is not
            called for a Stop, which is never refused.
        ask: Arguments for every question, such as ``{"retrieval_page_size": 8}``. Or a plain or async
            function that returns them. It takes the request and the unchecked fields that the web page sent
            besides its messages. The arguments cannot contain ``fp`` or ``thread``. If they do not contain
            ``current_path``, the web page chooses it.
        on_end: A plain or async function that is called after each answer that has started and ended. It
            takes a :class:`RelayedAnswer`, for example to store it. The function runs before the web page
            gets the end of the answer. Its errors are logged and do not reach the web page.
        max_body_bytes: Maximum size of a request, in bytes. ``useChat`` sends the full history each time,
            with tool results. All arriving bodies together may have 16 MiB, or four times *max_body_bytes* if
            that is more. One IP address may use a quarter of this.
        max_characters: Maximum length of the texts, URLs and names of all messages of a conversation, without
            files.
        max_messages: Maximum number of messages that a web page may send, or that are sent from a stored
            conversation.
        max_file_characters: Maximum length of the URLs of all files of a conversation. A ``data:`` URL
            contains the file.
        max_concurrent: Maximum number of running answers in this process. For the next request, the relay
            ends an answer without a browser. If there is none, the request gets 503. One IP address may use a
            quarter of the places, or *max_per_user* if that is more.
        max_per_user: Maximum number of running answers for one user. The next request gets 429. With
            *streams*, if no browser reads an answer of the user, this answer is stopped instead. An answer
            runs until *on_end* has returned.

    Raises:
        ConfigurationError: An argument is missing or invalid. ``.field`` names it.
    """

    def __init__(
        self,
        session: MintlifySession,
        *,
        secrets: Sequence[str],
        user: UserHook | None = None,
        store: Store | None = None,
        streams: MemoryStreamStore | RedisStreamStore | None = None,
        rate: RateHook | None = None,
        ask: AskArguments = None,
        on_end: EndHook | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_characters: int = 500_000,
        max_messages: int = 200,
        max_file_characters: int = 3 * 1024 * 1024,
        max_concurrent: int = 1000,
        max_per_user: int = 20,
    ) -> None:
        if store is not None:
            check_store(store, "store")
        if streams is not None and (isinstance(streams, type) or not hasattr(streams, "grace")):
            raise ConfigurationError("streams must be a stream store: MemoryStreamStore()", field="streams")
        self._session = _without_patience(session)
        self._limits = QuestionLimits(
            max_body_bytes=max_body_bytes,
            max_characters=max_characters,
            max_messages=max_messages,
            max_file_characters=max_file_characters,
        )
        self._addresses = ClientAddresses()
        self._bodies = BodyReader(max_body_bytes)
        self._seal = ThreadSeal(secrets)
        self._chats = None if store is None else StoredChats(self._session, store, self._limits)
        self._user, self._rate, self._ask, self._on_end = user, rate, ask, on_end
        check_number(max_concurrent, "max_concurrent", 1)
        check_number(max_per_user, "max_per_user", 1)
        self._answers = RunningAnswers(streams, most=max_concurrent, per_user=max_per_user, tell=self._tell)

    @property
    def streaming(self) -> int:
        """The number of running answers."""
        return self._answers.count

    # Routes -----------------------------------------------------------------------------------

    def router(self, *, path: str = "/api/chat", user: Any = None) -> APIRouter:
        """Return a FastAPI router: ``app.include_router(relay.router())``.

        Args:
            path: The path for questions. The other paths are below it.
            user: ``Depends(current_user)``, with your own dependency that returns the user's id. The default
                is the relay's ``user`` function.

        Raises:
            ConfigurationError: *path* does not start with a slash, or no function returns the user.
        """
        try:
            from fastapi import APIRouter, Depends  # here, because the rest needs only Starlette
            from fastapi.params import Depends as Dependency
        except ModuleNotFoundError as error:
            raise extra_missing("relay", error) from None
        if not (user is None or isinstance(user, Dependency)):  # otherwise a web page could choose the user
            raise ConfigurationError(
                "user must be Depends(your_dependency); give a function of the request to Relay(user=...)",
                field="user",
            )

        who = Depends(lambda: _HOOK_DECIDES) if user is None else user

        def endpoint(handler: Handler) -> Callable[..., Awaitable[Response]]:
            async def answer(request: Request, user: Any = who) -> Response:
                return await self._respond(handler, request, user)

            return answer

        router = APIRouter()
        for method, full_path, handler in self._table(path, user):
            router.add_api_route(
                full_path, endpoint(handler), methods=[method], response_model=None, include_in_schema=False
            )
        return router

    def routes(self, *, path: str = "/api/chat") -> list[Route]:
        """Return Starlette routes: ``Starlette(routes=relay.routes())``. *path* is as for :meth:`router`."""
        return [
            Route(full_path, partial(self._respond, handler), methods=[method])
            for method, full_path, handler in self._table(path)
        ]

    def _table(self, path: str, user: object = None) -> list[tuple[str, str, Handler]]:
        """Return method, path and handler of all requests that pages send."""
        if user is None and self._user is None:
            raise ConfigurationError(
                "user is missing: pass a function that takes the request and returns the user's id, "
                "or an id of the browser for people without an account",
                field="user",
            )
        if not path.startswith("/"):
            raise ConfigurationError('path must begin with "/"', field="path")
        base = path.rstrip("/")
        return [
            ("POST", base or "/", self._question),
            # ai 5.0.0 does not encode slashes in the chat's id.
            ("GET", base + "/{chat_id:path}/stream", self._resume),
            ("DELETE", base + "/{chat_id:path}/stream", self._stop),
            ("GET", base + "/{chat_id:path}", self._history),
        ]

    # Requests ---------------------------------------------------------------------------------

    async def _respond(self, handler: Handler, request: Request, user: object = _HOOK_DECIDES) -> Response:
        """Return the response of *handler*, or of the refusal that it raises."""
        try:
            who = await self._who(request, user)
            if request.method != "DELETE":
                await self._check_rate(who, request)
            return await handler(request, who)
        except RelayRefusal as refusal:
            return refusal.response(request.method)
        except ClientDisconnect:
            return Response(status_code=499)  # for logs: the client disconnected

    async def _question(self, request: Request, user: str) -> Response:
        """Ask the question in the request, and stream the answer."""
        self._answers.check_open()
        address = self._addresses.of(request)
        body = await self._bodies.read(request, address)
        question = read_question(body, self._limits, stored=self._chats is not None)
        del body  # the parsed body can be twenty times as large as the request
        chat = await self._chat(request, question, user)
        asker = _asker(address, user, question.chat_id)
        return PageResponse(self._answers.ask(asker, chat))

    async def _chat(self, request: Request, question: PageQuestion, user: str) -> Chat:
        ask = self._ask
        chosen = await _call(ask, request, question.fields) if callable(ask) else ask
        options: dict[str, Any] = dict(chosen or {})
        if options.get("current_path") is None and question.current_path is not None:
            options["current_path"] = question.current_path
        if self._chats is not None:
            fp = self._seal.pseudonym(user)
            return self._chats.chat(question, user=user, fp=fp, options=options)
        place = f"{self._session.base_url} {options.get('domain') or self._session.options.domain}"
        return PageChat(self._session, question, user=user, seal=self._seal, place=place, options=options)

    async def _resume(self, request: Request, user: str) -> Response:
        """Stream the chat's answer from its start. The status is 204 if there is none.

        A web page may send the query field ``after``, the id of its last complete message. Then it gets only
        the answer to that message, even if the answer has already ended.
        """
        reader = _asker(self._addresses.of(request), user, request.path_params["chat_id"])
        answer_log = await self._answers.find(reader.chat_key, request.query_params.get("after") or None)
        if answer_log is None:
            return _nothing()
        source = answer_log

        async def opened() -> Log:
            return source

        return PageResponse(self._answers.read(reader, opened))

    async def _stop(self, request: Request, user: str) -> Response:
        """Stop the chat's answer at the service. The status is always 204, with or without an answer."""
        await self._answers.stop(chat_key(user, request.path_params["chat_id"]))
        return _nothing()

    async def _history(self, request: Request, user: str) -> Response:
        """Send the messages of a stored conversation as JSON, for ``useChat({messages})``."""
        chats, chat_id = self._chats, request.path_params["chat_id"]
        if chats is None:
            raise RelayRefusal(404, NOT_KEPT_TEXT)
        reader = _asker(self._addresses.of(request), user, chat_id)

        async def opened() -> Log:
            return await chats.history(chat_id, user, await self._answers.progress(reader.chat_key))

        return PageResponse(self._answers.read(reader, opened), JSON)

    async def _who(self, request: Request, user: object) -> str:
        if user is _HOOK_DECIDES and self._user is not None:
            user = await _call(self._user, request)
        if not user:
            raise RelayRefusal(401, SIGN_IN_TEXT)
        if not is_id(user) or user == "anonymous":  # the chat's id has the same limits
            log.error('the user hook must return a printable text of 1 to 200 characters, not "anonymous"')
            raise RelayRefusal(401, SIGN_IN_TEXT)
        return user

    async def _check_rate(self, user: str, request: Request) -> None:
        if self._rate is None:
            return
        try:
            wait = await _call(self._rate, user, request)
        except QuotaExceededError as error:
            raise refusal_for(error) from None
        if wait is not None:
            raise RelayRefusal(429, TOO_MANY_TEXT, retry_after_header(wait))

    async def _tell(self, answer: RelayedAnswer) -> None:
        """Call the app's hook. An error in the app's code must not end the answer."""
        if self._on_end is not None:
            try:
                await _call(self._on_end, answer)
            except Exception:
                failure = "the relay's on_end raised for an answer that %s"
                log.exception(failure, answer.outcome, extra=log_fields("ask"))

    # Shutdown ---------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """End all answers, because the app shuts down. New questions get 503 from now on.

        The call returns when no answer runs any more. Give it less time than the server gives its
        connections. Call ``drain`` before or while the server waits, as in :meth:`drain_on_signal`.

        Args:
            seconds: Maximum time for running answers. After that, their pages get an ``error`` event and
                ``[DONE]``, and ``on_end`` gets an answer with the outcome ``interrupted``, within two more
                seconds. 0 interrupts them immediately.

        Raises:
            ConfigurationError: *seconds* is not a finite number of 0 or more.
        """
        check_seconds(seconds, "seconds", zero=True)
        await self._answers.drain(seconds)

    def drain_on_signal(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """Return a block, for your app's lifespan, in which SIGTERM or SIGINT starts :meth:`drain`.

        A server runs the end of the lifespan only after its connections have ended, which is too late to
        drain. The signal also reaches the server's own handler. If the server has no such handler (in a
        worker process of hypercorn), or outside the main thread, the signal does not start :meth:`drain`.
        The block's end also drains.

        Args:
            seconds: As for :meth:`drain`.
        """
        check_seconds(seconds, "seconds", zero=True)
        return self._drain_on_signal(seconds)

    @asynccontextmanager
    async def _drain_on_signal(self, seconds: float) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        draining = list[asyncio.Task[None]]()

        def begin() -> None:
            if not draining:
                draining.append(loop.create_task(self.drain(seconds)))

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed, and another handler still calls this one
                loop.call_soon_threadsafe(begin)

        with _on_signal(signal.SIGTERM, notify), _on_signal(signal.SIGINT, notify):
            try:
                yield
            finally:
                begin()
                await draining[0]


async def _call(hook: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of the app's function *hook*. A plain function runs in a thread, as in FastAPI.

    The thread has a copy of the request's context variables. Changes to them are not copied back.
    """
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004 - an object whose call is async
        return await hook(*arguments)
    result = await to_thread.run_sync(hook, *arguments)
    return await result if inspect.isawaitable(result) else result


def _without_patience(session: MintlifySession) -> MintlifySession:
    """Return a copy of *session* whose last retry starts at most ``MAX_RETRYING`` seconds after the call."""
    retry = session.options.retry
    within = min(MAX_RETRYING, math.inf if retry.within is None else retry.within)
    return session.with_options(retry=evolve(retry, within=within))


def _nothing() -> Response:
    return Response(status_code=204, headers={"cache-control": "no-store"})


def _asker(address: str, user: str, chat_id: str | None) -> Asker:
    return Asker(user=user, address=address, chat_id=chat_id, chat_key=chat_key(user, chat_id))


@contextmanager
def _on_signal(number: int, notify: Callable[[], object]) -> Generator[None]:
    """While the block runs, the signal *number* calls *notify* and then the current handler."""
    present: Any = signal.getsignal(number)

    def handle(number: int, frame: Any) -> None:
        notify()
        present(number, frame)

    # This handler is installed only if the server has one. Otherwise nothing would end the process after the
    # drain.
    if callable(present) and threading.current_thread() is threading.main_thread():
        signal.signal(number, handle)
    try:
        yield
    finally:
        if signal.getsignal(number) is handle:
            signal.signal(number, present)
