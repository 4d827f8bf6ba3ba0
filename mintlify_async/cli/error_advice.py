"""Error messages: what went wrong, what to do next, and the exit status."""

from __future__ import annotations

import re

from ..errors import (
    APIConnectionError,
    AuthenticationError,
    ConfigurationError,
    JobFailedError,
    JobTimeoutError,
    MintlifyError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RateLimitError,
    StreamError,
)
from .exit_status import GAVE_UP, JOB_FAILED, TROUBLE, USAGE
from .terminal import Terminal


class UsageError(Exception):
    """The arguments of a command do not fit together, or name something that cannot be used."""


class SettingsError(UsageError):
    """Settings are missing or wrong; the message has a line for each."""


ARGUMENTS = {
    "admin_key": "MINTLIFY_ADMIN_API_KEY",
    "assistant_key": "MINTLIFY_ASSISTANT_API_KEY",
    "base_url": "--base-url or MINTLIFY_BASE_URL",
    "current_path": "--path",
    "dedupe_key": "--dedupe-key",
    "docs": "--docs",
    "domain": "--domain or MINTLIFY_DOMAIN",
    "fp": "--fp",
    "project_id": "--project or MINTLIFY_PROJECT_ID",
    "replay": "--replay",
    "retrieval_page_size": "--results",
    "script": "--script",
}
"""The flag or the variable for each Python argument that an error may name."""

PHRASES = {
    r"pass (\w+=) or set MINTLIFY_\w+": r"set \1",
    r"in (\w+=) or MINTLIFY_\w+": r"in \1",
    r"(MINTLIFY_\w+): (?:project_id|domain|base_url|admin_key|assistant_key) ": r"\1 ",
    r" \(check_key_kind=False [^)]*\)": "",
    r", or allow_insecure_http=True": "",
    r"leave base_url out and MINTLIFY_BASE_URL unset": "leave out the flag and unset the variable",
    r"and that neither a borrowed session's auth= nor ~/\.netrc \(trust_env\) has a password for it": "",
    r"prefix='(refs/\w+/mintlify/)'": r"--ref-prefix \1",
    r"Take it from handle\.ref": "`mintlify-async job create` prints it",
    r"give the session project_id=, or pass a JobRef": "give --project, or the whole reference",
    r"keep reply\.thread, not its id alone": "use the whole file that --save wrote",
    r"`await chat\.load\(\)` and ask again": "start the chat again",
}
"""Advice in Python, and the same for the command line."""


def in_command_line_words(message: str) -> str:
    """Return an error's message with flags and variables in the place of Python arguments."""
    for phrase, words in PHRASES.items():
        message = re.sub(phrase, words, message)
    # A name without an underscore is a plain word, too: it is an argument before "=" and where a line begins.
    names = "|".join(ARGUMENTS)
    with_underscore = "|".join(name for name in ARGUMENTS if "_" in name)
    pattern = rf"\b({names})=|\b({with_underscore})\b|^(?:- )?({names})(?=:? )"
    return re.sub(pattern, lambda found: ARGUMENTS[found[found.lastindex or 0]], message, flags=re.MULTILINE)


def explain(error: Exception, terminal: Terminal) -> int:
    """Print what happened and what to do next; return the exit status."""
    for line in _message(error).splitlines():
        terminal.error(line)
    if advice := _advice(error):
        terminal.note(advice)
    match error:
        case JobFailedError():
            return JOB_FAILED
        case JobTimeoutError():
            return GAVE_UP
        case MintlifyError() if not isinstance(error, ConfigurationError):
            return TROUBLE
        case _:  # a setting, an argument, or a file that cannot be read or written
            return USAGE


def _message(error: Exception) -> str:
    match error:
        case MintlifyError():
            return in_command_line_words(str(error))
        case OSError(filename=str(name), strerror=str(reason)):
            return f"{name}: {reason}"
        case _:
            return str(error) or type(error).__name__


def _advice(error: Exception) -> str:
    """Return what to do next, if the error does not say it."""
    match error:
        case SettingsError():
            return "check them with: mintlify-async doctor; try it without an account: mintlify-async serve"
        case AuthenticationError():
            return "make a new key on the API keys page (they last 90 days), or see: mintlify-async doctor"
        case PermissionDeniedError():
            return "the key lacks a scope, or this address is not on its allow-list: see the API keys page"
        case RateLimitError(retry_after=None):
            return "a rate limit of the service is reached; try again later"
        case RateLimitError():
            return f"try again in {error.retry_after:.0f} s"
        case OutcomeUnknownError():
            return "it may have been done: look at the dashboard or the repository before you send it again"
        case StreamError():
            return "the answer above is not whole; ask again"
        case APIConnectionError():
            return "check the network and the address of the service; see: mintlify-async doctor"
        case JobTimeoutError():
            return f"wait again with: mintlify-async job wait {error.ref}"
        case _:
            return ""
