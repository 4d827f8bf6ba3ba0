"""Error messages with the problem, its flag or variable, and the exit status."""

from __future__ import annotations

from ..errors import (
    APIConnectionError,
    AuthenticationError,
    ConfigurationError,
    JobFailedError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    OutcomeUnknownError,
    PermissionDeniedError,
    StreamError,
)
from .exit_status import GAVE_UP, JOB_FAILED, TROUBLE, UNKNOWN, USAGE
from .terminal import OutputError, Terminal


class UsageError(Exception):
    """The arguments of a command do not fit together, or name something that cannot be used."""


class SettingsError(UsageError):
    """Settings are missing. The message has a line for each."""


PLACES = {
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
    "ref": "REF",
    "replay": "--replay",
    "retrieval_page_size": "--results",
    "site": "--site or MINTLIFY_SITE",
}
"""The flag or variable for each argument of the package that an error may name."""


def explain(error: Exception, terminal: Terminal) -> int:
    """Print the problem and the next step. Return the exit status."""
    for line in message_of(error).splitlines():
        terminal.error(line)
    if advice := _advice(error):
        terminal.note(advice)
    match error:
        case JobFailedError():
            return JOB_FAILED
        case JobTimeoutError():
            return GAVE_UP
        case OutcomeUnknownError():
            return UNKNOWN
        case OutputError():
            return TROUBLE
        case MintlifyError() if not isinstance(error, ConfigurationError):
            return TROUBLE
        case _:  # a setting, an argument, or a file that cannot be read or written
            return USAGE


def message_of(error: Exception) -> str:
    """Return the text of *error*, after its flag or variable."""
    match error:
        case OSError(filename=str(name), strerror=str(reason)):
            return f"{name}: {reason}"
        case ConfigurationError(field=str(field)) if field in PLACES:
            return f"{PLACES[field]}: {error}"
        case _:
            return str(error) or type(error).__name__


def _advice(error: Exception) -> str:
    """Return the next step, if the message does not say it."""
    match error:
        case SettingsError():
            return "check them with: mintlify-async doctor; try it without an account: mintlify-async serve"
        case APIConnectionError() | AuthenticationError() | NotFoundError() | PermissionDeniedError():
            return "check settings and network with: mintlify-async doctor"
        case OutcomeUnknownError():
            return "it may have been done: look at the dashboard or the repository before you send it again"
        case StreamError():
            return "the answer above is not complete; ask again"
        case JobTimeoutError():
            check = "check settings and network with: mintlify-async doctor; " if error.error else ""
            return f"{check}wait again with: mintlify-async job wait {error.ref}"
        case _:
            return ""
