"""The proxy of a session: the argument, or the one that the environment names. Both are checked alike."""

from __future__ import annotations

import os
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yarl

from ..errors import ConfigurationError
from ..model.secret import hidden

__all__ = ["PROXY_VARIABLE", "own_proxy", "proxy_to", "unused_proxy"]

PROXY_OF_ENVIRONMENT = "environment"
"""As a proxy: the one that the environment names."""

PROXY_VARIABLE = "MINTLIFY_PROXY"


def own_proxy() -> str | None:
    """Return the value of ``MINTLIFY_PROXY``, which may contain a password, or None if it has none."""
    return hidden(os.environ.get(PROXY_VARIABLE) or None)


def proxy_to(url: str, argument: object, *, variable: str = "") -> str | None:
    """Return the proxy for requests to *url*, checked. None is a direct connection.

    Args:
        url: The URL of the service.
        argument: The proxy's URL, or ``environment``, or None.
        variable: The variable that *argument* comes from, for the error.
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


def unused_proxy(url: str) -> str:
    """Return what to say if the environment names a proxy for *url* that a direct session does not use."""
    name, proxy = _environment_proxy(url)
    return f'{name} is set and not used: proxy="{PROXY_OF_ENVIRONMENT}" uses it' if proxy else ""


def _is_proxy(text: str) -> bool:
    try:
        proxy = yarl.URL(text)  # as aiohttp reads it
    except ValueError:
        return False
    return proxy.scheme in ("http", "https") and bool(proxy.host)
