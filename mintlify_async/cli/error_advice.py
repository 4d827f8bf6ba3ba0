"""Error messages of the command line: the problem, the flag or variable, and the next step."""

from __future__ import annotations

import re
from typing import Final

from ..errors import (
    APIConnectionError,
    AuthenticationError,
    ConfigurationError,
    JobTimeoutError,
    NotFoundError,
    PermissionDeniedError,
    StreamError,
)
from .exit_status import exit_status_of
from .terminal import Terminal


class UsageError(Exception):
    """The arguments of a command do not fit together, or an argument cannot be used."""


class SettingsError(UsageError):
    """Settings are missing. The message has one line for each setting."""


PLACES: Final = {
    "admin_key": "MINTLIFY_ADMIN_API_KEY",
    "assistant_key": "MINTLIFY_ASSISTANT_API_KEY",
    "base_url": "--base-url or MINTLIFY_BASE_URL",
    "current_path": "--path",
    "dedupe_key": "--dedupe-key",
    "docs": "--docs",
    "domain": "--domain or MINTLIFY_DOMAIN",
    "fp": "--fp",
    "job_id": "JOB",
    "ledger": "--ledger or MINTLIFY_LEDGER",
    "path": "--ledger or --store",
    "project_id": "--project or MINTLIFY_PROJECT_ID",
    "proxy": "--proxy or MINTLIFY_PROXY",
    "ref": "REF",
    "replay": "--replay",
    "retrieval_page_size": "--results",
    "site": "--site or MINTLIFY_SITE",
    "timeout": "--timeout",
}
"""Maps the package's arguments to flags or variables, for errors that name the argument."""

_PHRASES: Final = (
    (r", in \w+= or MINTLIFY_\w+", ""),
    (r"; pass \w+= or set MINTLIFY_\w+", ""),
    (r"; this path is assumed, and Assumptions\(.*?\) changes it", ""),
    (r" and Assumptions\(.*?\)", ""),
    (r", or allow_insecure_http=True", ""),
    (r"leave base_url out and MINTLIFY_BASE_URL unset", "unset it"),
    (r": keep reply\.thread, not its id alone", ": ask without --thread"),
    (r"Take it from handle\\.ref", "Copy the complete line that `job create` printed"),
    (r"; see open_claims\(\)", "; see them with: mintlify-async ledger list FILE"),
    (r" \(with a store, `await chat\.load\(\)` first\)", ": start this command again"),
    (r"; `await chat\.delete\(\)` makes room for a new one", "; give another NAME"),
    (r": proxy=\"environment\" uses it", ": --proxy environment or MINTLIFY_PROXY=environment uses it"),
)
"""Phrases of errors for Python programs, and the phrases that a command shows instead."""

_ARGUMENT: Final = re.compile(rf"\b(?:({'|'.join(PLACES)})=|(\w+_(?:id|key|path|url|page_size))\b)")
"""The name of an argument in a message. A name that may also be a plain word is followed by ``=``."""

_NAMES_VARIABLE: Final = frozenset({"base_url", "domain", "project_id", "proxy", "site"})
"""Settings from variables. An error about a wrong value already names the variable."""

_FROM_VARIABLE: Final = re.compile(
    r"(MINTLIFY_\w+|(?i:all|https?)_(?i:proxy))(?:: | (?=must))(.*)", re.DOTALL
)
"""An error about the value of a variable."""


PASSWORD_ADVICE: Final = (
    "the proxy wants a user and a password: MINTLIFY_PROXY=http://user:password@host:port"
)


def explain(error: Exception, terminal: Terminal) -> int:
    """Print the problem and the next step. Return the exit status."""
    for line in message_of(error).splitlines():
        terminal.error(line)
    if advice := _advice(error):
        terminal.note(advice)
    return exit_status_of(error)


def message_of(error: Exception, source: str = "") -> str:
    """Return the text of *error*. Flags and variables replace the names of the package's arguments.

    Args:
        error: The error.
        source: The flag or variable with the wrong value, for errors that do not contain it.
    """
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = str(error) or type(error).__name__
    if isinstance(error, ConfigurationError) and error.field in PLACES:
        text = _about_place(text, error.field, source)
    return in_flags(text)


def in_flags(text: str) -> str:
    """Return *text*, an error of the package, with flags and variables instead of arguments."""
    for python, command in _PHRASES:
        text = re.sub(python, command, text)
    return _ARGUMENT.sub(lambda match: PLACES.get(match[1] or match[2], match[0]), text)


def _about_place(text: str, argument: str, source: str) -> str:
    """Return *text*, an error about *argument*, with the flag or variable of the value at its start."""
    match = _FROM_VARIABLE.fullmatch(text)
    variable, problem = match.groups() if match else ("", text)
    place = PLACES[argument]
    if argument in _NAMES_VARIABLE:  # the text names no variable, so the value is from the flag
        place = place.partition(" or MINTLIFY_")[0]
    place = source or variable or place
    subject, about, rest = problem.partition(f"{argument} ")
    if about and not subject:
        return f"{place} {rest}"
    return f"{place} {problem}" if problem.startswith("must ") else f"{place}: {problem}"


def proxy_advice(error: Exception) -> str:
    """Return the next step if a proxy requires a password, else an empty text."""
    # If the request has no TLS, the proxy's refusal is an ordinary response.
    if 407 in (getattr(error, "proxy_status", None), getattr(error, "status", None)):
        return PASSWORD_ADVICE
    return ""


def missing_thing(error: NotFoundError) -> str:
    """Return the thing that the service did not find: ``job`` or ``project``. Empty for another server.

    A web site also responds to an unknown path with 404. Its text is then a web page, or contains the path.
    """
    text = error.body.lower()
    if text.lstrip().startswith("<") or "/job" in text:
        return ""
    return next((thing for thing in ("job", "project") if thing in text), "")


def _advice(error: Exception) -> str:
    """If the message does not contain the next step, return that step."""
    if advice := proxy_advice(error):
        return advice
    match error:
        case SettingsError():
            return "check them with: mintlify-async doctor; try it without an account: mintlify-async serve"
        case APIConnectionError() | AuthenticationError() | NotFoundError() | PermissionDeniedError():
            return "check settings and network with: mintlify-async doctor"
        case StreamError():
            return "the answer above is not complete; ask again"
        case JobTimeoutError():
            check = "check settings and network with: mintlify-async doctor; " if error.error else ""
            return f"{check}wait again with: mintlify-async job wait {error.ref}"
        case _:
            return ""
