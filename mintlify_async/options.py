"""The options of a session: their checks and their environment variables.

``Options`` checks itself when it is made, so a new session and ``with_options``
apply the same checks.
"""

from __future__ import annotations

import os
import ssl as ssl_module
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, evolve, fields

from .errors import ConfigurationError
from .http.observer import CallbackObserver, Observer
from .http.retry import RetryPolicy
from .http.timeouts import Timeouts
from .http.transport import TransportSettings
from .jobs.polling import PollPolicy
from .model.job_ref import path_segment
from .protocol.api_keys import Key, KeySource
from .protocol.argument_checks import check_base_url, check_headers, check_seconds, host_of
from .protocol.assumptions import Assumptions
from .protocol.object_checks import LEDGER, OBSERVER, QUOTA
from .protocol.secret import hidden

if TYPE_CHECKING:
    import aiohttp

    from .quota.quota import Quota
    from .storage.ledger import Ledger

__all__ = ["Options", "from_environment", "session_keys", "transport_settings", "with_total"]

T = TypeVar("T")


_TYPES: tuple[tuple[str, type, str], ...] = (
    ("retry", RetryPolicy, "a RetryPolicy"),
    ("poll", PollPolicy, "a PollPolicy"),
    ("timeouts", Timeouts, "a Timeouts"),
    ("extra_body", Mapping, "a mapping of field names to values"),
)


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class Options:
    """The options that ``with_options`` can change; ``MintlifySession`` documents each.

    Raises:
        ConfigurationError: A value is invalid; ``.field`` names the option.
    """

    project_id: str | None
    domain: str | None
    fp: str
    retrieval_page_size: float
    headers: Mapping[str, str]
    extra_body: Mapping[str, Any]
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
        """Check each option that is not checked where it is used."""
        for name, kind, words in _TYPES:
            if not isinstance(getattr(self, name), kind):
                raise ConfigurationError(f"{name} must be {words}", field=name)
        for name in ("project_id", "domain"):
            if getattr(self, name) is not None:
                path_segment(getattr(self, name), name)
        for name in ("max_event_bytes", "max_reply_bytes"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ConfigurationError(f"{name} must be a whole number of bytes, 1 or more", field=name)
        check_headers(self.headers)
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
        project = given if given is not None else self.project_id
        if project is None:
            raise ConfigurationError(
                "project_id is missing: agent jobs belong to a project; "
                "pass project_id= or set MINTLIFY_PROJECT_ID",
                field="project_id",
            )
        return project

    def site(self, given: str | None) -> str:
        """Return *given*, or else the session's domain."""
        domain = given if given is not None else self.domain
        if domain is None:
            raise ConfigurationError(
                "domain is missing: the assistant answers about one site, named by the last segment of the "
                "dashboard's URL; pass domain= or set MINTLIFY_DOMAIN",
                field="domain",
            )
        return domain

    def counted_for(self, operation: str) -> str:
        """Return the site or the project for which the quota counts *operation*."""
        if operation not in ("create_job", "send_message", "ask"):
            raise ConfigurationError(
                f"operation must be create_job, send_message or ask, not {operation!r}", field="operation"
            )
        return self.site(None) if operation == "ask" else self.project(None)

    def creation_ledger(self) -> Ledger:
        """Return the ledger that ``dedupe_key`` needs."""
        if self.ledger is None:
            raise ConfigurationError(
                "dedupe_key needs a ledger to be recorded in: give the session ledger=SQLiteLedger(path)",
                field="dedupe_key",
            )
        return self.ledger


def from_environment(given: T | None, variable: str) -> T | str | None:
    """Return *given*, or else the value of an environment variable; an empty variable counts as unset."""
    return given if given is not None else os.environ.get(variable) or None


def with_total(timeouts: object, total: float | None) -> Timeouts:
    """Return *timeouts*, with *total* seconds for the whole answer unless that is None."""
    if not isinstance(timeouts, Timeouts):
        raise ConfigurationError("timeouts must be a Timeouts", field="timeouts")
    check_seconds(total, "timeout", none="means no limit")
    return timeouts if total is None else timeouts.with_total(total)


def session_keys(
    admin: KeySource | None, assistant: KeySource | None, assumptions: Assumptions, *, check_kind: bool
) -> dict[str, Key]:
    """Return the two keys of a session, each from its argument or its environment variable."""
    admin = hidden(from_environment(admin, "MINTLIFY_ADMIN_API_KEY"))
    assistant = hidden(from_environment(assistant, "MINTLIFY_ASSISTANT_API_KEY"))
    keys = {
        "admin": Key("admin", admin, assumptions, check_kind=check_kind),
        "assistant": Key("assistant", assistant, assumptions, check_kind=check_kind),
    }
    if keys["admin"].given and sys.platform == "emscripten":  # interface 5: the admin key stays on a server
        raise ConfigurationError("admin_key must not be used in a browser", field="admin_key")
    return keys


def transport_settings(
    assumptions: Assumptions,
    base_url: str | None,
    allow_insecure_http: bool,
    client_session: aiohttp.ClientSession | None,
    proxy: str | None,
    ssl: ssl_module.SSLContext | None,
    trust_env: bool,
) -> TransportSettings:
    """Return how a session connects, checked."""
    _check_client_session(client_session)
    _check_proxy(proxy)
    if not isinstance(ssl, ssl_module.SSLContext | None):  # pyright: ignore[reportUnnecessaryIsInstance] - any
        raise ConfigurationError(
            "ssl must be an ssl.SSLContext, or None for the default verification", field="ssl"
        )
    address = os.environ.get("MINTLIFY_BASE_URL", assumptions.base_url) if base_url is None else base_url
    return TransportSettings(
        base_url=check_base_url(address, allow_insecure_http=allow_insecure_http),
        client_session=client_session,
        proxy=proxy,
        ssl=ssl,
        trust_env=trust_env,
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
