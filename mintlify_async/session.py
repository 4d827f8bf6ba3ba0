"""The client: ``MintlifySession`` holds the options, the keys and the connections, and has the verbs."""

from __future__ import annotations

import ssl as ssl_module
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from attrs import evolve

from .assistant.assistant_api import AssistantAPI, PreparedQuestion
from .assistant.reply import Reply
from .errors import JobRecord, JobReference, ThreadReference
from .http.observer import CallbackObserver, Observer, following
from .http.retry import RetryPolicy
from .http.timeouts import Timeouts
from .jobs.agent_api import AgentAPI
from .jobs.handle import JobHandle, created_handle, handle_for, handle_over
from .jobs.polling import PollPolicy
from .jobs.wait import DEFAULT_PR_GRACE, DEFAULT_TIMEOUT, WaitRules
from .messages import Message, Question
from .model.job import Job
from .model.question import ContextItem, SearchFilter
from .model.thread import Thread
from .model.wire_value import MISSING, Missing, load_converter
from .options import (
    Options,
    Shared,
    check_ready,
    from_environment,
    session_keys,
    transport_settings,
    with_total,
)
from .protocol.api_keys import KeySource
from .protocol.argument_checks import ANONYMOUS, check_seconds
from .protocol.assumptions import Assumptions
from .protocol.object_checks import CLOCK, check_function
from .protocol.requests import DEFAULT_RETRIEVAL_PAGE_SIZE
from .protocol.secret import hidden
from .runtime.caller import caller
from .runtime.clock import Clock, SystemClock
from .runtime.per_event_loop import session_closed

if TYPE_CHECKING:
    import aiohttp

    from .conversation.conversation import Conversation
    from .http.observer import RequestSent, ResponseReceived, RetryScheduled
    from .http.transport import RequestRecorder
    from .quota.quota import Quota
    from .quota.windows import QuotaRemaining
    from .storage.conversations import ConversationStore
    from .storage.ledger import Ledger

__all__ = ["MintlifySession"]

MIB = 1024 * 1024


class MintlifySession:
    """A client of the Mintlify documentation service: agent jobs and the streaming assistant.

    Create one session for the whole program: many tasks, event loops and threads may use it
    at once; each loop gets its own connections, at its first call::

        async with MintlifySession(project_id="p", domain="acme") as session:
            job = await session.run_job("Fix the typos in the quickstart", timeout=900)
            answer = await session.ask("How do I log in?")
            async for event in session.ask("And by SSO?", thread=answer.thread):
                ...

    Args:
        project_id: The project of agent jobs (interface 4.1). Environment: ``MINTLIFY_PROJECT_ID``.
        domain: The site that the assistant answers about (interface 4.3). Environment: ``MINTLIFY_DOMAIN``.
        site: The documentation's address, such as ``https://docs.acme.com``: answers then name pages by
            whole addresses. Environment: ``MINTLIFY_SITE``.
        admin_key: The key for agent jobs: a string, or a plain or async function that is
            called for each request. Environment: ``MINTLIFY_ADMIN_API_KEY``.
        assistant_key: The key for the assistant, likewise. Environment: ``MINTLIFY_ASSISTANT_API_KEY``.
            Where a key is unset, ``MINTLIFY_API_KEY`` is used if it has the prefix of that key.
        base_url: The service's address. Environment: ``MINTLIFY_BASE_URL``. Plain http is refused
            except to this machine, unless *allow_insecure_http* is set.
        fp: Identifies the user to the service (interface 2.3); ``"anonymous"`` by default.
        retrieval_page_size: Search results used for an answer (interface 2.3); 5 by default, None: not sent.
        headers: Additional headers for every request.
        extra_body: Additional fields for the body of every request. They replace fields of the same name.
        retry: When a request is sent again; see :class:`RetryPolicy`.
        poll: How often jobs are polled; see :class:`PollPolicy`.
        timeouts: See :class:`Timeouts`.
        quota: Counts calls against the service's limits before they are sent; off by default.
        ledger: Records each ``dedupe_key``, so that its job is created once.
        client_session: An aiohttp session of yours to use. It is never closed here.
        proxy: The URL of a proxy.
        ssl: The context that verifies certificates.
        trust_env: Whether to take proxies from environment variables; False by default. A password
            for the service's host in ~/.netrc is then refused, because it would replace the key. That
            takes aiohttp 3.13.1 or newer: an older one sends the password in the key's place.
        allow_insecure_http: Allow plain http to other machines.
        check_key_kind: Refuse an admin key given as the assistant key, and the reverse, before sending.
        assumptions: Corrects what this package assumes about the service.
        max_event_bytes: The largest single event of an answer, in bytes; 16 MiB by default.
        max_reply_bytes: The largest whole answer, in bytes; 64 MiB by default.
        clock: The source of time; tests pass a virtual clock.
        on_request: Called with a :class:`RequestSent` before each attempt.
        on_response: Called with a :class:`ResponseReceived` after each attempt.
        on_retry: Called with a :class:`RetryScheduled` before each pause.
        observer: Follows each operation from start to end, for tracing.
        recorder: Keeps each request and answer: a ``Recorder`` of ``mintlify_async.testing``.

    Raises:
        ConfigurationError: An argument is invalid; ``.field`` names it. A missing key is reported by calls.
    """

    def __init__(
        self,
        *,
        project_id: str | None = None,
        domain: str | None = None,
        site: str | None = None,
        admin_key: KeySource | None = None,
        assistant_key: KeySource | None = None,
        base_url: str | None = None,
        fp: str = ANONYMOUS,
        retrieval_page_size: float | None = DEFAULT_RETRIEVAL_PAGE_SIZE,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        poll: PollPolicy | None = None,
        timeouts: Timeouts | None = None,
        quota: Quota | None = None,
        ledger: Ledger | None = None,
        client_session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        ssl: ssl_module.SSLContext | None = None,
        trust_env: bool = False,
        allow_insecure_http: bool = False,
        check_key_kind: bool = True,
        assumptions: Assumptions | None = None,
        max_event_bytes: int = 16 * MIB,
        max_reply_bytes: int = 64 * MIB,
        clock: Clock | None = None,
        on_request: Callable[[RequestSent], object] | None = None,
        on_response: Callable[[ResponseReceived], object] | None = None,
        on_retry: Callable[[RetryScheduled], object] | None = None,
        observer: Observer | None = None,
        recorder: RequestRecorder | None = None,
    ) -> None:
        admin_key, assistant_key = hidden(admin_key), hidden(assistant_key)  # frames show their locals
        self._closed = True  # until all arguments are checked: __del__ must not warn of an invalid call
        self._parent: MintlifySession | None = None
        assumptions = Assumptions() if assumptions is None else assumptions
        keys = session_keys(admin_key, assistant_key, assumptions, check_kind=check_key_kind)
        clock = CLOCK.check(clock, "clock") or SystemClock()
        transport = transport_settings(
            assumptions, base_url, allow_insecure_http, client_session, proxy, ssl, trust_env, recorder
        )
        options = Options(
            project_id=from_environment(project_id, "MINTLIFY_PROJECT_ID", "project_id"),
            domain=from_environment(domain, "MINTLIFY_DOMAIN", "domain"),
            site=from_environment(site, "MINTLIFY_SITE", "site"),
            fp=fp,
            retrieval_page_size=retrieval_page_size,
            headers=headers,
            extra_body=extra_body,
            retry=RetryPolicy() if retry is None else retry,
            poll=PollPolicy() if poll is None else poll,
            timeouts=Timeouts() if timeouts is None else timeouts,
            quota=quota,
            ledger=ledger,
            max_event_bytes=max_event_bytes,
            max_reply_bytes=max_reply_bytes,
            callbacks=CallbackObserver.of(on_request, on_response, on_retry),
            observer=observer,
        )
        self._shared = Shared(options, assumptions, clock, keys, transport)
        self._use(options)
        self._made_at = caller()
        load_converter()  # now, because it takes about 15 ms: the first event of an answer would wait for it
        self._closed = False

    # The verbs ----------------------------------------------------------------------------------

    async def create_job(
        self,
        prompt: str,
        *,
        project_id: str | None = None,
        dedupe_key: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> JobHandle:
        """Create an agent job (interface 4.1) with a single POST; ``await job.wait()`` gives its result.

        Args:
            prompt: The instruction, at least 1 character.
            project_id: A project other than the session's.
            dedupe_key: A name for this creation in the session's ledger: no process that shares the
                ledger creates a second job with it. While another call is creating the job, this one
                waits, for as long as that request may take and 5 s more.
            timeout: Limits the whole call, in seconds; ``timeouts.request`` (60) by default.
            headers: Additional headers.
            extra_body: Additional fields of the body. They replace fields of the same name.

        Raises:
            ConfigurationError: An argument, the key or the project is missing or invalid; nothing was sent.
            OutcomeUnknownError: The request was sent and the job may exist; it is never sent again.
            APIStatusError: The service refused (RateLimitError: after the allowed retries).
            APIConnectionError: The request could not be sent; no job exists.
            QuotaExceededError: The session's quota is used up; nothing was sent.
            StateError: The session is closed, or the ledger cannot be used; nothing was sent.

        Example::

            job = await session.create_job("Fix the typos in the quickstart")
        """
        check_seconds(timeout, "timeout", none="means no limit of its own")
        return await self._create(self._agent, prompt, project_id, dedupe_key, timeout, headers, extra_body)

    async def _create(
        self, agent: AgentAPI, prompt: str, project_id: str | None, dedupe_key: str | None, *rest: Any
    ) -> JobHandle:
        project = self._options.project(project_id)
        self._check_open()
        ledger = None if dedupe_key is None else self._options.creation_ledger()
        job = await agent.create(project, prompt, dedupe_key, ledger, *rest)
        return created_handle(self._for_handles(), project, job)

    def job(self, ref: JobReference | JobRecord | str, *, project_id: str | None = None) -> JobHandle:
        """Return a handle for an existing job. Nothing is sent.

        Args:
            ref: A :class:`JobRef` or its string, a :class:`JobHandle`, a :class:`Job`, or a job's id.
            project_id: The project of a ``Job`` or an id; the session's by default.

        Raises:
            ConfigurationError: *ref* names no job, or it is an id without a project.
        """
        self._check_open()
        project = self._options.project_id if project_id is None else self._options.project(project_id)
        return handle_for(self._for_handles(), ref, project_id=project)

    async def run_job(
        self,
        prompt: str,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        check: bool = True,
        until: Literal["terminal", "pr"] = "terminal",
        on_created: Callable[[JobHandle], object] | None = None,
        on_change: Callable[[Job], object] | None = None,
        project_id: str | None = None,
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Job:
        """Create a job and wait until it ends.

        Args:
            prompt: The instruction.
            timeout: Limits the wait, in seconds; 30 minutes by default, None for no limit.
            check: Raise JobFailedError when the job fails.
            until: ``"pr"`` also waits for the pull request of a completed job.
            on_created: A plain function, called with the handle before the wait, so that no paid job is lost.
            on_change: Called with each new record of the job.
            project_id: As for :meth:`create_job`, like the three after it.
            dedupe_key: A name for this creation in the session's ledger.
            headers: Additional headers.
            extra_body: Additional fields of the body.

        Raises:
            JobTimeoutError: The job was still running; ``.ref`` names it.
            JobFailedError: The job failed.
            MintlifyError: As for :meth:`create_job` and ``JobHandle.wait``.
        """
        check_seconds(timeout, "timeout", zero=True, none="waits without end")
        WaitRules.checked(check=check, until=until, pr_grace=DEFAULT_PR_GRACE, on_change=on_change)
        check_function(on_created, "on_created")
        observation = self._agent.observe("run_job", project_id or self._options.project_id or "", None)
        agent = evolve(self._agent, observation=observation)
        with following(observation):
            handle = await self._create(agent, prompt, project_id, dedupe_key, None, headers, extra_body)
            if on_created is not None:
                on_created(handle)
            waiting = handle_over(handle, agent.owned_by(self))
            return await waiting.wait(timeout, check=check, until=until, on_change=on_change)

    def ask(
        self,
        question: Question,
        *,
        thread: ThreadReference | str | None = None,
        fp: str | None = None,
        retrieval_page_size: float | Missing | None = MISSING,
        filter: SearchFilter | Mapping[str, Any] | None = None,
        context: Sequence[ContextItem | Mapping[str, Any]] | None = None,
        current_path: str | None = None,
        domain: str | None = None,
        site: str | None = None,
        timeout: float | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Ask the assistant (interface 4.3).

        The question is sent when the reply is first entered, iterated or awaited; awaited, it gives
        the whole :class:`~mintlify_async.assistant.answer.Answer`.

        Args:
            question: The text of one user message; or all messages of the conversation: strings,
                :class:`Message` objects, the UIMessage dicts of a browser, or
                ``{"role": "user", "content": "text"}``.
            thread: The thread to continue: ``reply.thread`` of an earlier answer.
            fp: Identifies the user; the session's by default.
            retrieval_page_size: Search results used for the answer; the session's by default, None: not sent.
            filter: Limits the search.
            context: Code or selected text that the assistant should consider.
            current_path: The page that the user is reading, at most 200 characters.
            domain: A site other than the session's.
            site: The address of that site's documentation; the session's by default.
            timeout: Limits the whole answer, in seconds; no limit by default.
            timeouts: Replaces the session's timeouts.
            headers: Additional headers.
            extra_body: Additional fields of the body. They replace fields of the same name.

        Raises:
            ConfigurationError: An argument is invalid. A missing key is reported at sending.

        Example::

            answer = await session.ask("How do I log in?")
        """
        prepared = self._assistant(timeouts, timeout).prepare(
            question,
            domain=domain,
            fp=fp,
            retrieval_page_size=retrieval_page_size,
            thread=thread,
            filter=filter,
            context=context,
            current_path=current_path,
            site=site,
            headers=headers,
            extra_body=extra_body,
        )
        return Reply(*prepared)

    def _assistant(self, timeouts: Timeouts | None = None, timeout: float | None = None) -> AssistantAPI:
        """Return what prepares and sends a question with these limits, and keeps the session alive."""
        self._check_open()
        limits = with_total(self._options.timeouts if timeouts is None else timeouts, timeout)
        return AssistantAPI(self._agent.http, limits, self._check_open, self._reply_settings)

    def _prepare_question(
        self,
        question: Question,
        *,
        timeouts: Timeouts | None = None,
        timeout: float | None = None,
        **arguments: Any,
    ) -> PreparedQuestion:
        """Check the arguments of :meth:`ask` for a conversation; sends nothing."""
        return self._assistant(timeouts, timeout).prepare(question, **arguments)

    def conversation(
        self,
        *,
        fp: str | None = None,
        store: ConversationStore | None = None,
        id: str | None = None,
        owner: str | None = None,
        thread: Thread | str | None = None,
        messages: Sequence[str | Message | Mapping[str, Any]] = (),
        system: str | Message | None = None,
        domain: str | None = None,
        commit: Literal["finish", "partial"] = "finish",
        busy: Literal["raise", "queue"] = "raise",
        max_messages: int | None = None,
        max_characters: int | None = None,
        history_parts: Collection[str] | None = ("text", "file", "source-url"),
        keep_messages: int | None = None,
    ) -> Conversation:
        """Return a conversation with the assistant, which keeps its history and thread. No I/O.

        The same *store*, *id* and *owner* continue a stored one: it is read when its first reply
        is entered, or by ``await chat.load()``.

        Args:
            fp: Identifies the user to the service; the session's by default.
            store: Where finished turns are saved; nowhere by default.
            id: The conversation's name in the store; a new one by default.
            owner: Who owns it in the store; *fp* by default. Another owner cannot load it.
            thread: Begin in this thread.
            messages: Begin with this history; what the store has under *id* replaces it.
            system: Text, or a message, that goes before every question.
            domain: A site other than the session's.
            commit: Turns enter the history at the answer's ``finish``; with ``"partial"``, answers
                that broke off after some text do, too.
            busy: For a turn, ``undo``, ``save`` and ``delete`` while a turn is under way: ``"raise"`` a
                StateError, or ``"queue"``: wait, and begin with what the store has then.
            max_messages: The most messages sent with a question, it included, system messages not. A turn
                reads no more of a stored conversation than it sends.
            max_characters: The most characters sent, counted likewise. Older messages are left out
                first; the history itself keeps all.
            history_parts: The types of parts of earlier messages that are sent again; None for
                all, including search results of 50 to 100 KB.
            keep_messages: The most messages kept, for conversations without an end; the oldest turns
                are dropped. System messages in them are still sent.

        Raises:
            ConfigurationError: An argument is invalid.

        Example::

            chat = session.conversation(fp="user-42", store=SQLiteConversationStore("chats.db"), id="help")
            answer = await chat.ask("How do I log in?")
        """
        # Loaded when it is used: a plain question does not need it.
        from .conversation.conversation import Conversation, ConversationSettings
        from .conversation.history import HistoryBounds

        self._check_open()
        bounds = HistoryBounds(max_messages=max_messages, max_characters=max_characters, parts=history_parts)
        settings = ConversationSettings(
            fp=fp if fp is not None else self._options.fp,
            store=store,
            id=id,
            owner=owner,
            thread=thread,
            messages=messages,
            system=system,
            domain=None if domain is None else self._options.asked_domain(domain),
            commit=commit,
            busy=busy,
            bounds=bounds,
            keep_messages=keep_messages,
        )
        return Conversation(self._prepare_question, settings)

    async def quota_left(
        self, operation: Literal["create_job", "send_message", "ask"]
    ) -> tuple[QuotaRemaining, ...]:
        """Return what is left of each limit of the session's quota that counts *operation*.

        Nothing is sent and nothing is used up. Without a quota the tuple is empty.

        Raises:
            ConfigurationError: *operation* is not one of the three, or its project, domain or key is missing.
            QuotaExceededError: The quota's store cannot be reached.
        """
        self._check_open()
        return await self._agent.http.quota_left(operation, self._options.counted_for(operation))

    def check(self, *uses: Literal["agent", "assistant"]) -> None:
        """Raise an error that lists every setting that is missing for *uses*. Nothing is sent.

        Call it when your program starts. A key that a function returns counts as there.

        Args:
            uses: ``"agent"`` for jobs, ``"assistant"`` for questions; both by default.

        Raises:
            ConfigurationError: A key, the project or the domain is missing, or a key is of the wrong
                kind. ``.field`` names the argument if it is only one.
            StateError: The session is closed.
        """
        self._check_open()
        check_ready(self._options, self._shared.keys, uses)

    # Lifetimes ----------------------------------------------------------------------------------

    def with_options(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        poll: PollPolicy | None = None,
        **changes: Any,
    ) -> MintlifySession:
        """Return a session with other options that shares this one's connections, keys and retry budget.

        Closing the new session leaves the connections open; closing this one closes them for both.

        Args:
            timeouts: Other timeouts.
            retry: Another retry policy.
            poll: Another poll policy. Its ``per_second``, ``concurrency`` and ``retry_after_cap`` have no
                effect: all waits on a loop are polled with those of this session, its headers and timeouts.
            changes: ``project_id``, ``domain``, ``site``, ``fp``, ``retrieval_page_size``, ``headers``,
                ``extra_body``, ``quota``, ``ledger``, ``max_event_bytes``, ``max_reply_bytes``, ``observer``.

        Raises:
            ConfigurationError: An option does not exist, or its value is invalid.
        """
        self._check_open()
        given = {"timeouts": timeouts, "retry": retry, "poll": poll}
        changes |= {name: value for name, value in given.items() if value is not None}
        options = self._options.changed(changes)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._parent = self  # keeps it alive: its __del__ would close the shared connections
        other._use(options)
        return other

    async def close(self) -> None:
        """Close all open replies and connections, and end all waits with StateError.

        Closing twice is harmless. A borrowed aiohttp session stays open, and so do the
        connections when this session is from :meth:`with_options`.
        """
        self._closed = True
        if self._parent is None:
            await self._shared.loops.close()

    aclose = close

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._closed

    @property
    def options(self) -> Options:
        """The options that :meth:`with_options` changes, to be read."""
        return self._options

    @property
    def clock(self) -> Clock:
        """The session's source of time."""
        return self._shared.clock

    @property
    def base_url(self) -> str:
        """The service's address."""
        return self._shared.transport.base_url

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._parent is not None:
            return
        if self._shared.loops.abandon():
            warnings.warn(
                f"a MintlifySession made at {':'.join(map(str, self._made_at))} was never closed; "
                "use `async with` or `await session.close()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        options, closed = self._options, "closed " if self._closed else ""
        shown = f"{self.base_url} project_id={options.project_id!r} domain={options.domain!r}"
        return f"<MintlifySession {closed}{shown}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MintlifySession holds keys and cannot be pickled; create one in the other process")

    # Inside -------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise session_closed()

    def _use(self, options: Options) -> None:
        self._options = options
        self._agent = self._shared.agent_api(options)
        self._reply_settings = self._shared.reply_settings(options)
        self._agent_of_handles: weakref.ref[AgentAPI] | None = None

    def _for_handles(self) -> AgentAPI:
        """Return what all handles call: it keeps the session alive, and the session not it."""
        agent = self._agent_of_handles() if self._agent_of_handles is not None else None
        if agent is None:
            agent = self._agent.owned_by(self)
            self._agent_of_handles = weakref.ref(agent)
        return agent
