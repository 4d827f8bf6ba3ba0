"""The options of a session, with its timeouts and its observer. They are checked when they are made.

So a new session and ``with_options`` apply the same checks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import Factory, evolve, field, fields, frozen
from attrs.validators import optional

from ..argument_checks import (
    ANONYMOUS,
    check_bool,
    check_extra_body,
    check_field,
    check_fp,
    check_headers,
    check_identifier,
    check_observer,
    check_page_size,
    check_quota,
    check_seconds,
    check_site,
    check_store,
    check_type,
    check_word,
)
from ..errors import ConfigurationError
from ..model.operation import KeyKind
from ..wrong_names import helpful
from .api_keys import Key
from .paths_and_headers import Assumptions
from .poll_policy import PollPolicy
from .retry_policy import RetryPolicy

if TYPE_CHECKING:
    from ..quota.quota import Quota
    from ..storage.store import Store

DEFAULT_RETRIEVAL_PAGE_SIZE = 5  # the default of the service

Fact = str | int | float | bool
"""The value of a fact that an observation gets."""


@helpful
@frozen(kw_only=True)
class Timeouts:
    """The maximum time of each step of a call, in seconds.

    Args:
        connect: DNS lookup, connecting and TLS together, for one attempt.
        request: A complete agent request: every attempt, the pauses between them, and the response's body.
        first_event: From sending a question to the assistant's first event.
        idle: Maximum time between two events of an answer after the first event, or None for no limit. It
            counts only while the reply is being read, not while your code works on an event.
        total: The complete answer, or None for no limit.
        comments_are_activity: Whether a comment line (the service's heartbeat) counts as an event for *idle*.

    Raises:
        ConfigurationError: A limit is not a number above 0.
    """

    connect: float = field(default=10.0, validator=check_field(check_seconds))
    request: float = field(default=60.0, validator=check_field(check_seconds))
    first_event: float = field(default=60.0, validator=check_field(check_seconds))
    idle: float | None = field(default=120.0, validator=check_field(check_seconds, none="means no limit"))
    total: float | None = field(default=None, validator=check_field(check_seconds, none="means no limit"))
    comments_are_activity: bool = field(default=True, validator=check_field(check_bool))


class Observation(Protocol):
    """One running operation. If a method raises an error, the error is logged and the operation continues."""

    def active(self) -> AbstractContextManager[object]:
        """Return a block that is entered around each request, but never around a ``yield``."""
        ...

    def set(self, name: str, value: Fact) -> None:
        """Record a fact, such as ``conversation_id``, ``status``, ``finish_reason``, ``model``."""

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        """Record an event that happens now.

        ``attempt``: an attempt ended (``attempt``, ``seconds``, ``status``, ``request_id``, ``error``).
            ``retry``: the request is sent again (``attempt``, ``delay``). ``first_event``: the first event of
            an answer. ``poll``: a poll of a job (``status`` or ``error``).
        """

    def end(self, error: BaseException | None = None) -> None:
        """End the operation. *error* is its error or cancellation, or None."""


class Observer(Protocol):
    """Observes operations, from the request to the end of the stream or of the job.

    If a reply is dropped, a finalizer ends its observation, on any thread.
    """

    def start(self, operation: str, facts: Mapping[str, Fact]) -> Observation:
        """Start to observe ``ask``, ``create_job``, ``send_message``, ``wait``, ``refresh`` or ``run_job``.

        Args:
            operation: The name of the operation.
            facts: The known data: ``domain``, ``project_id``, ``conversation_id``, ``base_url``, ``input``.
        """
        ...


def _no_key(kind: KeyKind) -> Any:
    return Factory(lambda options: Key(kind, None, options.assumptions), takes_self=True)


@frozen(kw_only=True, eq=False, repr=False)
class Options:
    """The options that ``with_options`` can change. ``MintlifySession`` documents each option.

    Raises:
        ConfigurationError: A value is invalid. ``.field`` names the option.
    """

    assumptions: Assumptions = field(factory=Assumptions)
    project_id: str | None = field(default=None, validator=optional(check_field(check_identifier)))
    domain: str | None = field(default=None, validator=optional(check_field(check_identifier)))
    fp: str = field(default=ANONYMOUS, validator=check_field(check_fp))
    retrieval_page_size: float | None = field(
        default=DEFAULT_RETRIEVAL_PAGE_SIZE, validator=check_field(check_page_size)
    )
    headers: Mapping[str, str] = field(factory=dict[str, str], converter=check_headers)
    extra_body: Mapping[str, Any] = field(factory=dict[str, Any], converter=check_extra_body)
    # Other libraries also have objects with this name.
    timeouts: Timeouts = field(factory=Timeouts, validator=check_field(check_type, kind=Timeouts))
    admin_key: Key = field(default=_no_key("admin"))
    assistant_key: Key = field(default=_no_key("assistant"))
    site: str | None = field(default=None, converter=check_site)
    retry: RetryPolicy = field(
        factory=RetryPolicy,
        validator=check_field(
            check_type,
            kind=RetryPolicy,
            example="RetryPolicy(…), such as RetryPolicy(attempts=3), where 1 turns retrying off,",
        ),
    )
    poll: PollPolicy = field(
        factory=PollPolicy,
        validator=check_field(
            check_type, kind=PollPolicy, example="PollPolicy(…), such as PollPolicy(initial=5),"
        ),
    )
    quota: Quota | None = field(default=None, validator=check_field(check_quota))
    ledger: Store | None = field(default=None, validator=check_field(check_store))
    observer: Observer | None = field(default=None, validator=check_field(check_observer))

    poll_key: Hashable = field(init=False)
    """The data of a poll besides the path, and its limits. Sessions with the same value share polls."""

    def __attrs_post_init__(self) -> None:
        """Make ``poll_key`` once, because each poll of a job uses it."""
        headers, limits = frozenset(self.headers.items()), (self.timeouts.connect, self.timeouts.request)
        object.__setattr__(self, "poll_key", (self.admin_key, headers, limits))

    def key(self, kind: KeyKind) -> Key:
        """Return the key of this kind."""
        return self.admin_key if kind == "admin" else self.assistant_key

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """Return a copy with *changes*.

        Raises:
            ConfigurationError: An option does not exist, or its value is invalid.
        """
        option_names = {option.name for option in fields(Options)} - {"assumptions", "poll_key"}
        for name in changes:
            if name not in option_names:
                takes = ", ".join(sorted(option_names))
                raise ConfigurationError(f"with_options has no {name!r}: it takes {takes}", field=name)
        keys = {"admin_key": self.admin_key, "assistant_key": self.assistant_key}
        new_keys = {name: key.replaced(changes[name]) for name, key in keys.items() if name in changes}
        return evolve(self, **{**changes, **new_keys})

    def project(self, argument: str | None) -> str:
        """Return *argument*, or else the session's project."""
        return self._named("project_id", argument, "agent jobs belong to a project")

    def asked_domain(self, argument: str | None) -> str:
        """Return *argument*, or else the session's domain."""
        reason = "the assistant answers about one site, named by the last segment of the dashboard's URL"
        return self._named("domain", argument, reason)

    def _named(self, name: str, argument: str | None, reason: str) -> str:
        value: str | None = getattr(self, name) if argument is None else check_identifier(argument, name)
        if value is None:
            raise ConfigurationError(
                f"{name} is missing: {reason}; pass {name}= or set MINTLIFY_{name.upper()}", field=name
            )
        return value

    def counted_for(self, operation: str) -> str:
        """Return the site or the project for which the quota counts *operation*."""
        check_word(operation, "operation", ("create_job", "send_message", "ask"))
        return self.asked_domain(None) if operation == "ask" else self.project(None)


def check_ready(options: Options, uses: Sequence[object]) -> None:
    """Raise one error that names everything that is missing for *uses*. Without *uses*, check all uses."""
    steps = {
        "agent": (options.admin_key.check, partial(options.project, None)),
        "assistant": (options.assistant_key.check, partial(options.asked_domain, None)),
    }
    for use in uses:
        check_word(use, "uses", tuple(steps))
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
