"""How a session connects: base URL, proxy, TLS (``ssl=``), the user's own aiohttp session.

The proxy comes from the argument or from the environment. Both are checked in the same way.
"""

from __future__ import annotations

import os
import ssl as ssl_module
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yarl
from attrs import define, field

from ..argument_checks import URLObject, check_bool, check_client_session, check_type, is_loopback
from ..errors import ConfigurationError
from ..model.secret import hidden
from .environment import service_url
from .paths_and_headers import Assumptions

if TYPE_CHECKING:
    import aiohttp

__all__ = ["TransportSettings", "proxy_to", "unused_proxy"]

PROXY_OF_ENVIRONMENT = "environment"
"""The value of ``proxy=`` that takes the proxy from the environment."""

PROXY_VARIABLE = "MINTLIFY_PROXY"


def proxy_to(url: str, argument: object, *, variable: str = "") -> str | None:
    """Return the checked proxy for requests to *url*. None means a direct connection.

    Args:
        url: The URL of the service.
        argument: The proxy's URL, or ``environment``, or None.
        variable: The name of the variable that contains *argument*, for the error.
    """
    if argument != PROXY_OF_ENVIRONMENT:
        proxy, name, choice = argument, variable or "proxy", f', or "{PROXY_OF_ENVIRONMENT}"'
    else:
        (name, proxy), choice = _environment_proxy(url), ""
    if proxy is None or (isinstance(proxy, str) and _is_proxy(proxy)):
        return proxy
    raise ConfigurationError(
        f"{name} must be a URL that begins with http:// or https:// and names a host{choice}", field="proxy"
    )


def _environment_proxy(url: str) -> tuple[str, str | None]:
    """Return the environment's proxy for *url*, and the name of its variable.

    aiohttp could also read the environment. But it connects directly if it cannot use the proxy, and it
    replaces the key with a password in ~/.netrc.
    """
    place, proxies = urlsplit(url), getproxies()
    kind = place.scheme if place.scheme in proxies else "all"
    if kind not in proxies or proxy_bypass(place.hostname or "") or proxy_bypass(place.netloc):
        return "", None
    proxy = proxies[kind].strip()
    names = [name for name in os.environ if name.lower() == f"{kind}_proxy"]
    name = next((name for name in names if os.environ[name].strip() == proxy), f"{kind}_proxy")
    return name, hidden(proxy)


def unused_proxy(url: str) -> str:
    """Return a hint if the environment names a proxy for *url* that a direct session does not use."""
    name, proxy = _environment_proxy(url)
    return f'{name} is set and not used: proxy="{PROXY_OF_ENVIRONMENT}" uses it' if proxy else ""


def _is_proxy(text: str) -> bool:
    try:
        proxy = yarl.URL(text)  # parsed in the same way as by aiohttp
    except ValueError:
        return False
    return proxy.scheme in ("http", "https") and bool(proxy.host)


@define(kw_only=True, eq=False, repr=False, match_args=False)
class TransportSettings:
    """How connections are made. The settings are the same for every loop.

    Args:
        base_url: The checked base URL, without a trailing slash.
        client_session: The user's own aiohttp session, or None for a session of this package.
        proxy: The URL of the proxy, or None.
        ssl: The context that verifies certificates, or None for the default.
        recorder: Records every request with its response, or None. The testing kit sets it.
    """

    base_url: str
    client_session: aiohttp.ClientSession | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)
    ssl: ssl_module.SSLContext | None = None
    recorder: Callable[..., Awaitable[aiohttp.ClientResponse]] | None = None


def transport_settings(
    assumptions: Assumptions,
    base_url: str | URLObject | None,
    allow_insecure_http: bool,
    client_session: aiohttp.ClientSession | None,
    proxy: str | None,
    ssl: ssl_module.SSLContext | None,
) -> TransportSettings:
    """Return the checked settings of a session's connections."""
    check_type(ssl, "ssl", ssl_module.SSLContext)  # aiohttp's ssl=False would verify no certificate
    check_bool(allow_insecure_http, "allow_insecure_http")
    check_client_session(client_session)
    if "Expect" in getattr(client_session, "headers", {}):
        text = "client_session must not have the default header Expect: its headers leave before the body"
        raise ConfigurationError(text, field="client_session")
    url = service_url(assumptions, base_url, allow_insecure_http=allow_insecure_http)
    variable = ""
    # The URL of a local service, or the user's aiohttp session, decides how to connect.
    if proxy is None and client_session is None and not (base_url is not None and is_loopback(url)):
        proxy, variable = hidden(os.environ.get(PROXY_VARIABLE) or None), PROXY_VARIABLE
    proxy = proxy_to(url, proxy, variable=variable)
    return TransportSettings(base_url=url, client_session=client_session, proxy=proxy, ssl=ssl)
