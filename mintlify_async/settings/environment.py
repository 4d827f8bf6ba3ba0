"""Settings that may come from environment variables. An argument has precedence.

If a value comes from the environment, its error starts with the name of the variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..argument_checks import URLObject, check_base_url, check_identifier, check_site
from ..errors import ConfigurationError
from ..model.operation import KeyKind
from ..model.secret import Secret, hidden
from .api_keys import KEY_VARIABLES, Key, KeySource, kind_in_words
from .paths_and_headers import Assumptions

T = TypeVar("T")

SHARED_VARIABLE = "MINTLIFY_API_KEY"
"""Other programs use this name for either key. The prefix shows which of the two keys it contains."""


def from_environment(argument: object, name: str) -> str | None:
    """Return the checked *argument*, or else the value of an environment variable. An empty value is unset.

    Args:
        argument: The value of the argument, or None.
        name: The name of the argument: ``project_id``, ``domain`` or ``site``.
    """
    source = f"MINTLIFY_{name.upper()}" if argument is None else None
    value = argument if source is None else os.environ.get(source) or None
    check = check_site if name == "site" else check_identifier
    return None if value is None else _checked(source, partial(check, value, name))


def _checked(variable: str | None, check: Callable[[], T]) -> T:
    """Return the result of *check*. If the value is from *variable*, an error names the variable."""
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

    If both are unset, ``MINTLIFY_API_KEY`` is used as the key that its prefix names.
    """
    common_key, holds, hint = _shared_key(assumptions)

    def key(kind: KeyKind, argument: KeySource | None) -> Key:
        variable: str | None = KEY_VARIABLES[kind]
        source: KeySource | None = hidden(os.environ.get(KEY_VARIABLES[kind]) or None)
        if argument is not None:
            variable, source = None, hidden(argument)
        elif source is None and holds == kind:
            variable, source = SHARED_VARIABLE, common_key
        return _checked(variable, partial(Key, kind, source, assumptions, hint=hint))

    admin_key = key("admin", admin)
    # The service's documentation says that this key must only be used on a server.
    if admin_key.given and sys.platform == "emscripten":
        raise ConfigurationError("admin_key must not be used in a browser", field="admin_key")
    return admin_key, key("assistant", assistant)


def _shared_key(assumptions: Assumptions) -> tuple[Secret, str, str]:
    """Return ``MINTLIFY_API_KEY``, its kind of key, and an addition to the error about a missing key."""
    key = Secret(os.environ.get(SHARED_VARIABLE, ""))
    # Blanks and quotation marks around a key do not change its kind. The check of the key reports them.
    kind = assumptions.kind_of_key(key.strip(" \t\r\n\"'"))
    return key, kind, f"; {SHARED_VARIABLE} holds {kind_in_words(kind)}" if key.strip() else ""


def service_url(
    assumptions: Assumptions, argument: str | URLObject | None, *, allow_insecure_http: bool
) -> str:
    """Return the checked URL of the service, without a trailing slash."""
    variable = "MINTLIFY_BASE_URL" if argument is None and "MINTLIFY_BASE_URL" in os.environ else None
    url = os.environ[variable] if variable else assumptions.base_url if argument is None else argument
    return _checked(variable, partial(check_base_url, url, allow_insecure_http=allow_insecure_http))
