"""The options of a session: their checks, their environment variables, and what sends with them.

``Options`` checks itself when it is made, so a new session and ``with_options``
apply the same checks.
"""

from __future__ import annotations

import os
import random
import ssl as ssl_module
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, evolve, field, fields

from .assistant.assistant_api import ReplySettings
from .errors import ConfigurationError, printable
from .http.dispatch import Dispatcher
from .http.observer import CallbackObserver, Observer
from .http.retry import RetryBudget, RetryPolicy
from .http.timeouts import Timeouts
from .http.transport import RequestRecorder, Transport, TransportSettings
from .jobs.agent_api import AgentAPI, LoopResources
from .jobs.poll_scheduler import PollScheduler
from .jobs.polling import PollPolicy
from .jobs.stale_guard import JobStates
from .protocol.api_keys import KEY_VARIABLES, SHARED_VARIABLE, Key, KeySource, shared_key
from .protocol.argument_checks import (
    check_base_url,
    check_extra_body,
    check_flag,
    check_fp,
    check_headers,
    check_identifier,
    check_page_size,
    check_seconds,
    host_of,
)
from .protocol.assumptions import Assumptions
from .protocol.object_checks import LEDGER, OBSERVER, QUOTA, RECORDER, check_type
from .protocol.requests import KeyKind
from .protocol.secret import hidden
from .rendering.sources import check_site
from .runtime.per_event_loop import LoopLocal

if TYPE_CHECKING:
    import aiohttp

    from .quota.quota import Quota
    from .runtime.clock import Clock
    from .storage.ledger import Ledger

T = TypeVar("T")


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class Options:
    """The options that ``with_options`` can change; ``MintlifySession`` documents each.

    Raises:
        ConfigurationError: A value is invalid; ``.field`` names the option.
    """

    project_id: str | None
    domain: str | None
    site: str | None
    fp: str
    retrieval_page_size: float | None
    headers: Mapping[str, str] = field(converter=check_headers)
    extra_body: Mapping[str, Any] = field(converter=check_extra_body)
    retry: RetryPolicy
    poll: PollPolicy
    timeouts: Timeouts
    quota: Quota | None
    ledger: Ledger | None
    max_event_bytes: int
    max_reply_bytes: int
    callbacks: CallbackObserver | None
    observer: Observer | None

    def __attrs_post_init__(self) -> None:
        check_type(self.retry, RetryPolicy, "retry")
        check_type(self.poll, PollPolicy, "poll")
        check_type(self.timeouts, Timeouts, "timeouts")
        for name in ("project_id", "domain"):
            if getattr(self, name) is not None:
                check_identifier(getattr(self, name), name)
        check_fp(self.fp)
        if self.retrieval_page_size is not None:
            check_page_size(self.retrieval_page_size)
        for name in ("max_event_bytes", "max_reply_bytes"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ConfigurationError(f"{name} must be a whole number of bytes, 1 or more", field=name)
        check_site(self.site)
        for name, object_kind in (("quota", QUOTA), ("ledger", LEDGER), ("observer", OBSERVER)):
            object_kind.check(getattr(self, name), name)

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """Return a copy with *changes*.

        Raises:
            ConfigurationError: An option does not exist, or its value is invalid.
        """
        known = {option.name for option in fields(Options)} - {"callbacks"}
        for name in changes:
            if name not in known:
                raise ConfigurationError(
                    f"with_options has no {name!r}; it takes {', '.join(sorted(known))}", field=name
                )
        return evolve(self, **changes)

    def project(self, given: str | None) -> str:
        """Return *given*, or else the session's project."""
        return self._named("project_id", given, "agent jobs belong to a project")

    def asked_domain(self, given: str | None) -> str:
        """Return *given*, or else the session's domain."""
        last = "the assistant answers about one site, named by the last segment of the dashboard's URL"
        return self._named("domain", given, last)

    def _named(self, name: str, given: str | None, why: str) -> str:
        value: str | None = getattr(self, name) if given is None else check_identifier(given, name)
        if value is None:
            raise ConfigurationError(
                f"{name} is missing: {why}; pass {name}= or set MINTLIFY_{name.upper()}", field=name
            )
        return value

    def counted_for(self, operation: str) -> str:
        """Return the site or the project for which the quota counts *operation*."""
        if operation not in ("create_job", "send_message", "ask"):
            raise ConfigurationError(
                f"operation must be create_job, send_message or ask, not {operation!r}", field="operation"
            )
        return self.asked_domain(None) if operation == "ask" else self.project(None)

    def creation_ledger(self) -> Ledger:
        """Return the ledger that ``dedupe_key`` needs."""
        if self.ledger is None:
            raise ConfigurationError(
                "dedupe_key needs a ledger to be recorded in: give the session ledger=SQLiteLedger(path)",
                field="dedupe_key",
            )
        return self.ledger


class Shared:
    """What a session shares with those that its ``with_options`` makes: keys, connections, jobs it knows.

    *options* are those of the first session, by which all jobs are polled.
    """

    def __init__(
        self,
        options: Options,
        assumptions: Assumptions,
        clock: Clock,
        keys: dict[str, Key],
        transport: TransportSettings,
    ) -> None:
        self.assumptions = assumptions
        self.clock = clock
        self.keys = keys
        self.transport = transport
        self.budget = RetryBudget(options.retry.budget)
        self.states = JobStates()

        # Connections must not keep the session alive, or leaving it without closing would go unnoticed.
        def connect() -> LoopResources:
            return LoopResources(Transport(transport, clock), PollScheduler(agent))

        self.loops = LoopLocal(connect)
        agent = self.agent_api(options)

    def agent_api(self, options: Options) -> AgentAPI:
        """Return what sends requests with *options*."""
        loops = self.loops
        http = Dispatcher(
            assumptions=self.assumptions,
            transport=lambda: loops.get().transport,
            keys=self.keys,
            retry=options.retry,
            budget=self.budget,
            quota=options.quota,
            clock=self.clock,
            random=random.random,
            attempts=options.callbacks,
            observer=options.observer,
            timeouts=options.timeouts,
            base_url=self.transport.base_url,
            headers=options.headers,
            extra_body=options.extra_body,
        )
        return AgentAPI(
            http=http,
            loops=loops,
            poll=options.poll,
            project_id=options.project_id,
            states=self.states,
            ledger=options.ledger,
        )

    def reply_settings(self, options: Options) -> ReplySettings:
        """Return what replies need of *options*."""
        return ReplySettings(
            assumptions=self.assumptions,
            max_event_bytes=options.max_event_bytes,
            max_reply_bytes=options.max_reply_bytes,
            comments_are_activity=options.timeouts.comments_are_activity,
            clock=self.clock,
            fp=options.fp,
            retrieval_page_size=options.retrieval_page_size,
            asked_domain=options.asked_domain,
            thread_headers=(self.assumptions.thread_id_header, self.assumptions.thread_key_header),
            site=options.site,
        )


def from_environment(given: object, variable: str, name: str) -> str | None:
    """Return *given*, or else the value of an environment variable, checked; an empty one counts as unset.

    Args:
        given: The argument.
        variable: The variable.
        name: The argument's name: ``project_id``, ``domain`` or ``site``.
    """
    value = os.environ.get(variable) or None if given is None else given
    check = partial(check_site, value) if name == "site" else partial(check_identifier, value, name)
    return None if value is None else _checked(variable if given is None else None, check)


def _checked(variable: str | None, check: Callable[[], T]) -> T:
    """Return what *check* returns; its error names *variable*, if the value is from there."""
    try:
        return check()
    except ConfigurationError as error:
        if variable is None:
            raise
        problem, field = str(error), error.field
    raise ConfigurationError(f"{variable}: {problem}", field=field)


def with_total(timeouts: Timeouts, total: float | None) -> Timeouts:
    """Return *timeouts*, with *total* seconds for the whole answer unless that is None."""
    check_type(timeouts, Timeouts, "timeouts")
    if total is None:
        return timeouts
    check_seconds(total, "timeout", none="means no limit")
    return timeouts.with_total(total)


def session_keys(
    admin: KeySource | None, assistant: KeySource | None, assumptions: Assumptions, *, check_kind: bool
) -> dict[str, Key]:
    """Return the two keys of a session, each from its argument or its environment variable.

    Where both are unset, ``MINTLIFY_API_KEY`` counts as the key that its prefix names.
    """
    check_flag(check_kind, "check_key_kind")
    check_type(assumptions, Assumptions, "assumptions")
    shared, holds, hint = shared_key(assumptions)
    kinds: tuple[tuple[KeyKind, KeySource | None], ...] = (("admin", admin), ("assistant", assistant))
    keys: dict[str, Key] = {}
    for kind, argument in kinds:
        variable: str | None = KEY_VARIABLES[kind]
        source: KeySource | None = hidden(os.environ.get(KEY_VARIABLES[kind]) or None)
        if argument is not None:
            variable, source = None, hidden(argument)
        elif source is None and holds == kind:
            variable, source = SHARED_VARIABLE, shared
        make = partial(Key, kind, source, assumptions, check_kind=check_kind, hint=hint)
        keys[kind] = _checked(variable, make)
    if keys["admin"].given and sys.platform == "emscripten":  # interface 5: the admin key stays on a server
        raise ConfigurationError("admin_key must not be used in a browser", field="admin_key")
    return keys


def check_ready(options: Options, keys: Mapping[str, Key], uses: Sequence[object]) -> None:
    """Raise one error that tells everything that is missing for *uses*; without any, for all."""
    steps = {
        "agent": (keys["admin"].check, partial(options.project, None)),
        "assistant": (keys["assistant"].check, partial(options.asked_domain, None)),
    }
    for use in uses:
        if use not in tuple(steps):  # a tuple, because a list cannot be looked up in a dict
            raise ConfigurationError(
                f'check takes "agent" and "assistant", not {printable(repr(use), 40)}', field="uses"
            )
    problems: list[ConfigurationError] = []
    for check in (check for use, checks in steps.items() if use in uses or not uses for check in checks):
        try:
            check()
        except ConfigurationError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ConfigurationError(
            "\n".join([f"{len(problems)} settings are missing or wrong:", *(f"- {one}" for one in problems)])
        )


def transport_settings(
    assumptions: Assumptions,
    base_url: str | None,
    allow_insecure_http: bool,
    client_session: aiohttp.ClientSession | None,
    proxy: str | None,
    ssl: ssl_module.SSLContext | None,
    trust_env: bool,
    recorder: RequestRecorder | None,
) -> TransportSettings:
    """Return how a session connects, checked."""
    _check_client_session(client_session)
    _check_proxy(proxy)
    check_type(ssl, ssl_module.SSLContext, "ssl")
    check_flag(trust_env, "trust_env")
    insecure = check_flag(allow_insecure_http, "allow_insecure_http")
    variable = "MINTLIFY_BASE_URL" if base_url is None and "MINTLIFY_BASE_URL" in os.environ else None
    address = os.environ[variable] if variable else assumptions.base_url if base_url is None else base_url
    return TransportSettings(
        base_url=_checked(variable, partial(check_base_url, address, allow_insecure_http=insecure)),
        client_session=client_session,
        proxy=proxy,
        ssl=ssl,
        trust_env=trust_env,
        recorder=RECORDER.check(recorder, "recorder"),
    )


def _check_client_session(value: object) -> None:
    # Not isinstance: a subclass or a stand-in of aiohttp's session is welcome.
    usable = not isinstance(value, type)
    usable = usable and all(hasattr(value, name) for name in ("request", "closed", "connector"))
    if value is not None and not usable:
        raise ConfigurationError(
            f"client_session must be an aiohttp.ClientSession; got {type(value).__name__}",
            field="client_session",
        )


def _check_proxy(value: object) -> None:
    if value is None:
        return
    if not (isinstance(value, str) and value.startswith(("http://", "https://")) and host_of(value)):
        # aiohttp would ignore a proxy without a host and connect directly
        raise ConfigurationError(
            "proxy must be a URL that begins with http:// or https:// and names a host", field="proxy"
        )
