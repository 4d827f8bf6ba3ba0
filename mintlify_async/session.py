"""The session: keys, settings and lifetimes come in; the verbs of the service come out."""

from __future__ import annotations

import os
import random
import ssl as ssl_module
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from attrs import define, evolve, field, fields

from .agent import AgentClient, Resources, merged
from .assistant import Reply
from .clock import Clock, SystemClock
from .dispatch import Dispatcher
from .errors import ConfigurationError, StateError
from .hooks import (
    Fact,
    Hooks,
    Observation,
    Observer,
    RequestSent,
    ResponseReceived,
    RetryScheduled,
    following,
)
from .jobs import JobHandle, handle_for
from .keys import Key, KeySource
from .loops import LoopLocal
from .models import ContextItem, Job, SearchFilter, Thread
from .parts import Message, clean_text
from .polling import PollScheduler
from .prepared_question import PreparedQuestion, ReplySettings
from .protocol import (
    ANONYMOUS,
    DEFAULT_RETRIEVAL_PAGE_SIZE,
    Assumptions,
    Request,
    ask_request,
    check_base_url,
    check_headers,
    check_messages,
    check_thread,
    create_job_request,
    host_of,
    path_segment,
)
from .refs import JobRef
from .retry import PollPolicy, RetryBudget, RetryPolicy
from .timeouts import Timeouts, check_seconds
from .transport import LiveResponse, Transport, TransportSettings
from .waiting import DEFAULT_TIMEOUT, check_timeout

if TYPE_CHECKING:
    import aiohttp

    from .conversation import Conversation
    from .ledger import Ledger
    from .quota import Quota, QuotaRemaining
    from .stores import ConversationStore

__all__ = ["MintlifySession"]

MIB = 1024 * 1024
LEASE_MARGIN = 5.0  # a claim outlives the request that it stands for by this many seconds


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class _Options:
    """Everything that ``with_options`` may change, checked."""

    project_id: str | None
    domain: str | None
    fp: str
    retrieval_page_size: float
    headers: Mapping[str, str] = field(repr=False)
    extra_body: Mapping[str, Any] = field(repr=False)
    retry: RetryPolicy
    poll: PollPolicy
    timeouts: Timeouts
    quota: Quota | None
    ledger: Ledger | None
    max_event_bytes: int
    max_reply_bytes: int
    hooks: Hooks
    observer: Observer | None


class MintlifySession:
    """A client of the Mintlify documentation service: agent jobs and the streaming assistant.

    Make one for the life of your program and share it: it may be used by many
    tasks, from several event loops and threads, each with connections of its own.
    Nothing is opened before the first call::

        async with MintlifySession(project_id="p", domain="acme") as session:
            job = await session.create_job("Fix the typos in the quickstart")
            done = await job.wait(timeout=900)
            async for event in session.ask("How do I log in?"):
                ...

    Args:
        project_id: The project of agent jobs (interface 4.1). Environment: ``MINTLIFY_PROJECT_ID``.
        domain: The documentation site that the assistant answers about (interface 4.3).
            Environment: ``MINTLIFY_DOMAIN``.
        admin_key: The key for agent jobs: a string, or a function (plain or async) that
            returns one for each request. Environment: ``MINTLIFY_ADMIN_API_KEY``.
        assistant_key: The key for the assistant, likewise. Environment: ``MINTLIFY_ASSISTANT_API_KEY``.
        base_url: The service's address. Environment: ``MINTLIFY_BASE_URL``. Plain http is refused
            outside this machine unless *allow_insecure_http* is set.
        fp: Names the user to the service (interface 2.3); ``"anonymous"`` by default.
        retrieval_page_size: Search results used for an answer (interface 2.3); 5 by default.
        headers: Further headers for every request.
        extra_body: Further fields for every request's body, merged last.
        retry: When a request is sent again; see :class:`RetryPolicy`.
        poll: How jobs are polled; see :class:`PollPolicy`.
        timeouts: See :class:`Timeouts`.
        quota: Counts the service's limits here, before sending; off by default.
        ledger: Where ``dedupe_key=`` is recorded, so that a job is created once.
        client_session: Your own aiohttp session, to borrow; it is never closed here.
        proxy: A proxy's URL.
        ssl: A context for certificate verification.
        trust_env: Whether proxies are taken from the environment; False by default. A password
            for the service's host in ~/.netrc is then in the way of the key, and refused.
        allow_insecure_http: Allow plain http to other machines.
        check_key_kind: Refuse an admin key for the assistant and the other way round, before sending.
        assumptions: Corrects what this package takes to be true of the service.
        max_event_bytes: The largest single event of an answer; 16 MiB by default.
        max_reply_bytes: The largest whole answer; 64 MiB by default.
        clock: Where time comes from; a test passes a virtual one.
        on_request: Called with a :class:`RequestSent` before each attempt.
        on_response: Called with a :class:`ResponseReceived` after each attempt.
        on_retry: Called with a :class:`RetryScheduled` before each pause.
        observer: Follows whole operations, for tracing.

    Raises:
        ConfigurationError: An argument is wrong; ``.field`` names it. A key or a
            project that is missing is reported by the operation that needs it.
    """

    def __init__(
        self,
        *,
        project_id: str | None = None,
        domain: str | None = None,
        admin_key: KeySource | None = None,
        assistant_key: KeySource | None = None,
        base_url: str | None = None,
        fp: str = ANONYMOUS,
        retrieval_page_size: float = DEFAULT_RETRIEVAL_PAGE_SIZE,
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
    ) -> None:
        """Check the arguments and open nothing."""
        self._closed = True  # until everything is checked: there is nothing to warn of
        self._owner = True
        self._parent: MintlifySession | None = None
        self._assumptions = assumptions or Assumptions()
        self._clock: Clock = clock or SystemClock()
        admin_key = admin_key if admin_key is not None else _environment("MINTLIFY_ADMIN_API_KEY")
        assistant_key = (
            assistant_key if assistant_key is not None else _environment("MINTLIFY_ASSISTANT_API_KEY")
        )
        self._keys = {
            "admin": Key("admin", admin_key, self._assumptions, check_kind=check_key_kind),
            "assistant": Key("assistant", assistant_key, self._assumptions, check_kind=check_key_kind),
        }
        _refuse_in_browser(self._keys["admin"])
        self._transport_settings = TransportSettings(
            base_url=check_base_url(
                base_url or _environment("MINTLIFY_BASE_URL") or self._assumptions.base_url,
                allow_insecure_http=allow_insecure_http,
            ),
            client_session=_check_client_session(client_session),
            proxy=_check_proxy(proxy),
            ssl=_check_ssl(ssl),
            trust_env=trust_env,
        )
        self._options = _checked(
            _Options(
                project_id=project_id if project_id is not None else _environment("MINTLIFY_PROJECT_ID"),
                domain=domain if domain is not None else _environment("MINTLIFY_DOMAIN"),
                fp=fp,
                retrieval_page_size=retrieval_page_size,
                headers=headers or {},
                extra_body=extra_body or {},
                retry=retry or RetryPolicy(),
                poll=poll or PollPolicy(),
                timeouts=timeouts or Timeouts(),
                quota=quota,
                ledger=ledger,
                max_event_bytes=max_event_bytes,
                max_reply_bytes=max_reply_bytes,
                hooks=Hooks(on_request=on_request, on_response=on_response, on_retry=on_retry),
                observer=observer,
            )
        )
        self._budget = RetryBudget(self._options.retry.budget)
        self._agent = self._first_agent_client()
        self._asking = self._asking_within(self._options.timeouts)
        self._shared: weakref.ref[AgentClient] | None = None
        self._made_at = _caller()
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
        """Create an agent job (interface 4.1): one POST, sent at most once.

        Args:
            prompt: The instruction, at least 1 character.
            project_id: Another project than the session's.
            dedupe_key: Names this creation in the session's ledger: the same key never
                creates a second job, here or in any process that shares the ledger.
            timeout: Bounds the call in all, in seconds; ``timeouts.request`` (60) by default.
                Somebody else's creation with the same key is awaited for as long as
                theirs may take, and 5 s.
            headers: Further headers.
            extra_body: Further fields of the body, merged last.

        Returns:
            A handle: ``await job.wait()`` for the result.

        Raises:
            ConfigurationError: An argument, the key or the project is missing or wrong; nothing was sent.
            OutcomeUnknownError: It went out and the job may exist; it is never sent again by itself.
            APIStatusError: The service refused (RateLimitError: after the retries that it allowed).
            APIConnectionError: It could not be sent; no job exists.
            QuotaExceededError: The session's quota is used up; nothing was sent.
            StateError: The session is closed, or the ledger cannot be used; nothing was sent.

        Example::

            job = await session.create_job("Fix the typos in the quickstart")
            done = await job.wait(timeout=900)
            print(done.pr_link)
        """
        return await self._create(
            self._agent,
            prompt,
            project_id=project_id,
            dedupe_key=dedupe_key,
            timeout=timeout,
            headers=headers,
            extra_body=extra_body,
        )

    async def _create(
        self,
        agent: AgentClient,
        prompt: str,
        *,
        project_id: str | None,
        dedupe_key: str | None,
        timeout: float | None,
        headers: Mapping[str, str] | None,
        extra_body: Mapping[str, Any] | None,
    ) -> JobHandle:
        check_seconds(timeout, "timeout", optional=True)
        project = self._project(project_id)
        request = create_job_request(
            self._assumptions,
            project,
            prompt,
            headers=merged(self._options.headers, headers),
            extra_body=merged(self._options.extra_body, extra_body),
        )
        if dedupe_key is None:
            return self._handle(project, await agent.post(request, timeout=timeout))
        from .ledger import create_once, fingerprint  # loaded when it is used: it brings SQLite

        self._check_open()  # before the claim, which would stay open
        limit = timeout if timeout is not None else self._options.timeouts.request
        created = await create_once(
            self._ledger(),
            dedupe_key,
            fingerprint(project, prompt),
            limit + LEASE_MARGIN,
            lambda: agent.post(request, timeout=timeout),
            self._clock,
        )
        if isinstance(created, str):  # perhaps a moment ago, by another: it may not be there yet
            return JobHandle(self._for_handles(), JobRef(project, created), created=True)
        return self._handle(project, created)

    def _ledger(self) -> Ledger:
        if self._options.ledger is None:
            raise ConfigurationError(
                "dedupe_key needs a ledger to be recorded in: give the session ledger=SQLiteLedger(path)",
                field="dedupe_key",
            )
        return self._options.ledger

    def _handle(self, project: str, job: Job) -> JobHandle:
        return JobHandle(self._for_handles(), JobRef(project, job.id), job=job, created=True)

    def job(self, ref: JobRef | str, *, project_id: str | None = None) -> JobHandle:
        """Return a handle for a job that exists; no I/O.

        Args:
            ref: A :class:`JobRef`, its string, or a bare job id.
            project_id: The project, for a bare id; the session's by default.

        Raises:
            ConfigurationError: *ref* is no reference, or a bare id without a project.

        Example::

            done = await session.job(saved_reference).wait()
        """
        self._check_open()
        project = project_id if project_id is not None else self._options.project_id
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
        """Create a job and wait for it.

        Args:
            prompt: The instruction.
            timeout: Bounds the wait, in seconds; 30 minutes by default, None for no bound.
            check: Raise JobFailedError when the job fails.
            until: ``"pr"`` also waits for the pull request of a completed job.
            on_created: Called with the handle before the wait, so that a cancelled wait
                does not lose a paid job.
            on_change: Called with each new record of the job.
            project_id: As :meth:`create_job` takes it; so are the next three.
            dedupe_key: Names this creation in the session's ledger.
            headers: Further headers.
            extra_body: Further fields of the body.

        Raises:
            JobTimeoutError: It was still running; ``.ref`` names it.
            JobFailedError: It failed.
            MintlifyError: As :meth:`create_job` and ``JobHandle.wait`` say.

        Example::

            done = await session.run_job("Fix the typos in the quickstart", timeout=900)
        """

        async def run(agent: AgentClient) -> Job:
            handle = await self._create(
                agent,
                prompt,
                project_id=project_id,
                dedupe_key=dedupe_key,
                timeout=None,
                headers=headers,
                extra_body=extra_body,
            )
            if on_created is not None:
                on_created(handle)
            waiting = handle.through(agent.owned_by(self))
            return await waiting.wait(timeout, check=check, until=until, on_change=on_change)

        check_timeout(timeout)
        observation = self._agent.observe("run_job", project_id or self._options.project_id or "", None)
        if observation is None:
            return await run(self._agent)
        with following(observation):
            return await run(evolve(self._agent, observation=observation))

    def ask(
        self,
        question: str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]],
        *,
        thread: Thread | str | None = None,
        fp: str | None = None,
        retrieval_page_size: float | None = None,
        filter: SearchFilter | Mapping[str, Any] | None = None,
        context: Sequence[ContextItem | Mapping[str, Any]] | None = None,
        current_path: str | None = None,
        domain: str | None = None,
        timeout: float | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Ask the assistant (interface 4.3). Nothing is sent before the reply is entered, stepped or awaited.

        Args:
            question: A string, which becomes one user message; or the conversation's
                messages: strings, :class:`Message` objects, or the UIMessage dicts of a browser.
            thread: Continues a conversation: ``reply.thread`` of an earlier answer.
            fp: Names the user; the session's by default.
            retrieval_page_size: Search results used for the answer; the session's (5) by default.
            filter: Limits the search.
            context: Code or selected text for the assistant to look at.
            current_path: The page that the user is on, at most 200 characters.
            domain: Another site than the session's.
            timeout: Bounds the whole answer, in seconds; no bound by default.
            timeouts: Replaces the session's timeouts.
            headers: Further headers.
            extra_body: Further fields of the body, merged last.

        Returns:
            A :class:`Reply`: iterate over its events, enter it, or await the whole.

        Raises:
            ConfigurationError: An argument is wrong; nothing is sent. A missing key is
                reported when the reply begins.

        Example::

            reply = await session.ask("How do I log in?")
            print(reply.text, reply.thread)
        """
        return Reply(
            *self._prepare_question(
                question,
                thread=thread,
                fp=fp,
                domain=domain,
                timeout=timeout,
                timeouts=timeouts,
                retrieval_page_size=retrieval_page_size,
                filter=filter,
                context=context,
                current_path=current_path,
                headers=headers,
                extra_body=extra_body,
            )
        )

    def _prepare_question(
        self,
        question: str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]],
        *,
        thread: Thread | str | None,
        fp: str | None,
        domain: str | None,
        timeout: float | None = None,
        timeouts: Timeouts | None = None,
        retrieval_page_size: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> PreparedQuestion:
        """Check the arguments of :meth:`ask` and return what its reply is made with; sends nothing."""
        self._check_open()
        options = self._options
        asked = question if type(question) is str and question else check_messages(question, _message_id)
        request = ask_request(
            self._assumptions,
            self._domain(domain),
            asked,
            make_id=_message_id,
            fp=fp if fp is not None else options.fp,
            thread=check_thread(thread),
            retrieval_page_size=(
                retrieval_page_size if retrieval_page_size is not None else options.retrieval_page_size
            ),
            headers=merged(options.headers, headers),
            extra_body=merged(options.extra_body, extra_body),
            **fields,
        )
        if self._agent.observer is not None:
            request.prompt = clean_text(asked) if isinstance(asked, str) else asked[-1].text
        asker, settings = self._asking
        if timeouts is not None or timeout is not None:
            asker, settings = self._asking_within(_with_total(timeouts or options.timeouts, timeout))
        message = None if isinstance(asked, str) or asked[-1].role != "assistant" else asked[-1]
        return PreparedQuestion(asker.owned_by(self), request, settings, message)

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
        """Return a conversation with the assistant: it keeps history and thread. No I/O.

        To continue one that is in a store, name the same *store*, *id* and owner: it is read when
        its first reply is entered, or by ``await chat.load()``.

        Args:
            fp: Names the user to the service; the session's by default.
            store: Where finished turns are saved; nowhere by default.
            id: The conversation's name in the store; a new one by default.
            owner: Who owns it in the store; *fp* by default. Another owner cannot load it.
            thread: Begin in this thread.
            messages: Begin with this history; what the store has under *id* replaces it.
            system: Text, or a message, that goes before every question.
            domain: Another site than the session's.
            commit: When a turn enters the history: ``"finish"``, at the answer's ``finish``; or
                ``"partial"``, also when the answer was broken off after some text had come.
            busy: What happens to a turn while another one is under way: ``"raise"`` a StateError, or
                ``"queue"``: wait in line, and begin with what the store has then.
            max_messages: The most messages sent with a question, the question included, system
                messages not.
            max_characters: The most characters sent, counted likewise. Older messages are left out
                first; the history itself keeps all.
            history_parts: The types of parts of earlier messages that are sent again; None for
                all, including search results of 50 to 100 KB.
            keep_messages: The most messages kept; beyond it the oldest turns are dropped. For
                conversations without an end: each turn writes the whole history to the store.

        Raises:
            ConfigurationError: An argument is invalid.

        Example::

            store = SQLiteConversationStore("chats.sqlite")
            chat = session.conversation(fp="user-42", store=store, id="help")
            reply = await chat.ask("How do I log in?")
            reply = await chat.ask("And by SSO?")
        """
        # Loaded when it is used: a plain question does without.
        from .conversation import Conversation, ConversationSettings
        from .history import HistoryBounds

        self._check_open()
        settings = ConversationSettings(
            fp=fp if fp is not None else self._options.fp,
            store=store,
            id=id,
            owner=owner,
            thread=thread,
            messages=messages,
            system=system,
            domain=domain,
            commit=commit,
            busy=busy,
            bounds=HistoryBounds(
                max_messages=max_messages, max_characters=max_characters, parts=history_parts
            ),
            keep_messages=keep_messages,
        )
        return Conversation(self._prepare_question, settings)

    # Lifetimes ----------------------------------------------------------------------------------

    async def quota_left(
        self, operation: Literal["create_job", "send_message", "ask"]
    ) -> tuple[QuotaRemaining, ...]:
        """Tell what the session's quota has left of each limit that counts *operation*; uses nothing.

        Nothing is sent to the service. Without a quota there is nothing to tell: an empty tuple.

        Raises:
            ConfigurationError: *operation* is something else; or its project, domain or key is missing.
            QuotaExceededError: The quota's store cannot be reached.

        Example::

            for limit in await session.quota_left("create_job"):
                print(limit.limit, limit.left, "of", limit.amount, "next in", limit.next_in)
        """
        self._check_open()
        if operation == "ask":
            return await self._agent.dispatch.left_of_assistant(self._domain(None))
        if operation not in ("create_job", "send_message"):
            raise ConfigurationError(
                f"operation must be create_job, send_message or ask, not {operation!r}", field="operation"
            )
        return await self._agent.dispatch.left_of_agent(operation, self._project(None))

    def with_options(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        poll: PollPolicy | None = None,
        **changes: Any,
    ) -> MintlifySession:
        """Return a session with other defaults that shares this one's connections, keys and retry budget.

        Closing it leaves the shared connections open; closing this one closes them for both.

        Args:
            timeouts: Other timeouts.
            retry: Another retry policy.
            poll: Another poll policy. All waits on a loop share one scheduler: its caps
                (``per_second``, ``concurrency``, ``retry_after_cap``) stay this session's, and
                so do the headers and the timeouts of its polls.
            changes: ``project_id``, ``domain``, ``fp``, ``retrieval_page_size``, ``headers``,
                ``extra_body``, ``quota``, ``ledger``, ``max_event_bytes``, ``max_reply_bytes``, ``observer``.

        Raises:
            ConfigurationError: There is no such option, or its value is wrong.
        """
        self._check_open()
        given = {"timeouts": timeouts, "retry": retry, "poll": poll}
        changes |= {name: value for name, value in given.items() if value is not None}
        known = {a.name for a in fields(_Options)} - {"hooks"}
        for name in changes:
            if name not in known:
                raise ConfigurationError(
                    f"with_options has no {name!r}; it takes {', '.join(sorted(known))}", field=name
                )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._owner = False
        other._parent = self  # whose end would close the connections of both
        other._options = _checked(evolve(self._options, **changes))
        other._agent = other._agent_client(self._agent.loops)
        other._asking = other._asking_within(other._options.timeouts)
        other._shared = None
        return other

    async def close(self) -> None:
        """Close every open reply, wake every waiter with StateError, and close the connections.

        Safe to repeat. A borrowed aiohttp session stays open. On a session from
        :meth:`with_options` it only ends the use of that object.
        """
        self._closed = True
        if self._owner:
            await self._agent.loops.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def clock(self) -> Clock:
        """Where the session's time comes from."""
        return self._clock

    @property
    def base_url(self) -> str:
        """The service's address."""
        return self._transport_settings.base_url

    async def __aenter__(self) -> Self:
        """Return itself; opens nothing."""
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    def __del__(self) -> None:
        """Warn, once, of connections that nobody closed, and close them."""
        if getattr(self, "_closed", True) or not self._owner:
            return
        if self._agent.loops.abandon():
            warnings.warn(
                f"a MintlifySession made at {self._made_at} was never closed; "
                "use `async with` or `await session.close()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        """Show whose it is; no key."""
        options = self._options
        return (
            f"<MintlifySession {'closed ' if self._closed else ''}{self.base_url} "
            f"project_id={options.project_id!r} domain={options.domain!r}>"
        )

    def __reduce__(self) -> NoReturn:
        """Refuse: it holds keys and connections."""
        raise TypeError("a MintlifySession cannot be pickled; make one on the other side")

    # Inside -------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise _is_closed()

    def _asking_within(self, limits: Timeouts) -> tuple[_Asker, ReplySettings]:
        """Return what sends questions with these *limits*, and what their replies need to know."""
        settings = ReplySettings(
            assumptions=self._assumptions,
            thread_headers=(self._assumptions.thread_id_header, self._assumptions.thread_key_header),
            max_event_bytes=self._options.max_event_bytes,
            max_reply_bytes=self._options.max_reply_bytes,
            comments_are_activity=limits.comments_are_activity,
            clock=self._clock,
        )
        return _Asker(self._agent, limits), settings

    def _first_agent_client(self) -> AgentClient:
        # The factory must not keep the session alive, or leaving without closing would go unnoticed.
        settings, clock = self._transport_settings, self._clock

        def make() -> Resources:
            return Resources(Transport(settings, clock), PollScheduler(agent))

        agent = self._agent_client(LoopLocal(make))
        return agent

    def _agent_client(self, loops: LoopLocal[Resources]) -> AgentClient:
        options = self._options
        return AgentClient(
            assumptions=self._assumptions,
            dispatch=self._dispatcher(),
            loops=loops,
            clock=self._clock,
            poll=options.poll,
            timeouts=options.timeouts,
            project_id=options.project_id,
            headers=options.headers,
            extra_body=options.extra_body,
            base_url=self.base_url,
            observer=options.observer,
        )

    def _for_handles(self) -> AgentClient:
        """Return what all handles call: it keeps the session alive, and the session not it."""
        shared = self._shared() if self._shared is not None else None
        if shared is None:
            shared = self._agent.owned_by(self)
            self._shared = weakref.ref(shared)
        return shared

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            assumptions=self._assumptions,
            keys=self._keys,
            retry=self._options.retry,
            budget=self._budget,
            quota=self._options.quota,
            clock=self._clock,
            roll=random.random,
            hooks=self._options.hooks,
        )

    def _project(self, given: str | None) -> str:
        project = given if given is not None else self._options.project_id
        if project is None:
            raise ConfigurationError(
                "project_id is missing: agent jobs belong to a project; "
                "pass project_id= or set MINTLIFY_PROJECT_ID",
                field="project_id",
            )
        return project

    def _domain(self, given: str | None) -> str:
        domain = given if given is not None else self._options.domain
        if domain is None:
            raise ConfigurationError(
                "domain is missing: the assistant answers about one site, named by the last segment of the "
                "dashboard's URL; pass domain= or set MINTLIFY_DOMAIN",
                field="domain",
            )
        return domain


class _Asker:
    """Sends a session's questions. The session's own one does not keep the session alive."""

    __slots__ = ("_agent", "_limits", "_session")

    def __init__(self, agent: AgentClient, limits: Timeouts, session: MintlifySession | None = None) -> None:
        self._agent = agent
        self._limits = limits
        self._session = session

    def owned_by(self, session: MintlifySession) -> _Asker:
        """Return one that keeps *session* alive, for a question that is not sent yet."""
        return _Asker(self._agent, self._limits, session)

    def open(self, request: Request) -> Coroutine[Any, Any, tuple[LiveResponse, int]]:
        if self._session is not None and self._session.closed:
            raise _is_closed()
        agent = self._agent
        return agent.dispatch.open(agent.loops.get().transport, request, self._limits)

    def observe(self, request: Request) -> Observation | None:
        agent = self._agent
        if agent.observer is None:
            return None
        facts: dict[str, Fact] = {"domain": request.domain or "", "base_url": agent.base_url}
        if request.thread is not None:
            facts["conversation_id"] = request.thread.id
        facts["input"] = request.prompt or ""
        return agent.observer.start("ask", facts)


def _is_closed() -> StateError:
    return StateError("this session is closed; make a new one")


def _message_id() -> str:
    return f"msg_{os.urandom(16).hex()}"


def _environment(name: str) -> str | None:
    """Return a variable of the environment; an empty one counts as absent."""
    return os.environ.get(name) or None


def _caller() -> str:
    """Return the place outside this package that is making a session."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - documented; inspect.stack reads files
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mintlify_async."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _refuse_in_browser(key: Key) -> None:
    # Interface 5: the admin key is a server-side secret.
    if key.given and sys.platform == "emscripten":
        raise ConfigurationError("admin_key must not be used in a browser", field="admin_key")


def _with_total(timeouts: object, total: float | None) -> Timeouts:
    if not isinstance(timeouts, Timeouts):
        raise ConfigurationError("timeouts must be a Timeouts", field="timeouts")
    check_seconds(total, "timeout", optional=True)
    return timeouts if total is None else timeouts.with_total(total)


def _check_client_session(value: object) -> Any:
    if value is None or all(hasattr(value, name) for name in ("request", "closed", "connector")):
        return value
    raise ConfigurationError(
        f"client_session must be an aiohttp.ClientSession; got {type(value).__name__}", field="client_session"
    )


def _check_proxy(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and value.startswith(("http://", "https://")) and host_of(value):
        return value  # without a host aiohttp would go past it
    raise ConfigurationError(
        "proxy must be a URL that begins with http:// or https:// and names a host", field="proxy"
    )


def _check_ssl(value: object) -> ssl_module.SSLContext | None:
    if value is None or isinstance(value, ssl_module.SSLContext):
        return value
    raise ConfigurationError(
        "ssl must be an ssl.SSLContext, or None for the default verification", field="ssl"
    )


_TYPES: tuple[tuple[str, type, str], ...] = (
    ("retry", RetryPolicy, "a RetryPolicy"),
    ("poll", PollPolicy, "a PollPolicy"),
    ("timeouts", Timeouts, "a Timeouts"),
)


def _checked(options: _Options) -> _Options:
    """Return *options* when each is usable."""
    for name, kind, words in _TYPES:
        if not isinstance(getattr(options, name), kind):
            raise ConfigurationError(f"{name} must be {words}", field=name)
    for name in ("project_id", "domain"):
        if getattr(options, name) is not None:
            path_segment(getattr(options, name), name)
    for name in ("max_event_bytes", "max_reply_bytes"):
        size = getattr(options, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigurationError(f"{name} must be a whole number of bytes, 1 or more", field=name)
    check_headers(options.headers)
    if not isinstance(options.extra_body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise ConfigurationError("extra_body must be a mapping of field names to values", field="extra_body")
    return options
