"""The client: ``MintlifySession`` has the options, the keys, the connections and the methods."""

from __future__ import annotations

import logging
import ssl as ssl_module
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self

from attrs import evolve

from .argument_checks import ANONYMOUS, URLObject, check_function, check_type, check_wait
from .assistant.reply import Reply
from .http.attempts import quota_left, unblock
from .http.session_core import Core, Lifetime, Shared
from .jobs.handle import JobHandle, handle_for, wait_for_own
from .jobs.job_calls import create, observed
from .messages import Message, Question
from .model.context_and_filter import ContextItem, SearchFilter
from .model.job_record import Job
from .model.job_ref import JobRef
from .model.secret import hidden
from .model.thread import Thread
from .model.wire_value import MISSING, Missing, load_converter
from .protocol.requests import AskOptions, ask_call, create_job_call
from .runtime.lasting_steps import Recordings
from .runtime.logs import caller, log_fields
from .settings.api_keys import KeySource
from .settings.environment import from_environment, session_keys
from .settings.options import DEFAULT_RETRIEVAL_PAGE_SIZE, Observer, Options, Timeouts, check_ready
from .settings.paths_and_headers import Assumptions
from .settings.poll_policy import DEFAULT_TIMEOUT, PollPolicy
from .settings.proxy_and_tls import transport_settings
from .settings.retry_policy import RetryPolicy
from .wrong_names import helpful

if TYPE_CHECKING:
    import aiohttp

    from .conversation.conversation import Conversation
    from .http.transport import RequestRecorder
    from .quota.quota import Quota, QuotaRemaining
    from .storage.store import Store

__all__ = ["MintlifySession", "record_requests", "steps_of"]

log = logging.getLogger("mintlify_async")

_SECRETS: Final = {"admin_key", "assistant_key", "proxy"}
"""Arguments that a frame must not show. The URL of a proxy may contain a password."""


@helpful
class MintlifySession:
    """A client of the Mintlify documentation service, for agent jobs and the streaming assistant.

    Create one session for the program. Many tasks, event loops and threads may use it at the same time. Each
    loop opens its own connections at its first call::

        async with MintlifySession(project_id="p", domain="acme") as session:
            job = await session.run_job("Fix the typos in the quickstart", timeout=900)
            answer = await session.ask("How do I log in?")
            async for event in session.ask("And by SSO?", thread=answer.thread):
                ...

    Args:
        project_id: The project of agent jobs. Environment: ``MINTLIFY_PROJECT_ID``.
        domain: The site whose assistant is asked. Environment: ``MINTLIFY_DOMAIN``.
        site: The site URL, such as ``https://docs.acme.com``. With it, links to paths in answers, such as
            ``/login``, are full URLs. Environment: ``MINTLIFY_SITE``. A URL object of pydantic, yarl or httpx
            is accepted, here and as *base_url*.
        admin_key: The key for agent jobs. It is a string, or a plain or async function that is
            called for each request. Environment: ``MINTLIFY_ADMIN_API_KEY``.
        assistant_key: The key for the assistant. Environment: ``MINTLIFY_ASSISTANT_API_KEY``. If a key is
            unset, and ``MINTLIFY_API_KEY`` has the prefix of that key, that variable is used.
        base_url: The service's URL. Environment: ``MINTLIFY_BASE_URL``. Without *allow_insecure_http*, plain
            http is allowed only to this machine.
        retrieval_page_size: Number of search results for an answer (default: 5). None leaves the field out.
        headers: Additional headers for every request.
        extra_body: Additional fields for the body of every request. They replace fields of the same name.
        retry: When a failed request is sent again; see :class:`RetryPolicy`.
        poll: How often jobs are polled; see :class:`PollPolicy`.
        timeouts: The time limits of calls; see :class:`Timeouts`.
        quota: Counts calls against the service's limits before they are sent. Off by default.
        ledger: Records each ``dedupe_key``, so that only one job is created for it.
        client_session: Your own ``aiohttp.ClientSession``. This session never closes it.
        proxy: The URL of a proxy. ``"environment"`` takes it from HTTPS_PROXY, ALL_PROXY and NO_PROXY when
            the session is made (HTTP_PROXY for a *base_url* with plain http). Environment:
            ``MINTLIFY_PROXY``, except with *client_session*, or with a *base_url* of this machine.
        ssl: The context that verifies certificates.
        allow_insecure_http: Allow plain http to other machines.
        assumptions: Replaces this package's assumptions about the service.
        observer: Follows each operation from start to end, for tracing; see :class:`Observer`.

    Raises:
        ConfigurationError: An argument is invalid. ``.field`` names it. Only calls report a missing key.
    """

    def __init__(
        self,
        *,
        project_id: str | None = None,
        domain: str | None = None,
        site: str | URLObject | None = None,
        admin_key: KeySource | None = None,
        assistant_key: KeySource | None = None,
        base_url: str | URLObject | None = None,
        retrieval_page_size: float | None = DEFAULT_RETRIEVAL_PAGE_SIZE,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        poll: PollPolicy | None = None,
        timeouts: Timeouts | None = None,
        quota: Quota | None = None,
        ledger: Store | None = None,
        client_session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        ssl: ssl_module.SSLContext | None = None,
        allow_insecure_http: bool = False,
        assumptions: Assumptions | None = None,
        observer: Observer | None = None,
    ) -> None:
        # A traceback can show the locals of a frame, and the URL of a proxy may contain a password.
        admin_key, assistant_key, proxy = hidden(admin_key), hidden(assistant_key), hidden(proxy)
        self._has_parent = False
        check_type(assumptions, "assumptions", Assumptions)
        assumptions = Assumptions() if assumptions is None else assumptions
        admin, assistant = session_keys(admin_key, assistant_key, assumptions)
        transport = transport_settings(assumptions, base_url, allow_insecure_http, client_session, proxy, ssl)
        options = Options(
            assumptions=assumptions,
            admin_key=admin,
            assistant_key=assistant,
            project_id=from_environment(project_id, "project_id"),
            domain=from_environment(domain, "domain"),
            site=from_environment(site, "site"),
            retrieval_page_size=retrieval_page_size,
            headers=headers,
            extra_body=extra_body,
            retry=RetryPolicy() if retry is None else retry,
            poll=PollPolicy() if poll is None else poll,
            timeouts=Timeouts() if timeouts is None else timeouts,
            quota=quota,
            ledger=ledger,
            observer=observer,
        )
        self._core = Core(options, Shared(options, transport, caller()))
        load_converter()  # takes about 15 ms, which would delay the first event of an answer

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
        """Create an agent job with a single POST. ``await job.wait()`` returns its result.

        Args:
            prompt: The instruction, at least 1 character.
            project_id: A project other than the session's.
            dedupe_key: A name for this job in the session's ledger. No process that shares the
                ledger creates a second job with this name. If another call is creating the job, this call
                waits for its result.
            timeout: Limits the complete call, in seconds, with its waits for another call, for the ledger and
                for a quota. By default, ``timeouts.request`` (60) limits only the request.
            headers: Additional headers.
            extra_body: Additional fields of the body. They replace fields of the same name.

        Raises:
            ConfigurationError: An argument, the key or the project is missing or invalid. Nothing was sent.
            OutcomeUnknownError: The request was sent and the job may exist. The request is never sent again.
            APIStatusError: The service refused. After the allowed retries of a 429, this is a RateLimitError.
            APIConnectionError: The request could not be sent. No job exists.
            QuotaExceededError: The session's quota is used up. Nothing was sent.
            StateError: The session is closed, the ledger cannot be used, or *timeout* passed while another
                call was creating the job. This call has sent nothing.

        Example::

            job = await session.create_job("Fix the typos in the quickstart")
        """
        core = self._core.check_open()
        call = create_job_call(
            core.options,
            prompt,
            project_id=project_id,
            timeout=timeout,
            headers=headers,
            extra_body=extra_body,
        )
        return JobHandle(core, await create(core, call, dedupe_key))

    def job(self, ref: JobRef | JobHandle | Job | str, *, project_id: str | None = None) -> JobHandle:
        """Return a handle for an existing job, without I/O.

        Args:
            ref: A :class:`JobRef` or its string, a :class:`JobHandle`, a :class:`Job`, or a job's id.
            project_id: The project of a ``Job`` or an id. The default is the session's project.

        Raises:
            ConfigurationError: *ref* names no job, or it is an id without a project.
        """
        return handle_for(self._core.check_open(), ref, project_id=project_id)

    async def run_job(
        self,
        prompt: str,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        check: bool = True,
        on_created: Callable[[JobHandle], object] | None = None,
        project_id: str | None = None,
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Job:
        """Create a job and wait until it ends.

        Args:
            prompt: The instruction.
            timeout: Limits the wait, in seconds; 30 minutes by default, None for no limit.
            check: Raise JobFailedError if the job fails.
            on_created: A plain function, called with the handle before the wait, so that no paid job is lost.
            project_id: A project other than the session's.
            dedupe_key: A name for this job in the session's ledger, as in :meth:`create_job`.
            headers: Additional headers.
            extra_body: Additional fields of the body.

        Raises:
            JobTimeoutError: The job was still running. ``.ref`` names it.
            JobFailedError: The job failed.
            MintlifyError: As for :meth:`create_job` and ``JobHandle.wait``.
        """
        check_wait(timeout)
        check_function(on_created, "on_created")
        core = self._core.check_open()
        call = create_job_call(
            core.options, prompt, project_id=project_id, headers=headers, extra_body=extra_body
        )
        with observed(core, "run_job", call.project_id or "", None, active=False) as observation:
            observed_core = evolve(core, observation=observation)  # the requests belong to run_job
            state = await create(observed_core, call, dedupe_key)
            if on_created is not None:
                handle = JobHandle(core, state)
                try:
                    on_created(handle)
                except BaseException:
                    log.warning(
                        "on_created failed; the job was created and keeps running: %s",
                        handle.ref,
                        extra=log_fields("run_job", job_id=handle.id),
                    )
                    raise
            return await wait_for_own(JobHandle(observed_core, state), timeout, check=check)

    def ask(
        self,
        question: Question,
        *,
        thread: Thread | str | None = None,
        fp: str | None = None,
        retrieval_page_size: float | Missing | None = MISSING,
        filter: SearchFilter | Mapping[str, Any] | None = None,
        context: Sequence[ContextItem | Mapping[str, Any]] | None = None,
        current_path: str | None = None,
        domain: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Ask the assistant.

        The question is sent when you first enter, iterate or await the reply. Awaiting the reply returns the
        complete :class:`~mintlify_async.assistant.answer.Answer`.

        Args:
            question: The text of one user message, or all messages of the conversation as strings,
                :class:`Message` objects, the UIMessage dicts of a browser, or
                ``{"role": "user", "content": "text"}``.
            thread: The thread to continue: ``reply.thread`` of an earlier answer.
            fp: Identifies the user (default: ``"anonymous"``).
            retrieval_page_size: The number of search results for the answer. The default is the session's.
                None leaves the field out.
            filter: Limits the search to some documentation pages.
            context: Code or selected text that the assistant should consider.
            current_path: The documentation page that the user is reading, at most 200 characters.
            domain: A site other than the session's.
            timeout: Limits the complete answer, in seconds; ``timeouts.total`` (no limit) by default.
            headers: Additional headers.
            extra_body: Additional fields of the body. They replace fields of the same name.

        Raises:
            ConfigurationError: An argument is invalid. A missing key is an error when the question is sent.

        Example::

            answer = await session.ask("How do I log in?")
        """
        core = self._core.check_open()
        options: AskOptions = {
            "thread": thread,
            "fp": fp,
            "retrieval_page_size": retrieval_page_size,
            "filter": filter,
            "context": context,
            "current_path": current_path,
            "domain": domain,
            "timeout": timeout,
            "headers": headers,
            "extra_body": extra_body,
        }
        return Reply(core, ask_call(core.options, question, options))

    def conversation(
        self,
        *,
        fp: str | None = None,
        store: Store | None = None,
        id: str | None = None,
        owner: str | None = None,
        system: str | Message | None = None,
        commit: Literal["finish", "partial"] = "finish",
        busy: Literal["raise", "queue"] = "raise",
        max_messages: int | None = None,
    ) -> Conversation:
        """Return a conversation with the assistant, which keeps its history and thread. There is no I/O.

        The same *store*, *id* and *owner* continue a stored conversation. It is read when its first reply is
        entered, or by ``await chat.load()``. ``chat.begin_with(messages)`` starts with a history.
        ``session.with_options(domain="…").conversation(…)`` asks about another site.

        Args:
            fp: Identifies the user to the service (default: ``"anonymous"``).
            store: Where finished turns are saved. By default, they are not saved.
            id: The conversation's id in the store. By default, it is new.
            owner: The owner of the conversation in the store; *fp* by default. Another owner cannot load it.
                With *store* and *id*, *owner* or *fp* is required.
            system: A text, or a message, that is sent before every question.
            commit: When a turn is saved. ``"finish"``: if its answer is complete. ``"partial"``: also if the
                answer was interrupted after some text.
            busy: What happens if a turn is already running. ``"raise"``: a StateError. ``"queue"``: the call
                waits, and then reads the store again. The same applies to ``undo``, ``save``, ``delete``.
            max_messages: Maximum number of messages per question. The question counts, system messages do
                not. A turn reads from the store only the messages that it sends.

        Raises:
            ConfigurationError: An argument is invalid.

        Example::

            chat = session.conversation(fp="user-42", store=SQLiteStore("chats.db"), id="help")
            answer = await chat.ask("How do I log in?")
        """
        # Imported here, because a plain question does not need these modules.
        from .conversation.conversation import Conversation
        from .conversation.settings import ConversationSettings

        core = self._core.check_open()
        settings = ConversationSettings(
            fp=fp if fp is not None else core.options.fp,
            store=store,
            id=id,
            owner=owner,
            system=system,
            commit=commit,
            busy=busy,
            max_messages=max_messages,
        )
        return Conversation(core, settings)

    async def quota_left(
        self, operation: Literal["create_job", "send_message", "ask"], *, fp: str | None = None
    ) -> tuple[QuotaRemaining, ...]:
        """Return the remaining calls of each limit of the session's quota that counts *operation*.

        The method sends nothing and uses up nothing. Without a quota, the tuple is empty.

        Args:
            operation: The name of the call.
            fp: A user, to include the user's ``ask_per_user`` limit. Without *fp*, and without an ``fp`` of
                the session, that limit is left out.

        Raises:
            ConfigurationError: *operation* is not one of the three, or its project, domain or key is missing,
                or *fp* names no user and the quota has ``ask_per_user``.
            StateError: The quota's store cannot be reached.
        """
        core = self._core.check_open()
        if fp is None:
            fp = "" if core.options.fp == ANONYMOUS else core.options.fp
        elif core.options.quota is not None:
            core.options.quota.check_user(fp)
        return await quota_left(core, operation, fp)

    async def unblock(self, operation: Literal["create_job", "send_message", "ask"]) -> None:
        """End the block that a 429 of the service started for *operation*.

        Waiting calls of this process ask again immediately. Waiting calls of other processes with the same
        store ask within 30 s. Without a quota, nothing happens.

        Raises:
            ConfigurationError: *operation* is not one of the three, or its project, domain or key is missing.
            StateError: The quota's store cannot be reached.
        """
        await unblock(self._core.check_open(), operation)

    def check(self, *uses: Literal["agent", "assistant"]) -> None:
        """Raise an error that lists every missing setting for *uses*. Nothing is sent.

        Call this method when your program starts. A key that comes from a function counts as set.

        Args:
            uses: ``"agent"`` for jobs, ``"assistant"`` for questions. Both by default.

        Raises:
            ConfigurationError: A key, the project or the domain is missing, or a key is of the wrong kind. If
                only one argument is at fault, ``.field`` names it.
            StateError: The session is closed.
        """
        check_ready(self._core.check_open().options, uses)

    # Lifetimes ----------------------------------------------------------------------------------

    def with_options(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        poll: PollPolicy | None = None,
        **changes: Any,
    ) -> MintlifySession:
        """Return a session with other options. It shares this session's connections and retry budget.

        For several customers, make one session, and call this once per customer::

            customer = session.with_options(assistant_key=key, domain="acme", admin_key=None)

        Closing the new session leaves the connections open. Closing this session closes the connections of
        both.

        Args:
            timeouts: Other timeouts.
            retry: Another retry policy.
            poll: Another poll policy for the waits of the new session's handles. These waits ignore its
                ``per_second`` and ``timeout``, because all polls on a loop have the values of this session.
            changes: ``admin_key``, ``assistant_key``, ``project_id``, ``domain``, ``site``, ``fp``,
                ``retrieval_page_size``, ``headers``, ``extra_body``, ``quota``, ``ledger``, ``observer``.
                For a key, None means no key. The environment is not read again.

        Raises:
            ConfigurationError: An option does not exist, or its value is invalid.
        """
        changes |= {name: hidden(changes[name]) for name in _SECRETS & changes.keys()}
        core = self._core.check_open()
        policies = {"timeouts": timeouts, "retry": retry, "poll": poll}
        changes |= {name: value for name, value in policies.items() if value is not None}
        changed_session = object.__new__(type(self))
        changed_session.__dict__.update(self.__dict__)
        changed_session._has_parent = True
        changed_session._core = evolve(core, options=core.options.changed(changes), lifetime=Lifetime())
        return changed_session

    async def close(self) -> None:
        """Close all open replies and connections, and end all waits with StateError.

        The method waits for running saves of conversations and records of jobs, at most 5 s. Then it gives
        them up, and the log has an error.

        Other event loops close their own connections. The method waits for them, at most 5 s in all. A busy
        or stopped loop closes its connections when it runs next.

        Closing twice is harmless. Your own ``aiohttp.ClientSession`` stays open. If this session is from
        :meth:`with_options`, the connections also stay open.
        """
        self._core.lifetime.closed = True
        if not self._has_parent:
            await self._core.shared.loops.close()

    aclose = close

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._core.lifetime.closed

    @property
    def options(self) -> Options:
        """The options that :meth:`with_options` changes, for reading."""
        return self._core.options

    @property
    def base_url(self) -> str:
        """The URL of the service."""
        return self._core.shared.transport.base_url

    async def __aenter__(self) -> Self:
        self._core.check_open()
        return self

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves

        def __enter__(self) -> NoReturn:
            raise TypeError("a MintlifySession is opened with `async with`, in an async function")

        def __exit__(self, *error: object) -> None: ...

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):  # a traceback shows the repr of a session whose arguments were refused
            return "<MintlifySession without options>"
        options, prefix = self.options, "closed " if self.closed else ""
        text = f"{self.base_url} project_id={options.project_id!r} domain={options.domain!r}"
        return f"<MintlifySession {prefix}{text}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MintlifySession has keys and cannot be pickled; create one in the other process")


def record_requests(session: MintlifySession, recorder: RequestRecorder | None) -> None:
    """Pass every request of the sessions that share *session*'s connections to *recorder*. None ends this.

    For the testing kit.
    """
    session._core.shared.transport.recorder = recorder  # pyright: ignore[reportPrivateUsage] - defined in this file


def steps_of(session: MintlifySession) -> Callable[[], Recordings]:
    """Return a function that returns the running loop's steps for which the end of *session* waits.

    For the testing kit. It does not keep the session alive.
    """
    shared = weakref.ref(session._core.shared)  # pyright: ignore[reportPrivateUsage] - defined in this file

    def steps() -> Recordings:
        alive = shared()
        return Recordings() if alive is None else alive.recordings()

    return steps
