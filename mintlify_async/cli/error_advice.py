"""Error messages: what went wrong, what to do next, and the exit status."""

from __future__ import annotations

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
    """The arguments of a command do not fit together."""


def explain(error: Exception, terminal: Terminal) -> int:
    """Print what happened and what to do next; return the exit status."""
    terminal.error(str(error) or type(error).__name__)
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


def _advice(error: Exception) -> str:
    """Return what to do next, if the error does not say it."""
    match error:
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
