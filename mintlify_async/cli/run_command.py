"""Runs one command: makes its terminal and event loop, and reports errors without a traceback."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ..errors import MintlifyError
from .error_advice import UsageError, explain
from .exit_status import INTERRUPTED
from .terminal import Terminal

Command = Callable[[argparse.Namespace, Terminal], Awaitable[int] | int]
"""A coroutine function, which gets an event loop, or a plain function, which makes its own."""


def read_text(given: str | None, what: str) -> str:
    """Return *given*, or standard input if it is ``-`` or None."""
    if given is None and sys.stdin.isatty():
        raise UsageError(f"no {what}: give it as an argument, or on standard input")
    text = sys.stdin.read() if given is None or given == "-" else given
    if not text.strip():  # the interface would accept a blank, and a job costs money
        raise UsageError(f"the {what} is blank: give it as an argument, or on standard input")
    return text


def read_file(name: str) -> str:
    """Return the text of the file *name*, or of standard input if it is ``-``."""
    return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")


def run(command: Command, options: argparse.Namespace) -> int:
    """Run *command* and return the exit status."""
    terminal = Terminal(plain=bool(getattr(options, "plain", False)))
    if options.verbose:
        logging.basicConfig(stream=sys.stderr, format="%(message)s")
        logging.getLogger("mintlify_async").setLevel(logging.DEBUG)
    try:
        outcome = command(options, terminal)
        return outcome if isinstance(outcome, int) else asyncio.run(_await(outcome))
    except KeyboardInterrupt:
        terminal.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # an OSError, too, but `main` ends quietly for it
        raise
    except (MintlifyError, UsageError, OSError, UnicodeError) as error:
        return explain(error, terminal)


async def _await(outcome: Awaitable[int]) -> int:  # asyncio.run takes only coroutines
    return await outcome
