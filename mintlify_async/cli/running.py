"""One command run on a loop of its own: its outcome in, an exit status and a line or two of advice out."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import mintlify_async as mintlify

from .statuses import GAVE_UP, INTERRUPTED, JOB_FAILED, TROUBLE, USAGE
from .terminal import Terminal

__all__ = ["UsageError", "read_text", "run"]

Command = Callable[[argparse.Namespace, Terminal], Awaitable[int]]


class UsageError(Exception):
    """The command cannot be understood as it was given."""


def read_text(given: str | None, what: str) -> str:
    """Return *given*, or standard input where it is ``-`` or nothing.

    Raises:
        UsageError: Nothing was given and standard input is a terminal.
    """
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise UsageError(f"no {what}: give it as an argument, or on standard input")
    return sys.stdin.read()


def read_file(name: str) -> str:
    """Return the text of the file *name*, or of standard input where it is ``-``."""
    return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")


def run(command: Command, options: argparse.Namespace) -> int:
    """Run *command* to its end and return the exit status; no error shows a traceback."""
    terminal = Terminal(plain=bool(getattr(options, "plain", False)))
    if options.verbose:
        logging.basicConfig(stream=sys.stderr, format="%(message)s")
        logging.getLogger("mintlify_async").setLevel(logging.DEBUG)
    try:
        return asyncio.run(_awaited(command, options, terminal))
    except KeyboardInterrupt:
        terminal.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (mintlify.MintlifyError, UsageError, OSError, UnicodeError) as error:
        return _explain(error, terminal)


async def _awaited(command: Command, options: argparse.Namespace, terminal: Terminal) -> int:
    return await command(options, terminal)


def _explain(error: Exception, terminal: Terminal) -> int:
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
