"""What went wrong in; a line or two that say what to do, and the exit status, out."""

from __future__ import annotations

import mintlify_async as mintlify

from .exit_status import GAVE_UP, JOB_FAILED, TROUBLE, USAGE
from .terminal import Terminal

__all__ = ["UsageError", "explain"]


class UsageError(Exception):
    """The command cannot be understood as it was given."""


def explain(error: Exception, terminal: Terminal) -> int:
    """Say what happened and what to do next; return the exit status."""
    terminal.error(str(error) or type(error).__name__)
    advice = _advice(error)
    if advice:
        terminal.note(advice)
    match error:
        case mintlify.ConfigurationError() | UsageError():
            return USAGE
        case mintlify.JobFailedError():
            return JOB_FAILED
        case mintlify.JobTimeoutError():
            return GAVE_UP
        case mintlify.MintlifyError():
            return TROUBLE
        case _:  # a file that is not there, or cannot be read or written
            return USAGE


def _advice(error: Exception) -> str:
    """Return what to do next, where the error itself does not say it."""
    match error:
        case mintlify.AuthenticationError():
            return "make a new key on the API keys page (they last 90 days), or see: mintlify-async doctor"
        case mintlify.PermissionDeniedError():
            return "the key lacks a scope, or this address is not on its allow-list: see the API keys page"
        case mintlify.RateLimitError(retry_after=None):
            return "a limit of the service is used up; try again later"
        case mintlify.RateLimitError():
            return f"try again in {error.retry_after:.0f} s"
        case mintlify.OutcomeUnknownError():
            return "it may have been done: look at the dashboard or the repository before you send it again"
        case mintlify.StreamError():
            return "the answer above is not whole; ask again"
        case mintlify.APIConnectionError():
            return "is the network up, and the address right? See: mintlify-async doctor"
        case mintlify.JobTimeoutError():
            return f"wait again with: mintlify-async job wait {error.ref}"
        case _:
            return ""
