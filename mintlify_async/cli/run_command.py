"""Runs one command with its terminal and event loop, and reports errors without a traceback."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import MintlifyError
from .error_advice import UsageError, explain
from .exit_status import INTERRUPTED, TERMINATED
from .terminal import OutputError, Terminal

Command = Callable[[argparse.Namespace, Terminal], Coroutine[Any, Any, int] | int]
"""A coroutine function, which gets an event loop, or a plain function, which makes its own."""


def read_text(words: Sequence[str], what: str) -> str:
    """Return *words* as one text, or standard input if they are ``-`` or none.

    Raises:
        UsageError: There is no text, or only blanks.
    """
    from_input = not words or list(words) == ["-"]
    if not words and sys.stdin.isatty():
        raise UsageError(f"no {what}: give it as an argument, or on standard input")
    text = read_file("-") if from_input else " ".join(words)
    if not text.strip():
        raise UsageError(f"the {what} is blank: give it as an argument, or on standard input")
    return text


def read_file(name: str) -> str:
    """Return the text of the file *name*, or of standard input if it is ``-``."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        source = "standard input" if name == "-" else name
        raise UsageError(f"{source} is not text in {error.encoding.upper()}") from None


class _Notes(logging.Handler):
    """Prints log lines as notes, so that they do not land in a growing answer."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.note(self.format(record))


def run(command: Command, options: argparse.Namespace) -> int:
    """Run *command* and return the exit status."""
    terminal = Terminal(plain=bool(getattr(options, "plain", False)))
    log = logging.getLogger("mintlify_async")
    notes = _Notes(terminal)
    notes.setLevel(logging.DEBUG if options.verbose else logging.WARNING)
    log.addHandler(notes)
    if options.verbose:
        log.setLevel(logging.DEBUG)
    try:
        result = command(options, terminal)
        return result if isinstance(result, int) else asyncio.run(_until_terminated(result))
    except KeyboardInterrupt:
        terminal.note("interrupted")
        return INTERRUPTED
    except asyncio.CancelledError:
        terminal.note("terminated")
        return TERMINATED
    except BrokenPipeError:  # also an OSError, but `main` exits quietly for it
        raise
    except (MintlifyError, UsageError, OutputError, OSError) as error:
        return explain(error, terminal)
    finally:
        log.removeHandler(notes)
        log.setLevel(logging.NOTSET)


async def _until_terminated(command: Coroutine[Any, Any, int]) -> int:
    """Run *command*, and cancel it on SIGTERM, because CI services end a run with SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or a thread of a test
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await command
