"""Settings that may come from environment variables. An argument has precedence.

The error of a value from the environment begins with the variable's name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..checks import URLObject, check_base_url, check_identifier, check_site
from ..errors import ConfigurationError
from ..model.operation import KeyKind
from ..model.secret import Secret, hidden
from .api_keys import KEY_VARIABLES, Key, KeySource, kind_in_words
from .assumptions import Assumptions

T = TypeVar("T")

SHARED_VARIABLE = "MINTLIFY_API_KEY"
"""Other programs' name for either key: its prefix says which of the two it holds."""


def from_environment(argument: object, variable: str, name: str) -> str | None:
    """Return *argument*, or else the value of an environment variable, checked. An empty value is unset.

    Args:
        argument: The argument.
        variable: The variable.
        name: The argument's name: ``project_id``, ``domain`` or ``site``.
    """
    source = variable if argument is None else None
    value = argument if source is None else os.environ.get(source) or None
    check = check_site if name == "site" else check_identifier
    return None if value is None else _checked(source, partial(check, value, name))


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
    if admin_key.given and sys.platform == "emscripten":  # the service says: keep it on a server
        raise ConfigurationError("admin_key must not be used in a browser", field="admin_key")
    return admin_key, key("assistant", assistant)


def _shared_key(assumptions: Assumptions) -> tuple[Secret, str, str]:
    """Return ``MINTLIFY_API_KEY``, the kind of key that it is, and what to say where a key is missing."""
    key = Secret(os.environ.get(SHARED_VARIABLE, ""))
    # Blanks and quotation marks around it are an error of the key that it holds, not another key.
    kind = assumptions.kind_of_key(key.strip(" \t\r\n\"'"))
    return key, kind, f"; {SHARED_VARIABLE} holds {kind_in_words(kind)}" if key.strip() else ""


def service_url(
    assumptions: Assumptions, argument: str | URLObject | None, *, allow_insecure_http: bool
) -> str:
    """Return the URL of the service, checked, without a trailing slash."""
    variable = "MINTLIFY_BASE_URL" if argument is None and "MINTLIFY_BASE_URL" in os.environ else None
    url = os.environ[variable] if variable else assumptions.base_url if argument is None else argument
    return _checked(variable, partial(check_base_url, url, allow_insecure_http=allow_insecure_http))
