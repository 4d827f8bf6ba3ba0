"""The options of a session: their checks, their environment variables, and what sends with them.

``Options`` checks itself when it is made, so a new session and ``with_options``
apply the same checks.
"""

from __future__ import annotations

import os
import ssl as ssl_module
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yarl
from attrs import evolve, field, fields, frozen

from .checks import (
    check_base_url,
    check_bool,
    check_field,
    check_identifier,
    check_site,
    check_store,
    check_type,
)
from .errors import ConfigurationError, printable
from .http.dispatch import Dispatcher
from .http.observer import Observer
from .http.retry import RetryBudget, RetryPolicy
from .http.transport import Transport, TransportSettings
from .jobs.agent_api import AgentAPI, LoopResources
from .jobs.polling import PollPolicy
from .jobs.stale_guard import JobStates
from .protocol.api_keys import KEY_VARIABLES, SHARED_VARIABLE, Key, KeySource, shared_key
from .protocol.assumptions import Assumptions
from .protocol.calls import CallDefaults, KeyKind
from .protocol.habits import ARGUMENTS
from .protocol.secret import hidden
from .runtime.caller import Place
from .runtime.per_event_loop import LoopLocal

if TYPE_CHECKING:
    import aiohttp

    from .quota.quota import Quota
    from .storage.store import Store

T = TypeVar("T")
ENVIRONMENT = "environment"  # as a proxy: the one that the environment names


@frozen(kw_only=True, eq=False, repr=False)
class Options(CallDefaults):
    """The options that ``with_options`` can change; ``MintlifySession`` documents each.

    Raises:
        ConfigurationError: A value is invalid; ``.field`` names the option.
    """

    admin_key: Key
    assistant_key: Key
    site: str | None = field(default=None, validator=check_field(check_site))
    retry: RetryPolicy = field(factory=RetryPolicy)
    poll: PollPolicy = field(factory=PollPolicy)
    quota: Quota | None = None
    ledger: Store | None = field(default=None, validator=check_field(check_store))
    observer: Observer | None = None

    @property
    def keys(self) -> dict[KeyKind, Key]:
        """The keys by kind."""
        return {"admin": self.admin_key, "assistant": self.assistant_key}

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """Return a copy with *changes*.

        Raises:
            ConfigurationError: An option does not exist, or its value is invalid.
        """
        option_names = {option.name for option in fields(Options)} - {"assumptions"}
        for name in changes:
            if name not in option_names:
                hint = ARGUMENTS.get(name) or f"it takes {', '.join(sorted(option_names))}"
                raise ConfigurationError(f"with_options has no {name!r}: {hint}", field=name)
        keys = {
            f"{kind}_key": key.replaced(changes[f"{kind}_key"])
            for kind, key in self.keys.items()
            if f"{kind}_key" in changes
        }
        return evolve(self, **{**changes, **keys})

    def counted_for(self, operation: str) -> str:
        """Return the site or the project for which the quota counts *operation*."""
        if operation not in ("create_job", "send_message", "ask"):
            raise ConfigurationError(
                f"operation must be create_job, send_message or ask, not {operation!r}", field="operation"
            )
        return self.asked_domain(None) if operation == "ask" else self.project(None)


class Shared:
    """What a session shares with those that its ``with_options`` makes: connections, and jobs it knows.

    Sessions, handles and open replies keep it alive. It is collected with the last of them, and warns if the
    session was never closed. It contains no keys, because a reply must not keep them.

    Args:
        options: Those of the first session, which limit how often jobs are polled.
        transport: How connections are made.
        made_at: Where the first session was made.
    """

    def __init__(self, options: Options, transport: TransportSettings, made_at: Place) -> None:
        self.transport = transport
        self.budget = RetryBudget(options.retry.budget)
        self.states = JobStates()
        policy = options.poll
        self.loops = LoopLocal(lambda: LoopResources(Transport(transport), policy))
        self._made_at = made_at

    def agent_api(self, options: Options) -> AgentAPI:
        """Return what sends requests with *options*. It keeps the connections alive."""
        loops = self.loops
        http = Dispatcher(
            assumptions=options.assumptions,
            transport=lambda: loops.get().transport,
            keys=options.keys,
            retry=options.retry,
            budget=self.budget,
            quota=options.quota,
            observer=options.observer,
            base_url=self.transport.base_url,
        )
        return AgentAPI(
            http=http,
            loops=loops,
            poll=options.poll,
            defaults=options,
            states=self.states,
            ledger=options.ledger,
            owner=self,
        )

    def __del__(self) -> None:
        """Free the connections, and warn, if the session was not closed."""
        if self.loops.abandon():
            warnings.warn(
                f"a MintlifySession made at {':'.join(map(str, self._made_at))} was never closed; "
                "use `async with` or `await session.close()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


def from_environment(argument: object, variable: str, name: str) -> str | None:
    """Return *argument*, or else the value of an environment variable, checked. An empty value is unset.

    Args:
        argument: The argument.
        variable: The variable.
        name: The argument's name: ``project_id``, ``domain`` or ``site``.
    """
    value = os.environ.get(variable) or None if argument is None else argument
    check = check_site if name == "site" else check_identifier
    return (
        None
        if value is None
        else _checked(variable if argument is None else None, partial(check, value, name))
    )


def _checked(variable: str | None, check: Callable[[], T]) -> T:
    """Return the result of *check*. If the value is from *variable*, its error names that."""
    try:
        return check()
    except ConfigurationError as error:
        if variable is None:
            raise
        problem, field = str(error), error.field
    raise ConfigurationError(f"{variable}: {problem}", field=field)


def session_keys(
    admin: KeySource | None, assistant: KeySource | None, assumptions: Assumptions
) -> tuple[Key, Key]:
    """Return the two keys of a session, each from its argument or its environment variable.

    Where both are unset, ``MINTLIFY_API_KEY`` counts as the key that its prefix names.
    """
    common_key, holds, hint = shared_key(assumptions)

    def key(kind: KeyKind, argument: KeySource | None) -> Key:
        variable: str | None = KEY_VARIABLES[kind]
        source: KeySource | None = hidden(os.environ.get(KEY_VARIABLES[kind]) or None)
        if argument is not None:
            variable, source = None, hidden(argument)
        elif source is None and holds == kind:
            variable, source = SHARED_VARIABLE, common_key
        return _checked(variable, partial(Key, kind, source, assumptions, hint=hint))

    admin_key = key("admin", admin)
    if admin_key.given and sys.platform == "emscripten":  # the service says: keep it on a server
        raise ConfigurationError("admin_key must not be used in a browser", field="admin_key")
    return admin_key, key("assistant", assistant)


def check_ready(options: Options, uses: Sequence[object]) -> None:
    """Raise one error that tells everything that is missing for *uses*; without any, for all."""
    steps = {
        "agent": (options.admin_key.check, partial(options.project, None)),
        "assistant": (options.assistant_key.check, partial(options.asked_domain, None)),
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
) -> TransportSettings:
    """Return how a session connects, checked."""
    variable = "MINTLIFY_BASE_URL" if base_url is None and "MINTLIFY_BASE_URL" in os.environ else None
    address = os.environ[variable] if variable else assumptions.base_url if base_url is None else base_url
    check_type(ssl, "ssl", ssl_module.SSLContext)  # aiohttp's ssl=False would verify nothing
    check_bool(allow_insecure_http, "allow_insecure_http")
    check = partial(check_base_url, address, allow_insecure_http=allow_insecure_http)
    url = _checked(variable, check)
    return TransportSettings(
        base_url=url, client_session=client_session, proxy=_proxy_to(url, proxy), ssl=ssl
    )


def _proxy_to(url: str, argument: object) -> str | None:
    """Return the proxy for requests to *url*, checked. None is a direct connection."""
    if argument != ENVIRONMENT:
        proxy, name, choice = argument, "proxy", f', or "{ENVIRONMENT}"'
    else:
        (name, proxy), choice = _environment_proxy(url), ""
    if proxy is None or (isinstance(proxy, str) and _is_proxy(proxy)):
        return proxy
    raise ConfigurationError(
        f"{name} must be a URL that begins with http:// or https:// and names a host{choice}", field="proxy"
    )


def _environment_proxy(url: str) -> tuple[str, str | None]:
    """Return the proxy of the environment for *url*, and the variable that names it.

    aiohttp would read the environment, too. But it connects directly where it cannot use the proxy, and it
    replaces the key by a password in ~/.netrc.
    """
    place, proxies = urlsplit(url), getproxies()
    kind = place.scheme if place.scheme in proxies else "all"
    if kind not in proxies or proxy_bypass(place.hostname or "") or proxy_bypass(place.netloc):
        return "", None
    proxy = proxies[kind].strip()
    names = [name for name in os.environ if name.lower() == f"{kind}_proxy"]
    name = next((name for name in names if os.environ[name].strip() == proxy), f"{kind}_proxy")
    return name, hidden(proxy)


def _is_proxy(text: str) -> bool:
    try:
        proxy = yarl.URL(text)  # as aiohttp reads it
    except ValueError:
        return False
    return proxy.scheme in ("http", "https") and bool(proxy.host)
